"""The base of the delivery kit's tests: a database, an observed receiver, and time to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from anyio.to_thread import run_sync

from kairo_team.cluster.delivery import Delivery, Intervals, Receiver
from kairo_team.tck.kit import ContractTCK, clause, make_it

if TYPE_CHECKING:
    import psycopg

Pair = tuple[str, int]


class Deliveries:
    """Deliveries to one receiver, each with the future that the receiver waits for."""

    def __init__(self, *, hold: bool = False) -> None:
        self.patience = DeliveryStage.patience
        self.hold = hold
        """Whether work on a delivery lasts until `finish`. False: it ends at once."""
        self.given: list[Pair] = []
        self.times: list[float] = []
        self.open: dict[Pair, list[Future[None]]] = {}
        self.most = 0
        """Most deliveries in progress at once."""
        self._change = threading.Condition()

    def take(self, unit: str, fence: int) -> Future[None]:
        future: Future[None] = Future()
        with self._change:
            self.given.append((unit, fence))
            self.times.append(time.monotonic())
            self.open.setdefault((unit, fence), []).append(future)
            self.most = max(self.most, sum(map(len, self.open.values())))
            self._change.notify_all()
        if not self.hold:
            self.finish((unit, fence))
        return future

    def finish(self, pair: Pair) -> None:
        """End the work on all deliveries of a pair."""
        for future in self._close(pair):
            future.set_result(None)

    def fail(self, pair: Pair) -> None:
        """Let the work on all deliveries of a pair fail."""
        for future in self._close(pair):
            future.set_exception(RuntimeError("the work failed"))

    def _close(self, pair: Pair) -> list[Future[None]]:
        # The futures are set without the lock, because the engine is called back from there.
        with self._change:
            return self.open.pop(pair, [])

    def finish_all(self) -> None:
        """End the work on all deliveries, also on later ones."""
        self.hold = False
        for pair in list(self.open):
            self.finish(pair)

    def wait(self, *pairs: Pair, times: int = 1) -> None:
        """Wait until each pair was delivered `times` times."""
        with self._change:
            there = self._change.wait_for(lambda: all(self.given.count(pair) >= times for pair in pairs), self.patience)
        missing = [pair for pair in pairs if self.given.count(pair) < times]
        assert there, f"{missing} was not delivered {times} times in {self.patience:g} seconds; {self.given} were"


def blocking_clause(*numbers: str) -> Callable[[Callable[[Any], None]], Any]:
    """Make a blocking method a contract test of these clauses."""

    def make(function: Callable[[Any], None]) -> Any:
        @clause(*numbers)
        @wraps(function)
        async def contract_test(self: DeliveryStage) -> None:
            await run_sync(function, self)

        return contract_test

    return make


class DeliveryStage(ContractTCK):
    """A database with an engine."""

    contract: ClassVar[type] = Delivery
    virtual_time: ClassVar[bool] = False
    backends: ClassVar[Sequence[str]] = ("asyncio",)
    beats: ClassVar[Intervals] = Intervals(poll=0.05, again=0.2, late=2.0)
    """Polling intervals for the engine of `make_delivery`, in seconds."""
    patience: ClassVar[float] = 60.0
    """Seconds after which the kit gives up waiting for something that should happen."""
    _url: ClassVar[str | None] = None

    @classmethod
    def database_url(cls) -> str:
        """Return the URL of an empty PostgreSQL database, a new one each time; the kit needs two."""
        raise make_it(cls, "database_url(cls)")

    @classmethod
    def make_delivery(cls, url: str) -> Delivery:
        """Make an engine on this database, with `cls.beats`. Other processes call this too."""
        raise make_it(cls, "make_delivery(cls, url)")

    @classmethod
    def installed(cls) -> tuple[Delivery, str]:
        """Return an engine on the kit's database, which all tests share, and the database's URL."""
        # Not inherited: each kit has a database with the tables of its own engine.
        if "_url" not in vars(cls):
            cls._url = cls.database_url()
            cls.make_delivery(cls._url).install()
        assert cls._url is not None
        return cls.make_delivery(cls._url), cls._url

    @contextmanager
    def scene(self) -> Generator[Scene]:
        """Open a connection to the kit's database, with queues that no other test uses."""
        import psycopg

        delivery, url = self.installed()
        with psycopg.connect(url) as connection:
            yield Scene(type(self), delivery, url, connection)


class Scene:
    """An engine with its own names of queues and units."""

    def __init__(self, kit: type[DeliveryStage], delivery: Delivery, url: str, connection: psycopg.Connection) -> None:
        self.kit, self.delivery, self.url, self.connection = kit, delivery, url, connection
        self._name = uuid4().hex[:8]
        self.queue = f"queue-{self._name}"
        self._receivers = 0
        self._markers = 0

    def unit(self, name: str) -> str:
        """Return the id of a unit that no other test uses."""
        return f"{name}-{self._name}"

    def send(self, unit: str, fence: int = 1, *, queue: str = "", delay: float = 0.0, priority: int = 0) -> Pair:
        """Send and commit; return the pair."""
        self.delivery.send(self.connection, queue or self.queue, unit, fence, delay=delay, priority=priority)
        self.connection.commit()
        return unit, fence

    @contextmanager
    def receiving(
        self, deliveries: Deliveries, *, queues: Sequence[str] = (), concurrency: int = 4
    ) -> Generator[Receiver]:
        """Receive in this process; finish all deliveries at the end."""
        self._receivers += 1
        deliveries.patience = self.kit.patience
        process = f"{self._name}-{self._receivers}"
        with self.delivery.receiving(process, queues or [self.queue], concurrency, deliveries.take) as receiver:
            try:
                yield receiver
            finally:
                deliveries.finish_all()

    def under_way(self, *pairs: Pair) -> set[Pair]:
        """Return the pairs that are under way."""
        found = self.delivery.under_way(self.connection, pairs)
        self.connection.commit()
        return found

    def wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so()`; fail after `patience` seconds."""
        end = time.monotonic() + self.kit.patience
        while not is_so():
            assert time.monotonic() < end, f"{what}: not in {self.kit.patience:g} seconds"
            time.sleep(0.02)

    def wait_for_ends(self, *pairs: Pair) -> None:
        """Wait until none of the pairs is under way."""
        self.wait_until(f"{pairs} end", lambda: not self.under_way(*pairs))

    def let_pass(self, deliveries: Deliveries, *, queue: str = "") -> None:
        """Wait until a wrong delivery would have come: a later message came, and some polls passed."""
        self._markers += 1
        deliveries.wait(self.send(self.unit(f"marker-{self._markers}"), queue=queue))
        self.rest()

    def rest(self) -> None:
        """Wait for some polls."""
        time.sleep(6 * self.kit.beats.poll)
