"""What a delivery engine is asked: to give `(unit, fence)` to some process that serves its queue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from kairo_team.errors import MissingExtra, Misuse

if TYPE_CHECKING:
    import psycopg

EngineName = Literal["dbos", "procrastinate"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
"""The engines that `delivery_of` knows."""
Take = Callable[[str, int], Future[None]]
"""Begins the work on a unit with a fence, in any thread; its future is done when that work has ended."""


@dataclass(frozen=True, kw_only=True)
class Beats:
    """How often an engine looks and waits, in seconds."""

    poll: float = 0.2
    """Between two looks for what waits, where nothing tells that something was sent."""
    again: float = 1.0
    """Until a delivery whose work failed is given again."""
    late: float = 3.0
    """After which a process that shows no life is taken for dead, where the engine asks for signs of life."""

    def __post_init__(self) -> None:
        for name in ("poll", "again", "late"):
            value = getattr(self, name)
            if not 0 < value <= 3600:  # noqa: PLR2004 - an hour
                raise ValueError(f"{name} is {value!r}: it must be above 0 and at most 3600 seconds")


@runtime_checkable
class Receiver(Protocol):
    """What a process receives with, while it is in the context of `Delivery.receiving`."""

    def stop(self) -> None:
        """Take no new deliveries; those that were taken go on. Returns at once, from any thread; twice is as once."""
        ...


@runtime_checkable
class Delivery(Protocol):
    """Delivers units on one PostgreSQL database, each at least once, to processes that may die.

    A delivery *waits* from its commit until a receiver takes it, and is *under way* until it is acknowledged. Nothing
    is promised of the order, nor that a delivery comes only once: a receiver claims a unit by its fence.

    C1. `install` makes what the engine needs in the database. It may be called again, and by any number of processes
        at once, outside of transactions: it may wait for those that are open. `send` and `receiving` need it.
    C2. `send` is part of the caller's transaction: what was rolled back is never delivered, and nothing is delivered
        before the commit. It neither commits nor rolls back.
    C3. What was sent and committed is delivered at least once while a receiver of its queue lives, also what was sent
        before any receiver was there. `delay` holds it back for that many seconds.
    C4. The unit and the fence are delivered as they were sent, whatever characters the unit has; fences below 2**31.
        The same pair may be sent again, also when it was delivered before: it is delivered again.
    C5. A receiver gets what was sent to its queues, and nothing else.
    C6. A delivery is acknowledged when its future is done, not before. Once acknowledged it is not given again.
    C7. A delivery whose future failed, or whose `take` raised, is given again, `Beats.again` seconds later or more, to
        any receiver of its queue.
    C8. At most `concurrency` deliveries of a receiver are under way at once, over all its queues, and that many are.
    C9. Receivers of one queue, in several processes, share what is sent: none gets what another has. A full receiver
        does not keep from another what it cannot begin.
    C10. After `stop` a receiver takes nothing new. What it had taken goes on and is acknowledged. Leaving the context
        stops it, waits for that, and ends its threads; what it had not taken waits for others.
    C11. A process that dies loses what it had taken: to send that again, with the next fence, is the business of the
        caller. It occupies nobody's concurrency, and keeps nobody from what waits.
    C12. `under_way` returns those of the pairs that wait or are being worked on by a living process. A dead one's are
        not among them, `Beats.late` seconds and a little after its death.
    C13. A receiver goes on by itself when the database has cut its connections, or was away.
    C14. `forget` removes, in the caller's transaction, the deliveries of units that wait, and those that dead processes
        had. What a living receiver works on goes on. Of acknowledged deliveries nothing is kept for long.
    C15. The database's URL is a secret: it is in no `repr`, no error and no record of a log.

    The methods are called from any thread.
    """

    def install(self) -> None:
        """Make what the engine needs in the database; does nothing where it is there."""
        ...

    def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, *, delay: float = 0.0) -> None:
        """Send a unit with its fence to a queue, inside the connection's transaction; `delay` in seconds."""
        ...

    def receiving(
        self, process: str, queues: Sequence[str], concurrency: int, take: Take
    ) -> AbstractContextManager[Receiver]:
        """Receive what is sent to these queues while the context is open, in threads of its own.

        `process` is the id of the process, of its own on the database. `take` is called for each delivery and must not
        wait. Raises `Misuse` where the engine cannot receive twice in one process.
        """
        ...

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return those of the pairs `(unit, fence)` of which a delivery waits, or is worked on by a living process."""
        ...

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        """Remove the deliveries of these units that wait, and those that dead processes had."""
        ...


def queue_key(queue: str) -> str:
    """Return the name a queue has in an engine: its own, or a digest of one that is long or has other characters.

    Engines make channels of these names, which have 63 bytes, and keep some names to themselves.
    """
    if re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,38}", queue, re.ASCII):
        return queue
    return "sha256:" + hashlib.sha256(queue.encode()).hexdigest()[:32]


def check_database_url(url: str) -> None:
    """Raise `Misuse` for what is no URL of a PostgreSQL database. The message does not show it: it has a password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if url.startswith(("postgresql://", "postgres://")):
        with suppress(ProgrammingError):
            conninfo_to_dict(url)
            return
    raise Misuse("The database URL is not understood: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE")


def delivery_of(name: str, url: str, *, beats: Beats | None = None) -> Delivery:
    """Return the delivery engine of that name on a database.

    Raises `Misuse` for an unknown name and `MissingExtra` where the engine is not installed.
    """
    try:
        if name == "dbos":
            from kairo_team.cluster.dbos_delivery import DBOSDelivery

            return DBOSDelivery(url, beats or Beats())
        if name == "procrastinate":
            from kairo_team.cluster.procrastinate_delivery import ProcrastinateDelivery

            return ProcrastinateDelivery(url, beats or Beats())
    except ImportError as error:
        raise MissingExtra(f"The delivery engine {name!r}", "cluster") from error
    raise Misuse(f"{name!r} is no delivery engine: use one of {', '.join(map(repr, ENGINES))}")
