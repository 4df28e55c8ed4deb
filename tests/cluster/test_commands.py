"""`kairo worker`, `kairo submit`, and the commands on recorded runs with `--database`: what a user types and reads."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cli.secret_arguments import without_password
from kairo_team.testing.postgres_server import PASSWORD
from tests.cli.conftest import Kairo, forget_team_files, kairo, kairo_json, program, team_file
from tests.cluster.stage import execute, new_database

__all__ = ["forget_team_files", "kairo", "kairo_json", "program", "team_file"]  # fixtures

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="signals of a terminal"),
]
TeamFile = Callable[..., Path]
LONG = 60.0
DESK = """
import pathlib, time
HERE = pathlib.Path(__file__).parent

def work(assignment):
    with (HERE / "begun").open("a") as file:
        file.write(assignment.task.id + "\\n")
    while (HERE / "wait").exists():
        time.sleep(0.02)
    return f"{assignment.task.id} is written"

team = kt.Team("desk", [kt.Member("clerk", work)])
plan = kt.TaskGraph([kt.Task("letter", "Write it."), kt.Task("reply", "Read it.", depends_on=["letter"])])
"""
ASKS = DESK.replace("""[kt.Member("clerk", work)])""", """[kt.Member("clerk", work)], coordinator=experts)""").replace(
    "team =",
    """
from kairo_team.coordinators import ExpertTeamCoordinator
class Unsure:
    async def evaluate(self, context):
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")
experts = ExpertTeamCoordinator(evaluator=Unsure())
team =""",
    1,
)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a database that the environment names."""
    made = new_database("procrastinate")
    monkeypatch.setenv("KAIRO_DATABASE", made)
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    return made


class Worker:
    """A worker that runs as a program."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "kairo_team.cli", "worker", *map(str, arguments)]
        self.process = subprocess.Popen(
            [*command, "--engine", "procrastinate", "--beat", "0.3"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))

    def line(self, text: str) -> str:
        """Wait for a line with this text."""
        while True:
            self.lines.append(self._queue.get(timeout=LONG))
            if text in self.lines[-1]:
                return self.lines[-1]

    def end(self, *numbers: signal.Signals) -> int:
        """Send signals, and wait for the end."""
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(timeout=LONG)


@contextmanager
def working(*arguments: object) -> Generator[Worker]:
    worker = Worker(*arguments)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()
        assert worker.process.stdout is not None
        worker.process.stdout.close()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.05)


def begun(file: Path) -> list[str]:
    there = file.parent / "begun"
    return there.read_text().splitlines() if there.exists() else []


# ---------------------------------------------------------------- a run from submission to its end


def test_a_submitted_run_waits_for_a_worker_of_its_version_and_is_then_done(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    sent = kairo("submit", file, "--run-id", "run-1", "--engine", "procrastinate")
    assert sent.code == 0
    assert "run run-1 is submitted to database 'test_" in sent.out
    assert "it waits: no live worker serves version " in sent.out
    assert f"  kairo worker {file}\n  kairo show run-1\n" in sent.out
    listed = kairo("runs")
    assert "run-1  queued  desk" in listed.out
    assert "1 run waits: no live worker serves version " in listed.out
    shown = kairo("show", "run-1")
    assert shown.out.startswith("run-1  QUEUED")
    assert shown.out.endswith(f"continue with:\n  kairo worker {file}\n")
    with working(file, "--verbose") as worker:
        assert "team 'desk', version " in worker.line("ready: process")
        until(lambda: "COMPLETED" in kairo("show", "run-1").out)
        assert "waits" not in kairo("runs").out
        again = kairo("submit", file, "--run-id", "run-1")
        assert again.code == 2
        assert "run 'run-1' is recorded already: give --run-id another id; kairo show run-1 shows it" in again.err
        assert worker.end(signal.SIGTERM) == 0
        assert "unit run:run-1, delivery 1: begun" in worker.line("unit run:run-1")
    assert PASSWORD not in sent.out + listed.out + shown.out + again.err + "\n".join(worker.lines)


def test_submit_waits_and_shows_the_result(kairo_json: Any, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    with working(file) as worker:
        worker.line("ready")
        said = kairo_json("submit", file, "--wait", "--json", "--budget", "tokens=1000")
    assert said.code == 0
    assert said.document["status"] == "completed"
    assert "reply is written" in said.document["output"]


def test_questions_of_a_team_without_a_gate_wait_for_an_answer(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    rubric = 'kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])'
    file = team_file(ASKS.replace("evaluator=Unsure()", f"evaluator={rubric}"))
    sent = kairo("submit", file, "--run-id", "asks")
    assert (sent.code, sent.err) == (0, "")
    with working(file) as worker:
        worker.line("ready")
        until(lambda: "SUSPENDED" in kairo("show", "asks").out)
    assert "an editor agrees" in kairo("questions").out


def test_a_run_is_coordinated_here_and_worked_on_by_a_worker(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    with working(file) as worker:
        worker.line("ready")
        said = kairo("run", file, "--run-id", "here")
        assert said.code == 0
        assert said.out.startswith("run here is recorded in database 'test_")
        found = execute(url, "SELECT kind, state FROM process WHERE kind = 'worker'")
        assert found == [("worker", "live")]
    assert begun(file) == ["letter", "reply"]
    assert kairo("report", "here", "-o", file.parent / "report.html").code == 0
    events = [json.loads(line) for line in kairo("events", "here").out.splitlines()]
    assert events[-1]["type"] == "team.completed"
    forked = kairo("fork", "here", "--before", "reply", "--new-id", "fork-1")
    assert forked.out.endswith("continue with:\n  kairo resume fork-1\n")
    assert kairo("forget", "fork-1").out == "forgotten: 1 run\n"


def test_an_answered_question_lets_a_worker_go_on(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(ASKS)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("submit", file, "--run-id", "asks", "--wait").code == 7
        shown = kairo("show", "asks").out
        assert shown.endswith("continue with:\n  kairo answer asks approve\n"), "no resume: it goes on by itself"
        assert "workers resume it by themselves" in kairo("resume", "asks").err
        answered = kairo("answer", "asks", "approve")
        assert answered.out.endswith("answered: approve\na worker resumes the run\n")
        until(lambda: kairo("runs", "--state", "suspended").out.count("asks") and begun(file) == ["letter", "reply"])
        assert kairo("cancel", "asks").out == "run asks is cancelled\n"


def test_a_terminal_ends_one_task_and_raises_the_budget_of_a_run_that_a_worker_coordinates(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    wait = file.parent / "wait"
    wait.touch()
    kairo("submit", file, "--run-id", "live", "--engine", "procrastinate", "--budget", "tokens=1000")
    assert "is queued, and no process has it: wait until it begins" in kairo("cancel", "live", "--task", "reply").err
    with working(file) as worker:
        worker.line("ready")
        until((file.parent / "begun").exists)
        assert kairo("cancel", "live", "--task", "reply").out.startswith("task reply of run live is cancelled")
        assert kairo("top-up", "live", "--add", "tokens=500").code == 0
        wait.unlink()
        until(lambda: "COMPLETED" in kairo("show", "live").out or "DEGRADED" in kairo("show", "live").out)
    assert "limits: 1,500 tokens" in kairo("show", "live").out
    assert begun(file) == ["letter"]


def test_a_queued_run_is_cancelled_and_never_begins(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    kairo("submit", file, "--run-id", "never", "--engine", "procrastinate")
    assert kairo("cancel", "never").out == "run never is cancelled\n"
    kairo("submit", file, "--run-id", "after")
    with working(file) as worker:
        worker.line("ready")
        until(lambda: "COMPLETED" in kairo("show", "after").out)
    assert kairo("show", "never").out.startswith("never  CANCELLED")
    assert begun(file) == ["letter", "reply"]


def test_a_worker_of_another_version_takes_nothing_and_the_run_says_so(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    old = team_file(DESK)
    new = team_file(DESK.replace('"clerk"', 'kt.Role("clerk", "Be brief.")'), "team_new.py")
    with working(new) as worker:
        version = worker.line("ready: process").partition("version ")[2].partition(";")[0]
        kairo("submit", old, "--run-id", "old-1", "--engine", "procrastinate")
        assert "it waits: no live worker serves version " in kairo("show", "old-1").out
        until(lambda: f"; '{version}' of team 'desk' is served" in kairo("show", "old-1").out)  # at its next beat
    assert begun(old) == []


def test_workers_of_some_members_leave_runs_to_others(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    with working(file, "--members", "clerk") as worker:
        assert worker.line("ready").endswith("8 attempts at once, of clerk")
        kairo("submit", file, "--run-id", "alone", "--engine", "procrastinate")
        until(lambda: "start one without --members for whole runs" in kairo("show", "alone").out)


# ---------------------------------------------------------------- how a worker ends


def test_a_second_signal_ends_a_worker_at_once(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    with working(file) as worker:
        worker.line("ready")
        kairo("submit", file, "--engine", "procrastinate")
        until(lambda: begun(file))
        worker.process.send_signal(signal.SIGTERM)
        worker.line("draining: takes nothing new; 2 under way, for at most 30 s")
        time.sleep(1.1)  # two signals within a second count as one
        assert worker.end(signal.SIGTERM) == 143


def test_a_signal_gives_back_what_is_not_done_in_time(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    with working(file, "--drain", "0.1") as worker:
        worker.line("ready")
        kairo("submit", file, "--run-id", "handed", "--engine", "procrastinate")
        until(lambda: begun(file))
        assert worker.end(signal.SIGTERM, signal.SIGTERM) == 0, "two at once are one"
    (file.parent / "wait").unlink()
    with working(file) as worker:
        worker.line("ready")
        until(lambda: "COMPLETED" in kairo("show", "handed").out)
    assert begun(file) == ["letter", "letter", "reply"]


# ---------------------------------------------------------------- the URL is a secret


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="where command lines can be read as a file")
@pytest.mark.parametrize("form", ["--database={}", "--database {}"])
def test_no_password_stays_in_the_command_line_of_a_process(
    team_file: TeamFile, url: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.delenv("KAIRO_DATABASE")
    file = team_file(DESK)
    with working(file, *form.format(url).split(" ")) as worker:
        worker.line("ready")
        command = Path(f"/proc/{worker.process.pid}/cmdline").read_bytes().decode()
        assert "env:KAIRO_DATABASE_GIVEN" in command
        assert PASSWORD not in command
        assert worker.end(signal.SIGTERM) == 0
        assert PASSWORD not in "\n".join(worker.lines)


@pytest.mark.parametrize(
    ("given", "written", "url"),
    [
        (["runs", "--database", "postgresql://a:b@h/d"], ["runs", "--database", "env:KAIRO_DATABASE_GIVEN"], 2),
        (["--database=postgresql://a:b@h/d", "x"], ["--database=env:KAIRO_DATABASE_GIVEN", "x"], 1),
        (["--database", "postgresql://h/d?password=b"], ["--database", "env:KAIRO_DATABASE_GIVEN"], 1),
        (["--database", "postgresql://a@h/d"], ["--database", "postgresql://a@h/d"], None),
        (["--database", "env:NAME"], ["--database", "env:NAME"], None),
        (["--database"], ["--database"], None),
    ],
)  # fmt: skip
def test_only_a_url_with_a_password_leaves_the_command_line(
    given: list[str], written: list[str], url: int | None
) -> None:
    arguments, found = without_password(given)
    assert arguments == written
    assert (found is None) == (url is None)


def test_a_member_s_programs_do_not_get_the_url(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file("""
import subprocess, sys
LOOK = "import os; print(os.environ.get('KAIRO_DATABASE'))"
def look(assignment):
    return subprocess.check_output([sys.executable, "-c", LOOK]).decode()
team = kt.Team("desk", [kt.Member("clerk", look)])
plan = kt.TaskGraph([kt.Task("look", "Look.")])
""")
    with working(file) as worker:
        worker.line("ready")
        said = kairo("run", file)
    assert "  | None" in said.out


def test_what_cannot_be_reached_is_said_without_the_password(kairo: Kairo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.cli.journals.PATIENCE", 0.0)
    said = kairo("runs", "--database", "postgresql://me:very-secret@127.0.0.1:1/d")
    assert said.code == 2
    assert "it cannot be reached" in said.err
    assert "very-secret" not in said.err


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--database", "postgresql://h/d", "--journal", "x.db"], "--journal and --database exclude each other"),
        (["--database", "mysql://h/d"], "--database: The database URL is not understood"),
        (["--database", "env:NOT_SET"], "--database env:NOT_SET: the environment has no variable 'NOT_SET'"),
    ],
)
def test_wrong_places_are_refused(
    kairo: Kairo, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    monkeypatch.delenv("KAIRO_DATABASE", raising=False)
    said = kairo("runs", *options)
    assert said.code == 2
    assert sentence in said.err


def test_two_places_in_the_environment_are_refused_and_an_option_decides(
    kairo: Kairo, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kt.SqliteJournal(tmp_path / "runs.db").close()
    monkeypatch.setenv("KAIRO_JOURNAL", str(tmp_path / "other.db"))
    assert "KAIRO_JOURNAL and KAIRO_DATABASE are both set" in kairo("runs").err
    assert "no run is recorded in database" in kairo("runs", "--database", url).out
    monkeypatch.delenv("KAIRO_JOURNAL")
    assert "runs.db" in kairo("runs", "--journal", tmp_path / "runs.db").out


def test_a_worker_without_a_database_is_refused(
    kairo: Kairo, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAIRO_DATABASE", raising=False)
    said = kairo("worker", team_file(DESK))
    assert "this command needs a database: give --database URL, or set KAIRO_DATABASE" in said.err


def test_a_model_for_a_run_on_workers_is_refused(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    said = kairo("run", team_file(DESK), "--model", "local:smollm2")
    assert "--model does not reach the workers" in said.err


def test_another_engine_than_the_database_s_is_refused(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    kairo("submit", file, "--engine", "procrastinate")
    said = kairo("submit", file, "--engine", "dbos")
    assert said.code == 2
    assert "is used with engine='procrastinate': use that one, not 'dbos'" in said.err


def test_a_member_that_is_not_there_is_refused(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    said = kairo("worker", team_file(DESK), "--members", "nobody", "--engine", "procrastinate")
    assert said.code == 2
    assert "team 'desk' has no member 'nobody'; it has 'clerk'" in said.err


# ---------------------------------------------------------------- a team in a module


def test_a_team_is_named_by_its_module(kairo: Kairo, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "team_pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "office.py").write_text(f"import kairo_team as kt\n{DESK}")
    monkeypatch.chdir(tmp_path)
    sent = kairo("submit", "team_pack.office:team", "--run-id", "module-1", "--engine", "procrastinate")
    assert "  kairo worker team_pack.office:team\n" in sent.out
    with working(package / "office.py") as worker:  # the same team, whatever names it
        worker.line("ready")
        until(lambda: "COMPLETED" in kairo("show", "module-1").out)
    missing = kairo("submit", "team_pack.nothing:team")
    assert "there is no module 'team_pack.nothing' here" in missing.err
