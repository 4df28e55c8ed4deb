"""Wrong delivery engines, each rejected by the kit at one clause."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import psycopg

from kairo_team.cluster.delivery import Delivery, Take
from kairo_team.tck import DeliveryTCK
from tests.cluster.plain_delivery import PlainDelivery, PlainReceiver, Row
from tests.cluster.server import server
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()
Pair = tuple[str, int]


class WithReceiver(PlainDelivery):
    """A right engine whose receiver may be a wrong one."""

    Receiver: ClassVar[type[PlainReceiver]] = PlainReceiver

    def make_receiver(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> PlainReceiver:
        return self.Receiver(self, process, queues, concurrency, take)


class RightDelivery(DeliveryTCK):
    """The kit of the right engine; the mutants change one thing of it."""

    patience = 5.0  # where a mutant makes a clause wait, it waits in vain
    Engine: ClassVar[type[PlainDelivery]] = WithReceiver

    @classmethod
    def database_url(cls) -> str:
        return server().new_database()

    @classmethod
    def make_delivery(cls, url: str) -> Delivery:
        return cls.Engine(url, cls.beats)


class Impatient(RightDelivery):
    """Of those that never do what they should."""

    patience = 3.0


@mutant(clause="C1")
class InstallsAnew(RightDelivery):
    """To install it again empties it."""

    class Engine(WithReceiver):
        def install(self) -> None:
            with self.connect() as connection:
                connection.execute("DROP TABLE IF EXISTS delivery")
            super().install()


@mutant(clause="C2")
class IgnoresRollback(RightDelivery):
    """It sends over a connection of its own."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            connection.execute("SELECT 1")
            with self.connect() as mine:
                super().send(mine, queue, unit, fence, **given)


@mutant(clause="C2")
class CommitsForTheCaller(RightDelivery):
    """It commits what it sends."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            super().send(connection, queue, unit, fence, **given)
            connection.commit()


@mutant(clause="C3", by="_c03_all_")
class LosesOne(Impatient):
    """Of a burst the last one is lost."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                rows = super().fetch(connection, room)
                for row in rows[3:]:
                    connection.execute("DELETE FROM delivery WHERE id = %s", row[:1])
                return rows[:3]


@mutant(clause="C3", by="_c03_all_")
class ForgetsWhatCameBefore(Impatient):
    """A receiver delivers what is sent while it receives."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def live(self, connection: psycopg.Connection) -> None:
                connection.execute("DELETE FROM delivery WHERE queue = ANY(%s) AND receiver IS NULL", (self.queues,))
                super().live(connection)


@mutant(clause="C3", by="_c03_a_delay_")
class KnowsNoDelay(RightDelivery):
    """It delivers at once."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            super().send(connection, queue, unit, fence)


@mutant(clause="C4")
class CountsDeliveries(Impatient):
    """The fence is the number of the row."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def begin(self, row: Row) -> Future[None]:
                return super().begin((row[0], row[1], row[2], row[0]))


@mutant(clause="C4", by="_c04_unit_")
class CutsLongUnits(Impatient):
    """A unit has 63 characters."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            super().send(connection, queue, unit[:63], fence, **given)


@mutant(clause="C4", by="_c04_the_same_")
class SendsAPairOnce(Impatient):
    """It knows what it has delivered."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            seen: ClassVar[set[Pair]] = set()

            def begin(self, row: Row) -> Future[None]:
                if row[2:] not in self.seen:
                    self.seen.add(row[2:])
                    return super().begin(row)
                again = Future[None]()
                again.set_result(None)
                return again


@mutant(clause="C5")
class MixesQueues(RightDelivery):
    """It takes from all queues."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                found = connection.execute("SELECT DISTINCT queue FROM delivery").fetchall()
                self.queues = [queue for (queue,) in found]
                return super().fetch(connection, room)


@mutant(clause="C5")
class CutsNamesOfQueues(RightDelivery):
    """A queue is known by its first 63 characters."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            super().send(connection, queue[:63], unit, fence, **given)

        def make_receiver(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> PlainReceiver:
            return super().make_receiver(process, [queue[:63] for queue in queues], concurrency, take)


@mutant(clause="C6")
class AcknowledgesEarly(RightDelivery):
    """A delivery that was taken is done."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def begin(self, row: Row) -> Future[None]:
                super().begin(row)
                done = Future[None]()
                done.set_result(None)
                return done


@mutant(clause="C6")
class DeliversThreeTimes(RightDelivery):
    """To be sure."""

    class Engine(WithReceiver):
        def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, **given: Any) -> None:
            for _ in range(3):
                super().send(connection, queue, unit, fence, **given)


@mutant(clause="C7")
class GivesUpAfterAFailure(Impatient):
    """What failed is over."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def end(self, connection: psycopg.Connection, row: Row, *, well: bool) -> None:
                super().end(connection, row, well=True)


@mutant(clause="C7")
class RetriesAtOnce(RightDelivery):
    """What failed is given again without a pause."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def end(self, connection: psycopg.Connection, row: Row, *, well: bool) -> None:
                super().end(connection, row, well=well)
                connection.execute("UPDATE delivery SET due = clock_timestamp() WHERE id = %s", row[:1])


@mutant(clause="C8")
class IgnoresConcurrency(RightDelivery):
    """It takes all that waits."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                return super().fetch(connection, 100)


@mutant(clause="C8")
class CountsByQueue(RightDelivery):
    """Each of its queues has the whole concurrency."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                return super().fetch(connection, room + self.concurrency * (len(self.queues) - 1))


@mutant(clause="C8")
class OneAtATime(Impatient):
    """It takes one, and the next when that has ended."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                return [] if self.working else super().fetch(connection, 1)


@mutant(clause="C9")
class TakesAhead(RightDelivery):
    """It takes what it cannot begin yet, so that the next one is near."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            ahead: ClassVar[list[Row]] = []

            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                self.ahead.extend(super().fetch(connection, 5))
                now, self.ahead[:] = self.ahead[:room], self.ahead[room:]
                return now


@mutant(clause="C9")
class LooksBeforeItTakes(RightDelivery):
    """Two may take what both saw."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                rows = connection.execute(
                    "SELECT id, queue, unit, fence FROM delivery WHERE queue = ANY(%s) AND due <= clock_timestamp()"
                    " AND receiver IS DISTINCT FROM %s ORDER BY id LIMIT %s",
                    (self.queues, self.process, room),
                ).fetchall()
                taken = [row[0] for row in rows]
                connection.execute("UPDATE delivery SET receiver = %s WHERE id = ANY(%s)", (self.process, taken))
                return rows


@mutant(clause="C10", by="_c10_after_stop_")
class NeverStops(RightDelivery):
    """It ends with its context, and takes until then."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def stop(self) -> None:
                pass

        def leave(self, receiver: PlainReceiver) -> None:
            receiver.stopped.set()
            super().leave(receiver)


@mutant(clause="C10", by="_c10_after_stop_")
class LeavesItsThread(RightDelivery):
    """The thread goes on when the context was left."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def run(self) -> None:
                super().run()
                self.stopped.clear()
                self.stopped.wait(5)

        def leave(self, receiver: PlainReceiver) -> None:
            receiver.stop()


@mutant(clause="C10", by="_c10_to_leave_")
class DropsWhatItWorksOn(RightDelivery):
    """To leave does not wait."""

    class Engine(WithReceiver):
        def leave(self, receiver: PlainReceiver) -> None:
            receiver.working.clear()
            super().leave(receiver)


@mutant(clause="C11")
class OneQueueOneWorker(RightDelivery):
    """While one works nobody else takes, and the dead work for ever."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
                busy = connection.execute(
                    "SELECT FROM delivery WHERE queue = ANY(%s) AND receiver <> %s", (self.queues, self.process)
                ).fetchone()
                return [] if busy is not None else super().fetch(connection, room)


@mutant(clause="C12", by="_c11_")
class BelievesTheDead(RightDelivery):
    """What was taken is under way."""

    class Engine(WithReceiver):
        def under_way(self, connection: psycopg.Connection, sent: Collection[Pair]) -> set[Pair]:
            return {*connection.execute("SELECT unit, fence FROM delivery").fetchall()} & {*sent}


@mutant(clause="C12", by="_c12_")
class KnowsUnitsOnly(RightDelivery):
    """Of a unit that is under way all fences are."""

    class Engine(WithReceiver):
        def under_way(self, connection: psycopg.Connection, sent: Collection[Pair]) -> set[Pair]:
            found = {unit for (unit,) in connection.execute("SELECT unit FROM delivery").fetchall()}
            return {(unit, fence) for unit, fence in sent if unit in found}


@mutant(clause="C12", by="_c12_")
class SaysThatNothingIsThere(RightDelivery):
    """What waits is not under way yet."""

    class Engine(WithReceiver):
        def under_way(self, connection: psycopg.Connection, sent: Collection[Pair]) -> set[Pair]:
            found = connection.execute("SELECT unit, fence FROM delivery WHERE receiver IS NOT NULL").fetchall()
            return {*found} & {*sent}


@mutant(clause="C12", by="_c12_what_a_stopped_")
class WaitsForTheStopped(RightDelivery):
    """Who has a connection lives."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            silence = "0"


@mutant(clause="C13")
class EndsWithItsConnection(Impatient):
    """When its connection is cut it is over."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def run(self) -> None:
                try:
                    with self.delivery.connect() as connection:
                        self.live(connection)
                except psycopg.OperationalError:
                    return


@mutant(clause="C14")
class ForgetsNothing(RightDelivery):
    """What is forgotten is delivered all the same."""

    class Engine(WithReceiver):
        def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
            connection.execute("SELECT 1")


@mutant(clause="C14")
class ForgetsWhatIsWorkedOn(RightDelivery):
    """It forgets all there is of a unit."""

    class Engine(WithReceiver):
        def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
            connection.execute("DELETE FROM delivery WHERE unit = ANY(%s)", (list(units),))


@mutant(clause="C15", by="_c15_the_password_is_shown_")
class ShowsItsURL(RightDelivery):
    """Its repr has all it was made with."""

    class Engine(WithReceiver):
        def __repr__(self) -> str:
            return f"Engine({self._url!r}, {self.beats!r})"


@mutant(clause="C15", by="_c15_the_password_is_in_")
class LogsItsURL(RightDelivery):
    """It logs where it connects."""

    class Engine(WithReceiver):
        def connect(self) -> psycopg.Connection:
            logging.getLogger("engine").info("connecting to %s", self._url)
            return super().connect()


@mutant(clause="C16", by="_c16_of_what_waits_")
class FirstComeFirstServed(RightDelivery):
    """It takes what has waited longest."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            order = "id"


@mutant(clause="C16", by="_c16_what_failed_")
class DemotesWhatFailed(RightDelivery):
    """What failed has no priority any more."""

    class Engine(WithReceiver):
        class Receiver(PlainReceiver):
            def end(self, connection: psycopg.Connection, row: Row, *, well: bool) -> None:
                super().end(connection, row, well=well)
                connection.execute("UPDATE delivery SET priority = 0 WHERE id = %s", row[:1])
