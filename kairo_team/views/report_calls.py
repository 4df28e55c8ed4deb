"""The calls of an attempt in a report: how each ended, and its texts if they are recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.counts import count
from kairo_team._util.narrowing import fields_of
from kairo_team.views.report_text import cut, fair_share, seconds

if TYPE_CHECKING:
    from kairo_team.views.run_story import AttemptStory, CallStory, RunStory

_MOST_CALLS: Final = 20
"""Calls of one attempt that are listed."""
_TEXT_OF_ALL: Final = 1_000_000
"""Characters of all prompts, replies, arguments and results of a report together."""
_LEAST_TEXT, _MOST_TEXT = 100, 20_000
_NONE: Final = (
    "Prompts, replies, arguments and results of calls were not recorded: kairo run --content events, or "
    'Runtime(content="events"), records them in the events, "journal" in the journal alone.'
)
_WITHHELD: Final = (
    "Prompts, replies, arguments and results of calls are in the run's journal alone: kairo report RUN --journal FILE "
    "shows them."
)


class Said(NamedTuple):
    """A text of a call."""

    of: str
    """"prompt", "reply", "arguments" or "result"."""
    text: str
    sentence: str
    """A sentence on what was cut, or ""."""


class ShownCall(NamedTuple):
    """A call as the page shows it."""

    name: str
    what: str
    outcome: str
    facts: str
    said: Sequence[Said]


class Calls:
    """The calls of a run, with the texts that fit a report."""

    def __init__(self, story: RunStory) -> None:
        self._said: dict[str, list[tuple[str, str]]] = {}
        for task in story.tasks.values():
            for attempt in task.attempts:
                self._read(story, attempt.calls)
        self._read(story, (call for call in story.calls if call.task_id is None))
        texts = [text for said in self._said.values() for _, text in said]
        self._most = min(max(fair_share(map(len, texts), _TEXT_OF_ALL), _LEAST_TEXT), _MOST_TEXT)
        self.sentence = "" if texts else _WITHHELD if story.withholds else _NONE if story.calls else ""
        """A sentence on why texts are missing, or ""."""

    def _read(self, story: RunStory, calls: Iterable[CallStory]) -> None:
        before: Sequence[Any] = ()
        for call in calls:
            bodies = story.texts.get(call.call_id)
            if bodies is None or call.call_id in self._said:
                continue
            said: list[tuple[str, str]] = []
            for of, body in bodies.items():
                if of == "prompt":
                    messages: Sequence[Any] = fields_of(body).get("messages", ())
                    # A prompt mostly repeats the one before: only its new messages are shown.
                    said.append((of, "\n\n".join(_conversation(before, messages))))
                    before = messages
                else:
                    said.append((of, _in_words(body)))
            self._said[call.call_id] = said

    def shown(self, calls: Sequence[CallStory]) -> list[ShownCall]:
        """Return the first of these calls; of several tries of one call, only the last has texts."""
        last = {call.call_id: call.number for call in calls}
        return [self._show(call, told=last[call.call_id] == call.number) for call in calls[:_MOST_CALLS]]

    def _show(self, call: CallStory, *, told: bool) -> ShownCall:
        reason = ": ".join(one for one in (call.refused_by, call.reason) if one)
        tries = f", try {call.number}" if call.number > 1 else ""
        facts = [count(call.usage.tokens, "token")] if call.what == "model" else []
        facts += [f"reasoning, {count(call.reasoning, 'token')}"] if call.reasoning else []
        facts += [f"cached, {count(call.cached, 'token')}"] if call.cached else []
        facts += [] if call.end is None or call.outcome == "refused" else [seconds(call.end - call.start)]
        what = (call.what if call.purpose in ("generate", "tool") else call.purpose) + tries
        said = [Said(of, *cut(text, self._most)) for of, text in self._said.get(call.call_id, ())] if told else []
        return ShownCall(call.name, what, call.outcome, f"{', '.join(facts)} {cut(reason, 400)[0]}".strip(), said)


def left_out(attempt: AttemptStory) -> str:
    """Say how many calls of an attempt are not listed, or return ""."""
    more = len(attempt.calls) - _MOST_CALLS
    return f"{count(more, 'more call')}." if more > 0 else ""


def _conversation(before: Sequence[Any], messages: Sequence[Any]) -> Iterator[str]:
    """Yield the messages of a prompt; messages that the prompt before had, in that order, are only counted."""
    new: list[Any] = []
    place = 0
    for message in messages:
        try:
            place = before.index(message, place) + 1  # over messages that were for one turn only
        except ValueError:
            new.append(message)
    if len(new) < len(messages):
        yield f"({count(len(messages) - len(new), 'message')} of the call before)"
    for message in new:
        yield f"{fields_of(message).get('role', '')}: {_in_words(message)}"


def _in_words(body: Any) -> str:
    """Write a body of `content`: the text and the tool calls of a message or reply, else JSON."""
    fields = fields_of(body)
    if "text" not in fields:
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, indent=1, default=str)
    text = [str(fields["text"])] if fields["text"] else []
    asked = [fields_of(one) for one in fields.get("tool_calls", ())]
    calls = [f"calls {one.get('name')} {json.dumps(one.get('arguments'), ensure_ascii=False)}" for one in asked]
    return "\n".join([*text, *calls])
