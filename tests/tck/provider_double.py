"""A pydantic-ai model that hands its requests to an async function of ours, and guesses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

from pydantic_ai import messages as native
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RequestUsage

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.messages import ToolCall, ToolSpec
from kairo_team.models.provider_messages import file_of

Answer = Callable[[kt.ModelRequest], Awaitable[kt.ModelResponse]]
STATUS: Final = {"rate_limited": 429, "overloaded": 503, "auth": 401, "bad_request": 400}


class Double(Model[Any]):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    @property
    def model_name(self) -> str:
        return "double"

    @property
    def system(self) -> str:
        return "theirs"

    async def request(
        self,
        messages: list[native.ModelMessage],
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
        *_: Any,
    ) -> native.ModelResponse:
        settings: dict[str, Any] = dict(model_settings or {})
        output = model_request_parameters.output_object
        asked = kt.ModelRequest(
            [one for message in messages for one in _messages(message)],
            [
                ToolSpec(tool.name, tool.description or "", tool.parameters_json_schema)
                for tool in model_request_parameters.function_tools
            ],
            output_schema=None if output is None else output.json_schema,
            max_tokens=settings.pop("max_tokens", None),
            settings=settings,
        )
        try:
            return _reply(await self._answer(asked))
        except ModelCallError as error:
            raise _failure(error) from error


def _messages(message: native.ModelMessage) -> Iterator[kt.Message]:
    if isinstance(message, native.ModelResponse):
        calls = [ToolCall(one.tool_call_id, one.tool_name, one.args_as_dict()) for one in message.tool_calls]
        yield kt.Message.assistant(message.text or "", calls)
        return
    if message.instructions:
        yield kt.Message.system(message.instructions)
    for part in message.parts:
        if isinstance(part, native.SystemPromptPart):
            yield kt.Message.system(part.content)
        elif isinstance(part, native.ToolReturnPart):
            yield kt.Message.tool(part.tool_call_id, part.model_response_str())
        else:
            content: Any = cast("Any", part).content
            items: list[Any] = list(content) if isinstance(content, list | tuple) else [content]
            files = [file for file in map(file_of, items) if file is not None]
            yield kt.Message.user("\n".join(str(item) for item in items if file_of(item) is None), files)


def _reply(reply: kt.ModelResponse) -> native.ModelResponse:
    usage = reply.usage or kt.Usage()
    told = RequestUsage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
    finish: Any = reply.finish_reason
    parts: list[native.ModelResponsePart] = [native.TextPart(reply.text)] if reply.text else []
    parts += [native.ToolCallPart(one.name, dict(cast("Any", one.arguments)), one.id) for one in reply.tool_calls]
    return native.ModelResponse(parts, usage=told, finish_reason=finish)


def _failure(error: ModelCallError) -> Exception:
    """Return the failure in the form that a client has for it."""
    match error.kind:
        case "timeout":
            return TimeoutError(error.why)
        case "connection":
            return ConnectionError(error.why)
        case kind:
            wait = "" if error.retry_after is None else f" Please try again in {error.retry_after}s."
            body = {"error": {"message": f"{error.why}.{wait}"}}
            return ModelHTTPError(STATUS[kind], "double", body)
