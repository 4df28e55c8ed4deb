"""Supervise plug-ins' coroutines, so that one that ignores its cancellation ends anyway."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint, current_token

from kairo_team._util.open_scopes import Mark, marker
from kairo_team.engine.live.timers import Timeouts
from kairo_team.plugin_calls import AWAITED_CALL, cancelled_itself, plain_failure_of

_logger = logging.getLogger("kairo_team")
T = TypeVar("T")
_PATIENCE: Final = 1000
"""Cancellations that a clean-up may meet, one at each of its awaits."""
_TURNS: Final = 100
"""Turns of the event loop that an orderly end may always take, whatever the grace."""
BLOCKING: Final = 1.0
"""Seconds without an await after which a warning names the plug-in: nothing else runs meanwhile."""
_LEAVE: Final = "leave each in the function that entered it, and an async generator with contextlib.aclosing"
_RECHECK: Final = 0.01
"""Seconds between two checks whether the runs inside a call that must be closed have ended."""


class Stopper(Protocol):
    """Anything that may end supervised work before its run does, such as the scope of an attempt."""

    on_stop: Callable[[], object] | None
    """Called when the work is cancelled by something other than its deadline."""
    inside: int
    """Open runs in the work: they end their own work, and closing would lose their tasks."""

    def is_stopped(self) -> bool:
        """Whether the work should end."""
        ...

    def seconds_left(self) -> float:
        """Return the seconds until the deadline; infinite without one."""
        ...


class ScopeStopper:
    """An anyio scope as a `Stopper`; cancel it through this object."""

    __slots__ = ("_scope", "inside", "on_stop")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self.inside = 0
        self.on_stop: Callable[[], object] | None = None

    def is_stopped(self) -> bool:
        """Whether the scope was cancelled."""
        return self._scope.cancel_called

    def seconds_left(self) -> float:
        """Return the seconds until the scope's deadline."""
        return self._scope.deadline - anyio.current_time()

    def cancel(self) -> None:
        """Cancel the scope."""
        self._scope.cancel()
        if self.on_stop is not None:
            self.on_stop()


class _SupervisedCall:
    """One supervised coroutine: where it is, and what was done to end it."""

    __slots__ = ("_nurseries", "_turns", "closed", "owner", "stopper", "task", "unreached", "waits_for", "woken")

    def __init__(
        self, owner: CallSupervisor, stopper: Stopper | None, task: object, nurseries: int, waits_for: Any
    ) -> None:
        self.owner = owner
        self.stopper = stopper
        self.task = task
        self._nurseries = nurseries
        self._turns = _TURNS
        self.waits_for = waits_for
        """What the coroutine gave the event loop to wait for."""
        self.woken = False
        self.unreached = False
        """Whether the coroutine should have been closed, and could not be."""
        self.closed = False

    @property
    def running(self) -> bool:
        """Whether the call has not ended."""
        return self in self.owner.open_calls

    def start_grace(self) -> None:
        """Check the call when the grace after its stop is over."""
        self.owner.timeouts.start(self, self.owner.grace)

    def cancel(self) -> None:
        """End the call after its grace, once it has had some turns of the event loop."""
        if self.stopper is None or not self.stopper.is_stopped():  # the deadline was moved
            self.owner.expect_end(self)
        elif self._turns:
            self._turns -= 1
            self.owner.timeouts.start(self, 0.0)
        elif self.inside:
            self.owner.timeouts.start(self, _RECHECK)
        else:
            _wake(self)

    @property
    def inside(self) -> int:
        """Number of open runs inside the call."""
        return 0 if self.stopper is None else self.stopper.inside

    @property
    def without_children(self) -> bool:
        """Whether the call has no open runs or child tasks."""
        # Closing would leave children without a parent, which corrupts trio.
        return not self.inside and _count_nurseries(self.task) == self._nurseries


def _count_nurseries(task: Any) -> int:
    return 0 if task is None else len(task.child_nurseries)


class CallSupervisor:
    """The plug-in calls of one run. `clock` is the event loop's; `grace` is in seconds, for clean-up after an end.

    A coroutine that swallows every cancellation, or shields itself from it, would keep its task, and so the whole run,
    alive for ever: structured concurrency waits for it. The supervisor closes it, which throws `GeneratorExit` into it
    at the place where it waits. The same applies if only its attempt or review should end. Shielded tasks that it
    started itself are out of reach: on asyncio they stay behind until the event loop ends, on trio they are waited for.
    A call with runs inside is closed after those have ended, by supervisors of their own.
    """

    __slots__ = (
        "_all_ended", "_clock", "_mark", "_task", "blocked", "ending", "grace", "open_calls", "stubborn", "timeouts",
        "warnings",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float], grace: float) -> None:
        self._clock = clock
        self.grace = grace
        self.open_calls: set[_SupervisedCall] = set()
        self.timeouts = Timeouts(clock)
        """Timeouts of attempts, and of the grace of calls that were stopped during the run."""
        self._all_ended = anyio.Event()
        self._task = _task_getter()
        self._mark = marker()
        self.ending = False
        """Whether everything should end: by a deadline, a kill, or the caller's cancellation."""
        self.warnings: list[str] = []
        """Warnings of calls that did not end in time, or blocked the event loop."""
        self.blocked: dict[str, float] = {}
        """Seconds of blocking that were warned of, by the plug-in's name."""
        self.stubborn: list[str] = []
        """The warnings of calls that did not end in time."""

    async def run(self, work: Awaitable[T], name: str, stopper: Stopper | None = None) -> T:
        """Await a plug-in's coroutine; once `stopper`, or the run, should end, it has the grace to end itself.

        Anything the plug-in raises is its own failure, an `Exception`, unless it is the caller's; see `plugin_calls`.
        """
        began = self._clock()
        made, rest = self.begin(work, name, stopper)
        if self._clock() - began > BLOCKING:
            self.note_blocking(name, self._clock() - began)
        return cast("T", made) if rest is None else await rest

    def begin(
        self, work: Awaitable[T] | None, name: str, stopper: Stopper | None
    ) -> tuple[T | None, Awaitable[T] | None]:
        """Take the first step of `run`: return the result, or else an awaitable, which must be awaited at once.

        A coroutine that never waits needs no coroutine around it. The caller must report how long the step took.
        """
        coroutine: Any = work
        if type(work) is not types.CoroutineType and not isinstance(work, Coroutine):
            if work is None:  # the caller refuses it
                return None, None
            coroutine = _await(work)
        task, nurseries = None, 0
        if self._task is not None:
            task = self._task()
            nurseries = _count_nurseries(task)
        mark = self._mark()
        context = copy_context()  # no other work sees what it sets
        try:
            waits_for = context.run(coroutine.send, None)
        except StopIteration as end:
            cancelled_itself()
            return (end.value, None) if mark.intact else (None, self._tidy(mark, name, end.value))
        except BaseException as raised:  # no `with` around all this: that would cost more than the step does
            if not mark.intact:
                return None, self._tidy(mark, name, raised=raised)
            with AWAITED_CALL:
                raise
        call = _SupervisedCall(self, stopper, task, nurseries, waits_for)
        return None, self._finish(self._drive(coroutine, call, name, context), call, mark, name)

    async def _finish(self, work: Awaitable[T], call: _SupervisedCall, mark: Mark, name: str) -> T:
        """Await a plug-in to its end, then close the scopes it left open."""
        with AWAITED_CALL:
            try:
                made = await work
            finally:
                # Once they are closed, an open scope cannot be mistaken for the cause of the end.
                if not mark.intact:
                    await self._tidy(mark, name)
            if call.closed:  # raises the cancellation here, where no open scope shields from it
                await anyio.sleep_forever()
            return made

    async def _tidy(self, mark: Mark, name: str, made: Any = None, raised: BaseException | None = None) -> Any:
        """Close what a plug-in left open; return its result, or raise what it raised."""
        self.warnings.append(f"{name!r} left a cancel scope or task group open, which was closed: {_LEAVE}")
        _logger.warning("%s", self.warnings[-1])
        await mark.restore()
        if raised is not None:
            with AWAITED_CALL:
                raise raised
        return made

    def note_blocking(self, name: str, seconds: float) -> None:
        """Warn, once per name, of a plug-in that blocked the event loop for that long."""
        if name in self.blocked:
            return
        self.blocked[name] = seconds
        how = "use await, or a plain function, which gets a thread of its own"
        self.warnings.append(f"{name!r} blocked the event loop for {seconds:.1f} seconds; nothing else ran: {how}")
        _logger.warning("%s", self.warnings[-1])

    def note_stubborn(self, warning: str) -> None:
        """Warn of a call that did not end in time."""
        self.stubborn.append(warning)
        self.warnings.append(warning)
        _logger.warning("%s", warning)

    def _watch_stop(self, call: _SupervisedCall) -> None:
        """Check the call when the grace after its stop is over, whether it is stopped already or not."""
        self.open_calls.add(call)
        stopper = call.stopper
        if stopper is None:
            return
        if stopper.is_stopped():
            call.start_grace()
            return
        stopper.on_stop = call.start_grace
        self.expect_end(call)

    def _release(self, call: _SupervisedCall, name: str) -> None:
        """Forget an ended call; warn of it if it had to be closed, or was waited for."""
        self.open_calls.discard(call)
        if call.stopper is not None:
            call.stopper.on_stop = None
        if call.closed or call.unreached:
            end = "was closed" if call.closed else "could not be closed either: it was waited for"
            self.note_stubborn(f"{name!r} did not end when it was cancelled and {end}")
        if self.ending and not self.open_calls:
            self._all_ended.set()

    def expect_end(self, call: _SupervisedCall) -> None:
        """Check the call when the grace after its deadline is over."""
        left = math.inf if call.stopper is None else call.stopper.seconds_left()
        if left < math.inf:
            self.timeouts.start(call, max(0.0, left) + self.grace)

    async def watch(self) -> None:
        """End stopped calls; once cancelled itself, end all calls."""
        try:
            await self.timeouts.watch()
        finally:
            self.ending = True
            with anyio.CancelScope(shield=True):
                await self._let_end()
                await self._wake_all()

    async def _let_end(self) -> None:
        """Wait for the grace, and in any case for some turns of the event loop."""
        with anyio.move_on_after(self.grace):
            while self.open_calls:
                self._all_ended = anyio.Event()  # a call that ends may have opened the next one: each wait has its own
                await self._all_ended.wait()
        for _ in range(_TURNS):
            if not self.open_calls:
                return
            await checkpoint()

    async def _wake_all(self) -> None:
        """Wake the remaining calls; those with runs inside once these have ended."""
        while True:
            for call in tuple(self.open_calls):
                if not call.inside and not call.woken:
                    _wake(call)
            if not any(call.inside for call in self.open_calls):
                return
            await anyio.sleep(_RECHECK)

    @types.coroutine
    def _drive(
        self, coroutine: Coroutine[Any, Any, Any], call: _SupervisedCall, name: str, context: Context
    ) -> Generator[Any, Any, Any]:
        """Continue after the first step; close a coroutine that only swallows cancellations, without waiting."""
        clock, stopper = self._clock, call.stopper
        since: float | None = None
        swallowed = 0
        self._watch_stop(call)
        try:
            while True:
                sent: Any = None
                error: BaseException | None = None
                try:
                    sent = yield call.waits_for
                except GeneratorExit:
                    # Whoever closes this generator closes the plug-in too, in the context that it ran in.
                    context.run(coroutine.close)
                    raise
                except BaseException as thrown:  # noqa: BLE001 - handed on to the coroutine
                    error = thrown
                if self.ending or (stopper is not None and stopper.is_stopped()):
                    since = clock() if since is None else since
                    wrapped = getattr(sent, "error", None)  # trio sends what asyncio throws
                    # Without a cancellation this is a step of the clean-up, or shielded: that only `_wake` ends.
                    cancelled = error is not None or isinstance(wrapped, BaseException)
                    swallowed += cancelled
                    late = cancelled and (swallowed > _PATIENCE or clock() - since > self.grace)
                    if (call.woken or late) and call.without_children:
                        call.closed = True
                        context.run(_close, coroutine)
                        break
                began = clock()
                try:
                    call.waits_for = (
                        context.run(coroutine.send, sent) if error is None else context.run(coroutine.throw, error)
                    )
                except StopIteration as end:
                    return end.value
                finally:
                    # An error that is raised on keeps this frame; a frame that kept it too would make a cycle.
                    sent = error = None
                    if clock() - began > BLOCKING:
                        self.note_blocking(name, clock() - began)
        finally:
            self._release(call, name)


async def _await(work: Awaitable[T]) -> T:
    """Await an awaitable that is not a coroutine, such as a future, in one."""
    return await work


def _task_getter() -> Callable[[], object] | None:
    """Return the function that finds the running task, if `_wake` needs it: on trio."""
    if hasattr(current_token().native_token, "call_soon"):
        return None
    getter: Callable[[], object] = sys.modules["trio"].lowlevel.current_task
    return getter


def _wake(call: _SupervisedCall) -> None:
    """Wake the coroutine from what it waits for, shielded or not."""
    call.woken = True
    if not call.without_children:
        call.unreached = True
        return
    if call.task is None:
        cancel: Callable[[], object] = getattr(call.waits_for, "cancel", lambda: None)
        cancel()  # a future; None is a bare yield, which continues by itself
        return
    trio = sys.modules["trio"]
    if getattr(call.task, "_next_send_fn", None) is not None:
        return  # on its way already
    # Like trio's own cancellation: a task may be rescheduled only after its wait was taken back.
    abort: Callable[[Callable[[], None]], object] | None = getattr(call.waits_for, "abort_func", None)
    if abort is not None and abort(lambda: None) is trio.lowlevel.Abort.SUCCEEDED:
        trio.lowlevel.reschedule(call.task)


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    chain: list[Any] = []
    for _ in range(_TURNS):  # leaving a task group awaits once more, in a scope that must be left too
        chain = _awaited(coroutine)
        try:
            coroutine.close()
        except RuntimeError:  # one of them swallows GeneratorExit
            continue
        except BaseException as raised:  # its clean-up failed, but it has ended
            if plain_failure_of(raised) is None:
                raise
            _logger.warning("the clean-up of what was closed raised", exc_info=True)
        return
    for link in chain:
        _keep_for_ever(link)


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> list[Any]:
    """List the coroutine, the one it awaits, and so on."""
    chain: list[Any] = [coroutine]
    while inspect.iscoroutine(inner := getattr(chain[-1], "cr_await", None)):
        chain.append(inner)
    return chain


def _keep_for_ever(coroutine: object) -> None:
    """Never let the coroutine be finalised: that would close it again, and never end if it swallows everything."""
    import ctypes  # its import is slow, and most runs never come here

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
