"""`kairo worker --log-format json`: each line is JSON, and says which run, unit and delivery it is about."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kairo_team.cli.job import JsonLine, _OneLine
from kairo_team.cluster.units import Unit, at_work
from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file
from tests.cluster.test_commands import until, url, working

__all__ = ["forget_team_files", "kairo", "team_file", "url"]  # fixtures

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="signals of a terminal"),
]
TEAM = """
import logging

def work(assignment):
    logging.getLogger("kairo_team.mine").warning("I work on %s\\nand say it in two lines: “é”", assignment.task.id)
    return "done"

team = kt.Team("desk", [kt.Member("clerk", work)])
plan = kt.TaskGraph([kt.Task("letter", "Write it.")])
"""


def test_every_line_of_a_worker_is_json_with_its_run_unit_and_fence(
    kairo: Kairo, team_file: Callable[..., Path], url: str
) -> None:
    file = team_file(TEAM)
    assert kairo("submit", file, "--run-id", "run-1", "--engine", "procrastinate").code == 0
    with working(file, "--verbose", "--log-format", "json", "--health", "0") as worker:
        until(lambda: "COMPLETED" in kairo("show", "run-1").out)
        worker.line("run:run-1, delivery 1: ended")
        assert worker.end(signal.SIGTERM) == 0
        worker.line('"message": "ended"')
        lines: list[dict[str, Any]] = [json.loads(line) for line in worker.lines]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    said = {line["message"].partition("\n")[0].partition(":")[0]: line for line in lines}
    assert said.keys() >= {"health", "ready", "ended"}
    assert "run" not in said["ready"]
    (mine,) = (line for line in lines if line["logger"] == "kairo_team.mine")
    assert mine["message"] == "I work on letter\nand say it in two lines: “é”"
    assert (mine["level"], mine["run"], mine["fence"]) == ("warning", "run-1", 1)
    assert mine["unit"].startswith("run-1:1:attempt:")
    (begun,) = (line for line in lines if line["message"] == "unit run:run-1, delivery 1: begun")
    assert (begun["run"], begun["unit"], begun["fence"], begun["level"]) == ("run-1", "run:run-1", 1, "info")


def test_an_error_has_its_traceback_in_one_line() -> None:
    token = at_work.set(Unit("run:r", "run", "r", "q", fence=3))
    try:
        raise ValueError("what a pity")
    except ValueError:
        record = logging.LogRecord("kairo_team", logging.ERROR, "", 0, "it %s", ("failed",), sys.exc_info())
        line = JsonLine().format(record)
    finally:
        at_work.reset(token)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["message"], found["run"], found["unit"], found["fence"]) == ("it failed", "r", "run:r", 3)
    assert found["error"].endswith("ValueError: what a pity")


def test_a_long_error_is_cut_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("kairo_team").error("it failed", exc_info=ValueError("y" * 1_000_000))
    for form in (JsonLine(), _OneLine()):
        line = form.format(caplog.records[0])
        assert len(line) < 10_000
        assert " characters are left out] yyy" in line


def test_another_format_is_refused(kairo: Kairo, team_file: Callable[..., Path], url: str) -> None:
    said = kairo("worker", team_file(TEAM), "--log-format", "xml")
    assert (said.code, "xml" in said.err, "json" in said.err) == (2, True, True)
