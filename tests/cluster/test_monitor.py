"""Who looks after others: what is found, whoever is stopped, whatever a clock says, and what is deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import psycopg
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster import monitor
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.mailbox import Message
from kairo_team.cluster.remote_attempt import RemoteAttempt
from kairo_team.cluster.units import claim
from kairo_team.cluster.worker import Worker
from kairo_team.durable.postgres_database import connect_to
from kairo_team.durable.processes import Observer, Process, has_died
from kairo_team.errors import JournalError
from kairo_team.tck.journal_stage import request_of, team_of
from kairo_team.testing import FunctionModel
from tests.cluster.stage import BEAT, execute, new_database, until, working

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


@contextmanager
def cluster_on(url: str, *, started: bool = True, **given: Any) -> Generator[Cluster]:
    cluster = Cluster(url, engine="procrastinate", beat=BEAT, **given)
    try:
        if started:
            cluster.start()
        yield cluster
    finally:
        cluster.close()


def add_unit(url: str, unit: str, state: str, process: str | None = None, kind: str = "run", **more: Any) -> None:
    """Let there be a unit of the run `r`."""
    values = (unit, kind, state, process, more.get("sender"), more.get("epoch", 1), more.get("sent_at", 0.0))
    execute(
        url,
        "INSERT INTO unit (id, kind, run_id, step, queue, fence, body, state, process, sender, epoch, sent_at)"
        " VALUES (%s, %s, 'r', '', 'q', 1, '', %s, %s, %s, %s, %s)",
        *values,
    )


def add_process(url: str, process: str, state: str = "live") -> None:
    execute(
        url, "INSERT INTO process VALUES (%s, 'worker', 'h', 1, 1, NULL, NULL, NULL, NULL, %s, 0, 0)", process, state
    )


def record_run(url: str, state: str = "running", epoch: int = 1) -> None:
    """Let there be a run `r`."""
    execute(
        url,
        "INSERT INTO run (run_id, team, state, owner, epoch, started_at, updated_at, goal, digests, source, request)"
        " VALUES ('r', 't', %s, '', %s, 0, 0, '', '{}', '{}', '')",
        state,
        epoch,
    )


def wait_for(url: str, sql: str, *expected: Any) -> None:
    """Return once a query finds this row."""
    end = time.monotonic() + 60
    while (found := execute(url, sql)) != ([expected] if expected else []):
        assert time.monotonic() < end, f"{found} is not {expected}"
        time.sleep(BEAT / 4)


@pytest.mark.parametrize("state", ["dead", None])
def test_what_a_process_had_that_others_declared_dead_or_that_ended_is_sent_anew(state: str | None) -> None:
    url = new_database("procrastinate")
    record_run(url)
    if state is not None:
        add_process(url, "p", state)
    add_unit(url, "u", "taken", "p")
    with cluster_on(url):
        wait_for(url, "SELECT state, fence, process FROM unit", "sent", 2, None)


def test_what_a_process_has_and_does_not_do_is_given_back() -> None:
    url = new_database("procrastinate")
    record_run(url)
    with cluster_on(url) as cluster:
        process = cluster.journal.process.id
        cluster.monitor.watch(lambda: {("does", 1)})
        add_unit(url, "does", "taken", process)
        add_unit(url, "lost", "taken", process)
        wait_for(url, "SELECT state, fence FROM unit WHERE id = 'lost'", "sent", 2)
        assert execute(url, "SELECT state, fence FROM unit WHERE id = 'does'") == [("taken", 1)]


def test_a_reaper_that_is_stopped_keeps_no_other_from_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database("procrastinate")
    record_run(url)
    stopped, goes_on = threading.Event(), threading.Event()
    look: Callable[..., bool] = monitor.Monitor._look

    def look_and_stop(self: monitor.Monitor, *given: Any) -> bool:
        watches = look(self, *given)
        if self is first.monitor:
            stopped.set()
            goes_on.wait(90)
        return watches

    monkeypatch.setattr(monitor.Monitor, "_look", look_and_stop)
    with cluster_on(url, started=False) as first, cluster_on(url, started=False) as second:
        first.start()
        assert stopped.wait(60)
        add_unit(url, "u", "taken", "gone")
        second.start()
        try:
            wait_for(url, "SELECT state, fence FROM unit", "sent", 2)
        finally:
            goes_on.set()


def test_a_unit_without_a_delivery_is_sent_again_whatever_the_clock_of_its_sender_said() -> None:
    url = new_database("procrastinate")
    record_run(url)
    add_unit(url, "u", "sent", sent_at=time.time() + 600)
    with cluster_on(url):
        wait_for(url, "SELECT args->>'unit' FROM kairo_procrastinate.procrastinate_jobs", "u")
        time.sleep(5 * BEAT)
    found = execute(url, "SELECT count(*) FROM kairo_procrastinate.procrastinate_jobs")
    assert found == [(1,)], "its delivery waits now"


def test_of_many_units_each_audit_looks_at_a_part_and_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_AT_ONCE", 2)
    url = new_database("procrastinate")
    record_run(url)
    for number in range(5):
        add_unit(url, f"u{number}", "sent")
    with cluster_on(url):
        wait_for(url, "SELECT count(DISTINCT args->>'unit') FROM kairo_procrastinate.procrastinate_jobs", 5)


def test_what_nobody_waits_for_is_deleted_and_nothing_else() -> None:
    url = new_database("procrastinate")
    record_run(url, epoch=2)
    add_process(url, "gone", "dead")
    with cluster_on(url) as cluster:
        here = cluster.journal.process.id
        cluster.monitor.watch(lambda: {("now", 1)})
        add_unit(url, "earlier", "lost", kind="attempt", epoch=1, sender="gone")
        add_unit(url, "now", "taken", here, kind="attempt", epoch=2, sender=here)
        for addressee, unit in (("gone", "now"), ("nobody", "now"), ("unit:earlier", "earlier"), ("unit:now", "now")):
            sql = "INSERT INTO message (addressee, unit, fence, kind, body) VALUES (%s, %s, 1, 'cancel', '')"
            execute(url, sql, addressee, unit)
        execute(url, "INSERT INTO batch VALUES ('nobody', 1), ('gone', 1)")
        wait_for(url, "SELECT addressee FROM message", "unit:now")
        wait_for(url, "SELECT id FROM unit", "now")
        wait_for(url, "SELECT writer FROM batch", "gone")
        execute(url, "UPDATE run SET state = 'completed'")
        wait_for(url, "SELECT id FROM unit")


def test_a_dead_process_is_forgotten_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_REMEMBERED", BEAT)
    url = new_database("procrastinate")
    add_process(url, "gone", "dead")
    with cluster_on(url):
        wait_for(url, "SELECT id FROM process WHERE id = 'gone'")


def test_a_claim_whose_word_was_lost_may_be_made_again_by_the_same_process_alone() -> None:
    url = new_database("procrastinate")
    add_unit(url, "u", "sent")
    with connect_to(url, "test") as connection:
        assert claim(connection, "u", 1, "p") is not None
        assert claim(connection, "u", 1, "p") is not None
        assert claim(connection, "u", 1, "other") is None


def test_a_process_that_was_declared_dead_takes_no_run_before_it_has_found_out() -> None:
    url = new_database("procrastinate")
    with cluster_on(url) as cluster:
        record_run(url, "interrupted")
        process = cluster.journal.process
        process._ends.set()  # it does not beat: it does not find out
        execute(url, "UPDATE process SET state = 'dead'")
        assert not process.dead
        with pytest.raises(JournalError, match="this process was declared dead"):
            cluster.journal.begin(request_of("new"), team_of(), {}, None)


def test_who_asks_whether_a_process_died_keeps_its_transaction_awake() -> None:
    url = new_database("procrastinate")
    add_process(url, "silent")
    with connect_to(url, "test") as connection:
        connection.execute("SET idle_in_transaction_session_timeout = '1s'")
        with connection.transaction():
            assert has_died(connection, "silent", 2.0)
    assert execute(url, "SELECT state FROM process") == [("dead",)]


def test_a_transaction_in_which_a_process_was_stopped_ends() -> None:
    url = new_database("procrastinate")
    with (
        cluster_on(url, started=False) as stopped,
        cluster_on(url) as other,
        pytest.raises(JournalError),
        stopped.journal.database.writing() as connection,
    ):
        connection.execute("SELECT 1")
        assert other.journal.begin(request_of("r"), team_of(), {}, None) is not None
        connection.execute("SELECT 1")


def test_a_process_whose_connection_hangs_hears_that_it_cannot_reach_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = new_database("procrastinate")
    hangs, told = threading.Event(), threading.Event()
    monkeypatch.setattr(Process, "_beat", lambda *_: hangs.wait(90))
    process = Process(url, BEAT)
    process.on_unreachable(told.set)
    process.start()
    try:
        assert told.wait(60)
    finally:
        hangs.set()
        process.close()


def test_an_engine_that_cannot_be_made_ready_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database("procrastinate")
    with cluster_on(url, started=False) as cluster:
        install, failures = cluster.delivery.install, [psycopg.OperationalError("the server starts"), None]

        def failing() -> None:
            if failures and (error := failures.pop(0)) is not None:
                raise error
            install()

        monkeypatch.setattr(cluster.delivery, "install", failing)
        cluster.start()
        assert failures == []


async def test_a_worker_that_can_record_nothing_ends_and_takes_nothing() -> None:
    url = new_database("procrastinate")
    team = kt.Team("desk", [kt.Member("m0", _idle)])
    with cluster_on(url, started=False) as cluster, cluster_on(url, started=False) as other:
        worker = Worker(cluster, team)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run, 0.0)
            await worker.wait_ready()
            cluster.journal.database.problem = "it cannot be written: no space"
            await to_thread.run_sync(other.submit, team, request_of("r"))
            await until(lambda: worker.lost)
        assert str(worker.lost).endswith("it cannot be written: no space")
    assert execute(url, "SELECT state FROM unit") == [("sent",)]


async def _idle(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return "done"


class Judge:
    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        text = "a much longer prompt of many words that is no attempt's"
        await context.context.model("m:x").complete(kt.ModelRequest([kt.Message.user(text)], max_tokens=30))
        return kt.EvaluationVerdict.passed()


async def test_a_call_of_the_coordinator_ends_no_call_of_an_attempt_with_its_number() -> None:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user("short")], max_tokens=30)
        return (await context.model("m:x").complete(request)).text

    runtime = kt.Runtime(models={"m:x": FunctionModel(lambda _: "said", name="test:m")})
    team = kt.Team("desk", [kt.Member("m0", work)], evaluators={"judge": Judge()}, runtime=runtime)
    plan = kt.TaskGraph([kt.Task("a", "do", member="m0", evaluator="judge")])
    async with working(new_database("procrastinate"), team) as cluster:
        await to_thread.run_sync(cluster.submit, team, kt.TeamExecutionRequest("Go.", plan=plan, run_id="r"))
        await until(lambda: cluster.journal.show("r").state not in {"queued", "running"})
        used = [call.usage.tokens for call in cluster.journal.calls("r")]
    assert used == [2, 12]


async def test_once_an_attempt_is_recalled_nothing_that_it_asks_is_answered() -> None:
    recalled = object.__new__(RemoteAttempt)

    class MessageQueue:
        async def next(self) -> Message:
            await anyio.sleep_forever()
            raise AssertionError

    async with anyio.create_task_group() as group:
        group.start_soon(recalled._serve, cast("Any", MessageQueue()), cast("Any", None))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert recalled._take(Message("u", 1, "ask", (1, None))) == (None, None)


def test_a_look_after_a_long_time_counts_for_nobody() -> None:
    url = new_database("procrastinate")
    add_process(url, "silent")
    now = [0.0]
    observer = Observer(1.0, lambda: now[0])
    with connect_to(url, "test") as connection:
        found: list[list[str]] = []
        for now[0] in (0.0, 1.0, 10.0, 11.0, 12.0):
            found.append(observer.late(connection))
    assert found == [[], [], [], [], ["silent"]]
