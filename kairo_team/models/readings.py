"""Read the providers' words, the same way for all of them: why a reply ended, and the kind of an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from kairo_team._util.frozen import EMPTY
from kairo_team._util.narrowing import fields_of
from kairo_team.budget import Usage
from kairo_team.errors import ModelCallError
from kairo_team.messages import Billing

if TYPE_CHECKING:
    from kairo_team.errors import ModelErrorKind

Finish = Literal["stop", "length", "content_filter"]

REFUSALS: Final = frozenset({*range(300, 400), 400, 401, 402, 403, 404, 405, 413, 422, 429})
"""HTTP statuses that prove that the provider did not begin to work."""
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
    520: "overloaded",  # to 524: Cloudflare's, about the server behind it
    521: "overloaded",
    522: "timeout",
    523: "overloaded",
    524: "timeout",
    529: "overloaded",
}
_CUT: Final = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "continuation", "model_context_window_exceeded"}
)
_FILTERED: Final = frozenset(
    {"content_filter", "content_filtered", "guardrail_intervened", "refusal", "safety", "recitation", "blocklist"}
    | {"prohibited_content", "spii", "image_safety", "image_prohibited_content", "model_armor", "error_toxic"}
)
_CODES: Final[tuple[tuple[str, ModelErrorKind], ...]] = (
    ("context", "context_length"),
    ("content_filter", "content_filter"),
    ("content_policy", "content_filter"),
    ("responsibleaipolicyviolation", "content_filter"),
    ("moderation_blocked", "content_filter"),
    ("prohibited_content", "content_filter"),
    ("insufficient_quota", "auth"),
    ("invalid_api_key", "auth"),
    ("authentication_error", "auth"),
    ("permission_error", "auth"),
    ("rate_limit", "rate_limited"),
    ("resource_exhausted", "rate_limited"),
    ("overloaded", "overloaded"),
    ("server_error", "overloaded"),
    ("unavailable", "overloaded"),
)
"""Parts of providers' error codes, in lower case; the first one found decides."""
_THOUGHT: Final = re.compile(r"\s*<think(?:ing)?>(.*?)</think(?:ing)?>\s*", re.DOTALL)
_OPENED: Final = ("<think>", "<thinking>")
_CLOSED: Final = re.compile(r"</think(?:ing)?>")
_CLOSING: Final = len("</thinking>")
_LATER: Final = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)? ?(?:ms|m|s|h|minutes?|seconds?|hours?)(?![a-z]) ?)+)"
)
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[hms])")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
MOST_TOKENS: Final = 10**9
MOST_DOLLARS: Final = 10**6
"""More than any call can take: such a report is nonsense, and a journal has no room for its sum."""
_MOST_WORDS: Final = 500
"""Longest kept part of a provider's error message, in characters."""


def finish_of_word(word: str | None) -> Finish:
    """Return why a reply ended, from the provider's finish reason."""
    plain = word.lower() if isinstance(word, str) else ""  # a client may pass on anything
    return "length" if plain in _CUT else "content_filter" if plain in _FILTERED else "stop"


def kind_of_status(status: int) -> ModelErrorKind:
    """Return the kind of error of an HTTP status."""
    return _BY_STATUS.get(status) or ("bad_request" if status in range(300, 500) else "unknown")


def kind_of_code(code: object) -> ModelErrorKind | None:
    """Return the kind of error of a provider's code, which may be a status; None for an unknown code."""
    status = _status(code)
    if status is not None:
        return kind_of_status(status)
    plain = code.lower() if isinstance(code, str) else ""
    return next((kind for part, kind in _CODES if part in plain), None)


def kind_of_codes(codes: Iterable[object]) -> ModelErrorKind | None:
    """Return the most precise kind among several codes of one error; None if all are unknown."""
    kinds: list[ModelErrorKind] = [kind for code in codes if (kind := kind_of_code(code)) is not None]
    precise: list[ModelErrorKind] = [kind for kind in kinds if kind != "bad_request"]
    return next(iter(precise or kinds), None)


def error_in(body: object) -> Mapping[str, Any]:
    """Return the error in a body, in any known form; empty without one."""
    fields = fields_of(body)
    inner = fields.get("error")
    if isinstance(inner, str) and inner:
        return {**fields, "message": inner}
    found = fields_of(inner)
    if found:
        return found
    return fields if "message" in fields and ("code" in fields or "type" in fields) else {}


def kind_in(body: object) -> ModelErrorKind | None:
    """Return the kind of the error in a body, by its codes; None if they are unknown."""
    found = error_in(body)
    deeper = fields_of(found.get("innererror"))  # Azure's place for the precise code
    codes = (found.get("code"), found.get("type"), found.get("status"), deeper.get("code"))
    if "content filtering policy" in str(found.get("message")).lower():  # Anthropic has no code of its own for it
        return "content_filter"
    return kind_of_codes(codes)


def words_in(body: object) -> str:
    """Return the message of the error in a body; empty without one."""
    if found := error_in(body):
        # OpenRouter quotes the provider behind it in `raw`.
        said = [found.get("message"), fields_of(found.get("metadata")).get("raw")]
    else:  # no error in a known form
        said = [fields_of(body).get(name) for name in ("detail", "message", "msg")]
    return shortened(": ".join(str(one).strip() for one in said if one))


def without_thoughts(text: str) -> str:
    """Remove the thoughts that some models write before the reply, between tags; an unclosed one extends to the end."""
    left = split_thoughts(text)[1]
    return "" if left.lstrip().startswith(_OPENED) else left


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts that some models write before the reply, between tags, and what comes after them."""
    thoughts = ""
    while (thought := _THOUGHT.match(text)) is not None:
        thoughts, text = thoughts + thought[1], text[thought.end() :]
    return thoughts, text


def may_be_thought(text: str, last: int) -> bool:
    """Return whether a reply that grew by its `last` characters may have only thoughts so far, the last one open."""
    begun = text.lstrip()
    if not begun.startswith(_OPENED):
        return any(tag.startswith(begun) for tag in _OPENED)  # a tag may be cut between two pieces
    # Only the new end is searched, with room for a tag across the cut: the whole text again would be quadratic.
    return _CLOSED.search(text, max(0, len(text) - last - _CLOSING)) is None


def read_usage(prompt: object, completion: object, total: object = 0, dollars: Any = 0) -> Usage | None:
    """Return the usage that a provider reports; None if it reports none, or an impossible one.

    Some providers count reasoning in the total alone: all beyond the prompt is the reply's.
    """
    spent, replied = _count(prompt), _count(completion)
    if spent is None or replied is None:
        return None
    replied = max(replied, (_count(total) or 0) - spent)
    try:
        return Usage(spent, replied, dollars) if spent or replied else None
    except ValueError:  # of the dollars
        return None


def read_billing(
    cached: object, written: object, written_1h: object = 0, reasoning: object = 0, served: Mapping[str, str] = EMPTY
) -> Billing:
    """Return the details that a provider reports; one that is not a count is 0. `written` includes `written_1h`."""
    tokens, kept = _count(written) or 0, _count(written_1h) or 0
    return Billing(_count(cached) or 0, max(0, tokens - kept), kept, dict(served), _count(reasoning) or 0)


def _count(value: object) -> int | None:
    """Return a whole number of tokens; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def wait_in(words: str) -> float | None:
    """Return the seconds after which a provider says, in words, to try again; None if it does not say so."""
    found = _LATER.search(words.lower())
    return found and sum(float(number) * _SECONDS[unit] for number, unit in _TIME.findall(found[1]))


def class_names(value: object) -> set[str]:
    """Return the names of a value's class and of its base classes: other libraries' need not be installed."""
    return {kind.__name__ for kind in type(value).__mro__}


def shortened(words: str) -> str:
    """Cut words to a readable length."""
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."


def call_error_of(model: str, body: object, otherwise: str) -> ModelCallError:
    """Make the error of a reply whose body is an error, although its status is a success."""
    status = _status(error_in(body).get("code"))
    kind, said = kind_in(body) or "unknown", words_in(body)
    return ModelCallError(kind, model, said or otherwise, retry_after=wait_in(said), unspent=status in REFUSALS)


def broken_off(model: str) -> ModelCallError:
    """Make the error of a stream that ended without a finish reason, and without the usage that comes last."""
    why = "the stream broke off: it ended without a finish reason and without the end of the reply"
    return ModelCallError("connection", model, why)


def _status(code: object) -> int | None:
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else None  # noqa: PLR2004 - HTTP's errors
