"""Journals in a database: record runs so that they can be resumed after their process has died."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kairo_team._util.masking import masked
from kairo_team.budget import NO_USAGE, Budget
from kairo_team.durable import accounts, forks, recovery
from kairo_team.durable.codec import CorruptRecord, decode_loaded, encode
from kairo_team.durable.connection import Connection, execute, insert, readable
from kairo_team.durable.database import Database, Writing
from kairo_team.durable.event_pages import read_rows
from kairo_team.durable.kept_files import encode_request, keep
from kairo_team.durable.owners import TAKEN_OVER
from kairo_team.durable.sql_run_journal import SqlRunJournal, asking
from kairo_team.errors import JournalError, Misuse, NoQuestion, RunExists, RunFinished, RunNotFound
from kairo_team.human import HumanDecision, HumanRequest, check_answer, check_same
from kairo_team.recorded import ENDED, Place, RecordedCall, RecordedRun, RecoveredRun
from kairo_team.results import TeamResult
from kairo_team.tasks import TaskGraph, check_id

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kairo_team.durable.accounts import Account, AccountTerms
    from kairo_team.durable.windows import Every
    from kairo_team.events import Event
    from kairo_team.team import Team, TeamConfig, TeamExecutionRequest


_UNCHANGED: Final = Budget()
_LOOK: Final = 0.2
"""Seconds between two looks for the answer to a request."""


class SqlJournal(ABC):
    """Records runs in a database. Subclasses say how to connect, and which process owns a run."""

    database: Database

    def __init__(
        self, *, events: bool, source: Mapping[str, str] | None, account: str | AccountTerms | None = None
    ) -> None:
        self.account = account
        """The account of runs that begin here; None: only their own budgets limit them."""
        self._keeps_events = events
        self._source = json.dumps(dict(source or {}))

    @property
    @abstractmethod
    def place(self) -> str:
        """The journal's name in errors."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A short name that distinguishes several journals."""

    @property
    @abstractmethod
    def option(self) -> tuple[str, str]:
        """The option of the `kairo` commands that names the journal, and its value."""

    @abstractmethod
    def close(self) -> None:
        """Write the remaining records, and give up the ownership of runs; the journal may be used again."""

    @abstractmethod
    def _owned(self) -> AbstractContextManager[tuple[Connection, str]]:
        """Change the database as the owner of runs; yields a connection and the owner's id."""

    @abstractmethod
    def _is_alive(self, connection: Connection, owner: str) -> bool:
        """Return whether the process that owns a run lives."""

    def _has_died(self, connection: Connection, owner: str) -> bool:
        """Return whether the owner's process is certainly gone; if so, it can record nothing more."""
        return not self._is_alive(connection, owner)

    def _describe_owner(self, connection: Connection, owner: str) -> str:
        """Name the process that has a run: `process 12 on host`."""
        sql = f"SELECT pid, host FROM {self.database.owners} WHERE id = ?"
        found = connection.execute(sql, (owner,)).fetchone()
        return f"process {found['pid']} on {found['host']}" if found else "another process"

    def _delete_owners(self, connection: Connection) -> None:  # noqa: B027 - not every kind has any
        """Delete owners without running runs whose process is gone."""

    def _session(self, run_id: str, epoch: int, parent: str | None) -> Writing:
        """Return a session of a run."""
        return Writing(run_id, epoch, parent)

    def _lock_run(self, connection: Connection, run_id: str) -> None:  # noqa: B027 - not every kind needs it
        """Wait for open transactions that write to a run, and block new ones."""

    def _settle_the_dead(self, connection: Connection) -> None:  # noqa: B027 - workers do it for a database of theirs
        """Settle the charged runs that were cancelled and whose process has died since."""

    def _delete(self, connection: Connection, run_id: str) -> None:
        """Delete a run and the runs inside it."""
        self._lock_run(connection, run_id)
        accounts.settle(connection, run_id)
        connection.execute("DELETE FROM charge WHERE run_id = ?", (run_id,))
        recovery.delete_run(connection, run_id)

    # ------------------------------------------------------------------ accounts

    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts with their current amounts, each before the accounts under it."""
        with self.database.reading() as connection:
            return accounts.read(connection)

    def charged(self, account: str) -> tuple[str, ...]:
        """Return the ids of the runs that have an amount set aside in an account, without the accounts under it."""
        sql = "SELECT run_id FROM charge WHERE account = ? AND epoch IS NOT NULL ORDER BY run_id"
        with self.database.reading() as connection:
            return tuple(row["run_id"] for row in connection.execute(sql, (account,)))

    def set_account(
        self,
        name: str,
        limit: Budget = _UNCHANGED,
        *,
        parent: str | None = None,
        every: Every | None = None,
        tz: str | None = None,
    ) -> Account:
        """Create an account, or change its limits, and return it; None in `limit` keeps the current limit.

        An account limits the tokens and dollars of all runs that are charged to it or to an account under it. With
        `every`, the limit is for one window: an "hour", "day", "week" or "month" by the clocks of the time zone `tz`,
        None: UTC. `parent` is the account above it. Another `every` or `tz` ends the open window, and a window with the
        whole limit begins; the parent cannot be changed. Raises `ValueError` if `limit` limits anything else than
        tokens and dollars, and for an unknown `every` or `tz`. Raises `Misuse` for a limit below the sum of the used
        and set-aside amounts, for a limit that a running run's budget does not have, for a parent that does not exist
        or differs from the first, and for `every` where the limit is for all time.
        """
        with self.database.writing() as connection:
            return accounts.change(connection, accounts.check_name(name), limit, parent, every, tz)

    def charging(self, account: str | AccountTerms | None) -> Self:
        """Return this journal for runs of another account; both are one process and are closed together."""
        other = copy(self)
        other.account = account
        return other

    # ------------------------------------------------------------------ what is recorded

    def runs(self, *, state: str | None = None, team: str | None = None) -> tuple[RecordedRun, ...]:
        """Return the recorded runs, newest first, optionally of one state or team; without runs inside other runs.

        A run whose records cannot be read is included, with its `problem`.
        """
        with self.database.reading() as connection:
            sql = f"{recovery.SHORT_ROWS} WHERE parent IS NULL ORDER BY started_at DESC, run_id"
            rows = connection.execute(sql).fetchall()
            found = ((row, self.state_of(connection, row)) for row in rows if team in (None, row["team"]))
            chosen = [(row, now) for row, now in found if state in (None, now)]
            return tuple(self.listed(connection, row, now) for row, now in chosen)

    def listed(self, connection: Connection, row: Any, state: str) -> RecordedRun:
        """Return a run by its row and state; one whose records cannot be read has its `problem`."""
        try:
            return recovery.run_of(connection, row, state, recovery.over_in(self.database, state))
        except CorruptRecord as problem:
            return recovery.unread_run(row, state, problem)

    def show(self, run_id: str) -> RecordedRun:
        """Return one recorded run; raises `RunNotFound`."""
        with self.database.reading() as connection:
            row = self._row(connection, run_id)
            state = self.state_of(connection, row)
            return recovery.run_of(connection, row, state, recovery.over_in(self.database, state))

    def result(self, run_id: str) -> TeamResult | None:
        """Return the result of a run that has ended or is suspended, else None.

        Raises `RunNotFound`, and `JournalError` if the result contains a class whose module is not imported here.
        """
        with self.database.reading() as connection:
            row = self._row(connection, run_id, whole=True)
            written, what = row["result"], f"the result of run {run_id!r}"
            return None if written is None else self.database.look_at(written, TeamResult, what, decode_loaded)

    def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
        """Return every try of every call of a run and of the runs inside it, in the order of sending."""
        with self.database.reading() as connection:
            state = self.state_of(connection, self._row(connection, run_id))
            return tuple(recovery.calls_inside(connection, run_id, recovery.over_in(self.database, state)))

    def in_doubt(self, run_id: str) -> tuple[RecordedCall, ...]:
        """Return the calls that an ended session sent and whose answer is not recorded; each is charged its hold."""
        return tuple(one for one in self.calls(run_id) if one.state == "sent" and one.held == NO_USAGE)

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        """Return the events of a run with a number above `seq`, in order.

        While the run is running, the events of the last second may be missing. Raises `RunNotFound`, and for a damaged
        page of events a `JournalError` that names its last number.
        """
        with self.database.reading() as connection:
            self._row(connection, run_id)
            sql = "SELECT last, body FROM event WHERE run_id = ? AND last > ? ORDER BY last"
            rows = connection.execute(sql, (run_id, seq)).fetchall()
            return tuple(one for one in read_rows(connection, run_id, rows) if one.seq > seq)

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        """End a run for good: at once if it waits or was interrupted, within about a second if a process has it.

        Raises `RunNotFound`, and `RunFinished` for a run that has ended.
        """
        with self.database.writing() as connection:
            row = self._row(connection, run_id)
            state = self.state_of(connection, row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            # A process that has the run finds this at its next check; a run without a process ends here.
            connection.execute("UPDATE run SET cancelled = ? WHERE run_id = ?", (masked(reason), run_id))
            if state != "running":
                for one in (run_id, *sorted(recovery.runs_inside(connection, run_id))):
                    # Without the lock, a worker could still commit a record of the old epoch.
                    self._lock_run(connection, one)
                    sql = "UPDATE run SET state = 'cancelled', epoch = epoch + 1, updated_at = ? WHERE run_id = ?"
                    connection.execute(sql, (time.time(), one))
                execute(connection, recovery.closing(run_id))
                accounts.settle(connection, run_id)

    def cancel_task(
        self, run_id: str, task_id: str, reason: str = "the task was cancelled", *, patience: float = 30.0
    ) -> None:
        """End one task of a run that another process, or another thread, has at work; see `Run.cancel_task`.

        Waits at most `patience` seconds for the run's answer. Raises `RunNotFound`, `RunFinished`, and `Misuse` if the
        run refuses, does not answer, or waits without a process.
        """
        self._request(run_id, patience, "cancel_task", task_id, masked(reason))

    def top_up(self, run_id: str, budget: Budget, *, by: str = "", patience: float = 30.0) -> None:
        """Raise the limits of a run that another process, or another thread, has at work; see `Run.top_up`.

        Waits and raises as `cancel_task` does.
        """
        self._request(run_id, patience, "top_up_run", budget, by)

    def steer(
        self, run_id: str, directive: str, task_id: str | None = None, *, by: str = "", patience: float = 30.0
    ) -> None:
        """Give a directive to a run that another process, or another thread, has at work; see `Run.steer`.

        Waits and raises as `cancel_task` does.
        """
        self._request(run_id, patience, "steer", directive, task_id, by)

    def _request(self, run_id: str, patience: float, name: str, *arguments: Any) -> None:
        """Have a run call one of its methods in its process, and wait for the answer.

        Raises `RunNotFound`, `RunFinished`, and `Misuse` if the run refuses, is not at work, or gives no answer within
        `patience` seconds.
        """
        request_id, body = uuid.uuid4().hex, encode((name, *arguments))
        self.put_request(request_id, run_id, body)
        end, state, answer = time.monotonic() + patience, "running", None
        try:
            while answer is None and state == "running" and time.monotonic() < end:
                time.sleep(_LOOK)
                state, answer = self.request_answer(request_id, run_id)
        except BaseException:  # also Ctrl-C: a request without a reader is not left behind
            with suppress(JournalError):
                self.withdraw_request(request_id)
            raise
        taken, last = self.withdraw_request(request_id)
        answer = last if answer is None else answer
        if answer is None:
            why = f"it is {state}" if state != "running" else f"its process did not answer within {patience:g} s"
            raise Misuse(
                f"run {run_id!r}: {why}, and " + ("may have done what was asked" if taken else "nothing was changed")
            )
        if answer:
            raise Misuse(answer)

    def put_request(self, request_id: str, run_id: str, body: str) -> None:
        """Record a request to the session that has a run; raises `RunFinished` or `Misuse` if none has it."""
        with self.database.writing() as connection:
            row = self._row(connection, run_id)
            state = self.state_of(connection, row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            if state != "running":
                first = "wait until it begins" if state == "queued" else "resume it first"
                raise Misuse(f"run {run_id!r} is {state}, and no process has it: {first}")
            # The epoch is the session's: a session that begins later does not take the request.
            sql = (
                "INSERT INTO request (id, run_id, epoch, body, asked_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO NOTHING"
            )
            connection.execute(sql, (request_id, run_id, row["epoch"], body, time.time()))

    def request_answer(self, request_id: str, run_id: str) -> tuple[str, str | None]:
        """Return the state of the run, and the answer to a request, if it has one."""
        with self.database.reading() as connection:
            row = connection.execute("SELECT answer FROM request WHERE id = ?", (request_id,)).fetchone()
            return self.state_of(connection, self._row(connection, run_id)), row and row["answer"]

    def withdraw_request(self, request_id: str) -> tuple[bool, str | None]:
        """Delete a request; return whether the run's process had taken it, and its answer."""
        with self.database.writing() as connection:
            sql = f"SELECT taken, answer FROM request WHERE id = ?{connection.for_update}"
            row = connection.execute(sql, (request_id,)).fetchone()
            connection.execute("DELETE FROM request WHERE id = ?", (request_id,))
            return (False, None) if row is None else (bool(row["taken"]), row["answer"])

    def fork(
        self,
        run_id: str,
        *,
        before: str | int,
        new_id: str | None = None,
        plan: TaskGraph | None = None,
        config: TeamConfig | None = None,
    ) -> str:
        """Create a new run from an earlier point of a recorded one; return its id, to resume it.

        `before` is a task's id or an event's number. A task's id leaves out everything that the task did, and every
        task that depends on it; the work of other tasks stays. An event's number leaves out all records after the
        event. The work that stays is not paid again, but counts in the new run's usage and budget; its seconds begin at
        0. `plan` and `config` replace the run's; the plan must contain the tasks that stay, unchanged. Raises
        `RunNotFound`, `RunExists` if `new_id` is recorded, `Misuse` for a run that is running or inside another run,
        and `ValueError` if the run has no such point.
        """
        new_id = uuid.uuid4().hex if new_id is None else check_id(new_id)
        with self.database.writing() as connection:
            row = self._row(connection, run_id, whole=True)
            forks.check(connection, row, self.state_of(connection, row), new_id)
            forks.fork(connection, row, before, new_id, plan, config, self.database.decode)
            accounts.copy(connection, run_id, new_id)
        return new_id

    def forget(self, run_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete a run and the runs inside it, or every ended run that has not changed for `older_than` seconds.

        Returns the number of deleted runs. Raises `RunNotFound`, and `Misuse` for a run that a living process has.
        """
        if (run_id is None) == (older_than is None):
            raise ValueError("forget takes a run's id, or older_than= in seconds")
        with self.database.writing() as connection:
            if run_id is not None:
                row = self._row(connection, run_id)
                if self.state_of(connection, row) == "running":
                    raise Misuse(f"run {run_id!r} is running: cancel it first")
                chosen = [run_id]
            else:
                sql = f"{recovery.SHORT_ROWS} WHERE parent IS NULL AND updated_at < ?"
                rows = connection.execute(sql, (time.time() - cast("float", older_than),)).fetchall()
                chosen = [row["run_id"] for row in rows if self.state_of(connection, row) in ENDED]
            for one in chosen:
                self._delete(connection, one)
            self._delete_owners(connection)
        if chosen:
            self.database.shrink()
        return len(chosen)

    # ------------------------------------------------------------------ questions

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the open questions of a run and the runs inside it, or of all runs: oldest first, deferred ones last.

        Raises `RunNotFound`.
        """
        with self.database.reading() as connection:
            names: set[str] = set()
            if run_id is not None:
                names = {self._row(connection, run_id)["run_id"], *recovery.runs_inside(connection, run_id)}
            # A question without a decision has `answered_at` only if it was deferred.
            order = "coalesce(answered_at, 0), asked_at, id"
            rows = connection.execute(f"SELECT id, run_id, body FROM question WHERE decision IS NULL ORDER BY {order}")
            found = [row for row in rows if not names or row["run_id"] in names]
            return tuple(self.database.look_at(row["body"], HumanRequest, f"question {row['id']!r}") for row in found)

    def answer(self, question_id: str, decision: HumanDecision, *, by: str = "") -> None:
        """Answer a question, or defer it, from any process; repeating the same answer has no effect.

        A deferred question stays open, after the others; a run that waits for it with a `JournalGate` stops waiting and
        ends suspended. `by` names the person who answers. Raises `NoQuestion` if no open question has this id, and
        `Misuse` if the answer differs from the first one.
        """
        check_answer(question_id, decision)
        with self.database.writing() as connection:
            row = connection.execute("SELECT decision FROM question WHERE id = ?", (question_id,)).fetchone()
            if row is None:
                open_ids = connection.execute("SELECT id FROM question WHERE decision IS NULL")
                why = recovery.why_closed(connection, question_id)
                raise NoQuestion(question_id, [one["id"] for one in open_ids], why, place=self.place)
            given = self._decision(question_id, row["decision"])
            check_same(question_id, given, decision)
            kept = HumanDecision(decision.action, decision.feedback, by or decision.by)
            written = None if kept.action == "defer" else encode(kept)  # a deferral keeps only who and when
            sql = "UPDATE question SET decision = ?, answered_by = ?, answered_at = ? WHERE id = ? AND decision IS NULL"
            connection.execute(sql, (written, kept.by, time.time(), question_id))

    def ask(self, question: HumanRequest) -> None:
        """Keep a question for `pending` and `answer` while its run lives; raises `RunNotFound`."""
        with self.database.writing() as connection:
            self._row(connection, question.run_id)
            execute(connection, asking(question))
            # Asked again, it is not deferred any more.
            sql = "UPDATE question SET answered_by = NULL, answered_at = NULL WHERE id = ? AND decision IS NULL"
            connection.execute(sql, (question.id,))

    def answer_to(self, question: HumanRequest) -> HumanDecision | None:
        """Return the answer to exactly this question, or the decision that deferred it; None while there is neither."""
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

        Raises `RunExists` if the id is recorded, `Misuse` if the request or a value of one of the team's output types
        cannot be written, and `JournalError` if another process has the run around this one.
        """
        written, files = encode_request(request, team)
        parent, step, member = (None, None, None) if place is None else (place.run_id, place.step, place.member)
        within = {"parent": parent, "parent_step": step, "parent_member": member}
        with self._owned() as (connection, owner):
            if place is not None:
                self._check_around(connection, place.run_id, owner)
            columns = {"request": written, "owner": owner, "state": "running", "epoch": 1, **within}
            self._insert_run(connection, request, team, digests, columns)
            keep(request.run_id, files, connection)
            if place is None and self.account is not None:
                self._settle_the_dead(connection)
                accounts.begin(connection, request, self.account, 1)
        session = self._session(request.run_id, 1, parent)
        journal = SqlRunJournal(self.database, session, {}, keeps_events=self._keeps_events)
        journal.digests = digests
        return journal

    def _check_around(self, connection: Connection, run_id: str, owner: str) -> None:
        """Raise `JournalError` if another process has `run_id`, the run around a new one."""
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
        """Record a new run, with additional `columns`; raises `RunExists` if its id is recorded."""
        if connection.execute("SELECT 1 FROM run WHERE run_id = ?", (request.run_id,)).fetchone():
            raise RunExists(request.run_id, recorded=True)
        about = {"run_id": request.run_id, "team": readable(team.name), "goal": readable(masked(request.goal))}
        how = {"digests": json.dumps(dict(digests)), "source": self._source}
        now = time.time()
        insert(connection, "run", {**about, **how, **columns, "started_at": now, "updated_at": now})

    def digests(self, run_id: str) -> Mapping[str, str]:
        """Return the digests of a run's inputs, by name; raises `RunNotFound`."""
        with self.database.reading() as connection:
            found: dict[str, str] = json.loads(self._row(connection, run_id)["digests"])
        return found

    def recover(
        self, run_id: str, *, take_over: bool = False, budget: Budget | None = None
    ) -> tuple[RecoveredRun, ...]:
        """Claim a run that no living process has; return its records and the records of each run inside it.

        `take_over` claims it from a living process too, which can then record and send nothing more. `budget` is the
        budget of the resumed run, None its recorded one. Raises `RunNotFound`, `RunFinished`, `Misuse` while a living
        process has the run and `take_over` is not set, and `InsufficientBudget`, claiming nothing, if the run's account
        has less left.
        """
        with self._owned() as (connection, owner):
            row = self._row(connection, run_id)
            state = self.state_of(connection, row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            if not take_over and row["state"] == "running" and not self._has_died(connection, row["owner"]):
                where = self._describe_owner(connection, row["owner"])
                raise Misuse(f"run {run_id!r} is running in {where}: cancel it there, or resume it with take_over=True")
            # Sorted, because `_take_all` locks them in this order.
            names = (run_id, *sorted(recovery.runs_inside(connection, run_id)))
            found = self._take_all(connection, names, owner)
            # First, because what the dead have set aside may be just what this run needs.
            self._settle_the_dead(connection)
            accounts.go_on(connection, found[0], budget)
            return found

    def _take_all(self, connection: Connection, names: Sequence[str], owner: str) -> tuple[RecoveredRun, ...]:
        """Lock all these runs, then begin a session of each."""
        for one in names:
            self._lock_run(connection, one)
        return tuple(self._take(connection, self._row(connection, one, whole=True), owner) for one in names)

    def _take(self, connection: Connection, row: Any, owner: str) -> RecoveredRun:
        """Begin a session of a run, and return the run's records; a run inside another may have ended already."""
        run_id, epoch = row["run_id"], row["epoch"] + 1
        connection.execute("UPDATE run SET owner = ?, epoch = ? WHERE run_id = ?", (owner, epoch, run_id))
        if row["state"] not in ENDED:
            # Without a recorded usage, `usage_of` counts all calls, also the ones to come.
            connection.execute("UPDATE run SET state = 'running', usage = NULL WHERE run_id = ?", (run_id,))
        steps = recovery.steps_of(connection, run_id, self.database.decode)
        session = self._session(run_id, epoch, row["parent"])
        # Until the run serves the session, its writes keep the recorded progress.
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

    def state_of(self, connection: Connection, row: Any) -> str:
        """Return a run's state; a running run whose process is gone is interrupted, or cancelled if marked so."""
        if row["state"] != "running":
            return str(row["state"])
        if self._is_alive(connection, row["owner"]):
            return "running"
        return "interrupted" if row["cancelled"] is None else "cancelled"
