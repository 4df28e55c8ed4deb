"""`kairo resume`, `fork`, `forget`, `events --follow` and `report` on runs in a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cli import cluster_commands, journal_commands
from kairo_team.cluster.coverage import Coverage
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.postgres_database import ConnectionBroke
from kairo_team.events import Event
from kairo_team.tck.journal_stage import Served, event_of, request_of, result_of, team_of
from kairo_team.testing.postgres_server import PostgresServer
from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file
from tests.cluster.server import own_server
from tests.cluster.stage import execute
from tests.cluster.test_commands import ASKS, DESK, LONG, TeamFile, begun, until, url, working

__all__ = ["forget_team_files", "kairo", "team_file", "url"]  # fixtures

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="signals of a terminal"),
]
ASKS_ONCE = ASKS.replace(
    "        return kt.EvaluationVerdict.escalate",
    '        if context.task.id == "reply":\n            return kt.EvaluationVerdict.passed(1.0)\n'
    "        return kt.EvaluationVerdict.escalate",
)


@contextmanager
def started(*arguments: object) -> Generator[subprocess.Popen[str]]:
    """Run a command as a program of its own, beside the test."""
    command = [sys.executable, "-m", "kairo_team.cli", *map(str, arguments)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ignored in the background
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_begun(file: Path, task: str = "letter") -> None:
    until(lambda: task in begun(file))


# ---------------------------------------------------------------- resume


def test_a_run_whose_coordinator_was_killed_is_resumed_and_workers_go_on(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    with working(file) as worker:
        worker.line("ready")
        with started("run", file, "--run-id", "cut") as coordinator:
            wait_until_begun(file)
            coordinator.kill()
        (file.parent / "wait").unlink()
        until(lambda: "INTERRUPTED" in kairo("show", "cut").out)
        assert kairo("show", "cut").out.endswith("continue with:\n  kairo resume cut\n")
        said = kairo("resume", "cut")
    assert said.code == 0, said.err
    assert "reply: done" in said.out
    assert "reply" in begun(file)


def test_a_run_that_a_living_process_coordinates_is_taken_only_when_it_is_said(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    with working(file) as worker:
        worker.line("ready")
        with started("run", file, "--run-id", "lives") as coordinator:
            wait_until_begun(file)
            refused = kairo("resume", "lives")
            assert refused.code == 2
            assert "run lives is running in another process" in refused.err
            with started("resume", "lives", "--take-over") as taker:
                assert coordinator.wait(LONG) == 4, "it records nothing more, and fails"
                (file.parent / "wait").unlink()
                out, _ = taker.communicate(timeout=LONG)
    assert taker.returncode == 0, out
    assert kairo("show", "lives").out.startswith("lives  COMPLETED")


def test_a_suspended_run_goes_on_with_its_answer_and_its_finished_work_is_kept(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        said = kairo("run", file, "--run-id", "asks")
        assert said.code == 7
        assert said.out.endswith("  kairo answer asks approve\n  kairo resume asks\n")
        assert kairo("resume", "asks").code == 7, "nobody has answered"
        assert kairo("answer", "asks", "approve").out.endswith("continue with:\n  kairo resume asks\n")
        assert kairo("resume", "asks").code == 0
    assert begun(file) == ["letter", "reply"]
    assert kairo("show", "asks").out.startswith("asks  COMPLETED")
    again = kairo("resume", "asks")
    assert "run asks has ended: completed" in again.err


def test_a_submitted_run_that_was_given_up_is_resumed_where_it_is_asked_for(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    with working(file) as first:
        first.line("ready")
        kairo("submit", file, "--run-id", "given-up", "--engine", "procrastinate")
        wait_until_begun(file)
        first.process.kill()
    (file.parent / "wait").unlink()
    execute(url, "UPDATE unit SET state = 'done', problem = 'given up after 5 deliveries' WHERE id = 'run:given-up'")
    shown = kairo("show", "given-up").out
    assert "given up after 5 deliveries" in shown
    with working(file) as second:
        second.line("ready")
        said = kairo("resume", "given-up")
    assert said.code == 0, said.err
    assert begun(file)[-1] == "reply"


# ---------------------------------------------------------------- fork and forget


def test_a_fork_goes_on_over_workers_and_pays_only_what_is_left(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(DESK)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("run", file, "--run-id", "first").code == 0
        kairo("fork", "first", "--before", "reply", "--new-id", "second")
        assert kairo("resume", "second").code == 0
    assert begun(file) == ["letter", "reply", "reply"]
    assert kairo("show", "first").out.startswith("first  COMPLETED")


def test_a_run_is_forgotten_with_what_waits_of_it_unless_a_process_has_it(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    (file.parent / "wait").touch()
    kairo("submit", file, "--run-id", "never", "--engine", "procrastinate")
    assert kairo("forget", "never").out == "forgotten: 1 run\n"
    with working(file) as worker:
        worker.line("ready")
        kairo("submit", file, "--run-id", "lives")
        wait_until_begun(file)
        refused = kairo("forget", "lives")
        assert refused.code == 2
        assert "run 'lives'" in refused.err
        (file.parent / "wait").unlink()
        until(lambda: "COMPLETED" in kairo("show", "lives").out)
        assert kairo("forget", "--older-than", "0s").out == "forgotten: 1 run\n"
        assert begun(file) == ["letter", "reply"]
        until(lambda: execute(url, "SELECT 1 FROM unit") == [])
        assert worker.end(signal.SIGTERM) == 0
    for sql in ("SELECT 1 FROM run", "SELECT 1 FROM step", "SELECT 1 FROM call", "SELECT 1 FROM event"):
        assert execute(url, sql) == []


# ---------------------------------------------------------------- what is read while it goes on


def test_events_are_followed_until_the_end_of_a_run_that_workers_coordinate(
    kairo: Kairo, team_file: TeamFile, url: str
) -> None:
    file = team_file(DESK)
    kairo("submit", file, "--run-id", "told", "--engine", "procrastinate")
    with started("events", "told", "--follow") as follower, working(file) as worker:
        worker.line("ready")
        out, _ = follower.communicate(timeout=LONG)
    found = [json.loads(line) for line in out.splitlines()]
    assert [event["seq"] for event in found] == [*range(1, len(found) + 1)]
    assert (found[0]["type"], found[-1]["type"]) == ("team.started", "team.completed")


IMPATIENT = """
from kairo_team.cli import databases, journals, main
databases.PATIENCE = journals.PATIENCE = 0.3
raise SystemExit(main())
"""


@contextmanager
def followed() -> Generator[tuple[PostgresServer, PostgresJournal, Served, subprocess.Popen[str]]]:
    """A run in a server's database, and a command that follows its events."""
    with own_server() as server:
        url = server.new_database()
        journal = PostgresJournal(url, beat=0.3)
        served = Served(journal.begin(request_of("told"), team_of(), {}, None), "told")
        command = [sys.executable, "-c", IMPATIENT, "events", "told", "--follow", "--database", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as follower:
            try:
                yield server, journal, served, follower
            finally:
                follower.kill()
                journal.close()


def emit(served: Served) -> None:
    served.emit(1)
    served.session.put(f"step:{served.seq}", served.seq)


def test_a_follower_says_that_it_waits_for_its_database_and_goes_on_with_it() -> None:
    with followed() as (server, journal, served, follower):
        assert follower.stdout is not None
        emit(served)
        assert json.loads(follower.stdout.readline())["seq"] == 1
        server.stop()
        said = follower.stdout.readline()
        assert said.startswith("kairo: journal \"database 'test_"), said
        assert said.endswith("; it is tried again until Ctrl-C\n")
        server.start()
        emit(served)
        emit(served)
        assert [json.loads(follower.stdout.readline())["seq"] for _ in range(2)] == [2, 3], "said once"
        assert journal.show("told").state in ("running", "interrupted")
        served.session.end(result_of("told", kt.TeamStatus.COMPLETED))
        assert follower.wait(LONG) == 0
        assert follower.stdout.read() == ""


def test_ctrl_c_ends_a_follower_that_waits_for_its_database() -> None:
    with followed() as (server, _, served, follower):
        assert follower.stdout is not None
        emit(served)
        follower.stdout.readline()
        server.stop()
        assert "it is tried again" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(LONG) == 130
        assert "Traceback" not in follower.stdout.read()
        server.start()  # its journal is closed


def test_a_submission_that_waits_for_its_run_waits_for_its_database_too(monkeypatch: pytest.MonkeyPatch) -> None:
    away = ConnectionBroke("database 'runs'", "it cannot be reached")
    looks: list[Any] = [SimpleNamespace(state="queued"), away, away, SimpleNamespace(state="cancelled")]

    def show(_run_id: str) -> Any:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    told: list[str] = []
    journal = SimpleNamespace(show=show, result=lambda _run_id: None)
    job, desk = SimpleNamespace(request=SimpleNamespace(run_id="r")), SimpleNamespace(print_notice=told.append)
    made: Any = (SimpleNamespace(journal=journal), job, desk)
    assert cluster_commands._wait_for(*made) == 6
    assert told == [
        "journal \"database 'runs'\": it cannot be reached; it is tried again until Ctrl-C",
        "run r has ended: cancelled",
    ]


def test_a_follower_does_not_leave_a_run_whose_process_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that its workers take up by themselves; one that nobody has it leaves."""

    class Seen:
        def __init__(self, *states: str) -> None:
            self.states = [*states]

        def show(self, run_id: str) -> SimpleNamespace:
            return SimpleNamespace(state=self.states.pop(0), run_id=run_id)

        def events_after(self, _run_id: str, _after: int) -> tuple[Event, ...]:
            return ()

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    for by_workers, states, left in (
        (False, [*["interrupted"] * 4, "running", *["interrupted"] * 3, "running", "completed", "?"], 1),
        (False, ["running", *["interrupted"] * 50], 44),
        (True, ["running", *["interrupted"] * 50, "running", "suspended", "?"], 1),
    ):
        monkeypatch.setattr(journal_commands, "coverage_of_run", lambda *_: Coverage(by_workers=by_workers))
        seen: Any = Seen(*states)
        journal_commands._follow_events(seen, "r", 0, pytest.fail)
        assert len(seen.states) == left


def test_a_follower_prints_no_event_twice_where_the_connection_breaks_between_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def events_after(_run_id: str, after: int) -> Iterator[Event]:
        asked.append(after)
        yield event_of("r", after + 1)
        if after == 0:
            raise ConnectionBroke("database 'runs'", "it cannot be reached")

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    told: list[str] = []
    journal: Any = SimpleNamespace(show=lambda _: SimpleNamespace(state="completed"), events_after=events_after)
    journal_commands._follow_events(journal, "r", 0, told.append)
    assert (asked, len(told)) == ([0, 1], 1)
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_a_report_is_written_of_a_run_that_waits_for_a_person(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("submit", file, "--run-id", "asks", "--wait").code == 7
    report = file.parent / "report.html"
    assert kairo("report", "asks", "-o", report).code == 0
    assert "Is the work of" in report.read_text("utf-8")
    assert "kairo answer asks approve" in report.read_text("utf-8")
