"""Queues of submitted runs: paused, limited, in the order of priorities; runs wait and are not refused."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.delivery import ENGINES, EngineName
from kairo_team.cluster.queues import why_held
from kairo_team.cluster.units import Unit
from kairo_team.errors import Misuse
from kairo_team.tck.journal_stage import request_of, team_of
from tests.cli.conftest import Kairo, forget_team_files, kairo, kairo_json, program, team_file
from tests.cluster.stage import execute, new_database, until, working
from tests.cluster.test_units import Desk, Post

__all__ = ["forget_team_files", "kairo", "kairo_json", "program", "team_file"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
OTHER = kt.Team("other", [kt.Member("hand", lambda _: "done")])


class SurePost(Post):
    """Loses nothing on the way."""

    def under_way(self, connection: Any, sent: Any) -> set[tuple[str, int]]:
        return {*sent}


@pytest.fixture
def desk(database: str) -> Generator[Desk]:
    made = Desk(database)
    made.cluster.delivery = made.monitor._delivery = made.post = SurePost()  # type: ignore[assignment]  # it does less
    yield made
    made.cluster.close()


def submit(desk: Desk, *names: str, team: Any = None, **options: Any) -> None:
    for name in names:
        desk.cluster.submit(team or team_of(), request_of(name), **options)


def sent(desk: Desk) -> list[str]:
    """Return the runs that were sent to workers, in their order."""
    return [unit.removeprefix("run:") for unit, _ in desk.post.sent]


def end(desk: Desk, run_id: str, state: str = "completed") -> None:
    desk.rows("UPDATE unit SET state = 'done' WHERE run_id = %s", run_id)
    desk.rows("UPDATE run SET state = %s WHERE run_id = %s", state, run_id)


def test_without_a_rule_a_run_is_sent_at_once(desk: Desk) -> None:
    submit(desk, "a", "b", priority=-5)
    assert sent(desk) == ["a", "b"]


def test_a_paused_queue_begins_no_run_until_it_goes_on(desk: Desk) -> None:
    name = team_of().name
    submit(desk, "before")
    desk.cluster.set_queue(name, paused=True)
    submit(desk, "a", "b")
    submit(desk, "other", team=OTHER)
    desk.look()
    assert sent(desk) == ["before", "other"]
    desk.cluster.set_queue(name, paused=False)
    desk.look()
    assert sent(desk)[2:] == ["a", "b"]
    found = {one.name: (one.at_work, one.held) for one in desk.cluster.queues()}
    assert found == {"all": (4, 0), "team:other": (1, 0), f"team:{name}": (3, 0)}


def test_no_more_runs_than_the_limit_are_at_work_and_a_higher_priority_begins_first(desk: Desk) -> None:
    name = team_of().name
    desk.cluster.set_queue(name, limit=2)
    submit(desk, "a", "b", "c", "d")
    submit(desk, "urgent", priority=10)
    submit(desk, "idle", priority=-10)
    assert sent(desk) == ["a", "b"]
    desk.look(times=2)
    assert sent(desk) == ["a", "b"]
    end(desk, "a")
    desk.look()
    assert sent(desk)[2:] == ["urgent"]
    end(desk, "b", "suspended")  # a run that waits for a person does not count
    desk.look()
    assert sent(desk)[3:] == ["c"]
    desk.cluster.set_queue(name, limit="none")
    desk.look()
    assert sent(desk)[4:] == ["d", "idle"]


def test_a_limit_of_an_account_holds_for_the_accounts_under_it(desk: Desk) -> None:
    journal = desk.cluster.journal
    journal.set_account("ocean", kt.Budget(tokens=10_000))
    journal.set_account("bay", parent="ocean")
    journal.set_account("land", kt.Budget(tokens=10_000))
    desk.cluster.set_queue("account:ocean", limit=1)

    def begin(name: str, account: str | None) -> None:
        request = kt.TeamExecutionRequest(
            "Do it.", config=kt.TeamConfig(budget=kt.Budget(tokens=10)), run_id=name, plan=request_of(name).plan
        )
        desk.cluster.submit(team_of(), request, account=account)

    for name, account in (("a", "ocean"), ("b", "bay"), ("c", "land"), ("d", None), ("e", "ocean")):
        begin(name, account)
    assert sent(desk) == ["a", "c", "d"]
    end(desk, "a")
    desk.look()
    assert sent(desk)[3:] == ["b"]
    with pytest.raises(Misuse, match="there is no account 'sea'"):
        desk.cluster.set_queue("account:sea", limit=1)


def test_all_runs_of_a_database_are_a_queue_too(desk: Desk) -> None:
    desk.cluster.set_queue("all", limit=1)
    submit(desk, "a")
    submit(desk, "b", team=OTHER)
    assert sent(desk) == ["a"]
    desk.cluster.set_queue("all", paused=True)
    end(desk, "a")
    desk.look()
    assert sent(desk) == ["a"]
    desk.cluster.set_queue("all", paused=False, limit="none")
    desk.look()
    assert sent(desk) == ["a", "b"]
    assert execute(desk.url, "SELECT count(*) FROM queue") == [(0,)], "a queue without a rule leaves no row"


def test_a_held_run_that_is_cancelled_or_forgotten_is_never_sent(desk: Desk) -> None:
    desk.cluster.set_queue("all", paused=True)
    submit(desk, "a", "b")
    desk.cluster.journal.cancel("a")
    desk.cluster.journal.forget("b")
    desk.cluster.set_queue("all", paused=False)
    submit(desk, "c")
    desk.look(times=2)
    assert sent(desk) == ["c"]


def test_a_run_whose_question_is_answered_waits_for_its_queue_again(desk: Desk) -> None:
    name = team_of().name
    submit(desk, "a")
    end(desk, "a", "suspended")
    desk.cluster.set_queue(name, limit=1)
    submit(desk, "b")
    desk.rows("INSERT INTO question (id, run_id, digest, body, decision, asked_at) VALUES ('q', 'a', '', '', 'yes', 0)")
    desk.look()
    assert sent(desk) == ["a", "b"]
    end(desk, "b")
    desk.look()
    assert sent(desk) == ["a", "b", "a"]


def test_two_that_submit_at_once_keep_the_limit(desk: Desk) -> None:
    desk.cluster.set_queue("all", limit=3)
    names = [f"r{number}" for number in range(12)]

    async def crowd() -> None:
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(to_thread.run_sync, submit, desk, name)

    anyio.run(crowd)
    assert len(sent(desk)) == 3
    desk.look()
    assert len(sent(desk)) == 3


def test_why_a_run_waits_is_said(desk: Desk) -> None:
    name = team_of().name
    desk.cluster.set_queue(name, limit=1)
    submit(desk, "a", "b")
    with desk.cluster.journal.database.reading() as connection:
        assert why_held(connection, "a") is None
        assert why_held(connection, "b") == f"queue 'team:{name}' has as many runs at work as its limit allows: 1"
    desk.cluster.set_queue(name, paused=True)
    with desk.cluster.journal.database.reading() as connection:
        assert why_held(connection, "b") == (
            f"queue 'team:{name}' is paused: `kairo unpause team:{name}` lets its runs begin"
        )
    desk.cluster.set_queue("front desk", paused=True)
    submit(desk, "c", team=kt.Team("front desk", team_of().members))
    with desk.cluster.journal.database.reading() as connection:
        why = why_held(connection, "c") or ""
        assert "`kairo unpause 'team:front desk'` lets" in why, "a command that a shell takes"


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}])
def test_a_wrong_rule_is_refused(desk: Desk, wrong: Any) -> None:
    with pytest.raises(Misuse, match="at least 1 run at once"):
        desk.cluster.set_queue("desk", **wrong)
    for name in ("team:", "account:"):
        with pytest.raises(Misuse, match="a queue is the name of a team"):
            desk.cluster.set_queue(name, paused=True)
    for priority in (-1001, 1001):
        with pytest.raises(ValueError, match="a priority is a number from -1000 to 1000"):
            submit(desk, "a", priority=priority)
    assert desk.cluster.queues() == ()


async def test_workers_make_no_more_runs_at_once_than_the_limit() -> None:
    url, inside, most = new_database("procrastinate"), 0, 0

    async def work(_assignment: kt.Assignment) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.sleep(0.05)
        inside -= 1
        return "done"

    team = kt.Team("desk", [kt.Member("clerk", work)])
    plan = kt.TaskGraph([kt.Task("one", "Do it.")])
    async with working(url, team, workers=2) as cluster:
        await to_thread.run_sync(lambda: cluster.set_queue("desk", limit=2))
        for number in range(6):
            request = kt.TeamExecutionRequest("Go.", plan=plan, run_id=f"r{number}")
            await to_thread.run_sync(cluster.submit, team, request)
        await until(lambda: len(cluster.journal.runs(state="completed")) == 6)
        assert most <= 2
        await until(lambda: [(one.name, one.at_work) for one in cluster.queues()] == [("team:desk", 0)])


def test_all_deliveries_of_a_run_have_its_priority(desk: Desk) -> None:
    """Those of its attempts, and those that follow deaths and lost deliveries."""
    desk.add_process("here")
    submit(desk, "r", priority=7)
    [unit] = desk.rows("SELECT id, kind, run_id, queue FROM unit")
    run, attempt = Unit(*unit), Unit("a", "attempt", "r", "q", "attempt:1:a:1", 0, "here")
    desk.do(*attempt.sending(desk.cluster.delivery, None))
    assert desk.post.priorities == [7, 7]
    claimed = desk.claim(attempt)
    assert (claimed.unit.priority, claimed.unit.next().priority) == (7, 7)
    desk.claim(run)
    desk.look()  # `worker`, which has both, has no row: it is dead
    desk.do(*attempt.next().sending(desk.cluster.delivery, None))
    with desk.cluster.journal.connecting(own="monitor") as connection:
        desk.monitor._send_again(connection, replace(attempt.next(), priority=7))
    assert desk.post.priorities == [7] * 5
    alone = Unit("b", "attempt", "not submitted", "q", "attempt:1:a:1", 0, "here")
    desk.do(*alone.sending(desk.cluster.delivery, None))
    assert desk.post.priorities[5:] == [0]


@pytest.mark.parametrize("engine", ENGINES)
async def test_attempts_of_a_higher_priority_pass_those_that_wait(engine: EngineName) -> None:
    """A run at work sends its tasks behind those of another, and a worker with two places takes them first."""
    url, begun = new_database(engine), list[str]()

    def sent_of(name: str) -> int:
        rows = execute(url, "SELECT step FROM unit WHERE step LIKE %s", f"attempt:%:{name}-%")
        # The row of an attempt that has ended is gone.
        return len({step.split(":")[2] for (step,) in rows} | {one for one in begun if one.startswith(f"{name}-")})

    async def work(assignment: kt.Assignment) -> str:
        begun.append(assignment.task.id)
        if assignment.task.id == "first":
            await until(lambda: sent_of("low") == 20)
        elif len(begun) < 4:  # both places are taken until what is urgent waits too
            await until(lambda: sent_of("high") == 5)
        return "done"

    team = kt.Team("desk", [kt.Member("clerk", work)])
    plans = {
        "high": [kt.Task("first", "."), *(kt.Task(f"high-{n}", ".", depends_on=["first"]) for n in range(5))],
        "low": [kt.Task(f"low-{n}", ".") for n in range(20)],
    }
    async with working(url, team, engine=engine, concurrency=2) as cluster:
        for name, priority in (("high", 10), ("low", -10)):
            request = kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(plans[name]), run_id=name)
            await to_thread.run_sync(lambda one, two: cluster.submit(team, one, priority=two), request, priority)
            await until(lambda: begun)
        await until(lambda: len(cluster.journal.runs(state="completed")) == 2)
    later = {name.partition("-")[0] for name in begun[10:]}
    assert later == {"low"}, begun


def test_a_user_pauses_limits_and_looks(kairo: Kairo, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAIRO_DATABASE", database)
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    assert kairo("queue").out == "no run is queued or at work\n"
    paused = "queue team:desk is paused: its runs wait\n"
    assert kairo("pause", "desk").out == f"{paused}no run of team 'desk' is recorded in this database\n"
    cluster = kt.Cluster(database, engine="procrastinate")
    cluster.submit(kt.Team("desk", OTHER.members), request_of("sea-1"))
    cluster.close()
    lines = [" ".join(line.split()) for line in kairo("queue").out.splitlines()]
    assert lines == ["queue runs limit at work waiting", "all begin none 0 1", "team:desk paused none 0 1"]
    assert kairo("pause", "desk").out == paused
    assert kairo("pause", "dsk").out.splitlines()[1:] == [
        "no run of team 'dsk' is recorded in this database; did you mean 'desk'?"
    ]
    assert "no run of team 'dsk'" in kairo("queue", "dsk", "--limit", "3").out
    assert kairo("queue", "dsk", "--no-limit").code == 0
    assert "no run of team 'dsk'" in kairo("unpause", "dsk").out
    assert "no run" not in kairo("pause", "all").out + kairo("unpause", "all").out
    assert "1 run waits: queue 'team:desk' is paused: `kairo unpause team:desk` lets" in kairo("runs").out
    assert kairo("queue", "desk", "--limit", "3").out.splitlines()[1].split() == ["team:desk", "paused", "3", "0", "1"]
    assert kairo("unpause", "desk").out == "queue team:desk is unpaused\n"
    assert kairo("queue", "other").out == "queue team:other has no limit\n"
    assert "name the queue" in kairo("queue", "--limit", "3").err
    assert "exclude each other" in kairo("queue", "desk", "--limit", "3", "--no-limit").err
    assert kairo("queue", "desk", "--no-limit").code == 0
    assert "there is no account 'sea'" in kairo("pause", "account:sea").err
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM kairo.queue").fetchone() == (0,)


def test_the_document_of_a_queue_has_no_other_words(kairo_json: Any, database: str) -> None:
    said = kairo_json("queue", "dsk", "--limit", "3", "--json", "--database", database)
    assert said.document["queues"][0]["limit"] == 3
    assert "no run of team 'dsk'" in said.err


def test_submit_takes_a_priority(kairo: Kairo, team_file: Any, database: str) -> None:
    file = team_file("team = kt.Team('desk', [kt.Member('clerk', lambda _: 'done')])")
    kairo("pause", "desk", "--database", database)
    said = kairo("submit", file, "Go.", "--priority", "7", "--run-id", "r", "--database", database)
    assert said.code == 0
    assert "it waits: queue 'team:desk' is paused" in said.out
    assert execute(database, "SELECT state, priority FROM unit") == [("held", 7)]
