"""Work that was cut short shows it to every reviewer, and makes the run DEGRADED whoever passed it."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, Rubric, SimpleEvaluationStrategy
from kairo_team.governance import MaxIterations
from kairo_team.testing import EventRecorder, FunctionModel

pytestmark = pytest.mark.anyio

SEEN: list[bool] = []
CUT = kt.ModelResponse("The moon pulls", usage=kt.Usage(20, 20), finish_reason="length")


def sees(artifact: kt.Artifact) -> bool:
    SEEN.append(artifact.partial)
    return True


def cut_off(max_turns: int = 1) -> kt.MiniAgent:
    return kt.MiniAgent(FunctionModel(lambda _: CUT), max_turns=max_turns)


async def run(coordinator: Any, agent: Any = None, **member: Any) -> tuple[kt.TeamResult, EventRecorder]:
    recorder = EventRecorder()
    members = [kt.Member("writer", agent or cut_off(), **member)]
    team = kt.Team("desk", members, runtime=kt.Runtime(subscribers=[recorder]))
    plan = kt.TaskGraph([kt.Task("t", "Explain tides.", retries=0)])
    return await kt.run(team, "Explain tides.", plan=plan, coordinator=coordinator), recorder


RUBRIC = Rubric([Criterion("sees", "it sees the artifact", check=sees)])


@pytest.mark.parametrize(
    "coordinator",
    [
        TaskDispatchCoordinator(),
        ExpertTeamCoordinator(),
        ExpertTeamCoordinator(evaluator=SimpleEvaluationStrategy()),
        ExpertTeamCoordinator(evaluator=RUBRIC),
    ],
    ids=["unreviewed", "by default", "not blank", "by a rubric"],
)
async def test_work_that_was_cut_short_makes_the_run_degraded_whoever_passed_it(coordinator: Any) -> None:
    SEEN.clear()
    result, _ = await run(coordinator)
    assert result.status is kt.TeamStatus.DEGRADED
    assert result.artifact is not None
    assert result.artifact.partial
    assert result["t"].warnings == ("the accepted work was cut short: the agent reached its turn limit: 1 of 1 turns",)
    assert all(SEEN)
    if getattr(coordinator, "evaluator", None) is RUBRIC:
        assert SEEN


async def test_the_default_review_gives_no_score_and_says_what_it_looked_at() -> None:
    result, recorder = await run(ExpertTeamCoordinator())
    verdict = result["t"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.score, verdict.feedback) == (
        kt.VerdictOutcome.PASS, None, "not blank, cut short"
    )  # fmt: skip
    (reviewed,) = recorder.of(events.EvaluationResult)
    assert (reviewed.verdict.score, reviewed.verdict.feedback) == (None, "not blank, cut short")
    whole, _ = await run(ExpertTeamCoordinator(), kt.MiniAgent(FunctionModel(lambda _: "The moon.")))
    assert whole["t"].verdict is not None
    assert (whole["t"].verdict.score, whole["t"].verdict.feedback) == (None, "not blank")
    assert whole.status is kt.TeamStatus.COMPLETED


async def test_a_constraint_that_ended_an_agent_is_its_reason() -> None:
    result, recorder = await run(TaskDispatchCoordinator(), cut_off(max_turns=9), constraints=[MaxIterations(2)])
    (finished,) = recorder.of(events.AttemptFinished)
    assert finished.status == "graceful_exit"
    assert result.status is kt.TeamStatus.DEGRADED
    assert "'max-iterations': 2 of 2 iterations" in result["t"].warnings[-1]
    assert "turn limit" not in " ".join(result.warnings)
