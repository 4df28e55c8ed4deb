"""Which engine is made, what is refused, and what an engine leaves in the database."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import get_args

import procrastinate
import psycopg
import pytest
from dbos import DBOS

import kairo_team as kt
from kairo_team.cluster.cluster import delivery_of
from kairo_team.cluster.delivery import ENGINES, Delivery, EngineName, Intervals, queue_key
from kairo_team.errors import MissingExtra, Misuse
from kairo_team.tck.delivery_stage import Deliveries
from tests.cluster.server import server

BEATS = Intervals(poll=0.05, again=0.2, late=2.0)
NOWHERE = "postgresql://kit:pass-w0rd@127.0.0.1:1/none"
ROWS = {
    "dbos": b"SELECT count(*) FROM kairo_dbos.workflow_status",
    "procrastinate": b"SELECT count(*) FROM kairo_procrastinate.procrastinate_jobs",
}


@pytest.mark.parametrize("name", get_args(EngineName))
def test_an_engine_is_made_by_its_name(name: str) -> None:
    made = delivery_of(name, NOWHERE)
    assert isinstance(made, Delivery)
    assert "pass-w0rd" not in repr(made)


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Misuse, match="'celery' is not a delivery engine: use one of 'dbos', 'procrastinate'"):
        delivery_of("celery", NOWHERE)
    assert ENGINES == ("dbos", "procrastinate")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_not_installed_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"kairo_team.cluster.{name}_delivery", None)
    with pytest.raises(MissingExtra, match=r"kairo-team\[cluster\]"):
        delivery_of(name, NOWHERE)


@pytest.mark.parametrize(
    "url", ["sqlite:///pass-w0rd.db", "postgres//kit:pass-w0rd@host/db", "postgresql://h/?x=pass-w0rd"]
)
def test_what_is_no_url_of_postgresql_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(Misuse, match="write postgresql://") as caught:
        delivery_of("procrastinate", url)
    assert "pass-w0rd" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("poll", 0.0), ("again", -1.0), ("late", 4000.0)])
def test_beats_are_seconds_above_0_up_to_an_hour(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}: it must be above 0 and at most 3600 seconds"):
        Intervals(**{name: value})


def test_names_of_queues_fit_an_engine() -> None:
    assert queue_key("team.writer-1") == "team.writer-1"
    odd = [queue_key(name) for name in ("ä", "_dbos_internal", "a b", "q" * 60, "q" * 61)]
    assert len({*odd}) == len(odd)
    assert all(len(key) <= 39 and queue_key(key) == key for key in odd)


def test_dbos_receives_once_in_a_process() -> None:
    url = server().new_database()
    first, second = delivery_of("dbos", url, intervals=BEATS), delivery_of("dbos", url, intervals=BEATS)
    first.install()
    with (
        first.receiving("one", ["queue"], 1, Deliveries().take),
        pytest.raises(Misuse, match="receives by 'dbos' already"),
    ):
        second.receiving("two", ["queue"], 1, Deliveries().take).__enter__()
    with second.receiving("three", ["queue"], 1, Deliveries().take):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fails", [False, True])
def test_a_receiver_of_dbos_waits_for_one_that_ends(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker after a lost one begins while the lost one's DBOS may still wait for the database."""
    url, destroy, may_end = server().new_database(), DBOS.destroy, threading.Event()
    first, second = delivery_of("dbos", url, intervals=BEATS), delivery_of("dbos", url, intervals=BEATS)
    first.install()

    def destroy_late(**given: int) -> None:
        assert may_end.wait(60)
        destroy(workflow_completion_timeout_sec=given.get("workflow_completion_timeout_sec", 0))
        if fails:
            raise psycopg.OperationalError("the database has gone")

    monkeypatch.setattr(DBOS, "destroy", destroy_late)
    with first.receiving("one", ["queue"], 1, Deliveries().take) as ending:
        ending.stop()
        threading.Timer(0.5, may_end.set).start()
        with second.receiving("two", ["queue"], 1, Deliveries().take):
            assert may_end.is_set()
    with first.receiving("three", ["queue"], 1, Deliveries().take):
        pass


@pytest.mark.parametrize("name", ENGINES)
def test_a_delay_ends_where_the_clock_of_the_receivers_is_slow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server().new_database()
    delivery = delivery_of(name, url, intervals=BEATS)
    delivery.install()
    deliveries = Deliveries()
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    with psycopg.connect(url) as connection, delivery.receiving("one", ["queue"], 1, deliveries.take):
        delivery.send(connection, "queue", "delayed", 1, delay=0.1)
        connection.commit()
        deliveries.wait(("delayed", 1))


@pytest.mark.parametrize("name", ENGINES)
def test_nothing_is_kept_of_what_was_acknowledged_or_forgotten(name: str) -> None:
    url = server().new_database()
    delivery = delivery_of(name, url, intervals=BEATS)
    delivery.install()
    with (
        psycopg.connect(url, autocommit=True) as connection,
        delivery.receiving("one", ["queue"], 4, Deliveries().take),
    ):
        for number in range(10):
            delivery.send(connection, "queue", f"done-{number}", 1)
            delivery.send(connection, "elsewhere", f"forgotten-{number}", 1)
        delivery.forget(connection, [f"forgotten-{number}" for number in range(10)])
        end = time.monotonic() + 60
        while connection.execute(ROWS[name]).fetchone() != (0,):
            assert time.monotonic() < end, "rows of deliveries are kept"
            time.sleep(0.05)


def test_a_receiver_of_procrastinate_ends_where_a_cancellation_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Python 3.12 `asyncio.wait_for` loses one now and then, as the worker registers."""
    asked = threading.Event()

    async def loses_its_first_cancellation(*_: object, **__: object) -> None:
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)

    def receive() -> None:
        with delivery.receiving("one", ["queue"], 1, Deliveries().take):
            assert asked.wait(60)

    delivery = delivery_of("procrastinate", server().new_database(), intervals=BEATS)
    delivery.install()
    monkeypatch.setattr(procrastinate.PsycopgConnector, "execute_query_all_async", loses_its_first_cancellation)
    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    receiving.join(60)
    assert not receiving.is_alive(), "the receiver does not end"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENGINES)
def test_a_receiver_outlives_a_restart_of_the_server_and_can_be_left_without_one(name: str) -> None:
    url = server().new_database()
    delivery = delivery_of(name, url, intervals=BEATS)
    delivery.install()
    deliveries = Deliveries()
    try:
        with delivery.receiving("one", ["queue"], 2, deliveries.take):
            server().stop()
            time.sleep(5 * BEATS.poll)
            server().start()
            with psycopg.connect(url) as connection:
                delivery.send(connection, "queue", "after", 1)
            deliveries.wait(("after", 1))
            server().stop()
    finally:
        server().start()


def test_a_cluster_uses_the_engine_of_its_database_and_procrastinate_on_a_new_one(database: str) -> None:
    def engine() -> str:
        cluster = kt.Cluster(database)
        cluster.close()
        return cluster.engine

    assert engine() == "procrastinate"
    first = kt.Cluster(database, engine="dbos")
    first._install()
    first.close()
    assert engine() == "dbos"
