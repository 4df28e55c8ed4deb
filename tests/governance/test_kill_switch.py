"""The kill switch: from every thread and signal handler, whatever the event loop does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

import anyio
import pytest

from kairo_team.budget import Budget, HaltReason
from kairo_team.errors import HaltError
from kairo_team.governance import Governor

pytestmark = pytest.mark.anyio


@pytest.mark.real_time
async def test_kf_u07_the_kill_switch_works_from_a_thread() -> None:
    """U07: the kill switch raised, dead-locked or never woke the sleeper from a thread or signal handler."""
    team = Governor(name="team")
    killer = threading.Timer(0.02, team.cancel)
    with anyio.fail_after(60), pytest.raises(HaltError) as caught:
        async with team.carve("task").scope():
            killer.start()
            await anyio.sleep_forever()
    killer.join()
    assert caught.value.reason is HaltReason.CANCELLED


@pytest.mark.real_time
async def test_kf_u07_many_threads_may_kill_at_once() -> None:
    """U07: the first reason wins also between threads, and every sleeper wakes once."""
    team = Governor(name="team")
    ready = threading.Barrier(8)
    reasons = [HaltReason.CANCELLED, HaltReason.EMERGENCY_STOP] * 4

    def kill(reason: HaltReason) -> None:
        ready.wait()
        team.cancel(reason)

    killers = [threading.Thread(target=kill, args=(reason,)) for reason in reasons]
    seen: list[str] = []

    async def in_scope(governor: Governor) -> None:
        async with governor.scope():
            try:
                await anyio.sleep_forever()
            finally:
                seen.append(governor.name)

    with anyio.fail_after(60), pytest.raises(HaltError) as caught:
        async with team.scope(), anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(in_scope, team.carve(f"t{number}"))
            await anyio.sleep(0.01)
            for killer in killers:
                killer.start()
            await anyio.sleep_forever()
    for killer in killers:
        killer.join()
    assert len(seen) == 50
    assert team.halted is caught.value.reason


@contextmanager
def on_signal(act: Callable[[], object]) -> Generator[None]:
    """Do something in a signal handler of the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        act()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
async def test_kf_u07_the_kill_switch_works_from_a_signal_handler() -> None:
    """U07: while the event loop sleeps."""
    team = Governor(name="team")
    sender = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    with on_signal(team.cancel), anyio.fail_after(60), pytest.raises(HaltError):
        async with team.scope():
            sender.start()
            await anyio.sleep_forever()
    sender.join()


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
async def test_kf_u07_a_signal_while_the_ledger_is_locked_does_not_dead_lock() -> None:
    """U07: neither by the interrupted thread itself nor while another thread holds the lock."""
    team = Governor(Budget(tokens=100), name="team")
    lock = team._node.tree.lock
    other_holds, let_go = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def keep_the_lock() -> None:
        with lock:
            other_holds.set()
            in_time.append(let_go.wait(60))

    keeper = threading.Thread(target=keep_the_lock)
    with on_signal(team.cancel):
        with lock:
            signal.raise_signal(signal.SIGUSR1)
        assert team.halted is HaltReason.CANCELLED
        keeper.start()
        assert other_holds.wait(60)
        signal.raise_signal(signal.SIGUSR1)
        let_go.set()
    keeper.join()
    assert in_time == [True], "the handler waited for the lock"


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
async def test_kf_u07_a_storm_of_signals_in_the_middle_of_bookings() -> None:
    """U07: a signal may come between any two lines of the ledger."""
    team = Governor(Budget(tokens=10**9), name="team")
    count = 0
    child = team.carve("first")
    with on_signal(lambda: child.cancel()):  # noqa: PLW0108 - the child changes
        for _ in range(30):
            child = team.carve("child")
            sender = threading.Timer(0.0005, os.kill, (os.getpid(), signal.SIGUSR1))
            sender.start()
            with suppress(HaltError):
                while True:
                    with child.reserve(tokens=2) as hold:
                        hold.settle(1)
                        count += 1
            sender.join()
            child.close()
    assert team.status()[0].tokens == count
    assert team.held.tokens == 0


@pytest.mark.real_time
async def test_kf_u07_a_kill_after_the_loop_has_ended_is_harmless(anyio_backend_name: str) -> None:
    """U07: a scope whose event loop is gone cannot be posted to."""
    team = Governor(name="team")
    entered = threading.Event()

    async def leave_a_scope_open() -> None:
        await team.scope().__aenter__()
        entered.set()

    def run() -> None:
        with pytest.raises(BaseException):  # noqa: B017, PT011 - trio complains about the scope left open
            anyio.run(leave_a_scope_open, backend=anyio_backend_name)
            raise RuntimeError

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert entered.is_set()
    team.cancel()
    assert team.halted is HaltReason.CANCELLED


@pytest.mark.real_time
async def test_kf_u07_a_scope_in_another_threads_loop_is_interrupted_there(anyio_backend_name: str) -> None:
    """U07: one tree, two event loops."""
    team = Governor(name="team")
    entered = threading.Event()
    raised: list[HaltReason] = []

    async def sleeper() -> None:
        try:
            async with team.carve("far").scope():
                entered.set()
                await anyio.sleep_forever()
        except HaltError as halt:
            raised.append(halt.reason)

    thread = threading.Thread(target=lambda: anyio.run(sleeper, backend=anyio_backend_name))
    thread.start()
    assert entered.wait(60)
    team.cancel()
    thread.join(60)
    assert raised == [HaltReason.CANCELLED]
