"""The team that a small model plans: what is accepted, what is sent back, and how a run without a good plan ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.testing import EventRecorder
from tests.examples.running import start

expert_team = pytest.importorskip("kairo_team.examples.expert_team", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/expert_team.py"
SUBJECTS = ["tide", "wind", "kites"]
RECORDED = "tide: high at 14:20, 6.8 m\nwind: from the west, 5 knots\nkites: forbidden near the pier"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")

Run = Callable[..., kt.TeamResult]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the team offline, on these plans, sentences and goal in the place of its own."""

    def run_it(
        plans: list[str] | None = None,
        sentences: list[str] | None = None,
        goal: str = expert_team.GOAL,
        runtime: kt.Runtime | None = None,
    ) -> kt.TeamResult:
        monkeypatch.setattr(expert_team, "PLANS", expert_team.PLANS if plans is None else plans)
        monkeypatch.setattr(expert_team, "SENTENCES", expert_team.SENTENCES if sentences is None else sentences)
        team, request = expert_team.build(offline=True)
        return kt.run_sync(team, replace(request, goal=goal), runtime=runtime)

    return run_it


def transcripts() -> list[str]:
    """What the page shows: offline, then on the embedded model."""
    page = (ROOT / "docs/expert-team.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in page.split("```text\n")[1:]]


def test_the_page_shows_what_it_prints_offline() -> None:
    done = start(str(FILE), "--offline")
    assert done.stdout.splitlines() == transcripts()[0].splitlines()
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_not_in_the_record_is_sent_back(run: Run) -> None:
    recorder = EventRecorder()
    result = run(runtime=kt.Runtime(subscribers=[recorder]))
    recorder.assert_lawful()
    assert result.status is kt.TeamStatus.COMPLETED
    assert {outcome.task_id: outcome.attempts for outcome in result.outcomes} == {
        "notice": 1,
        "tide": 1,
        "wind": 2,
        "kites": 1,
    }
    first, *_ = [event.verdict for event in recorder.of(kt.events.EvaluationResult, "wind")]
    assert first.feedback == "leave out 15; say 5"


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param("no plan at all", id="no-json"),
        pytest.param(expert_team.plan_for(["tide", "wind"]), id="a-subject-is-left-out"),
        pytest.param(expert_team.plan_for(["tide", "fog", "kites"]), id="one-takes-the-place-of-another"),
        pytest.param(expert_team.plan_for([*SUBJECTS, "ice"]), id="a-subject-is-brought-in"),
        pytest.param(expert_team.plan_for([*SUBJECTS, "fog"]), id="one-of-the-record-is-brought-in"),
        pytest.param(expert_team.plan_for(SUBJECTS).replace('"depends_on": ["tide", ', '"depends_on": ['), id="unused"),
        pytest.param(expert_team.plan_for(SUBJECTS).replace('"editor"', '"writer"'), id="no-editor"),
    ],
)
def test_without_a_good_plan_the_record_itself_goes_up(run: Run, plan: str) -> None:
    result = run(plans=[plan, plan], sentences=[])
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, RECORDED)
    assert "planning failed, one task replaces the plan: " in result.warnings[0]


def test_a_goal_that_the_record_knows_nothing_of_is_no_success(run: Run) -> None:
    result = run(plans=["no plan"] * 2, goal="Put up a notice on the moon.")
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "The record has nothing on it.")


def test_a_bad_plan_is_asked_for_once_more(run: Run) -> None:
    result = run(plans=["no plan at all", *expert_team.PLANS])
    assert result.status is kt.TeamStatus.COMPLETED


def test_a_sentence_that_never_passes_makes_the_run_degraded(run: Run) -> None:
    wrong = [f"The tide is high at 14:20, {metres}.8 m." for metres in (7, 8, 9, 10)]
    result = run(sentences=[*wrong, *expert_team.SENTENCES[2:]])
    assert result.status is kt.TeamStatus.DEGRADED
    assert any("'tide': accepted without a PASS" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("sentence", "feedback"),
    [
        ("The tide is high at 14:20, 6.8 m.", ""),
        ("THE TIDE IS HIGH AT 14:20, 6.8 M.", ""),
        ("The tide is high at 14:20.", "say 6.8, m"),
        ("The tide is high at 14:20, 7.8 m.", "leave out 7.8; say 6.8"),
        ("The tide is high at 14:20, 6.8 m, after the storm.", "leave out after, storm"),
        ("Wind from the west, 5 knots.", "leave out wind, west, 5, knots; say tide, high, at, 14:20, 6.8, m"),
        ("The tide is high at 14:20, 6.8 m. " * 3, "say it once"),
    ],
)
async def test_the_rubric(sentence: str, feedback: str) -> None:
    task = kt.Task("tide", "Write about the tide.", member="writer")
    verdict = await expert_team.RUBRIC.evaluate(kt.EvaluationContext(task, kt.Artifact(sentence), 1))
    assert verdict.feedback == feedback
    assert (verdict.outcome is kt.VerdictOutcome.PASS) is (not feedback)


async def test_the_notice_must_have_every_subject_of_the_goal() -> None:
    task = kt.Task("notice", "Put up the notice.", member="editor")
    notice = kt.Artifact("The tide is high at 14:20, 6.8 m.\nThe wind is from the west, 5 knots.")
    verdict = await expert_team.RUBRIC.evaluate(kt.EvaluationContext(task, notice, 1, goal=expert_team.GOAL))
    assert verdict.feedback == "say kites, forbidden, near, pier"


def test_a_missing_model_is_one_sentence() -> None:
    done = start(str(FILE), KAIRO_LOCAL_MODEL="no.gguf")
    assert done.returncode == 1
    assert "there is no file 'no.gguf': KAIRO_LOCAL_MODEL must name a GGUF file" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_the_embedded_model_plans_and_writes() -> None:
    """Its words are those of one machine: what holds anywhere is that the notice says what the record says."""
    done = start(str(FILE))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(("COMPLETED", "DEGRADED"))
    assert {"14:20", "6.8", "5", "knots", "pier"} <= set(expert_team.WORD.findall(done.stdout))
    assert lines[-1].startswith("COMPLETED") or "planning failed" in done.stdout or "without a PASS" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_kairo_runs_it_on_another_goal() -> None:
    done = start("-m", "kairo_team.cli", "run", str(FILE), "Put up a notice on the fog and the waves.")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert {"9:30", "0.4"} <= set(expert_team.WORD.findall(done.stdout))
