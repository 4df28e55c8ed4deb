"""Where runs are recorded in a database, to go on after their process has died."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kairo_team._util.masking import masked
from kairo_team.budget import NO_USAGE
from kairo_team.durable import forks, recovery
from kairo_team.durable.codec import CorruptRecord, decode_loaded, encode
from kairo_team.durable.database import Writing, execute, insert
from kairo_team.durable.event_pages import read_pages
from kairo_team.durable.owners import TAKEN_OVER
from kairo_team.durable.requests import encode_request, readable
from kairo_team.durable.sql_run_journal import SqlRunJournal, asking
from kairo_team.errors import JournalError, Misuse, NoQuestion, RunExists, RunFinished, RunNotFound
from kairo_team.human import HumanDecision, HumanRequest, check_answer, check_same
from kairo_team.recorded import ENDED, RecordedRun
from kairo_team.results import TeamResult
from kairo_team.tasks import check_id

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kairo_team.budget import Budget
    from kairo_team.durable.database import Connection, Database
    from kairo_team.events import Event
    from kairo_team.recorded import Place, RecordedCall, RecoveredRun
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import Team, TeamConfig, TeamExecutionRequest


class SqlJournal(ABC):
    """Records runs in a database; the kinds of databases differ in how they connect, and in who owns a run."""

    database: Database

    def __init__(self, *, events: bool, source: Mapping[str, str] | None) -> None:
        self._keeps_events = events
        self._source = json.dumps(dict(source or {}))

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it records, in the words of errors."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, for a person who has several."""

    @property
    @abstractmethod
    def option(self) -> tuple[str, str]:
        """The option that names it for the commands of `kairo`."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left, and give up the ownership of runs; the journal may be used again."""

    @abstractmethod
    def _owned(self) -> AbstractContextManager[tuple[Connection, str]]:
        """Change the database as the owner of runs; yields the owner's id too."""

    @abstractmethod
    def _is_alive(self, connection: Connection, owner: str) -> bool:
        """Return whether the process that owns a run lives."""

    @abstractmethod
    def _has_died(self, connection: Connection, owner: str) -> bool:
        """Return whether the owner's process is certainly gone; what it records from now on is refused."""

    @abstractmethod
    def _describe_owner(self, connection: Connection, owner: str) -> str:
        """Name the process that has a run: `process 12 on host`."""

    def _delete_owners(self, connection: Connection) -> None:  # noqa: B027 - not every kind has any
        """Delete owners that no run names any more."""

    def _session(self, run_id: str, epoch: int, parent: str | None) -> Writing:
        """Return a session of a run."""
        return Writing(run_id, epoch, parent)

    def _lock_run(self, connection: Connection, run_id: str) -> None:  # noqa: B027 - not every kind needs it
        """Wait for the transactions that record something of a run, and let no other begin."""

    def _set_aside(self, connection: Connection, request: TeamExecutionRequest) -> None:  # noqa: B027 - as above
        """Set the budget of a run that begins aside in its account."""

    def _set_aside_again(self, connection: Connection, run: RecoveredRun, budget: Budget | None) -> None:  # noqa: B027
        """Set aside again what a run that goes on may spend: of its recorded budget, or of this one."""

    def _settle(self, connection: Connection, run_id: str) -> None:  # noqa: B027 - as above
        """Give back to its account what a run that ends here has not spent."""

    def _charge_fork(self, connection: Connection, run_id: str, new_id: str) -> None:  # noqa: B027 - as above
        """Charge what a fork spends to the account of the run it was made from."""

    def _delete(self, connection: Connection, run_id: str) -> None:
        """Delete a run with all that is inside it."""
        recovery.delete_run(connection, run_id)

    # ------------------------------------------------------------------ what is recorded

    def runs(self, *, state: str | None = None, team: str | None = None) -> tuple[RecordedRun, ...]:
        """Return the recorded runs, the newest first, those inside others left out; of one state or team, if given.

        A run whose records cannot be read is among them, with its `problem`.
        """
        with self.database.reading() as connection:
            sql = f"{recovery.SHORT_ROWS} WHERE parent IS NULL ORDER BY started_at DESC, run_id"
            rows = connection.execute(sql).fetchall()
            found = ((row, self._state(connection, row)) for row in rows if team in (None, row["team"]))
            chosen = [(row, now) for row, now in found if state in (None, now)]
            return tuple(self._listed(connection, row, now) for row, now in chosen)

    def _listed(self, connection: Connection, row: Any, state: str) -> RecordedRun:
        try:
            return recovery.run_of(connection, row, state, recovery.over_in(self.database, state))
        except CorruptRecord as problem:
            return recovery.unread_run(row, state, problem)

    def show(self, run_id: str) -> RecordedRun:
        """Return one recorded run; raises `RunNotFound`."""
        with self.database.reading() as connection:
            row = self._row(connection, run_id)
            state = self._state(connection, row)
            return recovery.run_of(connection, row, state, recovery.over_in(self.database, state))

    def result(self, run_id: str) -> TeamResult | None:
        """Return the result of a run that has ended or is suspended; None before.

        Raises `RunNotFound`, and `JournalError` for a value of a class whose module is not imported here.
        """
        with self.database.reading() as connection:
            row = self._row(connection, run_id, whole=True)
            written, what = row["result"], f"the result of run {run_id!r}"
            return None if written is None else self.database.look_at(written, TeamResult, what, decode_loaded)

    def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
        """Return every try of a call of a run, and of those inside it, in the order they were sent."""
        with self.database.reading() as connection:
            state = self._state(connection, self._row(connection, run_id))
            return tuple(recovery.calls_inside(connection, run_id, recovery.over_in(self.database, state)))

    def in_doubt(self, run_id: str) -> tuple[RecordedCall, ...]:
        """Return the calls that were sent in a session that has ended, and whose answer nobody saw: paid in full."""
        return tuple(one for one in self.calls(run_id) if one.state == "sent" and one.held == NO_USAGE)

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        """Return the events of a run with a number above `seq`, in order; raises `RunNotFound`.

        Those of the last second may not be there yet while the run lives.
        """
        with self.database.reading() as connection:
            self._row(connection, run_id)
            sql = "SELECT body FROM event WHERE run_id = ? AND last > ? ORDER BY last"
            pages = [row["body"] for row in connection.execute(sql, (run_id, seq))]
            return tuple(one for one in read_pages(connection, run_id, pages) if one.seq > seq)

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        """End a run for good: at once one that waits or was interrupted, at its next beat one that lives elsewhere.

        A beat is about a second. Raises `RunNotFound`, and `RunFinished` for a run that has ended.
        """
        with self.database.writing() as connection:
            row = self._row(connection, run_id)
            state = self._state(connection, row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            connection.execute("UPDATE run SET cancelled = ? WHERE run_id = ?", (masked(reason), run_id))
            if state != "running":
                for one in (run_id, *recovery.runs_inside(connection, run_id)):
                    self._lock_run(connection, one)
                    sql = "UPDATE run SET state = 'cancelled', epoch = epoch + 1, updated_at = ? WHERE run_id = ?"
                    connection.execute(sql, (time.time(), one))
                execute(connection, recovery.closing(run_id))
                self._settle(connection, run_id)

    def fork(
        self,
        run_id: str,
        *,
        before: str | int,
        new_id: str | None = None,
        plan: TaskGraph | None = None,
        config: TeamConfig | None = None,
    ) -> str:
        """Make a new run that goes on from an earlier point of a recorded one, and return its id: resume that one.

        `before` is a task's id: all that it did, and every task that depends on it, is left out, what others did stays.
        Or it is the number of an event: what was recorded after it is left out. What stays is not paid again, but the
        new run's usage has it, and its budget counts it; its seconds begin at 0. `plan` and `config` take the place of
        the run's: tasks that stay are in the plan as they were. Raises `RunNotFound`, `RunExists` for `new_id`,
        `Misuse` for a run that is running or part of another, and `ValueError` for a point that it does not have.
        """
        new_id = uuid.uuid4().hex if new_id is None else check_id(new_id)
        with self.database.writing() as connection:
            row = self._row(connection, run_id, whole=True)
            forks.check(connection, row, self._state(connection, row), new_id)
            forks.fork(connection, row, before, new_id, plan, config, self.database.decode)
            self._charge_fork(connection, run_id, new_id)
        return new_id

    def forget(self, run_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete a run with all that is inside it, or every ended run not touched for `older_than` seconds.

        Returns how many were deleted. Raises `RunNotFound`, and `Misuse` for a run that a living process has.
        """
        if (run_id is None) == (older_than is None):
            raise ValueError("forget takes a run's id, or older_than= in seconds")
        with self.database.writing() as connection:
            if run_id is not None:
                row = self._row(connection, run_id)
                if self._state(connection, row) == "running":
                    raise Misuse(f"run {run_id!r} is running: cancel it first")
                chosen = [run_id]
            else:
                sql = f"{recovery.SHORT_ROWS} WHERE parent IS NULL AND updated_at < ?"
                rows = connection.execute(sql, (time.time() - cast("float", older_than),)).fetchall()
                chosen = [row["run_id"] for row in rows if self._state(connection, row) in ENDED]
            for one in chosen:
                self._delete(connection, one)
            self._delete_owners(connection)
        return len(chosen)

    # ------------------------------------------------------------------ questions

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the open questions of a run and those inside it, or of all: the oldest first, deferred ones last."""
        with self.database.reading() as connection:
            names: set[str] = set()
            if run_id is not None:
                names = {self._row(connection, run_id)["run_id"], *recovery.runs_inside(connection, run_id)}
            order = "coalesce(answered_at, 0), asked_at, id"
            rows = connection.execute(f"SELECT id, run_id, body FROM question WHERE decision IS NULL ORDER BY {order}")
            found = [row for row in rows if not names or row["run_id"] in names]
            return tuple(self.database.look_at(row["body"], HumanRequest, f"question {row['id']!r}") for row in found)

    def answer(self, question_id: str, decision: HumanDecision, *, by: str = "") -> None:
        """Answer a question, or defer it, from any process; the same answer twice is one.

        A deferred question stays open, behind the others; a run that waits for it with a `JournalGate` waits no longer,
        and ends suspended. Raises `NoQuestion` for an id that is not open, `Misuse` for another answer than the first.
        """
        check_answer(decision)
        with self.database.writing() as connection:
            row = connection.execute("SELECT decision FROM question WHERE id = ?", (question_id,)).fetchone()
            if row is None:
                open_ids = connection.execute("SELECT id FROM question WHERE decision IS NULL")
                why = recovery.why_closed(connection, question_id)
                raise NoQuestion(question_id, [one["id"] for one in open_ids], why, place=self.place)
            given = self._decision(question_id, row["decision"])
            check_same(question_id, given, decision)
            kept = HumanDecision(decision.action, decision.feedback, by or decision.by)
            written = None if kept.action == "defer" else encode(kept)  # then who deferred it, and when, is all
            sql = "UPDATE question SET decision = ?, answered_by = ?, answered_at = ? WHERE id = ? AND decision IS NULL"
            connection.execute(sql, (written, kept.by, time.time(), question_id))

    def ask(self, question: HumanRequest) -> None:
        """Keep a question for `pending` and `answer` while its run lives; raises `RunNotFound`."""
        with self.database.writing() as connection:
            self._row(connection, question.run_id)
            execute(connection, asking(question))
            sql = "UPDATE question SET answered_by = NULL, answered_at = NULL WHERE id = ? AND decision IS NULL"
            connection.execute(sql, (question.id,))

    def answer_to(self, question: HumanRequest) -> HumanDecision | None:
        """Return the answer to exactly this question, or that it was deferred; None while there is neither."""
        with self.database.reading() as connection:
            sql = "SELECT decision, answered_by FROM question WHERE id = ? AND digest = ? AND answered_at IS NOT NULL"
            row = connection.execute(sql, (question.id, question.digest)).fetchone()
        if row is None or row["decision"] is None:
            return None if row is None else HumanDecision("defer", by=row["answered_by"])
        return self._decision(question.id, row["decision"])

    def _decision(self, question_id: str, written: str | None) -> HumanDecision | None:
        what = f"the answer to question {question_id!r}"
        return None if written is None else self.database.look_at(written, HumanDecision, what)

    # ------------------------------------------------------------------ sessions

    def begin(
        self, request: TeamExecutionRequest, team: Team, digests: Mapping[str, str], place: Place | None
    ) -> SqlRunJournal:
        """Record a new run and return its journal.

        Raises `RunExists` for an id that is recorded, `Misuse` for a request, or for values of an output type of the
        team, that cannot be written down, and `JournalError` where another process has the run around it.
        """
        written = encode_request(request, team)
        parent, step, member = (None, None, None) if place is None else (place.run_id, place.step, place.member)
        within = {"parent": parent, "parent_step": step, "parent_member": member}
        with self._owned() as (connection, owner):
            if place is not None:
                self._check_around(connection, place.run_id, owner)
            columns = {"request": written, "owner": owner, "state": "running", "epoch": 1, **within}
            self._insert_run(connection, request, team, digests, columns)
            if place is None:
                self._set_aside(connection, request)
        session = self._session(request.run_id, 1, parent)
        journal = SqlRunJournal(self.database, session, {}, keeps_events=self._keeps_events)
        journal.digests = digests
        return journal

    def _check_around(self, connection: Connection, run_id: str, owner: str) -> None:
        """Raise `JournalError` where another process has the run around one that begins."""
        if connection.execute("SELECT 1 FROM run WHERE run_id = ? AND owner <> ?", (run_id, owner)).fetchone():
            raise JournalError(self.place, TAKEN_OVER)

    def _insert_run(
        self,
        connection: Connection,
        request: TeamExecutionRequest,
        team: Team,
        digests: Mapping[str, str],
        columns: Mapping[str, object],
    ) -> None:
        """Record a new run, with these columns too; raises `RunExists` for an id that is recorded."""
        if connection.execute("SELECT 1 FROM run WHERE run_id = ?", (request.run_id,)).fetchone():
            raise RunExists(request.run_id, recorded=True)
        about = {"run_id": request.run_id, "team": readable(team.name), "goal": readable(masked(request.goal))}
        how = {"digests": json.dumps(dict(digests)), "source": self._source}
        now = time.time()
        insert(connection, "run", {**about, **how, **columns, "started_at": now, "updated_at": now})

    def digests(self, run_id: str) -> Mapping[str, str]:
        """Return digests of what a run was begun with, by name; raises `RunNotFound`."""
        with self.database.reading() as connection:
            found: dict[str, str] = json.loads(self._row(connection, run_id)["digests"])
        return found

    def recover(
        self, run_id: str, *, take_over: bool = False, budget: Budget | None = None
    ) -> tuple[RecoveredRun, ...]:
        """Take a run that nobody runs, and return all that is recorded of it, and of each run inside it.

        Raises `RunNotFound`, `RunFinished`, and `Misuse` while a living process has it, unless `take_over` is set:
        that process can record and send nothing more. `budget` is what it goes on with, None the recorded one; raises
        `InsufficientBudget`, and takes nothing, where the run's account does not have so much.
        """
        with self._owned() as (connection, owner):
            row = self._row(connection, run_id)
            state = self._state(connection, row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            if not take_over and row["state"] == "running" and not self._has_died(connection, row["owner"]):
                where = self._describe_owner(connection, row["owner"])
                raise Misuse(f"run {run_id!r} is running in {where}: cancel it there, or resume it with take_over=True")
            names = (run_id, *sorted(recovery.runs_inside(connection, run_id)))
            found = self._take_all(connection, names, owner)
            self._set_aside_again(connection, found[0], budget)
            return found

    def _take_all(self, connection: Connection, names: Sequence[str], owner: str) -> tuple[RecoveredRun, ...]:
        """Begin sessions of runs, once nobody else records anything of any of them."""
        for one in names:
            self._lock_run(connection, one)
        return tuple(self._take(connection, self._row(connection, one, whole=True), owner) for one in names)

    def _take(self, connection: Connection, row: Any, owner: str) -> RecoveredRun:
        """Begin a session of a run, and return all that is recorded of it; one inside another may have ended."""
        run_id, epoch = row["run_id"], row["epoch"] + 1
        connection.execute("UPDATE run SET owner = ?, epoch = ? WHERE run_id = ?", (owner, epoch, run_id))
        if row["state"] not in ENDED:
            connection.execute("UPDATE run SET state = 'running', usage = NULL WHERE run_id = ?", (run_id,))
        steps = recovery.steps_of(connection, run_id, self.database.decode)
        session = self._session(run_id, epoch, row["parent"])
        session.progress = lambda: (row["active"], row["seq"])
        journal = SqlRunJournal(self.database, session, steps, keeps_events=self._keeps_events)
        journal.digests = json.loads(row["digests"])
        journal.in_doubt = recovery.tools_in_doubt(connection, run_id)
        return recovery.recovered(connection, row, journal, self.database.decode)

    def _row(self, connection: Connection, run_id: str, *, whole: bool = False) -> Any:
        rows = "SELECT * FROM run" if whole else recovery.SHORT_ROWS
        row = connection.execute(f"{rows} WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            known = connection.execute("SELECT run_id FROM run WHERE parent IS NULL")
            raise RunNotFound(run_id, (one["run_id"] for one in known), place=f"{self.place}, which has")
        return row

    def _state(self, connection: Connection, row: Any) -> str:
        """Return a run's state: one that is marked as running by a process that is gone is interrupted."""
        if row["state"] != "running":
            return str(row["state"])
        if self._is_alive(connection, row["owner"]):
            return "running"
        return "interrupted" if row["cancelled"] is None else "cancelled"
