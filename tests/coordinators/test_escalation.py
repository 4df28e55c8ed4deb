"""What a review leaves open goes up: to the member's senior, to a person, and then to what the risk allows."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, CriterionResult, Rubric
from kairo_team.governance import GuardrailDecision, MaxIterations, ResourceAction, ResourceValidation
from kairo_team.testing import FunctionModel, ScriptedAgent
from tests.coordinators.bench import (
    CANCELLED,
    COMPLETED,
    FAILED,
    HIGH,
    LOW,
    MEDIUM,
    ONCE,
    PASS,
    REVISE,
    SKIPPED,
    Bench,
    Decisions,
    Verdicts,
    good,
    hang,
    left_open,
    task,
)

ABOUT_THE_WORK = {
    kt.Cause.ROUNDS_EXHAUSTED,
    kt.Cause.NO_PROGRESS,
    kt.Cause.CYCLE,
    kt.Cause.UNACTIONABLE,
    kt.Cause.LOW_CONFIDENCE,
    kt.Cause.UNDECIDED,
    kt.Cause.CONTRADICTION,
}
UNSURE = left_open(kt.Cause.UNDECIDED, "hard to say", findings=[kt.Finding("tone", expected="kinder")])
FINDING = kt.Finding("f", expected="more of it")


def script(name: str, count: int = 1) -> ScriptedAgent:
    return ScriptedAgent([f"{name} {number}" for number in range(1, count + 1)])


class Pair:
    """A junior with a senior, and the evaluator of both."""

    def __init__(
        self, *verdicts: Any, junior: Any = None, senior: Any = None, gate: Any = None, **of_senior: Any
    ) -> None:
        self.junior = junior or script("junior", 9)
        self.senior = senior or script("senior", 9)
        self.evaluator = Verdicts(verdicts)
        chief = kt.Member("chief", self.senior, **of_senior)
        self.bench = Bench(kt.Member("junior", self.junior, senior=chief))
        self.gate = gate

    async def run(self, policy: FailurePolicy = ONCE, **config: Any) -> kt.TeamResult:
        coordinator = ExpertTeamCoordinator(evaluator=self.evaluator, gate=self.gate, failure_policy=policy)
        return await self.bench.run(coordinator, task("t"), **config)


# ---------------------------------------------------------------- the senior


@pytest.mark.parametrize("risk", kt.RiskProfile)
@pytest.mark.parametrize("cause", kt.Cause)
async def test_the_senior_is_asked_for_causes_about_the_work_and_no_others(
    cause: kt.Cause, risk: kt.RiskProfile
) -> None:
    """A broken judge, a suspicion and what only a person may decide skip the senior."""
    pair = Pair(left_open(cause), PASS)
    result = await pair.run(risk_profile=risk)
    if cause in ABOUT_THE_WORK:
        assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "senior 1")
        assert (result["t"].member, result["t"].attempts, result["t"].verdict) == ("chief", 2, PASS)
    else:
        assert pair.senior.calls == []
        assert result["t"].verdict == left_open(cause)
        by_risk = risk is LOW and cause not in (kt.Cause.INJECTION_SUSPECTED, kt.Cause.HUMAN_REQUIRED)
        assert result["t"].status is (COMPLETED if by_risk else FAILED)
        assert result.status is (kt.TeamStatus.DEGRADED if by_risk else kt.TeamStatus.FAILED)
    assert [event.cause for event in pair.bench.recorder.of(events.TaskEscalated)] == [cause]


async def test_the_senior_gets_the_artifact_the_findings_and_a_review_of_its_own() -> None:
    pair = Pair(UNSURE, PASS)
    await pair.run()
    (asked,) = pair.senior.calls
    assert (asked.attempt, asked.previous, tuple(asked.findings)) == (2, kt.Artifact("junior 1"), UNSURE.findings)
    own = pair.evaluator.contexts[1]
    assert (own.attempt, own.artifact, tuple(own.prior_verdicts)) == (2, kt.Artifact("senior 1"), (UNSURE,))


async def test_when_review_is_used_up_the_senior_gets_the_best_artifact_with_what_it_still_lacks() -> None:
    better = kt.EvaluationVerdict.revise("nearly", findings=[FINDING], score=0.9)
    worse = kt.EvaluationVerdict.revise("no", findings=[kt.Finding("g")], score=0.1)
    pair = Pair(better, worse, PASS)
    result = await pair.run(max_feedback_rounds=1)
    (asked,) = pair.senior.calls
    assert (asked.attempt, asked.previous, tuple(asked.findings)) == (3, kt.Artifact("junior 1"), (FINDING,))
    assert (result.output, result["t"].attempts) == ("senior 1", 3)


async def test_the_senior_has_one_attempt_and_no_rounds() -> None:
    """Rounds that are left are the junior's: what the senior makes passes or goes further up."""
    pair = Pair(UNSURE, REVISE, PASS)
    result = await pair.run(max_feedback_rounds=5)
    assert (len(pair.junior.calls), len(pair.senior.calls), len(pair.evaluator.contexts)) == (1, 1, 2)
    outcome = result["t"]
    assert outcome.status is FAILED
    assert outcome.verdict is not None
    assert outcome.verdict.cause is kt.Cause.ROUNDS_EXHAUSTED
    causes = [event.cause for event in pair.bench.recorder.of(events.TaskEscalated)]
    assert causes == [kt.Cause.UNDECIDED, kt.Cause.ROUNDS_EXHAUSTED]


@pytest.mark.parametrize(("risk", "status"), [(LOW, "degraded"), (MEDIUM, "failed"), (HIGH, "failed")])
async def test_a_senior_that_makes_nothing_is_not_retried_and_the_risk_decides_on_the_juniors_work(
    risk: kt.RiskProfile, status: str
) -> None:
    pair = Pair(UNSURE, senior=ScriptedAgent([OSError("busy"), "never asked for"]))
    result = await pair.run(FailurePolicy(retries=5, backoff=0.0), risk_profile=risk)
    assert len(pair.senior.calls) == 1
    outcome = result["t"]
    assert (result.status, outcome.artifact, outcome.verdict) == (status, kt.Artifact("junior 1"), UNSURE)
    assert outcome.attempts == 2


async def test_a_senior_may_have_a_senior() -> None:
    top, middle, junior = script("top"), script("middle"), script("junior")
    chief = kt.Member("middle", middle, senior=kt.Member("top", top))
    bench = Bench(kt.Member("junior", junior, senior=chief))
    evaluator = Verdicts([UNSURE, UNSURE, PASS])
    result = await bench.run(ExpertTeamCoordinator(evaluator=evaluator), task("t"))
    assert (result.output, result["t"].member, result["t"].attempts) == ("top 1", "top", 3)
    assert [event.member for event in bench.recorder.of(events.TaskEscalated)] == ["junior", "middle"]
    assert top.calls[0].previous == kt.Artifact("middle 1")


async def test_an_unchanged_artifact_of_the_seniors_keeps_its_verdict_and_goes_on_up() -> None:
    pair = Pair(UNSURE, senior=ScriptedAgent(["junior 1"]))
    result = await pair.run()
    assert len(pair.evaluator.contexts) == 1
    assert (result["t"].status, result["t"].verdict, result["t"].attempts) == (FAILED, UNSURE, 2)


@pytest.mark.parametrize("need", [{"member": "chief"}, {"role": "chief"}, {"requires": {"mastery"}}], ids=str)
async def test_no_task_can_be_bound_to_a_senior(need: dict[str, Any]) -> None:
    senior = script("senior")
    chief = kt.Member(kt.Role("chief", capabilities={"mastery"}), senior)
    bench = Bench(kt.Member("junior", script("junior"), senior=chief))
    result = await bench.run(ExpertTeamCoordinator(), task("t", **need))
    assert (result.status, result.refused, senior.calls) == (kt.TeamStatus.FAILED, True, [])


async def test_a_senior_has_no_task_of_a_plan_and_is_nobodys_stand_in() -> None:
    pair = Pair(junior=ScriptedAgent([OSError("gone")]))
    result = await pair.bench.run(ExpertTeamCoordinator(failure_policy=ONCE))
    assert [outcome.task_id for outcome in result.outcomes] == ["junior"]
    assert (result.status, pair.senior.calls) == (kt.TeamStatus.FAILED, [])


async def test_two_members_may_share_a_senior_whose_leases_and_budget_are_one() -> None:
    """Seniors keep `max_concurrency` too, and have one governor however many they stand above."""
    running: list[str] = []

    async def slow(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        running.append(assignment.task.id)
        assert len(running) == 1
        await anyio.sleep(5)
        context.governor.record_usage(prompt_tokens=10)
        running.remove(assignment.task.id)
        return f"mended {assignment.task.id}"

    class Picky:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return PASS if context.artifact.text.startswith("mended") else UNSURE

    chief = kt.Member("chief", slow, budget=kt.Budget(tokens=100), max_concurrency=1)
    bench = Bench(kt.Member("a", good, senior=chief), kt.Member("b", good, senior=chief))
    plan = [task("one", member="a"), task("two", member="b")]
    result = await bench.run(ExpertTeamCoordinator(evaluator=Picky()), *plan)
    assert (result.status, {o.member for o in result.outcomes}) == (kt.TeamStatus.COMPLETED, {"chief"})
    assert result.duration == pytest.approx(10.0)
    assert result.budget is not None
    (node,) = [node for node in result.budget.children if node.name == "chief"]
    assert (node.budget.tokens, node.usage.tokens, len(node.children)) == (100, 20, 2)


async def test_a_seniors_own_budget_bounds_it_and_what_both_spent_adds_up() -> None:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        reply = await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("one two three")]))
        return f"{reply.text} {len(assignment.findings)}"

    def team(tokens: int) -> Bench:
        chief = kt.Member("chief", spend, budget=kt.Budget(tokens=tokens))
        return Bench(
            kt.Member("junior", spend, senior=chief), models={"test:m": FunctionModel(lambda _: "four words it is")}
        )

    rich = await team(50).run(ExpertTeamCoordinator(evaluator=Verdicts([UNSURE, PASS])), task("t"))
    assert (rich.status, rich["t"].usage.tokens, rich["t"].usage.loops) == (kt.TeamStatus.COMPLETED, 14, 2)
    poor = await team(2).run(ExpertTeamCoordinator(evaluator=Verdicts([UNSURE, PASS])), task("t"))
    assert (poor.status, poor["t"].artifact) == (kt.TeamStatus.FAILED, kt.Artifact("four words it is 0"))
    assert poor["t"].usage.tokens == 7


@pytest.mark.parametrize(("risk", "status"), [(LOW, "degraded"), (MEDIUM, "failed")])
async def test_where_the_team_cannot_pay_for_the_senior_the_risk_decides(risk: kt.RiskProfile, status: str) -> None:
    pair = Pair(UNSURE)
    result = await pair.run(risk_profile=risk, budget=kt.Budget(loops=1))
    assert (result.status, result["t"].member, result["t"].attempts) == (status, "junior", 1)
    assert (pair.senior.calls, result["t"].artifact) == ([], kt.Artifact("junior 1"))


async def test_a_task_whose_senior_is_short_stays_with_its_member_who_may_go_on() -> None:
    """Two juniors share a senior that can pay for one task: the other's is left to a person, and made anew."""

    async def slow(assignment: kt.Assignment) -> str:
        await anyio.sleep(5)
        return "mended"

    class Picky:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return PASS if context.attempt > 1 else UNSURE

    chief = kt.Member("chief", slow, budget=kt.Budget(loops=1))
    bench = Bench(kt.Member("a", good, senior=chief), kt.Member("b", good, senior=chief))
    gate = Decisions(kt.HumanDecision.revise("kinder"))
    plan = [task("one", member="a"), task("two", member="b")]
    result = await bench.run(ExpertTeamCoordinator(evaluator=Picky(), gate=gate), *plan)
    assert sorted(str(outcome.member) for outcome in result.outcomes) in (["a", "chief"], ["b", "chief"])
    assert result.status is kt.TeamStatus.FAILED, "the one made anew is unchanged, so its verdict stands"
    assert [question.subject for question in gate.asked][1:] == [gate.asked[0].subject]


async def test_a_seniors_constraints_and_guardrails_hold() -> None:
    asked: list[str] = []

    class Listener:
        async def evaluate(self, context: Any) -> GuardrailDecision:
            asked.append(context.member)
            return GuardrailDecision.deny("not today")

    pair = Pair(UNSURE, senior=kt.MiniAgent(FunctionModel(lambda _: "text")), guardrails=[Listener()])
    assert (await pair.run())["t"].status is FAILED
    assert asked == ["chief"]
    chatty = kt.MiniAgent(FunctionModel(lambda _: kt.ModelResponse("so far", finish_reason="length")))
    tired = Pair(UNSURE, PASS, senior=chatty, constraints=[MaxIterations(2)])
    assert (await tired.run())["t"].artifact == kt.Artifact("so farso far", partial=True)


async def test_kf_u09_a_seniors_try_is_recorded_under_a_number_of_its_own() -> None:
    """U09: retries, seniors and revisions shared one record key: N counts every try and never restarts."""
    pair = Pair(REVISE, UNSURE, PASS, junior=ScriptedAgent(["one", OSError("busy"), "two"]))
    result = await pair.run(FailurePolicy(retries=1, backoff=0.0))
    assert (result.output, result["t"].attempts) == ("senior 1", 4)
    keys = [key for key in pair.bench.journal.records if key.startswith(("attempt", "review"))]
    assert keys == [
        "attempt:1:t:1", "review:1:t:1", "attempt:1:t:2", "attempt:1:t:3", "review:1:t:3", "attempt:1:t:4",
        "review:1:t:4",
    ]  # fmt: skip


# ---------------------------------------------------------------- ends on the way up


class Stop:
    """A constraint that stops at once."""

    async def validate(self, context: Any) -> ResourceValidation:
        return ResourceValidation(True, "smoke")

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.EMERGENCY_STOP


@pytest.mark.parametrize("risk", kt.RiskProfile)
async def test_an_emergency_stop_of_the_senior_fails_the_task_and_nobody_else_decides(risk: kt.RiskProfile) -> None:
    gate = Decisions(kt.HumanDecision.approve())
    pair = Pair(UNSURE, PASS, gate=gate, constraints=[Stop()])
    result = await pair.run(risk_profile=risk)
    assert (result["t"].status, gate.asked) == (FAILED, [])
    assert "emergency stop" in (result["t"].error or "")


async def test_a_task_that_is_cancelled_at_its_seniors_is_cancelled_and_nothing_is_accepted() -> None:
    gate = Decisions(kt.HumanDecision.approve())
    pair = Pair(UNSURE, PASS, senior=hang, gate=gate)
    runtime = pair.bench.team.runtime

    async def cancel_later() -> None:
        await anyio.sleep(3)
        runtime.runs["r"].cancel_task("t", "no longer needed")

    results: list[kt.TeamResult] = []

    async def run() -> None:
        results.append(await pair.run(risk_profile=LOW))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(cancel_later)
    assert (results[0]["t"].status, results[0]["t"].error, gate.asked) == (CANCELLED, "no longer needed", [])


# ---------------------------------------------------------------- a person, after the senior


async def test_the_gate_is_asked_after_the_senior_about_what_is_best() -> None:
    better = kt.EvaluationVerdict.revise("nearly", findings=[FINDING], score=0.9)
    worse = kt.EvaluationVerdict.revise("no", findings=[kt.Finding("g")], score=0.1)
    gate = Decisions(kt.HumanDecision.approve())
    pair = Pair(better, worse, gate=gate)
    result = await pair.run(max_feedback_rounds=0)
    (question,) = gate.asked
    assert (question.subject, question.cause, question.member) == ("junior 1", kt.Cause.ROUNDS_EXHAUSTED, "junior")
    assert tuple(question.findings) == (FINDING,)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "junior 1")


async def test_what_a_person_wants_changed_goes_back_to_the_member_who_made_it() -> None:
    """Not to the senior, who has the task but whose work was not the best."""
    better = kt.EvaluationVerdict.revise("nearly", findings=[FINDING], score=0.9)
    worse = kt.EvaluationVerdict.revise("no", findings=[kt.Finding("g")], score=0.1)
    gate = Decisions(kt.HumanDecision.revise("kinder"))
    pair = Pair(better, worse, PASS, gate=gate)
    result = await pair.run(max_feedback_rounds=0)
    assert (len(pair.junior.calls), len(pair.senior.calls)) == (2, 1)
    again = pair.junior.calls[1]
    assert again.previous == kt.Artifact("junior 1")
    assert [finding.expected for finding in again.findings] == ["kinder", "more of it"]
    assert (result.output, result["t"].member, result["t"].attempts) == ("junior 2", "junior", 3)


@pytest.mark.parametrize("cause", [kt.Cause.INJECTION_SUSPECTED, kt.Cause.HUMAN_REQUIRED])
async def test_what_no_risk_accepts_is_not_the_best_attempt_either(cause: kt.Cause) -> None:
    """A suspicious artifact meets more criteria than the next one: used-up rounds do not make it acceptable."""
    met = [CriterionResult(name, "met", passed=True) for name in "abc"]
    gate = Decisions(kt.HumanDecision.revise("again"), None)
    bench = Bench(kt.Member("a", script("draft", 2)))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts([left_open(cause, criteria=met), REVISE]), gate=gate)
    result = await bench.run(coordinator, task("t"), risk_profile=LOW)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "draft 2")


# ---------------------------------------------------------------- the risk row


async def test_kf_t07_acceptance_without_a_pass_shows_in_verdict_event_warning_and_status() -> None:
    """T07: only LOW risk or a person accepts without a PASS; the verdict stays what it was, the run is DEGRADED."""
    for gate, risk in ((None, LOW), (Decisions(kt.HumanDecision.approve()), HIGH)):
        bench = Bench(kt.Member("a", script("draft")))
        coordinator = ExpertTeamCoordinator(evaluator=Verdicts([UNSURE]), gate=gate)
        result = await bench.run(coordinator, task("t"), risk_profile=risk)
        outcome = result["t"]
        assert (result.status, outcome.status, outcome.verdict) == (kt.TeamStatus.DEGRADED, COMPLETED, UNSURE)
        assert any("without a PASS: undecided" in warning for warning in outcome.warnings)
        (ended,) = bench.recorder.of(events.TaskCompleted)
        assert ended.verdict == kt.VerdictOutcome.ESCALATE
        assert bench.recorder.of(events.EvaluationResult)[-1].verdict == UNSURE
    for risk in (MEDIUM, HIGH):
        bench = Bench(kt.Member("a", script("draft")))
        result = await bench.run(ExpertTeamCoordinator(evaluator=Verdicts([UNSURE])), task("t"), risk_profile=risk)
        assert (result.status, result.output) == (kt.TeamStatus.FAILED, None)


def return_nothing(assignment: kt.Assignment) -> Any:
    return None


NOBODY: dict[str, dict[str, Any]] = {
    "no gate": {},
    "a silent gate": {"gate": Decisions(*[None] * 99)},
    "a gate that raises": {"gate": Decisions()},
    "a senior that fails": {"senior": kt.Member("chief", return_nothing)},
    "a senior and a gate": {"senior": kt.Member("chief", lambda _: ""), "gate": Decisions(*[None] * 99)},
}


@pytest.mark.parametrize("risk", [MEDIUM, HIGH])
@pytest.mark.parametrize("who", NOBODY)
async def test_kf_t08_nothing_that_is_missing_silent_or_broken_accepts(who: str, risk: kt.RiskProfile) -> None:
    """T08: review exhausted under HIGH was accepted because an arbiter was missing."""
    for cause in kt.Cause:
        fields = dict(NOBODY[who])
        bench = Bench(kt.Member("a", script("draft"), senior=fields.pop("senior", None)))
        coordinator = ExpertTeamCoordinator(evaluator=Verdicts([left_open(cause)]), failure_policy=ONCE, **fields)
        result = await bench.run(coordinator, task("t"), risk_profile=risk)
        assert (result.status, result["t"].status, result.output) == (kt.TeamStatus.FAILED, FAILED, None)
        assert result["t"].verdict == left_open(cause)
        assert result["t"].artifact == kt.Artifact("draft 1")


async def test_the_task_board_has_seniors_too_for_what_is_reviewed() -> None:
    chief = kt.Member("chief", script("senior"))
    bench = Bench(kt.Member("a", script("junior"), senior=chief), evaluators={"ed": Verdicts([UNSURE, PASS])})
    result = await bench.run(TaskDispatchCoordinator(), task("t", evaluator="ed"))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "senior 1")


@pytest.mark.parametrize("kind", [TaskDispatchCoordinator, ExpertTeamCoordinator])
async def test_a_criterion_for_a_person_is_refused_where_nobody_can_be_asked(kind: Any) -> None:
    """Before work starts, and not after it was paid for; with a gate it runs and the person is asked."""
    rubric = Rubric([Criterion("sign-off", "an editor agrees", by="human")])
    agent = script("draft")
    bench = Bench(kt.Member("a", agent), evaluators={"ed": rubric})
    result = await bench.run(kind(), task("t", evaluator="ed"), task("after", "t"))
    assert (result.status, result.refused, agent.calls) == (kt.TeamStatus.FAILED, True, [])
    assert "task 't' cannot be reviewed: criterion 'sign-off'" in (result.error or "")
    assert [(outcome.status, outcome.attempts) for outcome in result.outcomes] == [(SKIPPED, 0)] * 2
    if kind is ExpertTeamCoordinator:
        gate = Decisions(kt.HumanDecision.approve())
        asked = Bench(kt.Member("a", script("draft")))
        result = await asked.run(kind(evaluator=rubric, gate=gate), task("t"))
        assert (result.status, gate.asked[0].cause) == (kt.TeamStatus.COMPLETED, kt.Cause.HUMAN_REQUIRED)
