"""What a plug-in must not raise, in every form, and the places where it may try."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import anyio
from anyio.lowlevel import checkpoint

Misdeed = Callable[[], Awaitable[NoReturn]]


class End(BaseException):
    """An end of somebody's own making."""


class Silent(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit(7)


async def stray_cancellation() -> BaseException:
    """Return a cancellation that nobody asked for: on asyncio a cancelled future's, on trio one that left its scope."""
    try:
        if "trio" in anyio.get_cancelled_exc_class().__module__:
            with anyio.CancelScope() as scope:
                scope.cancel()
                try:
                    await checkpoint()
                except anyio.get_cancelled_exc_class() as cancelled:
                    return cancelled
        else:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
    except anyio.get_cancelled_exc_class() as cancelled:
        return cancelled
    raise AssertionError


async def _make(kind: str) -> BaseException:
    match kind:
        case "cancelled":
            return await stray_cancellation()
        case "group":
            return BaseExceptionGroup("two", [SystemExit(3), ValueError("x")])
        case "group of one":
            return BaseExceptionGroup("one", [BaseExceptionGroup("inner", [SystemExit(3)])])
        case "group of cancelled":
            return BaseExceptionGroup("two", [await stray_cancellation(), End("x")])
        case "silent":
            return Silent()
        case _:
            return {
                "exit": SystemExit(3),
                "interrupt": KeyboardInterrupt(),
                "closed": GeneratorExit(),
                "own": End("x"),
            }[kind]


SAID = {
    "cancelled": "it was not cancelled",
    "exit": "SystemExit(3): a plug-in cannot end the program",
    "interrupt": "KeyboardInterrupt(): Ctrl-C was not pressed",
    "closed": "GeneratorExit(): it was not closed",
    "own": "End('x'): it is not an Exception",
    "group": "two",
    "group of one": "SystemExit(3): a plug-in cannot end the program",
    "group of cancelled": "two",
    "silent": "Silent",
}
"""What is said of each kind of misdeed."""


class Culprit:
    """Raises what it must not, once it was made ready; `later` after it has waited."""

    def __init__(self, kind: str, *, later: bool) -> None:
        self.said = SAID[kind]
        self._kind = kind
        self._later = later
        self._ready: BaseException | None = None
        self.calls = 0

    async def get_ready(self) -> None:
        """Make what is raised, so that it can be raised without waiting."""
        self._ready = await _make(self._kind)

    async def act(self, *_: Any, **__: Any) -> Any:
        """Do it, where one can wait."""
        self.calls += 1
        if self._later:
            await anyio.sleep(0.5)
        if self._kind == "cancelled" and "trio" not in anyio.get_cancelled_exc_class().__module__:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        raise self._made()

    def act_at_once(self, *_: Any, **__: Any) -> Any:
        """Do it, where nobody waits."""
        self.calls += 1
        raise self._made()

    def _made(self) -> BaseException:
        assert self._ready is not None, "it was not made ready"
        return self._ready
