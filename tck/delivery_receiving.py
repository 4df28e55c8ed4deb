"""Receiving: acknowledgement, failed work, deliveries at once, the end, and a broken connection."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from kairo_team.tck.delivery_stage import Deliveries, DeliveryStage, Scene, blocking_clause

MANY: Final = 60
"""Deliveries that are worked on for some polls each: the pause after a failure is over before the last one."""


class ReceivingTests(DeliveryStage):
    """C6 to C8, C10, C13, C15, C16."""

    @blocking_clause("C6")
    def test_c06_it_is_acknowledged_when_its_work_has_ended(self) -> None:
        """Until then the delivery is under way; it is delivered once."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene, scene.receiving(deliveries):
            pair = scene.send(scene.unit("work"))
            deliveries.wait(pair)
            scene.let_pass(deliveries)
            assert scene.under_way(pair) == {pair}, "it was acknowledged before its work had ended"
            deliveries.finish(pair)
            scene.wait_for_ends(pair)
            scene.let_pass(deliveries)
            assert deliveries.given.count(pair) == 1, f"it was delivered {deliveries.given.count(pair)} times"

    @blocking_clause("C7")
    def test_c07_failed_work_is_given_again(self) -> None:
        """A delivery comes again if its future failed or was cancelled, or if `take` raised."""
        deliveries = Deliveries()
        deliveries.patience = self.patience
        troubles = ["raises", "fails", "is cancelled"]

        def take(unit: str, fence: int) -> Future[None]:
            future = deliveries.take(unit, fence)
            if not troubles:
                return future
            # The delivery is counted above; the engine gets another future.
            trouble, other = troubles.pop(), Future[None]()
            if trouble == "raises":
                raise ValueError("the unit cannot be begun")
            if trouble == "is cancelled":
                other.cancel()
            else:
                other.set_exception(ValueError("the work failed"))
            return other

        with self.scene() as scene:
            pair = scene.send(scene.unit("fails"))
            with scene.delivery.receiving(scene.unit("p"), [scene.queue], 4, take):
                deliveries.wait(pair, times=4)
                scene.wait_for_ends(pair)
            waits = [later - earlier for earlier, later in zip(deliveries.times, deliveries.times[1:], strict=False)]
            short = [wait for wait in waits if wait < 0.9 * self.beats.again]
            assert not short, f"it was given again after {short} seconds, not after {self.beats.again:g}"

    @blocking_clause("C8")
    def test_c08_so_many_at_once(self) -> None:
        """The limit is over all queues; the next delivery comes when one has ended."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene:
            queues = [scene.queue, f"{scene.queue}-2"]
            sent = [scene.send(scene.unit(f"{number}"), queue=queues[number % 2]) for number in range(7)]
            with scene.receiving(deliveries, queues=queues, concurrency=3):
                scene.wait_until("three deliveries at once", lambda: len(deliveries.given) >= 3)
                scene.rest()
                assert deliveries.most == 3, f"{deliveries.most} deliveries at once, where 3 may be"
                assert scene.under_way(*sent) == {*sent}, "some are lost"
                deliveries.finish(deliveries.given[0])
                scene.wait_until("the next delivery", lambda: len(deliveries.given) >= 4)
                deliveries.finish_all()
                deliveries.wait(*sent)
            assert deliveries.most == 3, f"{deliveries.most} deliveries at once, where 3 may be"

    @blocking_clause("C10")
    def test_c10_after_stop_it_takes_nothing_new(self) -> None:
        """Work in progress continues and is acknowledged; waiting deliveries go to others; the threads end."""
        before = {*threading.enumerate()}
        deliveries, others = Deliveries(hold=True), Deliveries()
        with self.scene() as scene:
            with scene.receiving(deliveries) as receiver:
                taken = scene.send(scene.unit("taken"))
                deliveries.wait(taken)
                receiver.stop()
                # The protocol allows a second call.
                receiver.stop()
                scene.rest()
                late = scene.send(scene.unit("late"))
                scene.rest()
                assert late not in deliveries.given, "it was delivered after stop"
                assert scene.under_way(taken, late) == {taken, late}, "started or waiting deliveries are lost"
                deliveries.finish(taken)
                scene.wait_for_ends(taken)
            left = {thread for thread in threading.enumerate() if thread not in before and _is_of_the_engine(thread)}
            assert not left, f"threads were left behind: {sorted(thread.name for thread in left)}"
            with scene.receiving(others):
                others.wait(late)
            assert deliveries.given == [taken], f"{deliveries.given} were delivered, and {taken} before stop"

    @blocking_clause("C10")
    def test_c10_to_leave_waits_for_what_was_taken(self) -> None:
        deliveries = Deliveries(hold=True)
        with self.scene() as scene:
            pair = scene.send(scene.unit("long"))
            finish = threading.Timer(10 * self.beats.poll, deliveries.finish, [pair])
            with scene.delivery.receiving(scene.unit("p"), [scene.queue], 4, deliveries.take):
                deliveries.wait(pair)
                finish.start()
            assert not deliveries.open, "the context was left while work was going on"
            scene.wait_for_ends(pair)

    @blocking_clause("C13")
    def test_c13_it_goes_on_when_its_connections_were_cut(self) -> None:
        """Receiving resumes, and so does the work in progress."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene, scene.receiving(deliveries):
            held = scene.send(scene.unit("held"))
            deliveries.wait(held)
            for number in range(2):
                _cut(scene)
                deliveries.wait(scene.send(scene.unit(f"after-{number}")))
            deliveries.finish(held)
            scene.wait_for_ends(held)
            assert deliveries.given.count(held) == 1, "work in progress was delivered again"

    @blocking_clause("C15")
    def test_c15_the_password_is_in_no_log(self) -> None:
        deliveries, log = Deliveries(), _Log()
        with self.scene() as scene:
            password = str(conninfo_to_dict(scene.url).get("password") or scene.url)
            with log, scene.receiving(deliveries):
                deliveries.wait(scene.send(scene.unit("logged")))
                _cut(scene)
                deliveries.wait(scene.send(scene.unit("again")))
            shown = [text for text in log.texts if password in text]
            assert not shown, f"the password of the database is in a log: {shown[0].replace(password, '***')}"

    @blocking_clause("C16")
    def test_c16_of_what_waits_a_higher_priority_is_taken_first(self) -> None:
        deliveries = Deliveries()
        with self.scene() as scene:
            sent = {scene.send(scene.unit(f"{one}"), priority=one): one for one in (0, -1000, 1000, 5, -3)}
            with scene.receiving(deliveries, concurrency=1):
                deliveries.wait(*sent)
            found = [sent[pair] for pair in deliveries.given]
            assert found == sorted(found, reverse=True), f"priorities were taken in the order {found}"

    @blocking_clause("C16")
    def test_c16_what_failed_keeps_its_priority(self) -> None:
        """The delivery comes again before others that have waited longer."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene:
            for number in range(MANY):
                scene.send(scene.unit(f"{number}"))
            urgent = scene.send(scene.unit("urgent"), priority=1)
            with scene.receiving(deliveries, concurrency=1):
                deliveries.wait(urgent)
                deliveries.fail(urgent)
                while deliveries.given.count(urgent) < 2 and len(deliveries.given) <= MANY:
                    for pair in list(deliveries.open):
                        deliveries.finish(pair)
                    scene.rest()
                assert deliveries.given.count(urgent) == 2, "all that had waited longer came before it"


def _is_of_the_engine(thread: threading.Thread) -> bool:
    """Return whether the engine made the thread, and not the event loop of the test."""
    return not thread.name.startswith("AnyIO") and thread is not threading.current_thread()


def _cut(scene: Scene) -> None:
    """Cut all other connections to the kit's database."""
    with psycopg.connect(scene.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid NOT IN (pg_backend_pid(), %s)",
            (scene.connection.info.backend_pid,),
        )


class _Log(logging.Handler):
    """A handler that collects the records of all loggers, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self._levels: dict[logging.Logger, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def __enter__(self) -> None:
        root = logging.getLogger()
        loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
        self._levels = {one: one.level for one in (root, *loggers)}
        for one in self._levels:
            one.setLevel(logging.DEBUG)
        root.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        for one, level in self._levels.items():
            one.setLevel(level)
