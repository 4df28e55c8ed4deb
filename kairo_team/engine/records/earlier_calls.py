"""The calls of a run's earlier sessions: which are in doubt, which failed, and which are not repeated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.counts import count
from kairo_team._util.frozen import EMPTY
from kairo_team.budget import NO_USAGE, Usage, difference, least_of
from kairo_team.engine.records.plan_records import CutShort
from kairo_team.tools.result import ToolResult

if TYPE_CHECKING:
    from kairo_team.contracts import Records, RunJournal
    from kairo_team.recorded import RecordedCall

_KEY: Final = "diverged"
_OWN_END: Final = ("attempt:", "review:")
"""Prefixes of steps whose end is known before the run's end."""


def is_open(step: str, records: Records | Mapping[str, object]) -> bool:
    """Return whether a step has begun and not ended: an attempt, a review, or what a coordinator asked in a step."""
    if not step.startswith(_OWN_END):
        step = step.partition(":")[2].rpartition(":")[0]
    return isinstance(records.get(step, None), CutShort | None)


class SentCall(NamedTuple):
    """A call that was sent in this session."""

    journal: RunJournal
    number: int
    step: str
    """The step that made the call."""
    what: str
    name: str
    usage: Usage
    """The most that the call may use; charged if its end is not seen."""


class CallsUnderWay:
    """The calls of a session, and of those inside it, that have no answer."""

    __slots__ = ("_cut", "_sent")

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], SentCall] = {}
        """Sent calls by the journal's identity and the call's number."""
        self._cut: dict[tuple[int, str], list[SentCall]] = {}
        """Cancelled calls by the journal's identity and the step, if that was the last thing the step did."""

    def begin(self, call: SentCall) -> None:
        """Record that a call is sent."""
        # A step that sends another call has handled the cancellation of its earlier ones.
        self._cut.pop((id(call.journal), call.step), None)
        self._sent[id(call.journal), call.number] = call

    def end(self, journal: RunJournal, number: int, *, cut: bool = False) -> None:
        """Record that a call ended, or was cancelled (`cut`)."""
        call = self._sent.pop((id(journal), number), None)
        if cut and call is not None:
            self._cut.setdefault((id(journal), call.step), []).append(call)

    def in_doubt(self) -> list[SentCall]:
        """Return the calls that would be in doubt if the session ended now; from any thread."""
        # Copied first, because the run's own thread may change both meanwhile.
        found = [*self._sent.values(), *(call for calls in list(self._cut.values()) for call in calls)]
        return [call for call in found if is_open(call.step, call.journal)]

    def leave_in_doubt(self, journal: RunJournal) -> None:
        """Record that the calls that the end of a session cancelled have no end."""
        for call in self.in_doubt():
            if call.journal is journal:
                journal.ended(call.number, "sent", call.usage)


class EarlierCalls:
    """What one session of a run knows of the calls made before it."""

    def __init__(
        self,
        run_id: str,
        steps: Mapping[str, object],
        calls: Sequence[RecordedCall] = (),
        spent_in: Mapping[str, Usage] = EMPTY,
    ) -> None:
        """Take a run's recorded steps, its calls, the calls of the runs inside it, and the usage by step."""
        self._spent_in = spent_in
        self._in_doubt = [one for one in calls if one.state == "sent"]
        self._steps = steps
        self._own = [one for one in calls if one.run_id == run_id]
        self._failed = Counter((one.key, one.name) for one in self._own if one.state == "failed")
        self._asked = {one.key for one in self._own}
        self._unused: dict[str, set[str]] = defaultdict(set)
        """Keys of recorded answers that this session has not used, by step."""
        self._new: Counter[str] = Counter()
        """Number of calls that no session has made before, by step."""
        for key, answer in steps.items():
            if key.startswith("call:") and answer is None:  # it was about to be made
                self._asked.add(key)
            elif key.startswith("call:"):
                self._unused[key.removeprefix("call:").rsplit(":", 2)[0]].add(key)

    def tools_of_ended_work(self) -> Iterator[tuple[str, bool]]:
        """Yield name and success of each tool call, in order, in steps that are not repeated."""
        for call in self._own:
            result = self._steps.get(call.key)
            if isinstance(result, ToolResult) and not isinstance(self._steps.get(call.step), CutShort | None):
                yield call.name, not result.is_error

    def beyond(self, step: str, spent: Usage) -> Usage:
        """Return an attempt's usage beyond its calls and the runs inside it."""
        told = self._spent_in.get(step, NO_USAGE)
        # Loops are counted again, so they are left out.
        return replace(difference(spent, least_of(spent, told), 0.0), loops=0)

    def failures(self, key: str, name: str) -> int:
        """Return how many tries of a call at one model, or of a tool, failed with the provider's error."""
        return self._failed[key, name]

    def note_call(self, step: str, key: str) -> None:
        """Note that a step makes a call."""
        if step not in self._unused:
            return
        if key in self._unused[step]:
            self._unused[step].remove(key)
        elif key not in self._asked:
            self._new[step] += 1
        self._asked.add(key)

    def diverged(self, step: str) -> int:
        """Return how many calls of an ended step were made in the place of recorded ones."""
        # A repeated step makes all recorded calls, in any order. An unused answer and a new call together are a
        # difference.
        return min(len(self._unused.get(step, ())), self._new.pop(step, 0))

    def open_steps(self) -> Iterator[str]:
        """Yield the steps, other than attempts and reviews, that made calls which no session made before."""
        yield from (step for step in tuple(self._new) if not step.startswith(_OWN_END))

    @property
    def warnings(self) -> list[str]:
        """One sentence on the calls in doubt, if there are any."""
        return describe_doubts(self._in_doubt, "an earlier session of the run ended")


def describe_doubts(calls: Iterable[RecordedCall | SentCall], when: str) -> list[str]:
    """Return one sentence on calls in doubt, if there are any: `when` says what happened while they were under way."""
    charged: dict[str, list[Usage]] = defaultdict(list)
    for call in calls:
        charged[f"{call.what} {call.name!r}"].append(call.usage)
    if not charged:
        return []
    number = sum(map(len, charged.values()))
    what = "1 call was" if number == 1 else f"{number:,} calls were"
    parts = ", ".join(_describe(name, held) for name, held in sorted(charged.items()))
    return [f"{what} under way when {when}, and nobody saw the answer: {parts}"]


def _describe(name: str, held: Sequence[Usage]) -> str:
    """Say how often something is in doubt, and the amount charged for it."""
    total = sum(held, Usage())
    times = "" if len(held) == 1 else f" {len(held):,} times"
    amounts = [f"{total.tokens:,} tokens"] if total.tokens else []
    amounts += [f"${total.dollars}"] if total.dollars else []
    amounts += [count(total.tool_calls, "tool call")] if total.tool_calls else []
    return f"{name}{times}, charged {' and '.join(amounts) or 'nothing'}"


class Divergences:
    """Steps whose calls differ from the recorded ones; persisted, so that later sessions report them too."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Records) -> None:
        self._journal = journal

    def note(self, work: str, calls: int) -> str:
        """Record that a step made this many calls in the place of recorded ones; return the warning."""
        before = self._found
        self._journal.put(_KEY, {**before, work: before.get(work, 0) + calls})
        return describe_divergence(work, self._found[work])

    @property
    def warnings(self) -> list[str]:
        """One sentence for each step."""
        return [describe_divergence(work, calls) for work, calls in self._found.items()]

    @property
    def _found(self) -> Mapping[str, int]:
        found: Any = self._journal.get(_KEY, None)
        return found or {}


def describe_divergence(work: str, calls: int) -> str:
    """Return the warning about a step whose calls differ from the recorded ones."""
    what = "1 call was" if calls == 1 else f"{calls:,} calls were"
    return (
        f"{work} made other calls than before the run was interrupted: {what} made in the place of recorded ones, "
        "and paid again. Wrap what an agent takes from the clock, chance or the outside world in context.recorded(...)"
    )
