"""A working day at the terminal alone: each question about a run has a command that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.models import resolver
from kairo_team.testing import ScriptedModel
from kairo_team.views.run_record import read_record
from tests.cli.test_terminal import ESCAPE, terminal

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]

BOOK = """
from decimal import Decimal
import pathlib
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import FunctionModel
from kairo_team.verdicts import CriterionResult

HERE = pathlib.Path(__file__).parent
small = FunctionModel(lambda request: "said", name="test:small")
large = FunctionModel(lambda request: "said", name="test:large")

async def write(assignment, context):
    name = assignment.task.id
    model = large if name == "second" else small
    await context.model(model).complete(kt.ModelRequest([kt.Message.user(name)], max_tokens=40))
    if name == "third" and not (HERE / "mended").exists():
        raise ValueError("the source has no page 12")
    return "# Better\\n" + "\\n".join(f"line {n}" for n in range(40)) if assignment.previous else "# Short"

class Strict:
    async def evaluate(self, context):
        if context.task.id == "second" and context.attempt == 1:
            finding = kt.Finding("length", observed="one line", expected="at least 20", locus="line 1")
            tone = CriterionResult("tone", "fail", False, "too cold")
            return kt.EvaluationVerdict.revise("too short", findings=[finding], criteria=[tone])
        if context.task.id == "letter":
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")
        return kt.EvaluationVerdict.passed(1.0)

experts = ExpertTeamCoordinator(evaluator=Strict(), failure_policy=FailurePolicy(retries=0))
team = kt.Team("books", [kt.Member("ada", write)], coordinator=experts)
chapters = [kt.Task(name, "Write it.") for name in ("first", "second", "third")]
letter = [kt.Task("letter", "Write."), kt.Task("send", "Send.", depends_on=["letter"])]
bound = kt.Task("bound", "Bind.", depends_on=["first", "second", "third"])
plan = kt.TaskGraph([*chapters, *LETTER, bound])
request = kt.TeamExecutionRequest("Make it.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=9_000)))
"""
FAILS = BOOK.replace("*LETTER, ", "")
ASKS = BOOK.replace("LETTER", "letter")


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal that the commands find in their environment."""
    path = tmp_path / "runs.db"
    monkeypatch.setenv("KAIRO_JOURNAL", str(path))
    return path


def test_why_a_run_failed_leads_to_the_task_and_what_it_was_told(kairo: Any, team_file: TeamFile, book: Path) -> None:
    kairo("run", team_file(FAILS), "--run-id", "today-1")
    shown = kairo("show", "today-1").out
    assert "task 'third' failed: ValueError: the source has no page 12" in shown
    assert f"\nnext:\n  kairo show today-1 --task third --journal {book}\n" in shown
    task = kairo("show", "today-1", "--task", "third").out
    assert task.startswith("today-1  task third  FAILED\n")
    assert task.count("the source has no page 12") == 1


def test_what_was_wrong_with_the_first_attempt_and_what_the_last_one_made(
    kairo: Any, team_file: TeamFile, book: Path
) -> None:
    kairo("run", team_file(FAILS), "--run-id", "today-1")
    task = kairo("show", "today-1", "--task", "second").out
    first, _, second = task.partition("\nAttempt 2: completed, review: pass\n")
    assert "\nAttempt 1: sent back, review: revise\n" in first
    assert "\n  - length at line 1: one line Expected: at least 20\n  - tone: not met: too cold\n  | # Short\n" in first
    assert second.rstrip().endswith("  | line 39"), "all of it"
    assert kairo("show", "today-1", "--task", "second", "--output").out.endswith("line 38\nline 39\n")
    assert "line 39\n" in kairo("show", "today-1", "--output").out
    missing = kairo("show", "today-1", "--task", "secnd")
    assert missing.code == 2
    assert "run today-1 has no task 'secnd': did you mean 'second'? kairo show today-1 --journal" in missing.err
    assert "third has no output that is recorded" in kairo("show", "today-1", "--task", "third", "--output").err
    assert kairo("show", "today-1", "--output", "--json").code == 2


def test_the_oldest_question_of_all_runs_comes_with_its_answer(kairo: Any, team_file: TeamFile, book: Path) -> None:
    for run_id in ("monday", "tuesday"):
        kairo("run", team_file(ASKS), "--run-id", run_id)
    asked = kairo("questions").out
    assert asked.startswith("2 open questions; the oldest, of run monday:\n\nQuestion human:1:letter:1:review\n")
    assert "\n  reject: the task fails\n" in asked
    assert "\nThen\n  tuesday human:1:letter:1:review: Is the work" in asked
    command = re.search(r"  kairo (answer monday human:1:letter:1:review approve) --journal ", asked)
    assert command
    assert kairo(*command[1].split()).code == 0
    assert kairo("questions").out.startswith("1 open question; the oldest, of run tuesday:\n")
    kairo("answer", "tuesday", "approve")
    assert kairo("questions").out == f"no question is open in {book}\n"


def test_who_waits_for_what_and_what_it_cost_by_model(kairo: Any, team_file: TeamFile, book: Path) -> None:
    ended = kairo("run", team_file(ASKS), "--run-id", "today-1").out
    shown = kairo("show", "today-1").out
    for text in (ended.partition("\nTasks\n")[2], shown):
        assert text.count("a person must see it") == 1
    assert re.search(r"\n  letter  suspended .* waits for a person\n", shown)
    assert "\n  send    waits for letter\n" in shown
    assert re.search(r"\n  model  test:small  3 calls  \d+ tokens\n  model  test:large  2 calls  \d+ tokens\n", shown)


async def test_a_live_run_says_what_its_tasks_wait_for(tmp_path: Path) -> None:
    go = anyio.Event()

    async def work(assignment: kt.Assignment) -> str:
        await go.wait()
        return "x"

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    plan = kt.TaskGraph([kt.Task("one", "x"), kt.Task("two", "x"), kt.Task("last", "x", depends_on=["one"])])
    async with kt.Runtime(journal=journal) as runtime:
        config = kt.TeamConfig(max_parallel_tasks=1)
        request = kt.TeamExecutionRequest("g", plan=plan, run_id="live-1", config=config)
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), request)
        found: dict[str, str] = {}
        while not found.get("two"):
            found = {one.task_id: one.waits_for for one in read_record(journal, journal.show("live-1")).tasks}
            await anyio.sleep(0.01)
        assert found == {"one": "", "two": "a slot", "last": "one"}
        go.set()
        await run.result()
    assert not any(one.waits_for for one in read_record(journal, journal.show("live-1")).tasks)
    journal.close()


def test_a_run_is_compared_with_the_one_before_it(kairo: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(FAILS)
    kairo("run", file, "--run-id", "yesterday")
    assert "no run of team 'books' began before run yesterday" in kairo("compare", "yesterday").err
    (file.parent / "mended").touch()
    kairo("run", file, "--run-id", "today-1")
    both = kairo("compare", "today-1").out
    assert re.match(r" +yesterday +today-1\n  state +failed +completed\n", both)
    assert "\n2 of 4 tasks ended differently\n" in both
    assert re.search(r"\n  third +failed, 1 attempt, \d+ tokens +completed, 1 attempt, \d+ tokens\n", both)
    assert both.index("  bound ") < both.index("  first ")


def test_a_task_is_a_document_too(kairo_json: Any, quietly: Any, team_file: TeamFile, book: Path) -> None:
    quietly("run", team_file(FAILS), "--run-id", "today-1")
    document = kairo_json("show", "today-1", "--task", "second", "--json").document
    assert [one["status"] for one in document["attempts"]] == ["sent_back", "completed"]
    assert document["attempts"][0]["artifact"] == "# Short"


def test_two_runs_are_a_document_too(kairo_json: Any, quietly: Any, team_file: TeamFile, book: Path) -> None:
    file = team_file(FAILS)
    quietly("run", file, "--run-id", "yesterday")
    (file.parent / "mended").touch()
    quietly("run", file, "--run-id", "today-1")
    document = kairo_json("compare", "today-1", "yesterday", "--json").document
    assert document["tasks"][2]["states"] == ["failed", "completed"]


def test_the_questions_are_a_document_too(kairo_json: Any, quietly: Any, team_file: TeamFile, book: Path) -> None:
    quietly("run", team_file(ASKS), "--run-id", "today-1")
    [asked] = kairo_json("questions", "--json").document["questions"]
    assert (asked["run_id"], asked["task_id"]) == ("today-1", "letter")


def test_a_fork_goes_on_with_another_model_and_more_budget(
    kairo: Any, team_file: TeamFile, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ScriptedModel(["one", "two"])
    monkeypatch.setattr(resolver, "_build", {"fake:other": other}.__getitem__)
    named = FAILS.replace(
        "context.model(model)", 'context.model("test:old" if HERE.joinpath("mended").exists() else model)'
    )
    file = team_file(named)
    kairo("run", file, "--run-id", "today-1")
    (file.parent / "mended").touch()
    kairo("fork", "today-1", "--before", "third", "--new-id", "again")
    resumed = kairo("resume", "again", "--model", "fake:other", "--budget", "tokens=20,000")
    assert resumed.code == 0, resumed.err
    other.assert_complete()
    assert "limits: 20,000 tokens" in kairo("show", "again").out


def test_the_list_at_a_terminal_says_what_to_look_at(kairo: Any, team_file: TeamFile, book: Path) -> None:
    for text, run_id in ((ASKS, "monday"), (FAILS, "today-1")):
        assert kairo("run", team_file(text), "--run-id", run_id).code in (4, 7)
    with terminal("runs") as shown:
        text = ESCAPE.sub("", shown.read_until()).replace("\r\n", "\n")
    assert "next:\n  kairo show today-1 --journal " in text
    assert "\n  kairo questions --journal " in text
    with terminal("show", "today-1", "--task", "second") as shown:
        text = ESCAPE.sub("", shown.read_until()).replace("\r\n", "\n")
    assert "Attempt 1: sent back, review: revise" in text
    assert "- length at line 1" in text


def test_a_text_of_a_megabyte_does_not_push_all_else_off_the_screen(
    kairo: Any, team_file: TeamFile, book: Path
) -> None:
    long = FAILS.replace('"the source has no page 12"', '"no page " * 150_000').replace(
        '"Make it."', '"goal " * 200_000'
    )
    kairo("run", team_file(long), "--run-id", "today-1")
    kairo("run", team_file(ASKS.replace('"a person must see it"', '"must see " * 150_000')), "--run-id", "today-2")
    for words in (["show", "today-1"], ["runs"], ["show", "today-2"], ["questions"], ["compare", "today-1", "today-2"]):
        said = kairo(*words)
        assert said.code == 0, said.err
        assert len(said.out) < 40_000, words
        assert "..." in said.out


def test_both_runs_are_seen_and_sentences_whole_at_a_narrow_terminal(
    kairo: Any, team_file: TeamFile, book: Path
) -> None:
    kairo("run", team_file(ASKS), "--run-id", "monday")
    with terminal("run", team_file(FAILS), "--run-id", "today-1", COLUMNS="40") as shown:
        text = ESCAPE.sub("", shown.read_until())
    budget = text[text.index("Budget\r\n") : text.index("FAILED  after")]
    assert re.search(r"└─ third tokens \d+, set aside [\d,]+, loops \d+", " ".join(budget.split()))
    assert "…" not in budget
    with terminal("compare", "monday", "today-1", COLUMNS="40") as shown:
        text = " ".join(ESCAPE.sub("", shown.read_until()).split())
    assert re.search(r"letter: not in this run \| suspended, 1 attempt, \d+ tokens", text)
    assert "…" not in text
    with terminal("show", "monday", COLUMNS="40") as shown:
        text = ESCAPE.sub("", shown.read_until())
    tasks = text[text.index("Tasks") : text.index("Calls")]
    assert re.search(r"letter suspended 1 attempt \d+ tokens [\d.]+ s ada waits for a person", " ".join(tasks.split()))
    assert max(len(line.rstrip()) for line in tasks.splitlines()) <= 40
    with terminal("runs", COLUMNS="40") as shown:
        lines = [line.rstrip() for line in ESCAPE.sub("", shown.read_until()).splitlines()]
    assert any(re.search(r"\d+ s ago", line) for line in lines)
    assert max(map(len, lines[: lines.index("")])) <= 40
    with terminal("top", "--once", COLUMNS="24") as shown:
        text = " ".join(ESCAPE.sub("", shown.read_until()).split())
    assert "1 open question" in text
