"""Reviews against what is known to go wrong with them elsewhere, each by its id."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Rubric, SimpleEvaluationStrategy, checks
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from tests.evaluators.judge_rig import Judging, reviewed

pytestmark = pytest.mark.anyio

RUBRIC = Rubric([Criterion("plain", "a child understands it", by="judge")])
TEXT = "The moon pulls the sea."


class Does:
    """An evaluator that does one thing, whatever it is shown."""

    def __init__(self, deed: Callable[[kt.EvaluationContext], Any]) -> None:
        self.deed = deed

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        made = self.deed(context)
        verdict: kt.EvaluationVerdict = await made if hasattr(made, "__await__") else made
        return verdict


async def team_of(agent: Any, evaluator: Any, judge: ChatModel | None = None, **config: Any) -> kt.TeamResult:
    runtime = kt.Runtime(models={} if judge is None else {"test:judge": judge})
    team = kt.Team("team", [kt.Member("writer", agent)], runtime=runtime)
    coordinator = ExpertTeamCoordinator(evaluator=evaluator, judge=None if judge is None else "test:judge")
    asked = kt.TeamExecutionRequest("Explain tides.", config=kt.TeamConfig(**config))
    return await coordinator.execute(asked, team)


class Writer:
    """A member that writes another text every time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self.asked += 1
        return f"{TEXT} This is draft {self.asked}."


def crash(_: kt.EvaluationContext) -> Any:
    raise OSError("the judge is gone")


def another_finding(context: kt.EvaluationContext) -> kt.EvaluationVerdict:
    number = context.attempt
    return kt.EvaluationVerdict.revise("no", findings=[kt.Finding(f"f{number}", observed=f"page {number}")], score=0.1)


ENDS: dict[str, tuple[Callable[[kt.EvaluationContext], Any], kt.Cause]] = {
    "it crashed": (crash, kt.Cause.EVALUATOR_ERROR),
    "it hung": (lambda _: anyio.sleep(1_000), kt.Cause.EVALUATOR_TIMEOUT),
    "it could not tell": (lambda _: kt.EvaluationVerdict.escalate(kt.Cause.UNDECIDED, "hm"), kt.Cause.UNDECIDED),
    "its rounds are used up": (another_finding, kt.Cause.ROUNDS_EXHAUSTED),
}


@pytest.mark.parametrize("name", ENDS)
async def test_kf_e04_each_way_a_review_ends_without_a_verdict_has_a_cause_of_its_own(name: str) -> None:
    """E04: crash, exhaustion and failure share one code."""
    deed, cause = ENDS[name]
    result = await team_of(Writer(), Does(deed), review_timeout=5.0, max_feedback_rounds=1)
    verdict = result["writer"].verdict
    assert verdict is not None
    assert verdict.cause is cause
    assert [other for other in ENDS if ENDS[other][1] is cause] == [name]


async def test_kf_e04_a_member_that_fails_is_no_verdict_and_a_judge_without_money_has_its_own_cause() -> None:
    async def gone(_: kt.Assignment) -> str:
        raise OSError("gone")

    assert (await team_of(gone, RUBRIC, Judging({"plain": "met"}).model))["writer"].verdict is None
    short = await team_of(Writer(), RUBRIC, Judging({"plain": "met"}).model, budget=kt.Budget(tokens=100))
    verdict = short["writer"].verdict
    assert verdict is not None
    assert verdict.cause is kt.Cause.JUDGE_BUDGET


NO_SCORES: list[Any] = [-0.01, 1.01, 7, math.nan, math.inf, -math.inf, "high"]


@pytest.mark.parametrize("number", NO_SCORES)
@pytest.mark.parametrize("name", ["score", "confidence"])
async def test_kf_e08_what_is_no_score_is_refused_and_never_leaves_a_run(name: str, number: Any) -> None:
    """E08: scores outside 0..1 or NaN escaped."""
    good = kt.EvaluationVerdict.passed(1.0)
    with pytest.raises(ValueError, match=name):
        replace(good, **{name: number})
    result = await team_of(Writer(), Does(lambda _: replace(good, **{name: number})))
    verdict = result["writer"].verdict
    assert verdict is not None
    assert (verdict.cause, verdict.score, verdict.confidence) == (kt.Cause.EVALUATOR_ERROR, None, None)
    assert result.status is kt.TeamStatus.FAILED


@pytest.mark.parametrize("said", [*NO_SCORES, None, True, [0.9]])
async def test_kf_e08_a_confidence_that_is_none_is_left_out(said: Any) -> None:
    judge = Judging({"plain": "met"}, extra={"confidence": said})
    verdict = await AgentEvaluationStrategy("test:judge", RUBRIC).evaluate(reviewed(TEXT, judge.model))
    assert (verdict.outcome, verdict.confidence) == (kt.VerdictOutcome.PASS, None)


async def test_kf_e09_the_time_of_a_verdict_is_no_part_of_it() -> None:
    """E09: verdicts carry the time, so equality cannot be tested."""
    strategy = SimpleEvaluationStrategy(Rubric([Criterion("short", "short", checks.max_words(9))]))
    one = await strategy.evaluate(reviewed(TEXT))
    other = await strategy.evaluate(reviewed(TEXT))
    assert one.evaluated_at < other.evaluated_at
    assert (one, hash(one)) == (other, hash(other))
    assert one != await strategy.evaluate(reviewed(TEXT * 9))


HOLES = "{{ token }} {% for c in criteria %}{{ c.id }}{% endfor %} {# gone #} {0} $token"


async def test_kf_e12_whatever_a_template_is_filled_with_is_not_filled_in_again() -> None:
    """E12: template filled in two passes: the artifact's text was substituted."""
    judge = Judging({"plain": "not met"}, write=lambda reply: json.dumps(reply) if len(judge.asked) > 1 else HOLES)
    rubric = Rubric([Criterion("plain", f"no holes such as {HOLES}", by="judge")])
    context = reviewed(f"It says {HOLES}", judge.model, task=f"Mend {HOLES}")
    context = replace(context, goal=f"Whole: {HOLES}", upstream={"a": kt.Artifact(f"Before: {HOLES}")})
    verdict = await AgentEvaluationStrategy("test:judge", rubric).evaluate(context)
    assert verdict.outcome is kt.VerdictOutcome.REVISE
    told, work, after, *_ = judge.asked[1].messages
    assert f"no holes such as {HOLES}" in told.text
    shown = [json.loads(text) for text in re.findall(r"^=+ \w+\n(.*)\n=+ \w+$", after.text, re.MULTILINE)]
    assert shown == [f"{said} {HOLES}" for said in ("Mend", "Whole:", "Before:")]
    assert json.loads(work.text.splitlines()[1]) == f"It says {HOLES}"


async def test_kf_e13_the_members_model_never_judges_unless_that_was_said() -> None:
    """E13: judge defaulted to the generator's own model."""
    writer = ScriptedModel([TEXT] * 9, name="test:writer")
    judge = Judging({"plain": "met"})
    recorder = EventRecorder()
    runtime = kt.Runtime(models={"test:writer": writer, "test:judge": judge.model}, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("writer", kt.MiniAgent("test:writer"))], runtime=runtime)
    refused = await kt.run(team, "Explain tides.", coordinator=ExpertTeamCoordinator(evaluator=RUBRIC))
    assert (refused.refused, len(writer.calls)) == (True, 0)
    coordinator = ExpertTeamCoordinator(evaluator=RUBRIC, judge="test:judge")
    result = await kt.run(team, "Explain tides.", coordinator=coordinator)
    assert result.status is kt.TeamStatus.COMPLETED
    assert (len(writer.calls), len(judge.asked)) == (1, 1)
    called = [(event.member, event.model) for event in recorder.of(events.ModelCalled)]
    assert called == [("writer", "test:writer"), (None, "test:judge")]


@pytest.mark.parametrize("rounds", [0, 3])
async def test_kf_e18_a_judge_that_never_replies_in_its_form_is_asked_twice_and_no_round_is_spent(rounds: int) -> None:
    """E18: judge retries unbounded on bad JSON."""
    judge, writer = FunctionModel(lambda _: "It is fine.", name="test:judge"), Writer()
    result = await team_of(writer, RUBRIC, judge, max_feedback_rounds=rounds)
    verdict = result["writer"].verdict
    assert verdict is not None
    assert verdict.cause is kt.Cause.EVALUATOR_ERROR
    assert (len(judge.calls), writer.asked) == (2, 1)
