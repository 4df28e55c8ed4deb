"""`Cluster`: runs whose attempts are made by workers on any number of machines, over one PostgreSQL database."""

from __future__ import annotations

import hashlib
import json
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_arguments
from kairo_team._util.threads import run_in_thread
from kairo_team.cluster.deaths import TABLE
from kairo_team.cluster.delivery import Beats, check_database_url, delivery_of
from kairo_team.cluster.mailbox import Mailbox
from kairo_team.cluster.reaper import Reaper
from kairo_team.cluster.remote_attempt import RemoteAttempt
from kairo_team.cluster.units import Unit
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.engine.records.digests import digests_of, without_given
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import JournalError, KairoError, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kairo_team.cluster.delivery import Delivery, EngineName
    from kairo_team.contracts import MemberContext
    from kairo_team.results import Attempt
    from kairo_team.tasks import Assignment
    from kairo_team.team import Team, TeamExecutionRequest

RUNS: Final = "@runs"
"""In the place of a member: units that are whole runs."""


@known_arguments
class Cluster:
    """Has attempts made by workers on other machines: `kt.Runtime(engine=kt.Cluster("postgresql://..."))`.

    Workers are started with `kairo worker mymodule:team --database URL`, on any machine that can import the team. The
    database holds the truth: runs, calls, units, budgets. `engine` delivers units to workers: "dbos" or
    "procrastinate". A process shows every `beat` seconds that it lives; one that is three beats late is taken for dead,
    and what it had is done anew elsewhere. What `max_deliveries` processes died of, with nothing recorded in between,
    is given up. The database may be away for `patience` seconds. `events` are kept in the database too. What its runs
    may spend is set aside in `account` first, a budget over runs of all machines, which `kairo budget` makes. Raises
    `MissingExtra` without the extra `cluster`, `Misuse` for a URL that is none, and `JournalError` for a database that
    cannot be used.
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
        account: str | None = None,
    ) -> None:
        check_database_url(url)
        if not 0 < beat <= patience:
            raise ValueError(f"Cluster(beat=) is above 0 seconds and at most the patience, {patience:g}, not {beat!r}")
        if max_deliveries < 1:
            raise ValueError(f"Cluster(max_deliveries=) is at least 1, not {max_deliveries!r}")
        self._url = url
        self.beat = beat
        self.max_deliveries = max_deliveries
        self.patience = patience
        self.engine: EngineName = engine
        self.delivery: Delivery = delivery_of(
            engine, url, beats=Beats(poll=min(Beats.poll, beat / 5), again=beat, late=3 * beat)
        )
        self.journal = PostgresJournal(url, events=events, source=source, beat=beat, patience=patience, account=account)
        self._starting = threading.Lock()
        """Held while what follows changes."""
        self._installed = False
        self._started = False

    @cached_property
    def mailbox(self) -> Mailbox:
        """The letters to this process."""
        return Mailbox(self._url, self.journal.process.id, self.beat)

    @cached_property
    def reaper(self) -> Reaper:
        """Looks after what dead processes had."""
        return Reaper(self)

    def start(self) -> None:
        """Begin to beat, to read letters and to look after others; does nothing when that was done before."""
        with self._starting:
            if not self._started:
                self._install()
                self._insist(self.journal.process.start)
                self.reaper.start()
                self._started = True

    def _install(self) -> None:
        """Make what the engine needs, the first time; `Misuse` where the database's other processes use another one."""
        if not self._installed:
            self._insist(self._install_engine)
            self._installed = True

    def _install_engine(self) -> None:
        with self.journal.database.writing() as connection:
            connection.execute(TABLE)
            sql = "INSERT INTO about (name, value) VALUES ('engine', ?) ON CONFLICT (name) DO NOTHING"
            connection.execute(sql, (self.engine,))
            found = connection.execute("SELECT value FROM about WHERE name = 'engine'").fetchone()[0]
        if found != self.engine:
            raise Misuse(f"{self.journal.place} is used with engine={found!r}: use that one, not {self.engine!r}")
        self.delivery.install()

    def _insist(self, make: Callable[[], object]) -> None:
        """Make something of the engine or of this process ready, once the database can be reached."""
        try:
            self.journal.insist(make)
        except KairoError:
            raise
        except Exception as error:  # of PostgreSQL, or of what the engine reaches it with
            line = str(error).strip().partition("\n")[0]
            raise JournalError(self.journal.place, f"engine {self.engine!r} cannot be made ready: {line}") from error

    def close(self) -> None:
        """End what was started, and give up the ownership of runs."""
        with self._starting:
            if self._started:
                self.reaper.close()
                self.mailbox.close()
                self._started = False
        self.journal.close()

    # ------------------------------------------------------------------ work

    async def attempt(
        self, team: Team, assignment: Assignment, context: MemberContext, number: int, timeout: float | None
    ) -> Attempt:
        """Have a worker make an attempt; see `contracts.Engine`."""
        if not isinstance(context, WorkContext):
            raise Misuse(f"attempts of runs are made with the context of a run, not with {context!r:.80}")
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
        return await RemoteAttempt(self, unit, assignment, context, timeout).make()

    def submit(
        self,
        team: Team,
        request: TeamExecutionRequest,
        templates: Mapping[str, str] | None = None,
        *,
        account: str | None = None,
    ) -> str:
        """Record a run that any worker of the team coordinates, and return its id at once.

        It is charged to `account`, None to that of the cluster. Raises `RunExists` for an id that is recorded, `Misuse`
        for a request that cannot be written down, and `InsufficientBudget` where the account does not have the run's
        budget: then nothing is recorded.
        """
        with self._starting:
            self._install()
        digests = digests_of(team, templates or {})
        unit = Unit(f"run:{request.run_id}", "run", request.run_id, queue_of(version_of(team, digests), RUNS))
        self.journal.enqueue(request, team, digests, unit.sending(self.delivery, None), account)
        return request.run_id

    def __repr__(self) -> str:
        return f"Cluster({self.journal!r}, engine={type(self.delivery).__name__})"


def version_of(team: Team, digests: Mapping[str, str]) -> str:
    """Name what a team is: workers of another version get nothing of its runs."""
    written = json.dumps([team.name, sorted(without_given(team, digests).items())])
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def queue_of(version: str, member: str) -> str:
    """Return the queue of the units for a member, or of runs."""
    return f"{version}:{member}"
