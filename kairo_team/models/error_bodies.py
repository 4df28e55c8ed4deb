"""Errors that a provider sends with a status of success: its client raises them, in the provider's own words."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, reduce, wraps
from typing import Any, Final, cast

from kairo_team._util.context_values import set_for
from kairo_team._util.narrowing import is_list
from kairo_team.errors import ModelCallError
from kairo_team.models.readings import call_error_of, shortened

_LIBRARIES: Final = frozenset({"anthropic", "groq", "openai"})
_CONTENT: Final[Mapping[Sequence[str], str]] = {
    ("chat", "completions"): "choices",
    ("responses",): "output",
    ("messages",): "content",
    ("beta", "messages"): "content",
}
"""Where a client has the function `create` of an interface, and the field that every reply of the interface has."""
NOT_JSON: Final = "its reply is not JSON"
"""The words of an error about a page in place of a reply begin so."""


class Asked:
    """A call of a model that is under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The model's name in errors; empty: the one that the request names."""
        self.reply: Any = None
        """The last whole reply of the client."""
        self.total = 0
        """Tokens in all, as the reply reports them; of a stream, the largest report."""

    def note(self, reply: Any) -> None:
        """Note how many tokens in all a reply, or a piece of one, reports."""
        used = getattr(reply, "usage", None) or getattr(getattr(reply, "response", None), "usage", None)
        total: object = getattr(used, "total_tokens", None)
        self.total = max(self.total, total if isinstance(total, int) else 0)


_asked: ContextVar[Asked | None] = ContextVar("kairo_team_asked_model", default=None)


@contextmanager
def error_bodies_refused(name: str, client: object = None) -> Generator[Asked]:
    """Inside the block, make clients that are watched, as this one is now, raise errors that come with status 200.

    By itself a client takes such an error for an empty reply, and the provider's message is lost.
    """
    watch_client(client)
    asked = Asked(name)
    with set_for(_asked, asked):
        yield asked


def watch_client(client: object) -> None:
    """Check the replies of a client of these libraries, and of its copies, in the blocks of `error_bodies_refused`."""
    if type(client).__module__.partition(".")[0] not in _LIBRARIES:
        return
    for path, field in _CONTENT.items():
        interface: Any = reduce(lambda part, name: getattr(part, name, None), path, client)
        if interface is not None:
            _watch(cast("Any", type(interface)), field)
            interface.__dict__.pop("with_raw_response", None)  # it may have been made of the function before


@cache
def _watch(kind: Any, field: str) -> None:
    """Add a check to the method `create` of a class of interfaces: a client may copy itself for a call."""
    create: Callable[..., Any] = kind.create

    @wraps(create)
    def checked(self: Any, *args: Any, **options: Any) -> Any:
        found = create(self, *args, **options)
        asked = _asked.get()
        if asked is None:
            return found
        name = asked.name or f"openai:{options.get('model')}"
        return _later(found, asked, name, field) if inspect.isawaitable(found) else _check(found, asked, name, field)

    kind.create = checked


async def _later(found: Any, asked: Asked, name: str, field: str) -> Any:
    reply = await found
    answer = _body_of_stream(reply)
    if answer is not None:
        await answer.aread()
    return _check(reply, asked, name, field)


def _check(reply: Any, asked: Asked, name: str, field: str) -> Any:
    """Return the reply; raise `ModelCallError` if it is an error, or no reply of its interface."""
    answer = _body_of_stream(reply)
    if answer is not None:
        answer.read()
        _refuse(name, _fields(answer.text), field)
    # LangChain asks for raw responses; the class is recognized by name, because its package need not be installed.
    whole = reply.parse() if type(reply).__name__ == "LegacyAPIResponse" else reply
    asked.reply = whole
    if isinstance(whole, str):
        raise ModelCallError("unknown", name, f"{NOT_JSON}: {shortened(whole)!r}")
    if hasattr(whole, "model_dump") and not _is_reply(whole, field):
        _refuse(name, whole.model_dump(mode="json", warnings=False), field)
    _name_calls(whole)
    asked.note(whole)
    if hasattr(whole, "_iterator"):  # a stream of OpenAI's or Anthropic's client
        whole._iterator = Noted(whole._iterator, asked.note)  # noqa: SLF001 - there is no other way to see its pieces
    return reply


class Noted:
    """A stream, every piece of which is noted; everything else is the stream's own."""

    def __init__(self, pieces: Any, note: Callable[[Any], None]) -> None:
        self._pieces = pieces
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pieces, name)

    def __iter__(self) -> Noted:
        return self

    def __next__(self) -> Any:
        return self._with(next(self._pieces))

    def __aiter__(self) -> Noted:
        return self

    async def __anext__(self) -> Any:
        return self._with(await anext(self._pieces))

    def _with(self, piece: Any) -> Any:
        self._note(piece)
        return piece


def _name_calls(reply: Any) -> None:
    """Say of each tool call without a type that it calls a function: Mistral leaves the type out."""
    for choice in getattr(reply, "choices", None) or ():
        for call in getattr(getattr(choice, "message", None), "tool_calls", None) or ():
            if getattr(call, "type", None) is None and hasattr(call, "function"):
                call.type = "function"


def _body_of_stream(reply: Any) -> Any:
    """Return the HTTP response if a whole body, such as an error, came in place of a stream; else None."""
    answer = getattr(reply, "response", None) if hasattr(reply, "_iter_events") else None
    sent: str = "" if answer is None else answer.headers.get("content-type", "")
    return answer if sent.startswith(("application/json", "text/html")) else None


def _fields(text: str) -> Mapping[str, Any]:
    try:
        body: object = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        return cast("Mapping[str, Any]", body)
    return {"error": f"{NOT_JSON}: {shortened(text)!r}"}


def _is_reply(reply: Any, field: str) -> bool:
    content: Any = getattr(reply, field, None)
    if content is None or getattr(reply, "error", None):
        return False
    return field != "choices" or (is_list(content) and bool(content) and not getattr(content[0], "error", None))


def _refuse(name: str, body: Mapping[str, Any], field: str) -> None:
    """Raise the error of a body that is not a reply of its interface."""
    if body.get("error"):
        raise call_error_of(name, body, "it answered with an error")
    content = body.get(field)
    first = content[0] if is_list(content) and content else None
    if isinstance(first, dict) and "error" in first:
        raise call_error_of(name, cast("object", first), "it gave up")
    why = "it answers with a whole reply where a stream is asked for: let the agent ask without streaming"
    if not (is_list(content) and content):
        written = shortened(json.dumps({key: value for key, value in body.items() if value is not None}))
        why = f"its reply is empty: it has no {field}, only {written}"
    raise call_error_of(name, body, why)
