"""The front door: `run`, `run_sync`, and which coordinator, runtime and budget they take."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.errors import Misuse
from kairo_team.front import pick_coordinator
from kairo_team.testing import EventRecorder, ScriptedAgent, ScriptedModel, forbid_real_models


def outline(assignment: kt.Assignment) -> str:
    return "1. what tides are  2. the moon  3. spring tides"


def newsroom(**fields: Any) -> kt.Team:
    return kt.Team(
        "newsroom",
        [
            kt.Member("outline", outline),
            kt.Member(
                kt.Role("writer", instructions="Write plainly for a ten-year-old."),
                kt.MiniAgent("openai:gpt-5-mini", max_turns=6),
            ),
        ],
        **fields,
    )


@pytest.mark.real_time
async def test_kf_u03_the_first_example_of_the_documentation_runs() -> None:
    """A team in one minute, as it stands there, with a scripted model in the place of openai:*."""
    model = ScriptedModel(["Tides are the sea going up and down."], dollars_per_token="0.00001")
    runtime = kt.Runtime(models={"openai:*": model})
    with forbid_real_models():
        result = await kt.run(
            newsroom(), "Explain tides.", budget=kt.Budget(tokens=20_000, dollars="0.05"), runtime=runtime
        )
    model.assert_complete()
    assert result.check().status is kt.TeamStatus.COMPLETED
    assert result.output == "Tides are the sea going up and down."
    assert result.usage.tokens > 9
    prompt = "\n".join(message.text for message in model.calls[0].messages)
    assert "3. spring tides" in prompt
    assert "ten-year-old" in prompt


@pytest.mark.parametrize("backend", ["asyncio"])
def test_kf_u03_the_first_example_runs_from_sync_code(backend: str) -> None:
    """`kt.run_sync` is the same, without an event loop around it."""
    runtime = kt.Runtime(models={"openai:*": ScriptedModel(["The sea."])})
    result = kt.run_sync(newsroom(), "Explain tides.", budget=kt.Budget(tokens=20_000), runtime=runtime)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "The sea.")


async def good(assignment: kt.Assignment) -> str:
    return "made"


PLAN = kt.TaskGraph([kt.Task("t", "do")])
MINE, THEIRS = TaskDispatchCoordinator(), ExpertTeamCoordinator()


@pytest.mark.parametrize(
    ("own", "given", "plan", "chosen"),
    [
        (None, None, None, ExpertTeamCoordinator),
        (None, None, PLAN, TaskDispatchCoordinator),
        (MINE, None, None, MINE),
        (MINE, None, PLAN, MINE),
        (MINE, THEIRS, PLAN, THEIRS),
    ],
)
def test_the_coordinator_is_the_calls_else_the_teams_else_by_plan(own: Any, given: Any, plan: Any, chosen: Any) -> None:
    team = kt.Team("t", [kt.Member("a", good)], coordinator=own)
    found = pick_coordinator(team, kt.TeamExecutionRequest("g", plan=plan), given)
    assert found is chosen or type(found) is chosen


async def test_the_budget_given_replaces_the_requests() -> None:
    team = kt.Team("t", [kt.Member("a", good)])
    request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(budget=kt.Budget(tokens=5), max_feedback_rounds=7))
    result = await kt.run(team, request, budget=kt.Budget(loops=3))
    assert result.budget is not None
    assert result.budget.budget == kt.Budget(loops=3)
    assert result.run_id == request.run_id


async def test_the_runtime_given_is_used_and_a_team_bound_to_another_is_refused() -> None:
    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    await kt.run(kt.Team("t", [kt.Member("a", good)]), "g", runtime=runtime)
    assert recorder.types[0] == "team.started"
    bound = kt.Team("t", [kt.Member("a", good)], runtime=kt.Runtime())
    with pytest.raises(Misuse, match="team 't' is bound to another runtime"):
        await kt.run(bound, "g", runtime=runtime)
    assert (await kt.run(bound, "g", runtime=bound.runtime)).status is kt.TeamStatus.COMPLETED


async def test_run_does_nothing_before_it_is_awaited() -> None:
    agent = ScriptedAgent(["x"])
    kt.run(kt.Team("t", [kt.Member("a", agent)]), "g").close()
    await anyio.lowlevel.checkpoint()
    assert agent.calls == []


async def test_a_blank_goal_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="the goal must not be blank"):
        await kt.run(kt.Team("t", [kt.Member("a", good)]), "  ")


async def test_run_sync_inside_an_event_loop_says_what_to_write() -> None:
    with pytest.raises(Misuse, match=r"await kt\.run"):
        kt.run_sync(newsroom(), "Explain tides.")


async def test_a_budget_is_a_budget() -> None:
    with pytest.raises(ValueError, match=r"kt\.Budget\(tokens=20_000\), not 1000"):
        await kt.run(newsroom(), "Explain tides.", budget=1000)  # type: ignore[arg-type]


def test_an_agent_of_another_library_is_refused_with_the_name_of_its_wrapper() -> None:
    agents: dict[str, Any] = {
        "PydanticAIAgent": pytest.importorskip("pydantic_ai").Agent("test"),
        "OpenAIAgent": pytest.importorskip("agents").Agent(name="desk"),
    }
    graph: Any = pytest.importorskip("langgraph.graph").StateGraph(dict)
    agents["LangGraphAgent"] = graph.add_node("a", lambda _: {}).add_edge("__start__", "a").compile()
    for wrapper, agent in agents.items():
        with pytest.raises(ValueError, match=f"from kairo_team.agents import {wrapper}"):
            kt.Member("m", agent)
