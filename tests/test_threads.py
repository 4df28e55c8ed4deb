"""Blocking calls in our own daemon threads: results, errors, leaving early, order, and a process that always ends."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kairo_team._util import threads
from kairo_team._util.threads import run_in_thread

pytestmark = pytest.mark.real_time
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Gate:
    """A function that blocks until it is let go, and says when it began."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self, answer: str = "done") -> str:
        self.began.set()
        assert self.go.wait(60)
        return answer

    async def until_begun(self) -> None:
        with anyio.fail_after(60):
            while not self.began.is_set():
                await anyio.sleep(0.001)


async def leave(gate: Gate, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Make a call that passes a gate, and leave it once it has come there."""
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await gate.until_begun()
        group.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.001)


async def test_result_comes_back_from_another_daemon_thread() -> None:
    thread = await run_in_thread(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_an_error_is_raised_where_it_was_awaited() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0)


async def test_none_and_arguments_pass_through() -> None:
    assert await run_in_thread(lambda a, b: None if a == b else a, 1, 1) is None


async def test_context_variables_are_copied_not_shared() -> None:
    variable.set("caller")

    def look() -> str:
        seen = variable.get()
        variable.set("thread")
        return seen

    assert await run_in_thread(look) == "caller"
    assert variable.get() == "caller"


async def test_a_function_may_run_an_event_loop_of_its_own() -> None:
    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return await run_in_thread(lambda: "nested")

    assert await run_in_thread(partial(anyio.run, inner)) == "nested"
    assert await run_in_thread(partial(anyio.run, inner, backend="trio")) == "nested"


async def test_the_event_loop_goes_on_meanwhile() -> None:
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, gate)
        await gate.until_begun()
        gate.go.set()


async def test_cancelled_before_it_begins_nothing_runs() -> None:
    ran: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_in_thread(ran.append, 1)
    await anyio.sleep(0.05)
    assert ran == []


async def test_cancellation_returns_at_once_and_the_late_result_is_told() -> None:
    gate, late = Gate(), list[tuple[object, BaseException | None]]()
    await leave(gate, partial(run_in_thread, gate, "late", on_late=lambda result, error: late.append((result, error))))
    assert late == []
    gate.go.set()
    await until(lambda: bool(late))
    assert late == [("late", None)]


async def test_a_late_error_is_told_and_raised_nowhere() -> None:
    gate, late = Gate(), list[tuple[object, BaseException | None]]()

    def fail() -> None:
        gate()
        raise LookupError("late")

    await leave(gate, partial(run_in_thread, fail, on_late=lambda result, error: late.append((result, error))))
    gate.go.set()
    await until(lambda: bool(late))
    assert isinstance(late[0][1], LookupError)


async def test_a_result_that_arrives_together_with_the_cancellation_is_told_once() -> None:
    for _ in range(50):
        came, late = list[str](), list[object]()
        with anyio.CancelScope() as scope:

            def both(scope: anyio.CancelScope = scope) -> str:
                token.call_soon(scope.cancel)
                return "answer"

            token = _Poster()
            came.append(await run_in_thread(both, on_late=lambda result, _: late.append(result)))
        await until(lambda: bool(came or late))
        await anyio.lowlevel.checkpoint()
        assert len(came) + len(late) == 1


class _Poster:
    """Runs a callback in the event loop from another thread."""

    def __init__(self) -> None:
        self.call_soon = threads.poster()


async def test_a_callback_that_raises_is_logged_and_the_thread_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    await leave(gate, partial(run_in_thread, gate, on_late=lambda _result, _error: 1 // 0))
    gate.go.set()
    await until(lambda: "late result raised" in caplog.text)
    assert await run_in_thread(lambda: "still here") == "still here"


async def test_threads_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    first = await run_in_thread(threading.get_ident)
    await until(lambda: bool(threads._pool._idle))
    assert await run_in_thread(threading.get_ident) == first


async def test_an_idle_thread_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    thread = await run_in_thread(threading.current_thread)
    await until(lambda: not thread.is_alive())
    assert await run_in_thread(lambda: "a new one") == "a new one"


async def test_above_the_limit_calls_wait_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_BUSY", 1)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    gate, order = Gate(), list[int]()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, gate)
        await gate.until_begun()
        for number in range(5):
            group.start_soon(run_in_thread, order.append, number)
            await anyio.sleep(0.01)
        assert order == []
        gate.go.set()
    assert order == [0, 1, 2, 3, 4]


async def test_an_abandoned_call_does_not_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_BUSY", 1)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    gate, came = Gate(), list[str]()

    async def wait_behind() -> None:
        came.append(await run_in_thread(lambda: "next"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(0.05):
                group.start_soon(wait_behind)
                await run_in_thread(gate)
            await until(lambda: came == ["next"])
    gate.go.set()


async def test_cancelled_while_it_waits_a_call_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_BUSY", 1)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    gate, ran, late = Gate(), list[int](), list[tuple[object, object]]()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_thread, gate)
        await gate.until_begun()
        with anyio.move_on_after(0.05):
            await run_in_thread(ran.append, 1, on_late=lambda result, error: late.append((result, error)))
        assert late == [(None, None)]
        gate.go.set()
    assert await run_in_thread(lambda: "free again") == "free again"
    assert ran == []


async def test_a_call_that_comes_while_the_last_one_leaves_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one counts until its caller was woken, so that the next call lines up behind one that has ended."""
    monkeypatch.setattr(threads, "MAX_BUSY", 1)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    wake: Callable[[threads._Call[Any]], bool] = threads._Call[Any].wake
    lined_up, came = threading.Event(), list[str]()

    def wake_and_wait(call: threads._Call[Any]) -> bool:
        woken = wake(call)
        assert lined_up.wait(60)
        return woken

    monkeypatch.setattr(threads._Call, "wake", wake_and_wait)

    async def call(name: str) -> None:
        came.append(await run_in_thread(lambda: name))

    with anyio.fail_after(60):
        await call("first")
        async with anyio.create_task_group() as group:
            group.start_soon(call, "second")
            group.start_soon(call, "third")
            await until(lambda: len(threads._pool._waiting) == 2)
            lined_up.set()
    assert (came[0], sorted(came[1:])) == ("first", ["second", "third"])


async def test_where_no_thread_can_be_started_calls_that_wait_fail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_BUSY", 1)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    gate, said = Gate(), list[str]()

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def call() -> None:
        with pytest.raises(RuntimeError) as refused:
            await run_in_thread(lambda: "never")
        said.append(str(refused.value))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(60) as first:
                group.start_soon(leave_when_begun, gate, first)
                await run_in_thread(gate)
            monkeypatch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                group.start_soon(call)
    gate.go.set()
    assert said == ["can't start new thread"] * 3


async def leave_when_begun(gate: Gate, scope: anyio.CancelScope) -> None:
    await gate.until_begun()
    scope.cancel()


async def test_many_at_once_all_come_back() -> None:
    came: list[int] = []

    async def one(number: int) -> None:
        came.append(await run_in_thread(lambda: number * 2))

    async with anyio.create_task_group() as group:
        for number in range(600):
            group.start_soon(one, number)
    assert sorted(came) == [2 * number for number in range(600)]


async def test_where_no_thread_can_be_started_the_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", threads._Pool())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await run_in_thread(lambda: 1)
    assert await run_in_thread(lambda: 1) == 1


async def test_a_call_that_is_left_while_no_thread_can_be_started_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, late = threads._Pool(), list[object]()
    call = threads._Call(lambda: 1, lambda _result, error: late.append(error))

    def refuse(_self: threading.Thread) -> None:
        pool.abandon(call)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.submit(call)
    assert pool.at_work == 0
    assert [str(error) for error in late] == ["can't start new thread"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_result_after_the_event_loop_is_told_late(backend: str) -> None:
    gate, late = Gate(), list[object]()

    call = partial(run_in_thread, gate, "too late", on_late=lambda result, _: late.append(result))
    anyio.run(leave, gate, call, backend=backend)
    gate.go.set()
    anyio.run(until, lambda: bool(late))
    assert late == ["too late"]


def test_a_result_after_the_event_loop_is_told_once_although_the_caller_is_closed_then() -> None:
    """Whoever is told twice books the usage of a call twice."""
    gate, late = Gate(), list[object]()
    loop = asyncio.new_event_loop()
    caller = run_in_thread(gate, on_late=lambda result, _: late.append(result))

    async def begin() -> None:
        caller.send(None)  # no task has it, so the end of the event loop does not end it
        await gate.until_begun()

    loop.run_until_complete(begin())
    loop.close()
    gate.go.set()
    anyio.run(until, lambda: bool(late))
    caller.close()
    assert late == ["done"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_process_ends_although_a_thread_hangs(backend: str) -> None:
    """U10: a worker thread that ignores its deadline does not keep the process alive."""
    program = f"""
        import threading, anyio
        from kairo_team._util.threads import run_in_thread

        async def main():
            with anyio.move_on_after(0.1):
                await run_in_thread(threading.Event().wait)
            print("left", flush=True)

        anyio.run(main, backend={backend!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_threads_of_its_own() -> None:
    program = """
        import os, warnings, anyio
        from kairo_team._util.threads import run_in_thread
        warnings.simplefilter("ignore")

        async def call():
            return await run_in_thread(lambda: "answer")

        anyio.run(call)
        child = os.fork()
        assert anyio.run(call) == "answer"
        if child:
            assert os.waitpid(child, 0)[1] == 0
            print("both")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr
