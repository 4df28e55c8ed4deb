"""Idempotency keys: by its key, a provider may recognise a repeated call, and answer and charge it once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

from kairo_team._util.context_values import set_for

HEADER: Final = "Idempotency-Key"
"""The header for such keys; servers and gateways that do not know it ignore it."""

# Context variables: the model's interface has no place for keys, and calls run at the same time.
_asked: Final[ContextVar[str]] = ContextVar("kairo_team_asked", default="")
_sent: Final[ContextVar[str | None]] = ContextVar("kairo_team_sent", default=None)


def call_key() -> str:
    """Return the journal's name of the call that is being answered; empty if calls are not recorded."""
    return _asked.get()


def idempotency_key() -> str | None:
    """Return the key of the try that is being sent, for a model that passes it on; None if calls are not recorded.

    A try that is repeated because its answer was lost has the same key, also in another process. Another call has
    another key, and so has a try after the provider answered with an error.
    """
    return _sent.get()


def headers_with_key(given: Any) -> Any:
    """Add the idempotency key to the headers, unless there is no key or the headers have one."""
    key, headers = idempotency_key(), dict(given or {})
    if key is None or any(name.lower() == HEADER.lower() for name in headers):  # a key that the user set is the user's
        return given
    return {**headers, HEADER: key}


def answering(key: str) -> AbstractContextManager[str]:
    """Set the name of the call for a block."""
    return set_for(_asked, key)


def sending(key: str | None) -> AbstractContextManager[str | None]:
    """Set the key of the try for a block."""
    return set_for(_sent, key)
