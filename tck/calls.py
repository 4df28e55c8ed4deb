"""Ways in which kits call an implementation: many times at once, cancelled in the middle, or for its error."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import anyio
import pytest

T = TypeVar("T")
Call = Callable[[], Awaitable[T]]
_DAY: Final = 86_400


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
