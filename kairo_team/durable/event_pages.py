"""Events as a journal keeps them: pages of JSON lines in which each message of a prompt is written once.

A prompt repeats all earlier messages, so whole prompts would grow with the square of the turns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.events import Content, Event, event_from_json

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection

Said = dict[bytes, tuple[int, int]]
"""For the digest of each written message of a session: the number of its event, and its index in that event."""

_KEPT: Final = "kept"
"""The only key of an object that refers to a message: `[event, message]`. Messages have other keys."""
_SHORT: Final = 60
"""A message of at most this many characters is written each time."""


def written_page(events: Iterable[Event], said: Said) -> str:
    """Return events as the page that a journal keeps, and add their messages to `said`."""
    return "\n".join(_once(event, said).to_json() for event in events)


def read_pages(connection: Connection, run_id: str, pages: Iterable[str]) -> Iterator[Event]:
    """Yield the events in a run's pages, with whole prompts; read other pages for the messages that they contain."""
    prompts: dict[int, Any] = {}
    for page in pages:
        for line in page.split("\n"):
            event = event_from_json(line)
            messages = _messages_of(event)
            if messages is None:
                yield event
                continue
            prompts[event.seq] = messages
            whole = [_message(connection, run_id, one, prompts) for one in messages]
            yield _with_messages(event, whole)


def _message(connection: Connection, run_id: str, written: Any, prompts: dict[int, Any]) -> Any:
    """Return a message; resolve a reference to an earlier one."""
    if _KEPT not in written:
        return written
    seq, number = written[_KEPT]
    if seq not in prompts:
        sql = "SELECT body FROM event WHERE run_id = ? AND last >= ? ORDER BY last LIMIT 1"
        row = connection.execute(sql, (run_id, seq)).fetchone()
        for event in map(event_from_json, row["body"].split("\n")):
            if (messages := _messages_of(event)) is not None:
                prompts[event.seq] = messages
    return prompts[seq][number]


def _once(event: Event, said: Said) -> Event:
    """Return an event whose repeated messages are replaced by references to the first one."""
    messages = _messages_of(event)
    if messages is None:
        return event
    written: list[Any] = []
    for number, message in enumerate(messages):
        text = json.dumps(message, sort_keys=True, default=dict)
        place = said.setdefault(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), (event.seq, number))
        written.append({_KEPT: [*place]} if place[0] < event.seq and len(text) > _SHORT else message)
    return _with_messages(event, written)


def _messages_of(event: Event) -> Any:
    """Return the messages of a prompt; None for any other event."""
    if not isinstance(event, Content) or event.of != "prompt" or event.body is None:
        return None
    return event.body["messages"]


def _with_messages(event: Event, messages: list[Any]) -> Event:
    assert isinstance(event, Content), "prompts are content"
    return replace(event, body={**event.body, "messages": messages})
