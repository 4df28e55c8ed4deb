"""Any function is an agent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kairo_team._util.plugin_shapes import context_by, is_async
from kairo_team._util.threads import run_in_thread

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.tasks import Assignment


class FunctionAgent:
    """Wraps a function `(assignment)` or `(assignment, context)`.

    The context is passed as a second required positional parameter, or as one named `context`. An async function runs
    in the event loop; a plain one in a daemon thread, where it may read `context.cancelled` to end early.
    """

    reentrant = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        # A function of both, whichever of the two the signature takes.
        way = context_by(function)
        if way == "position":
            self._call: Call = function
        elif way == "keyword":
            self._call = lambda assignment, context: function(assignment, context=context)
        else:
            self._call = lambda assignment, _: function(assignment)
        self.invoke: Call = self._call if is_async(function) else self.run
        """Makes the awaitable that a run waits for; an async function needs no wrapper."""

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        """Call the function and return its result, which the run checks."""
        if self.invoke is self._call:
            return await self._call(assignment, context)
        result = await run_in_thread(functools.partial(self._call, assignment, context))
        return await result if inspect.isawaitable(result) else result

    def __repr__(self) -> str:
        return f"FunctionAgent({getattr(self.function, '__qualname__', self.function)!s})"


Call = Callable[["Assignment", "MemberContext"], Any]
