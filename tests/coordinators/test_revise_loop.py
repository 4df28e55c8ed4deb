"""What reaches a member from round to round, and what it is judged by: a few findings, and criteria that stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.team_agent import TeamAgent
from kairo_team.contracts import EvaluationStrategy
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.coordinators.review_rounds import MOST_FINDINGS, findings_for_next_attempt
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CascadeEvaluationStrategy,
    Criterion,
    CriterionResult,
    Rubric,
    SimpleEvaluationStrategy,
    all_of,
    any_of,
    checks,
)
from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedAgent, ScriptedModel
from tests.coordinators.bench import Bench, Decisions, Verdicts, left_open, task
from tests.evaluators.judge_rig import Judging

pytestmark = pytest.mark.anyio

REVISE, ESCALATE, EXCEEDED = (
    kt.VerdictOutcome.REVISE,
    kt.VerdictOutcome.ESCALATE,
    kt.VerdictOutcome.REVIEW_EXCEEDED,
)


def names(*words: str) -> Rubric:
    """A rubric that asks for words."""
    return Rubric([Criterion(word, f"it names the {word}", checks.contains(word)) for word in words])


async def run(evaluator: Any, agent: Any, recorder: EventRecorder | None = None, **config: Any) -> kt.TaskOutcome:
    runtime = kt.Runtime(subscribers=[recorder] if recorder else [])
    team = kt.Team("team", [kt.Member("writer", agent)], runtime=runtime)
    request = kt.TeamExecutionRequest("Explain tides.", config=kt.TeamConfig(**config))
    return (await ExpertTeamCoordinator(evaluator=evaluator).execute(request, team))["writer"]


# ---------------------------------------------------------------- what a member is told


SEVEN = ("moon", "sea", "day", "wave", "sun", "shore", "wind")


class Diligent:
    """A member that mends what it is told, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[kt.Assignment] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self.calls.append(assignment)
        before = assignment.previous.text if assignment.previous else "Tides:"
        told = [str(finding.criterion) for finding in assignment.findings if finding.status != "closed"]
        return " ".join([before, *told])

    def told(self, *status: str) -> list[list[str | None]]:
        return [[one.criterion for one in call.findings if one.status in status] for call in self.calls]


async def test_kf_e15_five_defects_are_told_at_once_and_the_others_later() -> None:
    """E15. Nothing is lost meanwhile: the verdict, the event and the result have them all."""
    member, recorder = Diligent(), EventRecorder()
    outcome = await run(names(*SEVEN), member, recorder)
    assert outcome.verdict is not None
    assert (outcome.status, outcome.verdict.outcome) == (kt.TaskStatus.COMPLETED, kt.VerdictOutcome.PASS)
    assert member.told("open", "regressed") == [[], list(SEVEN[:5]), list(SEVEN[5:])]
    assert member.told("closed") == [[], [], list(SEVEN[:5])]
    first, second, last = [event.verdict for event in recorder.of(events.EvaluationResult)]
    assert [[one.criterion for one in v.findings if one.severity == "blocking"] for v in (first, second, last)] == [
        list(SEVEN), list(SEVEN[5:]), []
    ]  # fmt: skip


async def test_what_a_member_is_told_of_is_what_moves_the_outcome_most() -> None:
    light = [
        Criterion(f"g{n}", f"it says g{n}", checks.contains(f"g{n}"), kind="graded", weight=n) for n in range(1, 6)
    ]
    gates = [Criterion(word, f"it names the {word}", checks.contains(word)) for word in ("moon", "sea")]
    member = Diligent()
    await run(Rubric([*light, *gates]), member, max_feedback_rounds=2)
    assert member.told("open") == [[], ["moon", "sea", "g5", "g4", "g3"], ["g2", "g1"]]


async def test_the_prompt_says_what_to_leave_and_no_score_threshold_or_words_of_a_judge() -> None:
    criteria = [
        Criterion("moon", "it names the moon", checks.contains("moon"), kind="graded", weight=7),
        Criterion("kind", "it is kind", by="judge", kind="graded", weight=3),
    ]
    judge = Judging({"kind": {"answer": "not met", "observed": "it is rude", "quote": "fool"}})
    model = ScriptedModel(["The moon, fool.", "The moon, friend."])
    runtime = kt.Runtime(models={"test:judge": judge.model, "test:m": model})
    team = kt.Team("team", [kt.Member("writer", kt.MiniAgent("test:m", max_turns=1))], runtime=runtime)
    coordinator = ExpertTeamCoordinator(evaluator=Rubric(criteria, 0.875), judge="test:judge")
    config = kt.TeamConfig(budget=kt.Budget(tokens=100_000), max_feedback_rounds=1)
    await coordinator.execute(kt.TeamExecutionRequest("Explain tides.", config=config), team)
    prompt = re.sub("^=.*\n", "", "\n".join(message.text for message in model.calls[1].messages), flags=re.MULTILINE)
    assert "asks for these changes; leave everything else as it is:\n- it is rude. Wanted: it is kind" in prompt
    assert "This is right already; leave it unchanged:\n- it names the moon" in prompt
    assert [text for text in ("0.7", "0.875", 'fool"', "met", "0.9", "graded") if text in prompt] == []


async def test_an_inner_team_is_told_what_to_leave_too() -> None:
    made: list[kt.TeamExecutionRequest] = []

    class Told:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            made.append(request)
            return await ExpertTeamCoordinator().execute(request, team)

    inner = kt.Team("inner", [kt.Member("a", ScriptedAgent(["the moon", "the moon and sea"]))], coordinator=Told())
    await run(names("moon", "sea"), TeamAgent(inner))
    told = made[1].context
    assert tuple(told["findings"]) == ({"observed": "the text lacks 'sea'", "expected": "it names the sea"},)
    assert tuple(told["leave unchanged"]) == ("it names the moon",)


async def test_what_a_person_wants_is_the_first_of_the_five() -> None:
    found = [kt.Finding(f"f{n}") for n in range(7)]
    gate = Decisions(kt.HumanDecision.revise("kinder"), None)
    agent = ScriptedAgent(["one", "two"])
    bench = Bench(kt.Member("a", agent))
    coordinator = ExpertTeamCoordinator(
        evaluator=Verdicts([kt.EvaluationVerdict.revise("no", findings=found)] * 2), gate=gate
    )
    await bench.run(coordinator, task("t"), max_feedback_rounds=0)
    assert [finding.id for finding in agent.calls[1].findings] == ["person", "f0", "f1", "f2", "f3"]
    assert len(gate.asked[0].findings) == 7


async def test_a_person_is_asked_about_what_is_wrong_and_not_about_what_was() -> None:
    found = [kt.Finding("a"), kt.Finding("b", status="closed")]
    gate = Decisions(kt.HumanDecision.approve())
    bench = Bench(kt.Member("a", ScriptedAgent(["one"])))
    verdict = left_open(kt.Cause.HUMAN_REQUIRED, findings=found)
    await bench.run(ExpertTeamCoordinator(evaluator=Verdicts([verdict]), gate=gate), task("t"))
    assert [finding.id for finding in gate.asked[0].findings] == ["a"]


def test_a_closed_finding_is_nothing_to_act_on() -> None:
    with pytest.raises(ValueError, match="at least one blocking finding"):
        kt.EvaluationVerdict.revise("no", findings=[kt.Finding("a", status="closed")])


FINDINGS = st.builds(
    kt.Finding,
    id=st.sampled_from("abcdefghij"),
    criterion=st.sampled_from([None, *"abcdefghij"]),
    severity=st.sampled_from(["blocking", "info"]),
    observed=st.just("wrong"),
    status=st.sampled_from(["open", "closed", "regressed"]),
)
RESULTS = st.builds(
    CriterionResult,
    id=st.sampled_from("abcdefghij"),
    level=st.just("level"),
    passed=st.sampled_from([True, False, None]),
    reason=st.just("said by a judge"),
    quote=st.just("quoted by a judge"),
    text=st.just("text"),
)


@given(st.lists(FINDINGS, max_size=12), st.lists(RESULTS, max_size=8))
def test_kf_e15_at_most_five_of_what_blocks_are_told_the_first_ones(
    findings: list[kt.Finding], criteria: list[CriterionResult]
) -> None:
    verdict = kt.EvaluationVerdict.escalate("undecided", findings=findings, criteria=criteria)
    told = findings_for_next_attempt(verdict)
    wrong = [finding for finding in findings if finding.status != "closed"]
    blocking = [finding for finding in wrong if finding.severity == "blocking"]
    assert [finding for finding in told if finding.severity == "blocking"] == blocking[:MOST_FINDINGS]
    right = [finding for finding in told if finding.is_right]
    named = {finding.criterion or finding.id: finding.status for finding in right}
    closed = {finding.criterion or finding.id for finding in findings if finding.status == "closed"}
    met = closed | {one.id for one in criteria if one.passed}
    assert sorted(named) == sorted(met - {finding.criterion or finding.id for finding in wrong})
    assert len(named) == len(right)
    assert {name for name, status in named.items() if status == "closed"} == closed & named.keys()
    assert "by a judge" not in str(told)
    assert told[len(told) - len(right) :] == tuple(right), "behind what is wrong"


async def test_the_next_prompt_has_suggestions_feedback_and_how_a_defect_is_checked_again() -> None:
    prompts: list[str] = []

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        prompts.append(context.render("task", assignment=assignment, limits=""))
        return f"version {assignment.attempt}"

    short = kt.Finding("length", observed="one word", expected="two words", recheck="the words are counted")
    verdicts = [
        kt.EvaluationVerdict.revise("The tone is right.", findings=[short], suggestions=["Name the moon."]),
        kt.EvaluationVerdict.revise("one word; no date", findings=[short]),
        kt.EvaluationVerdict.passed(1.0),
    ]
    team = kt.Team("press", [kt.Member("writer", write)])
    result = await kt.run(team, "Write.", coordinator=ExpertTeamCoordinator(evaluator=Verdicts(verdicts)))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    first, second, third = prompts
    for told in ("The tone is right.", "Name the moon.", "the words are counted"):
        assert told not in first
        assert told in second
    assert "no date" not in third, "a summary of findings would also tell those that are held back"


# ---------------------------------------------------------------- frozen criteria


class Swapping:
    """A strategy with another rubric for every artifact."""

    def __init__(self, *rubrics: Rubric) -> None:
        self._rubrics = rubrics
        self.reviews = 0

    @property
    def rubric(self) -> Rubric:
        return self._rubrics[self.reviews]

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        rubric, self.reviews = self.rubric, self.reviews + 1
        return await rubric.evaluate(context)


MOON, SEA = names("moon"), names("sea")
NO = kt.EvaluationVerdict.revise("no")
WIRED: dict[str, Callable[[Swapping], EvaluationStrategy]] = {
    "itself": lambda strategy: strategy,
    "all_of": lambda strategy: all_of(SimpleEvaluationStrategy(), strategy),
    "any_of": lambda strategy: any_of(Verdicts([NO, NO]), strategy),
    "cascade": lambda strategy: CascadeEvaluationStrategy([strategy, SimpleEvaluationStrategy()]),
}


@pytest.mark.parametrize("wired", WIRED)
async def test_kf_e15_criteria_that_change_between_rounds_are_an_error_of_the_evaluator(wired: str) -> None:
    """E15: moving goalposts. Which criteria they were and are is said; nobody is judged by the new ones."""
    strategy = Swapping(MOON, SEA)
    outcome = await run(WIRED[wired](strategy), ScriptedAgent(["one", "two"]))
    verdict = outcome.verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (EXCEEDED, kt.Cause.EVALUATOR_ERROR)
    assert (outcome.status, outcome.attempts) == (kt.TaskStatus.FAILED, 2)
    assert "criteria changed since the first review of task 'writer'" in verdict.feedback
    if wired == "itself":
        assert MOON.digest is not None
        assert SEA.digest is not None
        assert f"from digest {MOON.digest[:8]} to {SEA.digest[:8]}" in verdict.feedback
    assert strategy.reviews == 1


async def test_the_same_criteria_in_another_order_are_the_same() -> None:
    other = Rubric(names("moon", "sea").criteria[::-1])
    outcome = await run(Swapping(names("moon", "sea"), other), ScriptedAgent(["one", "moon and sea"]))
    assert outcome.status is kt.TaskStatus.COMPLETED


async def test_every_task_has_criteria_of_its_own() -> None:
    agent = ScriptedAgent(["moon", "sea"])
    bench = Bench(kt.Member("a", agent))
    coordinator = ExpertTeamCoordinator(evaluator=Swapping(MOON, SEA))
    result = await bench.run(coordinator, task("t"), task("u", "t"))
    assert result.status is kt.TeamStatus.COMPLETED


async def test_a_certified_strategy_has_the_criteria_it_was_certified_for() -> None:
    assert CalibratedEvaluationStrategy(SimpleEvaluationStrategy(MOON), []).digest == MOON.digest


# ---------------------------------------------------------------- where a loop ends


async def with_judge(
    says: Callable[[kt.ModelRequest, int], dict[str, str]], drafts: list[str], **config: Any
) -> tuple[kt.TaskOutcome, int]:
    """Run one task reviewed by a judge; return how it ended and how often the judge was asked."""
    judge = Judging({})

    def answer(request: kt.ModelRequest) -> str:
        judge.says = {"kind": says(request, len(judge.asked))}
        return judge.answer(request)

    strategy = AgentEvaluationStrategy("test:judge", Rubric([Criterion("kind", "it is kind", by="judge")]))
    runtime = kt.Runtime(models={"test:judge": FunctionModel(answer, name="test:judge")})
    team = kt.Team("team", [kt.Member("writer", ScriptedAgent(drafts))], runtime=runtime)
    config = {"budget": kt.Budget(tokens=1_000_000), **config}
    request = kt.TeamExecutionRequest("Explain tides.", config=kt.TeamConfig(**config))
    result = await ExpertTeamCoordinator(evaluator=strategy).execute(request, team)
    return result["writer"], len(judge.asked)


async def test_kf_e15_a_judge_that_always_finds_something_else_makes_no_progress() -> None:
    """E15: 27 rounds. One criterion has one finding, however a judge words it and wherever it sees it."""

    def nag(request: kt.ModelRequest, asked: int) -> dict[str, str]:
        return {"answer": "not met", "where": f"line {asked}", "observed": f"nit {asked}"}

    drafts = [f"Draft {number} of the text." for number in range(27)]
    outcome, asked = await with_judge(nag, drafts, max_feedback_rounds=26)
    assert outcome.verdict is not None
    assert (outcome.verdict.cause, asked) == (kt.Cause.NO_PROGRESS, 3)


async def test_kf_e16_a_judge_that_passes_the_very_words_it_sent_back_is_not_believed() -> None:
    """E16: the artifact was padded and judged again until it passed."""

    def waver(request: kt.ModelRequest, asked: int) -> dict[str, str]:
        return {"answer": "met" if asked else "not met", "quote": "you fool"}

    outcome, _ = await with_judge(waver, ["The moon, you fool.", "The moon, you fool. And padding."])
    assert outcome.verdict is not None
    assert (outcome.verdict.outcome, outcome.verdict.cause) == (ESCALATE, kt.Cause.CONTRADICTION)
    assert (outcome.status, outcome.attempts) == (kt.TaskStatus.FAILED, 2)


# ---------------------------------------------------------------- an evaluator whose own words raise


class Raising:
    """Wants a revision each time; one of its attributes raises."""

    digest = None
    vacuous = False
    models = ()

    def __init__(self, attribute: str, kind: type[BaseException]) -> None:
        self._raises = {attribute: kind}

    def __getattribute__(self, name: str) -> Any:
        kind = object.__getattribute__(self, "__dict__").get("_raises", {}).get(name)
        if kind is not None:
            raise kind("boom")
        return object.__getattribute__(self, name)

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        return []

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.revise("again", findings=[kt.Finding("f", observed=context.artifact.text)])


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
async def test_an_evaluator_that_cannot_say_whether_it_reads_conversations_has_failed_by_name(kind: Any) -> None:
    agent = ScriptedAgent(["one", "two", "three"])
    outcome = await run(Raising("reads_transcript", kind), agent, risk_profile=kt.RiskProfile.LOW)
    assert outcome.verdict is not None
    assert (outcome.verdict.outcome, outcome.verdict.cause) == (EXCEEDED, kt.Cause.EVALUATOR_ERROR)
    assert outcome.verdict.feedback.startswith("Raising: its reads_transcript raised ")
    assert "boom" in outcome.verdict.feedback
    assert outcome.attempts == 2, "the failure does not reach the member"


@pytest.mark.parametrize("attribute", ["models", "vacuous", "preflight"])
async def test_an_evaluator_that_raises_before_work_is_named_in_the_refusal(attribute: str) -> None:
    evaluator: Any = Raising(attribute, RuntimeError)
    coordinator = ExpertTeamCoordinator(evaluator=evaluator)
    team = kt.Team("team", [kt.Member("writer", ScriptedAgent([]))], coordinator=coordinator)
    refused = f"the evaluator Raising cannot review: its {attribute} raised RuntimeError: boom"
    result = await kt.run(team, "Explain tides.", config=kt.TeamConfig(risk_profile=kt.RiskProfile.HIGH))
    assert result.error is not None
    assert refused in str(result.error)


async def test_a_sentence_about_one_review_says_review() -> None:
    outcome = await run(names("moon"), ScriptedAgent(["The sea."]), max_feedback_rounds=0)
    assert "no attempt passed in 1 review;" in str(outcome.error)
