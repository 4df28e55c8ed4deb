"""`kairo resume`, `fork`, `forget`, `events --follow` and `report` on runs in a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file
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


def test_a_report_is_written_of_a_run_that_waits_for_a_person(kairo: Kairo, team_file: TeamFile, url: str) -> None:
    file = team_file(ASKS_ONCE)
    with working(file) as worker:
        worker.line("ready")
        assert kairo("submit", file, "--run-id", "asks", "--wait").code == 7
    report = file.parent / "report.html"
    assert kairo("report", "asks", "-o", report).code == 0
    assert "Is the work of" in report.read_text("utf-8")
    assert "kairo answer asks approve" in report.read_text("utf-8")
