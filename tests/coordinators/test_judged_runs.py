"""Judges in runs: wired by the coordinator, paid from the reviews' share, and refused where they cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import ExpertTeamCoordinator, Reviewers, TaskDispatchCoordinator
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    Criterion,
    PanelEvaluationStrategy,
    Rubric,
    all_of,
    checks,
)
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedAgent
from tests.evaluators.judge_rig import Judging

pytestmark = pytest.mark.anyio

RUBRIC = Rubric([Criterion("plain", "a child understands it", by="judge")])
HARD = {"plain": {"answer": "not met", "observed": "too hard"}}


def writer(said: list[kt.Assignment]) -> Any:
    async def write(assignment: kt.Assignment) -> str:
        said.append(assignment)
        return "The moon pulls the sea." if assignment.findings else "Gravitation acts on the hydrosphere."

    return write


def answers(request: kt.ModelRequest, judge: Judging) -> str:
    hard = "hydrosphere" in request.messages[1].text
    judge.says = HARD if hard else {"plain": "met"}
    return judge.answer(request)


def judge_model() -> ChatModel:
    judge = Judging({})
    return FunctionModel(lambda request: answers(request, judge), name="test:judge")


async def run(coordinator: Any, *, budget: kt.Budget | None = None, **fields: Any) -> tuple[kt.TeamResult, Any, Any]:
    said: list[kt.Assignment] = []
    recorder = EventRecorder()
    runtime = kt.Runtime(models={"test:judge": judge_model()}, subscribers=[recorder])
    team = kt.Team(
        "team", [kt.Member("writer", writer(said))], runtime=runtime, evaluators=fields.pop("evaluators", {})
    )
    config = kt.TeamConfig(budget=budget or kt.Budget(), **fields.pop("config", {}))
    request = kt.TeamExecutionRequest("Explain tides.", config=config, **fields)
    return await coordinator.execute(request, team), said, recorder


@pytest.mark.parametrize(
    "fields",
    [
        {"judge": "test:judge", "evaluator": RUBRIC},
        {"evaluator": AgentEvaluationStrategy("test:judge", RUBRIC)},
        {"evaluator": PanelEvaluationStrategy(["test:judge", "test:judge"], RUBRIC)},
        {
            "evaluator": all_of(
                AgentEvaluationStrategy("test:judge", RUBRIC), Rubric([Criterion("w", "w", checks.max_words(9))])
            )
        },
    ],
    ids=["wired", "agent", "panel", "all_of"],
)
async def test_a_judge_sends_an_artifact_back_and_passes_the_next(fields: dict[str, Any]) -> None:
    result, said, recorder = await run(ExpertTeamCoordinator(**fields), budget=kt.Budget(tokens=100_000))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "The moon pulls the sea.")
    assert [finding.observed for finding in said[1].findings if finding.status == "open"] == ["too hard"]
    assert result.usage.tokens > 0
    tree = result.budget
    assert tree is not None
    spent = {node.name: node.usage.tokens for node in tree.children}
    assert (spent["evaluate"], spent["writer"]) == (result.usage.tokens, 0)
    verdicts = [event.verdict for event in recorder.events if event.type == "evaluation.result"]
    assert sum(verdict.usage.tokens for verdict in verdicts) == result.usage.tokens
    assert all(event.member is None for event in recorder.events if event.type == "model.called")


async def test_without_a_rubric_a_judge_says_whether_the_task_was_done() -> None:
    judge = Judging({"task": "met"})
    runtime = kt.Runtime(models={"test:judge": judge.model})
    team = kt.Team("team", [kt.Member("a", ScriptedAgent(["The moon pulls the sea."]))], runtime=runtime)
    result = await ExpertTeamCoordinator(judge="test:judge").execute(kt.TeamExecutionRequest("Explain tides."), team)
    assert (result.status, len(judge.asked)) == (kt.TeamStatus.COMPLETED, 1)
    assert "Explain tides." in judge.asked[0].messages[2].text


async def test_a_task_that_names_a_rubric_gets_the_coordinators_judge() -> None:
    plan = kt.TaskGraph([kt.Task("t", "Explain.", evaluator="plain")])
    result, said, _ = await run(ExpertTeamCoordinator(judge="test:judge"), plan=plan, evaluators={"plain": RUBRIC})
    assert (result.status, len(said)) == (kt.TeamStatus.COMPLETED, 2)


async def test_judges_never_eat_the_members_money() -> None:
    coordinator = ExpertTeamCoordinator(judge="test:judge", evaluator=RUBRIC)
    result, said, _ = await run(coordinator, budget=kt.Budget(tokens=1_000))
    assert result.usage.tokens <= 200
    assert result["writer"].verdict is not None
    assert result["writer"].verdict.cause is kt.Cause.JUDGE_BUDGET
    assert len(said) == 1


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (ExpertTeamCoordinator(evaluator=RUBRIC), {}, "judge"),
    (
        ExpertTeamCoordinator(judge="test:judge", evaluator=Rubric([Criterion("w", "w", checks.max_words(9))])),
        {},
        "no criterion",
    ),
    (ExpertTeamCoordinator(judge="nobody:knows", evaluator=RUBRIC), {}, "nobody"),
    (ExpertTeamCoordinator(evaluator=Rubric([Criterion("s", "signed", by="human")])), {}, "gate"),
    (ExpertTeamCoordinator(), {"config": {"risk_profile": kt.RiskProfile.HIGH}}, "HIGH"),
    (
        TaskDispatchCoordinator(),
        {"plan": kt.TaskGraph([kt.Task("t", "do", evaluator="plain")]), "evaluators": {"plain": RUBRIC}},
        "judge",
    ),
]


@pytest.mark.parametrize(("coordinator", "fields", "complaint"), REFUSED)
async def test_kf_e03_what_a_criterion_needs_and_nobody_wired_is_refused_before_work_starts(
    coordinator: Any, fields: dict[str, Any], complaint: str
) -> None:
    """E03: judge wanted but not wired: silently the weaker one; HIGH risk got the weakest."""
    result, said, _ = await run(coordinator, **fields)
    assert (result.status, result.refused, said) == (kt.TeamStatus.FAILED, True, [])
    assert complaint in (result.error or "")


async def test_kt_check_says_what_reviews_lack() -> None:
    team = kt.Team("team", [kt.Member("writer", writer([]))])
    found = kt.check(team, "Explain tides.", coordinator=ExpertTeamCoordinator(evaluator=RUBRIC))
    assert not found.ok
    assert "judge" in found.problems[0]


async def test_a_plan_that_a_person_could_review_is_checked_again_for_a_run_without_one() -> None:
    rubric = Rubric([Criterion("sign-off", "an editor agrees", by="human")])
    team = kt.Team("desk", [kt.Member("writer", writer([]))], runtime=kt.Runtime())
    found: list[str] = []
    async with kt.TeamRun.open(kt.TeamExecutionRequest("Explain tides."), team) as run:
        graph = await run.plan(kt.TaskGraph([kt.Task("write", "Write it.")]))
        reviewers = Reviewers(run.team, rubric)
        found += reviewers.problems(graph, run.config, gated=True)
        reviewers.check(run, graph, gated=False)
    assert (found, run.result.refused) == ([], True)
    assert "sign-off" in (run.result.error or "")


async def test_kf_e03_e19_what_is_calibrated_names_its_judge_before_work_starts_and_pays_it_from_its_share() -> None:
    calibrated = CalibratedEvaluationStrategy(AgentEvaluationStrategy("test:judge", RUBRIC), [])
    result, said, recorder = await run(ExpertTeamCoordinator(evaluator=calibrated), budget=kt.Budget(tokens=100_000))
    (verdict,) = [event.verdict for event in recorder.events if event.type == "evaluation.result"]
    assert (verdict.cause, verdict.usage.tokens) == (kt.Cause.LOW_CONFIDENCE, result.usage.tokens)
    unknown = CalibratedEvaluationStrategy(AgentEvaluationStrategy("nowhere:judge", RUBRIC), [])
    result, said, _ = await run(ExpertTeamCoordinator(evaluator=unknown))
    assert (result.status, said) == (kt.TeamStatus.FAILED, [])
    assert "nowhere:judge" in (result.error or "")
