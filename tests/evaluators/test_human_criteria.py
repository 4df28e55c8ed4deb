"""Rubrics with a person's criterion can be calibrated, scored and evaluated: the judge's part counts as it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evals import Case, Dataset, EvalResult, run_eval
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    CascadeEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    Rubric,
    calibrate,
    checks,
    score_judge,
)
from kairo_team.testing import ScriptedJudge
from kairo_team.views.eval_table import draw_eval
from tests.evaluators.calibration_doubles import Told, labels
from tests.evaluators.judge_rig import reviewed

pytestmark = pytest.mark.anyio

RUBRIC = Rubric(
    [
        Criterion("plain", "a child understands it", by="judge"),
        Criterion("short", "at most twelve words", checks.max_words(12)),
        Criterion("sign", "the editor signs it", by="human"),
    ]
)
STRATEGY = AgentEvaluationStrategy("test:judge", RUBRIC)


def judging() -> dict[str, Any]:
    return {"test:judge": ScriptedJudge(lambda _, work: "not met" if "hermeneutics" in work else "met")}


GOOD = [LabelledArtifact(f"The moon pulls sea {number}.", "Explain tides.", passed=True) for number in range(40)]
BAD = [LabelledArtifact(f"Lunar hermeneutics {number}.", "Explain tides.", passed=False) for number in range(40)]


async def test_a_judge_is_scored_on_its_own_part_and_the_persons_has_a_column() -> None:
    found = await score_judge(STRATEGY, [*GOOD, *BAD], models=judging())
    report = found.report
    assert (report.coverage.k, report.false_pass.k, report.false_revise.k) == (80, 0, 0)
    assert (report.awaits_person.k, report.awaits_person.n) == (40, 40)
    assert report.to_json()["awaits_person"]["k"] == 40
    assert report.no_answer == {}


async def test_without_a_persons_criterion_none_awaits_one() -> None:
    strategy = AgentEvaluationStrategy("test:judge", Rubric(RUBRIC.criteria[:2]))
    found = await score_judge(strategy, [*GOOD[:5], *BAD[:5]], models=judging())
    assert (found.report.awaits_person.k, found.report.awaits_person.n) == (0, 5)


class AwaitsUnsurely(Told):
    """All that is missing is a person's approval, and its judge does not say how sure it is."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        verdict = kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "the editor signs it")
        return replace(verdict, usage=kt.Usage(prompt_tokens=7))


async def test_a_decision_does_not_await_the_person_of_an_earlier_stage_that_decided_nothing() -> None:
    cascade = CascadeEvaluationStrategy([AwaitsUnsurely(), Told()])
    found = await score_judge(cascade, labels((6, "pass 0.9", True)))
    assert (found.report.awaits_person.k, found.report.awaits_person.n) == (0, 6)


async def test_it_is_calibrated_and_a_person_still_decides_in_a_run() -> None:
    found = await calibrate(STRATEGY, [*GOOD, *BAD], models=judging())
    assert {one.outcome for one in found.certificates} == {"pass", "revise"}
    strategy = CalibratedEvaluationStrategy(STRATEGY, found.certificates)
    sure = await strategy.evaluate(reviewed("The moon pulls the sea.", judging()["test:judge"]))
    assert (sure.awaits_approval, sure.cause) == (True, kt.Cause.HUMAN_REQUIRED)
    doubtful = ScriptedJudge(confidence=0.1)
    verdict = await strategy.evaluate(reviewed("The moon pulls the sea.", doubtful))
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.LOW_CONFIDENCE)
    assert verdict.other_causes == (kt.Cause.HUMAN_REQUIRED,)
    assert not verdict.awaits_approval, "an approval alone does not make it a PASS: the judge was not sure"


def desk(**runtime: Any) -> kt.Team:
    async def write(assignment: kt.Assignment) -> str:
        return assignment.goal

    return kt.Team("desk", [kt.Member("writer", write)], runtime=kt.Runtime(models=judging(), **runtime))


CASES = Dataset([Case("good", "The moon pulls the sea."), Case("bad", "Lunar hermeneutics.")], "tides")


async def test_an_eval_passes_what_only_awaits_a_person_and_says_so(tmp_path: Path) -> None:
    result = await run_eval(desk(), CASES, RUBRIC, judge="test:judge")
    assert [(one.case, one.outcome, one.awaits_person) for one in result.trials] == [
        ("good", "pass", True),
        ("bad", "fail", False),
    ]
    assert result.metrics["awaits_person_rate"] == 0.5
    assert "await a person" in draw_eval(result)
    result.save(tmp_path / "result.json")
    assert EvalResult.load(tmp_path / "result.json") == result


async def test_a_rubric_without_such_a_criterion_has_no_such_column() -> None:
    result = await run_eval(desk(), CASES, Rubric(RUBRIC.criteria[:2]), judge="test:judge")
    assert "awaits_person_rate" not in result.metrics
    assert "await a person" not in draw_eval(result)


async def test_the_gate_of_the_teams_runtime_is_asked_inside_a_trial_and_never_about_the_evals_review() -> None:
    asked: list[str] = []

    def answer(question: kt.HumanRequest) -> bool:
        asked.append(question.id)
        return True

    await run_eval(desk(gate=kt.CallbackGate(answer)), CASES, RUBRIC, judge="test:judge")
    assert asked == []
    inner = kt.Rubric([kt.Criterion("sign", "the editor signs it", by="human")])
    team = desk(gate=kt.CallbackGate(answer))
    result = await run_eval(
        team, CASES, RUBRIC, judge="test:judge", coordinator=kt.ExpertTeamCoordinator(evaluator=inner)
    )
    assert len(asked) == 2
    assert [one.outcome for one in result.trials] == ["pass", "fail"]
