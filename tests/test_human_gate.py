"""Whole runs with a person at the gate: reviews, tools and plans that are decided at once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, CriterionResult, Rubric, all_of, any_of, checks
from kairo_team.testing import ScriptedAgent, ScriptedModel
from tests.human import APPROVE, DEFER, ONCE, REJECT, REVISE, AsksFirst, Gate, LeavesOpen, Office, statuses

pytestmark = pytest.mark.anyio

RISKS = pytest.mark.parametrize("risk", list(kt.RiskProfile))
SILENCES = pytest.mark.parametrize(
    "silence", [None, ConnectionError("no line"), "yes"], ids=["None", "raises", "nonsense"]
)
UNSURE = kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "hard to say")


def letter(*drafts: str, evaluator: Any = None, **options: Any) -> tuple[Office, ScriptedAgent]:
    """One clerk who writes one letter that a person is to see."""
    agent = ScriptedAgent(drafts or ("draft",))
    return Office({"letter": agent}, evaluator=evaluator or LeavesOpen("letter"), **options), agent


# ---------------------------------------------------------------- reviews


@RISKS
async def test_kf_t07_an_approved_artifact_is_accepted_with_its_verdict_unchanged(risk: kt.RiskProfile) -> None:
    office, _ = letter(gate=(gate := Gate(APPROVE)), evaluator=LeavesOpen("letter", verdict=UNSURE))
    result = await office.run(risk_profile=risk)
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "draft")
    verdict = result["letter"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.LOW_CONFIDENCE)
    assert result["letter"].warnings == ("accepted by a person without a PASS: low_confidence",)
    (asked,) = gate.asked
    assert (asked.kind, asked.subject, asked.task_id, asked.member) == ("review", "draft", "letter", "letter")
    assert (asked.run_id, asked.id, asked.attempt, asked.cause) == ("r", "r:human:1:letter:1:review", 1, verdict.cause)


SIGNED = Rubric(
    [
        Criterion("short", "at most 12 words", checks.max_words(12)),
        Criterion("tone", "it fits our readers", by="human"),
    ]
)


@RISKS
@pytest.mark.parametrize("evaluator", [SIGNED, LeavesOpen("letter")], ids=["a rubric", "a strategy of one's own"])
async def test_audit_g08_a_persons_approval_of_what_only_a_person_decides_is_a_pass(
    risk: kt.RiskProfile, evaluator: Any
) -> None:
    office, _ = letter(gate=Gate(kt.HumanDecision.approve("well done")), evaluator=evaluator)
    result = await office.run(risk_profile=risk)
    assert (result.status, result.output, result.warnings) == (kt.TeamStatus.COMPLETED, "draft", ())
    verdict = result["letter"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.PASS, None)
    assert verdict.feedback == "a person approved it: well done"
    tone = [(one.level, one.passed, one.reason) for one in verdict.criteria if one.by == "human"]
    assert tone == ([("approved", True, "well done")] if evaluator is SIGNED else [])
    (reviewed,) = office.recorder.of(events.EvaluationResult)
    (done,) = office.recorder.of(events.TaskCompleted)
    assert (reviewed.verdict.outcome, done.verdict) == (kt.VerdictOutcome.ESCALATE, "pass")


class Leaves:
    """A strategy that always says the same."""

    def __init__(self, verdict: kt.EvaluationVerdict) -> None:
        self._verdict = verdict

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return self._verdict


BLOCKED = kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "look", findings=[kt.Finding("f", observed="wrong")])
CANNOT_TELL = Criterion("broken", "a check that breaks", lambda artifact: 1 / 0 > 1)


@pytest.mark.parametrize(
    "evaluator",
    [
        Rubric([*SIGNED.criteria, CANNOT_TELL]),
        all_of(SIGNED, Leaves(UNSURE)),
        any_of(SIGNED, Leaves(UNSURE)),
        all_of(SIGNED, Leaves(kt.EvaluationVerdict.review_exceeded(kt.Cause.EVALUATOR_ERROR))),
        Leaves(BLOCKED),
    ],
    ids=["a check that broke", "all_of", "any_of", "a broken evaluator", "a blocking finding"],
)
async def test_audit_g08_an_approval_with_something_else_open_leaves_the_verdict(evaluator: Any) -> None:
    office, _ = letter(gate=Gate(APPROVE), evaluator=evaluator)
    result = await office.run()
    verdict = result["letter"].verdict
    assert verdict is not None
    assert (result.status, verdict.cause) == (kt.TeamStatus.DEGRADED, kt.Cause.HUMAN_REQUIRED)
    assert result["letter"].warnings == ("accepted by a person without a PASS: human_required",)


async def test_audit_g08_strategies_joined_pass_by_a_person_where_the_others_pass() -> None:
    for evaluator in (all_of(SIGNED, Leaves(kt.EvaluationVerdict.passed())), any_of(SIGNED, Leaves(WANTING))):
        office, _ = letter(gate=Gate(APPROVE), evaluator=evaluator)
        assert (await office.run()).status is kt.TeamStatus.COMPLETED


WANTING = kt.EvaluationVerdict.revise("no", findings=[kt.Finding("f", observed="x")], score=0.4)


async def test_audit_g08_the_question_says_what_follows_from_each_answer() -> None:
    office, _ = letter("one", "two", gate=(gate := Gate(REVISE, APPROVE)), evaluator=SIGNED)
    await office.run(max_human_rounds=1)
    first, second = gate.asked
    assert (
        first.text
        == "Is the work of 'letter' on 'letter' good enough? Only a person may accept it: it fits our readers"
    )
    assert dict(first.consequences) == {
        "approve": "it is accepted: its verdict is a PASS",
        "revise": "'letter' makes another version from your words (revisions left: 1)",
        "reject": "the task fails",
        "silence": "the task fails",
    }
    assert second.consequences["revise"] == "no further version is made (revisions: 1): the task fails"


async def test_audit_g08_the_question_says_where_an_approval_is_no_pass() -> None:
    office, _ = letter(gate=(gate := Gate(APPROVE)), evaluator=Leaves(UNSURE))
    await office.run(risk_profile="low")
    (asked,) = gate.asked
    assert asked.text == "Is the work of 'letter' on 'letter' good enough? The judge is not sure: hard to say"
    assert asked.consequences["approve"] == "it is accepted without a PASS: the run is DEGRADED"
    assert asked.consequences["silence"] == "it is accepted with a warning"


@RISKS
async def test_audit_g07_a_gate_that_always_sends_back_ends_and_the_risk_decides(risk: kt.RiskProfile) -> None:
    office, agent = letter(*map(str, range(20)), gate=(gate := Gate(*[REVISE] * 20)), evaluator=Leaves(WANTING))
    result = await office.run(risk_profile=risk, max_feedback_rounds=0)
    low = risk is kt.RiskProfile.LOW
    assert (len(agent.calls), len(gate.asked)) == (11, 11), "ten more versions, and the question after the last"
    assert result.status is (kt.TeamStatus.DEGRADED if low else kt.TeamStatus.FAILED)
    verdict = result["letter"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, kt.Cause.ROUNDS_EXHAUSTED)
    said = "a person wants another version (shorter), and 10 were made already (TeamConfig.max_human_rounds)"
    assert said in verdict.feedback
    if not low:
        assert f"not accepted (rounds_exhausted): {said}" in str(result["letter"].error)


@RISKS
async def test_audit_g07_what_only_a_person_may_accept_is_not_accepted_for_want_of_rounds(risk: kt.RiskProfile) -> None:
    office, agent = letter("1", "2", "3", "4", gate=Gate(*[REVISE] * 9))
    result = await office.run(risk_profile=risk, max_human_rounds=2)
    assert (result.status, result.output, len(agent.calls)) == (kt.TeamStatus.FAILED, None, 3)
    verdict = result["letter"].verdict
    assert verdict is not None
    assert (verdict.cause, verdict.other_causes) == (kt.Cause.ROUNDS_EXHAUSTED, (kt.Cause.HUMAN_REQUIRED,))


async def test_audit_g07_the_last_version_may_still_be_approved() -> None:
    office, _ = letter("one", "two", gate=Gate(REVISE, APPROVE))
    result = await office.run(max_human_rounds=1)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "two")


async def test_audit_g07_a_plan_that_is_always_sent_back_fails_the_run_with_nothing_started() -> None:
    names = [f"plan-{number}" for number in range(20)]
    office, planner, agent = planned(gate := Gate(*[REVISE] * 20), *names)
    result = await office.run()
    assert (len(planner.told), len(gate.asked), agent.calls) == (11, 11, [])
    assert result.status is kt.TeamStatus.FAILED
    made = "10 were made already (TeamConfig.max_human_rounds)"
    assert str(result.error).startswith(f"a person wants another plan (shorter), and {made}: change the goal")
    assert gate.asked[0].consequences["revise"] == "another plan is made from your words (revisions left: 10)"
    assert gate.asked[-1].consequences["revise"] == "the run fails, and nothing is started"


@RISKS
async def test_audit_g10_the_verdict_of_used_up_reviews_keeps_what_the_best_attempt_was_given(
    risk: kt.RiskProfile,
) -> None:
    """REVISE 0.4, then 0.9, then 0.2: the outcome is that of the 0.9, with its score, findings and criteria."""
    scored = {
        text: kt.EvaluationVerdict.revise(
            f"{text} is dull",
            findings=[kt.Finding(text, observed=f"{text} is dull")],
            score=score,
            criteria=[CriterionResult("lively", "not met", passed=False, reason=text)],
            suggestions=["a joke"],
        )
        for text, score in (("a", 0.4), ("b", 0.9), ("c", 0.2))
    }

    class Scores:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return scored[context.artifact.text]

    office, _ = letter("a", "b", "c", evaluator=Scores())
    outcome = (await office.run(risk_profile=risk, max_feedback_rounds=2))["letter"]
    best, verdict = scored["b"], outcome.verdict
    assert verdict is not None
    assert outcome.artifact == kt.Artifact("b")
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, kt.Cause.ROUNDS_EXHAUSTED)
    assert (verdict.score, verdict.findings, verdict.criteria) == (0.9, best.findings, best.criteria)
    assert verdict.suggestions == best.suggestions
    assert verdict.feedback == "no attempt passed in 3 reviews; the best one: b is dull"


@RISKS
async def test_a_rejected_artifact_fails_at_any_risk(risk: kt.RiskProfile) -> None:
    office, _ = letter(gate=Gate(REJECT), evaluator=LeavesOpen("letter", verdict=UNSURE))
    result = await office.run(risk_profile=risk)
    assert (result.status, statuses(result)) == (kt.TeamStatus.FAILED, {"letter": "failed"})
    assert "not accepted (low_confidence): not like this" in str(result["letter"].error)
    assert result["letter"].artifact == kt.Artifact("draft"), "it comes back, though nobody accepted it"


@RISKS
@SILENCES
async def test_silence_leaves_it_to_the_risk(risk: kt.RiskProfile, silence: Any) -> None:
    office, _ = letter(gate=Gate(silence), evaluator=LeavesOpen("letter", verdict=UNSURE))
    result = await office.run(risk_profile=risk)
    low = risk is kt.RiskProfile.LOW
    assert result.status is (kt.TeamStatus.DEGRADED if low else kt.TeamStatus.FAILED)
    if low:
        assert result["letter"].warnings == ("accepted without a PASS: low_confidence",)


@RISKS
@SILENCES
@pytest.mark.parametrize("cause", [kt.Cause.HUMAN_REQUIRED, kt.Cause.INJECTION_SUSPECTED])
async def test_what_only_a_person_may_accept_is_never_approved_by_silence(
    risk: kt.RiskProfile, silence: Any, cause: kt.Cause
) -> None:
    office, _ = letter(gate=Gate(silence), evaluator=LeavesOpen("letter", verdict=kt.EvaluationVerdict.escalate(cause)))
    result = await office.run(risk_profile=risk)
    assert (result.status, result.output) == (kt.TeamStatus.FAILED, None)


async def test_a_revision_that_a_person_wants_is_one_more_attempt_with_the_feedback() -> None:
    office, agent = letter("draft", "better", gate=(gate := Gate(REVISE, APPROVE)))
    result = await office.run(max_feedback_rounds=0)
    assert (result.status, result.output, result["letter"].attempts) == (kt.TeamStatus.COMPLETED, "better", 2)
    _, second = agent.calls
    assert (second.previous, second.findings[0].expected) == (kt.Artifact("draft"), "shorter")
    assert [asked.subject for asked in gate.asked] == ["draft", "better"]


async def test_one_more_attempt_that_passes_needs_no_further_question() -> None:
    office, _ = letter(
        "draft", "better", gate=(gate := Gate(REVISE)), evaluator=LeavesOpen("letter", passes=["better"])
    )
    result = await office.run()
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "better")
    assert len(gate.asked) == 1


async def test_one_more_attempt_buys_one_and_no_rounds_of_its_own() -> None:
    """The review of the extra attempt that finds fault leads back to the person, not to another revision."""
    wanting = kt.EvaluationVerdict.revise("still no", findings=[kt.Finding("f", expected="x")])
    office, agent = letter(
        "one", "two", gate=(gate := Gate(REVISE, REJECT)), evaluator=LeavesOpen("letter", verdict=wanting)
    )
    result = await office.run(max_feedback_rounds=0)
    assert (result.status, len(agent.calls), len(gate.asked)) == (kt.TeamStatus.FAILED, 2, 2)


async def test_the_events_say_what_was_asked_and_what_was_decided() -> None:
    office, _ = letter("draft", "better", gate=Gate(REVISE, None))
    await office.run()
    told = [event for event in office.recorder.events if event.type.startswith("human.")]
    assert [event.type for event in told] == ["human.requested", "human.decided"] * 2
    decided = office.recorder.of(events.HumanDecided)
    assert [(event.action, event.feedback) for event in decided] == [("revise", "shorter"), ("silent", "")]
    assert [event.question_id for event in decided] == [
        one.question.id for one in office.recorder.of(events.HumanRequested)
    ]


async def test_the_coordinators_gate_goes_before_the_runtimes() -> None:
    office, _ = letter(gate=Gate())
    office.coordinator = ExpertTeamCoordinator(evaluator=LeavesOpen("letter"), failure_policy=ONCE, gate=Gate(APPROVE))
    assert (await office.run()).output == "draft"


async def test_a_question_gives_the_slot_to_others_meanwhile() -> None:
    order: list[str] = []

    class Slow:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
            await anyio.sleep(10)
            order.append("answered")
            return APPROVE

    async def work(assignment: kt.Assignment) -> str:
        order.append(assignment.task.id)
        return assignment.task.id

    office = Office({"m": work}, gate=Slow(), evaluator=LeavesOpen("one"))
    plan = [kt.Task("one", "do", weight=9), kt.Task("two", "do"), kt.Task("three", "do")]
    result = await office.run(plan, max_parallel_tasks=1)
    assert order == ["one", "two", "three", "answered"]
    assert statuses(result) == dict.fromkeys(["one", "two", "three"], "completed")


async def test_a_task_that_is_cancelled_while_a_person_thinks_is_cancelled() -> None:
    class Never:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
            office.runtime.runs["r"].cancel_task("letter", "no longer needed")
            await anyio.sleep_forever()
            raise AssertionError

    office, _ = letter(gate=Never())
    result = await office.run()
    assert (statuses(result), result["letter"].error) == ({"letter": "cancelled"}, "no longer needed")


async def test_the_deadline_does_not_wait_for_a_person() -> None:
    class Never:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
            await anyio.sleep_forever()
            raise AssertionError

    office, _ = letter(gate=Never())
    result = await office.run(budget=kt.Budget(seconds=60.0))
    assert (result.status, statuses(result)) == (kt.TeamStatus.TIMEOUT, {"letter": "cancelled"})
    assert result.duration == pytest.approx(60, abs=0.1)


async def test_an_answer_holds_for_what_was_asked_about_and_nothing_else() -> None:
    """A coordinator that asks again about the same attempt, with another text, gets another answer."""
    gate = Gate(APPROVE, REJECT)
    decisions: list[kt.HumanDecision | None] = []
    team = kt.Team("team", [kt.Member("m", ScriptedAgent(["x"]))])
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), team, gate=gate) as run:
        graph = await run.plan(lambda: kt.TaskGraph([kt.Task("t", "do")]))
        async for task in run.ready(graph):
            attempt = await run.attempt(task, 1)
            subjects = ("pay 10", "pay 1000", "pay 1000")
            questions = [kt.HumanRequest("review", "may it?", subject, "t", attempt=1) for subject in subjects]
            decisions += [await run.ask(question) for question in questions]
            run.accept(task, attempt)
    assert decisions == [APPROVE, REJECT, REJECT]
    assert len(gate.asked) == 2


# ---------------------------------------------------------------- tools


class Till:
    """A tool that pays, and an agent that uses it and says what it read."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @kt.tool(side_effect="write")
    async def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        return f"paid {amount}"

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        results = [
            await context.tool(self.pay).call({"amount": amount}) for amount in assignment.inputs.get("amounts", [5])
        ]
        return "; ".join(result.text for result in results)


def shop(gate: Any, guard: Any = None) -> tuple[Office, Till]:
    till = Till()
    return Office({"clerk": till}, gate=gate, guard=guard or AsksFirst("pay")), till


async def test_an_approved_tool_call_is_made() -> None:
    office, till = shop(gate := Gate(APPROVE))
    result = await office.run([kt.Task("buy", "Buy it.")])
    assert (result.output, till.paid) == ("paid 5", [5])
    (asked,) = gate.asked
    assert (asked.kind, asked.subject, asked.task_id, asked.member) == ("tool", "pay(amount=5)", "buy", "clerk")
    assert asked.text == "may 'clerk' call 'pay'? it costs money"


@pytest.mark.parametrize(
    ("decision", "read"),
    [
        (REJECT, "a human refused it: not like this"),
        (kt.HumanDecision.reject(), "a human refused it: it costs money"),
        (REVISE, "a human refused it: shorter"),
        (None, "this needs the approval of a human, and no answer came: it costs money"),
        (ConnectionError("no line"), "this needs the approval of a human, and no answer came: it costs money"),
        ("yes", "this needs the approval of a human, and no answer came: it costs money"),
    ],
    ids=["reject", "reject without words", "revise", "silence", "raises", "nonsense"],
)
async def test_what_is_not_approved_is_a_refusal_the_member_can_read(decision: Any, read: str) -> None:
    office, till = shop(Gate(decision))
    result = await office.run([kt.Task("buy", "Buy it.")])
    assert (result.status, result.output, till.paid) == (kt.TeamStatus.COMPLETED, read, [])
    assert result.usage.tool_calls == 0
    (called,) = office.recorder.of(events.ToolCalled)
    assert (called.outcome, called.refused_by) == ("refused", "till")


async def test_without_a_gate_it_is_denied() -> None:
    office, till = shop(None)
    result = await office.run([kt.Task("buy", "Buy it.")])
    assert (result.output, till.paid) == (
        "this needs the approval of a human, and the run has no gate: it costs money",
        [],
    )


async def test_each_call_needs_an_approval_of_its_own_even_the_same_again() -> None:
    """Who approves one payment has not approved two."""
    office, till = shop(gate := Gate(APPROVE, REJECT))
    result = await office.run([kt.Task("buy", "Buy it.", inputs={"amounts": [5, 5]})])
    assert (till.paid, len(gate.asked)) == ([5], 2)
    assert result.output == "paid 5; a human refused it: not like this"


async def test_the_task_board_asks_about_tools_too() -> None:
    office, till = shop(Gate(APPROVE))
    board: Any = TaskDispatchCoordinator(failure_policy=ONCE)
    office.coordinator = board
    assert (await office.run()).output == "paid 5"
    assert till.paid == [5]


async def test_a_planner_has_nobody_to_ask_about_its_tools() -> None:
    """A question belongs to a task, and planning is none."""
    till = Till()

    class Planner:
        async def plan(self, request: Any, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
            told = await context.tool(till.pay).call({"amount": 1})
            return kt.TaskGraph([kt.Task("only", told.text)])

    office = Office({"m": ScriptedAgent(["x"])}, gate=Gate(), guard=AsksFirst("pay"), planner=Planner())
    result = await office.run()
    assert till.paid == []
    assert result.plan is not None
    assert "needs the approval of a human" in result.plan["only"].description


# ---------------------------------------------------------------- plans


class Planner:
    """Plans one task a time by a script, and keeps what it was told."""

    def __init__(self, *names: str) -> None:
        self.told: list[Any] = []
        self._names = iter(names)

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
        self.told.append(dict(request.context))
        return kt.TaskGraph([kt.Task(next(self._names), "Write it.")])


def planned(gate: Any, *names: str, drafts: int = 1) -> tuple[Office, Planner, ScriptedAgent]:
    agent, planner = ScriptedAgent(["text"] * drafts), Planner(*names)
    return Office({"m": agent}, gate=gate, planner=planner, plan_approval=True), planner, agent


async def test_an_approved_plan_is_run() -> None:
    office, _, _ = planned(gate := Gate(APPROVE), "one")
    result = await office.run()
    assert (result.status, statuses(result)) == (kt.TeamStatus.COMPLETED, {"one": "completed"})
    (asked,) = gate.asked
    assert (asked.kind, asked.task_id, asked.subject) == ("plan", None, "one (anybody): Write it.")
    types = office.recorder.types
    assert types.index("plan.ready") < types.index("human.requested") < types.index("task.assigned")


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (REJECT, "a person rejected the plan: not like this"),
        (None, "no person approved the plan, and no work starts without approval"),
        (ConnectionError(), "no person approved the plan, and no work starts without approval"),
    ],
    ids=["reject", "silence", "raises"],
)
@RISKS
async def test_a_plan_that_is_not_approved_fails_the_run_with_nothing_started(
    decision: Any, why: str, risk: kt.RiskProfile
) -> None:
    office, _, agent = planned(Gate(decision), "one")
    result = await office.run(risk_profile=risk)
    assert (result.status, result.error, statuses(result)) == (kt.TeamStatus.FAILED, why, {"one": "skipped"})
    assert agent.calls == []


async def test_a_plan_that_is_to_be_revised_is_made_anew_with_the_feedback() -> None:
    office, planner, _ = planned(gate := Gate(REVISE, REVISE, APPROVE), "one", "two", "three")
    result = await office.run()
    assert statuses(result) == {"three": "completed"}
    assert planner.told[0] == {}
    assert planner.told[1] == {"previous_plan": "one (anybody): Write it.", "wanted_of_the_plan": "shorter"}
    assert [asked.id for asked in gate.asked] == [f"r:human:{number}:plan" for number in (1, 2, 3)]


async def test_a_plan_that_was_given_cannot_be_revised() -> None:
    office, planner, _ = planned(Gate(REVISE))
    result = await office.run([kt.Task("mine", "do")])
    assert result.status is kt.TeamStatus.FAILED
    assert "this one was given with the request" in str(result.error)
    assert planner.told == []


async def test_approval_that_nobody_can_give_is_refused_before_work() -> None:
    office, planner, _ = planned(None, "one")
    result = await office.run()
    assert (result.status, result.refused, planner.told) == (kt.TeamStatus.FAILED, True, [])


async def test_kf_t28_a_plan_that_waits_for_approval_is_suspended_and_nothing_is_started() -> None:
    """T28: "plan only" was reported COMPLETED."""
    office, planner, agent = planned(gate := Gate(DEFER), "one")
    result = await office.run()
    assert (result.status, statuses(result), result.error) == (
        kt.TeamStatus.SUSPENDED, {"one": "pending"}, "the plan waits for a person"
    )  # fmt: skip
    assert agent.calls == []
    assert [event.type for event in office.recorder.events if event.type.startswith("task.")] == []
    office.answer(APPROVE)
    result = await office.resume()
    assert (result.status, result.error, result.output) == (kt.TeamStatus.COMPLETED, None, "text")
    assert (len(planner.told), len(gate.asked)) == (1, 1)


async def test_a_suspended_plan_may_be_revised_and_rejected_later() -> None:
    office, planner, agent = planned(Gate(DEFER, DEFER), "one", "two")
    await office.run()
    office.answer(REVISE)
    assert (await office.resume()).status is kt.TeamStatus.SUSPENDED
    assert planner.told[1]["wanted_of_the_plan"] == "shorter"
    office.answer(REJECT)
    result = await office.resume()
    assert (result.status, result.error) == (kt.TeamStatus.FAILED, "a person rejected the plan: not like this")
    assert (agent.calls, len(planner.told)) == ([], 2)


async def test_a_plan_made_by_a_model_is_paid_once() -> None:
    class Asks:
        async def plan(self, request: Any, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
            reply = await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("plan it")]))
            return kt.TaskGraph([kt.Task(reply.text, "do")])

    model = ScriptedModel(["only"])
    office = Office(
        {"m": ScriptedAgent(["text"])},
        gate=Gate(DEFER), planner=Asks(), plan_approval=True, runtime={"models": {"test:m": model}},
    )  # fmt: skip
    first = await office.run()
    office.answer(APPROVE)
    result = await office.resume()
    assert (result.status, len(model.calls)) == (kt.TeamStatus.COMPLETED, 1)
    assert first.usage.tokens == result.usage.tokens == 3
