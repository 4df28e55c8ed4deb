"""Telling an event loop something from outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from collections.abc import Callable


def current_loop() -> object:
    """Return what stands for the running event loop; raises `anyio.NoEventLoopError` outside one."""
    return current_token().native_token


def send(loop: object, function: Callable[..., object], *args: object) -> None:
    """Have `function` called soon in `loop`: from any task, thread or signal handler, without waiting.

    Nothing happens when the loop has ended: whoever was to be told has ended with it.
    """
    post: Callable[..., object] = getattr(loop, "call_soon_threadsafe", None) or _post_to_trio(loop)
    try:
        post(function, *args)
    except RuntimeError:
        return


def _post_to_trio(loop: object) -> Callable[..., object]:
    post: Callable[..., object] = getattr(loop, "run_sync_soon")  # noqa: B009 - its type is anyio's secret
    return post
