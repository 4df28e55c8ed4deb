"""`MadeCalls`: the tool calls of one attempt, and earlier attempts' calls that need an approval to be repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.artifacts import DoneCall

if TYPE_CHECKING:
    from kairo_team.tools.result import ToolResult
    from kairo_team.tools.tool import Tool

Report = Callable[[int, DoneCall], object]
"""Receives an attempt's call and its number in the attempt, from 0."""

MOST_TOLD: Final = 1_000
"""Most characters of a call's arguments, and of its result, that later attempts receive."""

_LATE: Final = TimeoutError.__name__
"""The beginning of the result of a call that timed out: its effect is unknown."""


class MadeCall:
    """A call of this attempt; its result is set when it ends."""

    __slots__ = ("done", "report")

    def __init__(self, done: DoneCall) -> None:
        self.done = done
        self.report: Callable[[DoneCall], object] | None = None
        """Receives the call when it ends."""

    def end(self, result: ToolResult) -> None:
        """Record the result; a call that failed, other than by a timeout, may be repeated unasked."""
        # A tool that failed had no effect; after a timeout its effect is unknown.
        failed = result.is_error and result.refused_by is None
        asks = self.done.asks and (not failed or result.text.startswith(_LATE))
        self.done = replace(self.done, result=_cut(result.text), failed=result.is_error, asks=asks)
        if self.report is not None:
            self.report(self.done)


class MadeCalls:
    """The tool calls of one attempt, for later attempts; and the calls of earlier ones."""

    __slots__ = ("_around", "_earlier", "_made", "_number", "_report")

    def __init__(
        self, number: int, earlier: Sequence[DoneCall], around: MadeCalls | None = None, report: Report | None = None
    ) -> None:
        """Start without calls; `earlier` are earlier attempts' calls, `around` those of the attempt around this run.

        `report` receives each call as it begins, and again as it ends.
        """
        self._number = number
        # The key is the digest, because the arguments that are kept may be cut.
        self._earlier = {one.digest: one for one in earlier if one.asks}
        self._around = around
        self._made: list[MadeCall] = []
        self._report = report

    @property
    def all(self) -> tuple[DoneCall, ...]:
        """The calls of this attempt and of runs inside it, oldest first."""
        return tuple(replace(one.done, attempt=self._number) for one in self._made)

    def begin(self, tool: Tool, arguments: Mapping[str, Any]) -> MadeCall:
        """Record a call that is about to be made."""
        written = _written(arguments)
        done = DoneCall(self._number, tool.name, _cut(written), _digest(tool, written), asks=changes(tool))
        made = MadeCall(done)
        self.add([made])
        return made

    def add(self, calls: Iterable[MadeCall]) -> None:
        """Record calls, also for the attempt around this run."""
        calls = tuple(calls)
        if self._report is not None:
            for number, made in enumerate(calls, len(self._made)):
                made.report = partial(self._report, number)
                made.report(made.done)
        self._made += calls
        if self._around is not None:
            self._around.add(calls)

    def earlier(self, tool: Tool, arguments: Mapping[str, Any]) -> DoneCall | None:
        """Return the same call by an earlier attempt, of this run or around it, if repeating it needs an approval."""
        found = self._earlier.get(_digest(tool, _written(arguments))) if self._earlier else None
        return found if found is not None or self._around is None else self._around.earlier(tool, arguments)


def changes(tool: Tool) -> bool:
    """Return whether a second call of a tool may change something again."""
    return tool.side_effect != "read" and not tool.idempotent


def why_asked(earlier: DoneCall) -> str:
    """Return a sentence on an earlier attempt's call and its result."""
    made = f"attempt {earlier.attempt} at this task made the same call"
    if earlier.result is None:
        return f"{made}, and it is unknown whether it was done"
    if earlier.failed:
        return f"{made}, and it is unknown whether it was done: {earlier.result}"
    return f"{made}, and its result was: {earlier.result}"


def _written(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON, sorted by name."""
    # Sorted, because a model may repeat a call with the names in another order.
    return json.dumps(thaw(arguments), sort_keys=True, ensure_ascii=False)


def _digest(tool: Tool, written: str) -> str:
    named = f"{tool.name}\n{written}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(named).hexdigest()[:32]  # 128 bits: no chance collision in a run


def _cut(text: str) -> str:
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[:MOST_TOLD]} [cut here: {len(text) - MOST_TOLD:,} characters are left out]"
