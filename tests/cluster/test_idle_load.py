"""What an idle worker costs PostgreSQL: connections, transactions; and what a lost notification costs the worker."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster import mailbox, monitor, procrastinate_delivery
from kairo_team.cluster.delivery import Delivery, Intervals
from kairo_team.cluster.mailbox import Mailbox, Message, message_to
from kairo_team.cluster.procrastinate_delivery import ProcrastinateDelivery, Turns
from kairo_team.cluster.units import Unit
from kairo_team.durable import line, postgres_database
from kairo_team.durable.connection import execute
from kairo_team.durable.line import Line
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.processes import Process
from kairo_team.tck.delivery_stage import Deliveries
from kairo_team.tck.journal_stage import request_of, team_of
from tests.cluster import stage
from tests.cluster.server import server
from tests.cluster.stage import BEAT, crew, new_database, until

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

NEVER = 3600.0
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def quick_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close unused connections soon."""
    for module in (mailbox, monitor, procrastinate_delivery):
        monkeypatch.setattr(module, "_REST", BEAT)
    monkeypatch.setattr(postgres_database.PostgresDatabase, "rest", BEAT)


def purposes(url: str) -> list[str]:
    """Return what the connections to a database are for."""
    return sorted(
        name.removeprefix("kairo-team ") for (name,) in stage.execute(url, f"SELECT application_name {OTHERS}")
    )


def cut(url: str, purpose: str) -> None:
    """End the connections of a purpose, as a restart of a pooler does; wait until there is one."""
    sql, end = f"SELECT pg_terminate_backend(pid) {OTHERS} AND application_name = %s", time.monotonic() + 60
    while not stage.execute(url, sql, f"kairo-team {purpose}"):
        assert time.monotonic() < end, f"there is no connection for the {purpose}"
        time.sleep(0.02)


def transactions_of_heartbeats(url: str, heartbeats: int) -> float:
    """Return the transactions for each heartbeat of the only process."""
    sql = (
        "SELECT (SELECT max(beats) FROM process), xact_commit + xact_rollback"
        " FROM pg_stat_database WHERE datname = current_database()"
    )
    with psycopg.connect(url, autocommit=True, options="-c search_path=kairo") as connection:
        first = last = connection.execute(sql).fetchone()
        looks = 1
        while first is not None and last is not None and last[0] - first[0] < heartbeats:
            time.sleep(5 * BEAT)
            last, looks = connection.execute(sql).fetchone(), looks + 1
    assert first is not None
    assert last is not None
    return float(last[1] - first[1] - looks) / float(last[0] - first[0])


@pytest.mark.usefixtures("quick_rest")
async def test_an_idle_worker_has_three_connections_and_two_transactions_a_second() -> None:
    """It watches the others too, and has worked before. All its intervals are multiples of the heartbeat's."""
    url = new_database("procrastinate")
    team = kt.Team("desk", [kt.Member("clerk", lambda _: "done")])
    async with crew(url, beat=4 * BEAT) as made:  # slow enough that a heartbeat takes no time
        made.add_worker(team)
        result = await kt.run(team, "Go.", runtime=kt.Runtime(engine=made.here))
        assert result.status is kt.TeamStatus.COMPLETED
        await to_thread.run_sync(made.here.close)
        await until(lambda: purposes(url) == ["delivery", "line", "monitor"])
        # A session reports its transactions with a delay, and a busy machine may delay the heartbeat and not the rest.
        count = partial(transactions_of_heartbeats, url, 15)
        found = [await to_thread.run_sync(count)]
        while found[-1] > 2 and len(found) < 4:
            found.append(await to_thread.run_sync(count))
        assert min(found) <= 2, found  # by default there is a heartbeat each second
        assert purposes(url) == ["delivery", "line", "monitor"]
        # and it still works
        again = made.new_cluster()
        assert (await kt.run(team, "Go.", runtime=kt.Runtime(engine=again))).status is kt.TeamStatus.COMPLETED


@contextmanager
def receiving(url: str, deliveries: Deliveries, **intervals: float) -> Generator[tuple[Delivery, psycopg.Connection]]:
    delivery = ProcrastinateDelivery(url, Intervals(**{"poll": 0.05, "again": 0.2, "late": NEVER, **intervals}))
    delivery.install()
    with (
        psycopg.connect(url, autocommit=True) as connection,
        delivery.receiving("one", ["queue"], 4, deliveries.take),
    ):
        yield delivery, connection


def test_a_lost_connection_for_notifications_is_opened_again() -> None:
    url, deliveries = server().new_database(), Deliveries()
    with receiving(url, deliveries) as (delivery, connection):
        for unit in ("first", "second", "third"):
            delivery.send(connection, "queue", unit, 1)
            deliveries.wait((unit, 1))
            cut(url, "line")


def test_what_was_sent_while_nobody_listened_is_found_when_somebody_listens_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, deliveries, there, asked = server().new_database(), Deliveries(), Event(), Event()
    connect_to = postgres_database.connect_to

    def connect(*given: str) -> postgres_database.PostgresConnection:
        if deliveries.given:
            asked.set()
            assert there.wait(60)
        return connect_to(*given)

    monkeypatch.setattr(line, "connect_to", connect)
    with receiving(url, deliveries) as (delivery, connection):
        delivery.send(connection, "queue", "first", 1)
        deliveries.wait(("first", 1))
        cut(url, "line")
        assert asked.wait(60)
        delivery.send(connection, "queue", "second", 1)
        there.set()
        deliveries.wait(("second", 1))


def test_a_lost_notification_costs_no_more_than_the_slow_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "listen", lambda *_: lambda: None)  # it hears nothing
    deliveries = Deliveries()
    with receiving(server().new_database(), deliveries, late=0.5) as (delivery, connection):
        for unit in ("first", "second"):
            delivery.send(connection, "queue", unit, 1)
            deliveries.wait((unit, 1))


def test_a_delayed_delivery_and_failed_work_do_not_wait_for_the_slow_poll() -> None:
    deliveries = _FailsOnce()
    with receiving(server().new_database(), deliveries) as (delivery, connection):
        delivery.send(connection, "queue", "delayed", 1, delay=0.1)
        deliveries.wait(("delayed", 1))
        delivery.send(connection, "queue", "fails", 1)
        deliveries.wait(("fails", 1), times=2)


def test_idle_workers_of_one_queue_do_not_all_look_for_each_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has missed several waits a moment: here a long one, so that one of them gets all."""
    looks, fetch = list[bool](), procrastinate_delivery._Jobs.fetch_job

    async def look(*given: Any, **named: Any) -> Any:
        job = await fetch(*given, **named)
        looks.append(job is not None)
        return job

    monkeypatch.setattr(procrastinate_delivery._Jobs, "fetch_job", look)
    deliveries, units = Deliveries(), [f"{number}" for number in range(40)]
    with receiving(server().new_database(), deliveries, again=NEVER) as (delivery, connection), ExitStack() as others:
        for number in range(5):
            others.enter_context(delivery.receiving(f"other {number}", ["queue"], 4, deliveries.take))
        delivery.send(connection, "queue", "first", 1)
        deliveries.wait(("first", 1))
        monkeypatch.setattr(procrastinate_delivery, "_TURN", NEVER)
        looks.clear()
        for unit in units:
            delivery.send(connection, "queue", unit, 1)
            deliveries.wait((unit, 1))
    assert looks.count(False) < 100, "each of six workers looked for each of 40 deliveries"


@pytest.mark.parametrize("workers", [1, 10, 100])
def test_many_idle_workers_look_together_about_as_often_as_few_and_as_soon(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a simulation: ten deliveries a second, each done at once, to workers that draw when they look."""
    chance = random.Random(7)  # noqa: S311 - for a simulation
    monkeypatch.setattr(random, "uniform", chance.uniform)
    turns, due = [Turns(2.0) for _ in range(workers)], [math.inf] * workers
    now, looks, waits = 0.0, 0, list[float]()
    for _ in range(1000):
        until = now + chance.expovariate(10)
        due = [min(at, now + turn.draw()) for at, turn in zip(due, turns, strict=True)]
        waits.append(min(due) - now)
        found = False
        while min(due) <= until or not found:
            first = due.index(min(due))
            turns[first].note_look(found=not found)
            found, looks, due[first] = True, looks + 1, math.inf
        now = max(until, now + waits[-1])
    assert looks / 1000 < 25
    assert sum(waits) / 1000 < 0.04


class _FailsOnce(Deliveries):
    def take(self, unit: str, fence: int) -> Future[None]:
        future = super().take(unit, fence)
        if self.given.count(("fails", 1)) == 1 and unit == "fails":
            raise RuntimeError("it fails")
        return future


def test_a_line_calls_its_functions_in_one_transaction_and_listens_on_what_somebody_listens_to() -> None:
    url, heard, ticked = server().new_database(), Event(), Event()
    numbers: list[int] = []
    wire = Line(url, 0.05)

    def tick(connection: postgres_database.PostgresConnection) -> None:
        numbers.append(connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()[0])
        ticked.set()

    ends = [wire.each(tick), wire.each(tick), wire.listen("news", heard.set)]
    wire.start()
    wire.start()
    try:
        assert ticked.wait(60)
        assert heard.wait(60)  # it listens now
        heard.clear()
        stage.execute(url, "NOTIFY news")
        assert heard.wait(60)
        for end in ends:
            end()
        _until_quiet(numbers)
    finally:
        wire.close()
    assert numbers[::2] == numbers[1::2]
    assert purposes(url) == []


def _until_quiet(numbers: list[int]) -> None:
    before = -1
    while before != len(numbers):
        before = len(numbers)
        time.sleep(0.3)


@pytest.mark.usefixtures("quick_rest")
async def test_a_message_whose_notification_was_lost_is_found_by_the_next_heartbeat(database: str) -> None:
    journal = PostgresJournal(database, beat=BEAT)
    process = journal.process
    box = Mailbox(database, process)
    with anyio.fail_after(60):
        with box.open("u", "worker") as messages:
            for text in ("first", "second"):
                (insert, notify) = message_to(process.id, Message("u", 1, "directive", text), "r")
                assert "pg_notify" in str(notify)
                with journal.database.writing() as connection:
                    execute(connection, insert)
                assert (await messages.next()).body == text
        await until(lambda: "mailbox" not in purposes(database))
        with box.open("u", "worker") as messages:
            with journal.database.writing() as connection:
                for statement in message_to(process.id, Message("u", 1, "directive", "third"), "r"):
                    execute(connection, statement)
            assert (await messages.next()).body == "third"
    await to_thread.run_sync(box.close)
    await to_thread.run_sync(journal.close)


@pytest.mark.usefixtures("quick_rest")
async def test_the_writer_closes_its_connection_when_there_is_nothing_to_write(database: str) -> None:
    journal = PostgresJournal(database, beat=BEAT)
    for run in ("one", "two"):
        session = journal.begin(request_of(run), team_of(), {}, None)
        session.serve(lambda: (0.0, 0), lambda _reason: None, lambda _error: None)
        session.put("step", 1)
        await session.written()
        assert "writer" in purposes(database)
        session.leave()
        await until(lambda: "writer" not in purposes(database))
    await to_thread.run_sync(journal.close)


def test_a_kept_connection_that_the_server_closed_is_not_used(database: str) -> None:
    journal = PostgresJournal(database)
    with journal.connecting() as connection:
        connection.execute("SELECT 1")
    cut(database, "journal")
    while "journal" in purposes(database):
        time.sleep(0.02)
    time.sleep(0.1)  # the server's last message is on its way
    with journal.connecting() as connection, connection.transaction():
        connection.execute("SELECT 1")
    journal.close()


def test_a_reply_after_the_last_message_of_the_server_counts_as_a_broken_connection(database: str) -> None:
    journal = PostgresJournal(database)
    raised: list[Exception] = [psycopg.InternalError("received 2 results from command 'BEGIN'")]

    def change(_connection: object) -> int:
        if raised:
            raise raised.pop()
        return 1

    assert journal.change(change) == 1
    journal.close()


def test_a_process_sees_at_its_heartbeat_whether_somebody_watches_and_what_it_has(database: str) -> None:
    journal = PostgresJournal(database, beat=BEAT)
    process, lock = journal.process, journal.lock(monitor._LOCK)
    process.start()

    def seen(found: Callable[[Process], bool]) -> None:
        end = time.monotonic() + 60
        while not found(process):
            assert time.monotonic() < end
            time.sleep(0.02)

    assert not process.nobody_watches  # it has not been told that it may watch
    process.watch_lock = lock
    seen(lambda one: one.nobody_watches)
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (lock,))
        seen(lambda one: not one.nobody_watches)
    seen(lambda one: one.nobody_watches)
    assert process.units == 0
    unit = Unit("u", "attempt", "r", "q")
    with journal.database.writing() as connection:
        for statement in unit.sending(_Sends(), None):
            execute(connection, statement)
    stage.execute(database, "UPDATE unit SET state = 'taken', process = %s", process.id)
    seen(lambda one: one.units == 1)
    journal.close()


class _Sends(ProcrastinateDelivery):
    def __init__(self) -> None:
        super().__init__("postgresql://nowhere/")

    def send(self, *_: object, **__: object) -> None:
        """Send nothing."""
