"""`Cluster`: runs attempts on workers, on any number of machines that share one PostgreSQL database."""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal

from kairo_team._util.frozen import known_arguments
from kairo_team._util.threads import run_in_thread
from kairo_team.cluster.delivery import ENGINES, Delivery, EngineName, Intervals, check_database_url
from kairo_team.cluster.mailbox import Mailbox
from kairo_team.cluster.monitor import Monitor
from kairo_team.cluster.queues import MOST_PRIORITY, RunQueue, holding, read_queues, set_queue
from kairo_team.cluster.remote_attempt import RemoteAttempt
from kairo_team.cluster.units import RUNS, Unit, queue_of
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.engine.records.digests import digests_of, has_earlier_parts, without_given
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import JournalError, KairoError, MissingExtra, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kairo_team.contracts import MemberContext
    from kairo_team.durable.accounts import AccountTerms
    from kairo_team.durable.line import Line
    from kairo_team.durable.postgres_database import PostgresConnection
    from kairo_team.results import Attempt
    from kairo_team.tasks import Assignment
    from kairo_team.team import Team, TeamExecutionRequest

_DEFAULT: Final[EngineName] = "procrastinate"
"""The engine of a database that no cluster has used: by `benchmarks.crowd` the cheaper one."""


@known_arguments
class Cluster:
    """Runs attempts on workers on other machines: `kt.Runtime(engine=kt.Cluster("postgresql://..."))`.

    Start workers with `kairo worker mymodule:team --database URL`, on any machine that can import the team. The
    database keeps all state: runs, calls, units, budgets. `engine` delivers units to workers: "procrastinate" or
    "dbos"; None: the one that the database uses already, else "procrastinate". A process sends a heartbeat every `beat`
    seconds; after three intervals without one it is declared dead, and other processes do its units again. A unit is
    given up when `max_deliveries` processes have died of it with nothing recorded in between. The number of its
    coordinator counts for an attempt, and for a run that of the process that finds the last death: give all processes
    of a database the same. The database may be unreachable for `patience` seconds. `events` keeps the events of runs in
    the database. `account` names a budget over runs of all machines, created by `kairo budget` or described by
    `kt.account`; the budget of a run is first set aside there.
    Raises `MissingExtra` without the extra `cluster`, `Misuse` for an invalid URL, and `JournalError` for a database
    that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: EngineName | None = None,
        beat: float = 2.0,
        max_deliveries: int = 5,
        patience: float = 60.0,
        events: bool = True,
        source: Mapping[str, str] | None = None,
        account: str | AccountTerms | None = None,
    ) -> None:
        check_database_url(url)
        if not 0 < beat <= patience:
            raise ValueError(f"Cluster(beat=) is above 0 and at most the patience, {patience:g} seconds, not {beat!r}")
        if max_deliveries < 1:
            raise ValueError(f"Cluster(max_deliveries=) is at least 1, not {max_deliveries!r}")
        self._url = url
        self._max_deliveries = max_deliveries
        make = partial(
            delivery_of,
            url=url,
            intervals=Intervals(poll=min(Intervals.poll, beat / 5), again=beat, late=3 * beat),
            line=self._line,
        )
        given = None if engine is None else make(engine)  # a wrong name is refused before the database is asked
        self.journal = PostgresJournal(url, events=events, source=source, beat=beat, patience=patience, account=account)
        self.engine: EngineName = engine or used_engine(self.journal) or _DEFAULT
        self.delivery: Delivery = given or make(self.engine)
        self._starting = threading.Lock()
        """Held while `_installed` or `_started` changes."""
        self._installed = False
        self._started = False

    def _line(self) -> Line:
        return self.journal.process.line

    @cached_property
    def mailbox(self) -> Mailbox:
        """The messages to this process."""
        return Mailbox(self._url, self.journal.process, self.journal.decode)

    @cached_property
    def monitor(self) -> Monitor:
        """Sends the units of dead processes again."""
        return Monitor(self.journal, self.delivery, self._max_deliveries)

    @property
    def reaper(self) -> Monitor:
        """The old name of `monitor`; it goes in 1.0."""
        warnings.warn("Cluster.reaper goes in 1.0: write monitor", DeprecationWarning, stacklevel=2)
        return self.monitor

    def start(self) -> None:
        """Start the heartbeat and the monitor of this process, once; a second call does nothing."""
        with self._starting:
            if not self._started:
                self._install()
                self._call_once_reached(self.journal.process.start)
                # Made under the lock, because runs ask for it in several threads, and `cached_property` has no lock.
                _ = self.mailbox
                self.monitor.start()
                self._started = True

    def _install(self) -> None:
        """Install the engine, once; raises `Misuse` if other processes use another engine on this database."""
        if not self._installed:
            self._call_once_reached(self._install_engine)
            self._installed = True

    def _install_engine(self) -> None:
        def choose(connection: PostgresConnection) -> EngineName:
            # The first process chooses the engine; all others read its choice.
            sql = "INSERT INTO about (name, value) VALUES ('engine', ?) ON CONFLICT (name) DO NOTHING"
            connection.execute(sql, (self.engine,))
            engine: EngineName = connection.execute("SELECT value FROM about WHERE name = 'engine'").fetchone()[0]
            return engine

        found = self.journal.change(choose)
        if found != self.engine:
            raise Misuse(f"{self.journal.place} is used with engine={found!r}: use that one, not {self.engine!r}")
        self.delivery.install()

    def _call_once_reached(self, make: Callable[[], object]) -> None:
        """Call `make` once the database can be reached; raise `JournalError` for other errors of the engine."""
        try:
            self.journal.insist(make)
        except KairoError:
            raise
        except Exception as error:  # from PostgreSQL, or from the engine's client library
            line = str(error).strip().partition("\n")[0]
            raise JournalError(self.journal.place, f"engine {self.engine!r} cannot be made ready: {line}") from error

    def close(self) -> None:
        """Stop what `start` started, and give up the ownership of runs."""
        with self._starting:
            if self._started:
                self.monitor.close()
                self.mailbox.close()
                self._started = False
        self.journal.close()

    # ------------------------------------------------------------------ work

    async def attempt(
        self, team: Team, assignment: Assignment, context: MemberContext, number: int, timeout: float | None
    ) -> Attempt:
        """Run an attempt on a worker; see `kairo_team.engine.records.journal.Engine`."""
        if not isinstance(context, WorkContext):
            raise Misuse(f"Cluster.attempt needs the context of a run's member, not {context!r:.80}")
        if not self._started:
            await run_in_thread(self.start)
        run_id = context.services.run_id
        kept: Any = context.services.kept
        digests: Mapping[str, str] = kept.digests
        if has_earlier_parts(digests):  # the resumed run was compared with this team, so these are its digests here
            digests = digests_of(team, context.services.prompts.overrides)
        unit = Unit(
            # With the epoch: a later session of the run sends the same step as another unit.
            f"{run_id}:{kept.epoch}:{context.step}",
            "attempt",
            run_id,
            queue_of(version_of(team, digests), context.member or ""),
            context.step,
            kept.epoch,
            self.journal.process.id,
        )
        return await RemoteAttempt(
            self.journal, self.delivery, self.mailbox, unit, assignment, context, timeout, self._max_deliveries
        ).make()

    def submit(
        self,
        team: Team,
        request: TeamExecutionRequest,
        templates: Mapping[str, str] | None = None,
        *,
        account: str | AccountTerms | None = None,
        priority: int = 0,
    ) -> str:
        """Record a run for any worker of the team to coordinate, and return its id at once.

        The run is charged to `account`, None: the cluster's account. While a queue of the run is paused or full, the
        run waits; of the runs that wait, one of a higher `priority` (-1000 to 1000) begins first. Workers take its
        attempts first too. Raises `RunExists` if the id is recorded, `Misuse` for a request that cannot be written, and
        `InsufficientBudget`, recording nothing, if the account has less left than the run's budget.
        """
        if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            raise ValueError(f"a priority is a number from {-MOST_PRIORITY} to {MOST_PRIORITY}, not {priority!r}")
        with self._starting:
            self._install()
        digests = digests_of(team, templates or {})
        unit = Unit(f"run:{request.run_id}", "run", request.run_id, queue_of(version_of(team, digests), RUNS))
        self.journal.enqueue(request, team, digests, holding(unit, priority, self.delivery), account)
        return request.run_id

    def set_queue(self, name: str, *, paused: bool | None = None, limit: int | Literal["none"] | None = None) -> None:
        """Pause a queue of submitted runs, end its pause, or set how many of its runs are at work at once.

        `name` is a team's name, `team:NAME`, `account:NAME` or `all`; None keeps what the queue has, and a limit of
        "none" removes the limit. Runs at work continue. Raises `Misuse` for a limit below 1, and for an account
        that does not exist.
        """
        with self.journal.database.writing() as connection:
            set_queue(connection, name, paused=paused, limit=limit)

    def queues(self) -> tuple[RunQueue, ...]:
        """Return the queues of submitted runs that have a rule or a run, by name."""
        with self.journal.database.reading() as connection:
            return tuple(read_queues(connection))

    def __repr__(self) -> str:
        return f"Cluster({self.journal!r}, engine={type(self.delivery).__name__})"


def used_engine(journal: PostgresJournal) -> EngineName | None:
    """Return the delivery engine that a database uses; None if no cluster has used it."""

    def read() -> EngineName | None:
        with journal.connecting() as connection:
            found = connection.execute("SELECT value FROM about WHERE name = 'engine'").fetchone()
        return None if found is None else found[0]

    return journal.insist(read)


def delivery_of(
    name: str, url: str, *, intervals: Intervals | None = None, line: Callable[[], Line] | None = None
) -> Delivery:
    """Return the delivery engine `name` on a database; it may use the process's own `line`.

    Raises `Misuse` for an unknown name and `MissingExtra` if the engine is not installed.
    """
    try:
        if name == "dbos":
            from kairo_team.cluster.dbos_delivery import DBOSDelivery

            return DBOSDelivery(url, intervals or Intervals())
        if name == "procrastinate":
            from kairo_team.cluster.procrastinate_delivery import ProcrastinateDelivery

            return ProcrastinateDelivery(url, intervals or Intervals(), line)
    except ImportError as error:
        raise MissingExtra(f"The delivery engine {name!r}", "cluster") from error
    raise Misuse(f"{name!r} is not a delivery engine: use one of {', '.join(map(repr, ENGINES))}")


def version_of(team: Team, digests: Mapping[str, str]) -> str:
    """Return a digest of a team's definition: workers of another version get no units of its runs."""
    written = json.dumps([team.name, sorted(without_given(team, digests).items())])
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:16]
