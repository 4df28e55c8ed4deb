"""A journal that is taken elsewhere: by a container of another name, and as a copy."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

import kairo_team as kt
from kairo_team.errors import JournalError, Misuse
from kairo_team.testing import FunctionModel

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

WORK = """
import sys
import anyio
import kairo_team as kt
from kairo_team.testing import FunctionModel

async def work(assignment, context):
    text = (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))).text
    if assignment.task.id == "t1":
        print("asked", flush=True)
        await anyio.sleep_forever()
    return text

async def main():
    plan = kt.TaskGraph([kt.Task("t0", "Do it."), kt.Task("t1", "Do it.", depends_on=["t0"])])
    runtime = kt.Runtime(journal=kt.SqliteJournal(sys.argv[1]), models={"m:x": FunctionModel(lambda _: "done")})
    await kt.run(
        kt.Team("desk", [kt.Member("clerk", work)]), "Do it.", plan=plan, runtime=runtime, run_id="r"
    )

anyio.run(main)
"""


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))).text


TEAM = kt.Team("desk", [kt.Member("clerk", work)])


async def resumed(path: Path) -> list[str]:
    """Resume the run in a journal, and return the texts that its model was asked anew."""
    asked: list[str] = []

    def answer(request: kt.ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return "done"

    with closing(kt.SqliteJournal(path)) as journal:
        runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(answer)})
        assert (await runtime.resume("r", TEAM)).status == "completed"
    return asked


async def killed_beside(path: Path, while_it_lives: object = None) -> None:
    """Leave the run of a process that was killed, after `while_it_lives` was called."""
    async with await anyio.open_process([sys.executable, "-c", WORK, str(path)]) as child:
        assert child.stdout is not None
        seen = b""
        while b"asked" not in seen:
            seen += await child.stdout.receive()
        if callable(while_it_lives):
            while_it_lives()
        child.send_signal(signal.SIGKILL)
        await child.wait()


async def test_third_o30_a_run_goes_on_under_another_host_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    def elsewhere() -> None:
        rename_host(path)
        with closing(kt.SqliteJournal(path)) as journal:
            assert journal.show("r").state == "running", "its process lives, in another container"
            with pytest.raises(Misuse, match="on web-7f: cancel it there"):
                journal.recover("r")

    await killed_beside(path, elsewhere)
    with closing(kt.SqliteJournal(path)) as journal:
        assert journal.show("r").state == "interrupted"
    assert await resumed(path) == []


async def test_the_same_program_goes_on_in_a_new_container_and_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    """`kt.run(resume=True)` with the same volume: the lock decides, and the name of the host does not matter."""
    path, asked = tmp_path / "runs.db", list[str]()
    plan = kt.TaskGraph([kt.Task("t0", "Do it."), kt.Task("t1", "Do it.", depends_on=["t0"])])

    async def run() -> kt.TeamResult:
        def answer(request: kt.ModelRequest) -> str:
            asked.append(request.messages[-1].text)
            return "done"

        with closing(kt.SqliteJournal(path)) as journal:
            runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(answer)})
            return await kt.run(TEAM, "Do it.", plan=plan, run_id="r", resume=True, runtime=runtime)

    async with await anyio.open_process([sys.executable, "-c", WORK, str(path)]) as child:
        assert child.stdout is not None
        seen = b""
        while b"asked" not in seen:
            seen += await child.stdout.receive()
        rename_host(path)
        with pytest.raises(Misuse, match=r"is running in process .* on web-7f"):
            await run()
        child.send_signal(signal.SIGKILL)
        await child.wait()
    assert (await run()).status == "completed"
    assert asked == [], "what was answered in the first container is not asked again"


def rename_host(path: Path) -> None:
    """Make all owners of a journal those of a container with another name."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("UPDATE owner SET host = 'web-7f'").rowcount == 1


@pytest.mark.parametrize("log", ["none", "empty"])
async def test_third_o30_a_copy_without_its_log_is_refused(log: str, tmp_path: Path) -> None:
    """The log is empty where it was folded into the file after the file was copied."""
    path, copy, whole = tmp_path / "runs.db", tmp_path / "copy.db", tmp_path / "whole.db"

    def copied() -> None:
        shutil.copy(path, copy)
        if log == "empty":
            Path(f"{copy}-wal").touch()
        shutil.copy(path, whole)
        shutil.copy(f"{path}-wal", f"{whole}-wal")

    await killed_beside(path, copied)
    with pytest.raises(JournalError, match=r"it is a copy of a journal in use, .* copy 'copy.db-wal' too"):
        kt.SqliteJournal(copy)
    assert await resumed(whole) == []
    assert await resumed(path) == []


async def test_third_o30_a_copy_of_a_journal_that_nobody_uses_is_whole(tmp_path: Path) -> None:
    path, looked_at, closed = tmp_path / "runs.db", tmp_path / "looked-at.db", tmp_path / "closed.db"
    await killed_beside(path)
    with closing(kt.SqliteJournal(path)) as journal:  # looks after the kill: SQLite folds the log into the file
        assert journal.show("r").state == "interrupted"
    shutil.copy(path, looked_at)
    assert await resumed(path) == []
    shutil.copy(path, closed)
    assert await resumed(looked_at) == []
    with closing(kt.SqliteJournal(closed)) as journal:
        assert journal.show("r").state == "completed"


def test_third_o30_a_file_that_was_deleted_is_not_made_again_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = kt.SqliteJournal(path)
    runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(lambda _: "done")})
    assert kt.run_sync(TEAM, "Do it.", runtime=runtime).status == "completed"
    for one in tmp_path.iterdir():
        one.unlink()
    journal.close()
    assert list(tmp_path.iterdir()) == []
