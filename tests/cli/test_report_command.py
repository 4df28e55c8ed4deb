"""`kairo report`: from a journal, from a file of events, and what it refuses."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kairo_team.views.json_lines import read_events
from tests.cli.journal_team import ASKS, ASKS_TWICE, OFFICE
from tests.cli.test_journal_commands import RUN, begin
from tests.test_report import unpacked

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]
FAILS = (
    OFFICE
    + """
async def torn(assignment, context):
    if assignment.task.id == "two":
        raise ValueError("the paper is torn")
    return await write(assignment, context)

team = kt.Team("office", [kt.Member(kt.Role("clerk", "Write."), torn)], coordinator=experts)
plan = kt.TaskGraph([kt.Task("one", "x"), kt.Task("two", "x", depends_on=["one"])])
"""
)
"""Its second task fails."""


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal that the commands find in their environment."""
    path = tmp_path / "runs.db"
    monkeypatch.setenv("KAIRO_JOURNAL", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def test_a_run_that_waits_says_how_to_answer(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    said = kairo("report", RUN[:8])
    assert (said.code, said.out) == (0, "written: report.html\n")
    page = Path("report.html").read_text(encoding="utf-8")
    assert "The run waits for a person." in page
    assert f"kairo answer {RUN} approve --journal {book}" in page
    assert "a long letter ?[2J" in page  # the artifact, from the journal


def test_the_rounds_of_a_recorded_run_are_compared(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    kairo("answer", RUN, "revise", "--text", "shorter")
    kairo("resume", RUN, file)
    kairo("report", RUN, "-o", "all.html")
    page = Path("all.html").read_text(encoding="utf-8")
    assert "The run completed." in page
    details = str(unpacked(page)["tasks"][0][0])
    assert '<span class="del">-a long letter ?[2J</span><span class="add">+a shorter letter</span>' in details
    assert "Answer: revise. shorter" in details


def test_the_limits_are_those_that_were_raised_last(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    kairo("report", RUN)
    assert " of 900 tokens" in Path("report.html").read_text(encoding="utf-8")
    kairo("answer", RUN, "approve")
    kairo("resume", RUN, file, "--budget", "tokens=12,000")
    kairo("report", RUN)
    assert " of 12,000 tokens" in Path("report.html").read_text(encoding="utf-8")


def test_the_collector_is_as_before(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    kairo("report", RUN)
    assert gc.isenabled()


def test_a_run_that_failed_names_the_fork(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(FAILS), "Go.")
    kairo("report", RUN)
    page = Path("report.html").read_text(encoding="utf-8")
    assert f"kairo fork {RUN} --before two --journal {book}" in page
    assert "the paper is torn" in page


def test_a_file_of_events(kairo: Any, team_file: TeamFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = team_file(OFFICE + "team = kt.Team('office', [clerk])\n")
    for name in ("run-one", "run-two"):
        kairo("run", file, "Go.", "--events", "events.jsonl")
        assert kairo("report", "events.jsonl").code == (0 if name == "run-one" else 2)
    runs = list(dict.fromkeys(one.run_id for one in read_events("events.jsonl")))
    refused = kairo("report", "events.jsonl")
    assert f"has 2 runs: name one with --run-id, such as {runs[0]}, {runs[1]}" in " ".join(refused.err.split())
    assert kairo("report", "events.jsonl", "--run-id", runs[1], "-o", "two.html").code == 0
    assert runs[1] in Path("two.html").read_text(encoding="utf-8")
    assert "has no run 'three'" in kairo("report", "events.jsonl", "--run-id", "three").err


NESTED = (
    OFFICE
    + """
inner = kt.Member("office", kt.agents.TeamAgent(kt.Team("office", [clerk])))
team = kt.Team("publisher", [inner])
plan = kt.TaskGraph([kt.Task("book", "Write.")])
"""
)


def test_runs_inside_are_in_the_report_of_a_file_and_of_a_journal(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(NESTED), "Go.", "--events", "events.jsonl")
    for source in ((RUN,), ("events.jsonl",)):
        assert kairo("report", *source).code == 0
        page = Path("report.html").read_text(encoding="utf-8")
        assert '<h2 id="run-2">Run inside task <a href="#task-1">book</a>: team <bdi>office</bdi></h2>' in page
    inside = next(run for run in dict.fromkeys(one.run_id for one in read_events("events.jsonl")) if run != RUN)
    assert kairo("report", "events.jsonl", "--run-id", inside).code == 0
    assert '<h2 id="run-2">' not in Path("report.html").read_text(encoding="utf-8")


def test_a_file_of_events_offers_an_answer_to_each_question(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS_TWICE), "--events", "events.jsonl")
    commands: list[str] = []
    for source in ((RUN,), ("events.jsonl",)):
        assert kairo("report", *source).code == 0
        page = Path("report.html").read_text(encoding="utf-8")
        commands = [" ".join(found) for found in re.findall(r"kairo answer (\S+) (\S+) approve", page)]
        assert commands == [f"{RUN} human:1:letter:1:review", f"{RUN} human:1:letter2:1:review"]
    for one in commands:
        assert kairo("answer", *one.split(), "approve").code == 0


def test_what_it_refuses(kairo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("hello\n")
    Path("empty.jsonl").write_text("")
    for words, arguments in {
        "there is no file 'gone': give a file of events": ("gone",),
        "notes.txt is not a file of events: notes.txt, line 1: it is not JSON": ("notes.txt",),
        "empty.jsonl has no events": ("empty.jsonl",),
        "is what the report is made from": ("notes.txt", "-o", "notes.txt"),
    }.items():
        said = kairo("report", *arguments)
        assert said.code == 2
        assert words in " ".join(said.err.split())


def test_a_run_of_a_file_is_not_chosen_among_recorded_ones(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    said = kairo("report", RUN, "--run-id", "run-2")
    assert said.code == 2
    assert f"--run-id is for a file of events, and {RUN!r} is not a file" in " ".join(said.err.split())
