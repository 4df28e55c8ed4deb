"""Errors of pydantic-ai's model layer, in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kairo_team.errors import ModelCallError
from kairo_team.models.readings import REFUSALS, kind_in, kind_of_codes, kind_of_status, shortened, words_in

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

_CLIENTS: Final = frozenset({"anthropic", "google", "groq", "httpx", "httpx2", "mistralai", "openai", "pydantic_ai"})
"""Client libraries: what they raise is their provider's, or the request's, and never a bug of an agent."""


def call_error(model: str, error: Exception) -> ModelCallError | None:
    """Convert the error of a failed call; None for an error that is not the provider's."""
    from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError

    if isinstance(error, ModelCallError):
        return error
    if isinstance(error, ModelAPIError):
        return _of_provider(model, error)
    if isinstance(error, UnexpectedModelBehavior):
        return ModelCallError(_of_reply(error), model, message_of(error))
    if isinstance(error, UserError):  # the request cannot be made for this model, and was not sent
        return ModelCallError("bad_request", model, message_of(error), unspent=True)
    if isinstance(error, TimeoutError):
        return ModelCallError("timeout", model, message_of(error))
    if isinstance(error, ConnectionError):
        return ModelCallError("connection", model, message_of(error), unspent=isinstance(error, ConnectionRefusedError))
    if isinstance(error, LookupError | AttributeError | TypeError | ValueError):
        return ModelCallError("unknown", model, f"its reply cannot be read: {message_of(error)}")
    if type(error).__module__.partition(".")[0] in _CLIENTS:
        return ModelCallError("unknown", model, f"{type(error).__name__}: {message_of(error)}")
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
    named = _named(error)
    if named is not None and (named != "bad_request" or status is None):
        return named
    if status is None:
        return "overloaded" if isinstance(error, theirs.ModelServerError) else "unknown"
    return kind_of_status(status)


def _named(error: Exception) -> ModelErrorKind | None:
    """Return the kind that the provider's own names of the error say, such as llama.cpp's of a full context."""
    names = (getattr(error, "provider_error_code", None), getattr(error, "provider_error_type", None))
    named = kind_of_codes(names)
    return named if named not in (None, "bad_request") else kind_in(getattr(error, "body", None)) or named


def _of_reply(error: Exception) -> ModelErrorKind:
    from pydantic_ai.exceptions import ContentFilterError

    return "content_filter" if isinstance(error, ContentFilterError) else "unknown"


def message_of(error: Exception) -> str:
    """Return the provider's own words where the error has them, else its message, cut to a readable length."""
    said = words_in(getattr(error, "body", None))
    return said or shortened(str(error).strip() or type(error).__name__)
