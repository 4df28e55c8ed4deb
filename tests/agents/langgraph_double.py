"""A scripted chat model of LangChain, graphs around it, and a team that runs them: what the LangGraph tests share."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import anyio
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import Field

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder

Answer = Callable[[list[BaseMessage], int | None], AIMessage]
"""Makes the reply of messages and the most tokens it may have."""


def said(text: str, prompt: int = 10, completion: int = 5, **fields: Any) -> AIMessage:
    """A reply that says what it used."""
    used: Any = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}
    return AIMessage(text, usage_metadata=used, **fields)


def asks(name: str, **args: Any) -> AIMessage:
    """A reply that asks for a tool."""
    return said("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])


def dear(messages: list[BaseMessage], most: int | None) -> AIMessage:
    """It uses all it may, but no more than 90 tokens of reply."""
    return said("a long answer", 5, min(90, most or 90))


class Scripted(BaseChatModel):
    """Answers with the replies in turn, the last one again and again; an exception is raised."""

    replies: list[Any] = Field(default_factory=lambda: [said("done")])
    max_tokens: int | None = None
    seconds: float = 0.0
    log: list[list[BaseMessage]] = Field(default_factory=list[list[BaseMessage]])
    limits: list[int | None] = Field(default_factory=list[int | None])
    aborted: list[int] = Field(default_factory=list[int])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[{"name": tool.name, "description": "", "parameters": tool.args} for tool in tools])

    def _answer(self, messages: list[BaseMessage]) -> ChatResult:
        reply = self.replies[min(len(self.log), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        message: Any = reply(messages, self.max_tokens) if callable(reply) else reply
        return ChatResult(generations=[ChatGeneration(message=message.model_copy(deep=True))])

    def _note(self, messages: list[BaseMessage]) -> None:
        self.log.append(messages)
        self.limits.append(self.max_tokens)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._note(messages)
        time.sleep(self.seconds)
        return self._answer(messages)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._note(messages)
        try:
            await anyio.sleep(self.seconds)
        except BaseException:
            self.aborted.append(len(self.log))
            raise
        return self._answer(messages)


class Streaming(Scripted):
    """It streams its reply word by word."""

    def _pieces(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        message: Any = self._answer(messages).generations[0].message
        for word in message.text.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=message.usage_metadata))

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._note(messages)
        yield from self._pieces(messages)

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self._note(messages)
        for piece in self._pieces(messages):
            yield piece


def asking(model: Any, *, sync: bool = False) -> Callable[..., Any]:
    """A node that asks the model."""

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def acall(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return call if sync else acall


def graph_of(*nodes: Any, side_by_side: bool = False, **options: Any) -> Any:
    """A graph whose nodes follow one another, or all start at once."""
    builder = StateGraph(MessagesState)
    before = START
    for number, node in enumerate(nodes):
        builder.add_node(f"n{number}", node)
        builder.add_edge(START if side_by_side else before, f"n{number}")
        before = f"n{number}"
    return builder.compile(**options)


class Witness:
    """A team of one member, and what it did."""

    def __init__(self, agent: Any, *, role: kt.Role | None = None, prices: Any = None, **team: Any) -> None:
        self.recorder = EventRecorder()
        self.outputs: list[kt.AgentOutput] = []
        runtime = kt.Runtime(subscribers=[self.recorder], prices=prices or {})
        member = kt.Member(role or "m", _Seen(agent, self.outputs))
        self.team = kt.Team("team", [member], runtime=runtime, **team)

    async def run(self, *tasks: kt.Task, **config: Any) -> kt.TeamResult:
        plan = kt.TaskGraph(tasks or [kt.Task("t", "Do it.")])
        request = kt.TeamExecutionRequest("The goal.", plan=plan, config=kt.TeamConfig(**config))
        return await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, self.team)


class _Seen:
    """The agent itself, with its outputs written down."""

    reentrant = own_loop = True

    def __init__(self, agent: Any, outputs: list[kt.AgentOutput]) -> None:
        self._agent = agent
        self._outputs = outputs

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> kt.AgentOutput:
        output: kt.AgentOutput = await self._agent.run(assignment, context)
        self._outputs.append(output)
        return output


async def work(graph: Any, *, budget: kt.Budget | None = None, options: Any = None, **team: Any) -> tuple[Any, Witness]:
    """Run one task of a graph; return how it ended, and the witness."""
    agent = graph if isinstance(graph, LangGraphAgent) else LangGraphAgent(graph, **(options or {}))
    witness = Witness(agent, **team)
    result = await witness.run(budget=budget or kt.Budget())
    witness.recorder.assert_lawful()
    return result, witness
