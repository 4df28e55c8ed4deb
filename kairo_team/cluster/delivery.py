"""The contract of a delivery engine: deliver `(unit, fence)` to a process that serves the unit's queue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from kairo_team._util.database_url import split_schema
from kairo_team.errors import Misuse

if TYPE_CHECKING:
    import psycopg

EngineName = Literal["dbos", "procrastinate"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
"""The names of the delivery engines."""
Take = Callable[[str, int], Future[None]]
"""Begins the work on a unit with a fence, in any thread; the future is done when that work has ended."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """The intervals of a delivery engine, in seconds."""

    poll: float = 0.2
    """Seconds between two searches for waiting deliveries, if the engine gets no notification of new ones."""
    again: float = 1.0
    """Seconds until a delivery whose work failed is delivered again."""
    late: float = 3.0
    """Seconds without a heartbeat after which a process is considered dead, if the engine uses heartbeats.

    An engine that gets notifications also looks for deliveries after so many seconds without one.
    """

    def __post_init__(self) -> None:
        for name in ("poll", "again", "late"):
            value = getattr(self, name)
            if not 0 < value <= 3600:  # noqa: PLR2004 - an hour
                raise ValueError(f"{name} is {value!r}: it must be above 0 and at most 3600 seconds")


@runtime_checkable
class Receiver(Protocol):
    """Receives deliveries for a process, inside the context of `Delivery.receiving`."""

    def stop(self) -> None:
        """Take no new deliveries; finish the current ones. Returns at once; may be called twice, from any thread."""
        ...


@runtime_checkable
class Delivery(Protocol):
    """Delivers units on one PostgreSQL database, each at least once, to processes that may die.

    A delivery *waits* from its commit until a receiver takes it, and is *under way* until it is acknowledged. The order
    of deliveries of one priority is not guaranteed, and a delivery may come more than once: a receiver claims a unit by
    its fence. Contract 1.16, experimental.

    C1. `install` creates the engine's tables and functions in the database. It may be called again, and by any number
        of processes at once, but not inside a transaction, because it may wait for open transactions. `send` and
        `receiving` need it.
    C2. `send` is part of the caller's transaction: nothing is delivered before the commit, and nothing after a
        rollback. `send` neither commits nor rolls back.
    C3. A committed delivery is delivered at least once while a receiver of its queue lives, even if it was sent before
        any receiver existed. `delay` holds it back for that many seconds.
    C4. The unit and the fence are delivered as they were sent, for any characters in the unit and fences below 2**31.
        The same pair may be sent again, even after its delivery: then it is delivered again.
    C5. A receiver gets the deliveries of its queues, and no others.
    C6. A delivery is acknowledged when its future is done, not before. After that it is not delivered again.
    C7. A delivery whose future failed, or whose `take` raised, is delivered again to any receiver of its queue, at
        least `Intervals.again` seconds later.
    C8. A receiver has at most `concurrency` deliveries under way at once, over all its queues, and uses them all if
        enough deliveries wait.
    C9. Receivers of one queue, in several processes, share its deliveries: no two have the same one at once. A full
        receiver does not hold back deliveries that another receiver could begin.
    C10. After `stop` a receiver takes no new deliveries; it finishes and acknowledges the ones that it had taken.
        Leaving the context stops the receiver, waits for its deliveries, and ends its threads; deliveries that it had
        not taken wait for other receivers.
    C11. A process that dies loses the deliveries that it had taken; the caller must send them again, with the next
        fence. The lost deliveries use up no other receiver's concurrency, and block no waiting delivery.
    C12. `under_way` returns the given pairs that wait, or that a living process works on. It leaves out the pairs of a
        process that has been dead or stopped for a few seconds more than `Intervals.late`.
    C13. A receiver resumes by itself after the database has closed its connections or was unreachable.
    C14. `forget` removes, in the caller's transaction, the given units' deliveries that wait or that dead processes
        had. Deliveries that a living receiver works on continue. Acknowledged deliveries are deleted soon.
    C15. The database's URL is a secret: it appears in no `repr`, no error and no log record.
    C16. Deliveries with a higher `priority` are taken first among the ones that wait in a queue and whose delay is
        over. A delivery that is delivered again keeps its priority.

    The methods may be called from any thread.
    """

    def install(self) -> None:
        """Create the engine's tables and functions in the database; does nothing if they exist."""
        ...

    def send(
        self,
        connection: psycopg.Connection,
        queue: str,
        unit: str,
        fence: int,
        *,
        delay: float = 0.0,
        priority: int = 0,
    ) -> None:
        """Send a unit with its fence to a queue, inside the connection's transaction; `delay` in seconds.

        `priority` is from -1000 to 1000.
        """
        ...

    def receiving(
        self, process: str, queues: Sequence[str], concurrency: int, take: Take
    ) -> AbstractContextManager[Receiver]:
        """Receive the deliveries of these queues while the context is open, in threads of the engine.

        `process` is the id of the process, unique on the database. `take` is called for each delivery and must not
        block. Raises `Misuse` if the engine cannot receive twice in one process.
        """
        ...

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the pairs `(unit, fence)` in `sent` with a delivery that waits or that a living process works on."""
        ...

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        """Remove the deliveries of these units that wait or that dead processes had."""
        ...


def queue_key(queue: str) -> str:
    """Return a queue's name in an engine: the name itself, or a digest if it is long or has special characters."""
    # Engines use these names for channels, whose names have at most 63 bytes, and reserve some names.
    if re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,38}", queue, re.ASCII):
        return queue
    return "sha256:" + hashlib.sha256(queue.encode()).hexdigest()[:32]


def check_database_url(url: str) -> None:
    """Raise `Misuse` unless `url` is the URL of a PostgreSQL database; the message does not show it."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if url.startswith(("postgresql://", "postgres://")):
        try:
            plain, _ = split_schema(url)
        except ValueError as error:
            raise Misuse(str(error)) from None
        with suppress(ProgrammingError):
            conninfo_to_dict(plain)
            return
    # The URL contains a password: do not show it.
    raise Misuse("The database URL is not understood: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
