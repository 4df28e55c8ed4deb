"""The embedded model as the judge: it is tiny, so laws are asserted, and nothing of its judgement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Rubric, checks
from kairo_team.testing import EventRecorder

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.local_model,
    pytest.mark.exhaustive,
    pytest.mark.parametrize("anyio_backend", [("asyncio", {})]),
]

JUDGE = "local:smollm2"
LEVELS = ("bad", "good")
RUBRIC = Rubric(
    [
        Criterion("short", "at most 60 words", checks.max_words(60)),
        Criterion("answers", "it answers the question", by="judge", levels=LEVELS),
    ]
)
FORGERIES: dict[str, str] = json.loads(Path(__file__).with_name("data").joinpath("forgeries.json").read_text("utf-8"))[
    "forgeries"
]
TEXTS = {
    "an answer": "The moon pulls the sea towards it, and as the earth turns the water rises and falls twice a day.",
    "no answer": "Strawberries are best in June.",
    "a forgery": f"Strawberries are best in June.\n\n{FORGERIES['a finished checklist']}",
}


def says(text: str) -> kt.Member:
    return kt.Member("writer", lambda _: text)


def spent(result: kt.TeamResult, purpose: str) -> kt.Usage:
    assert result.budget is not None
    return next(node.usage for node in result.budget.children if node.name == purpose)


def check_verdict(verdict: kt.EvaluationVerdict) -> None:
    """Whatever the judge says, a verdict is one of the four, and answers come from the menu."""
    assert verdict.outcome in kt.VerdictOutcome
    assert (verdict.cause is None) == (verdict.outcome in (kt.VerdictOutcome.PASS, kt.VerdictOutcome.REVISE))
    answered = {one.id: one.level for one in verdict.criteria}
    assert answered.get("answers", "unknown") in {*LEVELS, "unknown"}
    if verdict.outcome is kt.VerdictOutcome.PASS:
        assert answered == {"short": "met", "answers": "good"}
    if verdict.outcome is kt.VerdictOutcome.REVISE:
        assert answered["answers"] == "bad"
        assert verdict.findings


@pytest.mark.parametrize("name", [pytest.param(one, marks=[] if "forg" in one else pytest.mark.long) for one in TEXTS])
async def test_whatever_it_says_there_is_a_verdict_from_the_menu_paid_by_the_reviews(name: str) -> None:
    recorder = EventRecorder()
    strategy = AgentEvaluationStrategy(JUDGE, RUBRIC, settings={"max_tokens": 400})
    team = kt.Team("team", [says(TEXTS[name])], evaluators={"strict": strategy})
    plan = kt.TaskGraph([kt.Task("t", "Explain tides.", evaluator="strict")])
    asked = kt.TeamExecutionRequest("Explain tides.", plan=plan, config=kt.TeamConfig(max_feedback_rounds=0))
    runtime = kt.Runtime(subscribers=[recorder])
    result = await kt.run(team, asked, coordinator=TaskDispatchCoordinator(), runtime=runtime)
    verdicts = [event.verdict for event in recorder.of(events.EvaluationResult)]
    check_verdict(verdicts[0])
    assert name != "a forgery" or verdicts[0].outcome is not kt.VerdictOutcome.PASS
    assert verdicts[0].usage.tokens == spent(result, "evaluate").tokens == result.usage.tokens > 0
    assert {(event.model, event.member) for event in recorder.of(events.ModelCalled)} == {(JUDGE, None)}


@pytest.mark.long
async def test_a_team_with_it_ends_within_its_budget_and_the_judge_within_its_share() -> None:
    coordinator = ExpertTeamCoordinator(evaluator=RUBRIC, judge=JUDGE)
    config = kt.TeamConfig(budget=kt.Budget(tokens=9_000), max_feedback_rounds=1)
    asked = kt.TeamExecutionRequest("Explain tides.", config=config)
    result = await kt.run(kt.Team("team", [says(TEXTS["an answer"])]), asked, coordinator=coordinator)
    verdict = result["writer"].verdict
    assert verdict is not None
    assert result.status in {kt.TeamStatus.COMPLETED, kt.TeamStatus.FAILED}
    assert (result.status is kt.TeamStatus.COMPLETED) == (verdict.outcome is kt.VerdictOutcome.PASS)
    assert 0 < spent(result, "evaluate").tokens <= 1_800
    assert result.usage.tokens <= 9_000
