"""Events as a journal keeps them: pages of JSON lines in which each part of a prompt is written once.

A prompt repeats all earlier messages, the tools and the schema, so whole prompts would grow with the square of the
turns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from kairo_team.durable.value_classes import CorruptRecord
from kairo_team.events import Content, Event, event_from_json

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection

Said = dict[bytes, tuple[int, int]]
"""For the digest of each written part of a session: the number of its event, and its index in that event."""

_KEPT: Final = "kept"
"""The only key of an object that refers to a part: `[event, index]`. Parts have other keys."""
_SHORT: Final = 60
"""A part of at most this many characters is written each time."""


def written_page(events: Iterable[Event], said: Said) -> str:
    """Return events as the page that a journal keeps, and add the parts of their prompts to `said`."""
    return "\n".join(_with_references(event, said).to_json() for event in events)


def read_pages(connection: Connection, run_id: str, pages: Iterable[str]) -> Iterator[Event]:
    """Yield the events in a run's pages, with whole prompts; read other pages for the parts that they contain."""
    prompts: dict[int, list[Any]] = {}
    for page in pages:
        for line in page.split("\n"):
            event = event_from_json(line)
            if not _is_prompt(event):
                yield event
                continue
            parts = prompts[event.seq] = _parts_of(event)
            yield _with_parts(event, [_part(connection, run_id, one, prompts) for one in parts])


def read_rows(connection: Connection, run_id: str, rows: Iterable[Any]) -> Iterator[Event]:
    """Yield the events in the rows of a run's pages, each with its `last` number and its `body`.

    Raises `CorruptRecord`, which names the page, for a damaged one.
    """
    for row in rows:
        try:
            # A whole page at once: of a damaged one, not even the first events are returned.
            yield from list(read_pages(connection, run_id, [row["body"]]))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            last, what = row["last"], f"{type(error).__name__}: {error}"
            raise CorruptRecord(
                f"the page of events of run {run_id!r} that ends with number {last} is damaged ({what:.200}). Nothing "
                f"else is lost: kairo events {run_id} --after {last} prints the events after it, and the run can be "
                "shown and resumed"
            ) from error


def _part(connection: Connection, run_id: str, written: Any, prompts: dict[int, list[Any]]) -> Any:
    """Return a part; resolve a reference to an earlier one."""
    if [*written] != [_KEPT]:
        return written
    seq, index = written[_KEPT]
    if seq not in prompts:
        sql = "SELECT body FROM event WHERE run_id = ? AND last >= ? ORDER BY last LIMIT 1"
        row = connection.execute(sql, (run_id, seq)).fetchone()
        for event in map(event_from_json, row["body"].split("\n")):
            if _is_prompt(event):
                prompts[event.seq] = _parts_of(event)
    return prompts[seq][index]


def _with_references(event: Event, said: Said) -> Event:
    """Return an event whose repeated parts are replaced by references to the first one."""
    if not _is_prompt(event):
        return event
    written: list[Any] = []
    for index, part in enumerate(_parts_of(event)):
        text = json.dumps(part, sort_keys=True, default=dict)
        place = said.setdefault(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), (event.seq, index))
        written.append({_KEPT: [*place]} if place[0] < event.seq and len(text) > _SHORT else part)
    return _with_parts(event, written)


def _is_prompt(event: Event) -> TypeGuard[Content]:
    return isinstance(event, Content) and event.of == "prompt" and event.body is not None


def _parts_of(prompt: Content) -> list[Any]:
    """Return the messages of a prompt, then its tools, then the schema of its reply, if it has one."""
    body: Any = prompt.body
    return [*body["messages"], *body.get("tools", ()), *filter(None, [body.get("output_schema")])]


def _with_parts(prompt: Content, parts: Sequence[Any]) -> Event:
    """Return a prompt with other parts, in the order of `_parts_of`."""
    body: Any = prompt.body
    rest, lists = iter(parts), {name: body[name] for name in ("messages", "tools") if name in body}
    filled: dict[str, Any] = {name: [*islice(rest, len(old))] for name, old in lists.items()}
    schema = next(rest, None)
    return replace(prompt, body={**body, **filled} if schema is None else {**body, **filled, "output_schema": schema})
