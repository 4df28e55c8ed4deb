"""A run on several workers, two of which are killed: it ends, and the account agrees or says that it does not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

import kairo_team as kt
from kairo_team.examples import many_machines
from kairo_team.recorded import RecordedCall
from kairo_team.testing.postgres_server import find_programs
from tests.examples.running import ROOT, start

COMMAND = ("-m", "kairo_team.examples.many_machines")

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not (ROOT / "examples/many_machines.py").exists(), reason="runs in the repository only"),
]
needs_server = pytest.mark.skipif(
    os.name != "posix" or find_programs() is None,
    reason="PostgreSQL is not here: install the dependency group `postgres`, or your system's PostgreSQL",
)


@pytest.mark.service
@needs_server
@pytest.mark.parametrize("engine", ["procrastinate", pytest.param("dbos", marks=pytest.mark.exhaustive)])
def test_a_run_whose_workers_are_killed_ends_completed_and_its_account_agrees(engine: str) -> None:
    done = start(*COMMAND, "--model", "script", "--tasks", "24", "--workers", "3", "--engine", engine)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "3 workers do a run of 24 tasks on script.",
        "2 of them are killed, the one that coordinates it too.",
        "The run has ended: COMPLETED.",
    ]
    assert "finished: 24; in doubt: " in lines[4]
    assert lines[-1] == "the account agrees"


@pytest.mark.exhaustive
@pytest.mark.local_model
@pytest.mark.service
@needs_server
def test_on_the_model_inside_each_worker() -> None:
    done = start(*COMMAND, "--tasks", "40")
    assert done.returncode == 0, done.stdout + done.stderr


def test_too_few_workers_are_refused() -> None:
    done = start(*COMMAND, "--workers", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("error: --workers is at least 3: 2 of them are killed\n")


class Journal:
    """What the account reads of a journal."""

    def __init__(self, *states: tuple[str, str]) -> None:
        self._calls = [cast("RecordedCall", Call(task, state)) for task, state in states]

    def calls(self, _run_id: str) -> list[RecordedCall]:
        return self._calls

    def show(self, _run_id: str) -> Any:
        return Run(kt.Usage(10 * len(self._calls)))


class Call:
    usage = kt.Usage(10)

    def __init__(self, task_id: str, state: str) -> None:
        self.task_id, self.state = task_id, state


class Run:
    state = "completed"

    def __init__(self, usage: kt.Usage) -> None:
        self.usage = usage


@pytest.mark.parametrize(
    ("asked", "agrees"),
    [
        ("a b", True),
        ("a b b", True),
        ("a a b", False),  # a finished call was asked for twice
        ("a", False),  # a finished call was never asked for
        ("a b c", False),  # the database knows nothing of it
    ],
)
def test_the_account_agrees_with_the_provider_or_says_that_it_does_not(
    tmp_path: Path, asked: str, agrees: bool
) -> None:
    log = tmp_path / "provider.log"
    log.write_text("".join(json.dumps(f"{task}: What?") + "\n" for task in asked.split()))
    journal: Any = Journal(("a", "answered"), ("b", "answered"), ("b", "sent"))
    lines, found = many_machines.account(journal, [], log)
    assert found is agrees
    assert lines[-1] == ("the account agrees" if agrees else "the account does NOT agree")
