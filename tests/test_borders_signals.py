"""A signal of the main thread is nobody's failure: Ctrl-C ends the run, in whatever plug-in it arrives."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio
import pytest

from kairo_team.errors import BadExit
from kairo_team.plugin_calls import AWAITED_CALL, PLAIN_CALL, failure_of, plain_failure_of, problem_of, words_of
from tests.misdeeds import End

needs_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread alone"
)


@contextmanager
def handling(number: int, handler: Any) -> Generator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def caught(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as raised:  # noqa: BLE001 - whatever it is
        return raised
    raise AssertionError


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def press_while_it_waits() -> None:
    threading.Timer(
        0.05, functools.partial(signal.pthread_kill, threading.main_thread().ident or 0, signal.SIGINT)
    ).start()
    time.sleep(600)


def press_and_clean_up() -> None:
    try:
        press()
    except KeyboardInterrupt as interrupt:  # noqa: TRY203 - as people write it
        raise interrupt  # noqa: TRY201 - the same


def interrupt(number: int, frame: FrameType | None) -> None:
    _raise(KeyboardInterrupt())


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def leave(self, why: str, number: int, frame: FrameType | None) -> None:
        sys.exit(143)


def _raise(error: BaseException) -> None:
    raise error


HANDLERS: list[Any] = [
    signal.default_int_handler,
    interrupt,
    lambda *_: _raise(KeyboardInterrupt()),
    Handler(),
    Handler().handle,
]


@needs_main_thread
@pytest.mark.parametrize("press_it", [press, press_while_it_waits, press_and_clean_up])
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: getattr(handler, "__name__", "object"))
def test_audit_g25_what_the_handler_of_a_signal_raised_goes_on(handler: Any, press_it: Callable[[], None]) -> None:
    with handling(signal.SIGINT, handler):
        raised = caught(press_it)
        assert isinstance(raised, KeyboardInterrupt)
        assert failure_of(raised) is None
        assert plain_failure_of(raised) is None
        assert failure_of(BaseExceptionGroup("two", [ValueError("x"), raised])) is None
        with pytest.raises(KeyboardInterrupt), PLAIN_CALL:
            press_it()
        with pytest.raises(KeyboardInterrupt), AWAITED_CALL:
            press_it()


@needs_main_thread
def test_audit_g25_an_exit_by_a_signal_goes_on_too() -> None:
    handler = functools.partial(Handler().leave, "the machine goes down")
    with handling(signal.SIGTERM, handler):
        raised = caught(lambda: signal.raise_signal(signal.SIGTERM))
        assert isinstance(raised, SystemExit)
        assert failure_of(raised) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), GeneratorExit(), End("x")], ids=repr)
@pytest.mark.parametrize("where", ["main", "thread"])
def test_audit_g25_what_code_raises_by_itself_is_its_own_failure(error: BaseException, where: str) -> None:
    seen: list[Exception | None] = []

    def judge() -> None:
        raised = caught(lambda: _raise(error))
        seen.extend([failure_of(raised), plain_failure_of(raised)])

    thread = threading.Thread(target=judge)
    (thread.start if where == "thread" else judge)()
    if where == "thread":
        thread.join()
    for failure in seen:
        assert isinstance(failure, BadExit)
        assert failure.__cause__ is error
        assert str(failure).startswith(f"{error!r}: ")
        assert problem_of(failure) == words_of(failure) == str(failure)


def test_a_coroutine_that_is_closed_ends_as_it_should() -> None:
    seen: list[BaseException] = []

    async def work() -> None:
        try:
            with AWAITED_CALL:
                await anyio.sleep_forever()
        except BaseException as raised:
            seen.append(raised)
            raise

    async def main() -> None:
        made = work()
        made.send(None)
        made.close()

    asyncio.run(main())
    assert [type(raised) for raised in seen] == [GeneratorExit]


PROGRAM = """
import os, signal, sys, threading, time
import anyio
import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator

async def busy(assignment):
    for _ in range({presses}):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
    await anyio.sleep(0.05)
    return "went on"

async def waits(assignment):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    await anyio.sleep(600)
    return "went on"

async def says(assignment):
    raise KeyboardInterrupt

async def main():
    team = kt.Team("t", [kt.Member("m", {agent})])
    once = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result = await once.execute(kt.TeamExecutionRequest("g"), team)
    print("result:", result.error)

try:
    anyio.run(main, backend={backend!r})
except BaseException as error:
    leaves = [error]
    while isinstance(leaves[0], BaseExceptionGroup):
        leaves = list(leaves[0].exceptions)
    print("ended by", *sorted(type(leaf).__name__ for leaf in leaves))
"""


def play(agent: str, backend: str, presses: int = 0) -> str:
    code = textwrap.dedent(PROGRAM).format(agent=agent, backend=backend, presses=presses)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return done.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("agent", ["busy", "waits"])
def test_audit_g25_ctrl_c_ends_the_run_whatever_it_does(agent: str, backend: str) -> None:
    """On asyncio the first cancels the main task; the second comes to whatever runs, as on trio the first."""
    presses = 2 if backend == "asyncio" else 1
    assert play(agent, backend, presses) == "ended by KeyboardInterrupt\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_audit_g25_an_interrupt_that_an_agent_raises_is_its_failure(backend: str) -> None:
    assert "result: task 'task' failed: KeyboardInterrupt(): Ctrl-C was not pressed" in play("says", backend)
