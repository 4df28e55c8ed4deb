"""Convert errors of pydantic-ai's model layer, and of providers' own clients, into ours.

Errors of clients are recognised by their attributes and class names, so no client has to be installed.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from kairo_team.errors import ModelCallError
from kairo_team.models.readings import (
    REFUSALS,
    call_error_of,
    class_names,
    kind_in,
    kind_of_code,
    kind_of_codes,
    kind_of_status,
    shortened,
    wait_in,
    words_in,
)

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

_CLIENTS: Final = frozenset({"anthropic", "google", "groq", "httpx", "httpx2", "mistralai", "openai", "pydantic_ai"})
"""Client libraries: an error they raise comes from the provider or the request, never from a bug of an agent."""
_BY_WORDS: Final[dict[ModelErrorKind, tuple[str, ...]]] = {
    "context_length": (
        "contextwindowexceeded",
        "context_length_exceeded",
        "maximum context length",
        "exceed context limit",
        "exceeds the available context size",
        "prompt is too long",
        "exceeds the maximum number of tokens",
        "exceed the configured limit of",
        "the maximum model length",
        "than the context length",
        "model's context length",
        "context length of only",
        "`max_new_tokens` must be",
        "input is too long for requested model",
        "tokens in the prompt cannot exceed",
        "request too large for",
    ),
    "content_filter": ("contentpolicyviolation",),
    "auth": (
        "budget has been exceeded",
        "exceeded budget",
        "exceededbudget",
        "budget_exceeded",
        "authenticationerror",
        "api key not valid",
        "incorrect api key",
        "invalid api key",
        "permissiondeniederror",
        "credit balance is too low",
    ),
}
"""Phrases of proxies, and of servers behind them, that say more than the status of an error."""
_QUOTA: Final = "exceeded your current quota"
"""These words mean a limit of a minute if they say when to try again, and else an account without money."""
_WORDY: Final = ("error", "message", "detail", "errors", "msg", "text", "reason", "title", "type", "code")
"""The fields of an error's body that may have the message; the first one that is filled has it."""
_TITLE: Final = re.compile(r"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_WRONG_PLACE: Final = frozenset({*range(300, 400), 404, 405})
"""HTTP statuses that say that an address may be wrong."""
_NEVER_SENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "PoolTimeout", "ProxyError"}
)
"""Names of errors that clients' transports raise before a request is sent."""
_TRANSPORTS: Final = frozenset({"httpcore", "httpcore2", "httpx", "httpx2"})
"""The packages of those transports."""
_SLOW: Final = frozenset({"APITimeoutError", "TimeoutError", "TimeoutException"})
_BROKEN: Final = frozenset({"APIConnectionError", "ConnectionError", "TransportError"})
"""Names of error classes, or their base classes, of clients and transports."""
_INNER_WORDS: Final = re.compile(r"""['"]message['"]\s*:\s*(['"])(.*?)(?<!\\)\1\s*[,}]""", re.DOTALL)
"""The message of an error that is quoted inside the message of another error."""


def call_error(model: str, error: Exception) -> ModelCallError | None:
    """Convert the error of a call by pydantic-ai; None for an error that is not the provider's."""
    from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, UnexpectedModelBehavior, UserError

    if isinstance(error, ModelCallError):
        return error
    if (unsent := unsent_error(model, error)) is not None:
        return unsent
    if isinstance(error, ModelAPIError):
        return _of_provider(model, error)
    if isinstance(error, UnexpectedModelBehavior):
        kind: ModelErrorKind = "content_filter" if isinstance(error, ContentFilterError) else "unknown"
        return ModelCallError(kind, model, message_of(error))
    if isinstance(error, UserError):  # the request cannot be made for this model, and was not sent
        return ModelCallError("bad_request", model, message_of(error), unspent=True)
    if isinstance(error, TimeoutError):
        return ModelCallError("timeout", model, connection_words(error))
    if isinstance(error, ConnectionError):
        return ModelCallError("connection", model, connection_words(error), unspent=never_sent(error))
    # After the provider's errors: these come from reading a reply of an unexpected form.
    if isinstance(error, LookupError | AttributeError | TypeError | ValueError | AssertionError):
        return ModelCallError("unknown", model, f"its reply cannot be read: {message_of(error)}")
    if type(error).__module__.partition(".")[0] in _CLIENTS:
        return ModelCallError("unknown", model, f"{type(error).__name__}: {message_of(error)}")
    return None


def _of_provider(model: str, error: Any) -> ModelCallError:
    statuses = [getattr(_response_of(one), "status_code", None) for one in causes_of(error)]
    redirect = next((one for one in statuses if isinstance(one, int) and one in range(300, 400)), None)
    status: int | None = getattr(error, "status_code", None) or redirect
    # An error inside a stream comes after the provider began to work, so it is charged.
    begun = bool(getattr(error, "in_stream", False)) and redirect is None
    kind = _kind(error, status)
    unspent = not begun and (never_sent(error) or is_refusal(status, kind))
    retry_after: float | None = getattr(error, "retry_after", None)
    said = words_in(getattr(error, "body", None)) if status is None else answered_words(error, status)
    if retry_after is None:
        retry_after = wait_in(said)
    return ModelCallError(kind, model, said or connection_words(error), retry_after=retry_after, unspent=unspent)


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
    # The first match decides, so subclasses come before their bases.
    for kind_of_theirs, kind in kinds:
        if isinstance(error, kind_of_theirs):
            return kind_of_words(error) or kind
    named = kind_of_words(error) or _named(error)
    if named is not None and (named != "bad_request" or status is None):
        return named
    if status is None:
        return "overloaded" if isinstance(error, theirs.ModelServerError) else "unknown"
    return kind_of_status(status)


def client_error(model: str, error: Exception) -> ModelCallError | None:
    """Convert the error of a call by a provider's own client; None for an error that is not the provider's."""
    if (unsent := unsent_error(model, error)) is not None:
        return unsent
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        coded, why = _coded(error), answered_words(error, status)
        # "bad_request" is the least precise, and the status may say more.
        kind = coded if coded not in (None, "bad_request") else kind_of_status(status)
        retry_after = _retry_after(error)
        if retry_after is None:
            retry_after = wait_in(why)
        return ModelCallError(kind, model, why, retry_after=retry_after, unspent=is_refusal(status, kind))
    # The exact class: a subclass is another error, such as one of pydantic.
    body: Any = error.args[0] if type(error) is ValueError and error.args else None
    body = body.model_dump() if hasattr(body, "model_dump") else body
    if isinstance(body, dict) and "message" in body:  # LangChain raises the error of a body with status 200 so
        return call_error_of(model, {"error": cast("object", body)}, "it answered with an error")
    names = class_names(error)
    if names & (_SLOW | _BROKEN):
        way: ModelErrorKind = "timeout" if names & _SLOW else "connection"
        return ModelCallError(way, model, connection_words(error), unspent=never_sent(error))
    if "APIError" not in names:
        return None
    said = message_of(error)  # of an error that came in a stream
    return ModelCallError(_coded(error) or "unknown", model, said, retry_after=wait_in(said))


def _coded(error: Exception) -> ModelErrorKind | None:
    coded = kind_of_code(getattr(error, "code", None))
    return kind_of_words(error) or coded or kind_in(getattr(error, "body", None))


def _retry_after(error: Exception) -> float | None:
    """Return the seconds the provider asks to wait; None when it sends nothing, or a date."""
    headers: Any = getattr(_response_of(error), "headers", None)
    if not hasattr(headers, "get"):
        return None
    # OpenAI's header in milliseconds is more precise than the standard one.
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(headers.get(name, "")) / unit)
        except ValueError:
            continue
    return None


def is_refusal(status: int | None, kind: ModelErrorKind) -> bool:
    """Return whether an answer shows that the provider did not begin to work, whatever status a proxy gave it."""
    return status in REFUSALS or (status is not None and kind in {"auth", "context_length"})


def kind_of_words(error: Exception) -> ModelErrorKind | None:
    """Return the kind of an error by its words; None if they show none. Proxies use one status for several kinds."""
    words = str(getattr(error, "body", None) or "").lower()
    if _QUOTA in words and wait_in(words) is None and getattr(error, "retry_after", None) is None:
        return "auth"
    return next((kind for kind, signs in _BY_WORDS.items() if any(sign in words for sign in signs)), None)


def answered_words(error: Exception, status: int) -> str:
    """Return a server's answer as a sentence: the server's own words, without those that a proxy adds around.

    If the address may be wrong, the sentence begins with it.
    """
    body: Any = getattr(error, "body", None)
    silent = not body or (hasattr(body, "get") and body.get("message") == "")
    words, hint = "" if silent else _body_words(body), getattr(error, "hint", None)
    if words:
        inner, more = _INNER_WORDS.findall(words), words_in(body)
        # The innermost error is the one of the server; each proxy quotes it inside its own.
        words = inner[-1][1] if inner else (more if more.startswith(words) else words)
        words = words.partition("Received Model Group=")[0]  # LiteLLM's addition
        said = f"HTTP {status}: {shortened(' '.join(words.split()))}" + (f" ({hint})" if hint else "")
    elif silent:
        said = f"HTTP {status}, without a word"
    else:
        said = message_of(error)
    return f"{_wrong_place(error)}{said}" if status in _WRONG_PLACE else said


def _wrong_place(error: Exception) -> str:
    """Return the address of the request that was answered, and where the answer leads; empty if it is unknown."""
    chain = list(causes_of(error))
    address = next(filter(None, (_address_of(one, with_path=True) for one in chain)), None)
    answered = next((one for one in map(_response_of, chain) if hasattr(one, "headers")), None)
    leads = None if answered is None else answered.headers.get("location")
    return f"{address}: " + (f"it redirects to {leads}: " if leads else "") if address else ""


def _body_words(body: object) -> str:
    """Return the message in the body of an error, in any of the usual forms; empty without one."""
    if isinstance(body, str | bytes):
        try:
            return _body_words(json.loads(body)) or str(body)
        except (ValueError, RecursionError):
            page = _TITLE.search(body) if isinstance(body, str) else None
            return page[1] if page else body if isinstance(body, str) else ""
    if isinstance(body, list):
        return _body_words(cast("list[object]", body)[0]) if body else ""
    if not isinstance(body, Mapping):
        return ""
    fields = cast("Mapping[str, object]", body)
    said = next(filter(None, (_body_words(fields[name]) for name in _WORDY if fields.get(name))), "")
    place = fields.get("loc")  # as FastAPI names the field that is wrong
    if said and isinstance(place, list):
        return f"{'.'.join(map(str, cast('list[object]', place)))}: {said}"
    return said or ", ".join(f"{name}: {value}" for name, value in fields.items() if isinstance(value, str | int))


def _named(error: Exception) -> ModelErrorKind | None:
    """Return the kind by the provider's own names of the error, such as llama.cpp's for a full context."""
    names = (getattr(error, "provider_error_code", None), getattr(error, "provider_error_type", None))
    named = kind_of_codes(names)
    return named if named not in (None, "bad_request") else kind_in(getattr(error, "body", None)) or named


def message_of(error: BaseException) -> str:
    """Return the provider's own words if the error has them, else the error's message, cut to a readable length."""
    said = words_in(getattr(error, "body", None))
    return said or shortened(str(error).strip() or type(error).__name__)


# ---------------------------------------------------------------- errors of the connection

_NOT_SENDABLE: Final = {
    "UnicodeEncodeError": "the request holds half of a character, which cannot be sent",
    "PydanticSerializationError": "the request holds something that cannot be sent",
    "LocalProtocolError": "a header cannot be sent: is there a line break or a blank in the key?",
    "UnsupportedProtocol": "its address does not begin with http:// or https://",
    "InvalidURL": "its address is not valid",
}
"""The fault of a request, by the name of the error raised before it was sent."""
_ON_THE_WAY: Final[tuple[tuple[type[OSError], str], ...]] = (
    (ConnectionRefusedError, "nothing listens there"),
    (socket.gaierror, "the host is unknown"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (ssl.SSLError, "no TLS connection can be made; an address without TLS begins with http://"),
)
_BROKEN_OFF: Final = frozenset({"ConnectionResetError", "RemoteProtocolError"})
"""What a client meets where a server that expects TLS is sent plain HTTP; also where a server dies."""


def unsent_error(model: str, error: BaseException) -> ModelCallError | None:
    """Return the error of a request that could not be sent, and cannot be by a retry either; else None."""
    for cause in causes_of(error):
        said = _NOT_SENDABLE.get(type(cause).__name__)
        if said is not None:
            shown = "" if type(cause).__name__ == "LocalProtocolError" else f" ({message_of(cause)})"  # it has the key
            url = next(filter(None, map(_url_of, causes_of(error))), "") if "address" in said else ""
            where = f"{url.rpartition('@')[2]!r}: " if url else ""
            return ModelCallError("bad_request", model, f"{where}{said}{shown}", unspent=True)
    return None


def connection_words(error: BaseException) -> str:
    """Return the address that did not answer, the proxy in between, and the cause; from any client's error."""
    chain = list(causes_of(error))
    known = next(((one, said) for one in reversed(chain) for kind, said in _ON_THE_WAY if isinstance(one, kind)), None)
    # Errors of the connection; others say how a reply was read.
    own = [one for one in chain if isinstance(one, OSError) or type(one).__module__.partition(".")[0] in _TRANSPORTS]
    told = (one for one in reversed(own) if str(one).strip())
    cause = next(told, error) if known is None else known[0]
    why = message_of(cause) if known is None else f"{known[1]} ({message_of(cause)})"
    address = next(filter(None, map(_address_of, chain)), None)
    if address is not None and address.startswith("http://") and any(class_names(one) & _BROKEN_OFF for one in chain):
        why = f"{why}; an address with TLS begins with https://"
    return why if address is None else f"{address}{_proxy_to(address)}: {why}"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first; of a group, the first error."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:  # causes may form a circle
        seen.add(id(one))
        yield one
        inside: BaseException | None = None
        if isinstance(one, BaseExceptionGroup):
            inside = cast("BaseExceptionGroup[BaseException]", one).exceptions[0]
        one = inside or one.__cause__ or one.__context__


def _address_of(error: BaseException, *, with_path: bool = False) -> str | None:
    """Return the address of an error's request, without credentials, and without its path unless that is wanted."""
    try:
        split = urlsplit(_url_of(error) or "")
        host = split.hostname
    except ValueError:
        return None
    place = f"[{host}]" if host and ":" in host else host  # IPv6
    return place and f"{split.scheme}://{place}" + (f":{split.port}" if split.port else "") + split.path * with_path


def _url_of(error: BaseException) -> str | None:
    """Return the URL of an error's request; None without one."""
    for one in (error, _response_of(error)):
        try:
            return str(getattr(one, "request").url)  # noqa: B009 - an error of any client
        except (AttributeError, RuntimeError):  # httpx raises a RuntimeError without a request
            continue
    return None


def _response_of(error: BaseException) -> Any:
    """Return the response that an error of any client is about; None without one."""
    return getattr(error, "response", None)


def never_sent(error: BaseException | None) -> bool:
    """Return whether an error was raised before the request was sent."""
    while error is not None and not class_names(error) & _NEVER_SENT:
        error = error.__cause__
    return error is not None


def _proxy_to(address: str) -> str:
    """Name the proxy that the environment sets for an address, as clients find it; empty without one."""
    split = urlsplit(address)
    proxy = getproxies().get(split.scheme) or getproxies().get("all")
    if not proxy or proxy_bypass(split.netloc):
        return ""
    shown = urlunsplit(urlsplit(proxy)._replace(netloc=urlsplit(proxy).netloc.rpartition("@")[2]))
    return f" through the proxy {shown} (a variable such as {split.scheme.upper()}_PROXY sets it)"
