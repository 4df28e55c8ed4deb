"""`--events FILE`: what happened in a run, one JSON line an event."""

from __future__ import annotations

from pathlib import Path

import pytest

from kairo_team.events import TeamCompleted, TeamResumed, TeamStarted, TeamSuspended
from kairo_team.views.json_lines import read_events
from tests.cli.conftest import NEWSROOM, Kairo

pytestmark = pytest.mark.real_time


def test_the_events_of_a_run_are_in_the_file(kairo: Kairo, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert kairo("run", NEWSROOM, "--events", file).code == 0
    found = list(read_events(file))
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    assert isinstance(found[0], TeamStarted)
    assert isinstance(found[-1], TeamCompleted)


ASKING = """
import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
class Unsure:
    async def evaluate(self, context):
        return kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "who knows")
team = kt.Team("duo", [kt.Member("a", lambda a: "fine")], coordinator=ExpertTeamCoordinator(evaluator=Unsure()))
plan = kt.TaskGraph([kt.Task("first", "x")])
"""


def test_a_resumed_run_goes_on_in_the_file(kairo: Kairo, tmp_path: Path) -> None:
    team, file, journal = tmp_path / "team.py", tmp_path / "events.jsonl", tmp_path / "runs.db"
    team.write_text(ASKING, encoding="utf-8")
    assert kairo("run", team, "--journal", journal, "--run-id", "r1", "--events", file).code == 7
    assert kairo("answer", "r1", "approve", "--journal", journal).code == 0
    assert kairo("resume", "r1", "--journal", journal, "--events", file).code == 3
    found = list(read_events(file))
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    marks = [type(event) for event in found if event.type.startswith("team.")]
    assert marks == [TeamStarted, TeamSuspended, TeamResumed, TeamCompleted]


def test_a_file_that_cannot_be_written_is_a_sentence_and_nothing_starts(kairo: Kairo, tmp_path: Path) -> None:
    said = kairo("run", NEWSROOM, "--events", tmp_path)
    assert said.code == 2
    assert f"--events {tmp_path}: it cannot be written: Is a directory; name another file" in said.err
    assert "started" not in said.out
