"""Virtual time: the clock jumps, order is kept, and other threads are still heard."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from kairo_team._util.clock import LoopClock
from kairo_team._util.threads import calls_at_work, run_in_thread
from kairo_team.testing import FakeClock, clocks, run_in_virtual_time, virtual_time, virtual_time_backends

HOUR = 3600.0


async def test_hours_pass_in_milliseconds() -> None:
    clock, real = LoopClock(), time.monotonic()
    began = clock()
    await anyio.sleep(10 * HOUR)
    assert clock() - began == pytest.approx(10 * HOUR)
    assert clock() == pytest.approx(anyio.current_time())
    assert time.monotonic() - real < HOUR


async def test_timers_go_off_in_order_and_at_their_time() -> None:
    began = anyio.current_time()
    woken: list[tuple[float, float]] = []

    async def sleep(seconds: float) -> None:
        await anyio.sleep(seconds)
        woken.append((seconds, round(anyio.current_time() - began, 6)))

    async with anyio.create_task_group() as group:
        for seconds in (HOUR, 0.5, 7.0, 30 * 24 * HOUR, 0.0):
            group.start_soon(sleep, seconds)
    assert woken == [(s, s) for s in (0.0, 0.5, 7.0, HOUR, 30 * 24 * HOUR)]


async def test_time_stands_still_while_there_is_something_to_do() -> None:
    began = anyio.current_time()
    with anyio.move_on_after(HOUR):
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == began


async def test_a_deadline_ends_what_waits_for_ever() -> None:
    began = anyio.current_time()
    with anyio.move_on_after(HOUR) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(HOUR)


async def test_another_thread_is_heard_while_no_timer_is_set() -> None:
    """A thread's post wakes the loop: without timers it waits in real time."""
    done = anyio.Event()
    token = anyio.lowlevel.current_token()

    def work() -> None:
        time.sleep(0.005)
        anyio.from_thread.run_sync(done.set, token=token)

    thread = threading.Thread(target=work)
    thread.start()
    await done.wait()
    thread.join()


def _in_anyios_thread(work: Callable[[], object]) -> Awaitable[object]:
    return anyio.to_thread.run_sync(work)


def _in_our_thread(work: Callable[[], object]) -> Awaitable[object]:
    return run_in_thread(work)


def _in_asyncios_executor(work: Callable[[], object]) -> Awaitable[object]:
    return asyncio.get_running_loop().run_in_executor(None, work)


ON_ASYNCIO = pytest.param(_in_asyncios_executor, marks=pytest.mark.loops("asyncio"))


@pytest.mark.parametrize("in_thread", [_in_anyios_thread, _in_our_thread, ON_ASYNCIO])
async def test_no_deadline_passes_while_a_worker_thread_is_at_work(
    in_thread: Callable[[Callable[[], object]], Awaitable[object]],
) -> None:
    began, went_off = anyio.current_time(), anyio.Event()

    async def timer() -> None:
        await anyio.sleep(0.05)
        went_off.set()

    async with anyio.create_task_group() as group:
        group.start_soon(timer)
        with anyio.fail_after(60):
            await in_thread(lambda: time.sleep(0.3))
        assert went_off.is_set()  # short timers go off meanwhile
        assert anyio.current_time() - began < 30
    await anyio.sleep(HOUR)
    assert anyio.current_time() - began > HOUR


async def test_a_thread_that_ends_while_the_clock_looks_is_heard_before_it_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, a thread ends between the loop's look at what was posted and the look at threads."""
    may_end, look = threading.Event(), clocks._waits_for_threads

    def looks_late() -> bool:
        may_end.set()
        while calls_at_work():
            time.sleep(0)
        return look()

    with anyio.fail_after(HOUR):
        async with anyio.create_task_group() as group:
            group.start_soon(run_in_thread, may_end.wait)
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(clocks, "_waits_for_threads", looks_late)


async def test_threads_that_end_one_after_the_other_while_the_clock_looks_are_all_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the clock noticed at the first one must not make it jump at the second."""
    look = clocks._waits_for_threads

    def looks_late() -> bool:
        while calls_at_work():
            time.sleep(0)
        return look()

    monkeypatch.setattr(clocks, "_waits_for_threads", looks_late)
    with anyio.fail_after(HOUR):
        for _ in range(5):
            await run_in_thread(time.sleep, 0.01)


async def test_a_deadline_ends_the_wait_for_a_thread() -> None:
    may_end = threading.Event()
    with anyio.move_on_after(0.1) as scope:
        await run_in_thread(may_end.wait)
    may_end.set()
    assert scope.cancelled_caught


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_sync_code_can_run_in_virtual_time(backend: str) -> None:
    async def nap(hours: float) -> float:
        await anyio.sleep(hours * HOUR)
        return anyio.current_time()

    first, second = (run_in_virtual_time(nap, 2.0, backend=backend) for _ in range(2))
    assert first == second == pytest.approx(2 * HOUR), "every run has a clock of its own"


def test_an_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'curio'; there is 'asyncio' and 'trio'"):
        virtual_time("curio")


@pytest.mark.real_time
async def test_marked_tests_run_in_real_time() -> None:
    began = time.monotonic()
    await anyio.sleep(0.003)
    assert time.monotonic() - began >= 0.002


def test_a_fake_clock_is_moved_by_hand_and_never_back() -> None:
    clock = FakeClock(5.0)
    clock.advance(2.5)
    assert clock() == clock.now == 7.5
    assert repr(clock) == "FakeClock(7.5)"
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
