"""Rubrics: what is refused, what a verdict says, and that nothing unknown ever counts for or against an artifact."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kairo_team as kt
from kairo_team.evaluators import Answer, Criterion, CriterionResult, Rubric, SimpleEvaluationStrategy, checks
from kairo_team.evaluators.score_range import Kind
from tests.evaluators.rubric_rig import asked, context, one, said, verdict

# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Rubric([]), "needs at least one criterion"),
        (lambda: Rubric([one(True), one(True)]), "given twice: 'c'"),
        (lambda: Rubric([one(True, kind="info")]), "not only 'info'"),
        (lambda: Rubric([one(True, kind="penalty"), one(True, id="d", kind="info")]), "not only 'info', 'penalty'"),
        (lambda: Rubric([one(True)], threshold=0), "Rubric.threshold must be above 0 and at most 1, not 0"),
        (lambda: Rubric([one(True)], threshold=1.1), "at most 1, not 1.1"),
        (lambda: Rubric([one(True)], threshold=float("nan")), "a finite number is needed, not nan"),
        (lambda: Rubric([one(True)], check_timeout=0), "Rubric.check_timeout must be > 0"),
        (lambda: Rubric([said(True)]), "a rubric is made of Criterion objects"),  # type: ignore[list-item]
        (lambda: one(True, text=" "), "the text must not be blank"),
        (lambda: one(True, id="a b"), "an id is made of"),
        (lambda: one(True, weight=0), "the weight must be a finite number > 0, not 0"),
        (lambda: one(True, weight=-1), "the weight must be a finite number > 0, not -1"),
        (lambda: one(True, weight=float("nan")), "the weight must be a finite number > 0, not nan"),
        (lambda: one(True, weight=True), "the weight must be a finite number > 0, not True"),
        (lambda: one(True, kind="gates"), "kind must be one of 'gate', 'graded', 'info', 'penalty', not 'gates'"),
        (lambda: one(True, by="judge"), "a judge decides it, so it takes no check"),
        (lambda: Criterion("c", "it is good"), "the check must be a function, not None; without one say by='judge'"),
        (lambda: Criterion("c", "x", by="model"), "by must be one of 'check', 'human', 'judge', not 'model'"),  # type: ignore[arg-type]
        (lambda: Criterion("c", "x", "not blank"), "the check must be a function, not 'not blank'"),  # type: ignore[arg-type]
        (lambda: one(True, levels=("met",)), "levels need two names at least"),
        (lambda: one(True, levels="met"), "levels are a list of names"),
        (lambda: one(True, levels=("no", " ")), "none of them blank"),
        (lambda: one(True, levels=("no", "no")), "levels must differ"),
        (lambda: one(True, levels=("unknown", "met")), "none be called 'approved', 'not applicable', 'unknown'"),
        (lambda: one(True, evidence="quote"), "only a judge gives quotes"),
        (lambda: asked("c", evidence="proof"), "evidence must be one of 'none', 'quote', 'sources', not 'proof'"),
        (lambda: one(True, applies=True), "applies must be a function or None"),
        (lambda: Criterion("c", "x", checks.max_words), "is a factory, not a check: call it, check=max_words(...)"),  # type: ignore[arg-type]
        (lambda: one(True, applies=checks.contains), "is a factory, not a check: call it, applies=contains(...)"),
    ],
)
def test_kf_e06_a_rubric_that_could_not_fail_or_be_decided_is_refused(make: Callable[[], object], problem: str) -> None:
    """E06: an empty rubric passed."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the next line matches the sentence
        make()
    assert problem in str(refused.value)


def test_kf_e03_the_simple_strategy_asks_no_judge_and_says_so_at_once() -> None:
    """E03: a judge was wanted and not wired, and silently there was none."""
    with pytest.raises(ValueError, match="asks no judge, and one decides 'kind'"):
        SimpleEvaluationStrategy(Rubric([one(True), asked("kind")]))


def test_preflight_names_each_criterion_that_nobody_could_decide() -> None:
    rubric = Rubric([one(True), asked("kind"), asked("sign-off", "human")])
    assert [line.partition(":")[0] for line in rubric.preflight()] == ["criterion 'kind'", "criterion 'sign-off'"]
    assert rubric.preflight(judge=True) == [
        (
            "criterion 'sign-off': a human decides it, and the run has no gate: give the runtime one, such as "
            "gate=kt.ConsoleGate()"
        )
    ]
    assert rubric.preflight(judge=True, gate=True) == []
    assert SimpleEvaluationStrategy().preflight() == []


def test_a_review_for_non_blankness_alone_is_vacuous() -> None:
    assert SimpleEvaluationStrategy().vacuous
    assert Rubric([Criterion("n", "not blank", checks.not_blank), one(True, kind="info")]).vacuous
    assert not Rubric([Criterion("n", "not blank", checks.not_blank), one(True)]).vacuous
    assert not Rubric([Criterion("n", "not blank", checks.not_blank), asked("j")]).vacuous


@pytest.mark.parametrize("name", [name for name in checks.__all__ if inspect.isfunction(getattr(checks, name))])
def test_audit_g09_a_function_that_makes_a_check_is_refused_as_one(name: str) -> None:
    with pytest.raises(ValueError, match=rf"criterion 'c': {name} is a factory, not a check: call it"):
        Criterion("c", "it is good", getattr(checks, name))


# ---------------------------------------------------------------- verdicts


async def test_all_met_is_a_pass_with_a_full_score() -> None:
    passed = await verdict(one(True), one(True, id="d", kind="graded"))
    results = [CriterionResult(name, "met", True, text="it is good", by="check") for name in "cd"]
    assert passed == kt.EvaluationVerdict.passed(1.0, criteria=results)


async def test_every_defect_is_found_at_once_and_said_so_that_it_can_be_mended() -> None:
    finding = kt.Finding("dose", locus="line 2", observed="5 g", expected="5 mg")
    revise = await verdict(
        one(False, id="a"),
        one("too long", id="b"),
        one(finding, id="c"),
        one(Answer(False, "it is dull"), id="d"),
        one(True, id="e"),
    )
    assert revise.outcome is kt.VerdictOutcome.REVISE
    assert [found.criterion for found in revise.findings] == ["a", "b", "c", "d"]
    assert [found.observed for found in revise.findings] == ["not met: it is good", "too long", "5 g", "it is dull"]
    assert [found.expected for found in revise.findings] == ["it is good", "it is good", "5 mg", "it is good"]
    assert revise.findings[2].locus == "line 2"
    assert revise.feedback == "not met: it is good; too long; 5 g; it is dull"
    assert revise.score == 0.2
    assert [(result.level, result.passed) for result in revise.criteria] == [*[("not met", False)] * 4, ("met", True)]


async def test_graded_criteria_block_only_where_the_threshold_cannot_be_reached() -> None:
    graded = [one(False, id="short", kind="graded"), one(True, id="kind", kind="graded", weight=4)]
    passed = await verdict(*graded, threshold=0.8)
    assert (passed.outcome, passed.score) == (kt.VerdictOutcome.PASS, 0.8)
    assert [found.severity for found in passed.findings] == ["info"]
    revise = await verdict(*graded, threshold=0.9)
    assert (revise.outcome, revise.score) == (kt.VerdictOutcome.REVISE, 0.8)
    assert [found.severity for found in revise.findings] == ["blocking"]
    gate = await verdict(*graded, one(False), threshold=0.8)
    assert [(found.criterion, found.severity) for found in gate.findings] == [("c", "blocking"), ("short", "info")]
    assert gate.feedback == "not met: it is good"


async def test_a_penalty_takes_its_weight_when_it_is_not_met() -> None:
    calm = one("it shouts", id="calm", kind="penalty", weight=1)
    body = one(True, kind="graded", weight=4)
    assert (await verdict(body, calm, threshold=0.75)).score == 0.75
    revise = await verdict(body, calm)
    assert (revise.outcome, [found.observed for found in revise.findings]) == (kt.VerdictOutcome.REVISE, ["it shouts"])


async def test_an_info_is_told_and_decides_nothing() -> None:
    passed = await verdict(one(True), one("long-winded", id="style", kind="info"))
    assert passed.outcome is kt.VerdictOutcome.PASS
    assert [(found.criterion, found.severity) for found in passed.findings] == [("style", "info")]


async def test_levels_between_the_worst_and_the_best() -> None:
    levels = ("poor", "fair", "good")
    fair = await verdict(one(Answer("fair"), kind="graded", levels=levels), threshold=0.5)
    assert (fair.outcome, fair.score, fair.criteria[0].level) == (kt.VerdictOutcome.PASS, 0.5, "fair")
    gate = await verdict(one(Answer("fair"), levels=levels))
    assert (gate.outcome, gate.findings[0].observed) == (kt.VerdictOutcome.REVISE, "fair: it is good")
    best = await verdict(one(True, levels=levels))
    assert (best.outcome, best.criteria[0].level) == (kt.VerdictOutcome.PASS, "good")


@pytest.mark.parametrize(
    ("strategy", "score"),
    [(SimpleEvaluationStrategy(), None), (SimpleEvaluationStrategy(Rubric([one(True)])), 1.0)],
    ids=["default", "rubric"],
)
async def test_the_simple_strategy_is_its_rubric(strategy: SimpleEvaluationStrategy, score: float | None) -> None:
    passed = await strategy.evaluate(context("text"))
    assert passed == await strategy.rubric.evaluate(context("text"))
    assert (passed.outcome, passed.score) == (kt.VerdictOutcome.PASS, score)


async def test_without_a_rubric_the_simple_strategy_sends_back_what_is_blank() -> None:
    revise = await SimpleEvaluationStrategy().evaluate(context(" "))
    assert (revise.outcome, revise.feedback, revise.score) == (kt.VerdictOutcome.REVISE, "the artifact is blank", 0.0)
    assert repr(SimpleEvaluationStrategy().rubric) == "Rubric(['not-blank'])"


# ---------------------------------------------------------------- unknown


NONSENSE = [None, 1, 0, 1.0, "", " ", [True], {"pass": True}, object(), Answer("splendid"), Answer(None), Answer(7)]  # type: ignore[arg-type]
BROKEN = [KeyError("no such\nword"), OSError(), TimeoutError("their own"), SystemExit(0), AssertionError("x" * 10_000)]


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda answer: f"{answer!r:.30}".partition(" at ")[0])
@pytest.mark.parametrize("kind", ["gate", "graded"])
async def test_kf_e05_what_is_no_answer_is_unknown(answer: Any, kind: Kind) -> None:
    """E05: missing `pass` read as true; None read as pass; approval by substring."""
    await undecided(answer, kind)


@pytest.mark.parametrize("answer", BROKEN, ids=lambda answer: f"{answer!r:.30}".partition(" at ")[0])
@pytest.mark.parametrize("kind", ["gate", "graded"])
async def test_kf_e01_a_broken_check_is_unknown_and_never_a_score(answer: Any, kind: Kind) -> None:
    """E01: a crash was booked as a pass, or as a score."""
    await undecided(answer, kind)


UNSOUND: dict[str, tuple[dict[str, Any], str]] = {
    "no reason": ({"reason": None}, "Answer.reason must be a string, not None"),
    "an error as reason": ({"reason": ValueError("x")}, "Answer.reason must be a string, not ValueError('x')"),
    "a number as quote": ({"quote": 5}, "Answer.quote must be a string or None, not 5"),
    "a text as finding": ({"finding": "too long"}, "Answer.finding must be a Finding or None, not 'too long'"),
    "no others": ({"others": None}, "Answer.others must be a list, not None"),
    "a text in others": ({"others": ["too long"]}, "Answer.others[0] must be a Finding, not 'too long'"),
}


@pytest.mark.parametrize("what", UNSOUND)
async def test_an_answer_of_the_wrong_parts_is_unknown_and_the_other_criteria_count(what: str) -> None:
    """It took every other criterion with it."""
    parts, sentence = UNSOUND[what]

    def check(artifact: kt.Artifact) -> Answer:
        return Answer(level=False, **parts)

    revise = await verdict(Criterion("odd", "it is odd", check), one("too long", id="d"))
    assert (revise.outcome, revise.feedback) == (kt.VerdictOutcome.REVISE, "too long")
    assert (revise.criteria[0].level, revise.criteria[0].passed) == ("unknown", None)
    assert sentence in revise.criteria[0].reason


async def undecided(answer: Any, kind: Kind) -> None:
    escalated = await verdict(one(answer, kind=kind))
    assert (escalated.outcome, escalated.cause, escalated.score) == (
        kt.VerdictOutcome.ESCALATE,
        kt.Cause.UNDECIDED,
        None,
    )
    result = escalated.criteria[0]
    assert (result.level, result.passed) == ("unknown", None)
    assert 0 < len(result.reason) < 2_200
    assert escalated.findings == (), "it is not the artifact's fault"


async def test_kf_e02_a_broken_check_beside_a_certain_defect_is_not_told_the_member() -> None:
    """E02: outage text was sent to the generator as feedback."""
    revise = await verdict(one(OSError("host unreachable")), one("too long", id="d"))
    assert revise.outcome is kt.VerdictOutcome.REVISE
    assert "unreachable" not in revise.feedback + "".join(found.observed for found in revise.findings)
    assert (revise.score, revise.criteria[0].passed) == (0.0, None)


async def test_a_broken_check_that_could_change_nothing_changes_nothing() -> None:
    passed = await verdict(one(OSError(), kind="graded"), one(True, id="d", kind="graded", weight=4), threshold=0.8)
    assert (passed.outcome, passed.score) == (kt.VerdictOutcome.PASS, 0.8)


async def test_a_check_that_takes_too_long_is_unknown() -> None:
    async def slow(_: kt.Artifact) -> bool:
        await anyio.sleep(3_600)
        return True

    rubric = Rubric([Criterion("slow", "it is quick", slow), one(True)], check_timeout=2)
    escalated = await rubric.evaluate(context())
    assert escalated.criteria[0].reason == "the check of criterion 'slow' took longer than 2 seconds"
    assert (escalated.cause, escalated.criteria[1].passed) == (kt.Cause.UNDECIDED, True)


@pytest.mark.real_time
async def test_a_plain_check_that_hangs_does_not_hang_the_run() -> None:
    enough = threading.Event()

    def hangs(_: kt.Artifact) -> bool:
        return enough.wait(120)

    rubric, ticks = Rubric([Criterion("c", "it is quick", hangs)], check_timeout=0.2), list[int]()

    async def tick() -> None:
        while True:
            ticks.append(1)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        with anyio.fail_after(60):
            for _ in range(2):
                escalated = await rubric.evaluate(context())
                assert escalated.criteria[0].reason.endswith("took longer than 0.2 seconds")
        group.cancel_scope.cancel()
    enough.set()
    assert len(ticks) > 3, "the event loop stood still"


@pytest.mark.real_time
async def test_a_plain_check_that_takes_its_time_is_waited_for() -> None:
    def slow(artifact: kt.Artifact, context: kt.EvaluationContext) -> str:
        time.sleep(0.2)
        if context.attempt == 2:
            raise OSError("gone")
        return f"{artifact.text} is wrong"

    rubric = Rubric([Criterion("c", "it is quick", slow)])
    for _ in range(2):
        assert (await rubric.evaluate(context("this"))).feedback == "this is wrong"
    escalated = await rubric.evaluate(context("this", attempt=2))
    assert escalated.criteria[0].reason.endswith("raised OSError: gone")


async def test_a_plain_check_may_run_an_event_loop_of_its_own() -> None:
    """It is in no event loop's thread, whatever the context variables it sees say."""
    variable = contextvars.ContextVar[str]("variable")
    variable.set("seen")

    def nested(_: kt.Artifact) -> bool | str:
        anyio.run(anyio.lowlevel.checkpoint)
        return variable.get() == "seen"

    assert (await verdict(Criterion("c", "it is nested", nested))).outcome is kt.VerdictOutcome.PASS


HALTED = kt.HaltError(kt.HaltReason.TOKEN_BUDGET_EXCEEDED, kt.Usage(), "team")


async def test_what_a_budget_says_passes_through() -> None:
    with pytest.raises(kt.HaltError):
        await verdict(one(HALTED))
    with pytest.raises(ExceptionGroup):
        await verdict(one(ExceptionGroup("in a task group", [HALTED])))


async def test_cancellation_passes_through() -> None:
    """It is not a verdict."""

    async def forever(_: kt.Artifact) -> bool:
        await anyio.sleep_forever()
        return True

    with anyio.move_on_after(1) as scope:
        await verdict(Criterion("c", "it is quick", forever))
        pytest.fail("it came back")
    assert scope.cancelled_caught


async def test_long_answers_are_cut() -> None:
    long = "x" * 100_000
    revise = await verdict(one(long), one(kt.Finding("d", observed=long, expected=long, locus=long), id="d"))
    assert all(len(found.observed) < 2_010 and len(found.expected) < 2_010 for found in revise.findings)


# ---------------------------------------------------------------- where a criterion does not apply


async def tabular(artifact: kt.Artifact) -> bool:
    return "table" in artifact.text


async def test_a_criterion_that_does_not_apply_is_left_out_of_the_count() -> None:
    never = one(False, id="never", applies=tabular)
    light = replace(never, id="light", kind="graded", weight=9)
    passed = await verdict(one(True), never, light)
    assert (passed.outcome, passed.score) == (kt.VerdictOutcome.PASS, 1.0)
    assert [(result.level, result.passed) for result in passed.criteria[1:]] == [("not applicable", None)] * 2
    assert (await verdict(one(True), never, light, text="a table")).outcome is kt.VerdictOutcome.REVISE


@pytest.mark.parametrize("applies", [said(None), said("no"), said(OSError()), said(0)])
async def test_where_it_cannot_be_told_whether_a_criterion_applies_it_is_unknown(applies: Any) -> None:
    escalated = await verdict(one(True), one(True, id="d", applies=applies))
    assert (escalated.cause, escalated.criteria[1].level) == (kt.Cause.UNDECIDED, "unknown")


async def test_where_nothing_applies_nothing_passes() -> None:
    escalated = await verdict(one(True, applies=said(False)))
    assert (escalated.outcome, escalated.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.UNDECIDED)
