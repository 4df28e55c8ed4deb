"""Errors of pydantic-ai's model layer, in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kairo_team.errors import ModelCallError

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

REFUSALS: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 422, 429})
"""HTTP statuses that show that the provider did not begin to work."""
_BY_STATUS: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limited",
    500: "overloaded",
    502: "overloaded",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_MOST_WORDS: Final = 500
"""Characters of a provider's complaint that are kept."""


def call_error(model: str, error: Exception) -> ModelCallError | None:
    """Convert the error of a failed call; None for an error that is not the provider's."""
    from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior

    if isinstance(error, ModelAPIError):
        return _of_provider(model, error)
    if isinstance(error, UnexpectedModelBehavior):
        return ModelCallError(_of_reply(error), model, message_of(error))
    if isinstance(error, TimeoutError):
        return ModelCallError("timeout", model, message_of(error))
    if isinstance(error, ConnectionError):
        return ModelCallError("connection", model, message_of(error), unspent=isinstance(error, ConnectionRefusedError))
    if isinstance(error, LookupError | AttributeError | TypeError | ValueError):
        return ModelCallError("unknown", model, f"its reply cannot be read: {message_of(error)}")
    return None


def _of_provider(model: str, error: Any) -> ModelCallError:
    status: int | None = getattr(error, "status_code", None)
    begun = bool(getattr(error, "in_stream", False))
    never_sent = getattr(error, "phase", None) in {"pool", "connect"}
    unspent = not begun and (never_sent or status in REFUSALS)
    retry_after: float | None = getattr(error, "retry_after", None)
    return ModelCallError(_kind(error, status), model, message_of(error), retry_after=retry_after, unspent=unspent)


def _kind(error: Exception, status: int | None) -> ModelErrorKind:
    """Decide by the class when it is more precise than the status."""
    from pydantic_ai import exceptions as theirs

    kinds: tuple[tuple[type[Exception], ModelErrorKind], ...] = (
        (theirs.ModelContextWindowExceededError, "context_length"),
        (theirs.ModelQuotaExceededError, "auth"),
        (theirs.ModelRateLimitError, "rate_limited"),
        (theirs.ModelUnavailableError, "overloaded"),
        (theirs.ModelTimeoutError, "timeout"),
        (theirs.ModelRequestTimeout, "timeout"),
        (theirs.ModelConnectionError, "connection"),
    )
    for kind_of_theirs, kind in kinds:
        if isinstance(error, kind_of_theirs):
            return kind
    if _names_context(error):
        return "context_length"
    if status is None:
        return "overloaded" if isinstance(error, theirs.ModelServerError) else "unknown"
    return kind_of_status(status)


def kind_of_status(status: int) -> ModelErrorKind:
    """Return the kind of error of an HTTP status."""
    return _BY_STATUS.get(status) or ("bad_request" if status in range(400, 500) else "unknown")


def _names_context(error: Exception) -> bool:
    """Return whether the provider's own name of the error speaks of the context's length, as llama.cpp's does."""
    names = (getattr(error, "provider_error_code", None), getattr(error, "provider_error_type", None))
    return any("context" in name for name in names if isinstance(name, str))


def _of_reply(error: Exception) -> ModelErrorKind:
    from pydantic_ai.exceptions import ContentFilterError

    return "content_filter" if isinstance(error, ContentFilterError) else "unknown"


def message_of(error: Exception) -> str:
    """Return the message, cut to a readable length."""
    message = str(error).strip() or type(error).__name__
    return message if len(message) <= _MOST_WORDS else f"{message[:_MOST_WORDS]}..."
