"""Wrong journals, each rejected by the kit at one clause: programs that are killed, texts, lists, forgetting, forks."""

from __future__ import annotations

import json
import tempfile
import time
import unicodedata
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar, cast

import anyio.lowlevel

import kairo_team as kt
from kairo_team.durable import decode, encode
from kairo_team.durable.connection import execute
from kairo_team.durable.database import Writing
from kairo_team.durable.journal import SqliteFile
from kairo_team.durable.recovery import runs_inside
from kairo_team.errors import Misuse
from kairo_team.events import AttemptProgress, Event
from kairo_team.recorded import RecordedCall, RecordedRun
from kairo_team.tck import JournalTCK
from tests.cluster.server import die
from tests.mutants.kit_journals import Right, RightKit, Session
from tests.mutants.kit_mutant import registry, registry_of

_OF_FILES, in_files = registry()
_IN_MEMORY, in_memory = registry_of(RightKit)


class FileKit(JournalTCK):
    """The kit of a right journal in a file; the kits of mutants have another `Kind`. Another program imports them."""

    Kind: ClassVar[type[kt.SqliteJournal]] = kt.SqliteJournal
    patience = 1.0

    @classmethod
    def make_journal(cls) -> Any:
        return cls.open_at(str(Path(tempfile.mkdtemp(prefix="kairo-journal-")) / "runs.db"))

    @classmethod
    def make_another(cls, journal: Any) -> Any:
        return cls.open_at(str(journal.path))

    @classmethod
    def place_of(cls, journal: Any) -> str:
        return str(journal.path)

    @classmethod
    def open_at(cls, place: str) -> Any:
        return cls.Kind(place, sync="normal")

    @classmethod
    def crash(cls, journal: Any) -> None:
        die(journal)

    @classmethod
    def fail(cls, journal: Any) -> None:
        journal.database.problem = "database or disk is full"

    @classmethod
    def close(cls, journal: Any) -> None:
        journal.close()
        rmtree(journal.path.parent, ignore_errors=True)


class _OwnFile(kt.SqliteJournal):
    """A journal whose writer is of another class."""

    File: ClassVar[type[SqliteFile]] = SqliteFile

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._file = self.database = self.File(path, "normal", "0")


# ---------------------------------------------------------------- programs that are killed


@in_files(clause="C2", by="killed")
class AcknowledgesBeforeItIsStored(FileKit):
    """Who waits for a record is told that it is safe as soon as it is in a queue."""

    class Kind(_OwnFile):
        class File(SqliteFile):
            async def written(self, session: Writing) -> None:
                await anyio.lowlevel.checkpoint()
                self.check(session)

            def _write(self, connection: Any, entries: Any) -> None:
                time.sleep(0.02)  # a slow disk
                super()._write(connection, entries)


@in_files(clause="C4", by="killed")
class WritesARecordInPieces(FileKit):
    """Each statement is a transaction: a program may be killed between an answer and the end of its call."""

    class Kind(_OwnFile):
        class File(SqliteFile):
            def _write_all(self, connection: Any, entries: Any, reached: Any) -> None:
                for entry in entries:
                    for statement in entry.statements:
                        execute(connection, statement)
                        connection.execute("COMMIT")
                        time.sleep(0.02)  # a slow disk
                        connection.execute("BEGIN IMMEDIATE")
                super()._write_all(connection, [], reached)


@in_files(clause="C19", by="killed")
class WritesEventsAfterwards(FileKit):
    """Events are written once their record is: a program may be killed in between."""

    class Kind(_OwnFile):
        class File(SqliteFile):
            def _write_progress(self, connection: Any, session: Writing, progress: tuple[float, int]) -> None:
                connection.execute("COMMIT")
                time.sleep(0.02)  # a slow disk
                connection.execute("BEGIN IMMEDIATE")
                super()._write_progress(connection, session, progress)


@in_files(clause="C7", by="killed")
class KeepsTheLockOfTheKilled(FileKit):
    """Who had a run is asked by the age of a file: a killed program has its runs for an hour."""

    class Kind(kt.SqliteJournal):
        def _is_alive(self, connection: Any, owner: str) -> bool:
            found = connection.execute("SELECT started_at FROM owner WHERE id = ?", (owner,)).fetchone()
            return found is not None and time.time() - found[0] < 3600


# ---------------------------------------------------------------- texts


@in_memory(clause="C10")
class NormalisesTexts(Right):
    """One spelling of a letter is as good as another, it thinks."""

    class Session(Session):
        def put(self, key: str, value: object, /) -> None:
            if isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value)):
                value = [unicodedata.normalize("NFC", one) for one in cast("list[str]", value)]
            super().put(key, value)


@in_memory(clause="C10")
class CutsLongValues(Right):
    """A field of the store has 64 kB."""

    class Session(Session):
        def put(self, key: str, value: object, /) -> None:
            super().put(key, value[:65_536] if isinstance(value, str) else value)


@in_memory(clause="C10")
class CutsLongKeys(Right):
    """A key of the store has 511 bytes."""

    class Session(Session):
        def put(self, key: str, value: object, /) -> None:
            super().put(key[:511], value)


@in_memory(clause="C10")
class EndsKeysAtNul(Right):
    """A text ends at its first NUL, as in C."""

    class Session(Session):
        def put(self, key: str, value: object, /) -> None:
            super().put(key.partition("\0")[0], value)


@in_memory(clause="C19")
class CutsLongEvents(Right):
    """An event has 64 kB."""

    class Session(Session):
        def _reach(self, run: Any, seconds: float, seq: int) -> None:
            super()._reach(run, seconds, seq)
            run.events[:] = [_cut(one) for one in run.events]


def _cut(event: Event) -> Event:
    return replace(event, text=event.text[:65_536]) if isinstance(event, AttemptProgress) else event


@in_memory(clause="C19")
class OrdersEventsByTheClock(Right):
    """Events are found by the time at which they were emitted."""

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        return tuple(sorted(super().events_after(run_id, seq), key=lambda event: event.at))


@in_memory(clause="C19")
class LosesTheLastEvents(Right):
    """What was emitted since the last record is dropped when the run ends."""

    class Session(Session):
        def end(self, result: kt.TeamResult) -> None:
            if not self.interrupted:
                self._events.clear()
            super().end(result)


@in_memory(clause="C19")
class SharesOneQueue(Right):
    """All runs of a process have one queue of events: whichever writes next takes them."""

    class Session(Session):
        queues: ClassVar[dict[int, deque[Event]]] = {}

        def __init__(self, journal: Any, *more: Any) -> None:
            super().__init__(journal, *more)
            self._events = self.queues.setdefault(id(journal), deque())


@in_memory(clause="C19")
class RemembersWhatItRead(Right):
    """It reads a run's events once."""

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        read: dict[Any, Any] = vars(self).setdefault("read", {})
        return cast("tuple[Event, ...]", read.setdefault((run_id, seq), super().events_after(run_id, seq)))


@in_memory(clause="C16")
class RemembersThatThereIsNoResult(Right):
    """It looks once for the result of a run."""

    def result(self, run_id: str) -> kt.TeamResult | None:
        read: dict[Any, Any] = vars(self).setdefault("read", {})
        return cast("kt.TeamResult | None", read.setdefault(run_id, super().result(run_id)))


@in_memory(clause="C12")
class TakesABeginningForTheRun(Right):
    """Runs whose ids begin with a run's id are inside it, it thinks."""

    def recover(self, run_id: str, *, take_over: bool = False) -> Any:
        found = super().recover(run_id, take_over=take_over)
        others = [one for one in self.storage.runs if one.startswith(f"{run_id}.") and one != run_id]
        return (*found, *(self._take(one) for one in others if self.storage.runs[one].place is None))


# ---------------------------------------------------------------- lists


@in_files(clause="C20")
class ListsRunsInside(FileKit):
    """Runs inside others are in the list."""

    class Kind(kt.SqliteJournal):
        def runs(self, **chosen: Any) -> tuple[RecordedRun, ...]:
            with self.database.reading() as connection:
                rows = connection.execute("SELECT run_id FROM run ORDER BY started_at DESC").fetchall()
            return tuple(self.show(row[0]) for row in rows)


@in_files(clause="C20")
class ListsTheOldestFirst(FileKit):
    """The oldest run is the first of the list."""

    class Kind(kt.SqliteJournal):
        def runs(self, **chosen: Any) -> tuple[RecordedRun, ...]:
            return tuple(reversed(super().runs(**chosen)))


@in_files(clause="C20")
class RemembersTheList(FileKit):
    """It reads the list of runs once."""

    class Kind(kt.SqliteJournal):
        def runs(self, **chosen: Any) -> tuple[RecordedRun, ...]:
            read: dict[Any, Any] = vars(self).setdefault("read", {})
            return cast("tuple[RecordedRun, ...]", read.setdefault(json.dumps(chosen), super().runs(**chosen)))


@in_files(clause="C20")
class ShowsTheDeadAsRunning(FileKit):
    """A run is in the state that was written last."""

    class Kind(kt.SqliteJournal):
        def show(self, run_id: str) -> RecordedRun:
            shown = super().show(run_id)
            return shown._replace(state="running") if shown.state == "interrupted" else shown


@in_files(clause="C21")
class ListsCallsRunByRun(FileKit):
    """The calls of runs inside come after all of the run's own."""

    class Kind(kt.SqliteJournal):
        def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
            return tuple(sorted(super().calls(run_id), key=lambda call: call.run_id))


@in_files(clause="C21")
class ListsNoCallsOfRunsInside(FileKit):
    """Calls of runs inside are not in the list."""

    class Kind(kt.SqliteJournal):
        def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
            return tuple(call for call in super().calls(run_id) if call.run_id == run_id)


@in_files(clause="C21")
class ChargesNothingInTheList(FileKit):
    """A call without an end is free, in the list alone."""

    class Kind(kt.SqliteJournal):
        def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
            free = kt.Usage()
            return tuple(replace(one, usage=free) if one.state == "sent" else one for one in super().calls(run_id))


# ---------------------------------------------------------------- forgetting


class _Forgets(kt.SqliteJournal):
    """Forgets the rows of some tables."""

    tables: ClassVar[tuple[str, ...]] = ("run", "step", "call", "question", "event")
    inside: ClassVar[bool] = True

    def _delete(self, connection: Any, run_id: str) -> None:
        for one in (run_id, *(runs_inside(connection, run_id) if self.inside else ())):
            for table in self.tables:
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (one,))  # noqa: S608 - a constant


@in_files(clause="C22")
class LeavesTheSteps(FileKit):
    """The steps of a forgotten run wait for the next one of its id."""

    class Kind(_Forgets):
        tables = ("run", "call", "question", "event")


@in_files(clause="C22")
class LeavesTheQuestions(FileKit):
    """The questions of a forgotten run still wait."""

    class Kind(_Forgets):
        tables = ("run", "step", "call", "event")


@in_files(clause="C22")
class LeavesTheEvents(FileKit):
    """The events of a forgotten run are told of the next one of its id."""

    class Kind(_Forgets):
        tables = ("run", "step", "call", "question")


@in_files(clause="C22")
class LeavesRunsInside(FileKit):
    """The runs inside a forgotten run are there, inside nothing."""

    class Kind(_Forgets):
        inside = False


@in_files(clause="C22")
class ForgetsABeginning(FileKit):
    """With a run it forgets those whose ids begin with its id."""

    class Kind(kt.SqliteJournal):
        def _delete(self, connection: Any, run_id: str) -> None:
            for row in connection.execute("SELECT run_id FROM run WHERE run_id LIKE ?", (f"{run_id}%",)).fetchall():
                super()._delete(connection, row[0])


@in_files(clause="C22")
class ForgetsTheLiving(FileKit):
    """A run of a living process is forgotten under its hands."""

    class Kind(kt.SqliteJournal):
        def forget(self, run_id: str | None = None, *, older_than: float | None = None) -> int:
            with suppress(Misuse):
                return super().forget(run_id, older_than=older_than)
            with self.database.writing() as connection:
                self._delete(connection, str(run_id))
            return 1


# ---------------------------------------------------------------- forks


class _Forks(kt.SqliteJournal):
    """Forks, and then does one more thing."""

    def fork(self, run_id: str, **given: Any) -> str:
        made = super().fork(run_id, **given)
        with self.database.writing() as connection:
            self.after(connection, run_id, made)
        return made

    def after(self, connection: Any, run_id: str, made: str) -> None:
        """Go wrong."""


@in_files(clause="C23")
class ForksWithTheSameId(FileKit):
    """The id of a fork is made from the run's, and another fork has it too."""

    class Kind(kt.SqliteJournal):
        def fork(self, run_id: str, *, new_id: str | None = None, **given: Any) -> str:
            return super().fork(run_id, new_id=new_id or f"{run_id}-fork", **given)


@in_files(clause="C23")
class MovesTheCalls(FileKit):
    """A fork takes the run's calls with it."""

    class Kind(_Forks):
        def after(self, connection: Any, run_id: str, made: str) -> None:
            connection.execute("DELETE FROM call WHERE run_id = ?", (run_id,))


@in_files(clause="C23")
class KeepsTheIdOfTheFirst(FileKit):
    """The request of a fork has the run's id: a resumed fork goes on with the run."""

    class Kind(_Forks):
        def after(self, connection: Any, run_id: str, made: str) -> None:
            (text,) = connection.execute("SELECT request FROM run WHERE run_id = ?", (made,)).fetchone()
            request = replace(cast("kt.TeamExecutionRequest", decode(text)), run_id=run_id)
            connection.execute("UPDATE run SET request = ? WHERE run_id = ?", (encode(request), made))


@in_files(clause="C23")
class ForksAllOfIt(FileKit):
    """A fork has what came after its event, too."""

    class Kind(kt.SqliteJournal):
        def fork(self, run_id: str, *, before: Any, **given: Any) -> str:
            return super().fork(run_id, before=self.show_last(run_id) if before < 10 else before, **given)

        def show_last(self, run_id: str) -> int:
            return len(self.events_after(run_id))


MUTANTS = [*_OF_FILES, *_IN_MEMORY]
