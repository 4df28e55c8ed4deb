"""A scripted model behind the OpenAI Agents SDK, and what its tests say in few words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from agents import Model, ModelResponse, ModelSettings, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision, GuardrailPayload, GuardrailPhase
from kairo_team.permissions import PermissionDecision

Step = str | ResponseOutputItem | list[Any] | ModelResponse | Exception
"""What the model does when it is asked: says a text or more items, asks for tools, gives a whole reply, or raises."""


def ask(tool: str, /, text: str = "", **arguments: Any) -> ResponseFunctionToolCall:
    """Ask for a tool; `text` is said in place of its arguments as JSON."""
    said = text or json.dumps(arguments)
    return ResponseFunctionToolCall(type="function_call", call_id="", name=tool, arguments=said)


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


@function_tool
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@dataclass
class Call:
    """One request as it reached the model."""

    system: str | None
    input: Any
    settings: ModelSettings
    tools: list[str]
    handoffs: list[str]
    schema: Any
    streamed: bool

    @property
    def text(self) -> str:
        return f"{self.system}\n{json.dumps(self.input, ensure_ascii=False)}"

    @property
    def results(self) -> list[Any]:
        """The outputs of tools it was told, in order."""
        return [item["output"] for item in self.input if item.get("type") == "function_call_output"]


@dataclass
class Scripted(Model):
    """Follows a script; the last step repeats."""

    script: Sequence[Step] | Callable[[Call], Step | Awaitable[Step]]
    model: str = "double"
    usage: Usage | None = field(default_factory=lambda: Usage(1, 10, output_tokens=5))
    seconds: float = 0.0
    calls: list[Call] = field(default_factory=list[Call])
    in_flight: int = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return await self._answer(False, args, kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        reply = await self._answer(True, args, kwargs)
        for item in reply.output:
            if isinstance(item, ResponseOutputMessage):
                yield _delta(item)
        yield ResponseCompletedEvent(response=_response(reply), sequence_number=9, type="response.completed")

    async def _answer(self, streamed: bool, args: Any, kwargs: Any) -> ModelResponse:
        names = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs")
        given = dict(zip(names, args, strict=False)) | kwargs
        said = given["input"]
        items = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
        schema = given["output_schema"]
        call = Call(
            given["system_instructions"],
            items,
            given["model_settings"],
            [tool.name for tool in given["tools"]],
            [handoff.tool_name for handoff in given["handoffs"]],
            schema.json_schema() if schema is not None else None,
            streamed,
        )
        number = len(self.calls)
        self.calls.append(call)
        self.in_flight += 1
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        step = self.script(call) if callable(self.script) else self.script[min(number, len(self.script) - 1)]
        return self._reply(await step if isinstance(step, Awaitable) else step, number)

    def _reply(self, step: Step, number: int) -> ModelResponse:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, ModelResponse):
            return step
        items = step if isinstance(step, list) else [step]
        output = [
            say(item)
            if isinstance(item, str)
            else item.model_copy(update={"call_id": f"{id(self)}-{number}-{place}"})
            if isinstance(item, ResponseFunctionToolCall)
            else item
            for place, item in enumerate(items)
        ]
        return ModelResponse(output, self.usage if self.usage is not None else Usage(), None)


def _delta(item: Any) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        content_index=0,
        delta=item.content[0].text,
        item_id="m",
        logprobs=[],
        output_index=0,
        sequence_number=1,
        type="response.output_text.delta",
    )


def _response(reply: ModelResponse) -> Response:
    usage = ResponseUsage(
        input_tokens=reply.usage.input_tokens,
        input_tokens_details=InputTokensDetails.model_validate({"cached_tokens": 0, "cache_write_tokens": 0}),
        output_tokens=reply.usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        total_tokens=reply.usage.input_tokens + reply.usage.output_tokens,
    )
    return Response(
        id="r",
        created_at=0,
        model="double",
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=usage if reply.usage.requests else None,
    )


@dataclass
class Witness:
    """An agent that passes everything on to another, and remembers what came back."""

    agent: OpenAIAgent
    reentrant = True
    own_loop = True
    output: kt.AgentOutput | None = None
    raised: BaseException | None = None

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> kt.AgentOutput:
        try:
            self.output = await self.agent.run(assignment, context)
        except BaseException as error:
            self.raised = error
            raise
        return self.output


async def work(
    agent: Any, *, budget: kt.Budget | None = None, team: dict[str, Any] | None = None, **wrapper: Any
) -> tuple[kt.TeamResult, Witness]:
    """Let an agent of the library do one task in a team; `wrapper` are `OpenAIAgent`'s options."""
    witness = Witness(agent if isinstance(agent, OpenAIAgent) else OpenAIAgent(agent, **wrapper))
    result = await kt.run(kt.Team("t", [kt.Member("m", witness)], **(team or {})), "Explain tides.", budget=budget)
    return result, witness


@dataclass
class Guard:
    """A guardrail of one phase that does what a function of the payload says."""

    phase: GuardrailPhase
    decide: Any

    @property
    def phases(self) -> set[GuardrailPhase]:
        return {self.phase}

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        decision: GuardrailDecision = self.decide(context.payload)
        return decision


def mask(old: str, new: str) -> Any:
    def masked(payload: GuardrailPayload) -> GuardrailDecision:
        return GuardrailDecision.modify("masked", payload.map_text(lambda text: text.replace(old, new)))

    return masked


def deny(payload: Any) -> GuardrailDecision:
    return GuardrailDecision.deny("no")


@dataclass
class Permit:
    """A permission guard that notes what it is asked and denies by name."""

    denied: str = ""

    def __post_init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any], str]] = []

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: str) -> PermissionDecision:
        self.asked.append((tool, dict(arguments), side_effect))
        return PermissionDecision.deny("not you") if tool == self.denied else PermissionDecision.allow()


def raising(error: Exception) -> Any:
    async def spend() -> str:
        raise error

    return spend
