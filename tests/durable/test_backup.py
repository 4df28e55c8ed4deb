"""A journal is copied while it is in use, goes on from the copy, and gives the space of forgotten runs back."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import kairo_team as kt
from kairo_team.durable.journal import APPLICATION_ID, SqliteFile, format_of_file
from kairo_team.errors import JournalError
from kairo_team.testing import FunctionModel
from tests.cli.conftest import Kairo, kairo
from tests.durable.desk import RUN, Provider, begin

__all__ = ["kairo"]  # a fixture

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

OLD = Path(__file__).parent.parent / "data" / "journals" / "format-1.db.gz"
PLAN = kt.TaskGraph([kt.Task(f"t{n}", "Do it.", depends_on=[f"t{n - 1}"] if n else []) for n in range(4)])


class Desk:
    """One member that asks the model once for each task; `before` is called before each answer."""

    def __init__(self, before: Callable[[str], object] = lambda task: None, reply: str = "done") -> None:
        self.asked: list[str] = []
        self._before, self._reply = before, reply
        self.team = kt.Team("desk", [kt.Member("clerk", self.work)])

    async def answer(self, request: kt.ModelRequest) -> str:
        task = request.messages[-1].text
        self.asked.append(task)
        await anyio.to_thread.run_sync(self._before, task)
        return self._reply

    async def work(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user(assignment.task.id)], max_tokens=200_000)
        return (await context.model("m:x").complete(request)).text

    def runtime(self, journal: kt.SqliteJournal) -> kt.Runtime:
        return kt.Runtime(journal=journal, models={"m:x": FunctionModel(self.answer)})

    async def begin(self, path: Path, run_id: str = "r") -> kt.TeamResult:
        journal = kt.SqliteJournal(path)
        try:
            request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=run_id)
            return await kt.run(self.team, request, runtime=self.runtime(journal))
        finally:
            journal.close()

    async def resume(self, path: Path, run_id: str = "r") -> kt.TeamResult:
        journal = kt.SqliteJournal(path)
        try:
            return await self.runtime(journal).resume(run_id, self.team)
        finally:
            journal.close()


def backup(path: Path, copy: Path) -> Path:
    """Copy a journal as another process does."""
    journal = kt.SqliteJournal(path)
    try:
        return journal.backup(copy)
    finally:
        journal.close()


def parts(folder: Path) -> list[str]:
    """Return the names of unfinished copies."""
    return [one.name for one in folder.iterdir() if "-part-" in one.name]


def pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


async def test_a_copy_has_every_record_and_is_for_its_user_alone(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    await begin(path, Provider())
    assert backup(path, copy) == copy
    first, second = kt.SqliteJournal(path), kt.SqliteJournal(copy)
    assert first.runs() == second.runs()
    assert first.result(RUN) == second.result(RUN)
    assert first.calls(RUN) == second.calls(RUN)
    assert first.events_after(RUN) == second.events_after(RUN)
    first.close()
    second.close()
    assert (pragma(copy, "integrity_check"), pragma(copy, "application_id")) == ("ok", APPLICATION_ID)
    assert os.name != "posix" or copy.stat().st_mode & 0o777 == 0o600
    assert parts(tmp_path) == []


async def test_a_run_that_is_copied_while_it_runs_goes_on_from_every_copy(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    copies: list[Path] = []

    def copy(task: str) -> None:
        copies.append(backup(path, tmp_path / f"copy-{task}.db"))

    desk = Desk(before=copy)
    assert (await desk.begin(path)).status is kt.TeamStatus.COMPLETED
    assert desk.asked == ["t0", "t1", "t2", "t3"], "the run goes on meanwhile"
    for done, one in enumerate(copies):
        journal = kt.SqliteJournal(one)
        assert journal.show("r").state == "interrupted"
        assert [call.task_id for call in journal.in_doubt("r")] == [f"t{done}"], "it was sent when the copy was made"
        journal.close()
        again = Desk()
        result = await again.resume(one)
        assert result.status is kt.TeamStatus.COMPLETED
        assert again.asked == desk.asked[done:], "what the copy has is not paid again, what came later is"
        assert any("nobody saw the answer" in warning for warning in result.warnings), result.warnings


async def test_copies_that_are_made_in_the_middle_of_writes_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    copies: list[Path] = []
    ended = anyio.Event()

    async def copy() -> None:
        while not ended.is_set():
            copies.append(await anyio.to_thread.run_sync(backup, path, tmp_path / f"copy-{len(copies)}.db"))

    kt.SqliteJournal(path).close()
    async with anyio.create_task_group() as group:
        group.start_soon(copy)
        for number in range(4):
            await Desk().begin(path, f"r{number}")
        ended.set()
    assert copies
    for one in copies:
        assert pragma(one, "integrity_check") == "ok"
        journal = kt.SqliteJournal(one)
        for run in journal.runs():
            assert run.usage.tokens == sum(call.usage.tokens for call in journal.calls(run.run_id))
        journal.close()


async def test_the_mark_of_a_log_that_is_just_moved_into_the_file_is_not_copied(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    await begin(path, Provider())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO about VALUES ('in_log', ?)", (str(path.stat().st_ino),))
    backup(path, copy)
    with closing(kt.SqliteJournal(copy)) as journal:
        assert journal.show(RUN).state == "completed"


async def test_a_copy_replaces_nothing_and_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, there = tmp_path / "runs.db", tmp_path / "there.db"
    await begin(path, Provider())
    there.write_bytes(b"mine")
    with pytest.raises(JournalError, match="it exists already"):
        backup(path, there)
    assert there.read_bytes() == b"mine"
    with pytest.raises(JournalError, match="it exists already"):
        backup(path, path)
    with pytest.raises(JournalError, match="there is no directory"):
        backup(path, tmp_path / "none" / "copy.db")

    def full(_path: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(JournalError, match=r"it cannot be copied to .*No space left on device"):
        backup(path, tmp_path / "copy.db")
    monkeypatch.undo()
    assert parts(tmp_path) == []
    assert not (tmp_path / "copy.db").exists()


# ---------------------------------------------------------------- the space of forgotten runs


async def test_the_file_gets_smaller_when_runs_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for number in range(6):
        await Desk(reply=f"a long reply {number} " * 20_000).begin(path, f"r{number}")
    journal = kt.SqliteJournal(path)
    before = path.stat().st_size
    assert journal.forget("r0") == 1
    assert path.stat().st_size < before
    assert journal.forget(older_than=0) == 5
    assert path.stat().st_size < before / 10
    assert pragma(path, "integrity_check") == "ok"
    assert (await Desk().begin(path)).status is kt.TeamStatus.COMPLETED
    journal.close()


async def test_a_run_that_goes_on_meanwhile_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for number in range(4):
        await Desk(reply=f"a long reply {number} " * 20_000).begin(path, f"old{number}")
    before = path.stat().st_size

    def forget(task: str) -> None:
        with closing(kt.SqliteJournal(path)) as journal:
            assert journal.forget(f"old{task[1:]}") == 1

    desk = Desk(before=forget)
    result = await desk.begin(path)
    assert (result.status, desk.asked) == (kt.TeamStatus.COMPLETED, ["t0", "t1", "t2", "t3"])
    with closing(kt.SqliteJournal(path)) as journal:
        assert [run.run_id for run in journal.runs()] == ["r"]
        assert journal.show("r").usage.tokens == sum(call.usage.tokens for call in journal.calls("r"))
    assert path.stat().st_size < before / 2
    assert pragma(path, "integrity_check") == "ok"


async def test_a_locked_file_stays_long_and_the_runs_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    await Desk().begin(path)
    with closing(kt.SqliteJournal(path)) as journal:

        def locked(*_: object) -> int:
            raise sqlite3.OperationalError("database is locked")

        monkeypatch.setattr(SqliteFile, "_number", locked)
        assert journal.forget("r") == 1
        monkeypatch.undo()
        assert journal.runs() == ()


def test_a_file_of_an_earlier_format_shrinks_as_its_copy(tmp_path: Path) -> None:
    """SQLite can give single pages back only in a file that was made so; a copy is."""
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    with closing(kt.SqliteJournal(path)) as journal:
        assert journal.forget("ended") == 1
        assert pragma(path, "freelist_count") > 0
        journal.backup(copy)
    with closing(kt.SqliteJournal(copy)) as journal:
        before = copy.stat().st_size
        assert journal.forget("cancelled") == 1
    assert pragma(copy, "freelist_count") == 0
    assert copy.stat().st_size < before < path.stat().st_size


# ---------------------------------------------------------------- the command


async def test_kairo_backup_copies_and_says_how_many_runs(tmp_path: Path, kairo: Kairo) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    await begin(path, Provider())
    said = kairo("backup", path, copy)
    assert said.code == 0, said.err
    assert said.out == f"{path} is copied to {copy}: 1 run\n"
    assert kairo("show", RUN, "--journal", copy).code == 0
    said = kairo("backup", path, copy)
    assert (said.code, "it exists already" in said.err) == (2, True)
    said = kairo("backup", tmp_path / "none.db", tmp_path / "other.db")
    assert (said.code, "there is no journal" in said.err) == (2, True)
    assert not (tmp_path / "none.db").exists()


def test_kairo_backup_before_an_upgrade_leaves_the_format_as_it_is(tmp_path: Path, kairo: Kairo) -> None:
    """Else neither the file nor its copy could be opened by the version that wrote it."""
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    said = kairo("backup", path, copy)
    assert said.out == f"{path} is copied to {copy}: 6 runs\n", said.err
    assert [format_of_file(one).number for one in (path, copy)] == [1, 1]
    with closing(kt.SqliteJournal(copy)) as journal:
        assert len(journal.runs()) == 6
