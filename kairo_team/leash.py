"""Hold plug-ins' coroutines, so that one that ignores its cancellation ends anyway."""

from __future__ import annotations

import ctypes
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint, current_token

T = TypeVar("T")
_PATIENCE: Final = 1000
"""Cancellations that clean-up may meet, one at each of its awaits."""
_TURNS: Final = 100
"""Turns of the event loop that an orderly end may take, grace or no grace."""


class _Leash:
    """What is known of one coroutine that is held."""

    __slots__ = ("_nurseries", "closed", "pulled", "task", "waits_for")

    def __init__(self, task: object, nurseries: int, waits_for: Any) -> None:
        self.task = task
        self._nurseries = nurseries
        self.waits_for = waits_for
        """What it gave the event loop to wait for."""
        self.pulled = False
        self.closed = False

    @property
    def childless(self) -> bool:
        """No task group is open in it: closing would leave children without a parent, which corrupts trio."""
        return _count_nurseries(self.task) == self._nurseries


def _count_nurseries(task: Any) -> int:
    return 0 if task is None else len(task.child_nurseries)


class Leashes:
    """Everything of one run that is held. `clock` is the event loop's; `grace` are seconds of clean-up after an end.

    A coroutine that swallows every cancellation, or shields itself from it, would keep its task, and so the whole run,
    alive for ever: structured concurrency waits for it. It is closed, which throws `GeneratorExit` into it at the
    place where it waits. Out of reach are tasks it started itself and shielded: on asyncio they stay behind until the
    event loop ends, on trio they are waited for.
    """

    __slots__ = ("_calm", "_clock", "_grace", "_held", "_task", "ending", "stubborn")

    def __init__(self, clock: Callable[[], float], grace: float) -> None:
        self._clock = clock
        self._grace = grace
        self._held: set[_Leash] = set()
        self._calm = anyio.Event()
        self._task = _task_getter()
        self.ending = False
        """Everything is to end, whoever wants it: a deadline, a kill, or the caller's cancellation."""
        self.stubborn: list[str] = []
        """Names of what had to be closed."""

    async def hold(self, work: Awaitable[T], name: str, stopped: Callable[[], bool]) -> T:
        """Await a plug-in's coroutine; once `stopped()`, or the end of everything, it has the grace to end itself."""
        made, rest = self.begin(work, name, stopped)
        return cast("T", made) if rest is None else await rest

    def begin(self, work: Awaitable[T], name: str, stopped: Callable[[], bool]) -> tuple[T | None, Awaitable[T] | None]:
        """Do the first step of what `hold` does: return what was made, or else what is to be awaited at once.

        What never waits for anything needs no coroutine around it.
        """
        if type(work) is not types.CoroutineType and not isinstance(work, Coroutine):
            return None, work
        coroutine = cast("Coroutine[Any, Any, Any]", work)  # type: ignore[redundant-cast]  # pyright needs it
        task, nurseries = None, 0
        if self._task is not None:
            task = self._task()
            nurseries = _count_nurseries(task)
        try:
            waits_for = coroutine.send(None)
        except StopIteration as end:
            return end.value, None
        return None, self._hold_on(coroutine, _Leash(task, nurseries, waits_for), name, stopped)

    async def _hold_on(
        self, coroutine: Coroutine[Any, Any, Any], leash: _Leash, name: str, stopped: Callable[[], bool]
    ) -> Any:
        self._held.add(leash)
        try:
            result: Any = await self._drive(coroutine, leash, stopped)
        finally:
            self._held.discard(leash)
            if self.ending and not self._held:
                self._calm.set()
        if leash.closed:
            self.stubborn.append(name)
            await anyio.sleep_forever()  # now the cancellation meets somebody who heeds it
        return result

    async def watch(self) -> None:
        """Notice by its own cancellation that everything is to end, and see to it after the grace."""
        try:
            await anyio.sleep_forever()
        finally:
            self.ending = True
            with anyio.CancelScope(shield=True):
                await self._let_end()
            for leash in tuple(self._held):
                _pull(leash)

    async def _let_end(self) -> None:
        """Wait for the grace, and some turns of the event loop in any case."""
        with anyio.move_on_after(self._grace):
            while self._held:
                await self._calm.wait()
        for _ in range(_TURNS):
            if not self._held:
                return
            await checkpoint()

    @types.coroutine
    def _drive(
        self, coroutine: Coroutine[Any, Any, Any], leash: _Leash, stopped: Callable[[], bool]
    ) -> Generator[Any, Any, Any]:
        """Go on from the first step; one that does nothing but swallow is closed before the grace is over."""
        send, throw = coroutine.send, coroutine.throw
        since: float | None = None
        swallowed = 0
        while True:
            sent: Any = None
            error: BaseException | None = None
            try:
                sent = yield leash.waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - handed on to the coroutine
                error = thrown
            if self.ending or stopped():
                since = self._clock() if since is None else since
                wrapped = getattr(sent, "error", None)  # trio sends what asyncio throws
                cancelled = error is not None or isinstance(wrapped, BaseException)
                swallowed += cancelled
                late = cancelled and (swallowed > _PATIENCE or self._clock() - since > self._grace)
                if (leash.pulled or late) and leash.childless:
                    leash.closed = True
                    _close(coroutine)
                    return None
            try:
                leash.waits_for = send(sent) if error is None else throw(error)
            except StopIteration as end:
                return end.value


def _task_getter() -> Callable[[], object] | None:
    """Return how the running task is found where `_pull` needs it: on trio."""
    if hasattr(current_token().native_token, "call_soon"):
        return None
    getter: Callable[[], object] = sys.modules["trio"].lowlevel.current_task
    return getter


def _pull(leash: _Leash) -> None:
    """Wake the coroutine out of whatever it waits for, shielded or not."""
    leash.pulled = True
    if not leash.childless:
        return
    if leash.task is None:
        cancel: Callable[[], object] = getattr(leash.waits_for, "cancel", lambda: None)
        cancel()  # a future; None is a bare yield, which goes on by itself
        return
    trio = sys.modules["trio"]
    if getattr(leash.task, "_next_send_fn", None) is not None:
        return  # on its way already
    abort: Callable[[Callable[[], None]], object] | None = getattr(leash.waits_for, "abort_func", None)
    if abort is not None and abort(lambda: None) is trio.lowlevel.Abort.SUCCEEDED:
        trio.lowlevel.reschedule(leash.task)


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    chain: list[Any] = []
    for _ in range(_TURNS):  # leaving a task group awaits once more, and the scope it does that in must be left too
        chain = _awaited(coroutine)
        try:
            coroutine.close()
        except RuntimeError:  # one of them swallows GeneratorExit
            continue
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
    """Never let it be finalised: that would close it again, and what swallows everything would never end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
