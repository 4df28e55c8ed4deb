"""What must work wherever the package is installed: a team, a graph, a review, a budget, a kill."""

from __future__ import annotations

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


async def draft(assignment: kt.Assignment) -> str:
    return "word " * (30 if assignment.attempt == 1 else 10)


async def test_a_team_plans_generates_reviews_and_revises() -> None:
    rubric = Rubric([Criterion("short", "at most 20 words", checks.max_words(20))])
    team = kt.Team("desk", [kt.Member("writer", draft)])
    result = await kt.run(team, "Write.", coordinator=ExpertTeamCoordinator(evaluator=rubric))
    assert result.check()["writer"].attempts == 2


async def test_a_graph_runs_and_a_lost_branch_does_not_take_the_other_along() -> None:
    def fail(_: kt.Assignment) -> str:
        raise OSError("no disk")

    team = kt.Team("board", [kt.Member("good", draft), kt.Member("bad", fail)])
    plan = kt.TaskGraph(
        [
            kt.Task("a", "do", role="good"),
            kt.Task("b", "do", role="bad"),
            kt.Task("c", "do", role="good", depends_on=["a"]),
        ]
    )
    result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan))
    assert result.status is kt.TeamStatus.DEGRADED
    assert [outcome.status.value for outcome in result.outcomes] == ["completed", "failed", "completed"]


async def test_a_budget_holds_at_any_width() -> None:
    model = FunctionModel(lambda _: "word " * 20)
    role = kt.Role("writer", "Say it.")
    team = kt.Team("wide", [kt.Member(role, kt.MiniAgent(model, max_turns=1, settings={"max_tokens": 50}))])
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do", role="writer") for number in range(32)])
    config = kt.TeamConfig(budget=kt.Budget(tokens=250))
    result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan, config=config))
    assert 0 < result.usage.tokens <= 250


async def test_a_kill_brings_back_what_was_kept() -> None:
    async def slow(_: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half a page")
        await anyio.sleep(3600)
        return "never"

    runtime, request = kt.Runtime(), kt.TeamExecutionRequest("go")
    async with anyio.create_task_group() as group:

        async def kill() -> None:
            await anyio.sleep(1)
            runtime.runs[request.run_id].cancel("enough")

        group.start_soon(kill)
        result = await kt.run(kt.Team("t", [kt.Member("slow", slow)]), request, runtime=runtime)
        assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "enough")
        artifact = result["slow"].artifact
        assert artifact is not None
        assert artifact.partial
        assert artifact.text == "half a page"
