"""`kairo eval --runs`: finished runs of a journal, judged again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Kairo = Callable[..., Any]
TEAM = """
from kairo_team.evaluators import Criterion, Rubric, checks

async def write(assignment):
    return assignment.goal

team = kt.Team("desk", [kt.Member("writer", write)])
rubric = Rubric([Criterion("moon", "it names the moon", checks.contains("moon"))])
"""

JUDGE = """
from kairo_team.testing import ScriptedJudge

good = Rubric([Criterion("good", "it is good", by="judge")])
judge = ScriptedJudge({"good": "met"})
"""


@pytest.fixture
def team(team_file: Callable[..., Path]) -> Path:
    return team_file(TEAM)


@pytest.fixture
def book(kairo: Kairo, team: Path, tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    for run_id, goal in (("a", "The moon."), ("b", "Tides.")):
        assert kairo("run", team, goal, "--journal", path, "--run-id", run_id).code == 0
    return path


def records(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


def test_runs_are_judged_again_and_the_journal_stays_as_it_is(kairo: Kairo, team: Path, book: Path) -> None:
    before = records(book)
    said = kairo("eval", "--runs", "team=desk,since=7d,sample=50,seed=3", "--journal", book, "--rubric", team)
    assert (said.code, said.err) == (0, "")
    assert "runs of desk: 2 runs, seed 3\n" in said.out
    assert "agreement      1 of 2, 50.0%" in said.out
    assert "passed 1 of 2, 50.0%" in said.out
    assert "b  0 of 1  failed: the text lacks 'moon'" in said.out
    assert " s a trial" not in said.out
    assert records(book) == before


def test_the_document_has_runs_weeks_and_what_was_skipped(
    kairo_json: Kairo, program: Kairo, team: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    for run_id, goal in (("a", "The moon."), ("b", "Tides.")):
        assert program("run", team, goal, "--journal", path, "--run-id", run_id).code == 0
    given = ("eval", "--runs", "team=desk", "--journal", path, "--rubric", team)
    found = kairo_json(*given, "--json", "-o", tmp_path / "a.json", "--require", "agreement>=0.9").document
    assert (found["unmet"], found["exit_code"]) == (["agreement>=0.9"], 8)
    runs = found["runs"]
    assert (runs["seed"], runs["not_drawn"], runs["skipped"]) == (0, 0, {})
    assert [(one["run_id"], one["accepted"]) for one in runs["judged"]] == [("a", True), ("b", True)]
    assert [(one["passed"], one["decided"], one["agreed"]) for one in runs["weeks"]] == [(1, 2, 1)]
    kept = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert {name: found[name] for name in kept} == kept


def test_the_same_runs_are_compared_and_shown_to_ci(kairo: Kairo, team: Path, book: Path, tmp_path: Path) -> None:
    given = ("eval", "--runs", "team=desk", "--journal", book, "--rubric", team)
    assert kairo(*given, "-o", tmp_path / "a.json").code == 0
    said = kairo(*given, "--compare", tmp_path / "a.json", "--junit", tmp_path / "a.xml", "--html", tmp_path / "a.html")
    assert "Compared with the earlier eval" in said.out
    assert (tmp_path / "a.xml").read_text("utf-8").count("<testcase") == 2


def test_a_budget_that_ends_early_has_the_exit_code_of_an_eval(kairo: Kairo, team: Path, book: Path) -> None:
    with team.open("a", encoding="utf-8") as file:
        file.write(JUDGE)
    given = ("eval", "--runs", "team=desk", "--journal", book, "--rubric", f"{team}:good", "--judge", f"{team}:judge")
    said = kairo(*given)
    assert (said.code, said.err) == (0, "")
    assert "judged by test:judge" in said.out
    said = kairo(*given, "--budget", "tokens=50")
    assert said.code == 3
    assert "2 of 2 runs were not judged: " in said.out


def test_other_files_are_refused_and_not_touched(kairo: Kairo, team: Path, tmp_path: Path) -> None:
    given = ("eval", "--runs", "team=desk", "--rubric", team, "--journal")
    foreign, text, empty = tmp_path / "other.db", tmp_path / "text.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(foreign)) as file, file:
        file.execute("CREATE TABLE mine (x)")
    text.write_text("no database " * 100)
    empty.touch()
    for path, complaint in (
        (foreign, "an SQLite file of another program"),
        (text, "it cannot be read: file is not a database"),
        (empty, "it has no runs"),
        (tmp_path / "none.db", "there is no journal"),
    ):
        before = path.read_bytes() if path.exists() else None
        said = kairo(*given, path)
        assert said.code == 2
        assert complaint in said.err
        assert said.err.count("\n") == 1
        assert (path.read_bytes() if path.exists() else None) == before
    assert sorted(one.suffix for one in tmp_path.iterdir() if one.is_file()) == [".db", ".db", ".db", ".py"]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--runs", "team=dsk"), "no finished run of team 'dsk'"),
        (("--runs", "since=7d"), "--runs 'since=7d' names no team"),
        (("--runs", "team=desk,sample=x"), "sample is a whole number from 1, not 'x'"),
        (("--runs", "team=desk,sample=0"), "sample is a whole number from 1, not '0'"),
        (("--runs", "team=desk,since=week"), "since is a number with d, h, m or s, such as 30d, not 'week'"),
        (("--runs", "team=desk,limit=3"), "it may have 'sample', 'seed', 'since', 'team', not 'limit'"),
        (("--runs", "team=desk,team=desk"), "names 'team' twice"),
        (("--runs", "team=desk", "--team", "x.py"), "--team runs a team, and --runs judges what was run: leave it out"),
        (("--runs", "team=desk", "--repeat", "2"), "--repeat"),
        (("--runs", "team=desk", "--run-id", "x"), "--run-id"),
        (("--runs", "team=desk", "--require", "flip_rate>=0"), "there is no metric 'flip_rate'"),
    ],
)
def test_what_cannot_be_judged_is_a_sentence(
    kairo: Kairo, team: Path, book: Path, more: tuple[str, ...], complaint: str
) -> None:
    said = kairo("eval", *more, "--journal", book, "--rubric", team)
    assert said.code == 2
    assert complaint in said.err
    assert "Traceback" not in said.err


def test_runs_need_a_journal_and_a_rubric_and_an_eval_a_dataset_and_a_team(
    kairo: Kairo, team: Path, book: Path
) -> None:
    assert "needs the journal" in kairo("eval", "--runs", "team=desk", "--rubric", team).err
    assert "--rubric" in kairo("eval", "--runs", "team=desk", "--journal", book).err
    assert "give a dataset, or --runs" in kairo("eval", "--team", team).err
    said = kairo("eval", team, "--rubric", team)
    assert (said.code, "--team" in said.err) == (2, True)
    said = kairo("eval", team, "--runs", "team=desk", "--journal", book, "--rubric", team)
    assert "a dataset" in said.err
