"""The thread that writes a journal: it ends when it is asked to, and nobody waits for one that has died."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kairo_team as kt
from kairo_team._util.threads import run_in_thread
from kairo_team.durable import database
from kairo_team.durable.database import Writing
from kairo_team.durable.sql_run_journal import SqlRunJournal
from kairo_team.errors import JournalError, RunFinished
from kairo_team.tck.journal_stage import request_of, result_of, team_of
from kairo_team.testing import MemoryJournal

pytestmark = pytest.mark.real_time


def begun(journal: kt.SqliteJournal, run_id: str, seconds: float = 0.0) -> SqlRunJournal:
    """Begin a run that is served."""
    team = kt.Team("desk", [kt.Member("clerk", lambda assignment: "done")])
    plan = kt.TaskGraph([kt.Task("one", "Do one.")])
    session = journal.begin(kt.TeamExecutionRequest("Do it.", plan=plan, run_id=run_id), team, {}, None)
    session.serve(lambda: (seconds, 0), lambda reason: None, lambda error: None)
    return session


def test_a_journal_is_closed_while_its_runs_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the writer looks after them, which it does all the time here."""
    monkeypatch.setattr(database, "_BEAT", 0.0)
    for number in range(20):
        journal = kt.SqliteJournal(tmp_path / "runs.db", sync="normal")
        begun(journal, f"r{number}")
        closing = threading.Thread(target=journal.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive(), f"close number {number} never returned"


def writers() -> set[threading.Thread]:
    """Return the threads that write journals now; threads of other tests come and go."""
    return {thread for thread in threading.enumerate() if thread.name == "kairo-journal"}


def test_there_is_one_writer_however_many_threads_begin_at_once(tmp_path: Path) -> None:
    """Two would write what they were given in any order."""
    for number in range(20):
        journal = kt.SqliteJournal(tmp_path / f"runs-{number}.db", sync="normal")
        team = kt.Team("desk", [kt.Member("clerk", lambda assignment: "done")])
        sessions = [journal.begin(kt.TeamExecutionRequest("Do it.", run_id=f"r{n}"), team, {}, None) for n in range(8)]
        before, barrier = writers(), threading.Barrier(8)

        def put(session: SqlRunJournal, barrier: threading.Barrier) -> None:
            barrier.wait()
            session.put("step", 1)

        threads = [threading.Thread(target=put, args=(session, barrier)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(writers() - before) == 1
        journal.close()
        assert writers() <= before


async def test_a_writer_that_meets_an_error_of_any_kind_says_so(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db", sync="normal")
    session = begun(journal, "r")
    with anyio.fail_after(30), pytest.raises(JournalError, match="it cannot be written"):
        await session.sent(
            "model", "half of a pair: \ud800", kt.Usage(), step="s", key="", task_id=None, member=None,
            side_effect=None, loops=0,
        )  # fmt: skip
    journal.close()


async def test_entries_are_gathered_until_somebody_waits_and_then_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_GATHER", 600.0)
    journal = kt.SqliteJournal(tmp_path / "runs.db", sync="normal")
    session = begun(journal, "r")
    with anyio.fail_after(60):
        await session.written()
    own, together = journal.database._write, list[int]()

    def write(connection: Any, entries: Any) -> None:
        together.append(sum(len(entry.statements) for entry in entries))
        own(connection, entries)

    monkeypatch.setattr(journal.database, "_write", write)
    for number in range(3):
        session.put(f"step {number}", number)
        while journal.database._entries.qsize():  # until the writer has taken it
            await anyio.lowlevel.checkpoint()
    assert together == []
    with anyio.fail_after(60):
        await session.written()
    assert together == [3]
    journal.close()


def kept_by(journal: kt.SqliteJournal) -> list[Any]:
    """Return the connections that wait for the next block."""
    return [connection for connection, _ in vars(journal.database)["_kept"]]


class Noted:
    """A connection in a list of those that are open."""

    def __init__(self, connection: Any, open_ones: list[Any]) -> None:
        self._connection, self._open = connection, open_ones
        self._open.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        self._connection.close()
        self._open.remove(self)


async def test_a_connection_is_closed_whose_first_entries_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, open_ones = kt.SqliteJournal(tmp_path / "runs.db"), list[Any]()
    own = journal.database._connect
    monkeypatch.setattr(journal.database, "_connect", lambda: Noted(own(), open_ones))

    def refuse(*_given: Any) -> None:
        raise ValueError("it cannot be encoded")

    monkeypatch.setattr(journal.database, "_write", refuse)
    with anyio.fail_after(30), pytest.raises(JournalError, match="it cannot be written"):
        await begun(journal, "r").written()
    assert open_ones == kept_by(journal), "only those that wait for the next block"
    journal.close()
    assert not open_ones


def test_connections_are_kept_for_the_file_that_is_there(tmp_path: Path) -> None:
    """A file that takes the place of another one gets connections of its own; a failed block leaves none."""
    path, other = tmp_path / "runs.db", tmp_path / "other.db"
    journal = kt.SqliteJournal(path)
    assert journal.runs() == ()
    kept = kept_by(journal)
    assert journal.runs() == ()
    assert kept_by(journal) == kept
    with pytest.raises(ZeroDivisionError), journal.database.writing():
        _ = 1 / 0
    assert not kept_by(journal)
    assert journal.runs() == ()
    kt.SqliteJournal(other).close()
    journal.database.close()
    assert not kept_by(journal)
    assert journal.runs() == ()
    [before] = kept_by(journal)
    other.replace(path)
    assert journal.runs() == ()
    assert before not in kept_by(journal)
    journal.close()


def test_a_file_that_is_replaced_inside_a_block_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    path, other = tmp_path / "runs.db", tmp_path / "other.db"
    kt.SqliteJournal(other).close()
    journal = kt.SqliteJournal(path)
    with journal.database.reading():
        other.replace(path)
    [before] = kept_by(journal)
    assert journal.runs() == ()
    assert before not in kept_by(journal)
    with journal.database.reading():
        path.unlink()
    journal.close()


def test_blocks_in_many_threads_keep_two_connections(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    together = threading.Barrier(6)

    def look() -> None:
        with journal.database.reading():
            together.wait(30)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(kept_by(journal)) <= 2
    journal.close()


def test_a_run_is_left_by_two_threads_at_once(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db", sync="normal")
    sessions = [begun(journal, f"r{number}")._session for number in range(50)]
    for session in sessions:
        threads = [threading.Thread(target=partial(journal.database.shut, session, "over")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    journal.close()


async def test_a_second_journal_on_a_file_leaves_the_log_to_the_first(tmp_path: Path) -> None:
    """To close a file drops the locks of the process: another process that comes and goes then deletes the log."""
    path = tmp_path / "runs.db"
    first = kt.SqliteJournal(path, sync="normal")
    session = begun(first, "r")
    await session.written()
    kt.SqliteJournal(path).close()
    look = f"import kairo_team as kt; print(kt.SqliteJournal({str(path)!r}).runs()[0].run_id)"

    async def look_from_elsewhere() -> str:
        done = await anyio.run_process([sys.executable, "-c", look], stderr=subprocess.STDOUT, check=False)
        return done.stdout.decode().strip()

    assert await look_from_elsewhere() == "r"
    session.put("late", True)
    await session.written()
    look = f"import kairo_team as kt; print(*kt.SqliteJournal({str(path)!r}).recover('r', take_over=True)[0].steps)"
    assert await look_from_elsewhere() == "late"
    first.close()


async def test_an_interruption_that_comes_when_the_end_is_recorded_changes_nothing(tmp_path: Path) -> None:
    """Another thread interrupts the run: it saw the run live, and comes too late."""
    for journal in (kt.SqliteJournal(tmp_path / "runs.db", sync="normal"), MemoryJournal()):
        session: Any = journal.begin(request_of("r"), team_of(), {}, None)
        session.serve(lambda: (0.0, 0), lambda reason: None, lambda error: None)
        session.end(result_of("r", kt.TeamStatus.COMPLETED))
        session.interrupt("somebody pressed Ctrl-C")
        with anyio.fail_after(60), suppress(JournalError):
            await session.written()
        result = await run_in_thread(journal.result, "r")
        assert result is not None
        assert result.status == "completed"
        with pytest.raises(RunFinished):
            await run_in_thread(journal.recover, "r")
        if isinstance(journal, kt.SqliteJournal):
            assert journal.show("r").state == "completed"
            journal.close()


def test_every_run_is_told_that_nothing_can_be_written_although_the_first_leaves_at_once(tmp_path: Path) -> None:
    journal, told = kt.SqliteJournal(tmp_path / "runs.db", sync="normal"), list[str]()

    def leave(session: SqlRunJournal, run_id: str, _error: JournalError) -> None:
        told.append(run_id)
        session.leave()

    for run_id in ("first", "second", "third"):
        session = journal.begin(request_of(run_id), team_of(), {}, None)
        session.serve(lambda: (0.0, 0), lambda reason: None, partial(leave, session, run_id))
    journal.database._fail(OSError("the disk is full"))
    assert told == ["first", "second", "third"]
    journal.close()


def test_the_run_around_a_run_is_found_while_others_end_in_other_threads(tmp_path: Path) -> None:
    """A record of the inner run has the number of the outer run's last event."""
    database = kt.SqliteJournal(tmp_path / "runs.db", sync="normal").database
    others = [Writing(f"r{number}", 1) for number in range(3_000)]
    inner = Writing("inner", 1, parent="outer")
    for session in (*others, Writing("outer", 1, progress=lambda: (0.0, 7)), inner):
        database._sessions.append(session)

    def end() -> None:
        for session in others:
            database.leave(session)

    before, ending = sys.getswitchinterval(), threading.Thread(target=end)
    sys.setswitchinterval(1e-6)
    try:
        ending.start()
        while ending.is_alive():
            assert database.last_event(inner) == 7
    finally:
        sys.setswitchinterval(before)
        ending.join()
