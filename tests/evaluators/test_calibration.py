"""`calibrate`: a threshold with a promise, or the labels that lack; and a strategy that keeps to its certificates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.engine.run.lone_agent import work_alone
from kairo_team.errors import HaltError
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy
from kairo_team.evaluators.calibration.calibration import calibrate, score_judge
from kairo_team.evaluators.calibration.certificates import (
    subject_of,
)
from kairo_team.evaluators.calibration.labelled import LabelledArtifact
from kairo_team.evaluators.combined import CascadeEvaluationStrategy, all_of
from kairo_team.evaluators.criterion import Criterion
from kairo_team.evaluators.judge_question import Question
from kairo_team.evaluators.panel import PanelEvaluationStrategy
from kairo_team.evaluators.rubric import Rubric
from kairo_team.prompts import Prompts
from kairo_team.testing import FunctionModel, ScriptedJudge, ScriptedModel
from tests.evaluators.calibration_doubles import STAGED, SURE, Told, cascade, certificate, labels, reviewed
from tests.evaluators.judge_rig import Judging
from tests.evaluators.judge_rig import reviewed as governed

pytestmark = pytest.mark.anyio


async def test_it_finds_the_confidence_from_which_on_the_promise_holds() -> None:
    found = await calibrate(Told(), SURE, alpha=0.1, delta=0.1)
    for outcome in ("pass", "revise"):
        one = certificate(found, outcome)
        assert (one.threshold, one.n, one.k, one.delta, one.examples) == (0.9, 60, 0, 0.05, 160)
        assert one.bound == pytest.approx(0.0487, abs=1e-4)
        assert one.coverage.rate == 0.375
    assert found.shortfalls == []


async def test_kf_e17_where_no_threshold_keeps_the_promise_there_is_no_certificate_and_all_is_left_to_a_human() -> None:
    """E17: threshold returned although it breaks the promised risk."""
    doubtful = labels((60, "pass 0.9", True), (9, "pass 0.9", False), (90, "pass 0.4", True))
    found = await calibrate(Told(), doubtful, {"pass": 0.1}, 0.1)
    assert found.certificates == []
    assert "of the 69 it is surest about, 9 are wrong (bound " in found.shortfalls[0]
    verdict = await CalibratedEvaluationStrategy(Told(), found.certificates).evaluate(reviewed("pass 1.0"))
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.LOW_CONFIDENCE)


async def test_audit_g09_a_double_counts_once_whoever_calls() -> None:
    """One lucky example, a hundred times over, is no evidence."""
    strategy, alone = Told(), labels((1, "pass 0.9", True), (1, "revise 0.9", False))
    found = await calibrate(strategy, alone * 100)
    assert found.certificates == []
    assert len(strategy.asked) == 2
    assert "and there are 1: label more" in found.shortfalls[0]
    once = await calibrate(Told(), SURE)
    assert (await calibrate(Told(), [*SURE, *SURE[::-1]])).certificates == once.certificates
    assert (await score_judge(Told(), alone * 100)).report.examples == 2


async def test_audit_g09_an_artifact_that_is_labelled_both_ways_is_refused() -> None:
    both = labels((1, "pass 0.9", True))
    both = [*both, replace(both[0], passed=False)]
    for ask in (calibrate, score_judge):
        with pytest.raises(ValueError, match=r"the artifact 'pass 0\.9 #0\.0' is labelled both ways"):
            await ask(Told(), both)


async def test_too_few_labels_are_told_with_the_number_it_takes_and_nothing_is_relaxed() -> None:
    found = await calibrate(Told(), labels((28, "pass 0.9", True)), {"pass": 0.1}, 0.05)
    assert found.certificates == []
    assert "at least 29 that are decided so, without a single error, and there are 28" in found.shortfalls[0]
    found = await calibrate(Told(), labels((29, "pass 0.9", True)), {"pass": 0.1}, 0.05)
    assert certificate(found).n == 29


async def test_the_walk_begins_where_there_are_answers_enough_for_any_promise() -> None:
    found = await calibrate(Told(), labels((3, "pass 1.0", True), (60, "pass 0.9", True), (9, "pass 0.1", False)))
    assert (certificate(found).threshold, certificate(found).n) == (0.9, 63)


async def test_one_early_error_does_not_end_the_walk() -> None:
    """It starts where 40 % of a side's answers stand: the strictest thresholds allow no error at all."""
    found = await calibrate(
        Told(), labels((29, "pass 1.0", True), (1, "pass 1.0", False), (90, "pass 0.9", True)), {"pass": 0.1}
    )
    walk = found.walks["1", "pass"]
    assert (walk.start, certificate(found).threshold) == (walk.steps[1], 0.9)
    assert walk.steps[0].bound > 0.1 > walk.steps[1].bound


async def test_where_one_side_of_a_cascade_holds_nothing_back_the_shortfall_says_that_the_other_does() -> None:
    few = [*STAGED[:40], *labels((5, "a:revise 0.9 b:pass 0.2", False))]
    found = await calibrate(cascade(), few)
    assert [sentence.partition(" wrong: ")[2] for sentence in found.shortfalls] == [
        "both sides of a cascade are promised together, and the other has too few: label more",
        "it takes at least 29 that are decided so, without a single error, and there are 5: label more",
    ]
    wrong = [*STAGED[:40], *labels((40, "a:revise 0.9 b:pass 0.2", True))]
    found = await calibrate(cascade(), wrong)
    assert [sentence.partition(" wrong: ")[2] for sentence in found.shortfalls] == [
        "both sides of a cascade are promised together, and the other is wrong too often",
        "of the 40 it is surest about, 40 are wrong (bound 100.0%): take another judge or rubric, or a larger alpha",
    ]


async def test_one_side_alone_takes_the_whole_delta_and_the_other_never_stands() -> None:
    found = await calibrate(Told(), SURE, {"pass": 0.1}, 0.1)
    assert [(one.outcome, one.delta) for one in found.certificates] == [("pass", 0.1)]
    strategy = CalibratedEvaluationStrategy(Told(), found.certificates)
    assert (await strategy.evaluate(reviewed("pass 0.9"))).outcome is kt.VerdictOutcome.PASS
    verdict = await strategy.evaluate(reviewed("revise 1.0"))
    assert (verdict.cause, verdict.findings[0].observed) == (kt.Cause.LOW_CONFIDENCE, "it is bad")


async def test_each_side_has_its_own_limit() -> None:
    found = await calibrate(Told(), SURE, {"pass": 0.05, "revise": 0.4}, 0.1)
    assert [one.outcome for one in found.certificates] == ["pass", "revise"]
    assert (certificate(found).threshold, certificate(found, "revise").threshold) == (0.9, 0.5)


async def test_attempts_are_calibrated_apart() -> None:
    later = labels((40, "pass 0.9", True), (30, "pass 0.9", False), attempt=2)
    third = labels((40, "pass 0.7", True), attempt=5)
    found = await calibrate(Told(), [*SURE, *later, *third], {"pass": 0.1}, 0.1)
    assert [(one.attempt, one.threshold) for one in found.certificates] == [("1", 0.9), ("3+", 0.7)]
    strategy = CalibratedEvaluationStrategy(Told(), found.certificates)
    said = [(await strategy.evaluate(reviewed("pass 0.9", attempt))).outcome.value for attempt in (1, 2, 3, 9)]
    assert said == ["pass", "escalate", "pass", "pass"]


@pytest.mark.parametrize(
    ("says", "outcome", "cause"),
    [
        ("pass 0.9", "pass", None),
        ("pass 0.89", "escalate", "low_confidence"),
        ("pass -", "escalate", "low_confidence"),
        ("pass code", "pass", None),
        ("revise 0.95", "revise", None),
        ("revise -", "escalate", "low_confidence"),
        ("revise code", "revise", None),
        ("hm", "escalate", "undecided"),
    ],
)
async def test_only_what_is_sure_enough_stands(says: str, outcome: str, cause: str | None) -> None:
    found = await calibrate(Told(), SURE)
    verdict = await CalibratedEvaluationStrategy(Told(), found.certificates).evaluate(reviewed(says))
    assert (verdict.outcome.value, verdict.cause) == (outcome, cause)
    assert verdict.score is None or verdict.outcome is kt.VerdictOutcome.PASS


async def test_what_code_alone_sends_back_stands_without_a_certificate_and_is_not_counted() -> None:
    found = await calibrate(Told(), [*SURE, *labels((50, "revise code", True))])
    assert certificate(found, "revise").n == 60
    strategy = CalibratedEvaluationStrategy(Told(), [])
    assert (await strategy.evaluate(reviewed("revise code"))).outcome is kt.VerdictOutcome.REVISE
    assert (await strategy.evaluate(reviewed("pass code"))).cause is kt.Cause.LOW_CONFIDENCE


# ---------------------------------------------------------------- cascades


async def test_a_cascade_takes_one_threshold_and_is_judged_by_what_comes_out_of_all_of_it() -> None:
    found = await calibrate(cascade(), STAGED)
    one = certificate(found)
    assert (one.threshold, one.n, one.k) == (0.8, 70, 0)
    assert certificate(found, "revise").threshold == 0.8
    strategy = CalibratedEvaluationStrategy(cascade(), found.certificates)
    says = {"a:pass 0.8 b:revise 1.0": "pass", "a:pass 0.7 b:revise 0.8": "revise", "a:pass 0.7 b:pass 0.7": "escalate"}
    for text, outcome in says.items():
        assert (await strategy.evaluate(reviewed(text))).outcome.value == outcome


async def test_both_sides_of_a_cascade_stop_where_the_first_of_them_must() -> None:
    worse = [*STAGED, *labels((40, "a:pass 0.6 b:pass 0.1", True), (40, "a:revise 0.6 b:pass 0.1", True))]
    found = await calibrate(cascade(), worse)
    assert [one.threshold for one in found.certificates] == [0.8, 0.8]
    alone = await calibrate(cascade(), worse, {"pass": 0.1})
    assert certificate(alone).threshold == 0.6


async def test_in_a_cascade_nobody_is_asked_about_what_code_has_sent_back() -> None:
    strategy = CascadeEvaluationStrategy([Told(word="a:"), second := Told(word="b:")])
    found = await calibrate(strategy, labels((5, "a:revise code b:pass 1.0", False)))
    assert (second.asked, found.report.coverage.k) == ([], 5)


async def test_the_certificates_of_a_cascade_count_only_together() -> None:
    found = await calibrate(cascade(), STAGED)
    strategy = CalibratedEvaluationStrategy(cascade(), found.certificates[:1])
    verdict = await strategy.evaluate(reviewed("a:pass 1.0 b:pass 1.0"))
    assert (verdict.cause, "only together" in verdict.feedback) == (kt.Cause.LOW_CONFIDENCE, True)


async def test_no_later_judge_overrules_what_code_sends_back() -> None:
    found = await calibrate(cascade(), STAGED, {"pass": 0.1})
    verdict = await CalibratedEvaluationStrategy(cascade(), found.certificates).evaluate(
        reviewed("a:revise code b:pass 1.0")
    )
    assert verdict.outcome is kt.VerdictOutcome.REVISE


# ---------------------------------------------------------------- certificates


def judged(text: str = "a child understands it") -> Rubric:
    return Rubric([Criterion("plain", text, by="judge")])


def agent(rubric: Rubric | None = None, **fields: Any) -> AgentEvaluationStrategy:
    return AgentEvaluationStrategy(fields.pop("judge", "test:judge"), rubric or judged(), **fields)


def answering(level: str = "met", confidence: float = 0.9) -> dict[str, ChatModel]:
    model = Judging({"plain": level}, extra={"confidence": confidence}).model
    return {"test:judge": model, "test:other": model}


PROSE = [LabelledArtifact(f"The moon pulls the sea, {number} times.", "Explain tides.", True) for number in range(40)]


async def test_with_a_model_as_the_judge_the_certificate_names_it_and_its_rubric_settings_and_prompt() -> None:
    found = await calibrate(agent(), PROSE, {"pass": 0.1}, models=answering())
    one = certificate(found)
    assert (one.n, one.threshold, one.subject.judge) == (40, 0.9, "test:judge")
    assert one.subject.rubric == judged().digest
    assert one.subject.parameters["stages"][0]["settings"] == {"temperature": 0.0}
    assert found.usage.tokens > 0


OTHERS: dict[str, EvaluationStrategy] = {
    "rubric": agent(judged("an adult understands it")),
    "parameters": agent(settings={"temperature": 1.0}),
    "a gate more": agent(Rubric([*judged().criteria, Criterion("c", "a human agrees", by="human")])),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_a_certificate_for_anything_else_does_not_count(name: str) -> None:
    found = await calibrate(agent(), PROSE, {"pass": 0.1}, models=answering())
    scored = await score_judge(OTHERS[name], PROSE, found.certificates, models=answering())
    assert scored.calibrated is not None
    assert (scored.calibrated.coverage.k, len(scored.why_not)) == (0, 1)
    assert "made for another" in scored.why_not[0]
    scored = await score_judge(agent(), PROSE, found.certificates, models=answering())
    assert scored.calibrated is not None
    assert scored.calibrated.coverage.k == 40


@pytest.mark.parametrize(("confidence", "cause"), [(0.95, None), (0.6, kt.Cause.LOW_CONFIDENCE)])
async def test_with_governed_models_it_keeps_to_the_certificates(confidence: float, cause: kt.Cause | None) -> None:
    found = await calibrate(agent(), PROSE, {"pass": 0.1}, models=answering())
    strategy = CalibratedEvaluationStrategy(agent(), found.certificates)
    model = answering(confidence=confidence)["test:judge"]
    verdict = await strategy.evaluate(governed("The moon pulls the sea.", model))
    assert (verdict.cause, verdict.confidence) == (cause, confidence)
    assert verdict.usage.tokens > 0


def test_it_refuses_before_work_starts_what_its_strategy_would() -> None:
    gated = agent(Rubric([*judged().criteria, Criterion("sign-off", "a human agrees", by="human")]))
    strategy = CalibratedEvaluationStrategy(gated, [])
    assert strategy.preflight() == gated.preflight() != []
    assert strategy.preflight(gate=True) == []
    assert CalibratedEvaluationStrategy(Told(), []).preflight() == []
    assert strategy.vacuous is False
    assert "0 certificates" in repr(strategy)


async def test_certificates_of_two_calibrations_are_not_mixed() -> None:
    one = certificate(await calibrate(Told(), SURE))
    strategy = CalibratedEvaluationStrategy(Told(), [one, replace(one, threshold=0.1)])
    verdict = await strategy.evaluate(reviewed("pass 0.95"))
    assert (verdict.cause, "several certificates" in verdict.feedback) == (kt.Cause.LOW_CONFIDENCE, True)


async def test_another_judge_behind_the_same_name_does_not_count() -> None:
    found = await calibrate(agent(), PROSE, {"pass": 0.1}, models=answering())
    models = {"test:judge": replaced("test:newer")}
    scored = await score_judge(agent(), PROSE, found.certificates, models=models)
    assert scored.why_not == ["no certificate for pass or revise on attempt 1: it was made for another judge"]


def replaced(name: str) -> ChatModel:
    judge = Judging({"plain": "met"})
    judge.model.name = name
    return judge.model


async def test_another_prompt_is_another_subject() -> None:
    async with work_alone("judge", models=answering()) as context:
        before = subject_of(agent(), context)
        assert subject_of(agent(), context) == before
        for name in ("judge", "judge_ask", "judge_again"):
            context.services.prompts = Prompts({name: "Be kind."})
            assert subject_of(agent(), context).prompt != before.prompt


async def test_the_request_for_claims_is_in_the_subject_where_a_criterion_has_one() -> None:
    sourced = Rubric([Criterion("faithful", "every claim has support", by="judge", evidence="sources")])
    async with work_alone("judge", models=answering()) as context:
        of_claims, plainly = AgentEvaluationStrategy("test:judge", sourced), agent()
        before = [subject_of(one, context).prompt for one in (of_claims, plainly)]
        context.services.prompts = Prompts({"judge_claims": "Be kind."})
        after = [subject_of(one, context).prompt for one in (of_claims, plainly)]
        assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


async def test_other_weights_of_a_panel_are_another_subject() -> None:
    async with work_alone("judge", models=answering()) as context:
        panels = [
            PanelEvaluationStrategy(["test:judge", "test:other", "test:judge"], judged(), weights=weights)
            for weights in ((1, 1, 1), (1, 2, 1))
        ]
        one, other = (subject_of(panel, context).parameters for panel in panels)
        assert one != other


async def test_another_form_of_the_reply_is_another_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    async with work_alone("judge", models=answering()) as context:
        before = subject_of(agent(), context)
        monkeypatch.setattr(Question, "schema", lambda _: {"type": "object"})
        assert subject_of(agent(), context).prompt != before.prompt


async def test_a_strategy_that_nothing_tells_from_others_is_refused() -> None:
    with pytest.raises(ValueError, match="`fingerprint`"):
        await calibrate(all_of(Told()), SURE)


class Critic:
    """An agent as the judge, which says what it is or does not."""

    def __init__(self, fingerprint: str | None = None) -> None:
        if fingerprint is not None:
            self.fingerprint = fingerprint

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user(assignment.goal)])
        await context.model("test:judge").complete(request)
        return ScriptedJudge().write(request)


async def test_an_agent_as_the_judge_says_what_it_is() -> None:
    models = {"test:judge": FunctionModel(lambda request: "hm", name="test:judge")}
    found = await calibrate(agent(judge=Critic("v1")), PROSE, {"pass": 0.1}, models=models)
    assert certificate(found).n == 40
    scored = await score_judge(agent(judge=Critic("v2")), PROSE, found.certificates, models=models)
    assert "made for another judge" in scored.why_not[0]
    with pytest.raises(ValueError, match="`fingerprint`"):
        await calibrate(agent(judge=Critic()), PROSE, models=models)


# ---------------------------------------------------------------- asking


async def test_every_example_is_reviewed_once_each_with_money_of_its_own_from_one_budget() -> None:
    judge = Judging({"plain": "met"})
    found = await calibrate(agent(), PROSE, models={"test:judge": judge.model}, concurrency=7)
    assert len(judge.asked) == 40
    assert found.report.false_pass.n == 40
    with pytest.raises(HaltError, match="token_budget_exceeded"):
        await calibrate(agent(), PROSE, models={"test:judge": judge.model}, budget=kt.Budget(tokens=3_000))


async def test_a_judge_that_fails_decides_nothing() -> None:
    judge = Judging({"plain": "met"}, write=lambda reply: "hm")
    found = await calibrate(agent(), PROSE, models={"test:judge": judge.model})
    assert (found.certificates, found.report.no_answer) == ([], {"evaluator_error": 40})


async def test_asking_again_is_a_call_of_its_own_even_where_the_same_is_asked() -> None:
    class Coin(Told):
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            assert context.context is not None
            await context.context.model("test:judge").complete(kt.ModelRequest([kt.Message.user("heads?")]))
            return await super().evaluate(context)

    model = ScriptedModel(["yes"] * 320, name="test:judge")
    await calibrate(Coin(), SURE, repeats=2, models={"test:judge": model})
    model.assert_complete()


async def test_flips_are_counted_over_repeats() -> None:
    class Wavering(Told):
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            again = context.artifact.text in self.asked
            verdict = await super().evaluate(context)
            flips = again and context.artifact.text.endswith(".0")
            return kt.EvaluationVerdict.escalate(kt.Cause.UNDECIDED, "now it wavers") if flips else verdict

    found = await calibrate(Wavering(), SURE, repeats=3, concurrency=1)
    assert (found.report.flips.k, found.report.flips.n) == (4, 160)
    assert certificate(found).n == 60


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "alpha": ({"alpha": 0}, "alpha must be a number above 0"),
    "delta": ({"delta": 1.5}, "delta must be a number above 0"),
    "a side that is none": ({"alpha": {"maybe": 0.1}}, "'pass', 'revise' or both"),
    "no side": ({"alpha": {}}, "'pass', 'revise' or both"),
    "no labels": ({"labelled": []}, "at least one"),
    "texts for labels": ({"labelled": ["x"]}, "LabelledArtifact objects"),
    "repeats": ({"repeats": 0}, "repeats must be a whole number"),
    "concurrency": ({"concurrency": True}, "concurrency must be a whole number"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_asked_for_is_refused(name: str) -> None:
    fields, complaint = BAD[name]
    asked: dict[str, Any] = {"labelled": SURE, **fields}
    with pytest.raises(ValueError, match=complaint):
        await calibrate(Told(), **asked)


def test_only_certificates_are_taken_for_certificates() -> None:
    with pytest.raises(ValueError, match="Certificate objects"):
        CalibratedEvaluationStrategy(Told(), ["certificates.json"])  # type: ignore[list-item]  # what is refused


@pytest.mark.exhaustive
@pytest.mark.local_model
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
async def test_the_embedded_model_can_be_calibrated_and_with_few_labels_is_promised_nothing() -> None:
    judge = agent(judge="local:smollm2", settings={"max_tokens": 150})
    found = await calibrate(judge, PROSE[:1], budget=kt.Budget(seconds=900))
    assert (found.certificates, found.report.examples) == ([], 1)
    assert all("label more" in sentence for sentence in found.shortfalls)
    assert found.usage.tokens > 0
