"""Drive a coroutine that may ignore its cancellation, and end it anyway."""

from __future__ import annotations

import ctypes
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")
_PATIENCE: Final = 1000
"""Cancellations that clean-up may meet, one at each of its awaits."""


@types.coroutine
def leash(
    coroutine: Coroutine[Any, Any, T],
    stopped: Callable[[], bool],
    clock: Callable[[], float],
    grace: float,
    on_close: Callable[[], object],
) -> Generator[Any, Any, T]:
    """Await `coroutine`; once `stopped()` is true and `grace` seconds are over, close it instead of going on.

    A coroutine that swallows every cancellation would otherwise keep its task, and so the whole run, alive for ever:
    structured concurrency waits for it. Closing throws `GeneratorExit` into it at the place where it waits. One that
    does nothing but swallow is closed sooner: the event loop would never be idle.
    """
    send, throw = coroutine.send, coroutine.throw
    sent: Any = None
    error: BaseException | None = None
    since: float | None = None
    swallowed = 0
    while True:
        try:
            waits_for = send(sent) if error is None else throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a StopIteration's value is untyped
        sent = error = None
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - handed on to the coroutine
            error = thrown
        if stopped():
            since = clock() if since is None else since
            cancelled = error or getattr(sent, "error", None)  # trio sends errors wrapped in an outcome
            swallowed += cancelled is not None
            if cancelled is not None and (swallowed > _PATIENCE or clock() - since > grace):
                on_close()
                _close(coroutine)
                raise cancelled


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    chain = _awaited(coroutine)
    try:
        coroutine.close()
    except RuntimeError:  # one of them swallows GeneratorExit too
        for link in chain:
            _keep_for_ever(link)


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> list[Any]:
    """List the coroutine, the one it awaits, and so on."""
    chain: list[Any] = [coroutine]
    while inspect.iscoroutine(inner := getattr(chain[-1], "cr_await", None)):
        chain.append(inner)
    return chain


def _keep_for_ever(coroutine: object) -> None:
    """Never let it be finalised: that would close it again, and what swallows everything would never end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
