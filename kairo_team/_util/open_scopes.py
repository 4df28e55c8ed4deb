"""Close cancel scopes and task groups that foreign code left open in its task.

A task's scopes are a stack: with a foreign scope on top, those below cannot be left, and code that runs in the task
afterwards is cancelled with it. Neither anyio nor trio has a public way to inspect or repair that stack. If their
private names differ from those used here, every stack counts as intact.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from anyio.lowlevel import current_token


class Mark(Protocol):
    """The scopes that were open in the running task when the mark was made; use it in that task."""

    @property
    def intact(self) -> bool:
        """Whether exactly these scopes are open now."""
        ...

    async def restore(self) -> None:
        """Cancel and leave all scopes that were opened since. In trio this waits for the children of task groups."""
        ...


class _AsyncioMark:
    __slots__ = ("_scope", "_state")

    def __init__(self, states: Any, task: Any) -> None:
        self._state = states.get(task)
        self._scope = None if self._state is None else self._state.cancel_scope

    @property
    def intact(self) -> bool:
        return self._state is None or self._state.cancel_scope is self._scope

    async def restore(self) -> None:
        state, scope = self._state, self._state.cancel_scope
        left: list[Any] = []
        while scope is not None and scope is not self._scope:
            left.append(scope)
            scope = scope._parent_scope  # noqa: SLF001 - see the module
        if scope is not self._scope:  # our own scope was left too
            return
        for one in left:
            one.cancel()
            one.__exit__(None, None, None)
        state.cancel_scope = self._scope


class _TrioMark:
    __slots__ = ("_nurseries", "_status", "_task")

    def __init__(self, task: Any) -> None:
        self._task = task
        self._status = task._cancel_status  # noqa: SLF001 - see the module
        self._nurseries = len(task.child_nurseries)

    @property
    def intact(self) -> bool:
        task = self._task
        return task._cancel_status is self._status and len(task.child_nurseries) == self._nurseries  # noqa: SLF001 - see the module

    async def restore(self) -> None:
        task = self._task
        while len(task.child_nurseries) > self._nurseries:
            nursery = task.child_nurseries[-1]
            nursery.cancel_scope.cancel()
            await nursery._nested_child_finished(None)  # noqa: SLF001 - see the module
        task._activate_cancel_status(self._status)  # noqa: SLF001 - see the module


class _NoMark:
    intact = True

    async def restore(self) -> None:
        pass


_NO_MARK = _NoMark()


def cancelled_around(task: Any) -> bool:
    """Return whether a scope around an asyncio task was cancelled, even with a shield between them."""
    states: Any = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", {})
    state = states.get(task)
    scope = None if state is None else state.cancel_scope
    while scope is not None and not scope.cancel_called:
        scope = scope._parent_scope  # noqa: SLF001 - see the module
    return scope is not None


def marker() -> Callable[[], Mark]:
    """Return a function, for this event loop, that marks the scopes open in the running task."""
    if hasattr(current_token().native_token, "call_soon"):
        states: Any = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", None)
        current: Callable[[], Any] = sys.modules["asyncio"].current_task
        return (lambda: _NO_MARK) if states is None else lambda: _AsyncioMark(states, current())
    running: Callable[[], Any] = sys.modules["trio"].lowlevel.current_task
    known = all(hasattr(running(), name) for name in ("_cancel_status", "_activate_cancel_status"))
    return (lambda: _TrioMark(running())) if known else lambda: _NO_MARK
