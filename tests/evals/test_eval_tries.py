"""What repeats say of a case: pass@k and pass^k; and the same eval for a CI system."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.evals import EvalResult
from kairo_team.evals.eval_result import Outcome, Trial
from kairo_team.views.eval_junit import draw_junit
from kairo_team.views.eval_table import draw_eval


def result_of(*cases: Sequence[Outcome], **fields: Any) -> EvalResult:
    trials = [
        Trial(f"c{place}", number, outcome, **fields)
        for place, outcomes in enumerate(cases)
        for number, outcome in enumerate(outcomes, 1)
    ]
    return EvalResult("tides", tuple(trials), len(cases[0]), team="desk")


@given(st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1)))
def test_they_are_what_all_choices_of_k_trials_give(passed: list[list[bool]]) -> None:
    said: dict[bool, Outcome] = {True: "pass", False: "fail"}
    outcomes: list[list[Outcome]] = [[said[one] for one in trials] for trials in passed]
    metrics = result_of(*outcomes).metrics
    for k in range(2, len(passed[0]) + 1):
        for name, how in (("any", any), ("all", all)):
            wanted = fmean(fmean(how(chosen) for chosen in combinations(trials, k)) for trials in passed)
            assert metrics[f"pass_{name}_{k}"] == pytest.approx(wanted)


def test_a_trial_that_was_not_run_has_not_passed_and_one_repeat_has_no_such_figure() -> None:
    assert result_of(["pass", "not run"]).metrics["pass_all_2"] == 0.0
    assert not [name for name in result_of(["pass"]).metrics if name.startswith("pass_a")]


def test_the_table_says_it() -> None:
    table = draw_eval(result_of(["pass", "fail"], ["pass", "pass"]))
    assert "tries   any of 2 passes in 100.0% of the cases, all in 50.0%" in table


def test_ci_is_given_a_test_for_each_trial() -> None:
    result = result_of(["pass", "fail"], ["undecided", "error"], ["not run", "pass"], why="no moon", output="It rises.")
    root = ET.fromstring(draw_junit(result))  # noqa: S314 - our own
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
    }
    [suite] = root
    assert suite.get("name") == "desk on tides"
    assert [(one.get("name"), *[part.tag for part in one]) for one in suite] == [
        ("c0 1", "system-out"),
        ("c0 2", "failure", "system-out"),
        ("c1 1", "error", "system-out"),
        ("c1 2", "error", "system-out"),
        ("c2 1", "skipped", "system-out"),
        ("c2 2", "system-out"),
    ]
    failure = suite[1][0]
    assert (failure.get("message"), failure.text) == ("no moon", "no moon")


@given(st.text(), st.text())
def test_whatever_a_model_wrote_the_file_can_be_read(why: str, output: str) -> None:
    result = result_of(["fail"], why=f"{why}\x00<&\ud800", output=f"]]>{output}\x1b[31m", cause=kt.Cause.UNDECIDED)
    drawn = draw_junit(result)
    root = ET.fromstring(drawn.encode("utf-8"))  # noqa: S314 - our own
    assert root[0][0][0].get("type") == "undecided"
