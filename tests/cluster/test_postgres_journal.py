"""The journal in PostgreSQL where it differs from one file: fences, connections that break, text, and its URL."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import psycopg
import pytest

import kairo_team as kt
from kairo_team.durable import postgres_database
from kairo_team.durable.connection import execute as execute_in
from kairo_team.durable.kept_files import encode_for
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.postgres_database import PostgresConnection, PostgresDatabase
from kairo_team.errors import JournalError
from kairo_team.recorded import Place
from kairo_team.tck.journal_stage import HELD, STEP, USED, Served, request_of, result_of, send, team_of
from kairo_team.testing.postgres_server import PASSWORD, PostgresServer
from tests.cluster.server import own_server, wait_until_blocked
from tests.cluster.stage import execute

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


@contextmanager
def journal_on(url: str, *, patience: float = 60.0) -> Generator[PostgresJournal]:
    """A journal, closed at the end."""
    journal = PostgresJournal(url, beat=0.5, patience=patience)
    try:
        yield journal
    finally:
        journal.close()


def begun(journal: PostgresJournal, run_id: str = "r", place: Place | None = None) -> Any:
    return journal.begin(request_of(run_id), team_of(), {}, place)


def send_unit(url: str, fence: int = 1, state: str = "taken") -> None:
    """Let the run `r` have an attempt that a worker has taken."""
    sql = (
        "INSERT INTO unit (id, kind, run_id, step, epoch, queue, fence, state, body, sent_at)"
        " VALUES ('u', 'attempt', 'r', %s, 1, 'q', %s, %s, '', 0)"
        " ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, state = excluded.state"
    )
    execute(url, sql, STEP, fence, state)


def change_unit(url: str, change: str) -> None:
    """Change it as the monitor does."""
    options = "-c search_path=kairo -c application_name=kairo-team\\ monitor"
    with psycopg.connect(url, options=options) as connection:
        connection.execute(f"UPDATE unit SET {change} WHERE id = 'u'".encode())  # noqa: S608 - a test wrote it


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


# ---------------------------------------------------------------------- fences


async def test_a_take_over_waits_for_a_transaction_that_has_compared_its_epoch(database: str) -> None:
    """And what that transaction wrote is part of what is recovered: nothing comes after the recovery."""
    with journal_on(database) as first, journal_on(database) as second:
        session = begun(first)
        written, may_end = threading.Event(), threading.Event()

        def hold(_connection: Any) -> None:
            written.set()
            assert may_end.wait(60)

        session.put("before", 1)
        session.queue_statements(hold)
        assert written.wait(60)
        found: list[Any] = []
        taking = in_thread(lambda: found.extend(second.recover("r", take_over=True)))
        wait_until_blocked(database, "journal")
        assert not found
        may_end.set()
        taking.join(60)
        assert found[0].steps == {"before": 1}
        session.put("after", 2)
        with pytest.raises(JournalError, match="taken the run over"):
            await session.written()


@pytest.mark.parametrize("change", ["fence = fence + 1", "state = 'lost'"])
async def test_a_fence_is_not_raised_while_a_delivery_writes_and_stops_it_afterwards(
    database: str, change: str
) -> None:
    with journal_on(database) as coordinator, journal_on(database) as worker:
        begun(coordinator)
        send_unit(database)
        session = worker.open_attempt("r", STEP, 1, "u", 1).journal
        written, may_end = threading.Event(), threading.Event()

        def hold(_connection: Any) -> None:
            written.set()
            assert may_end.wait(60)

        session.queue_statements(hold)
        assert written.wait(60)
        raising = in_thread(lambda: change_unit(database, change))
        wait_until_blocked(database, "monitor")
        may_end.set()
        raising.join(60)
        with pytest.raises(JournalError):
            await send(session)
        with pytest.raises(JournalError, match="another process has"):
            worker.open_attempt("r", STEP, 1, "u", 1)
        assert coordinator.calls("r") == ()


async def test_runs_inside_an_attempt_end_with_its_delivery(database: str) -> None:
    """Also those that begin afterwards."""
    with journal_on(database) as coordinator, journal_on(database) as worker:
        begun(coordinator)
        send_unit(database)
        records = worker.open_attempt("r", STEP, 1, "u", 1)
        inner = records.inside_journal.begin(request_of("r.1"), team_of(), {}, Place("r", STEP, "writer"))
        await send(inner)
        send_unit(database, fence=2)
        inner.put("late", True)
        with pytest.raises(JournalError):
            await inner.written()
        with pytest.raises(JournalError):
            records.inside_journal.begin(request_of("r.2"), team_of(), {}, Place("r", STEP, "writer"))
        again = worker.open_attempt("r", STEP, 1, "u", 2)
        assert [run.request.run_id for run in again.inside] == ["r.1"]
        assert again.inside[0].steps == {}
        assert [call.state for call in again.inside[0].calls] == ["sent"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE unit SET fence = 2", "another process has taken the run over"),
        ("UPDATE run SET state = 'completed'; DELETE FROM unit", "the run has ended: completed"),
        ("DELETE FROM run; DELETE FROM unit", "the run was forgotten"),
    ],
)
async def test_a_delivery_that_is_over_is_told_why(database: str, change: str, why: str) -> None:
    with journal_on(database) as coordinator, journal_on(database) as worker:
        begun(coordinator)
        send_unit(database)
        records = worker.open_attempt("r", STEP, 1, "u", 1)
        for statement in change.split("; "):
            execute(database, statement)
        records.journal.put("late", True)
        with pytest.raises(JournalError, match=why):
            await records.journal.written()


async def test_no_run_begins_inside_an_attempt_of_a_session_that_was_taken_over(database: str) -> None:
    """The session that goes on would not know of it, nor of what it spends."""
    with journal_on(database) as coordinator, journal_on(database) as other, journal_on(database) as worker:
        begun(coordinator)
        send_unit(database)
        records = worker.open_attempt("r", STEP, 1, "u", 1)
        assert len(other.recover("r", take_over=True)) == 1
        with pytest.raises(JournalError, match="another process has the unit now"):
            records.inside_journal.begin(request_of("r.1"), team_of(), {}, Place("r", STEP, "writer"))


async def test_a_fence_is_not_raised_while_a_run_begins_inside_an_attempt(database: str) -> None:
    """Else it would begin after the next delivery was told which runs are inside."""
    with journal_on(database) as coordinator, journal_on(database) as worker:
        begun(coordinator)
        send_unit(database)
        with worker.under("u", 1)._owned():
            raising = in_thread(lambda: change_unit(database, "fence = fence + 1"))
            wait_until_blocked(database, "monitor")
        raising.join(60)
        with pytest.raises(JournalError, match="another process has the unit now"), worker.under("u", 1)._owned():
            pytest.fail("the delivery counts no more")


async def test_deliveries_of_an_attempt_go_on_from_what_the_last_one_recorded(database: str) -> None:
    """Calls of each have numbers of their own; what nobody saw the end of is in doubt, and all of it is charged."""
    with journal_on(database) as coordinator, journal_on(database) as worker:
        own = begun(coordinator)
        own.serve(lambda: (7.5, 12), lambda _reason: None, lambda _error: None)
        own.put("plan:1", "a plan")
        number = await send(own, step="plan:1:1")
        own.ended(number, "answered", USED)
        send_unit(database)
        first = worker.open_attempt("r", STEP, 1, "u", 1)
        assert (dict(first.steps), first.calls) == ({}, ())
        one, two = await send(first.journal), await send(first.journal, "tool", key=f"call:{STEP}:tool:1")
        first.journal.put_answer(f"call:{STEP}:model:1", "an answer", one, USED)
        await first.journal.written()
        assert (one, two) == (1, 2)
        send_unit(database, fence=2)
        second = worker.open_attempt("r", STEP, 1, "u", 2)
        assert dict(second.steps) == {f"call:{STEP}:model:1": "an answer"}
        assert [call.state for call in second.calls] == ["answered", "sent"]
        assert set(second.journal.in_doubt) == {f"call:{STEP}:tool:1"}
        assert [call.what for call in coordinator.in_doubt("r")] == ["tool"]
        await send(second.journal)
        assert [call.what for call in coordinator.in_doubt("r")] == ["tool"]
        charged = coordinator.charges("r", STEP)
        assert charged.tokens == USED.tokens + HELD.tokens * 2
        assert charged.loops == 1
        assert coordinator.show("r").seconds == 7.5


# ---------------------------------------------------------------------- broken connections


def break_connections(url: str) -> int:
    """Cut every connection to a database but this one; return how many."""
    sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        return int(connection.execute(f"{sql} AND pid <> pg_backend_pid()".encode()).fetchone()[0])  # type: ignore[index]  # a count


async def test_connections_that_break_lose_nothing_and_double_nothing(database: str) -> None:
    with journal_on(database) as journal, journal_on(database) as reader:
        session = begun(journal)
        served = Served(session)
        for number in range(30):
            served.emit(2)
            session.put(f"step:{number}", number)
            if number % 3 == 0:
                break_connections(database)
            await send(session)
            assert reader.show("r").state in ("running", "interrupted")
        await session.written()
        assert [event.seq for event in journal.events_after("r")] == [*range(1, 61)]
        assert len(journal.calls("r")) == 30
        assert not served.lost
        run = reader.recover("r", take_over=True)[0]
        assert run.steps == {f"step:{number}": number for number in range(30)}


async def test_a_read_or_a_change_whose_connection_breaks_is_done_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not where the commit itself breaks: whether that was done is unknown."""
    with journal_on(database) as journal, journal_on(database) as other:
        session = begun(journal)
        await session.written()
        row, breaks = PostgresJournal._row, [2]

        def breaking(self: Any, connection: Any, run_id: str, **given: Any) -> Any:
            if breaks[0]:
                breaks[0] -= 1
                connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return row(self, connection, run_id, **given)

        monkeypatch.setattr(PostgresJournal, "_row", breaking)
        assert other.show("r").run_id == "r"
        assert not breaks[0]
        breaks[0] = 2
        assert [run.request.run_id for run in other.recover("r", take_over=True)] == ["r"]
        assert not breaks[0]


async def test_a_long_text_whose_reading_breaks_is_read_again(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, breaks = "so long that it is kept apart " * 400, [2]
    with journal_on(database) as journal:
        written, keeping = encode_for("r", {"text": text})
        with journal.database.writing() as connection:
            for statement in keeping:
                execute_in(connection, statement)
        begun = PostgresConnection.execute

        def breaking(self: Any, sql: str, *values: Any) -> Any:
            if breaks[0] and sql.startswith("SELECT data FROM file"):
                breaks[0] -= 1
                begun(self, "SELECT pg_terminate_backend(pg_backend_pid())")
            return begun(self, sql, *values)

        monkeypatch.setattr(PostgresConnection, "execute", breaking)
        assert journal.decode(written) == {"text": text}
        assert not breaks[0]


async def test_a_call_that_is_repeated_after_the_close_begins_no_new_process(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads cannot be stopped: a worker that is lost leaves calls behind, which come back with the database."""
    row, arrived, may_break = PostgresJournal._row, threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def breaking(self: Any, connection: Any, run_id: str, **given: Any) -> Any:
        if not may_break.is_set():
            arrived.set()
            assert may_break.wait(60)
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return row(self, connection, run_id, **given)

    def recover(journal: PostgresJournal) -> None:
        try:
            journal.recover("r", take_over=True)
        except JournalError as error:
            raised.append(error)

    with journal_on(database) as journal, journal_on(database) as other:
        await begun(journal).written()
        monkeypatch.setattr(PostgresJournal, "_row", breaking)
        left = in_thread(lambda: recover(other))
        assert arrived.wait(60)
        other.close()
        may_break.set()
        left.join(60)
        assert [str(error).partition(": ")[2] for error in raised] == ["the journal was closed meanwhile"]
        assert execute(database, "SELECT id FROM process") == [(journal.process.id,)]
        assert journal.show("r").state == "running"
        assert other.show("r").run_id == "r"  # a closed journal may be used again


async def test_a_process_that_has_ended_is_not_started_again(database: str) -> None:
    journal = PostgresJournal(database)
    process = journal.process
    journal.close()
    with pytest.raises(JournalError, match="the journal was closed meanwhile"):
        process.start()
    assert execute(database, "SELECT id FROM process") == []


async def test_a_commit_whose_word_was_lost_is_not_written_twice(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal_on(database) as journal:
        session = begun(journal)
        served = Served(session)
        write_all, lost = PostgresDatabase._write_all, [3, 2, 1]

        def cut_after_commit(self: Any, connection: Any, entries: Any, reached: Any) -> None:
            write_all(self, connection, entries, reached)
            if lost:
                lost.pop()
                connection.execute("COMMIT")
                raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(PostgresDatabase, "_write_all", cut_after_commit)
        for number in range(5):
            served.emit(3)
            session.put(f"step:{number}", number)
            await send(session)
        await session.written()
        assert not lost
        assert [event.seq for event in journal.events_after("r")] == [*range(1, 16)]
        assert len(journal.calls("r")) == 5


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_restarts_interrupts_nothing(how: str) -> None:
    with own_server() as server, journal_on(server.new_database()) as journal:
        session = begun(journal)
        served = Served(session)
        await send(session)
        getattr(server, how)()
        session.put("meanwhile", 1)
        in_thread(server.start)
        await send(session)
        assert not served.lost
        session.end(result_of("r", kt.TeamStatus.COMPLETED))
        await session.written()
        assert [call.state for call in journal.calls("r")] == ["sent", "sent"]
        assert journal.show("r").state == "completed"


async def test_a_server_without_free_connections_is_waited_for() -> None:
    with own_server(settings={"max_connections": "8"}) as server:
        url = server.new_database()
        with journal_on(url) as journal:
            session = begun(journal)
            await send(session)
            takers: list[Any] = []
            while True:
                try:
                    takers.append(psycopg.connect(url))
                except psycopg.OperationalError:
                    break
            freeing = threading.Timer(1.0, lambda: [one.close() for one in takers])
            freeing.start()
            assert len(journal.calls("r")) == 1
            freeing.join()
            await send(session)


async def test_a_database_that_stays_away_ends_the_run_with_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with own_server() as server, journal_on(server.new_database(), patience=1.0) as journal:
        session = begun(journal)
        served = Served(session)
        await send(session)
        server.stop()
        with anyio.fail_after(60), pytest.raises(JournalError, match="it cannot be written"):
            await send(session)
        assert [type(error) for error in served.lost] == [JournalError]
        with pytest.raises(JournalError, match="it cannot be reached"):
            journal.show("r")
        assert PASSWORD not in caplog.text
        assert PASSWORD not in str(served.lost)


async def test_the_close_of_a_journal_tries_a_database_that_is_away_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row as a writer may stay: only what is still to be written is worth the wait."""
    tries = list[str]()
    with own_server() as server, journal_on(server.new_database(), patience=2.0) as journal:
        session = begun(journal)
        await send(session)
        session.leave()
        server.stop()
        reach = postgres_database.connect_to

        def counted(url: str, purpose: str) -> PostgresConnection:
            tries.append(purpose)
            return reach(url, purpose)

        monkeypatch.setattr(postgres_database, "connect_to", counted)
        journal.close()
        assert tries == ["journal"]


# ---------------------------------------------------------------------- text and the URL


async def test_text_of_any_kind_is_recorded(database: str) -> None:
    """Plain columns lose what PostgreSQL cannot store; recorded values come back as they were."""
    strange = "nul \0 and half \ud800 of a pair"
    with journal_on(database) as journal:
        request = kt.TeamExecutionRequest(strange, run_id="r")
        session = journal.begin(request, team_of(), {"d": "\0"}, None)
        served = Served(session)
        served.emit(1)
        session.put("step", "nul \0")
        await session.sent(
            "model", strange, HELD, step=strange, key=strange, task_id=strange, member=strange, side_effect=None,
            loops=0,
        )  # fmt: skip
        assert journal.show("r").goal == "nul \N{REPLACEMENT CHARACTER} and half ? of a pair"
        assert [call.state for call in journal.calls("r")] == ["sent"]
        assert journal.recover("r", take_over=True)[0].steps == {"step": "nul \0"}
        journal.cancel("r", strange)


def test_no_error_and_no_log_shows_the_password(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {
        "no such host": f"postgresql://kairo:{PASSWORD}@127.0.0.1:1/x",
        "no such database": postgres.url_of("nothing"),
        "no URL": f"postgres ql://kairo:{PASSWORD}@127.0.0.1/x",
        "no port": f"postgresql://kairo:{PASSWORD}@127.0.0.1:none/x",
        "no option": f"postgresql://kairo:{PASSWORD}@127.0.0.1/x?pass={PASSWORD}",
    }
    for what, url in wrong.items():
        with pytest.raises((JournalError, ValueError)) as caught:
            PostgresJournal(url, patience=0.0)
        assert PASSWORD not in str(caught.value), what
        assert caught.value.__cause__ is None or PASSWORD not in str(caught.value.__cause__), what
    assert PASSWORD not in caplog.text


def test_a_journal_shows_its_database_alone(database: str) -> None:
    with journal_on(database) as journal:
        name = database.rpartition("/")[2]
        assert name in repr(journal)
        assert PASSWORD not in f"{journal!r}{journal.process!r}{journal.database!r}{journal.place}"


def test_a_connection_that_is_in_use_at_the_close_is_closed_after_its_use(database: str) -> None:
    journal = PostgresJournal(database)
    with journal.connecting() as connection:
        journal.close()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert connection.raw.closed


def test_a_database_of_another_format_is_refused(database: str) -> None:
    with journal_on(database):
        pass
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE kairo.about SET value = '999' WHERE name IN ('format', 'least')")
    with pytest.raises(JournalError, match="its tables have format 999"):
        PostgresJournal(database)


def test_the_tables_are_made_once_however_many_come_at_once(database: str) -> None:
    problems: list[Exception] = []

    def come() -> None:
        try:
            PostgresJournal(database).close()
        except Exception as error:  # noqa: BLE001 - shown below
            problems.append(error)

    threads = [in_thread(come) for _ in range(8)]
    for thread in threads:
        thread.join()
    assert not problems


def test_what_is_no_url_is_refused() -> None:
    for wrong in ("", None, 7):
        with pytest.raises(ValueError, match="a database is given by its URL"):
            PostgresJournal(wrong)  # type: ignore[arg-type]  # that is the point
