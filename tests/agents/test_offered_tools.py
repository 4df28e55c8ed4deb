"""Tools that a coordinator offers for one attempt, for the members of other libraries."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent as TheirAgent
from agents import function_tool
from pydantic_ai import Agent
from pydantic_ai import messages as native
from pydantic_ai.models.function import AgentInfo, FunctionModel

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from tests.agents.openai_double import Scripted, ask
from tests.test_offered_tools import PASSED, pass_on, play, search

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Backend:
    """Run on asyncio, as both libraries do."""
    return virtual_time("asyncio")


Turn = str | tuple[str, dict[str, Any]]


class Theirs:
    """An agent of a library that makes these calls, one a turn, and what its model was offered and read."""

    def __init__(self, library: str, *turns: Turn, own: bool = False) -> None:
        self.turns = list(turns)
        self.offered: list[list[str]] = []
        self.read: list[str] = []
        self._library = library
        self._own = own
        self._scripted: Scripted | None = None

    def agent(self) -> PydanticAIAgent | OpenAIAgent:
        if self._library == "openai":
            script = [turn if isinstance(turn, str) else ask(turn[0], **turn[1]) for turn in self.turns]
            self._scripted = Scripted(script)
            return OpenAIAgent(TheirAgent("a", model=self._scripted, tools=[function_tool(look)] if self._own else []))
        return PydanticAIAgent(Agent(FunctionModel(self._answer, model_name="m"), tools=[look] if self._own else []))

    async def _answer(self, messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
        self.offered.append([tool.name for tool in info.function_tools])
        self.read += [p.model_response_str() for p in messages[-1].parts if isinstance(p, native.ToolReturnPart)]
        turn = self.turns.pop(0)
        part = native.TextPart(turn) if isinstance(turn, str) else native.ToolCallPart(turn[0], turn[1], "c")
        return native.ModelResponse([part])

    def seen(self) -> tuple[list[list[str]], list[str]]:
        """Return the names of the offered tools of each call, and the results that the model read."""
        if self._scripted is None:
            return self.offered, self.read
        calls = self._scripted.calls
        return [call.tools for call in calls], [str(one) for call in calls[-1:] for one in call.results]


async def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


LIBRARIES = pytest.mark.parametrize("library", ["pydantic-ai", "openai"])


@LIBRARIES
async def test_its_model_has_the_offered_tools_beside_its_own(library: str) -> None:
    theirs = Theirs(library, ("search", {"query": "tides"}), "Done.", own=True)
    result, attempt, seen = await play(theirs.agent(), search, role=kt.Role("m", allowed_tools=["look"]))
    assert (result.output, attempt.ended_by) == ("Done.", None)
    assert theirs.seen() == ([["look", "search"]] * 2, ["found tides"])
    assert [(event.tool, event.outcome) for event in seen.of(events.ToolCalled)] == [("search", "ok")]
    assert result.usage.tool_calls == 1
    assert attempt.output is not None
    assert attempt.output.tool_calls_executed == 1


@LIBRARIES
async def test_a_tool_that_ends_the_turn_is_the_last_thing_it_does(library: str) -> None:
    theirs = Theirs(library, ("pass_on", PASSED), "never")
    result, attempt, seen = await play(theirs.agent(), pass_on)
    assert result.output == PASSED["message"]
    assert len(theirs.seen()[0]) == 1
    assert attempt.ended_by is not None
    assert attempt.ended_by.arguments == PASSED
    assert len(seen.of(events.ModelCalled)) == 1


@LIBRARIES
async def test_a_refused_call_is_a_result_that_its_model_reads(library: str) -> None:
    theirs = Theirs(library, ("pass_on", {"to": "x"}), "I answer myself.")
    result, attempt, _ = await play(theirs.agent(), pass_on)
    assert (result.output, attempt.ended_by) == ("I answer myself.", None)
    assert "message" in theirs.seen()[1][0]


@LIBRARIES
async def test_two_tools_of_one_name_are_refused_with_a_sentence(library: str) -> None:
    theirs = Theirs(library, "never", own=True)
    result, _, _ = await play(theirs.agent(), kt_look())
    assert "'look'" in (result.error or "")
    assert theirs.seen()[0] == []


def kt_look() -> Any:
    """Return a tool with the name of the agent's own."""

    @kt.tool(name="look")
    async def other(at: str) -> str:
        return at

    return other
