"""The contract kit on the journal, with programs that are killed; and a run that another process resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

pytest.importorskip("lmdb_journal", reason="tests/third_party/lmdb_journal is not installed")

from lmdb_journal import LmdbJournal

import kairo_team as kt
from kairo_team import plugins
from kairo_team.contracts import Journal
from kairo_team.errors import JournalError
from kairo_team.tck import JournalTCK


class TestLmdbJournal(JournalTCK):
    @classmethod
    def make_journal(cls) -> Journal:
        return cls.open_at(str(Path(tempfile.mkdtemp(prefix="lmdb-journal-")) / "runs"))

    @classmethod
    def make_another(cls, journal: Any) -> Journal:
        return cls.open_at(cls.place_of(journal))

    @classmethod
    def place_of(cls, journal: Any) -> str:
        return str(journal.path)

    @classmethod
    def open_at(cls, place: str) -> Journal:
        return LmdbJournal(place, sync=False)  # no test cuts the power

    @classmethod
    def crash(cls, journal: Any) -> None:
        journal.abandon("its process has died", dies=True)

    @classmethod
    def fail(cls, journal: Any) -> None:
        journal.abandon("no space is left on the disk")

    @classmethod
    def close(cls, journal: Any) -> None:
        journal.close()
        rmtree(journal.path.parent, ignore_errors=True)


TEAM = """
import os, signal, sys
import kairo_team as kt
from kairo_team.testing import FunctionModel
from lmdb_journal import LmdbJournal

def reply(request: kt.ModelRequest) -> str:
    if "two" in request.messages[-1].text and "kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "as asked"

model = FunctionModel(reply, name="test:provider")

async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    asked = kt.ModelRequest([kt.Message.user(assignment.task.id)], max_tokens=40)
    await context.model(model).complete(asked)
    with open(sys.argv[1] + ".txt", "a") as made:
        made.write(assignment.task.id + "\\n")
    return f"about {assignment.task.id}"

team = kt.Team("desk", [kt.Member("clerk", write)])
plan = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])
runtime = kt.Runtime(journal=LmdbJournal(sys.argv[1]))

async def main() -> None:
    if "resume" in sys.argv:
        print((await runtime.resume("r", team)).status)
    else:
        await kt.run(team, "Do it.", plan=plan, run_id="r", runtime=runtime)

import anyio
anyio.run(main)
"""


def test_a_killed_program_is_resumed_and_does_nothing_twice(tmp_path: Path) -> None:
    place = tmp_path / "runs"

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", TEAM, str(place), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ})

    killed = start("kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    journal = LmdbJournal(place)
    assert [(run.run_id, run.state) for run in journal.runs()] == [("r", "interrupted")]
    assert start("resume").stdout == "completed\n"
    assert Path(f"{place}.txt").read_text() == "one\ntwo\n"
    assert journal.show("r").state == "completed"
    journal.close()


def test_a_store_that_is_full_is_one_sentence(tmp_path: Path) -> None:
    journal = LmdbJournal(tmp_path / "runs", map_size=100_000)

    async def write(assignment: kt.Assignment) -> str:
        return "long " * 100_000

    result = kt.run_sync(kt.Team("desk", [kt.Member("clerk", write)]), "Do it.", runtime=kt.Runtime(journal=journal))
    assert any("MDB_MAP_FULL" in sentence for sentence in (str(result.error), *result.warnings))
    journal.close()


def test_a_folder_that_cannot_be_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(JournalError, match="it cannot be opened"):
        LmdbJournal(tmp_path / "runs")


def test_it_is_found_by_its_name(tmp_path: Path) -> None:
    journal = plugins.make("journal", "lmdb", {"path": str(tmp_path / "runs")})
    assert isinstance(journal, LmdbJournal)
    journal.close()
