"""The calls that earlier sessions of a run made: which are in doubt, which failed, and which are not asked again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.frozen import EMPTY
from kairo_team.budget import NO_USAGE, Usage, difference, least_of
from kairo_team.engine.records.replay import CutShort
from kairo_team.tools.result import ToolResult

if TYPE_CHECKING:
    from kairo_team.contracts import Records, RunJournal
    from kairo_team.recorded import RecordedCall

_KEY: Final = "diverged"
_OWN_END: Final = ("attempt:", "review:")
"""Steps whose end is known before that of the run."""


def is_open(step: str, records: Records | Mapping[str, object]) -> bool:
    """Return whether work has begun and not ended: an attempt, a review, or what a coordinator asked in a step."""
    if not step.startswith(_OWN_END):
        step = step.partition(":")[2].rpartition(":")[0]
    return isinstance(records.get(step, None), CutShort | None)


class SentCall(NamedTuple):
    """A call that was sent in this session."""

    journal: RunJournal
    number: int
    step: str
    """The work it was made in."""
    what: str
    name: str
    usage: Usage
    """What it may use at most, and is charged where nobody sees its end."""


class CallsUnderWay:
    """The calls of a session, and of those inside it, whose answer nobody has seen, or will see."""

    __slots__ = ("_cut", "_sent")

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], SentCall] = {}
        """By their journal's identity and their number."""
        self._cut: dict[tuple[int, str], list[SentCall]] = {}
        """By their journal's identity and their work: those that were cancelled as the last thing it did."""

    def begin(self, call: SentCall) -> None:
        """Take note of a call that is sent: work that goes on has cancelled its earlier ones itself."""
        self._cut.pop((id(call.journal), call.step), None)
        self._sent[id(call.journal), call.number] = call

    def end(self, journal: RunJournal, number: int, *, cut: bool = False) -> None:
        """Take note of its end, or that it was cancelled."""
        call = self._sent.pop((id(journal), number), None)
        if cut and call is not None:
            self._cut.setdefault((id(journal), call.step), []).append(call)

    def in_doubt(self) -> list[SentCall]:
        """Return the calls in doubt were the session to end now; from any thread."""
        found = [*self._sent.values(), *(call for calls in list(self._cut.values()) for call in calls)]
        return [call for call in found if is_open(call.step, call.journal)]

    def leave_in_doubt(self, journal: RunJournal) -> None:
        """Record that the calls that the end of a session cancelled have no end."""
        for call in self.in_doubt():
            if call.journal is journal:
                journal.ended(call.number, "sent", call.usage)


class EarlierCalls:
    """What one session of a run knows of the calls that were made before it."""

    def __init__(
        self,
        run_id: str,
        steps: Mapping[str, object],
        calls: Sequence[RecordedCall] = (),
        spent_in: Mapping[str, Usage] = EMPTY,
    ) -> None:
        """Take the recorded steps of a run, its calls, those of the runs inside it, and what each step has spent."""
        self._spent_in = spent_in
        self._in_doubt = [one for one in calls if one.state == "sent"]
        self._steps = steps
        self._own = [one for one in calls if one.run_id == run_id]
        self._failed = Counter((one.key, one.name) for one in self._own if one.state == "failed")
        self._asked = {one.key for one in self._own}
        self._unused: dict[str, set[str]] = defaultdict(set)
        """By step: keys of recorded answers that this session has not asked for."""
        self._new: Counter[str] = Counter()
        """By step: how many calls were asked that no session has asked before."""
        for key, answer in steps.items():
            if key.startswith("call:") and answer is None:  # it was about to be made
                self._asked.add(key)
            elif key.startswith("call:"):
                self._unused[key.removeprefix("call:").rsplit(":", 2)[0]].add(key)

    def tools_of_ended_work(self) -> Iterator[tuple[str, bool]]:
        """Yield which tools were called in work that is not made again, in order, and whether each call succeeded."""
        for call in self._own:
            result = self._steps.get(call.key)
            if isinstance(result, ToolResult) and not isinstance(self._steps.get(call.step), CutShort | None):
                yield call.name, not result.is_error

    def beyond(self, step: str, spent: Usage) -> Usage:
        """Return what of an attempt's usage its calls, and the runs inside it, do not tell; its loops count anew."""
        told = self._spent_in.get(step, NO_USAGE)
        return replace(difference(spent, least_of(spent, told), 0.0), loops=0)

    def failures(self, key: str, name: str) -> int:
        """Return how many tries of a call at one model, or of a tool, the provider answered with an error."""
        return self._failed[key, name]

    def ask(self, step: str, key: str) -> None:
        """Take note that a call is asked for in a step."""
        if step not in self._unused:
            return
        if key in self._unused[step]:
            self._unused[step].remove(key)
        elif key not in self._asked:
            self._new[step] += 1
        self._asked.add(key)

    def diverged(self, step: str) -> int:
        """Return how many calls of a step that has ended were made in the place of recorded ones.

        A step that does again what it did asks for everything that is recorded of it, in whatever order.
        """
        return min(len(self._unused.get(step, ())), self._new.pop(step, 0))

    def open_steps(self) -> Iterator[str]:
        """Yield the steps, other than attempts and reviews, in which calls were asked that no session asked before."""
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
    count = sum(map(len, charged.values()))
    what = "1 call was" if count == 1 else f"{count:,} calls were"
    parts = ", ".join(_describe(name, held) for name, held in sorted(charged.items()))
    return [f"{what} under way when {when}, and nobody saw the answer: {parts}"]


def _describe(name: str, held: Sequence[Usage]) -> str:
    """Say how often something is in doubt, and what is charged for it."""
    total = sum(held, Usage())
    times = "" if len(held) == 1 else f" {len(held):,} times"
    amounts = [f"{total.tokens:,} tokens"] if total.tokens else []
    amounts += [f"${total.dollars}"] if total.dollars else []
    amounts += ["1 tool call" if total.tool_calls == 1 else f"{total.tool_calls:,} tool calls"] * bool(total.tool_calls)
    return f"{name}{times}, charged {' and '.join(amounts) or 'nothing'}"


class Divergences:
    """The pieces of work that asked something else than was recorded; kept, so that later sessions report it too."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Records) -> None:
        self._journal = journal

    def note(self, work: str, calls: int) -> str:
        """Record that a piece of work made this many calls in the place of recorded ones; return what to say of it."""
        before = self._found
        self._journal.put(_KEY, {**before, work: before.get(work, 0) + calls})
        return describe_divergence(work, self._found[work])

    @property
    def warnings(self) -> list[str]:
        """One sentence for each piece of work."""
        return [describe_divergence(work, calls) for work, calls in self._found.items()]

    @property
    def _found(self) -> Mapping[str, int]:
        found: Any = self._journal.get(_KEY, None)
        return found or {}


def describe_divergence(work: str, calls: int) -> str:
    """Return the warning of a piece of work that asked something else than was recorded."""
    what = "1 call was" if calls == 1 else f"{calls:,} calls were"
    return (
        f"{work} asked something else than before the run was interrupted: {what} made in the place of recorded ones, "
        "and paid again. What an agent takes from the clock, chance or the world belongs into context.recorded(...)"
    )
