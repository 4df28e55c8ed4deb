"""Convert errors of providers' own client libraries into ours.

Errors are recognised by their attributes and class names, so no client has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team.errors import ModelCallError
from kairo_team.models.provider_errors import (
    answered_words,
    connection_words,
    is_refusal,
    kind_of_words,
    message_of,
    names_of,
    never_sent,
    unsent_error,
)
from kairo_team.models.readings import call_error_of, kind_in, kind_of_code, kind_of_status, wait_in

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

_SLOW: Final = frozenset({"APITimeoutError", "TimeoutError", "TimeoutException"})
_BROKEN: Final = frozenset({"APIConnectionError", "ConnectionError", "TransportError"})
_OTHER: Final = frozenset({"APIError"})
"""Names of error classes, or their base classes, of clients and transports."""


def call_error(model: str, error: Exception) -> ModelCallError | None:
    """Convert the error of a failed call; None for an error that is not the provider's."""
    if (unsent := unsent_error(model, error)) is not None:
        return unsent
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        kind, why, retry_after = _kind(error, status), answered_words(error, status), _retry_after(error)
        if retry_after is None:
            retry_after = wait_in(why)
        return ModelCallError(kind, model, why, retry_after=retry_after, unspent=is_refusal(status, kind))
    # The exact class: a subclass is another error, such as one of pydantic.
    body: Any = error.args[0] if type(error) is ValueError and error.args else None
    body = body.model_dump() if hasattr(body, "model_dump") else body
    if isinstance(body, dict) and "message" in body:  # LangChain raises the error of a body with status 200 so
        return call_error_of(model, {"error": cast("object", body)}, "it answered with an error")
    names = names_of(error)
    if names & (_SLOW | _BROKEN):
        way: ModelErrorKind = "timeout" if names & _SLOW else "connection"
        return ModelCallError(way, model, connection_words(error), unspent=never_sent(error))
    if not names & _OTHER:
        return None
    said = message_of(error)  # of an error that came in a stream
    return ModelCallError(_coded(error) or "unknown", model, said, retry_after=wait_in(said))


def _kind(error: Exception, status: int) -> ModelErrorKind:
    named = _coded(error)
    # "bad_request" is the least precise, and the status may say more.
    return named if named not in (None, "bad_request") else kind_of_status(status)


def _coded(error: Exception) -> ModelErrorKind | None:
    coded = kind_of_code(getattr(error, "code", None))
    return kind_of_words(error) or coded or kind_in(getattr(error, "body", None))


def _retry_after(error: Exception) -> float | None:
    """Return the seconds the provider asks to wait; None when it sends nothing, or a date."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if not hasattr(headers, "get"):
        return None
    sent = cast("Mapping[str, str]", headers)
    # OpenAI's header in milliseconds is more precise than the standard one.
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(sent.get(name, "")) / unit)
        except ValueError:
            continue
    return None
