"""`Cluster`: runs attempts on workers, on any number of machines that share one PostgreSQL database."""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_arguments
from kairo_team._util.threads import run_in_thread
from kairo_team.cluster.delivery import ENGINES, Delivery, EngineName, Intervals, check_database_url
from kairo_team.cluster.mailbox import Mailbox
from kairo_team.cluster.monitor import Monitor
from kairo_team.cluster.remote_attempt import RemoteAttempt
from kairo_team.cluster.units import Unit
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.engine.records.digests import digests_of, without_given
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import JournalError, KairoError, MissingExtra, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kairo_team.contracts import MemberContext
    from kairo_team.durable.accounts import AccountTerms
    from kairo_team.results import Attempt
    from kairo_team.tasks import Assignment
    from kairo_team.team import Team, TeamExecutionRequest

RUNS: Final = "@runs"
"""Used instead of a member's id in the queue of units that are whole runs."""


@known_arguments
class Cluster:
    """Runs attempts on workers on other machines: `kt.Runtime(engine=kt.Cluster("postgresql://..."))`.

    Start workers with `kairo worker mymodule:team --database URL`, on any machine that can import the team. The
    database keeps all state: runs, calls, units, budgets. `engine` delivers units to workers: "dbos" or
    "procrastinate". A process sends a heartbeat every `beat` seconds; after three intervals without one it is declared
    dead, and other processes do its units again. A unit is given up when `max_deliveries` processes have died of it
    with nothing recorded in between. The number of its coordinator counts for an attempt, and for a run that of the
    process that finds the last death: give all processes of a database the same. The database may be unreachable for
    `patience` seconds. `events` keeps the events of runs in the database. `account` names a budget over runs of all
    machines, created by `kairo budget` or described by `kt.account`; the budget of a run is first set aside there.
    Raises `MissingExtra` without the extra `cluster`, `Misuse` for an invalid URL, and `JournalError` for a database
    that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: EngineName = "dbos",
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
        self.engine: EngineName = engine
        self.delivery: Delivery = delivery_of(
            engine, url, intervals=Intervals(poll=min(Intervals.poll, beat / 5), again=beat, late=3 * beat)
        )
        self.journal = PostgresJournal(url, events=events, source=source, beat=beat, patience=patience, account=account)
        self._starting = threading.Lock()
        """Held while `_installed` or `_started` changes."""
        self._installed = False
        self._started = False

    @cached_property
    def mailbox(self) -> Mailbox:
        """The messages to this process."""
        return Mailbox(self._url, self.journal.process.id, self.journal.beat, self.journal.decode)

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
                self._insist(self.journal.process.start)
                self.monitor.start()
                self._started = True

    def _install(self) -> None:
        """Install the engine, once; raises `Misuse` if other processes use another engine on this database."""
        if not self._installed:
            self._insist(self._install_engine)
            self._installed = True

    def _install_engine(self) -> None:
        with self.journal.database.writing() as connection:
            sql = "INSERT INTO about (name, value) VALUES ('engine', ?) ON CONFLICT (name) DO NOTHING"
            connection.execute(sql, (self.engine,))
            found = connection.execute("SELECT value FROM about WHERE name = 'engine'").fetchone()[0]
        if found != self.engine:
            raise Misuse(f"{self.journal.place} is used with engine={found!r}: use that one, not {self.engine!r}")
        self.delivery.install()

    def _insist(self, make: Callable[[], object]) -> None:
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
        unit = Unit(
            f"{run_id}:{kept.epoch}:{context.step}",
            "attempt",
            run_id,
            queue_of(version_of(team, kept.digests), context.member or ""),
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
    ) -> str:
        """Record a run for any worker of the team to coordinate, and return its id at once.

        The run is charged to `account`, None: the cluster's account. Raises `RunExists` if the id is recorded, `Misuse`
        for a request that cannot be written, and `InsufficientBudget`, recording nothing, if the account has less left
        than the run's budget.
        """
        with self._starting:
            self._install()
        digests = digests_of(team, templates or {})
        unit = Unit(f"run:{request.run_id}", "run", request.run_id, queue_of(version_of(team, digests), RUNS))
        self.journal.enqueue(request, team, digests, unit.sending(self.delivery, None), account)
        return request.run_id

    def __repr__(self) -> str:
        return f"Cluster({self.journal!r}, engine={type(self.delivery).__name__})"


def delivery_of(name: str, url: str, *, intervals: Intervals | None = None) -> Delivery:
    """Return the delivery engine `name` on a database.

    Raises `Misuse` for an unknown name and `MissingExtra` if the engine is not installed.
    """
    try:
        if name == "dbos":
            from kairo_team.cluster.dbos_delivery import DBOSDelivery

            return DBOSDelivery(url, intervals or Intervals())
        if name == "procrastinate":
            from kairo_team.cluster.procrastinate_delivery import ProcrastinateDelivery

            return ProcrastinateDelivery(url, intervals or Intervals())
    except ImportError as error:
        raise MissingExtra(f"The delivery engine {name!r}", "cluster") from error
    raise Misuse(f"{name!r} is not a delivery engine: use one of {', '.join(map(repr, ENGINES))}")


def version_of(team: Team, digests: Mapping[str, str]) -> str:
    """Return a digest of a team's definition: workers of another version get no units of its runs."""
    written = json.dumps([team.name, sorted(without_given(team, digests).items())])
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def queue_of(version: str, member: str) -> str:
    """Return the queue of a member's units; with `RUNS`, the queue of whole runs."""
    return f"{version}:{member}"
