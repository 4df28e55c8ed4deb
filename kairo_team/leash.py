"""Drive a coroutine that may ignore its cancellation, and end it anyway."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


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
    structured concurrency waits for it. Closing throws `GeneratorExit` into it at the place where it waits.
    """
    send, throw = coroutine.send, coroutine.throw
    try:
        waits_for = send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # a StopIteration's value is untyped
    since: float | None = None
    while True:
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            if stopped():
                since = clock() if since is None else since
                if clock() - since > grace:
                    on_close()
                    _close(coroutine)
                    raise
            step: Callable[[], Any] = partial(throw, error)
        else:
            step = partial(send, sent)
        try:
            waits_for = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a StopIteration's value is untyped


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        coroutine.close()
    except RuntimeError:  # it ignores GeneratorExit too: there is nothing left to ask
        return
