"""Guesses that a new user makes from the pages: each is refused at once, in a sentence that says what to write."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import files as of_files
from kairo_team.errors import Misuse
from kairo_team.evals import Case, Dataset, EvalResult, run_eval
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.first_hour.conftest import Kairo
from tests.first_hour.mistakes import ANY, EDITED, MOON, PLAIN, TEAM, reviewed, run, told

SCRIPTED: Any = ScriptedModel
CALL = kt.ToolCall("1", "query", {"sql": "select 1"})
MADE_OF_DATA = kt.Artifact("the clauses", {"clauses": [{"kind": "term"}]})


def waiting(folder: Path) -> tuple[Any, kt.HumanRequest]:
    runtime = kt.Runtime(gate=kt.DeferGate(), journal=kt.SqliteJournal(folder / "runs.db"))
    run(reviewed(EDITED), runtime=runtime, run_id="tides-1")
    (question,) = runtime.pending("tides-1")
    return runtime, question


GUESSES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a bare tool call in a script": (
        lambda: SCRIPTED(["one", CALL]),
        ["ScriptedModel 'test:scripted': reply 2 is", "kt.ModelResponse('', [kt.ToolCall('1', 'name', {...})])"],
    ),
    "a list of tool calls in a script": (lambda: SCRIPTED([[CALL]]), ["reply 1 is [ToolCall(", "kt.ModelResponse"]),
    "a dict in a script": (lambda: SCRIPTED([{"answer": 42}]), ["reply 1 is {'answer': 42}", "a text"]),
    "a field of data as an attribute": (
        lambda: ANY.Artifact.data.__get__(MADE_OF_DATA).clauses,
        ["JSON values have no attribute 'clauses'", "write ['clauses']"],
    ),
    "money by another name": (
        lambda: ANY.Budget(usd=0.5),
        ["Budget takes no 'usd': its limit in US dollars is dollars"],
    ),
    "time by another name": (lambda: ANY.Budget(timeout=5), ["Budget takes no 'timeout': its limit is seconds"]),
    "a setting of the run at its coordinator": (
        lambda: ANY.ExpertTeamCoordinator(max_feedback_rounds=1),
        ["takes no 'max_feedback_rounds': the config has it: config=kt.TeamConfig(max_feedback_rounds=...)"],
    ),
    "a map by its name": (lambda: ANY.Task("read", "Read.", map=["a"]), ["Task takes no 'map'", "kt.Task.map("]),
    "a map by another name": (lambda: ANY.Task("read", "Read.", for_each="list"), ["no 'for_each'", "kt.Task.map("]),
    "a list to map over": (
        lambda: ANY.Task.map("read", "Read.", over=["a", "b"], max_items=2),
        ["the id of the task that makes the list", "not ['a', 'b']"],
    ),
    "one file without a list": (
        lambda: ANY.MiniAgent("m").run_sync("Read.", files=kt.File(data=b"%PDF-1", name="a.pdf")),
        ["files must be a list of File objects, such as [kt.File(path='photo.png')]"],
    ),
    "a path among the files": (
        lambda: ANY.MiniAgent("m").run_sync("Read.", files=["a.pdf"]),
        ["files[0]: a file must be a kt.File, such as kt.File(path='photo.png'), not 'a.pdf'"],
    ),
    "a file in an artifact by its path": (
        lambda: ANY.Artifact("Read.", files=[Path("a.pdf")]),
        ["Artifact.files[0]: a file must be a kt.File, such as kt.File(path='photo.png')"],
    ),
    "the team before the run's id": (
        lambda: anyio.run(ANY.Runtime().resume, TEAM, "tides-1"),
        ["resume takes the id of a run, then the team: the id must be a string, not Team("],
    ),
    "no team to resume with": (
        lambda: anyio.run(ANY.Runtime().resume, "tides-1", "desk"),
        ["resume takes the id of a run, then the team: the team must be a Team, not 'desk'"],
    ),
    "a team where an id belongs": (
        lambda: ANY.Runtime().pending(TEAM),
        ["pending takes the id of a run: it must be a string or None, not Team("],
    ),
}


@pytest.mark.parametrize(("guess", "parts"), GUESSES.values(), ids=GUESSES)
def test_a_wrong_guess_is_told_what_to_write(guess: Callable[[], Any], parts: list[str]) -> None:
    try:
        said = told(guess)
    except AttributeError as error:
        said = str(error)
    assert [part for part in parts if part not in said] == [], said


def test_a_question_is_answered_by_its_id(tmp_path: Path) -> None:
    runtime, question = waiting(tmp_path)
    with pytest.raises(ValueError, match=r"takes the id of a question, such as question\.id, not HumanRequest"):
        runtime.answer(question, kt.HumanDecision.approve())
    with pytest.raises(ValueError, match=r"takes the id of a question, such as question\.id, not HumanRequest"):
        runtime.store.answer(question, kt.HumanDecision.approve())
    runtime.answer(question.id, kt.HumanDecision.approve())


def test_data_of_json_can_still_be_copied_and_asked_for_what_it_has() -> None:
    data: Any = MADE_OF_DATA.data
    assert data.get("clauses")
    assert not hasattr(data, "__array__")
    assert getattr(data, "clauses", None) is None


# ------------------------------------------------------------------ what is no file, or grows while it is read


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless file")
def test_an_endless_file_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="is not a regular file: give the path of one file"):
        kt.File(path="/dev/zero")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ValueError, match="is not a regular file"):
        kt.File(path=tmp_path / "pipe.png")


def test_a_file_that_says_it_is_empty_and_is_not_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of /proc do so, and a file may grow while it is read."""
    (tmp_path / "grows.txt").write_bytes(b"x" * 101)
    monkeypatch.setattr(of_files, "MOST_BYTES", 100)
    monkeypatch.setattr(Path, "stat", lambda self, **_: os.stat_result((0o100644, 0, 0, 0, 0, 0, 0, 0, 0, 0)))
    with pytest.raises(ValueError, match="has 101 bytes, a File at most"):
        kt.File(path=tmp_path / "grows.txt")


# ------------------------------------------------------------------ evals and judges at the command line


RUBRIC = "criteria: [{id: moon, text: it names the moon, check: {contains: moon}}]\n"
DESK = """from pathlib import Path
import kairo_team as kt

team = kt.Team("desk", [kt.Member("writer", lambda assignment: Path("ran.txt").write_text("ran") and "The moon.")])


def make():
    return team
"""
NAMED = "name: desk\nmembers: [{role: writer, agent: {name: mini, model: 'local:smollm2'}}]\n"
JUDGED = "criteria: [{id: plain, text: it is plain, by: judge}]\n"
TYPED = {
    "a share in per cent without its sign": (
        ["eval", "cases.jsonl", "--team", "desk.py", "--rubric", "rubric.yaml", "--require", "pass_rate>=90"],
        ["--require 'pass_rate>=90'", "is a share from 0 to 1", "pass_rate>=0.9 or pass_rate>=90%"],
    ),
    "a share below nothing": (
        ["eval", "cases.jsonl", "--team", "desk.py", "--rubric", "rubric.yaml", "--require", "score<=-3"],
        ["--require 'score<=-3'", "is a share from 0 to 1"],
    ),
    "runs by the team's name alone": (
        ["eval", "--runs", "desk", "--journal", "runs.db", "--rubric", "rubric.yaml"],
        ["--runs 'desk'", "write team=desk"],
    ),
    "a plug-in with its name as a key": (
        ["check", "named.yaml", "Explain tides."],
        ["members[0].agent must be the name of an agent", """: write {mini: {"model": "local:smollm2"}}"""],
    ),
    "a good answer by another name": (
        ["eval", "expected.jsonl", "--team", "desk.py", "--rubric", "rubric.yaml"],
        ["line 1", "it has 'expected_output'", "a good answer is its reference"],
    ),
    "a function that makes the team": (
        ["check", "desk.py:make", "Explain tides."],
        ["'make' in desk.py is a function, not a kt.Team", "it has 'team'", "or add made = make() and name that"],
    ),
    "the judge's file without its name": (
        ["judge", "try", "judged.yaml", "text.txt", "--judge", "desk.py"],
        ["--judge 'desk.py' is a file: name the judge that it builds, such as desk.py:judge"],
    ),
}


@pytest.mark.parametrize(("typed", "parts"), TYPED.values(), ids=TYPED)
def test_a_wrong_guess_at_the_command_line_is_refused_before_anything_is_paid(
    kairo: Kairo, folder: Path, typed: list[str], parts: list[str]
) -> None:
    files = {"desk.py": DESK, "rubric.yaml": RUBRIC, "judged.yaml": JUDGED, "named.yaml": NAMED, "text.txt": "Tides."}
    files["expected.jsonl"] = '{"input": "Explain tides.", "expected_output": "The moon."}\n'
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "cases.jsonl").write_text('{"input": "Explain tides."}\n', encoding="utf-8")
    said = kairo(*typed)
    assert said.code == 2, said.out + said.err
    assert [part for part in parts if part not in said.err] == [], said.err
    assert not (folder / "ran.txt").exists()


def test_a_metric_that_is_no_share_takes_any_bound(kairo: Kairo, folder: Path) -> None:
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    (folder / "rubric.yaml").write_text(RUBRIC, encoding="utf-8")
    (folder / "cases.jsonl").write_text('{"input": "Explain tides."}\n', encoding="utf-8")
    requires = [word for bound in ("tokens<=90", "seconds<=90", "dollars<=2") for word in ("--require", bound)]
    assert kairo("eval", "cases.jsonl", "--team", "desk.py", "--rubric", "rubric.yaml", *requires).code == 0


async def _evaluated(journal: kt.SqliteJournal, goal: str) -> EvalResult:
    dataset, runtime = Dataset([Case("one", goal)]), kt.Runtime(journal=journal)
    return await run_eval(TEAM, dataset, MOON, runtime=runtime, run_id="nightly")


def test_another_eval_under_an_id_that_was_used_is_told_to_take_another_id(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    anyio.run(_evaluated, journal, "Explain tides.")
    with pytest.raises(Misuse, match="'nightly' is another eval, with another dataset, rubric, judge"):
        anyio.run(_evaluated, journal, "Explain wind.")


def test_the_error_of_a_judge_has_its_class() -> None:
    """The text of a `KeyError` is only the key, which says nothing alone."""
    pages: dict[str, str] = {}
    judge = FunctionModel(lambda _request: pages["the almanac"], name="test:recorded")
    tried = anyio.run(partial(PLAIN.try_on, "Tides.", judge=judge))
    assert tried.verdict.feedback == "the judge 'test:recorded': KeyError: 'the almanac'"
