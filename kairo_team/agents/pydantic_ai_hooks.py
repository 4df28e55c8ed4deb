"""Hooks of pydantic-ai that take every model request and tool call of an agent's run through the governor."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelAPIError, ModelRetry, ToolFailed
from pydantic_ai.models import CompletedStreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from pydantic_core import to_json, to_jsonable_python

from kairo_team._util.frozen import thaw
from kairo_team.agents.pydantic_ai_messages import NativeRequest, ReplyView, RequestView
from kairo_team.agents.wrapped import GovernedCalls
from kairo_team.budget import Usage
from kairo_team.errors import ModelCallError
from kairo_team.models.error_bodies import error_bodies_refused
from kairo_team.models.prompt_bounds import file_bound, prompt_bound
from kairo_team.models.provider_errors import call_error
from kairo_team.models.provider_messages import rule_of, usage_of
from kairo_team.models.providers import with_key
from kairo_team.models.resolver import modules_of, refuse_real
from kairo_team.tools.pydantic_toolsets import check_by_function, described, shown, validated, with_servers
from kairo_team.tools.result import ToolResult

if TYPE_CHECKING:
    from pydantic_ai import messages as native
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    from kairo_team.contracts import MemberContext
    from kairo_team.files import File
    from kairo_team.messages import ModelRequest, ModelResponse
    from kairo_team.tools.pipeline import GovernedTool
    from kairo_team.tools.tool import Tool as OurTool

Send = Callable[[NativeRequest], Awaitable["native.ModelResponse"]]


class Session(GovernedCalls):
    """One run of a foreign agent: its calls and usage so far, and the error that ends it."""

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self.text = ""
        """The text of all replies so far."""
        self.last: ModelResponse | None = None
        """The last reply."""
        self.requests = 0
        """How many model requests were begun, answered or not."""
        self.offered = {tool.name: tool for tool in context.offered}
        """The coordinator's tools, by name."""
        self._described: dict[str, tuple[ToolDefinition, OurTool]] = {}
        """The agent's tools as the pipeline takes them, by name, each with what it was made from."""

    async def ask(self, model: Model, native_request: NativeRequest, send: Send) -> native.ModelResponse:
        """Make one governed model request."""
        call = _Call(model, native_request, send)
        self.requests += 1
        with self.ending:
            try:
                response = await self.call(call, call.request.request)
            except ModelCallError as error:
                raise call.error or error from None
        self.last = response
        if response.text.strip():
            self.text = f"{self.text}\n\n{response.text}" if self.text else response.text
            self.context.keep(self.text)
        return call.reply.native(response, call.answer)

    async def use(self, call: _ToolCall) -> Any:
        """Make one governed tool call."""
        with self.ending:
            try:
                tool = call.as_tool(self.described(call.definition))
                result = await self.context.tool(tool).call_of_reply({}, call_id=call.id)
            finally:
                self.tool_calls += call.ran
        return call.outcome(result)

    def toolsets(self) -> list[AbstractToolset[Any]]:
        """Return a toolset for the coordinator's tools; their calls are made by `use_offered`."""
        described = [
            # `sequential`, because these tools act on the team, and a call may end the turn.
            Tool.from_schema(_do_nothing, tool.name, tool.description, thaw(tool.parameters), sequential=True)
            for tool in self.offered.values()
        ]
        return [FunctionToolset[Any](described)] if described else []

    def check_was_asked(self, requests: int, reply: native.ModelResponse) -> None:
        """Raise `RuntimeError` unless more than `requests` requests were begun; book an ungoverned reply first."""
        if self.requests > requests:
            return
        used = usage_of(reply) or Usage()
        self.context.governor.record_usage(used.prompt_tokens, used.completion_tokens, used.dollars)
        raise RuntimeError(
            "a model request of the agent was not governed: one of its capabilities answers requests itself, as "
            "BatchModelRequests does; take it out of the agent"
        )

    def is_unfinished(self, call: native.ToolCallPart, definition: ToolDefinition) -> bool:
        """Return whether a call belongs to a reply that was cut off."""
        return self._governed(definition).pipeline.cut_by(call.tool_call_id) is not None

    def refuses(self, definition: ToolDefinition) -> bool:
        """Return whether a tool must not be offered."""
        governed = self._governed(definition)
        return governed.pipeline.refusal(governed.tool) is not None

    def _governed(self, definition: ToolDefinition) -> GovernedTool:
        return self.context.tool(self.offered.get(definition.name) or self.described(definition))

    def described(self, definition: ToolDefinition) -> OurTool:
        """Return the tool for the pipeline that only describes one of the agent's."""
        made_from, tool = self._described.get(definition.name, (None, None))
        if tool is None or made_from != definition:
            tool = described(definition)
            self._described[definition.name] = definition, tool
        return tool


class _Call:
    """A `ChatModel` for one request; answers in text and keeps the library's own reply."""

    def __init__(self, model: Model, native_request: NativeRequest, send: Send) -> None:
        self.name = model.model_id
        self.request = RequestView(native_request)
        self.reply = ReplyView(native_request.parameters)
        self.answer: native.ModelResponse | None = None
        """The library's own reply; None when the call was answered from a record."""
        self.error: Exception | None = None
        """The library's own error, from the last failed try."""
        self._innermost = unwrapped(model)
        self._send = send

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Send the request as guardrails changed it; raises `ModelCallError` when no answer came."""
        refuse_real(self.name, modules_of(self._innermost))
        try:
            with error_bodies_refused(self.name, getattr(self._innermost, "client", None)) as seen:
                asked = self.request.native(request)
                settings = with_key(self._innermost, dict(asked.settings))
                if "max_retries" not in getattr(self._innermost, "unsupported_settings", ("max_retries",)):
                    settings["max_retries"] = 0  # the governed model makes the retries
                self.answer = self.reply.read(await self._send(replace(asked, settings=settings)))
        # The provider's error under status 200: fallbacks know the library's own class.
        except ModelCallError as refused:
            self.error = ModelAPIError(self._innermost.model_name, refused.why)
            raise refused from self.error
        except Exception as error:
            known = call_error(self.name, error)
            if known is None:
                raise
            self.error = error
            raise known from error
        return self.reply.response(self.answer, seen.total)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return an upper bound of the prompt's tokens."""
        rule = rule_of(self._innermost)
        return prompt_bound(request, rule) + sum(file_bound(file, rule) for file in self.request.others)

    def file_problem(self, _file: File) -> None:
        """Leave it to the library which files its model takes: its agent may have put them there itself."""


def unwrapped(model: Model) -> Model:
    """Return the model inside its wrappers, which has the provider's client."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


class GovernedModel(WrapperModel):
    """The agent's model with governed requests. A streamed request is made in one piece; its events follow."""

    def __init__(self, wrapped: Model, session: Session) -> None:
        super().__init__(wrapped)
        self._session = session

    async def request(
        self,
        messages: list[native.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> native.ModelResponse:
        """Make one request."""

        async def send(native_request: NativeRequest) -> native.ModelResponse:
            settings: Any = native_request.settings
            return await self.wrapped.request(native_request.messages, settings, native_request.parameters)

        native_request = NativeRequest(messages, dict(model_settings or {}), model_request_parameters)
        return await self._session.ask(self.wrapped, native_request, send)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[native.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Make one request and replay the reply, so that no piece is emitted before the whole reply passed."""
        reply = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(reply, model_request_parameters=model_request_parameters, replay_events=True)

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> native.ModelResponse:
        """Ask the provider to shorten the conversation, which it charges like a request."""

        async def send(native_request: NativeRequest) -> native.ModelResponse:
            settings: Any = native_request.settings
            asked = replace(request_context, messages=native_request.messages, model_settings=settings)
            return await self.wrapped.compact_messages(asked, instructions=instructions)

        settings = dict(request_context.model_settings or {})
        native_request = NativeRequest(request_context.messages, settings, request_context.model_request_parameters)
        return await self._session.ask(self.wrapped, native_request, send)


class _ToolCall:
    """One call of a native tool, as a `Tool` for the pipeline."""

    def __init__(
        self, tool: ToolsetTool[Any], arguments: dict[str, Any], run: Callable[..., Awaitable[Any]], call_id: str | None
    ) -> None:
        self.id = call_id
        """The model's id of the call."""
        self.ran = False
        """Whether the tool was called, whatever the outcome."""
        self._tool = tool
        self._run = run
        self._arguments = arguments
        self._given = self._flat(to_jsonable_python(arguments, fallback=str))
        self._checked = False
        self._value: Any = None
        self._error: Exception | None = None

    @property
    def definition(self) -> ToolDefinition:
        """The library's definition of the tool."""
        return self._tool.tool_def

    def as_tool(self, described: OurTool) -> OurTool:
        """Return the tool for the pipeline, made from its description."""
        return replace(described, call=self._call, check=self._check)

    def outcome(self, result: ToolResult) -> Any:
        """Return the tool's result or raise its error for the library, with the changes of guardrails."""
        if result.refused_by is not None:
            raise ToolFailed(result.text)
        if not self.ran:  # the outcome is from a record
            if result.is_error:
                raise ToolFailed(result.text)
            return result.text if result.value is None else thaw(result.value)
        if isinstance(self._error, ModelRetry | ToolFailed):
            raise type(self._error)(result.text) if result.text != self._error.message else self._error
        if self._error is not None:
            raise self._error
        return result.text if result.value is None or not _can_be_sent(self._value) else self._value

    def _check(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments that the library validated; validate them again if a guardrail changed them."""
        if not self._checked:
            self._checked = True
            return self._given
        self._arguments = validated(self._tool, arguments)
        self._given = dict(arguments)
        return self._given

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        self.ran = True
        try:
            self._value = await self._run(self._arguments)
        except (ApprovalRequired, CallDeferred) as error:
            self._error = error
            return "the call waits for an approval"  # not a failure: `outcome` raises the error for the library
        except (ModelRetry, ToolFailed) as error:
            self._error = error
            return ToolResult(error.message, is_error=True)
        except Exception as error:
            self._error = error
            raise
        seen = shown(self._value)
        return "" if seen is None else seen

    def _flat(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the model gave them: a function with a single pydantic model takes its fields."""
        if len(arguments) == 1:
            ((name, value),) = arguments.items()
            properties = self._tool.tool_def.parameters_json_schema.get("properties", {})
            if name not in properties and isinstance(value, dict):
                return cast("dict[str, Any]", value)
        return arguments


async def _do_nothing(**_arguments: Any) -> None:
    """Do nothing: a toolset needs a function for each tool, and this one is never called."""


def _can_be_sent(value: Any) -> bool:
    """Return whether pydantic-ai could serialise a value for its next request."""
    try:
        to_json(shown(value))
    except ValueError:
        return False
    return True


@dataclass
class GovernedToolset(WrapperToolset[Any]):
    """All tools of an agent except output tools, with governed calls and without tools that are never allowed."""

    session: Session

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that may be offered."""
        tools = await super().get_tools(ctx)
        return {name: tool for name, tool in tools.items() if not self.session.refuses(tool.tool_def)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool through the pipeline."""
        if name in self.session.offered:
            result = await self.session.use_offered(name, tool_args, ctx.tool_call_id)
            if result.is_error:
                raise ToolFailed(result.text)
            return result.text

        async def run(arguments: dict[str, Any]) -> Any:
            if arguments is not tool_args:
                await check_by_function(tool, ctx, arguments)
            return await self.wrapped.call_tool(name, arguments, ctx, tool)

        return await self.session.use(_ToolCall(tool, tool_args, run, ctx.tool_call_id))


class Governance(AbstractCapability[Any]):
    """The capability that governs a run, added to the agent's own; the agent is not changed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_wrapper_model(self, model: Model) -> Model:
        """Govern the model that serves a request; for a fallback model, each of its models."""
        if isinstance(model, FallbackModel):
            governed = copy.copy(model)  # the model is the user's
            governed.models = [self.get_wrapper_model(one) for one in model.models]
            return governed
        return GovernedModel(model, self._session)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Govern the tools."""
        return GovernedToolset(with_servers(toolset), self._session)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: native.ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        handler: Callable[[str | dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Pass a call of a reply that was cut off to the pipeline unvalidated: the pipeline refuses it."""
        return {} if self._session.is_unfinished(call, tool_def) else await handler(args)

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: Callable[[ModelRequestContext], Awaitable[native.ModelResponse]],
    ) -> native.ModelResponse:
        """Raise if a reply did not come from a governed model."""
        requests = self._session.requests
        reply = await handler(request_context)
        self._session.check_was_asked(requests, reply)
        return reply
