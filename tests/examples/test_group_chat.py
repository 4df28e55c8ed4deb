"""The talk about the boat: what the page shows, how it settles, and what a talk that settles nothing ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.coordinators import Said
from tests.examples.running import start

group_chat = pytest.importorskip("kairo_team.examples.group_chat", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/group_chat.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


def test_the_page_shows_what_it_prints_offline() -> None:
    page = (ROOT / "docs/group-chat.md").read_text(encoding="utf-8")
    done = start(str(FILE), "--offline")
    assert done.stdout.splitlines() == page.split("```text\n")[1].partition("```")[0].splitlines()
    assert (done.returncode, done.stderr) == (0, "")


def test_a_talk_that_settles_nothing_is_degraded_and_says_who_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_chat, "SCRIPT", ["15:00", "9:00", "18:00"] * 3)
    result = kt.run_sync(*group_chat.build(offline=True))
    assert result.status is kt.TeamStatus.DEGRADED
    assert result.output == "Nothing was settled: skipper says 15:00, cook says 9:00, guide says 18:00."
    assert result.warnings == ("`until` had not ended the talk after 9 turns (max_turns)",)


def test_each_member_is_shown_what_the_others_said_last() -> None:
    said = [Said("cook", "At 9:00."), Said("guide", "At 12:00."), Said("cook", "At 18:00.")]
    assert group_chat.named(said) == {"cook": "18:00", "guide": "12:00"}
    assert not group_chat.settled(said)
    assert "Others say: nothing" in group_chat.question(["9:00"], [])


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_the_embedded_model_talks() -> None:
    """Its words are those of one machine: what holds anywhere is that members name their own times, and the end."""
    result = kt.run_sync(*group_chat.build())
    *turns, closing = result.outcomes
    assert result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED)
    for one in turns:
        assert one.artifact is not None
        assert group_chat.TIME.findall(one.artifact.text)[0] in group_chat.TIMES[one.member]
    assert closing.task_id == "closing"
    assert (result.status is kt.TeamStatus.COMPLETED) is str(result.output).startswith("The boat leaves at ")
