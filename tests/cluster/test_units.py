"""Units on the database: which delivery counts, who has a unit, and where messages about it go."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import psycopg
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.mailbox import Message, message_to
from kairo_team.cluster.monitor import Monitor, sweep
from kairo_team.cluster.units import Unit, claim, queue_of
from kairo_team.durable import line, processes
from kairo_team.durable.codec import encode
from kairo_team.durable.connection import execute
from kairo_team.durable.processes import LATE, Observer, Process, has_connection, has_died
from kairo_team.engine.records.digests import digests_of
from kairo_team.errors import JournalError
from kairo_team.tck.journal_stage import request_of, team_of
from tests.cluster import stage

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

ATTEMPT = Unit("u", "attempt", "r", "q", "attempt:1:a:1", 1, "coordinator")
RUN = Unit("run:r", "run", "r", "q")


class Post:
    """A delivery engine that writes down what it is asked to deliver."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.priorities: list[int] = []
        """Of what was sent."""
        self.there: set[tuple[str, int]] = set()
        self.forgotten: list[str] = []

    def install(self) -> None:
        """Do nothing."""

    def send(
        self, connection: Any, queue: str, unit: str, fence: int, *, delay: float = 0.0, priority: int = 0
    ) -> None:
        self.sent.append((unit, fence))
        self.priorities.append(priority)

    def under_way(self, connection: Any, sent: Any) -> set[tuple[str, int]]:
        return self.there & {*sent}

    def forget(self, connection: Any, units: Any) -> None:
        self.forgotten += units


class Desk:
    """A database, with what tests do to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cluster = Cluster(url, engine="procrastinate", beat=60.0, max_deliveries=2)
        self.post = Post()
        self.cluster.delivery = self.post  # type: ignore[assignment]  # it is one that does less
        self.cluster._install()
        self.monitor = self.cluster.monitor

    def do(self, *statements: Any) -> None:
        with self.cluster.journal.database.writing() as connection:
            for statement in statements:
                execute(connection, statement)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        return stage.execute(self.url, sql, *values)

    def claim(self, unit: Unit, process: str = "worker") -> Any:
        return self.cluster.journal.change(lambda one: claim(one, unit.id, unit.fence, process))

    def state(self, unit: str = "u") -> tuple[str, int, str | None]:
        found: tuple[str, int, str | None] = self.rows("SELECT state, fence, process FROM unit WHERE id = %s", unit)[0]
        return found

    def messages(self) -> list[tuple[str, int, str]]:
        return self.rows("SELECT addressee, fence, kind FROM message ORDER BY id")

    def add_process(self, name: str, *, beats: int = 0, state: str = "live", lock: int = 1) -> None:
        self.rows(
            "INSERT INTO process (id, kind, host, pid, lock, state, beats, started_at)"
            " VALUES (%s, 'worker', 'h', 1, %s, %s, %s, 0)",
            name, lock, state, beats,
        )  # fmt: skip

    def look(self, observer: Observer | None = None, times: int = 1) -> None:
        with self.cluster.journal.connecting(own="monitor") as connection:
            for _ in range(times):
                self.monitor._look(connection, observer or Observer(60.0))
            # A server on a busy machine closes the connection, and so frees its lock, after the next look has begun.
            connection.execute("SELECT pg_advisory_unlock_all()")


@pytest.fixture
def desk(database: str) -> Generator[Desk]:
    made = Desk(database)
    yield made
    made.cluster.close()


# ---------------------------------------------------------------------- claims and fences


def test_a_delivery_is_claimed_by_one_process(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, "what to do"))
    assert desk.claim(ATTEMPT, "one").unit == ATTEMPT
    assert desk.claim(ATTEMPT, "two") is None
    assert desk.state() == ("taken", 1, "one")


def test_who_claims_again_what_it_has_gets_it(desk: Desk) -> None:
    """The word of its first commit may have been lost."""
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    assert desk.claim(ATTEMPT) == desk.claim(ATTEMPT)


def test_a_delivery_with_an_earlier_fence_claims_nothing(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None), *ATTEMPT.fencing())
    desk.do(*ATTEMPT.next().sending(desk.cluster.delivery, None))
    assert desk.claim(ATTEMPT) is None
    assert desk.claim(ATTEMPT.next()) is not None


def test_an_attempt_is_sent_anew_only_where_its_delivery_was_lost(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, "first"))
    desk.claim(ATTEMPT)
    desk.do(*ATTEMPT.next().sending(desk.cluster.delivery, "second"))
    assert desk.state() == ("taken", 1, "worker")
    desk.do(*ATTEMPT.fencing())
    desk.do(*ATTEMPT.next().sending(desk.cluster.delivery, "second"))
    assert desk.state() == ("sent", 2, None)


def test_what_is_sent_is_delivered_in_the_same_transaction(desk: Desk) -> None:
    def fail(_connection: Any) -> None:
        raise ValueError("the transaction fails")

    with pytest.raises(ValueError, match="fails"):
        desk.do(*ATTEMPT.sending(desk.cluster.delivery, None), fail)
    assert desk.rows("SELECT id FROM unit") == []
    assert desk.post.sent == [("u", 1)]  # it was told inside that transaction


def test_only_the_delivery_that_counts_ends_its_unit(desk: Desk) -> None:
    journal = desk.cluster.journal
    desk.do(*RUN.sending(desk.cluster.delivery, None))
    desk.claim(RUN)
    desk.rows("UPDATE unit SET fence = 2")
    journal.end_unit(RUN.id, 1, "it cannot be")
    assert desk.state(RUN.id)[0] == "taken"
    journal.end_unit(RUN.id, 2, None)
    assert desk.state(RUN.id)[0] == "done"


def test_only_who_has_a_unit_gives_it_back(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT)
    desk.monitor.give_back(replace(ATTEMPT, fence=7), "the worker ended")
    assert desk.state() == ("taken", 1, "worker")
    desk.monitor.give_back(ATTEMPT, "the worker ended")
    assert desk.state() == ("lost", 2, None)
    assert desk.messages() == [("coordinator", 1, "lost")]


# ---------------------------------------------------------------------- messages


def test_a_letter_to_a_unit_that_nobody_has_waits_for_who_takes_it(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None), *ATTEMPT.message_to_worker("directive", "shorter"))
    assert desk.messages() == [("unit:u", 1, "directive")]
    desk.claim(ATTEMPT)
    assert desk.messages() == [("worker", 1, "directive")]


def test_a_letter_to_an_earlier_delivery_is_not_sent(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT)
    desk.do(*replace(ATTEMPT, fence=3).message_to_worker("cancel", "enough"))
    assert desk.messages() == []
    desk.do(*ATTEMPT.message_to_worker("cancel", "enough"))
    assert desk.messages() == [("worker", 1, "cancel")]


async def test_who_coordinates_an_attempt_and_makes_it_reads_the_letters_of_both(desk: Desk) -> None:
    """And a unit that is delivered to one process twice takes no messages from the first delivery."""
    mailbox = desk.cluster.mailbox
    with mailbox.open("u", "coordinator") as coordinator, mailbox.open("u", "worker") as worker:
        with mailbox.open("u", "worker"):
            pass
        for kind in ("spent", "directive", "done", "cancel"):
            mailbox._give("u", 1, kind, encode(None))
        await anyio.wait_all_tasks_blocked()
        assert [one.kind for one in coordinator._waiting] == ["spent", "done"]
        assert [one.kind for one in worker._waiting] == ["directive", "cancel"]


def test_the_mailbox_of_a_process_is_there_before_its_runs_ask_for_it(database: str) -> None:
    """From Python 3.12 on two threads that ask first make two: each would drop the other's messages."""
    cluster = Cluster(database, engine="procrastinate", beat=60.0)
    cluster.start()
    assert "mailbox" in vars(cluster)
    cluster.close()


async def test_a_second_delivery_of_a_unit_takes_no_message_from_the_first_as_it_leaves(desk: Desk) -> None:
    """The thread of the mailbox reads all the while."""
    mailbox, over, given = desk.cluster.mailbox, threading.Event(), 0

    def give() -> None:
        nonlocal given
        while not over.is_set():
            mailbox._give("u", 1, "directive", encode(None))
            given += 1

    switching = sys.getswitchinterval()
    with mailbox.open("u", "worker") as first:
        sys.setswitchinterval(1e-6)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(to_thread.run_sync, give)
                for _ in range(20):
                    for _ in range(100):
                        with mailbox.open("u", "worker"):
                            pass
                    await anyio.lowlevel.checkpoint()
                over.set()
        finally:
            over.set()
            sys.setswitchinterval(switching)
        await anyio.wait_all_tasks_blocked()
        assert len(first._waiting) == given


async def test_a_message_whose_long_text_cannot_be_read_comes_once_it_can_be(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another message about the unit may never come: one that is lost holds its attempt up for ever."""
    mailbox, database, breaks = desk.cluster.mailbox, desk.cluster.journal.database, ["twice", "once"]
    reading, text = database.reading, "so long that it is kept apart " * 400

    def breaking() -> Any:
        if breaks:
            raise JournalError("here", f"its connection broke {breaks.pop()}")
        return reading()

    monkeypatch.setattr(database, "reading", breaking)
    with mailbox.open("u", "coordinator") as messages:
        desk.do(*message_to(mailbox._process.id, Message("u", 1, "done", text), "r"))
        desk.do(*message_to(mailbox._process.id, Message("u", 1, "spent", "short"), "r"))
        with anyio.fail_after(60):
            assert [(await messages.next()).body for _ in range(2)] == [text, "short"]
    assert not breaks
    await stage.until(lambda: not desk.messages())


# ---------------------------------------------------------------------- the monitor


def test_the_old_name_of_the_monitor_warns(desk: Desk) -> None:
    with pytest.warns(DeprecationWarning, match="goes in 1.0: write monitor"):
        assert desk.cluster.reaper is desk.monitor


@pytest.mark.parametrize("state", ["dead", None])
def test_what_a_dead_process_had_is_taken_from_it(desk: Desk, state: str | None) -> None:
    """Whoever declared it dead; also of one that is not known any more."""
    desk.add_process("alive")
    if state is not None:
        desk.add_process("worker")
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None), *RUN.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT)
    desk.claim(RUN)
    desk.rows("UPDATE process SET state = %s WHERE id = 'worker'", state)
    desk.post.sent.clear()
    desk.look()
    assert desk.state() == ("lost", 2, None)
    assert desk.messages()[0] == ("coordinator", 1, "lost")
    assert desk.state(RUN.id) == ("sent", 2, None)
    assert desk.post.sent == [(RUN.id, 2)]


def test_what_a_living_process_has_stays_with_it(desk: Desk) -> None:
    desk.add_process("worker")
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT)
    desk.look()
    assert desk.state() == ("taken", 1, "worker")


def test_only_who_holds_the_lock_looks_after_others(desk: Desk) -> None:
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT, "nobody")
    other = Monitor(desk.cluster.journal, desk.cluster.delivery, 2)
    with desk.cluster.journal.connecting(own="monitor") as connection:
        connection.execute("SELECT pg_advisory_lock(?)", (0x6B61_6972_0002,))
        desk.look()
        assert desk.state() == ("taken", 1, "nobody")
        other._look(connection, Observer(60.0))
    assert desk.state() == ("lost", 2, None)


def test_who_watches_again_begins_with_what_it_sees(desk: Desk) -> None:
    """Without the lock nobody was watched: nothing is known of that time."""
    clock = [0.0]
    desk.add_process("worker")
    observer = Observer(60.0, lambda: clock[0])
    desk.look(observer)
    with desk.cluster.journal.connecting(own="monitor") as connection:
        connection.execute("SELECT pg_advisory_lock(?)", (0x6B61_6972_0002,))
        clock[0] += 60
        desk.look(observer)
    for _ in range(LATE - 1):
        clock[0] += 60
        desk.look(observer)
    assert desk.rows("SELECT state FROM process") == [("live",)]


def test_a_run_that_ends_every_process_is_given_up_with_a_sentence(desk: Desk) -> None:
    desk.do(*RUN.sending(desk.cluster.delivery, None))
    desk.claim(RUN)
    desk.look()
    assert desk.state(RUN.id) == ("sent", 2, None)
    desk.claim(RUN.next())
    desk.look()
    assert desk.state(RUN.id)[0] == "done"
    problem = desk.rows("SELECT problem FROM unit")[0][0]
    assert problem.startswith("given up: 2 workers died or failed while they coordinated it, and nothing was")
    assert "kairo resume r" in problem


def test_a_run_that_was_only_given_back_counts_no_death(desk: Desk) -> None:
    desk.do(*RUN.sending(desk.cluster.delivery, None))
    unit = RUN
    for _ in range(4):
        desk.claim(unit)
        desk.monitor.give_back(unit, "the worker ended")
        unit = unit.next()
    assert desk.state(RUN.id) == ("sent", 5, None)


def test_what_was_sent_and_has_no_delivery_under_way_is_sent_again(desk: Desk) -> None:
    """In two audits in a row: between the look at the units and at the deliveries one may have come and gone."""
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.post.sent.clear()
    desk.post.there.add(("u", 1))
    desk.look(times=3)
    assert desk.post.sent == []
    desk.post.there.clear()
    desk.look()
    assert desk.post.sent == []
    desk.look()
    assert desk.post.sent == [("u", 1)]


def test_a_process_gives_back_what_it_has_and_does_not_work_on(desk: Desk) -> None:
    process = desk.cluster.journal.process.id
    desk.add_process(process)
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None))
    desk.claim(ATTEMPT, process)
    doing = {("u", 1)}
    desk.monitor.watch(lambda: doing)
    desk.look(times=2)
    assert desk.state() == ("taken", 1, process)
    doing.clear()
    desk.look(times=2)
    assert desk.state() == ("lost", 2, None)


def test_what_is_left_over_of_earlier_sessions_is_deleted(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.begin(request_of("r"), team_of(), {}, None)
    desk.do(*ATTEMPT.sending(desk.cluster.delivery, None), *message_to("gone", Message("u", 1, "spent", None), "r"))
    desk.rows("UPDATE run SET epoch = 2")
    with journal.connecting() as connection:
        sweep(connection, desk.cluster.delivery)
    assert desk.rows("SELECT id FROM unit") == []
    assert desk.messages() == []
    assert desk.post.forgotten == ["u"]


# ---------------------------------------------------------------------- who lives


def lateness(desk: Desk, steps: Sequence[tuple[float, int]]) -> list[list[str]]:
    """Look after so many beats each, in which the process beat so often; return who was late each time."""
    clock, found = [1e9], list[list[str]]()
    observer = Observer(1.0, lambda: clock[0])
    with desk.cluster.journal.connecting() as connection:
        for seconds, beats in steps:
            clock[0] += seconds
            connection.execute("UPDATE process SET beats = beats + ?", (beats,))
            found.append(observer.late(connection))
    return found


@contextmanager
def connected(desk: Desk, lock: int) -> Generator[None]:
    """Hold the lock of a process whose connection lives."""
    with psycopg.connect(desk.url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s, %s)", (0x6B61_6972, lock))
        yield


def test_a_process_is_late_by_its_counter_after_three_beats(desk: Desk) -> None:
    desk.add_process("worker", lock=5)
    with connected(desk, 5):
        assert lateness(desk, [(0, 0), (1, 0), (1, 0), (0.9, 0)]) == [[], [], [], []]
        assert lateness(desk, [(0, 0), (1, 0), (1, 0), (1, 0)])[-1] == ["worker"]
        assert lateness(desk, [(0, 0), (1, 0), (1, 0), (1, 1), (1, 0)])[-1] == []


def test_clocks_of_machines_are_not_compared(desk: Desk) -> None:
    """A process that was started in the future, or long ago, by its own clock, is as alive as its counter says."""
    desk.add_process("worker", lock=5)
    for started in (0, 1e12):
        desk.rows("UPDATE process SET started_at = %s", started)
        with connected(desk, 5):
            assert lateness(desk, [(0, 0), (1, 1), (1, 1), (1, 1), (1, 1)]) == [[]] * 5


def test_one_whose_connection_is_gone_is_late_sooner(desk: Desk) -> None:
    desk.add_process("worker", lock=5)
    assert lateness(desk, [(0, 0), (1, 0), (0.6, 0)]) == [[], [], ["worker"]]


def test_a_process_with_a_longer_beat_than_its_observers_is_late_by_its_own(desk: Desk) -> None:
    """Programs that coordinate runs need not know the beat of the workers."""
    desk.add_process("worker", lock=5)
    desk.rows("UPDATE process SET beat = 2")
    steps = [(0.0, 0), (1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0)]
    with connected(desk, 5):
        assert lateness(desk, steps) == [[]] * 6
        assert lateness(desk, [*steps, (1.0, 0)])[-1] == ["worker"]
    while has_connection_of(desk, 5):
        time.sleep(0.01)
    assert lateness(desk, [(0, 0), (1, 0), (1, 0), (0.9, 0)]) == [[]] * 4
    assert lateness(desk, [(0, 0), (1, 0), (1, 0), (1, 0)])[-1] == ["worker"]


def test_a_process_says_how_often_it_beats(desk: Desk) -> None:
    process, _ = beating(desk)
    assert desk.rows("SELECT id, beat FROM process") == [(process.id, 60.0)]


def has_connection_of(desk: Desk, lock: int) -> bool:
    with desk.cluster.journal.connecting() as connection:
        return has_connection(connection, lock)


def test_time_in_which_nobody_could_look_makes_nobody_late(desk: Desk) -> None:
    desk.add_process("worker", lock=5)
    with connected(desk, 5):
        assert lateness(desk, [(0, 0), (1, 0), (100, 0), (1, 0), (1, 0)]) == [[]] * 5


def test_who_takes_a_run_over_waits_for_a_beat_of_its_owner(desk: Desk) -> None:
    desk.add_process("owner", lock=5)
    with desk.cluster.journal.connecting() as connection:
        with connected(desk, 5):
            assert not has_died(connection, "owner", 0.05)
        while has_connection(connection, 5):
            time.sleep(0.01)
        assert has_died(connection, "owner", 0.05)
    assert desk.rows("SELECT state FROM process") == [("dead",)]


def test_who_takes_a_run_over_waits_as_long_as_its_owner_s_beat(desk: Desk) -> None:
    """The connection of the owner is gone for a moment, and it beats less often than who takes over."""
    desk.add_process("owner", lock=5)
    desk.rows("UPDATE process SET beat = 60")
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.3):  # longer than one and a half beats of who asks
            desk.rows("UPDATE process SET beats = beats + 1")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with desk.cluster.journal.connecting() as connection:
            assert not has_died(connection, "owner", 0.05)
    finally:
        over.set()
        thread.join()


def beating(desk: Desk) -> tuple[Process, Callable[[], None]]:
    """A process that is registered and beats by hand."""
    process = Process(desk.url, 60.0)

    def beat() -> None:
        with desk.cluster.journal.connecting() as connection:
            process._register(connection)
            process._beat(connection)

    beat()
    return process, beat


def test_a_dead_process_is_not_alive_again_by_its_beat(desk: Desk) -> None:
    process, beat = beating(desk)
    told: list[bool] = []
    process.on_dead(lambda: told.append(True))
    beat()
    assert not process.dead
    desk.rows("UPDATE process SET state = 'dead'")
    beat()
    assert process.dead
    assert told == [True]
    assert desk.rows("SELECT state FROM process") == [("dead",)]


async def test_a_process_that_was_declared_dead_records_nothing_more(desk: Desk) -> None:
    journal = desk.cluster.journal
    session = journal.begin(request_of("r"), team_of(), {}, None)
    lost: list[JournalError] = []
    session.serve(lambda: (0.0, 0), lambda _reason: None, lost.append)
    session.put("before", 1)
    await session.written()
    desk.rows("UPDATE process SET state = 'dead'")
    with journal.connecting() as connection:
        journal.process._beat(connection)
    session.put("after", 2)
    with pytest.raises(JournalError, match="declared dead"):
        await session.written()
    assert len(lost) == 1
    with pytest.raises(JournalError, match="declared dead"):
        journal.begin(request_of("r2"), team_of(), {}, None)
    assert desk.rows("SELECT key FROM step") == [("before",)]


def test_a_process_that_was_declared_dead_and_does_not_know_it_begins_no_run(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.begin(request_of("r"), team_of(), {}, None)
    journal.process._beat = lambda _connection: None  # type: ignore[method-assign, assignment]  # it hears nothing
    desk.rows("UPDATE process SET state = 'dead'")
    with pytest.raises(JournalError, match="declared dead"):
        journal.begin(request_of("r2"), team_of(), {}, None)


def test_a_process_notices_that_it_cannot_reach_the_database(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test: on a slow machine a process may not reach the database for a moment."""
    now = 0.0
    for module in (line, processes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    process, told = Process(desk.url, 0.05), threading.Event()
    process.on_unreachable(told.set)
    process.start()
    try:
        assert process.line._ticked.wait(60)
        assert not told.is_set()

        def cut_off(_connection: Any) -> None:
            raise psycopg.OperationalError

        process._beat = cut_off  # type: ignore[method-assign, assignment]  # it is cut off
        now = 1.0
        assert told.wait(60)
    finally:
        process.close()


# ---------------------------------------------------------------------- versions


def test_workers_of_another_version_serve_other_queues() -> None:
    def of(instructions: str) -> str:
        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            return ""

        team = kt.Team("desk", [kt.Member(kt.Role("writer", instructions=instructions), work, name="w")])
        return version_of(team, digests_of(team, {}))

    assert of("Write.") == of("Write.")
    assert queue_of(of("Write."), "w") != queue_of(of("Write briefly."), "w")
