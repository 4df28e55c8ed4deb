"""Errors of OpenAI's client, and of those made after it, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from openai import APIConnectionError, APIError, APITimeoutError

from kairo_team.errors import ModelCallError

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

_BY_CODE: Final[dict[Any, ModelErrorKind]] = {
    "context_length_exceeded": "context_length",
    "content_filter": "content_filter",
    "insufficient_quota": "auth",
}
_BY_STATUS: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limited",
    504: "timeout",
}
_NEVER_SENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout")
"""Names of the transport's errors from before a request left."""
_CLIENT_ERRORS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)
_MOST_WORDS: Final = 500
"""Characters of a provider's complaint that are kept."""


def call_error(model: str, error: Exception) -> ModelCallError | None:
    """Return what a failed call means; None for an error that is not the provider's."""
    why = (str(error).strip() or type(error).__name__)[:_MOST_WORDS]
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        unspent = status in _CLIENT_ERRORS and status != 408  # noqa: PLR2004 - a timeout of work that had begun
        return ModelCallError(_kind(error, status), model, why, retry_after=_retry_after(error), unspent=unspent)
    if isinstance(error, APIConnectionError | TimeoutError | ConnectionError):
        never_sent = type(error.__cause__).__name__ in _NEVER_SENT or isinstance(error, ConnectionRefusedError)
        slow = isinstance(error, APITimeoutError | TimeoutError)
        return ModelCallError("timeout" if slow else "connection", model, why, unspent=never_sent)
    return ModelCallError("unknown", model, why) if isinstance(error, APIError) else None


def _kind(error: Exception, status: int) -> ModelErrorKind:
    kind = _BY_CODE.get(getattr(error, "code", None)) or _BY_STATUS.get(status)
    if kind is not None:
        return kind
    return "bad_request" if status in _CLIENT_ERRORS else "overloaded" if status in _SERVER_ERRORS else "unknown"


def _retry_after(error: Exception) -> float | None:
    """Return the seconds the provider asks to wait; None where it does not say, or names a date."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if not hasattr(headers, "get"):
        return None
    told = cast("Mapping[str, str]", headers)
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(told.get(name, "")) / unit)
        except ValueError:
            continue
    return None
