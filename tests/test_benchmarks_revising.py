"""Whether revising helps is measured on instructions that code can decide, by arms that count what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

import kairo_team as kt
from benchmarks.revising import arms, counts, rows
from benchmarks.revising.instructions import INSTRUCTIONS
from benchmarks.revising.picture import draw
from benchmarks.revising.tables import tables
from benchmarks.revising.wanted import Instruction, most_words, says
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.testing import FunctionModel, ScriptedModel

pytestmark = pytest.mark.sampled("anyio_backend")

ROOT = Path(__file__).resolve().parent.parent
HELLO = Instruction("greet-1", "Say hello in at most 2 words.", (most_words(2), says("hello")), "Hello!", "Good day")
LONG = "Good day to you"
"""It misses both."""


async def test_an_instruction_is_passed_by_its_good_answer_and_failed_by_its_bad_one() -> None:
    assert len(INSTRUCTIONS) == len({one.id for one in INSTRUCTIONS}) == len({one.ask for one in INSTRUCTIONS}) == 64
    for one in INSTRUCTIONS:
        good, bad = [await arms.judge(one, kt.ModelResponse(text)) for text in (one.good, one.bad)]
        assert good.passed, (one.id, good.missed)
        assert not bad.passed, one.id


@pytest.mark.exhaustive
async def test_every_criterion_of_an_instruction_is_failed_by_some_answer_of_another() -> None:
    """None of them lets everything pass."""
    texts = [text for one in INSTRUCTIONS for text in (one.good, one.bad)]
    for one in INSTRUCTIONS:
        missed = {name for text in texts for name in (await arms.judge(one, kt.ModelResponse(text))).missed}
        assert missed == {criterion.id for criterion in one.criteria}, one.id


async def test_a_blank_text_never_passes() -> None:
    avoids = next(one for one in INSTRUCTIONS if one.id == "avoids-1")
    assert (await arms.judge(avoids, kt.ModelResponse(" \n"))).missed == ("blank",)


# ------------------------------------------------------------------ the arms


async def test_a_loop_ends_with_the_text_that_passes_and_counts_every_token() -> None:
    model = ScriptedModel([LONG, "Good day", "Hello!"])
    made = await arms.revise(HELLO, model, seed=7)
    model.assert_complete()
    assert [one.missed for one in made] == [("most-words", "says"), ("says",), ()]
    assert [one.tokens for one in made] == [_words(call) + len(text.split()) for call, text in _said(model, made)]
    assert [call.settings["seed"] for call in model.calls] == [7, 8, 9]
    assert {(call.settings["temperature"], call.max_tokens) for call in model.calls} == {(0.7, 80)}


def _words(call: kt.ModelRequest) -> int:
    return sum(len(message.text.split()) for message in call.messages)


def _said(model: FunctionModel, made: list[arms.Try]) -> list[tuple[kt.ModelRequest, str]]:
    texts = {kt.Artifact(text).digest[:8]: text for text in (LONG, "Good day", "Hello!")}
    return [(call, texts[one.digest]) for call, one in zip(model.calls, made, strict=True)]


async def test_findings_are_told_in_one_arm_and_only_to_try_again_in_the_other() -> None:
    with_findings, bare = ScriptedModel([LONG, "Hello!"]), ScriptedModel([LONG, "Hello!"])
    await arms.revise(HELLO, with_findings, seed=1)
    await arms.revise(HELLO, bare, seed=1, again=True)
    assert with_findings.calls[0] == bare.calls[0], "both begin alike"
    told, again = (_unmarked(model.calls[1].messages[-1].text) for model in (with_findings, bare))
    assert LONG in told
    assert "the text has 4 words, at most 2 are allowed" in told
    assert again.endswith(f"Your task: {HELLO.ask}\n\nYour previous version:\n=== \n{LONG}\n=== \n\nTry again.")
    assert told.startswith(again.removesuffix("Try again."))


def _unmarked(prompt: str) -> str:
    """A prompt without its mark, which is another one in each."""
    return re.sub(r"\b[0-9a-f]{16}\b", "", prompt)


async def test_a_loop_that_stands_still_ends_early_unless_it_may_not() -> None:
    texts = ["Good day", "Good night", "Good bye", "Good grief"]
    assert len(await arms.revise(HELLO, ScriptedModel(texts[:3]), seed=1)) == 3
    assert len(await arms.revise(HELLO, ScriptedModel(texts), seed=1, stops=False)) == 4


async def test_asking_anew_shows_no_earlier_text_and_ends_with_one_that_passes_or_the_last() -> None:
    model = ScriptedModel([LONG, LONG, "Hello!"])
    assert [one.passed for one in await arms.ask_anew(HELLO, model, seed=4)] == [False, False, True]
    assert len({call.messages for call in model.calls}) == 1
    assert [call.settings["seed"] for call in model.calls] == [4, 5, 6]
    assert len(await arms.ask_anew(HELLO, FunctionModel(lambda _: LONG), seed=4)) == arms.MOST_ASKED


async def test_all_arms_begin_with_one_text_that_the_model_is_asked_for_once() -> None:
    model = FunctionModel(lambda _: "Hello!")
    row = await rows.measure(HELLO, model, run=2)
    assert len(model.calls) == 1
    assert model.calls[0].settings["seed"] == 2_000
    assert row.findings == row.findings_on == row.again == row.again_on == row.anew


async def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    results, model = tmp_path / "results.jsonl", FunctionModel(lambda _: "Good day")
    await rows.measure_all([HELLO], model, 1, results)
    kept, asked = rows.read(results), len(model.calls)
    await rows.measure_all([HELLO], model, 2, results)
    assert [row.run for row in rows.read(results)] == [1, 2]
    assert rows.read(results)[0] == kept[0] == await rows.measure(HELLO, FunctionModel(lambda _: "Good day"), 1)
    assert len(model.calls) == 2 * asked


# ------------------------------------------------------------------ counting


def _tries(*tokens: int, passes: bool = False) -> list[arms.Try]:
    last = len(tokens) - 1
    return [
        arms.Try(some, () if passes and place == last else ("says",), str(place)) for place, some in enumerate(tokens)
    ]


def _row(name: str, findings: list[arms.Try], again: list[arms.Try], anew: list[arms.Try]) -> rows.Row:
    return rows.Row(name, 1, findings, findings, again, again, anew)


COUNTED = [
    _row("a-1", _tries(10, 20, passes=True), _tries(10, 15, 15, 15), _tries(10, 10, 10, passes=True)),
    _row("a-2", _tries(10, 20, 20, 20), _tries(10, 15, passes=True), _tries(10, 10, 10, passes=True)),
    _row("b-1", _tries(10, passes=True), _tries(10, passes=True), _tries(10, passes=True)),
]


def test_a_text_counts_from_the_one_that_passes_on() -> None:
    reached = [counts.revised("findings")(COUNTED, k) for k in counts.TEXTS]
    assert [one.share.k for one in reached] == [1, 2, 2, 2]
    assert [one.tokens for one in reached] == [30, 70, 90, 110]
    assert [(one.k, one.n) for one in counts.gains(COUNTED, "again")] == [(1, 3), (1, 2), (0, 1), (0, 1)]


def test_asked_anew_for_the_same_tokens_of_each_it_counts_what_fits() -> None:
    """Two more texts of 10 fit into one revision of 20."""
    assert [counts.anew_each(COUNTED, k).passed for k in (1, 2)] == [(False, False, True), (True, True, True)]
    dear = [_row("a-1", _tries(10, 20), [], _tries(10, 21, passes=True))]
    assert counts.anew_each(dear, 2) == counts.Reached((False,), 10)


def test_asked_anew_for_the_same_tokens_in_all_it_counts_whole_rounds() -> None:
    reached = [counts.anew_in_all(COUNTED, k) for k in (1, 2)]
    assert [one.passed for one in reached] == [(False, False, True), (True, True, True)]
    assert [one.tokens for one in reached] == [30, 70]


def test_two_ways_are_compared_row_by_row() -> None:
    reached = [counts.revised(arm)(COUNTED, 4) for arm in ("findings", "again")]
    assert counts.compare(*reached) == counts.Compared(1, 1)
    assert counts.Compared(1, 1).chance == 1.0
    assert counts.Compared(0, 5).chance == pytest.approx(2 / 2**5)


def test_loops_that_ended_early_and_texts_that_came_back_are_counted() -> None:
    stood_still, went_on = _tries(10, 20, 20), _tries(10, 20, 20, 20, passes=True)
    same = [arms.Try(10, ("says",), "x"), arms.Try(20, ("says",), "x"), arms.Try(20, ("says",), "y")]
    early = rows.Row("a-1", 1, stood_still, went_on, same, same, [])
    in_circles = rows.Row("a-2", 1, stood_still, stood_still, same, same, [])
    number, later = counts.stopped([early, in_circles, *COUNTED])
    assert (number, later.k, later.n) == (2, 1, 1)
    assert counts.unchanged([early], "again") == Proportion(1, 2)


def test_kinds_split_what_all_rows_together_reach() -> None:
    assert counts.kinds(COUNTED) == {"a": [0, 1], "b": [2]}
    assert "| a | 0 of 2 | 1 | 1 | 2 |" in list(tables(COUNTED))
    assert "| b | 1 of 1 | 1 | 1 | 1 |" in list(tables(COUNTED))


# ------------------------------------------------------------------ what was measured


def test_the_page_and_its_picture_are_drawn_from_the_results() -> None:
    measured = rows.read(ROOT / "benchmarks" / "revising" / "results.jsonl")
    runs = {row.run for row in measured}
    assert {(row.instruction, row.run) for row in measured} == {(one.id, run) for one in INSTRUCTIONS for run in runs}
    page = (ROOT / "docs" / "revising.md").read_text("utf-8")
    assert [line for line in tables(measured) if line not in page.splitlines()] == []
    assert (ROOT / "docs" / "revising.svg").read_text("utf-8") == draw(measured)


@pytest.mark.exhaustive
def test_the_command_prints_what_is_measured_and_draws_it_beside(tmp_path: Path) -> None:
    """With every row there, no model is asked."""
    measured = ROOT / "benchmarks" / "revising" / "results.jsonl"
    results = tmp_path / "mine.jsonl"
    results.write_bytes(measured.read_bytes())
    runs = str(max(row.run for row in rows.read(results)))
    command = [sys.executable, "-m", "benchmarks.revising", "--results", str(results), "--runs", runs]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert printed.splitlines() == list(tables(rows.read(measured)))
    assert results.read_bytes() == measured.read_bytes()
    assert (tmp_path / "mine.svg").read_text("utf-8") == draw(rows.read(measured))
