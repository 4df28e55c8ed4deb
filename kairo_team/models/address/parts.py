"""What the formats share: how a request is read, and refused where it cannot be carried."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from kairo_team._util.narrowing import is_list
from kairo_team._util.reply_json import read_json
from kairo_team.errors import known
from kairo_team.files import File
from kairo_team.messages import Message, ModelRequest, ToolSpec
from kairo_team.models.prompt_bounds import LENGTHS

if TYPE_CHECKING:
    from kairo_team.messages import ModelResponse

Json = dict[str, Any]

CARRIED: Final = frozenset(
    {"temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "service_tier"}
)
"""Fields that are settings of the same name."""
_IGNORED: Final = frozenset({"model", "models", "fallbacks", "stream_options"})
"""Fields that no provider gets: the model of the address answers, whatever model a request names."""
_ONE: Final = "one reply is made for each request"
_KEPT: Final = "nothing is kept between two requests: send the whole conversation"
_THEIR_TOOLS: Final = "the provider's own tools cannot be limited"
_OTHERS: Final = "it belongs to another format, and would replace what was counted and guarded"
# A provider may read the fields of every format, so all formats refuse them.
_REFUSED: Final[Mapping[str, str]] = {
    "n": _ONE,
    "best_of": _ONE,
    "functions": "give the functions as tools",
    "function_call": "give the functions as tools, with a tool_choice",
    "audio": "replies are text",
    "prediction": "its tokens are billed outside the limit of the reply",
    "logprobs": "the reply has no probabilities",
    "top_logprobs": "the reply has no probabilities",
    "background": "a call ends with its request",
    **dict.fromkeys(("thread", "conversation", "prompt", "previous_response_id"), _KEPT),
    **dict.fromkeys(("web_search_options", "plugins", "mcp_servers", "container", "max_tool_calls"), _THEIR_TOOLS),
    **dict.fromkeys(("messages", "input", "instructions", "system", "contents", "generationConfig"), _OTHERS),
    "generation_config": _OTHERS,
}
"""Fields that cannot be carried, with the reason; those that a format reads were taken out of the body before."""
EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")


class Refused(Exception):
    """A request that is not passed on; the sentence is for who wrote the client."""

    def __init__(self, sentence: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        self.sentence = sentence
        self.status = status
        self.kind = kind
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was read."""

    request: ModelRequest
    stream: bool = False
    usage_in_stream: bool = False
    """Whether a stream of chat completions ends with the usage."""
    shows_thoughts: bool = False
    """Whether the caller asked to see the model's reasoning."""
    name: str = ""
    """The id of the reply; "" for one that no later request may name."""
    after: str | None = None
    """The id of the earlier reply that the request follows."""
    instructions: int = 0
    """How many of the first messages are for this request alone."""


Piece = Literal["text", "thinking"]


class Stream(Protocol):
    """One reply as server-sent events, while it is written. Each method returns the events to send."""

    def piece(self, kind: Piece, text: str) -> str:
        """Return the events of one more piece of the reply."""
        ...

    def end(self, response: ModelResponse) -> str:
        """Return the events that complete the reply: parts without a piece, tool calls, end and usage."""
        ...

    def broken(self, refused: Refused) -> str:
        """Return the events of an error that ends the reply."""
        ...


class Format(Protocol):
    """The form in which a library writes requests and reads replies."""

    def read(self, body: Json, provider: str) -> Asked:
        """Return the request; raises `Refused` for one that cannot be carried. `provider` is the model's."""
        ...

    def write(self, asked: Asked, response: ModelResponse) -> Json:
        """Return the reply."""
        ...

    def stream(self, asked: Asked, model: str) -> Stream:
        """Begin the reply of a model as server-sent events."""
        ...

    def error(self, refused: Refused) -> Json:
        """Return an error."""
        ...


def parsed(body: bytes) -> Json:
    """Return the JSON object of a body."""
    try:
        found: Any = read_json(body)
    except (ValueError, RecursionError):
        raise Refused("the body of the request is not valid JSON") from None
    return an_object(found, "the body")


def event(data: Json, name: str | None = None) -> str:
    """Return one server-sent event."""
    text = json.dumps(data, separators=(",", ":"))
    return f"data: {text}\n\n" if name is None else f"event: {name}\ndata: {text}\n\n"


def an_object(value: Any, where: str) -> Json:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise Refused(f"{where} must be a JSON object, not {value!r:.80}")
    return cast("Json", value)


def a_list(value: Any, where: str) -> list[Any]:
    """Return a list; of None, an empty one."""
    if value is None:
        return []
    if not is_list(value):
        raise Refused(f"{where} must be a list, not {value!r:.80}")
    return value


def objects(value: Any, where: str) -> list[Json]:
    """Return a list of JSON objects; of None, an empty one."""
    return [an_object(one, f"{where}[{at}]") for at, one in enumerate(a_list(value, where))]


def a_text(value: Any, where: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise Refused(f"{where} must be a text, not {value!r:.80}")
    return value


def a_length(body: Json) -> int | None:
    """Take the least of the limits of the reply's length out of a body."""
    given = {name: body.pop(name) for name in LENGTHS if body.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Refused(f"{name} must be a number of tokens, at least 1, not {value!r:.80}")
    # A client may set an old and a new name: the stricter one is safe.
    return min(given.values(), default=None)


def cannot(name: str, why: str) -> Refused:
    """Return the refusal of a field."""
    return Refused(f"{name!r} cannot be carried by the governed address: {why}")


def check_kind(kind: object, allowed: Iterable[str], where: str) -> None:
    """Raise `Refused` for a kind of part, item or tool that is not carried."""
    allowed = list(allowed)
    if kind not in allowed:
        raise Refused(f"{where} of the type {kind!r} cannot be carried by the governed address, only {known(allowed)}")


def refuse_fields(rest: Json, refused: Mapping[str, str] = _REFUSED) -> None:
    """Take fields that cannot be carried out of a body; raises `Refused` if one of them asks for something."""
    for name, why in refused.items():
        given = rest.pop(name, None)
        if given and not (why is _ONE and given == 1):
            raise cannot(name, why)


def settings_of(rest: Json, labels: Collection[str], more: Mapping[str, Any]) -> Json:
    """Return the settings of what is left of a body: fields that no one here knows go to the provider as they are.

    `labels` are about the call and not about its reply: they are not sent on. Raises `Refused` for a field that cannot
    be carried.
    """
    refuse_fields(rest)
    rest = {name: value for name, value in rest.items() if value is not None and name not in {*labels, *_IGNORED}}
    settings = {name: rest.pop(name) for name in list(rest) if name in CARRIED} | dict(more)
    return settings | ({"extra_body": rest} if rest else {})


def effort_setting(effort: Any, name: str) -> Json:
    """Return the setting of how much the model thinks."""
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": False}
    if effort not in EFFORTS:
        raise Refused(f"{name} is one of none, {', '.join(EFFORTS)}, not {effort!r:.80}")
    return {"thinking": effort}


def tool_spec(name: Any, description: Any, parameters: Any) -> ToolSpec:
    """Return a tool."""
    schema = {} if parameters is None else an_object(parameters, "the parameters of a tool")
    return ToolSpec(a_text(name, "the name of a tool"), a_text(description or "", "a tool's description"), schema)


def file_from_url(url: Any, media_type: str | None = None, name: str | None = None) -> File:
    """Return the file of a data URL, or of an address that the provider fetches."""
    url = a_text(url, "the URL of a file")
    if not url.startswith("data:"):
        return _file(url=url, media_type=media_type, name=name)
    head, comma, data = url[len("data:") :].partition(",")
    kind, *parameters = head.split(";")
    if not comma or "base64" not in parameters:
        raise Refused("a data URL must be in base64: data:<media type>;base64,<data>")
    return file_from_base64(data, media_type or kind or None, name)


def file_from_base64(data: Any, media_type: str | None, name: str | None = None) -> File:
    """Return a file whose content is given in base64."""
    try:
        content = base64.b64decode(a_text(data, "the data of a file"), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the data of a file is not valid base64") from None
    return _file(data=content, media_type=media_type, name=name)


def _file(**given: Any) -> File:
    try:
        return File(**given)
    except ValueError as error:
        raise Refused(f"a file cannot be carried: {error}") from None


def user_messages(parts: Iterable[str | File]) -> list[Message]:
    """Return a user's parts as messages, in their order: a message's files come after its text."""
    made: list[Message] = []
    texts: list[str] = []
    files: list[File] = []

    def close() -> None:
        if texts or files:
            made.append(Message.user("\n\n".join(texts), tuple(files)))
        texts.clear()
        files.clear()

    for part in parts:
        if isinstance(part, File):
            files.append(part)
            continue
        if files:  # a text after a file begins another message, which keeps the order
            close()
        texts.append(part)
    close()
    return made or [Message.user("")]


def request_of(
    messages: Sequence[Message], tools: Sequence[ToolSpec], schema: Any, most: int | None, settings: Json
) -> ModelRequest:
    """Return a request; raises `Refused` for one without messages."""
    if not messages:
        raise Refused("the request has no messages")
    output = None if schema is None else an_object(schema, "the schema of the reply")
    if "tool_choice" in settings and not tools:  # providers refuse a choice among no tools
        settings = {name: value for name, value in settings.items() if name != "tool_choice"}
    return ModelRequest(messages, tools, output, most, settings)


class Natives:
    """Replies in their provider's own form, by their text and calls: reasoning goes back to the model with them."""

    def __init__(self) -> None:
        self._natives: dict[tuple[str, tuple[str, ...]], str] = {}

    def keep(self, response: ModelResponse) -> None:
        """Keep a reply's own form."""
        if response.native is not None:
            self._natives[response.text, tuple(call.id for call in response.tool_calls)] = response.native

    def put_back(self, request: ModelRequest) -> ModelRequest:
        """Return a request whose assistant's messages have their own form again."""
        messages = list(request.messages)
        for at, message in enumerate(messages):
            # A client that changed the text or the calls gets no native form, which would restore them.
            native = self._natives.get((message.text, tuple(call.id for call in message.tool_calls)))
            if message.role == "assistant" and native is not None:
                messages[at] = replace(message, native=native)
        return replace(request, messages=messages)


class Conversations:
    """Each reply's whole conversation, for requests that follow one."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[Message, ...]] = {}

    def whole(self, asked: Asked) -> ModelRequest:
        """Return a request with the messages that came before it."""
        if asked.after is None:
            return asked.request
        if asked.after not in self._until:
            raise Refused(f"there is no reply {asked.after!r} at this address, which keeps its own replies")
        alone, new = self._parts(asked)
        return replace(asked.request, messages=[*alone, *self._until[asked.after], *new])

    def keep(self, asked: Asked, response: ModelResponse) -> None:
        """Keep the conversation that ends with a reply."""
        if asked.name:
            earlier = self._until[asked.after] if asked.after is not None else ()
            reply = Message.assistant(response.text, response.tool_calls)
            # Without the instructions: in this interface they hold for one request.
            self._until[asked.name] = (*earlier, *self._parts(asked)[1], reply)

    def _parts(self, asked: Asked) -> tuple[Sequence[Message], Sequence[Message]]:
        messages = asked.request.messages
        return messages[: asked.instructions], messages[asked.instructions :]


def thoughts_of(response: ModelResponse) -> str:
    """Return the reasoning that the provider shows; "" for none."""
    try:
        parts: list[Any] = json.loads(response.native or "{}").get("reply", {}).get("parts", [])
    except (ValueError, AttributeError):  # another library's own form
        return ""
    found = [part.get("content") for part in parts if part.get("part_kind") == "thinking"]
    return "\n\n".join(text for text in found if isinstance(text, str) and text)
