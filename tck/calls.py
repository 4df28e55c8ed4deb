"""Ways in which kits call an implementation: at once, cancelled in the middle, for its error, in another process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import anyio
import pytest

T = TypeVar("T")
Call = Callable[[], Awaitable[T]]
_DAY: Final = 86_400
_LONGEST: Final = 120
"""Seconds that another process may take."""


async def at_once(calls: Iterable[Call[T]]) -> list[T]:
    """Make calls at the same time and return their results in order."""
    made = list(calls)
    results: dict[int, T] = {}

    async def make(place: int, call: Call[T]) -> None:
        results[place] = await call()

    async with anyio.create_task_group() as group:
        for place, call in enumerate(made):
            group.start_soon(make, place, call)
    return [results[place] for place in range(len(made))]


async def result_or_error(call: Call[T]) -> T | Exception:
    """Return the result of a call, or its error."""
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - the kit looks at it
        return error


async def check_cancels(
    what: str, call: Call[Any], started: Callable[[], bool] = lambda: True, *, or_skip: str = ""
) -> None:
    """Fail unless a cancellation ends a call that would otherwise hang, and passes through.

    The call is cancelled 0.01 seconds after `started` returns True. If it may have ended by then, `or_skip` is the
    reason to skip the contract test.
    """
    returned: list[Any] = []
    early = False
    async with anyio.create_task_group() as group:

        async def make() -> None:
            returned.append(await result_or_error(call))

        group.start_soon(make)
        with anyio.move_on_after(10):
            while not started() and not returned:  # noqa: ASYNC110 - what was started may be in a thread
                await anyio.sleep(0.001)
        await anyio.sleep(0.01)
        early = bool(returned)
        group.cancel_scope.cancel()
    skip_unless(not (early and or_skip), or_skip)
    assert not early, f"{what} must wait until it is cancelled, and it ended with {returned[0]!r}"
    assert not returned, f"{what} was cancelled, and still returned {returned[0]!r}: let the cancellation pass"


def skip_unless(holds: object, reason: str) -> None:
    """Skip the contract test with this reason unless `holds` is true."""
    if not holds:
        pytest.skip(reason)


def no_examples(kit: type, name: str, what: str) -> NoReturn:
    """Fail because the kit has no examples."""
    pytest.fail(f"{kit.__name__}.{name} is empty: give {what}")


@contextmanager
def another_moment(number: int) -> Generator[None]:
    """Shift the wall clock and the random numbers inside the block."""
    lots, clock = random.getstate(), time.time
    random.seed(number)
    time.time = lambda: clock() + number * _DAY
    try:
        yield
    finally:
        time.time = clock
        random.setstate(lots)


@cache
def said_elsewhere(module: str, name: str, code: str) -> str:
    """Return the last line that `code` prints about the `kit` of that name, in a process with other hashes.

    The contract test is skipped if that process fails, or takes too long.
    """
    find = (
        "import sys; from functools import reduce; from importlib import import_module; "
        "kit = reduce(getattr, sys.argv[2].split('.'), import_module(sys.argv[1])); print(); "
    )
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    try:
        done = subprocess.run(  # noqa: S603 - this Python, with the name of a kit
            [sys.executable, "-c", find + code, module, name],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"another process had no answer within {_LONGEST} seconds")
    if done.returncode:
        pytest.skip(f"another process cannot do it: {done.stderr.strip().rpartition(chr(10))[2]:.200}")
    return done.stdout.rstrip("\n").rpartition("\n")[2]  # the kit's module may print, too
