"""A journal whose disk fails: nothing more is sent, the run ends with one sentence, and what is on disk goes on."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

import kairo_team as kt
from kairo_team.durable import journal as sqlite_file
from kairo_team.durable.database import Database
from kairo_team.errors import JournalError, Misuse
from kairo_team.testing import FunctionModel
from tests.durable.desk import stop_between_commits

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PLAN = kt.TaskGraph([kt.Task(f"t{n}", "Do it.", depends_on=[f"t{n - 1}"] if n else []) for n in range(4)])


class World:
    """One session: a team of one member, whose second task breaks the disk first."""

    def __init__(self, path: Path, breaks: Callable[[], object] | None = None) -> None:
        self.journal = kt.SqliteJournal(path)
        self.asked: list[str] = []
        self._breaks = breaks
        self.runtime = kt.Runtime(journal=self.journal, models={"m:x": FunctionModel(self.answer)})
        self.team = kt.Team("desk", [kt.Member("clerk", self.work)])

    def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        return "done"

    async def work(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "t1" and self._breaks is not None:
            self._breaks()
        return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))).text

    async def begin(self) -> kt.TeamResult:
        request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id="r")
        return await kt.run(self.team, request, runtime=self.runtime)


async def ends_and_goes_on(path: Path, breaks: Callable[[], object], mends: Callable[[], object], why: str) -> None:
    first = World(path, breaks)
    result = await first.begin()
    assert result.status == "failed"
    assert why in (result.error or "")
    assert "\n" not in (result.error or "")
    assert first.asked == ["t0"]
    first.journal.close()
    mends()
    again = World(path)
    assert (await again.runtime.resume("r", again.team)).status == "completed"
    assert again.asked == ["t1", "t2", "t3"]
    again.journal.close()


async def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Database._write

    def fill() -> None:
        def limited(self: Database, connection: sqlite3.Connection, entries: object) -> None:
            connection.execute("PRAGMA max_page_count = 1")
            connection.execute("CREATE TABLE IF NOT EXISTS more (x)")
            write(self, connection, entries)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(Database, "_write", limited)

    await ends_and_goes_on(tmp_path / "runs.db", fill, monkeypatch.undo, "disk is full")


async def test_a_file_that_became_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Database._write

    def protect() -> None:
        def refused(self: Database, connection: sqlite3.Connection, entries: object) -> None:
            connection.execute("PRAGMA query_only = 1")
            write(self, connection, entries)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(Database, "_write", refused)

    await ends_and_goes_on(tmp_path / "runs.db", protect, monkeypatch.undo, "readonly database")


async def test_a_file_that_another_program_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        await ends_and_goes_on(path, lambda: other.execute("BEGIN IMMEDIATE"), other.close, "database is locked")


@pytest.mark.parametrize("left", [0.0, 0.3, 0.6, 0.9, 0.999])
async def test_a_torn_tail_loses_only_the_end(tmp_path: Path, left: float) -> None:
    path, copied = tmp_path / "runs.db", tmp_path / "copy.db"
    sizes: list[int] = []

    def copy() -> None:
        first.journal.show("r")  # what was given so far is in the file now
        shutil.copy(path, copied)
        log = Path(f"{path}-wal").read_bytes()
        sizes.append(len(log))
        Path(f"{copied}-wal").write_bytes(log[: int(len(log) * left)])

    first = World(path, copy)
    assert (await first.begin()).status == "completed"
    first.journal.close()
    for end in ("", "-wal"):  # into the same files: a disk that lost power has no copy
        shutil.copyfile(f"{copied}{end}", f"{path}{end}")
    again = World(path)
    if again.journal.runs():
        done = [one.task_id for one in again.journal.calls("r") if one.state == "answered"]
        assert (await again.runtime.resume("r", again.team)).status == "completed"
        assert again.asked == [f"t{n}" for n in range(4) if f"t{n}" not in done]
    else:  # nothing of it was on disk
        assert left < 1
    again.journal.close()
    assert sizes[0] > 0


async def test_a_forked_child_is_told_to_make_a_journal_of_its_own(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    code = """
import os, sys
import kairo_team as kt
from kairo_team.errors import JournalError, Misuse
journal = kt.SqliteJournal(sys.argv[1])
child = os.fork()
if not child:
    try:
        journal.runs()
    except JournalError as error:
        os._exit(0 if "a forked process needs a journal of its own" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = await anyio.run_process([sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "runs.db")])
    assert done.stdout.strip() == b"0"


SLEEPER = """
import sys
import anyio
import kairo_team as kt
from kairo_team.testing import FunctionModel

async def work(assignment, context):
    if assignment.task.id == "t1":
        print("stop me", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
    return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))).text

def answer(request):
    print("asked", request.messages[-1].text, flush=True)
    return "done"

async def main():
    plan = kt.TaskGraph([kt.Task(f"t{n}", "Do it.", depends_on=[f"t{n - 1}"] if n else []) for n in range(4)])
    runtime = kt.Runtime(journal=kt.SqliteJournal(sys.argv[1]), models={"m:x": FunctionModel(answer)})
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    result = await kt.run(kt.Team("desk", [kt.Member("clerk", work)]), request, runtime=runtime)
    print(result.status.value, result.error, flush=True)

anyio.run(main)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
async def test_a_process_that_was_only_asleep_sends_nothing_after_a_take_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await anyio.open_process([sys.executable, "-c", SLEEPER, str(path)]) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        seen = b""
        while b"stop me" not in seen:
            seen += await child.stdout.receive()
        stop_between_commits(child.pid, path)
        again = World(path)
        try:
            with pytest.raises(Misuse, match=f"process {child.pid}"):
                await again.runtime.resume("r", again.team)
            result = await again.runtime.resume("r", again.team, take_over=True)
            assert (result.status, again.asked) == ("completed", ["t1", "t2", "t3"])
        finally:
            again.journal.close()
            child.send_signal(signal.SIGCONT)
        await child.stdin.send(b"\n")
        said = seen + b"".join([part async for part in child.stdout])
    lines = said.decode().splitlines()
    assert lines[:2] == ["asked t0", "stop me"]
    assert lines[2:] == [f"failed journal {str(path)!r}: another process has taken the run over"]


def test_a_folder_or_a_text_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="it is a directory"):
        kt.SqliteJournal(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("notes " * 300)
    with pytest.raises(JournalError, match="not a database"):
        kt.SqliteJournal(text)
    assert text.read_text() == "notes " * 300
    with closing(sqlite3.connect(tmp_path / "empty.db")):
        assert kt.SqliteJournal(tmp_path / "empty.db").runs() == ()


async def test_a_number_that_sqlite_cannot_hold_ends_the_run_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user("go")], max_tokens=10))).text

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    models = {"m:x": FunctionModel(lambda _: "yes", dollars_per_token=10**8)}
    runtime, team = kt.Runtime(journal=journal, models=models), kt.Team("desk", [kt.Member("clerk", ask)])
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    request = kt.TeamExecutionRequest(
        "Do it.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(dollars=10**12)), run_id="r"
    )
    with anyio.fail_after(20):
        result = await kt.run(team, request, runtime=runtime)
    journal.close()
    assert result.status == "failed"
    assert "it cannot be written" in (result.error or "")
