"""`MadeCalls`: the tool calls of one attempt, and those of earlier attempts that are not repeated unasked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.results import DoneCall

if TYPE_CHECKING:
    from kairo_team.tools.result import ToolResult
    from kairo_team.tools.tool import Tool

Tell = Callable[[int, DoneCall], object]
"""Is told of an attempt's call, and which of them it is, from 0."""

MOST_TOLD: Final = 1_000
"""Characters of a call's arguments, and of its result, that later attempts receive."""

_LATE: Final = TimeoutError.__name__
"""The beginning of the result of a call that took too long: nobody knows whether it was done."""


class MadeCall:
    """A call of this attempt, whose result is there once it has one."""

    __slots__ = ("done", "tell")

    def __init__(self, done: DoneCall) -> None:
        self.done = done
        self.tell: Callable[[DoneCall], object] | None = None
        """Is told of its end."""

    def end(self, result: ToolResult) -> None:
        """Take note of its result; a tool that failed, and not over its time, did not do what it was to do."""
        failed = result.is_error and result.refused_by is None
        asks = self.done.asks and (not failed or result.text.startswith(_LATE))
        self.done = replace(self.done, result=_cut(result.text), failed=result.is_error, asks=asks)
        if self.tell is not None:
            self.tell(self.done)


class MadeCalls:
    """What one attempt did with tools, for the attempts after it; and what those before it did."""

    __slots__ = ("_around", "_earlier", "_made", "_number", "_tell")

    def __init__(
        self, number: int, earlier: Sequence[DoneCall], around: MadeCalls | None = None, tell: Tell | None = None
    ) -> None:
        """Take the attempt's number, the calls of earlier attempts, and the calls of the attempt around its run.

        `tell` is told of each call as it begins, and again as it ends.
        """
        self._number = number
        self._earlier = {one.digest: one for one in earlier if one.asks}
        self._around = around
        self._made: list[MadeCall] = []
        self._tell = tell

    @property
    def all(self) -> tuple[DoneCall, ...]:
        """The calls of this attempt, also those of runs inside it, oldest first."""
        return tuple(replace(one.done, attempt=self._number) for one in self._made)

    def begin(self, tool: Tool, arguments: Mapping[str, Any]) -> MadeCall:
        """Take note of a call that is about to be made."""
        written = _written(arguments)
        done = DoneCall(self._number, tool.name, _cut(written), _digest(tool, written), asks=changes(tool))
        made = MadeCall(done)
        self.add([made])
        return made

    def add(self, calls: Iterable[MadeCall]) -> None:
        """Take note of calls, also for the attempt around this run."""
        calls = tuple(calls)
        if self._tell is not None:
            for number, made in enumerate(calls, len(self._made)):
                made.tell = partial(self._tell, number)
                made.tell(made.done)
        self._made += calls
        if self._around is not None:
            self._around.add(calls)

    def earlier(self, tool: Tool, arguments: Mapping[str, Any]) -> DoneCall | None:
        """Return the same call by an earlier attempt, here or around this run, if repeating it needs an approval."""
        found = self._earlier.get(_digest(tool, _written(arguments))) if self._earlier else None
        return found if found is not None or self._around is None else self._around.earlier(tool, arguments)


def changes(tool: Tool) -> bool:
    """Return whether a second call of a tool may change something more."""
    return tool.side_effect != "read" and not tool.idempotent


def why_asked(earlier: DoneCall) -> str:
    """Say what an earlier attempt did, and what came of it."""
    made = f"attempt {earlier.attempt} at this task made the same call"
    if earlier.result is None:
        return f"{made}, and nobody knows whether it was done"
    if earlier.failed:
        return f"{made}, and nobody knows whether it was done: {earlier.result}"
    return f"{made}, and its result was: {earlier.result}"


def _written(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON, sorted by name."""
    return json.dumps(thaw(arguments), sort_keys=True, ensure_ascii=False)


def _digest(tool: Tool, written: str) -> str:
    named = f"{tool.name}\n{written}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(named).hexdigest()[:32]


def _cut(text: str) -> str:
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[:MOST_TOLD]} [cut here: {len(text) - MOST_TOLD:,} characters are left out]"
