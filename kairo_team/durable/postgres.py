"""`PostgresJournal`: records runs in a PostgreSQL database, which any number of machines may use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from kairo_team._util.database_url import lock_in, shown_url, split_schema
from kairo_team._util.frozen import known_arguments
from kairo_team._util.version import version_of_library
from kairo_team.budget import Usage
from kairo_team.durable import accounts, recovery
from kairo_team.durable.codec import outline
from kairo_team.durable.connection import NOW, Connection, Statement, execute
from kairo_team.durable.database import Writing
from kairo_team.durable.event_pages import written_page
from kairo_team.durable.kept_files import encode_request, keep
from kairo_team.durable.postgres_database import PostgresConnection, PostgresDatabase
from kairo_team.durable.processes import Process, check_not_dead, has_died, is_alive
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.durable.sql_run_journal import SqlRunJournal
from kairo_team.engine.records.recovery import RunAccount
from kairo_team.errors import JournalError
from kairo_team.events import TeamGivenUp
from kairo_team.recorded import GIVEN_UP

if TYPE_CHECKING:
    from kairo_team.durable.accounts import AccountTerms
    from kairo_team.recorded import RecordedCall, RecoveredRun
    from kairo_team.team import Team, TeamExecutionRequest

Kind = TypeVar("Kind")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class AttemptRecords:
    """The records of an attempt, and the journal of the delivery that makes it."""

    journal: SqlRunJournal
    steps: Mapping[str, object]
    calls: Sequence[RecordedCall]
    inside: Sequence[RecoveredRun]
    """The runs inside the attempt, at any depth."""
    inside_journal: PostgresJournal
    """The journal of runs that begin inside the attempt, under its fence."""


def _repeated(*names: str) -> Callable[[type[Kind]], type[Kind]]:
    """Repeat these methods of a journal when their connection breaks."""

    def repeated(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, /, *args: Any, **given: Any) -> Any:
            return self.database.repeat(partial(method, self, *args, **given))

        return call

    def decorate(kind: type[Kind]) -> type[Kind]:
        for name in names:
            setattr(kind, name, repeated(getattr(kind, name)))
        return kind

    return decorate


@_repeated(
    "runs", "show", "result", "calls", "in_doubt", "events_after", "cancel", "fork", "forget", "pending", "answer"
)
@_repeated("ask", "answer_to", "begin", "digests", "recover", "open_attempt", "charges", "calls_in_doubt", "enqueue")
@_repeated("accounts", "charged", "set_account", "put_request", "request_answer", "withdraw_request")
@known_arguments
class PostgresJournal(SqlJournal):
    """Records runs in a PostgreSQL database: `Runtime(journal=PostgresJournal("postgresql://..."))`.

    Gives the guarantees of `SqliteJournal` to processes on any number of machines. A process sends a heartbeat every
    `beat` seconds. The database may be unreachable for `patience` seconds. `events` keeps the events of runs. `source`
    is stored with every run that begins here. The budget of such a run is first set aside in `account`, which
    `set_account` has created, or which `kt.account` describes. The URL is a secret: no error and no log shows it.
    Raises `MissingExtra` without the extra `cluster`, and `JournalError` for a database that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        events: bool = True,
        source: Mapping[str, str] | None = None,
        beat: float = 2.0,
        patience: float = 60.0,
        account: str | AccountTerms | None = None,
    ) -> None:
        super().__init__(events=events, source=source, account=account)
        self.beat = beat
        """Seconds between two heartbeats."""
        self.patience = patience
        """Seconds for which the database may be unreachable."""
        self._url = url
        self._unit: tuple[str, int] | None = None
        self._process: Process | None = None
        self._making = threading.Lock()
        self._base = self.database = PostgresDatabase(url, version_of_library(), patience)

    @property
    def process(self) -> Process:
        """This process, one of the processes that share the database."""
        with self._making:
            if self._process is None:
                self._process = Process(self._url, self.beat)
                self._base.writer = self._process.id
                self._process.on_dead(lambda: self.database.lose("this process was declared dead"))
            return self._process

    @property
    def place(self) -> str:
        """The journal's name in errors."""
        return str(self.database.place)

    @property
    def connection_errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that mean that the database is unreachable, or has closed a connection."""
        return self._base.connection_errors

    @property
    def name(self) -> str:
        """The database, without its user and password."""
        return self.place

    @property
    def option(self) -> tuple[str, str]:
        """The option of the `kairo` commands that names the database, and its URL without the password."""
        return "--database", shown_url(self._url)

    def close(self) -> None:
        """Write the remaining records, and give up the ownership of runs; the journal may be used again."""
        self.database.close()
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def lock(self, number: int) -> int:
        """Return the number of an advisory lock that the journals of this database and schema share."""
        return lock_in(split_schema(self._url)[1], number)

    def connecting(self, *, own: str | None = None) -> AbstractContextManager[PostgresConnection]:
        """Connect for a block, as soon as the database can be reached.

        A block that takes locks needs its own connection: `own` names its purpose.
        """
        return self._base.connecting(own=own)

    def close_unused(self, seconds: float) -> None:
        """Close the kept connections that nothing has used for so long."""
        self._base.close_unused(seconds)

    def decode(self, text: str) -> Any:
        """Return a recorded value, importing nothing."""
        return self.database.decode(text)

    # ------------------------------------------------------------------ ownership

    @contextmanager
    def _owned(self) -> Generator[tuple[Connection, str]]:
        process = self._living()
        with self.database.writing() as connection:
            check_not_dead(connection, process.id, self.place)
            sql = (
                "SELECT 1 FROM unit JOIN run USING (run_id, epoch) WHERE unit.id = ? AND unit.fence = ?"
                " AND unit.state = 'taken' FOR SHARE OF unit FOR KEY SHARE OF run"
            )
            if self._unit is not None and connection.execute(sql, self._unit).fetchone() is None:
                raise JournalError(self.place, "another process has the unit now")
            yield connection, process.id

    def _check_around(self, connection: Connection, run_id: str, owner: str) -> None:
        if self._unit is None:  # else the coordinator owns the run around it, and `_owned` compares its session
            super()._check_around(connection, run_id, owner)

    def _living(self) -> Process:
        """Return this process with its heartbeat started; raises `JournalError` once it was declared dead."""
        process = self.process
        if process.dead:
            raise JournalError(self.place, "this process was declared dead")
        self._base.insist(process.start)
        return process

    def _is_alive(self, connection: Connection, owner: str) -> bool:
        return is_alive(connection, owner)

    def _has_died(self, connection: Connection, owner: str) -> bool:
        return has_died(connection, owner, self.beat)

    def _lock_run(self, connection: Connection, run_id: str) -> None:
        connection.execute("SELECT FROM run WHERE run_id = ? FOR UPDATE", (run_id,))

    def _session(self, run_id: str, epoch: int, parent: str | None) -> Writing:
        return Writing(run_id, epoch, parent, unit=self._unit)

    def charging(self, account: str | AccountTerms | None) -> PostgresJournal:
        """Return this journal for runs of another account; both are one process and are closed together."""
        # Made before the copy, so that the copy has it too.
        _ = self.process
        return super().charging(account)

    # ------------------------------------------------------------------ units

    def under(self, unit: str, fence: int) -> PostgresJournal:
        """Return the journal of runs inside a unit; they record nothing once the unit's delivery is fenced off."""
        other = copy(self)
        other._process, other._unit = self.process, (unit, fence)
        return other

    def open_attempt(self, run_id: str, step: str, epoch: int, unit: str, fence: int) -> AttemptRecords:
        """Open the journal of one delivery of an attempt, with the records of earlier deliveries.

        Raises `JournalError` if the delivery is fenced off.
        """
        inside_journal = self.under(unit, fence)
        owner = self._living().id
        with self._base.changing() as connection:
            # The process that coordinates the run records its progress.
            session = Writing(run_id, epoch, unit=(unit, fence), has_progress=False)
            row = self._base.epoch_row(connection, session)
            if row is None or row[0] != epoch:
                raise JournalError(self.place, "another process has the unit now")
            run = connection.execute("SELECT active, seq FROM run WHERE run_id = ?", (run_id,)).fetchone()
            steps = recovery.steps_of(connection, run_id, self.decode, of=step)
            calls = recovery.calls_of(connection, run_id, step)
            names = recovery.runs_inside_step(connection, run_id, step)
            inside = inside_journal._take_all(connection, names, owner)
            session.progress = lambda: (run["active"], run["seq"])
            journal = SqlRunJournal(self.database, session, steps, keeps_events=False)
            journal.in_doubt = frozenset(one.key for one in calls if one.what == "tool" and one.state == "sent")
        return AttemptRecords(journal, dict(steps), calls, inside, inside_journal)

    def charges(self, run_id: str, step: str) -> Usage:
        """Return the charges of a step: for the calls of all its deliveries, and for the runs inside it.

        The result includes the other usage of an attempt before it waited for a person.
        """
        with self.database.reading() as connection:
            begun = recovery.steps_of(connection, run_id, outline, prefix=step)
            calls = recovery.calls_of(connection, run_id, step)
            inside = connection.execute("SELECT * FROM run WHERE parent = ? AND parent_step = ?", (run_id, step))
            spent = [
                (recovery.place_of_row(row), recovery.usage_of(connection, row["run_id"])) for row in inside.fetchall()
            ]
        total = RunAccount({step: begun.get(step)}, calls, spent).total
        return replace(total, seconds=0.0)

    def calls_in_doubt(self, run_id: str, step: str) -> tuple[RecordedCall, ...]:
        """Return the calls of a step and of the runs inside it whose answer is not recorded."""
        with self.database.reading() as connection:
            names = recovery.runs_inside_step(connection, run_id, step)
            calls = [*recovery.calls_of(connection, run_id, step)]
            calls += [call for name in names for call in recovery.calls_of(connection, name)]
        return tuple(call for call in calls if call.state == "sent")

    def enqueue(
        self,
        request: TeamExecutionRequest,
        team: Team,
        digests: Mapping[str, str],
        also: Sequence[Statement],
        account: str | AccountTerms | None = None,
    ) -> None:
        """Record a queued run and its delivery in one transaction.

        `also` are the statements that send it. Sets the run's budget aside in `account`, None: the journal's account.
        """
        written, files = encode_request(request, team)
        with self.database.writing() as connection:
            columns = {"request": written, "owner": "", "state": "queued", "epoch": 0}
            self._insert_run(connection, request, team, digests, columns)
            keep(request.run_id, files, connection)
            if (charged := account or self.account) is not None:
                accounts.begin(connection, request, charged, 0)
            for statement in also:
                execute(connection, statement)

    def end_unit(self, unit: str, fence: int, problem: str | None) -> None:
        """Record that a unit is done, or the problem that prevents it, unless its delivery is fenced off."""
        sql = f"UPDATE unit SET state = 'done', problem = ?, ended_at = {NOW} WHERE id = ? AND fence = ?"
        values = (problem, unit, fence)
        self._base.change(lambda connection: connection.execute(sql, values))

    def give_up(self, connection: Connection, run_id: str, deaths: int, problem: str) -> None:
        """Record, in the connection's transaction, that workers take a run no more; its sessions write nothing more."""
        row = connection.execute("SELECT seq FROM run WHERE run_id = ? FOR UPDATE", (run_id,)).fetchone()
        if row is None:
            return
        # Sorted as in `recover`: two transactions that lock the same rows do it in the same order.
        for one in sorted(recovery.runs_inside(connection, run_id)):
            connection.execute("UPDATE run SET epoch = epoch + 1 WHERE run_id = ?", (one,))
        now = datetime.now(UTC)
        # True counts as 1, for the event below.
        seq = row["seq"] + self._keeps_events
        sql = "UPDATE run SET state = ?, epoch = epoch + 1, seq = ?, updated_at = ? WHERE run_id = ?"
        connection.execute(sql, (GIVEN_UP, seq, now.timestamp(), run_id))
        if self._keeps_events:
            page = written_page([TeamGivenUp(run_id, seq, now, deaths, problem)], {})
            connection.execute("INSERT INTO event (run_id, last, body) VALUES (?, ?, ?)", (run_id, seq, page))

    def change(self, function: Callable[[PostgresConnection], Found]) -> Found:
        """Call a function in a transaction of its own; repeat it when the connection breaks, so make it idempotent."""
        return self._base.change(function)

    def insist(self, function: Callable[[], Found]) -> Found:
        """Call a function that connects by itself; repeat it when a connection breaks, for `patience` seconds."""
        return self._base.insist(function)

    @property
    def problem(self) -> str | None:
        """Why this process can write nothing more; None while writing works."""
        return self._base.problem

    def __repr__(self) -> str:
        return f"PostgresJournal({self.place})"
