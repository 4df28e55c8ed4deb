"""The desk whose members hand over to each other: what its page shows, and what holds for other messages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.testing import EventRecorder, ScriptedModel
from tests.examples.running import start

support_desk = pytest.importorskip("kairo_team.examples.support_desk", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/support_desk.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


def transcripts() -> list[list[str]]:
    """What the page shows: offline, then on the embedded model."""
    page = (ROOT / "docs/handoff.md").read_text(encoding="utf-8")
    return [block.partition("```")[0].splitlines() for block in page.split("```text\n")[1:]]


def run(goal: str, *replies: str) -> tuple[kt.TeamResult, list[str | None]]:
    """Run the team with these replies in place of the model's; return who had the turns too."""
    seen = EventRecorder()
    runtime = kt.Runtime(models={support_desk.MODEL: ScriptedModel(replies)}, subscribers=[seen])
    result = kt.run_sync(support_desk.team, replace(support_desk.request, goal=goal), runtime=runtime)
    seen.assert_lawful()
    return result, [event.member for event in seen.of(kt.events.AttemptStarted)]


def test_the_page_shows_what_it_prints_offline() -> None:
    done = start(str(FILE), "--offline")
    assert done.stdout.splitlines() == transcripts()[0]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("goal", "word", "desks"),
    [
        ("I cannot log in.", "password", ["technical"]),
        ("Is invoice 8 open?", "invoice", ["billing"]),
        ("Is invoice 77 open?", "invoice", ["billing"]),
        ("It is slow, and I paid invoice 8.", "search", ["technical", "billing"]),
        ("It is slow, and I paid invoice 8.", "invoice", ["billing", "technical"]),
    ],
)
def test_each_part_of_a_message_reaches_its_desk(goal: str, word: str, desks: list[str]) -> None:
    facts = " ".join(filter(None, (support_desk.fault_in(goal), support_desk.invoice_in(goal))))
    result, who = run(goal, word, *[facts or "It is unknown."] * len(desks))
    assert result.status is kt.TeamStatus.COMPLETED
    assert who == ["greeter", *desks]


def test_a_figure_that_is_in_no_record_is_sent_back() -> None:
    result, who = run("Is invoice 8 open?", "invoice", "9.99 is due.", "Invoice 8 is open, 9.90 is due.")
    assert (result.output, who) == ("Invoice 8 is open, 9.90 is due.", ["greeter", "billing", "billing"])


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_the_embedded_model_finds_the_desk_and_answers() -> None:
    """Who has the turns is the same on any machine; the words are those of one."""
    done = start(str(FILE))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == transcripts()[1][:3]
    assert lines[-1].startswith(("COMPLETED", "DEGRADED"))
    assert {"7", "12.50", "2.1"} <= set(re.findall(r"\d+(?:\.\d+)?", done.stdout))


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_kairo_runs_it_on_another_message() -> None:
    done = start("-m", "kairo_team.cli", "run", str(FILE), "I cannot log in.")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "turn.0002" in done.stdout + done.stderr
