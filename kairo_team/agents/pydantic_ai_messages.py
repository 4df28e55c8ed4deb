"""Convert pydantic-ai's requests into text for guardrails, and apply their changes to the requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pydantic_ai import messages as native
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json, to_jsonable_python

from kairo_team._util.frozen import thaw
from kairo_team._util.reply_json import json_in
from kairo_team.agents.foreign_files import unseen_file
from kairo_team.budget import Usage
from kairo_team.files import File
from kairo_team.messages import Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
from kairo_team.models.natives import native_of, read_native, sound_reply, text_of, with_ids
from kairo_team.models.prompt_bounds import capped
from kairo_team.models.provider_messages import billing_of, file_content, file_of, finish_of, usage_of
from kairo_team.models.tool_calls import made_call

Piece = native.ModelRequestPart | native.ModelResponse | native.InstructionPart
"""The origin of a message: a part of a request, a whole reply, or an instruction."""
Settings = Mapping[str, Any]

_READER: Final = "pydantic-ai"
"""Who can read the native form of recorded replies: an agent of pydantic-ai, whatever its model."""


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """The whole request of one call, in pydantic-ai's own objects."""

    messages: list[native.ModelMessage]
    settings: Settings
    parameters: ModelRequestParameters


class RequestView:
    """A native request as a `ModelRequest` of text; keeps the origin of each message."""

    def __init__(self, request: NativeRequest) -> None:
        self._native = request
        self._pieces = list(_pieces(request))
        given = request.settings.items()
        self._settings = {name: value for name, value in given if name != "max_tokens" and _is_json(value)}
        """The settings that are JSON values, for records and guardrails."""
        messages = [message for message, _ in self._pieces]
        output = request.parameters.output_object
        self.request = ModelRequest(
            messages,
            [_spec(tool) for tool in request.parameters.declared_tool_defs.values()],
            dict(output.json_schema) if output is not None else None,
            request.settings.get("max_tokens"),
            self._settings,
        )
        self.others = [file for _, piece in self._pieces for file in _other_files(piece)]
        """Files that are not in `request`: those a model made, and `unseen_file` for each that only a provider has."""

    def native(self, request: ModelRequest) -> NativeRequest:
        """Return the native request with the changes of guardrails and the `max_tokens` of `request`."""
        settings = dict(self._native.settings)
        if thaw(request.settings) != self._settings:
            settings = {name: value for name, value in settings.items() if name not in self._settings}
            settings |= thaw(request.settings)
        settings["max_tokens"] = request.max_tokens
        if "extra_body" in settings:  # it goes over the other fields
            settings["extra_body"] = capped(settings["extra_body"], request.max_tokens)
        if request.messages == self.request.messages:
            return replace(self._native, settings=settings)
        messages, instructions = _assemble(list(self._changed(request.messages)))
        return NativeRequest(messages, settings, replace(self._native.parameters, instruction_parts=instructions))

    def _changed(self, messages: Sequence[Message]) -> Iterator[Piece]:
        """Yield a part for each message: its own if it is unchanged, else one with the new text, or a new one."""
        same_shape = [m.role for m in messages] == [m.role for m, _ in self._pieces]
        for index, message in enumerate(messages):
            equal = (piece for piece in self._pieces if piece[0] == message)
            was = self._pieces[index] if same_shape else next(equal, None)
            if was is None:
                yield _added_part(message)
            else:
                yield was[1] if was[0] == message else _with_text(was[1], message)


class ReplyView:
    """A native reply as a `ModelResponse` of text.

    When the answer is a call of an output tool, the reply's text is the call's arguments as JSON.
    """

    def __init__(self, parameters: ModelRequestParameters) -> None:
        self._outputs = {tool.name for tool in parameters.output_tools}
        self._structured = not parameters.allow_text_output or parameters.output_object is not None
        self._read: tuple[native.ModelResponse, ModelResponse] | None = None
        """The last reply that `response` was asked for, and what it returned."""

    def read(self, reply: native.ModelResponse) -> native.ModelResponse:
        """Return the reply with text that can be encoded; of a structured answer, only its JSON, as in all agents."""
        reply = sound_reply(reply)
        text = reply.text or ""
        if not self._structured or reply.tool_calls or (found := json_in(text)) == text:
            return reply
        return replace(
            reply, parts=[*(part for part in reply.parts if part.part_kind != "text"), native.TextPart(found)]
        )

    def response(self, reply: native.ModelResponse, total: int = 0) -> ModelResponse:
        """Return the reply for guardrails and the record; see `usage_of` for the `total`."""
        if self._read is not None and self._read[0] is reply:
            return self._read[1]
        calls = _calls(reply)
        given = [call.arguments for call in calls if call.name in self._outputs]
        answers = [one if isinstance(one, str) else to_json(dict(one)).decode() for one in given]
        text = "\n".join(answers) or text_of(reply)
        about = (reply.model_name or "", finish_of(reply), billing_of(reply))
        made = ModelResponse(text, calls, usage_of(reply, total), *about, native_of(reply, _READER))
        self._read = reply, made
        return made

    def native(self, response: ModelResponse, reply: native.ModelResponse | None) -> native.ModelResponse:
        """Return the reply as guardrails changed it; a new reply when it comes from a record."""
        reply = read_native(response.native, _READER) if reply is None else reply
        reply = reply if reply is None else with_ids(reply, response.tool_calls)
        was = self.response(reply) if reply is not None else None
        if reply is not None and was is not None and (was.text, was.tool_calls) == (response.text, response.tool_calls):
            return reply
        thoughts = [part for part in reply.parts if not isinstance(part, _SAID)] if reply is not None else []
        parts = [*thoughts, *self._parts(response, text_changed=was is None or was.text != response.text)]
        if reply is not None:
            return replace(reply, parts=parts)
        finish = "tool_call" if response.tool_calls and response.finish_reason == "stop" else response.finish_reason
        usage = response.usage or Usage()
        spent = RequestUsage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
        return native.ModelResponse(parts, usage=spent, model_name=response.model or None, finish_reason=finish)

    def _parts(self, response: ModelResponse, *, text_changed: bool) -> Iterator[_Said]:
        """Yield the text and the calls; if an output tool is called, its arguments are the text."""
        text: str | None = response.text
        if not any(call.name in self._outputs for call in response.tool_calls):
            if text:
                yield native.TextPart(text)
            text = None
        for call in response.tool_calls:
            arguments = thaw(call.arguments)
            if call.name in self._outputs and text_changed:
                if text is None:
                    continue  # the call before has the whole text
                arguments, text = text, None
            yield native.ToolCallPart(call.name, arguments, call.id)


_Said = native.TextPart | native.ToolCallPart
_SAID: Final = (native.TextPart, native.ToolCallPart)


def conversation(messages: Sequence[native.ModelMessage]) -> tuple[Message, ...]:
    """Return a native conversation as text."""
    request = NativeRequest(list(messages), {}, ModelRequestParameters())
    return tuple(message for message, _ in _pieces(request))


# ---------------------------------------------------------------- from pydantic-ai to this library


def _pieces(request: NativeRequest) -> Iterator[tuple[Message, Piece]]:
    """Yield every message with its origin, the instructions first."""
    for instruction in _instructions(request):
        yield Message.system(instruction.content), instruction
    for message in request.messages:
        if isinstance(message, native.ModelResponse):
            yield Message.assistant(message.text or "", _calls(message)), message
        else:
            for part in message.parts:
                yield _message(part), part


def _instructions(request: NativeRequest) -> Sequence[native.InstructionPart]:
    """Return the call's instructions; without any, the instructions of the last request."""
    if request.parameters.instruction_parts is not None:
        return request.parameters.instruction_parts
    requests = [message for message in request.messages if isinstance(message, native.ModelRequest)]
    text = requests[-1].instructions if requests else None
    return [native.InstructionPart(text)] if text else []


def _message(part: native.ModelRequestPart) -> Message:
    match part:
        case native.SystemPromptPart():
            return Message.system(part.content)
        case native.UserPromptPart():
            return Message.user("\n".join(_texts(part)), files_of(part))
        case native.ToolReturnPart():
            return Message.tool(part.tool_call_id, part.model_response_str(), files_of(part))
        case native.RetryFeedbackPart():
            return Message.user(part.model_response())
        case _:
            return Message.user(to_json(part, fallback=repr).decode(errors="replace"))


def _texts(part: native.UserPromptPart) -> Iterator[str]:
    for item in [part.content] if isinstance(part.content, str) else part.content:
        if isinstance(item, str):
            yield item
        elif isinstance(item, native.TextContent):
            yield item.content


def _calls(reply: native.ModelResponse) -> tuple[ToolCall, ...]:
    calls = [part for part in reply.parts if isinstance(part, native.ToolCallPart)]
    return tuple(made_call(call.tool_call_id, call.tool_name, call.args) for call in calls)


def _spec(tool: ToolDefinition) -> ToolSpec:
    return ToolSpec(tool.name, tool.description or "", to_jsonable_python(tool.parameters_json_schema))


def _is_json(value: object) -> bool:
    match value:
        case None | bool() | int() | float() | str():
            return True
        case list():
            return all(map(_is_json, cast("list[object]", value)))
        case dict():
            return all(isinstance(k, str) and _is_json(v) for k, v in cast("dict[object, object]", value).items())
        case _:
            return False


def files_of(piece: Piece) -> list[File]:
    """Return a part's files, without those that only a provider has."""
    return [file for file in map(file_of, _items(piece)) if file is not None]


def _other_files(piece: Piece) -> Iterator[File]:
    """Yield the files of a part that its message has not."""
    for item in _items(piece):
        known = file_of(item)
        if known is None:
            yield unseen_file(str(getattr(item, "media_type", "")))
        elif isinstance(piece, native.ModelResponse):
            yield known


def _items(piece: Piece) -> Sequence[object]:
    """Return the items of a part that are not text."""
    match piece:
        case native.UserPromptPart():
            content = () if isinstance(piece.content, str) else piece.content
            return [item for item in content if not isinstance(item, str | native.TextContent | native.CachePoint)]
        case native.ToolReturnPart() | native.ModelResponse():
            return piece.files
        case _:
            return ()


# ---------------------------------------------------------------- from this library to pydantic-ai


def _with_text(piece: Piece, message: Message) -> Piece:
    """Return a part with another text, keeping its other content."""
    match piece:
        case native.SystemPromptPart():
            return replace(piece, content=message.text)
        case native.InstructionPart():
            return replace(piece, content=message.text)
        case native.ToolReturnPart():
            content = [message.text, *piece.files] if piece.files else message.text
            return native.ToolReturnPart(piece.tool_name, content, piece.tool_call_id, outcome=piece.outcome)
        case native.UserPromptPart():
            others = () if isinstance(piece.content, str) else piece.content
            kept = [item for item in others if not isinstance(item, str | native.TextContent)]
            return replace(piece, content=[message.text, *kept] if kept else message.text)
        case native.ModelResponse():
            rest = [part for part in piece.parts if not isinstance(part, _SAID)]
            return replace(piece, parts=[*rest, *_reply_parts(message)])
        case _:
            return _added_part(message)


def _reply_parts(message: Message) -> Iterator[_Said]:
    if message.text:
        yield native.TextPart(message.text)
    for call in message.tool_calls:
        yield native.ToolCallPart(call.name, thaw(call.arguments), call.id)


def _added_part(message: Message) -> Piece:
    """Return the part for a message that a guardrail added."""
    match message.role:
        case "system":
            return native.SystemPromptPart(message.text)
        case "user":
            return native.UserPromptPart([message.text, *map(file_content, message.files)])
        case "assistant":
            return native.ModelResponse(list(_reply_parts(message)))
        case "tool":
            return native.ToolReturnPart("tool", message.text, message.tool_call_id or "")


def _assemble(pieces: Sequence[Piece]) -> tuple[list[native.ModelMessage], list[native.InstructionPart]]:
    """Assemble messages and instructions from pieces; consecutive parts form one request."""
    messages: list[native.ModelMessage] = []
    instructions: list[native.InstructionPart] = []
    parts: list[native.ModelRequestPart] = []
    for piece in [*pieces, None]:
        if isinstance(piece, native.InstructionPart):
            instructions.append(piece)
        elif piece is None or isinstance(piece, native.ModelResponse):
            messages += [native.ModelRequest(parts)] if parts else []
            messages += [piece] if piece is not None else []
            parts = []
        else:
            parts.append(piece)
    return messages, instructions
