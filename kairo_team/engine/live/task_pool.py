"""Run the bodies of tasks in a pool of workers, without a loop task for each body."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, Final, TypeVar

import anyio
from anyio import NoEventLoopError
from anyio.lowlevel import checkpoint, current_token

from kairo_team._util.open_scopes import marker
from kairo_team.errors import Misuse
from kairo_team.plugin_calls import asyncio_task, cancelled_itself, failure_of, is_own, own_task, without_strays

T = TypeVar("T")
Watch = Callable[[], Coroutine[Any, Any, object]]
"""Runs in the background of a block."""

_MOST: Final = 8
"""Workers started at once, at most, while bodies wait."""
_TURNS: Final = 64
"""Bodies that a worker finishes in a row before it lets the event loop turn."""


class TaskPool:
    """A pool that grows whenever a body has to wait for something.

    A worker takes the next body as soon as its own is done. While bodies are queued, some worker is about to start, so
    concurrency is never capped. Bodies that never wait share one worker, which is several times cheaper than a loop
    task each.
    """

    __slots__ = ("_batch", "_bodies", "_group", "_host", "_run_body", "_starting", "running")

    def __init__(self, group: anyio.abc.TaskGroup, run_body: Callable[..., Coroutine[Any, Any, None]]) -> None:
        self._group = group
        self._host = asyncio_task()
        self._run_body = run_body
        self._bodies: deque[tuple[Any, ...]] = deque()
        """The context that each body starts in, with the arguments of `run_body`."""
        self._starting = 0
        self._batch = 1
        """Number of workers to start next: one at first, doubled whenever a started worker found a body."""
        self.running = 0

    @property
    def idle(self) -> bool:
        """Whether no body runs or waits."""
        return not self.running and not self._bodies

    def add(self, *body: Any) -> None:
        """Run a body soon, in a copy of the caller's context: no other body sees what it sets there."""
        # The context is copied here, in the caller's task: a worker starts later and in another context.
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
        try:
            async with own_task(self._host) as task:
                await self._run_bodies(task)
        except anyio.get_cancelled_exc_class():
            # The cancelled group does not need this error. On asyncio, anyio would keep it and its frames in a cycle,
            # which the collector would pass over again and again while the other workers end.
            if self._host is None or anyio.current_effective_deadline() > -math.inf:
                raise

    async def _run_bodies(self, task: Any) -> None:
        turns, mark = 0, marker()()
        while self._bodies:
            context, *body = self._bodies.popleft()
            # A new worker starts before this body runs, because the body may wait and would hold up the queue.
            if self._bodies and not self._starting:
                self._open(min(len(self._bodies), self._batch))
            self.running += 1
            try:
                await without_strays(self._run_body(*body), task, context)
            finally:
                self.running -= 1
            if not mark.intact:
                await mark.restore()
            if task is not None and task.cancelling():
                cancelled_itself()
            turns += 1
            # Bodies that never wait would otherwise keep the event loop from everything else.
            if turns % _TURNS == 0:
                await checkpoint()


@asynccontextmanager
async def background(*watches: Watch) -> AsyncGenerator[Callable[[Watch], object]]:
    """Run each of the `watches` while the block runs, then cancel them; yields a function that adds one."""
    host = asyncio_task()

    async def keep(watch: Watch) -> None:
        async with own_task(host) as task:
            await without_strays(watch(), task)

    has_begun = False

    def begin(watch: Watch) -> None:
        nonlocal has_begun
        has_begun = True
        group.start_soon(keep, watch)

    async with anyio.create_task_group() as group:
        for watch in watches:
            begin(watch)
        yield begin
        if has_begun:  # a cancellation costs something even where there is nothing to cancel
            group.cancel_scope.cancel()


async def in_own_task(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the work; on asyncio, in a task of the library's, unless the caller's is one. Raise what it raises."""
    # The caller's task is then cancelled by the caller alone, at a place where nothing else is awaited, and the work by
    # the scope around it. In one task, the two would look like what a plug-in does to the task it runs in.
    host = asyncio_task()
    if host is None or is_own(host):
        return await work()
    made: list[T] = []
    failed: list[Exception] = []

    async def do() -> None:
        async with own_task(host) as task:
            try:
                made.append(await without_strays(work(), task))
            except BaseException as raised:
                error = failure_of(raised)
                if error is None:
                    raise
                failed.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(do)
    if failed:
        raise failed.pop()
    return made.pop()


async def in_turn(work: Callable[[], Awaitable[T]]) -> T:
    """Do some work once everything else had its turn: coordinators may try for ever, with members that never wait."""
    await checkpoint()
    return await work()


def run_in_new_loop(work: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
    """Do the work in an event loop of its own, from code without one; raise `Misuse` inside one, with what to write."""
    try:
        current_token()
    except NoEventLoopError:
        pass
    else:
        raise Misuse(f"run_sync is for code without an event loop, and here one runs: write {instead}")
    results: list[T] = []

    async def keep() -> None:  # asyncio formats the result of its main task twice
        results.append(await work())

    anyio.run(keep)
    return results[0]
