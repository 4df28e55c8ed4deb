"""The cancel scope of a governor: it cancels its block as soon as the governor or an ancestor is stopped."""

from __future__ import annotations

import math
from threading import get_ident
from typing import TYPE_CHECKING, Self

import anyio

from kairo_team.budget import HaltReason
from kairo_team.errors import HaltError
from kairo_team.governance.halts import Halt, check, current_loop, send, stop
from kairo_team.plugin_calls import leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from kairo_team.governance.ledger import Node


class GovernorScope:
    """The context manager of `Governor.scope`, for `async with` (and, in the library, `with`); can be entered once.

    `cancel` ends the body quietly: the block ends without an error, and `cancelled` is true.
    """

    __slots__ = ("_hit", "_loop", "_owner", "_scope", "cancelled", "inside", "node", "on_stop", "running")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._scope: anyio.CancelScope | None = None
        self._loop: object = None
        self._owner: Node | None = None
        """The node whose deadline is set on the cancel scope."""
        self._hit: Halt | None = None
        self.running = False
        """Whether the body has begun and not ended."""
        self.cancelled = False
        """Whether `cancel` was called while the body ran."""
        self.inside = 0
        """Number of runs that are open in the body."""
        self.on_stop: Callable[[], object] | None = None
        """Called in the body's event loop when a halt or `cancel`, not a deadline, cancels the body."""

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        return self.__exit__(exc_type, exc, tb)

    def __enter__(self) -> Self:
        if self._scope is not None:
            raise RuntimeError("this scope was entered before: call scope() once for each block")
        node = self.node
        home = node.tree.home
        # The usual case, in the run's own loop: two look-ups of the running loop are saved.
        if home is not None and home.thread == get_ident():
            self._loop = home.loop
            scope = home.cancel_scope()
        else:
            self._loop = current_loop()
            scope = anyio.CancelScope()
        self._scope = scope
        if node.timed:
            scope.deadline = self._deadline()
        tree = node.tree
        # Registered before the check below: a stop after it finds the scope, a stop before it is found by the check.
        if tree.scopes.setdefault(node, self) is not self:
            self._join_others()
        self.running = True
        if node.ended is not None or node.timed or tree.halts:
            try:
                check(node)
            except BaseException:
                self._leave()
                raise
        scope.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        scope = self._scope
        if scope is None:
            raise RuntimeError("this scope was not entered")
        self._leave()
        try:
            # The scope has left the tree by now: a late post must not cancel a scope that is being left.
            swallowed = bool(scope.__exit__(exc_type, exc, tb))
            if exc is None and self._hit is None and not scope.cancel_called:
                if self._owner is not None and self.seconds_left() < 0.0:  # nothing could cancel it in time
                    stop(self._owner, HaltReason.TIME_BUDGET_EXCEEDED)
                return swallowed
        except BaseExceptionGroup as rest:  # the group without the cancellation, which the scope caught
            exc, swallowed = rest, False
            if first_halt(rest) is None:
                self._conclude(scope)
                raise
        halt = self._conclude(scope)
        if halt is not None and scope.cancelled_caught:
            raise halt.error() from None  # the cancellation is how it was done, not why
        first = None if swallowed or exc is None else first_halt(exc)
        if first is not None and first is not exc:
            raise first from None
        return swallowed

    def is_stopped(self) -> bool:
        """Return whether the body must end: its scope was cancelled, here or from outside."""
        return self._scope is not None and self._scope.cancel_called

    def seconds_left(self) -> float:
        """Return the seconds until the earliest deadline on the governor's path; infinite without one."""
        due = self.node.earliest_deadline() if self.node.timed else None
        return math.inf if due is None else due[0] - self.node.tree.clock()

    def cancel(self) -> None:
        """End only this body, without an error; from any thread. After a halt it changes nothing."""
        send(self._loop, self._cancel_quietly)

    def interrupt(self, halt: Halt) -> None:
        """Cancel the body because of `halt`; never blocks, from any thread or signal handler."""
        send(self._loop, self._cancel_for, halt)  # a cancel scope may be cancelled only in its own loop

    def refresh(self) -> None:
        """Read the deadlines again after one was moved; from any thread."""
        send(self._loop, self._take_deadline)

    def _join_others(self) -> None:
        """Register as one more scope of a node that has an open one."""
        tree = self.node.tree
        tree.join(tree.more_scopes, self.node, self)

    def _leave(self) -> None:
        """Remove the scope from the tree; later posts no longer concern it."""
        self.running = False
        node = self.node
        tree = node.tree
        if tree.scopes.get(node) is self:
            del tree.scopes[node]  # only this code deletes it, so it is still there
        else:
            tree.leave(tree.more_scopes, node, self)

    def _cancel_quietly(self) -> None:
        scope = self._cancellable()
        if scope is not None:
            self._owner = None
            self._stop(scope)  # not a deadline: `_conclude` must take it for a quiet end

    def _cancel_for(self, halt: Halt) -> None:
        scope = self._cancellable()
        if scope is not None:
            self._hit = halt
            self._stop(scope)

    def _stop(self, scope: anyio.CancelScope) -> None:
        scope.cancel()
        if self.on_stop is not None:
            self.on_stop()

    def _take_deadline(self) -> None:
        scope = self._cancellable()
        if scope is not None:
            scope.deadline = self._deadline()

    def _cancellable(self) -> anyio.CancelScope | None:
        """Return the cancel scope while the body runs and is not cancelled, else None."""
        # A call that another thread posted may arrive after the body ended.
        scope = self._scope
        return None if scope is None or scope.cancel_called or not self.running else scope

    def _deadline(self) -> float:
        """Return the earliest deadline on the path, in the event loop's time."""
        due = self.node.earliest_deadline()
        if due is None:
            return math.inf
        self._owner = due[1]
        return anyio.current_time() + due[0] - self.node.tree.clock()

    def _conclude(self, scope: anyio.CancelScope) -> Halt | None:
        """Find out what cancelled the body: return the halt, or set `cancelled`."""
        if not scope.cancel_called or self._hit is not None:
            return self._hit
        if self._owner is not None:
            return stop(self._owner, HaltReason.TIME_BUDGET_EXCEEDED)
        self.cancelled = True
        return None


def first_halt(error: BaseException) -> HaltError | None:
    """Return a `HaltError` itself, or the first of a group, nested or not, that holds only `HaltError`s; else None."""
    leaves = list(leaves_of(error))
    halts = [one for one in leaves if isinstance(one, HaltError)]
    return halts[0] if len(halts) == len(leaves) else None
