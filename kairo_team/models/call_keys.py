"""The key by which a provider may know a call that was sent before, so that it answers and charges it once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

HEADER: Final = "Idempotency-Key"
"""The header in which servers and gateways that know such keys take them; all others ignore it."""

_asked: Final[ContextVar[str]] = ContextVar("kairo_team_asked", default="")
_sent: Final[ContextVar[str | None]] = ContextVar("kairo_team_sent", default=None)


def call_key() -> str:
    """Return the name in the journal of the call that is being answered; empty where none is recorded."""
    return _asked.get()


def idempotency_key() -> str | None:
    """Return the key of the try that is being sent, for a model that hands it on; None where nothing is recorded.

    A try that is made again because nobody saw its answer has the same key, also in another process. Another call, and
    a try after the provider answered with an error, has another one.
    """
    return _sent.get()


def headers_with_key(given: Any) -> Any:
    """Return the headers of a try with its key, or as they are given: where there is none, or they have one."""
    key, headers = idempotency_key(), dict(given or {})
    if key is None or any(name.lower() == HEADER.lower() for name in headers):
        return given
    return {**headers, HEADER: key}


@contextmanager
def answering(key: str) -> Generator[None]:
    """Answer the call of this name inside the block."""
    token = _asked.set(key)
    try:
        yield
    finally:
        _asked.reset(token)


@contextmanager
def sending(key: str | None) -> Generator[None]:
    """Send the try of this key inside the block."""
    token = _sent.set(key)
    try:
        yield
    finally:
        _sent.reset(token)
