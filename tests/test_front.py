"""The front door: `run`, `run_sync`, and which coordinator, runtime and budget they take."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.engine.work.run_arguments import pick_coordinator
from kairo_team.errors import Misuse
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


LEAN = kt.TeamConfig(budget=kt.Budget(tokens=50), max_feedback_rounds=7)


async def test_audit_g15_a_goal_takes_a_plan_and_a_config() -> None:
    """At every front door; the budget given goes before that of the config."""
    team = kt.Team("t", [kt.Member("a", good)])
    for result in (
        await kt.run(team, "g", plan=PLAN, config=LEAN, budget=kt.Budget(loops=3)),
        await in_a_runtime(team, "start"),
        await in_a_runtime(team, "stream"),
    ):
        assert result.plan == PLAN
        assert result.budget is not None
        assert result.budget.budget == kt.Budget(loops=3)
    check = kt.check(team, "g", plan=PLAN, config=LEAN)
    assert check.split is not None
    assert check.split.budget == LEAN.budget
    assert [node.name for node in check.split.children[0].children] == ["t"]


async def in_a_runtime(team: kt.Team, door: str) -> kt.TeamResult:
    given: dict[str, Any] = {"plan": PLAN, "config": LEAN, "budget": kt.Budget(loops=3)}
    async with kt.Runtime() as runtime:
        if door == "start":
            return await (await runtime.start(team, "g", **given)).result()
        async with runtime.stream(team, "g", **given) as run:
            return await run.result()


@pytest.mark.parametrize("backend", ["asyncio"])
def test_audit_g15_a_goal_takes_a_plan_and_a_config_from_sync_code(backend: str) -> None:
    result = kt.run_sync(kt.Team("t", [kt.Member("a", good)]), "g", plan=PLAN, config=LEAN)
    assert (result.plan, result.output) == (PLAN, "made")


async def test_a_run_has_the_id_it_was_given() -> None:
    team = kt.Team("t", [kt.Member("a", good)])
    assert (await kt.run(team, "g", run_id="tides-1")).run_id == "tides-1"
    async with kt.Runtime() as runtime:
        run = await runtime.start(team, "g", run_id="tides-2")
        assert (await run.result()).run_id == "tides-2"
        async with runtime.stream(team, "g", run_id="tides-3") as run:
            assert (await run.result()).run_id == "tides-3"
        with pytest.raises(kt.RunExists):
            await kt.run(team, "g", run_id="tides-3", runtime=runtime)


@pytest.mark.parametrize("given", [{"plan": PLAN}, {"config": LEAN}, {"run_id": "r"}])
async def test_audit_g15_a_request_with_a_plan_or_config_beside_it_is_refused(given: Any) -> None:
    name, request = next(iter(given)), kt.TeamExecutionRequest("g")
    team = kt.Team("t", [kt.Member("a", good)])
    message = f"{name}= goes with a goal in words, and a TeamExecutionRequest has a {name} of its own"
    with pytest.raises(Misuse, match=message):
        await kt.run(team, request, **given)
    with pytest.raises(Misuse, match=message):
        kt.check(team, request, **given)
    async with kt.Runtime() as runtime:
        with pytest.raises(Misuse, match=message):
            await runtime.start(team, request, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"plan": [kt.Task("t", "do")]}, r"plan must be a TaskGraph, such as kt\.TaskGraph\(.*not \[Task"),
        ({"run_id": 7}, "run_id must be a str, such as 'tides-1', not 7"),
        ({"config": {"task_timeout": 5}}, "config must be a TeamConfig, such as .*, not {'task_timeout': 5}"),
    ],
)
async def test_audit_g15_a_plan_is_a_graph_and_a_config_a_config(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await kt.run(kt.Team("t", [kt.Member("a", good)]), "g", **given)


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


async def test_run_works_where_a_loop_runs_already_and_run_sync_says_so_in_one_sentence() -> None:
    team = kt.Team("t", [kt.Member("a", good)])
    with pytest.raises(Misuse) as refused:
        kt.run_sync(team, "Explain tides.")
    said = "run_sync is for code without an event loop, and here one runs: write await kt.run(...)"
    assert str(refused.value) == said
    assert (await kt.run(team, "Explain tides.")).status is kt.TeamStatus.COMPLETED


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
