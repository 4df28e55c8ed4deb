"""Run blocking code in daemon threads: a thread that hangs never keeps the process, or a run, from ending.

Unlike with `anyio.to_thread.run_sync`, the caller of `run_in_thread` may leave at any moment; a later result is passed
to `on_late`.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar

from anyio import Event
from anyio.lowlevel import checkpoint_if_cancelled, current_token

T = TypeVar("T")

OnLate = Callable[[Any, BaseException | None], object]
"""Called with `(result, error)` of a call whose caller has left, in whichever thread ended last; must be quick."""

MAX_BUSY: Final = 256
"""Most calls that run at once in the process; later ones wait in order. Calls whose caller has left do not count."""
IDLE_SECONDS: Final = 10.0
"""Seconds that an idle thread is kept."""

_logger = logging.getLogger("kairo_team")


class _Call(Generic[T]):
    """One call of a function, until its result is returned to the caller or passed to `on_late`."""

    __slots__ = ("_make", "_on_late", "_post", "error", "event", "result", "state")

    def __init__(self, make: Callable[[], T], on_late: OnLate | None) -> None:
        self._make = make
        self._on_late = on_late
        self._post = poster()
        self.event = Event()
        self.state: Literal["waiting", "running", "done", "abandoned"] = "waiting"
        self.result: T | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        """Run the function and keep its result or error."""
        try:
            self.result = self._make()
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            self.error = error

    def wake(self) -> bool:
        """Wake the caller; return False when its event loop is gone."""
        try:
            self._post(self.event.set)
        except RuntimeError:
            return False
        return True

    def report_late(self) -> None:
        """Pass the result to `on_late`."""
        if self._on_late is None:
            return
        try:
            self._on_late(self.result, self.error)
        except Exception:
            _logger.exception("the callback for a late result raised")


class _Worker:
    """A daemon thread that runs one call after another."""

    __slots__ = ("_inbox", "_pool")

    names = itertools.count(1)

    def __init__(self, pool: _Pool, call: _Call[Any]) -> None:
        self._pool = pool
        self._inbox: queue.SimpleQueue[_Call[Any]] = queue.SimpleQueue()
        self._inbox.put(call)

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"kairo-worker-{next(self.names)}", daemon=True).start()

    def give(self, call: _Call[Any]) -> None:
        self._inbox.put(call)

    def _run(self) -> None:
        while True:
            try:
                call = self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._pool.retire(self):
                    return
                continue  # a call was handed over at the last moment
            call.work()
            self._pool.finish(call, self)
            del call  # an idle thread must not keep a result alive


class _Pool:
    """All threads of the process. Every change of a call's state is made here, under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._waiting: deque[_Call[Any]] = deque()
        self._busy = 0

    @property
    def at_work(self) -> int:
        """Number of calls whose callers wait."""
        return self._busy + len(self._waiting)

    def submit(self, call: _Call[Any]) -> None:
        """Start the call, or queue it behind the others."""
        with self._lock:
            if self._busy >= MAX_BUSY:
                self._waiting.append(call)
                return
            worker = self._begin(call)
        # Outside the lock, which `_set_off` takes again if no thread can be started.
        self._set_off(worker, call)

    def finish(self, call: _Call[Any], worker: _Worker) -> None:
        """Record the end of a call, give the thread its next call, and pass the result on."""
        with self._lock:
            late = call.state == "abandoned"
            # An abandoned call is not counted any more, and its thread may be one too many.
            goes_on = bool(self._waiting) and (not late or self._busy < MAX_BUSY)
            if not late:
                call.state = "done"
            if goes_on:
                following = self._waiting.popleft()
                following.state = "running"
                self._busy += late  # else it takes the place of the call that has ended
                worker.give(following)
            else:
                self._idle.append(worker)
        if late:
            call.report_late()
        # The event loop has ended, so the result is late.
        elif not call.wake():
            self.abandon(call)
        if not late and not goes_on:
            self._set_off(*self._leave())  # after it woke its caller: a virtual clock jumps when nothing is at work

    def abandon(self, call: _Call[Any]) -> None:
        """Let the caller leave: remove a waiting call, stop counting a running one; report all but the running one."""
        with self._lock:
            before, call.state = call.state, "abandoned"
            if before == "waiting":
                self._waiting.remove(call)
        if before == "running":
            self._set_off(*self._leave())
        elif before != "abandoned":  # else its result was reported before, or `finish` reports it
            call.report_late()

    def retire(self, worker: _Worker) -> bool:
        """Return True if the idle thread may end, False if it is about to get a call."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def _begin(self, call: _Call[Any]) -> _Worker | None:
        """Count the call and give it to an idle thread; else return a new thread that is not started yet."""
        call.state = "running"
        self._busy += 1
        if self._idle:
            self._idle.pop().give(call)
            return None
        return _Worker(self, call)

    def _leave(self) -> tuple[_Worker | None, _Call[Any] | None]:
        """Stop counting a call, and begin the next one that waits; return the thread to start, if any, and the call."""
        with self._lock:
            self._busy -= 1
            if not self._waiting or self._busy >= MAX_BUSY:
                return None, None
            following = self._waiting.popleft()
            return self._begin(following), following

    def _set_off(self, worker: _Worker | None, call: _Call[Any] | None) -> None:
        """Start a new thread; if the system allows no more threads, the call fails with its error."""
        while worker is not None and call is not None:
            try:
                worker.start()
            except RuntimeError as error:
                call.error = error
                with self._lock:
                    late = call.state == "abandoned"
                    if not late:
                        call.state = "done"
                if late:  # `abandon` has stopped counting it
                    call.report_late()
                    return
                call.wake()
                worker, call = self._leave()
            else:
                return


def poster() -> Callable[[Callable[[], object]], object]:
    """Return a function that runs callbacks in this event loop from any thread; `RuntimeError` after its end."""
    native: Any = current_token().native_token
    post: Callable[[Callable[[], object]], object]
    post = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
    return post


def context_for_thread() -> contextvars.Context:
    """Copy the caller's context variables, without sniffio's mark that an event loop runs in this thread."""
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


_pool = _Pool()


def _forget_threads() -> None:
    """Start with a new pool: a forked child has none of its parent's threads."""
    global _pool  # noqa: PLW0603 - there is one pool per process
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def calls_at_work() -> int:
    """Return how many calls of the process run or wait for a thread, without those whose caller has left."""
    return _pool.at_work


async def run_in_thread(fn: Callable[..., T], *args: Any, on_late: OnLate | None = None) -> T:
    """Call `fn(*args)` in a daemon thread and return its result, or raise its error.

    Context variables are copied into the thread. Cancellation returns at once: the thread cannot be stopped and is
    abandoned. Its later result is passed to `on_late`, if given, and discarded. Above `MAX_BUSY` running calls, the
    next ones wait in order; a call that is cancelled while it waits never starts, and `on_late` gets `(None, None)`.
    """
    await checkpoint_if_cancelled()
    context = context_for_thread()
    call = _Call(lambda: context.run(fn, *args), on_late)
    # Both calls below need the same one, and a forked child gets another.
    pool = _pool
    pool.submit(call)
    try:
        await call.event.wait()
    except BaseException:
        pool.abandon(call)
        raise
    if call.error is None:
        return call.result  # type: ignore[return-value]  # None only when T allows it
    try:
        raise call.error
    finally:
        del call.error  # else a reference cycle is left behind
