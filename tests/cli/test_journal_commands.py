"""The commands on recorded runs, in this process: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.models import resolver
from kairo_team.testing import ScriptedModel
from tests.cli.conftest import run_in_turn
from tests.cli.journal_team import ASKS, ASKS_TWICE, OFFICE

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]
RUN = "letter-0001"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal that the commands find in their environment."""
    path = tmp_path / "the runs.db"
    monkeypatch.setenv("KAIRO_JOURNAL", str(path))
    return path


def begin(kairo: Any, file: object, *options: str, run_id: str = RUN) -> Any:
    return kairo("run", file, "--run-id", run_id, *options)


def asked(file: Path) -> list[str]:
    return (file.parent / "asked.txt").read_text().splitlines()


# ---------------------------------------------------------------- suspend, answer, resume


def test_a_question_of_a_team_without_a_gate_waits_for_an_answer(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    said = begin(kairo, file)
    assert said.code == 7
    assert said.out.splitlines()[0] == f"run {RUN} is recorded in {book}"
    assert said.out.splitlines()[-3:] == [
        "answer with approve, revise, reject or defer, then continue with:",
        f"  kairo answer {RUN} approve --journal '{book}'",
        f"  kairo resume {RUN} --journal '{book}'",
    ]
    answered = kairo("answer", RUN, "revise", "--text", "shorter")
    assert answered.code == 0
    assert "  | a long letter ?[2J\n" in answered.out
    ending = f"answered: revise, shorter\n\ncontinue with:\n  kairo resume {RUN} --journal '{book}'\n"
    assert answered.out.endswith(ending)
    resumed = kairo("resume", RUN)
    assert resumed.code == 0
    assert "letter: done after 2 attempts" in resumed.out
    assert "COMPLETED  after " in resumed.out.splitlines()[-1]
    assert sorted(asked(file)) == ["beside 1", "end 1", "letter 1", "letter 2"]


def test_a_deferred_question_stays_open(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    deferred = kairo("answer", RUN, "defer")
    assert deferred.code == 0
    assert "\nanswered: defer\n" in deferred.out
    assert f"  kairo answer {RUN} approve --journal '{book}'" in deferred.out
    assert kairo("resume", RUN).code == 7
    assert kairo("answer", RUN, "approve").code == 0


def test_an_answer_names_the_question_where_several_are_open(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS_TWICE))
    refused = kairo("answer", RUN, "approve")
    assert refused.code == 2
    assert "2 open questions: name one of human:1:letter:1:review, human:1:letter2:1:review" in refused.err
    wrong = kairo("answer", RUN, "human:1:sea:1:review", "approve")
    assert "has no open question 'human:1:sea:1:review'; open: human:1:letter:1:review" in wrong.err
    said = kairo("answer", RUN, "human:1:letter2:1:review", "approve")
    assert said.code == 0
    assert f"kairo answer {RUN} approve" in said.out, "one question is left"
    assert kairo("answer", RUN, f"{RUN}:human:1:letter:1:review", "reject", "--text", "no").code == 0
    assert "run letter-0001 has no open question" in kairo("answer", RUN, "approve").err
    assert kairo("resume", RUN).code == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["maybe"], "the answer is approve, revise, reject"),
        (["a", "b", "approve"], "the answer is approve, revise, reject"),
        (["revise"], "needs feedback in words: it is all the member gets: say it with --text"),
    ],
)
def test_what_is_no_answer_is_refused(
    kairo: Any, team_file: TeamFile, book: Path, words: list[str], complaint: str
) -> None:
    begin(kairo, team_file(ASKS))
    said = kairo("answer", RUN, *words)
    assert (said.code, said.out) == (2, "")
    assert complaint in said.err


def test_a_gate_of_the_teams_own_stays(kairo: Any, team_file: TeamFile, book: Path) -> None:
    gate = "team = kt.Team('office', [clerk], coordinator=experts, "
    gate += "runtime=kt.Runtime(gate=kt.CallbackGate(lambda question: True)))\n"
    said = begin(kairo, team_file(ASKS + gate))
    assert said.code == 0
    assert "a person decided: approve" in said.out


def test_without_a_journal_a_question_nobody_can_be_asked_fails_as_before(
    kairo: Any, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    said = begin(kairo, team_file(ASKS))
    assert said.code == 4
    assert "journal" not in said.out


def test_the_model_of_the_command_line_is_used_again(
    kairo: Any, team_file: TeamFile, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["one", "two"])
    monkeypatch.setattr(resolver, "_build", {"fake:one": model}.__getitem__)
    file = team_file(ASKS.replace("context.model(model)", 'context.model("x:y")'))
    plan = 'plan = kt.TaskGraph([kt.Task("letter", "x")])\nrequest = kt.TeamExecutionRequest("x", plan=plan)\n'
    file.write_text(file.read_text() + plan)
    assert begin(kairo, file, "--model", "fake:one").code == 7
    kairo("answer", RUN, "revise", "--text", "shorter")
    assert kairo("resume", RUN).code == 0
    model.assert_complete()


def test_a_journal_of_the_teams_own_runtime_can_go_on_too(
    kairo: Any, team_file: TeamFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    own = "team = kt.Team('office', [clerk], coordinator=experts, "
    own += "runtime=kt.Runtime(journal=kt.SqliteJournal(HERE / 'own.db')))\n"
    file = team_file(ASKS + own)
    said = begin(kairo, file)
    assert said.code == 7
    journal = tmp_path / "own.db"
    assert said.out.endswith(f"  kairo resume {RUN} FILE.py --journal {journal}\n")
    assert kairo("answer", RUN, "approve", "--journal", journal).code == 0
    assert kairo("resume", RUN, file, "--journal", journal).code == 0


# ---------------------------------------------------------------- runs and show


def test_runs_lists_one_harmless_line_for_each_run(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    begin(kairo, team_file(ASKS.replace('"office"', '"other"'), "team_other.py"), "Two\nlines", run_id="other-1")
    head, *lines = kairo("runs").out.splitlines()
    assert head.split() == ["run", "state", "team", "used", "begun", "goal"]
    assert [line.split()[:3] for line in lines] == [["other-1", "suspended", "other"], [RUN, "suspended", "office"]]
    assert lines[0].endswith(" ago  Two lines")
    assert lines[1].endswith(" ago  Send ?31m it.")
    assert len(kairo("runs", "--team", "other").out.splitlines()) == 2
    assert kairo("runs", "--state", "completed").out == f"no run is recorded in {book}, or none of the chosen ones\n"
    refused = kairo("runs", "--state", "lost")
    assert (refused.code, "'suspended'" in refused.err) == (2, True)


def test_show_tells_how_a_run_stands_and_how_it_goes_on(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    out = kairo("show", RUN).out
    assert out.startswith(f"{RUN}  SUSPENDED\n  office: Send ?31m it.\n  begun ")
    assert "; limits: 900 tokens\n" in out
    assert "\n  letter  suspended    1 attempt " in out
    assert "\n  beside  done         1 attempt " in out
    assert "\n  end     waits for letter\n" in out
    assert re.search(r"\n  letter  suspended .* waits for a person\n", out)
    assert "\n  model  test:provider  2 calls  " in out
    assert "\nQuestion human:1:letter:1:review\n  Is the work of 'clerk' on 'letter' good enough?" in out
    assert "\n  | a long letter ?[2J\n" in out
    assert out.endswith(f"  kairo resume {RUN} --journal '{book}'\n")
    assert "\x1b" not in out
    assert "\x9b" not in out


def test_the_beginning_of_an_id_is_enough_and_close_ids_are_named(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    begin(kairo, file, run_id="letter-0002")
    assert kairo("show", "letter-0002").out.startswith("letter-0002 ")
    several = kairo("show", "letter-")
    assert several.code == 2
    assert "2 runs in " in several.err
    assert "begin with 'letter-', such as 'letter-0002' and 'letter-0001': kairo runs --journal " in several.err
    assert "did you mean 'letter-0001'" in kairo("show", "leter-0001").err
    assert "there is no run 'x'" in kairo("cancel", "x").err
    kairo("forget", "letter-0001")
    assert kairo("show", "lett").out.startswith("letter-0002 ")


def test_documents(kairo_json: Any, quietly: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(quietly, file)
    said = kairo_json("show", RUN, "--json")
    shown = said.document
    assert (said.code, shown["state"], shown["budget"]["tokens"]) == (0, "suspended", 900)
    assert {one["task_id"]: one["status"] for one in shown["tasks"]} == {
        "letter": "suspended", "beside": "completed", "end": "pending",
    }  # fmt: skip
    assert shown["calls"][0]["calls"] == 2
    assert shown["questions"][0]["kind"] == "review"
    assert shown["go_on"][-1] == f"kairo resume {RUN} --journal '{book}'"
    assert shown["source"] == {"file": str(file)}


def test_the_list_is_a_document_too(kairo_json: Any, quietly: Any, team_file: TeamFile, book: Path) -> None:
    begin(quietly, f"{team_file(ASKS)}:team", "A goal.")
    (run,) = kairo_json("runs", "--json").document["runs"]
    assert (run["run_id"], run["goal"], run["source"]["team"], run["source"]["goal"]) == (
        RUN, "A goal.", "team", "A goal.",
    )  # fmt: skip


def test_the_result_of_a_suspended_run_says_how_it_goes_on(kairo_json: Any, team_file: TeamFile, book: Path) -> None:
    said = kairo_json("run", team_file(ASKS), "--run-id", RUN, "--json")
    assert (said.code, said.document["status"]) == (7, "suspended")
    assert said.document["go_on"] == [
        f"kairo answer {RUN} approve --journal '{book}'", f"kairo resume {RUN} --journal '{book}'",
    ]  # fmt: skip


def test_a_run_is_seen_and_goes_on_where_its_own_classes_are_not_importable(
    program: Any, team_file: TeamFile, book: Path
) -> None:
    """Looking at a run imports nothing; going on with it imports its file first."""
    draft = "from dataclasses import dataclass\n@dataclass\nclass Draft:\n    title: str\n"
    typed = OFFICE + draft + "def make(a): return kt.Artifact('x', data=Draft('tides'))\n"
    typed += "Unsure.evaluate = lambda self, context: escalate()\n"
    typed += "async def escalate(): return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, 'a person')\n"
    typed += "team = kt.Team('typed', [kt.Member('maker', make)], coordinator=experts)\n"
    typed += "plan = kt.TaskGraph([kt.Task('a', 'x')])\n"
    assert program("run", team_file(typed), "--run-id", RUN).code == 7
    commands = ("runs", f"show {RUN}", f"show {RUN} --json", f"events {RUN}", f"answer {RUN} approve")
    said = run_in_turn([command.split() for command in commands])
    assert (said.code, said.err) == (0, "")
    assert program("resume", RUN).code == 0


@pytest.mark.skipif(os.name != "posix", reason="needs pseudo-terminals")
def test_at_a_terminal_made_ids_are_short_and_every_line_of_a_member_has_its_bar(
    quietly: Any, team_file: TeamFile, book: Path
) -> None:
    from tests.cli.test_terminal import ESCAPE, terminal

    words = "word " * 30
    quietly("run", team_file(ASKS.replace("a long letter", f"a long letter {words}")))
    journal = kt.SqliteJournal(book)
    (run,) = journal.runs()
    with terminal("runs") as shown:
        line = ESCAPE.sub("", shown.read_until()).splitlines()[1]
    assert line.split()[0] == run.run_id[:8]
    with terminal("show", run.run_id[:8]) as shown:
        lines = ESCAPE.sub("", shown.read_until()).splitlines()
    begin = next(number for number, line in enumerate(lines) if "a long letter" in line)
    assert [line[:8] for line in lines[begin : begin + 3]] == ["  | a lo", "  | word", "  | word"]
    assert lines[-1] == f"  kairo resume {run.run_id} --journal '{book}'"


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "command", ["runs", "show x", "resume x", "answer x approve", "cancel x", "events x", "forget x"]
)
def test_no_command_makes_a_journal_and_each_says_how_to_name_one(
    kairo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    without = kairo(*command.split())
    assert without.code == 2
    assert "--journal runs.db, or in the environment variable KAIRO_JOURNAL" in without.err
    missing = kairo(*command.split(), "--journal", tmp_path / "none.db")
    assert missing.code == 2
    assert "there is no journal" in missing.err
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_journal_is_one_sentence(kairo: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk" * 100)
    said = kairo("runs", "--journal", path)
    assert said.code == 2
    assert said.err.startswith("kairo: journal ")
    assert said.err.count("\n") == 1


def test_a_run_id_is_used_once(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    again = begin(kairo, file)
    assert again.code == 2
    assert f"run '{RUN}' is recorded already: give --run-id another id; kairo show {RUN} --journal " in again.err
    assert kairo("runs").out.count(RUN) == 1
    assert "--run-id: " in begin(kairo, file, run_id="").err


def test_what_has_ended_does_not_go_on(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    assert kairo("cancel", RUN).out == f"run {RUN} is cancelled\n"
    said = kairo("resume", RUN)
    assert said.code == 2
    assert f"run {RUN} has ended: cancelled; kairo show {RUN} --journal '{book}' shows it" in said.err
    assert f"run {RUN} has ended: cancelled; kairo show {RUN} --journal '{book}' shows it" in kairo("cancel", RUN).err
    assert "continue with" not in kairo("show", RUN).out


def test_another_file_may_be_named_and_a_missing_one_must_be(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    kairo("answer", RUN, "approve")
    moved = file.rename(file.with_name("team_moved.py"))
    said = kairo("resume", RUN)
    assert said.code == 2
    assert "which is not there: name the file, kairo resume letter-0001 FILE.py[:TEAM] --journal" in said.err
    assert kairo("resume", RUN, moved).code == 0


def test_a_run_of_a_program_names_no_file(kairo: Any, team_file: TeamFile, book: Path) -> None:
    journal = kt.SqliteJournal(book)

    runtime = kt.Runtime(journal=journal, gate=kt.DeferGate())
    team = kt.Team("office", [kt.Member("a", lambda assignment: "done")])
    request = kt.TeamExecutionRequest("x", run_id=RUN)
    kt.run_sync(team, request, coordinator=ExpertTeamCoordinator(plan_approval=True), runtime=runtime)
    journal.close()
    assert kairo("show", RUN).out.endswith(f"  kairo resume {RUN} FILE.py --journal '{book}'\n")
    said = kairo("resume", RUN)
    assert said.code == 2
    assert "was not started from a file by this command: name the file" in said.err


def test_a_change_since_it_began_is_refused_unless_it_is_allowed(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    kairo("answer", RUN, "approve")
    team_file(ASKS.replace('"Write."), write', '"Write well."), write'), "team_file.py")
    said = kairo("resume", RUN)
    assert said.code == 2
    _, _, words = said.err.partition("--allow-change ")
    name = "instructions of role 'clerk'"
    assert shlex.split(words.partition(" resumes with the change")[0]) == [name]
    assert kairo("show", RUN).out.startswith(f"{RUN}  SUSPENDED")
    assert kairo("resume", RUN, "--allow-change", name).code == 0


def test_a_budget_may_be_raised_when_it_goes_on(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    kairo("answer", RUN, "approve")
    assert "--budget" in kairo("resume", RUN, "--budget", "words=3").err
    said = kairo("resume", RUN, "--budget", "loops=50")
    assert said.code == 0
    assert " of 900" in said.out, "its other limits stay"
    assert " of 50" in said.out
    assert "limits: 900 tokens, 50 loops" in kairo("show", RUN).out


# ---------------------------------------------------------------- fork, events and forget


def test_a_fork_goes_on_from_an_earlier_point_and_pays_nothing_before_it(
    kairo: Any, team_file: TeamFile, book: Path
) -> None:
    file = team_file(ASKS)
    begin(kairo, file)
    kairo("answer", RUN, "approve")
    kairo("resume", RUN)
    said = kairo("fork", RUN, "--before", "end", "--new-id", "again")
    assert said.code == 0
    command = f"kairo resume again --journal '{book}'"
    hint = "  --model NAME and --budget LIMITS continue it with another model and other limits"
    assert said.out == f"run again is a fork of run {RUN}\n\ncontinue with:\n  {command}\n{hint}\n"
    assert f"\n  a fork of run {RUN}\n" in kairo("show", "again").out
    assert kairo("resume", "again").code == 0
    assert sorted(asked(file)) == ["beside 1", "end 1", "end 1", "letter 1"]
    assert kairo("fork", RUN, "--after", "0").code == 0
    for words, complaint in [
        ([], "name the point: "),
        (["--before", "end", "--after", "3"], "name the point: "),
        (["--before", "nothing"], "'nothing'"),
        (["--after", "9999"], "the number of an event from 0 to "),
        (["--before", "end", "--new-id", "again"], "run 'again' is recorded already: give --new-id another id"),
        (["--before", "end", "--new-id", "a b"], "an id is made of letters"),
    ]:
        refused = kairo("fork", RUN, *words)
        assert (refused.code, refused.out) == (2, "")
        assert complaint in refused.err


def test_events_are_json_lines_with_nothing_that_a_terminal_obeys(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    lines = kairo("events", RUN).out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["seq"] for one in found] == [*range(1, len(found) + 1)]
    assert (found[0]["type"], found[0]["goal"], found[-1]["type"]) == (
        "team.started",
        "Send \x9b31m it.",
        "team.suspended",
    )
    assert all(line.isascii() for line in lines)
    assert kairo("events", RUN, "--after", "3", "--follow").out.splitlines() == lines[3:], (
        "it has ended: nothing to wait for"
    )


def test_forget_deletes_one_run_or_the_old_ones(kairo: Any, team_file: TeamFile, book: Path) -> None:
    begin(kairo, team_file(ASKS))
    begin(kairo, team_file(OFFICE + 'team = kt.Team("office", [clerk])\n', "team_b.py"), "x", run_id="ended")
    assert kairo("forget", "--older-than", "1h").out == "forgotten: 0 runs\n"
    assert kairo("forget", "--older-than", "0s").out == "forgotten: 1 run\n", "only what has ended"
    assert kairo("forget", RUN).out == "forgotten: 1 run\n"
    assert kairo("runs").out == f"no run is recorded in {book}\n"
    assert "kairo forget RUN, or kairo forget --older-than 30d" in kairo("forget").err
    for wrong in ("30", "x", "-1d", "infd", "nand"):
        assert "such as 30d, not" in kairo("forget", "--older-than", wrong).err


def test_a_run_that_is_refused_is_not_recorded(kairo: Any, team_file: TeamFile, book: Path) -> None:
    said = begin(kairo, team_file(ASKS.replace('kt.Task("letter", "Write.")', 'kt.Task("letter", "x", role="nobody")')))
    assert said.code == 2
    assert kairo("runs").out == f"no run is recorded in {book}\n"


def test_show_has_the_output_each_cause_once_and_what_to_do_next(kairo: Any, team_file: TeamFile, book: Path) -> None:
    text = """
def make(assignment):
    if assignment.task.id != "one":
        raise ValueError("the printer is out of paper")
    return "\\n".join(f"line {n}" for n in range(30))
team = kt.Team("office", [kt.Member("a", make)])
plan = kt.TaskGraph([kt.Task("one", "x"), kt.Task("two", "x"), kt.Task("three", "x")])
"""
    begin(kairo, team_file(text))
    out = kairo("show", RUN).out
    assert "| line 19" in out
    assert "line 20" not in out
    assert f"more lines (kairo show {RUN} --output has them)" in out
    assert out.count("out of paper") <= 2
    assert out.index("utput") < out.index("Tasks")
    last = out.rstrip().splitlines()[-4:]
    assert last[0] == "next:"
    assert last[1].startswith(f"  kairo show {RUN} --task two --journal ")
    assert last[2].startswith(f"  kairo fork {RUN} --before two --journal ")
    assert last[3].startswith(f"  kairo report {RUN} --journal ")
