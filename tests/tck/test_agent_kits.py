"""Every agent of ours, and the one of the documentation, fulfils the contract of agents."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.tck import AgentTCK
from tests.tck.kit_rigs import agent_of
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


class TestMiniAgent(AgentTCK):
    uses_tools = takes_files = True
    wraps_up = True

    @classmethod
    def make_agent(cls, model: ChatModel) -> kt.MiniAgent:
        return kt.MiniAgent(model)

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Any) -> kt.MiniAgent:
        return kt.MiniAgent(model, tools=[tool])


@variant("asyncio")
class TestStreamingMiniAgent(TestMiniAgent):
    @classmethod
    def make_agent(cls, model: ChatModel) -> kt.MiniAgent:
        return kt.MiniAgent(model, stream=True)


@variant("trio")
class TestFunctionWithoutModel(AgentTCK):
    uses_models = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> Any:
        async def write(assignment: kt.Assignment) -> str:
            return f"text of {assignment.task.id}"

        return write


@pytest.mark.exhaustive
class TestPlainFunction(AgentTCK):
    """It runs in a thread, in real time."""

    virtual_time = False
    uses_models = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> Any:
        def write(assignment: kt.Assignment) -> str:
            return f"text of {assignment.task.id}"

        return write


class TestFunctionWithModel(AgentTCK):
    keeps_partial = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> Any:
        async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            prompt = context.render("task", assignment=assignment, limits="")
            reply = await context.model(model).complete(kt.ModelRequest([kt.Message.user(prompt)]))
            return reply.text

        return write


@variant("asyncio")
class TestFunctionThatBooks(AgentTCK):
    """It calls a model of its own, and books what that used."""

    governs_calls = False
    keeps_partial = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> Any:
        async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            prompt = context.render("task", assignment=assignment, limits="")
            with context.governor.reserve(tokens=5000) as hold:
                reply = await model.complete(kt.ModelRequest([kt.Message.user(prompt)]))
                if reply.usage is not None:
                    hold.settle(reply.usage.prompt_tokens, reply.usage.completion_tokens)
            return reply.text

        return write


class Summarizer:
    """The agent of the documentation."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> kt.AgentOutput | str:
        model = context.model(self.model)
        parts = list[str]()
        for text in assignment.upstream.values():
            reply = await model.complete(kt.ModelRequest([kt.Message.user(f"Summarize:\n{text.text}")]))
            parts.append(reply.text)
            context.keep("\n".join(parts))
        return "\n".join(parts)


@variant("trio")
class TestSummarizer(AgentTCK):
    reads_assignment = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> Summarizer:
        return Summarizer(model)


class TwoViews:
    """Asks its model twice at once."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        views: dict[int, str] = {}

        async def look(number: int) -> None:
            prompt = context.render("task", assignment=assignment, limits=f"This is view {number}.")
            reply = await context.model(self.model).complete(kt.ModelRequest([kt.Message.user(prompt)]))
            views[number] = reply.text

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(look, 1)
                group.start_soon(look, 2)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return views[1] + views[2]


@variant("asyncio")
class TestAgentThatAsksTwiceAtOnce(AgentTCK):
    keeps_partial = False

    @classmethod
    def make_agent(cls, model: ChatModel) -> TwoViews:
        return TwoViews(model)


class TestTeamAgent(AgentTCK):
    raises_what_models_raise = False
    keeps_partial = False
    uses_tools = takes_files = True

    @classmethod
    def make_agent(cls, model: ChatModel) -> TeamAgent:
        return cls.team_of(kt.MiniAgent(model))

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Any) -> TeamAgent:
        return cls.team_of(kt.MiniAgent(model, tools=[tool]))

    @classmethod
    def team_of(cls, agent: kt.MiniAgent) -> TeamAgent:
        once = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
        return TeamAgent(kt.Team("inner", [kt.Member("worker", agent)]), coordinator=once)


class OfLibrary(AgentTCK):
    """What the wrappers have in common: a rig of the wrapper matrix stands behind each."""

    uses_tools = True
    rig: str
    library: str

    @classmethod
    def make_agent(cls, model: ChatModel) -> Any:
        return cls.make_agent_with_tool(model, None)

    @classmethod
    def make_agent_with_tool(cls, model: ChatModel, tool: Any) -> Any:
        pytest.importorskip(cls.library)
        return agent_of(pytest.importorskip(f"tests.agents.{cls.rig}").RIG, model, tool)


class TestPydanticAIAgent(OfLibrary):
    rig, library = "rig_pydantic_ai", "pydantic_ai"
    backends = ("asyncio",)


class TestLangGraphAgent(OfLibrary):
    rig, library = "rig_langgraph", "langgraph"
    backends = ("asyncio",)


class TestOpenAIAgent(OfLibrary):
    rig, library = "rig_openai_agents", "agents"
    backends = ("asyncio",)
