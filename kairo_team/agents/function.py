"""Any function is an agent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kairo_team.threads import run_in_thread

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.tasks import Assignment


class FunctionAgent:
    """Wraps a function `(assignment)` or `(assignment, context)`.

    It gets the context as a second required positional parameter, or as one named `context`. An async function runs
    in the event loop; a plain one in a daemon thread, where it may read `context.cancelled` to end early.
    """

    reentrant = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._pass_context = _context_passing(function)
        self._is_async = _is_async(function)

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        """Call the function; what it returns is checked by the run."""
        call = self._pass_context(self.function, assignment, context)
        if self._is_async:
            return await call()
        result = await run_in_thread(call)
        return await result if inspect.isawaitable(result) else result

    def __repr__(self) -> str:
        return f"FunctionAgent({getattr(self.function, '__qualname__', self.function)!s})"


_Bind = Callable[[Callable[..., Any], "Assignment", "MemberContext"], Callable[[], Awaitable[Any]]]


def _without(function: Callable[..., Any], assignment: Assignment, _context: MemberContext) -> Callable[[], Any]:
    return functools.partial(function, assignment)


def _second(function: Callable[..., Any], assignment: Assignment, context: MemberContext) -> Callable[[], Any]:
    return functools.partial(function, assignment, context)


def _named(function: Callable[..., Any], assignment: Assignment, context: MemberContext) -> Callable[[], Any]:
    return functools.partial(function, assignment, context=context)


def _context_passing(function: Callable[..., Any]) -> _Bind:
    """Return how this function wants the context, from its signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return _without
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name == "context"):
        return _second
    if any(p.name == "context" and p.kind is not p.POSITIONAL_ONLY for p in parameters[1:]):
        return _named
    return _without


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself is needed
