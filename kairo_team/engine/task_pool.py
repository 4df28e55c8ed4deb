"""Run the bodies of tasks in a pool of workers, without a loop task for each body."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.plugin_calls import clear_cancellation, disown, own_task

Watch = Callable[[], Coroutine[Any, Any, object]]
"""What runs beside a block."""

_MOST: Final = 8
"""Workers started at once, at most, while bodies wait."""
_TURNS: Final = 64
"""Bodies a worker finishes in a row before it lets the event loop turn."""


class TaskPool:
    """A pool that grows whenever a body has to wait for something.

    A worker takes the next body as soon as its own is done. As long as bodies wait in the queue some worker is about
    to start, so concurrency is never capped; bodies that do not wait for anything share one worker, which is several
    times cheaper than a loop task each.
    """

    __slots__ = ("_batch", "_bodies", "_group", "_run_body", "_starting", "running")

    def __init__(self, group: anyio.abc.TaskGroup, run_body: Callable[..., Coroutine[Any, Any, None]]) -> None:
        self._group = group
        self._run_body = run_body
        self._bodies: deque[tuple[Any, ...]] = deque()
        """The context that each body starts in, and what `run_body` is called with for it."""
        self._starting = 0
        self._batch = 1
        """Workers to start next: one, and twice as many whenever one that was started found a body."""
        self.running = 0

    @property
    def idle(self) -> bool:
        """No body runs or waits."""
        return not self.running and not self._bodies

    def add(self, *body: Any) -> None:
        """Run a body soon, in a copy of the caller's context: what it sets there is seen by no other body."""
        self._bodies.append((copy_context(), *body))
        if not self._starting:
            self._open(1)

    def _open(self, count: int) -> None:
        self._starting += count
        for _ in range(count):
            self._group.start_soon(self._run)

    async def _run(self) -> None:
        self._starting -= 1
        self._batch = min(2 * self._batch, _MOST) if self._bodies else 1
        turns, task = 0, own_task()
        try:
            while self._bodies:
                context, *body = self._bodies.popleft()
                if self._bodies and not self._starting:
                    self._open(min(len(self._bodies), self._batch))
                self.running += 1
                try:
                    await _inside(context, self._run_body(*body))
                finally:
                    self.running -= 1
                if task is not None and task.cancelling():
                    await clear_cancellation(task)
                turns += 1
                if turns % _TURNS == 0:
                    await checkpoint()
        finally:
            disown(task)


@types.coroutine
def _inside(context: Context, coroutine: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await a coroutine whose every step runs in that context."""
    sent: Any = None
    error: BaseException | None = None
    while True:
        try:
            waits_for = context.run(coroutine.send, sent) if error is None else context.run(coroutine.throw, error)
        except StopIteration:
            return
        try:
            sent, error = (yield waits_for), None
        except BaseException as thrown:  # noqa: BLE001 - handed on to the coroutine
            sent, error = None, thrown


@asynccontextmanager
async def background(*watches: Watch) -> AsyncGenerator[Callable[[Watch], object]]:
    """Let each of the `watches` run as long as the block; they end by being cancelled. Yields a call that adds one."""
    async with anyio.create_task_group() as group:
        for watch in watches:
            group.start_soon(watch)
        yield group.start_soon
        group.cancel_scope.cancel()
