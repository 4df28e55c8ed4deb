"""What a judge is shown has one budget of characters, and what it was not shown supports no level but the lowest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    Criterion,
    Example,
    PairwiseStrategy,
    PanelEvaluationStrategy,
    Rubric,
)
from kairo_team.evaluators.artifact_view import MAX_SHOWN, fitted
from kairo_team.evaluators.attacks.corpus import filler
from kairo_team.testing import ScriptedJudge, ScriptedPairJudge
from tests.evaluators.judge_rig import reviewed
from tests.evaluators.test_judge_question import gate

pytestmark = pytest.mark.anyio

TEXT = "The moon pulls the sea."
WARNING = "The figures of this report are withdrawn."


def shown_to(judge: ScriptedJudge) -> str:
    return "\n".join(message.text for request in judge.calls for message in request.messages)


async def verdict_of(
    judge: ScriptedJudge, *criteria: Criterion, text: str = TEXT, reference: str | None = None, **given: Any
) -> kt.EvaluationVerdict:
    context = reviewed(text, judge)
    task = replace(context.task, reference=reference, description=given.pop("task", context.task.description))
    strategy = AgentEvaluationStrategy("test:judge", Rubric(criteria or [gate()]))
    return await strategy.evaluate(replace(context, task=task, **given))


def unlike(size: int) -> str:
    return filler(size)[:size]


@pytest.mark.parametrize("place", ["upstream", "task", "goal", "reference", "a file", "an example"])
async def test_a_warning_far_down_in_any_text_is_shown(place: str) -> None:
    long = f"{unlike(40_000)}\n{WARNING}"
    judge, asked = ScriptedJudge(), gate()
    given: dict[str, Any] = {}
    match place:
        case "upstream":
            given = {"upstream": {"report": kt.Artifact(long)}}
        case "a file":
            given = {"files": [kt.File(data=long.encode(), name="report.txt", media_type="text/plain")]}
        case "reference":
            asked, given = gate(reference=True), {"reference": long}
        case "an example":
            asked = gate(examples=[Example(long, "not met")])
        case _:
            given = {place: long}
    verdict = await verdict_of(judge, asked, **given)
    assert WARNING in shown_to(judge)
    assert verdict.outcome is kt.VerdictOutcome.PASS


@pytest.mark.parametrize(
    ("place", "says"),
    [("upstream", "the result of 'report'"), ("task", "the task"), ("goal", "the goal"), ("a file", "a file")],
)
async def test_without_the_end_of_a_text_nothing_passes_and_the_verdict_says_what_was_not_shown(
    place: str, says: str
) -> None:
    long = f"{unlike(MAX_SHOWN)}\n{WARNING}"
    file = kt.File(data=long.encode(), name="report.txt", media_type="text/plain")
    given: dict[str, Any] = {place: long}
    if place == "a file":
        given = {"files": [file]}
    elif place == "upstream":
        given = {"upstream": {"report": kt.Artifact(long)}}
    judge = ScriptedJudge()
    verdict = await verdict_of(judge, **given)
    assert WARNING not in shown_to(judge)
    assert f"The end of {says} was not shown." in judge.calls[0].messages[-1].text
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.UNDECIDED)
    assert verdict.criteria[0].reason == f"the end of {says} was not shown to the judge"
    assert f"the judge 'test:judge' was not shown the end of {says}" in verdict.feedback


async def test_what_is_certainly_wrong_stays_so_and_says_what_was_not_shown() -> None:
    given: Any = {"upstream": {"report": kt.Artifact(unlike(2 * MAX_SHOWN))}}
    verdict = await verdict_of(ScriptedJudge(default="not met"), **given)
    assert verdict.outcome is kt.VerdictOutcome.REVISE
    assert "was not shown the end of the result of 'report'" in verdict.feedback


async def test_a_reference_counts_for_the_criteria_that_compare_with_it_alone() -> None:
    asked = [gate("same", reference=True), gate("plain")]
    verdict = await verdict_of(ScriptedJudge(), *asked, reference=unlike(MAX_SHOWN + 1))
    assert [one.level for one in verdict.criteria] == ["unknown", "met"]
    assert verdict.criteria[0].reason == "the end of the reference answer was not shown to the judge"
    judge = ScriptedJudge()
    verdict = await verdict_of(judge, text=unlike(50_000), reference=unlike(50_000))
    assert verdict.outcome is kt.VerdictOutcome.PASS, "a reference that is not shown takes no room"


async def test_an_example_that_was_cut_counts_for_its_criterion_alone() -> None:
    asked = [gate("like", examples=[Example(unlike(MAX_SHOWN + 1), "met")]), gate("plain")]
    verdict = await verdict_of(ScriptedJudge(), *asked)
    assert [one.level for one in verdict.criteria] == ["unknown", "met"]


async def test_all_texts_together_stay_within_the_budget_and_short_ones_stay_whole() -> None:
    judge = ScriptedJudge()
    given: Any = {"upstream": {f"t{n}": kt.Artifact(f"{n} {unlike(30_000)}") for n in range(5)}, "goal": "All of it."}
    await verdict_of(judge, text=unlike(50_000), **given)
    shown = judge.calls[0].messages
    assert "All of it." in shown[-1].text
    fences = sum(len(message.text) for message in shown[1:])
    assert MAX_SHOWN - 5_000 < fences < MAX_SHOWN + 8_000, "the rest is the instructions, and line breaks written out"


async def test_a_panel_says_it_once() -> None:
    context = replace(reviewed(TEXT), upstream={"report": kt.Artifact(unlike(2 * MAX_SHOWN))})
    verdict = await PanelEvaluationStrategy([ScriptedJudge(), ScriptedJudge()], Rubric([gate()])).evaluate(context)
    assert verdict.outcome is not kt.VerdictOutcome.PASS
    assert verdict.feedback.count("was not shown the end of the result of 'report'") == 1


async def test_two_works_that_do_not_fit_beside_their_sources_are_a_tie() -> None:
    judge = ScriptedPairJudge(lambda first, second: "first")
    context = replace(reviewed("", judge), upstream={"report": kt.Artifact(unlike(MAX_SHOWN))})
    found = await PairwiseStrategy("test:judge").compare("One.", "Another.", context)
    assert (found.better, found.orders, judge.calls) == ("tie", (None, None), [])
    assert "the end of the result of 'report' would not be shown" in found.reason


async def test_trying_a_rubric_on_a_text_says_it_in_its_summary() -> None:
    tried = await Rubric([gate()]).try_on(TEXT, judge=ScriptedJudge(), upstream={"report": unlike(2 * MAX_SHOWN)})
    assert "was not shown the end of the result of 'report'" in tried.summary
    assert "the end of the result of 'report' was not shown to the judge" in str(tried)
    assert json.loads(json.dumps(tried.prompt))


@given(st.lists(st.integers(0, 300), max_size=8), st.integers(0, 1_000))
def test_the_longest_texts_are_cut_to_the_same_length_and_no_others(sizes: list[int], most: int) -> None:
    texts = ["x" * size for size in sizes]
    cut = [len(one) for one in fitted(texts, most)]
    assert sum(cut) <= most
    if sum(sizes) <= most:
        assert cut == sizes
    else:
        assert sum(cut) > most - len(sizes) - 1, "but for a remainder all of it is used"
        longest = max(cut)
        assert all(now == size or now >= longest - 1 for now, size in zip(cut, sizes, strict=True))
