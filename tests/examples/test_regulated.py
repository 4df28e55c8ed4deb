"""Dose notes reviewed by a rubric from a package: the page shows what it prints, and nothing goes out unsigned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.contracts import HumanGate

review = pytest.importorskip("kairo_team.examples.regulated.review", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/regulated/review.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


def run(notes: list[str], gate: HumanGate | None) -> kt.TeamResult:
    return kt.run_sync(review.build(notes, gate), kt.TeamExecutionRequest("Dose them.", plan=review.PLAN))


def test_the_page_shows_what_it_prints() -> None:
    done = subprocess.run([sys.executable, str(FILE)], capture_output=True, check=True, timeout=60)
    page = (ROOT / "docs/regulated.md").read_text(encoding="utf-8")
    shown = page.split("```text\n")[1].partition("```")[0]
    assert done.stdout.decode().splitlines() == [*shown.splitlines(), ""]
    said = done.stderr.decode().splitlines()
    assert len(said) == 4, "four of the five scenes end without an output, and the log says why"
    assert all(line.startswith("run '") for line in said)


def test_without_a_gate_it_is_refused_before_anybody_is_called() -> None:
    result = run([review.CAREFUL], None)
    checked = kt.check(review.build([], None), kt.TeamExecutionRequest("Dose them.", plan=review.PLAN))
    assert checked.problems == (result.error,)
    assert result.refused
    assert {outcome.attempts for outcome in result.outcomes} == {0}


def test_what_a_person_signs_is_a_pass_and_shows_who_signed() -> None:
    result = run([review.CARELESS, review.CAREFUL], kt.CallbackGate(lambda _: True))
    verdict = result["note"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.feedback) == (kt.VerdictOutcome.PASS, "a person approved it")
    assert {found.id: found.level for found in verdict.criteria} == {
        "form": "met",
        "cited": "met",
        "dose": "met",
        "day": "met",
        "sign-off": "approved",
    }
    assert (result.status, result["note"].attempts) == (kt.TeamStatus.COMPLETED, 2)


@pytest.mark.parametrize("risk", list(kt.RiskProfile))
@pytest.mark.parametrize("answer", [None, False])
def test_nothing_goes_out_unsigned_at_any_risk(risk: kt.RiskProfile, answer: bool | None) -> None:
    team = review.build([review.CAREFUL], kt.CallbackGate(lambda _: answer))
    request = kt.TeamExecutionRequest("Dose them.", plan=review.PLAN, config=kt.TeamConfig(risk_profile=risk))
    result = kt.run_sync(team, request)
    assert (result.status, result.output) == (kt.TeamStatus.FAILED, None)
    assert result["label"].attempts == 0


def test_a_person_can_overrule_code_and_the_result_says_so() -> None:
    result = run([review.CARELESS] * 4, kt.CallbackGate(lambda _: True))
    verdict = result["note"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, kt.Cause.NO_PROGRESS)
    assert result.status is kt.TeamStatus.DEGRADED
    assert result.warnings == ("task 'note': accepted by a person without a PASS: no_progress",)
