"""Results of evals: metrics, files, comparisons, tables and pages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.evals import EvalResult, Trial, compare
from kairo_team.evals.eval_result import OUTCOMES, Outcome, sign_test
from kairo_team.evaluators import CriterionResult
from kairo_team.views.eval_page import render_eval
from kairo_team.views.eval_table import draw_comparison, draw_eval


def trial(case: str, outcome: Outcome, number: int = 1, **fields: object) -> Trial:
    met = {"pass": True, "fail": False}.get(outcome)
    level = "unknown" if met is None else "met" if met else "not met"
    criteria = (CriterionResult("short", level, met, "why", text="at most four words"),)
    given: dict[str, object] = {"criteria": () if outcome in ("error", "not run") else criteria, **fields}
    return Trial(case, number, outcome, **given)  # type: ignore[arg-type]  # the fields of a trial


def result(*outcomes: Outcome, repeat: int = 1, **fields: object) -> EvalResult:
    trials = tuple(trial(f"c{place // repeat}", one, place % repeat + 1) for place, one in enumerate(outcomes))
    return EvalResult("cases", trials, repeat, dataset="d", rubric="r", **fields)  # type: ignore[arg-type]  # the same


RESULTS = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=24).map(lambda found: result(*found))


def test_every_planned_trial_counts_in_the_pass_rate() -> None:
    found = result("pass", "fail", "undecided", "error", "not run")
    assert (found.metrics["pass_rate"], found.passed.n) == (0.2, 5)
    assert found.metrics["not_run_rate"] == 0.2
    assert str(found.criteria["short"]).startswith("1 of 2")


def test_repeats_of_a_case_make_the_interval_no_narrower() -> None:
    both: list[Outcome] = ["pass", "fail"]
    once, thrice = result(*both * 5), result(*sorted(both * 3), repeat=3)
    assert thrice.interval == result("pass", "fail").interval
    assert thrice.interval[0] < once.interval[0]
    assert thrice.metrics["flip_rate"] == 0.0
    assert result("pass", "fail", repeat=2).metrics["flip_rate"] == 1.0


@given(RESULTS)
def test_a_result_comes_back_from_its_file(tmp_path_factory: pytest.TempPathFactory, found: EvalResult) -> None:
    path = tmp_path_factory.mktemp("evals") / "a.json"
    found.save(path)
    assert EvalResult.load(path) == found
    assert json.loads(path.read_text())["metrics"] == found.metrics


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version": 1, "name": 3}', '{"version": 2}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"JSON|not a result of an eval|name|trials"):
        EvalResult.load(path)


@given(RESULTS, RESULTS)
def test_a_comparison_turned_round_is_its_mirror(one: EvalResult, other: EvalResult) -> None:
    there, back = compare(one, other), compare(other, one)
    assert (there.better, there.worse) == (back.worse, back.better)
    assert there.p_value == back.p_value
    assert there.passed.change == pytest.approx(-back.passed.change)
    assert there.passed.low <= there.passed.change <= there.passed.high
    assert there.cases == min(len(one.cases), len(other.cases))


@given(RESULTS)
def test_an_eval_is_no_better_than_itself(found: EvalResult) -> None:
    same = compare(found, found)
    assert (same.better, same.worse, same.p_value) == ((), (), 1.0)
    assert (same.passed.low, same.passed.change, same.passed.high) == (0, 0, 0)


def test_the_sign_test_is_exact() -> None:
    assert sign_test(5, 0) == pytest.approx(2 / 2**5)
    assert sign_test(0, 6) == pytest.approx(2 / 2**6)
    assert sign_test(4, 1) == pytest.approx(2 * (1 + 5) / 2**5)
    assert sign_test(3, 3) == 1.0


def test_what_makes_two_evals_hard_to_compare_is_said() -> None:
    before, after = (
        result("pass", "fail"),
        EvalResult("x", (trial("c0", "pass"), trial("c9", "fail")), rubric="s", judge="m"),
    )
    warnings = compare(after, before).warnings
    assert [
        any(word in one for one in warnings)
        for word in ("earlier eval alone", "later eval", "rubrics", "judges", "few")
    ] == [True] * 5
    with pytest.raises(ValueError, match="no case in common"):
        compare(result("pass"), EvalResult("x", (trial("other", "pass"),)))


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def test_hostile_text_is_shown_as_text() -> None:
    found = EvalResult(
        HOSTILE,
        (trial("c0", "fail", why=HOSTILE, output=HOSTILE * 10_000),),
        team=HOSTILE,
        judge=HOSTILE,
        error=HOSTILE,
    )
    page, table = render_eval(found, compare(found, found)), draw_eval(found) + draw_comparison(compare(found, found))
    assert "<script>" not in page
    assert "\x1b" not in page + table
    assert "\u202e" not in page + table
    assert len(page) < 40_000


def test_a_file_of_somebody_else_forges_no_line() -> None:
    forged = HOSTILE + "\n  passed  9 of 9, 100.0%\n"
    criteria = (CriterionResult(forged, "not met" + forged, False, forged, text=forged),)
    trials = [trial(forged, "fail", criteria=criteria, why=forged, output=forged)]
    before = EvalResult(forged, tuple(trials), judge=forged, error=forged)
    passed = trial(forged, "pass", criteria=(dataclasses.replace(criteria[0], passed=True),))
    compared = compare(dataclasses.replace(before, trials=(passed,), judge="test:judge"), before)
    shown = draw_eval(before), draw_comparison(compared), render_eval(before, compared)
    assert "<script>" not in shown[2]
    for text in shown:
        assert "\x1b" not in text
        assert "\u202e" not in text
    for text in shown[:2]:
        assert not any(line.strip() == "passed  9 of 9, 100.0%" for line in text.splitlines())


def test_a_page_and_a_table_name_what_did_not_pass() -> None:
    failed: list[Outcome] = ["fail"]
    found = result("pass", *failed * 30, "error")
    table = draw_eval(found)
    assert "1 of 32, 3.1%" in table
    assert "and 11 more cases" in table
    assert "and 11 more" not in draw_eval(found, full=True)
    page = render_eval(found)
    assert page.index("c31") < page.index("<bdi>c0</bdi>")
    assert found._repr_html_() in page
    assert str(found) == table


def test_third_o60_why_a_judge_left_trials_undecided_is_shown_whole_and_once() -> None:
    why = f"the judge 'local:smollm2' took longer than 60 seconds: {'as it was ' * 12}; it is not fit to judge"
    trials = [trial(f"c{number}", "undecided", why=why) for number in range(3)]
    table = draw_eval(EvalResult("cases", (*trials, trial("c4", "undecided", why="a full disk"), trial("c5", "fail"))))
    assert table.count("it is not fit to judge") == 1
    assert [line.split()[:2] for line in table.partition("Why a judge left trials undecided\n")[2].splitlines()] == [
        ["3", "trials"],
        ["1", "trial"],
    ]
    assert "undecided" not in draw_eval(result("pass", "fail"))
