"""Workers that are lost in the middle of an attempt: it is made anew, nothing is paid twice, and nothing unseen."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.monitor import _LOCK
from kairo_team.cluster.worker import Worker
from kairo_team.errors import JournalError
from kairo_team.testing import FunctionModel
from tests.cluster.stage import Crew, crew, execute, new_database, until
from tests.cluster.test_runs import elsewhere, request_of, team_of

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

WATCHED = """
SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = %s AND granted
AND datname = current_database()"""
"""Finds a row if a process holds an advisory lock."""


def stage(max_deliveries: int = 5) -> AbstractAsyncContextManager[Crew]:
    """Return workers that the test ends as if they had died."""
    return crew(new_database("procrastinate"), max_deliveries=max_deliveries)


async def bury(cast: Crew, cluster: Cluster) -> None:
    """Declare a worker dead, which goes on without knowing."""
    sql = "UPDATE process SET state = 'dead' WHERE id = %s"
    await to_thread.run_sync(execute, cast.url, sql, cluster.journal.process.id)


async def ask(context: kt.MemberContext, text: str) -> str:
    prompt = kt.Message.user(text)
    return (await context.model("m:x").complete(kt.ModelRequest([prompt], max_tokens=20))).text


class Provider:
    """Answers all but the questions that it is told to hang on."""

    def __init__(self, hang_on: str = "") -> None:
        self.asked: list[str] = []
        self.hang_on = hang_on
        self.hangs = anyio.Event()
        self.model = FunctionModel(self.answer, name="test:m")

    async def answer(self, request: kt.ModelRequest) -> str:
        text = request.messages[-1].text
        self.asked.append(text)
        if text == self.hang_on:
            self.hangs.set()
            self.hang_on = ""
            await anyio.sleep_forever()
        return f"answer to {text}"


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    first = await ask(context, "first")
    return f"{first}, {await ask(context, 'second')}"


def still(cluster: Cluster) -> None:
    """Let a worker hear nothing: neither that it is dead, nor that it cannot reach the database."""
    cluster.journal.process._beat = lambda _connection: None  # type: ignore[method-assign, assignment]  # it hears nothing


async def replace_worker(cast: Crew, lost: Cluster, team: kt.Team) -> None:
    """Let another worker do what one had that hears nothing, and is declared dead."""
    still(lost)
    cast.add_worker(team)
    await bury(cast, lost)


async def test_what_a_lost_worker_paid_is_not_paid_again_and_its_open_call_is_charged_and_listed() -> None:
    provider = Provider(hang_on="second")
    team = team_of(work, model=provider.model)
    async with stage() as cast:
        lost = cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0")))
            with anyio.fail_after(60):
                await provider.hangs.wait()
                await replace_worker(cast, lost, team)
                result = await run.result()
        calls = cast.here.journal.calls("r")
        doubt = cast.here.journal.in_doubt("r")
    assert result.output == "answer to first, answer to second"
    assert provider.asked == ["first", "second", "second"]
    assert [call.state for call in calls] == ["answered", "sent", "answered"]
    assert [call.key for call in doubt] == [calls[1].key]
    assert result.usage.tokens == sum(call.usage.tokens for call in calls)
    assert result.usage.loops == 1
    lost_call = "1 call was under way when their workers were lost, and nobody saw the answer: model 'test:m', charged"
    assert [one for one in result.warnings if one.startswith(lost_call)]


async def test_a_worker_that_was_fenced_off_records_nothing_and_starts_no_call() -> None:
    provider = Provider()
    begun, may_ask, refused = anyio.Event(), anyio.Event(), list[BaseException]()
    deliveries: list[int] = []

    async def slow(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        deliveries.append(len(deliveries))
        if deliveries[-1]:
            return await ask(context, "by the second")
        begun.set()
        with anyio.CancelScope(shield=True):
            await may_ask.wait()
        try:
            return await ask(context, "by a zombie")
        except BaseException as error:
            refused.append(error)
            raise

    team = team_of(slow, model=provider.model)
    async with stage() as cast:
        lost = cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0"), cancel_grace=600))
            with anyio.fail_after(60):
                await begun.wait()
                await replace_worker(cast, lost, team)
                result = await run.result()
                may_ask.set()
                while not refused:
                    await anyio.sleep(0.01)
        calls = cast.here.journal.calls("r")
    assert result.output == "answer to by the second"
    assert provider.asked == ["by the second"]
    assert len(calls) == 1


async def watch_over_all(cast: Crew) -> None:
    """Let a process with the default `max_deliveries` watch the others until the end."""
    await to_thread.run_sync(cast.new_cluster().start)
    await until(lambda: execute(cast.url, WATCHED, _LOCK))


async def test_an_attempt_that_loses_every_worker_fails_with_that_sentence() -> None:
    """The coordinator's `max_deliveries` counts, whichever process finds the workers dead."""
    taken: list[str] = []

    async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        taken.append(assignment.task.id)
        await anyio.sleep_forever()
        raise AssertionError

    team = team_of(hang)
    async with stage(max_deliveries=2) as cast:
        await watch_over_all(cast)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0", retries=0)))
            for number in (1, 2):
                lost = cast.add_worker(team)
                with anyio.fail_after(60):
                    while len(taken) < number:
                        await anyio.sleep(0.01)
                    still(lost)
                    await bury(cast, lost)
                if number == 1:
                    await until(lambda: not execute(cast.url, "SELECT 1 FROM unit WHERE fence = 1"))
            with anyio.fail_after(60):
                result = await run.result()
    assert result["a"].error is not None
    assert "given up: 2 workers died, failed or lost their database while they worked on it" in result["a"].error


async def test_a_worker_that_cannot_reach_its_database_ends_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Before others may take it for dead: after two and a half beats of three."""
    caplog.set_level(logging.INFO)
    begun, ended = anyio.Event(), list[str]()

    async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(assignment.task.id)
        raise AssertionError

    team = team_of(hang)
    async with stage() as cast:
        lost = cast.add_worker(team)
        for cluster in (lost, cast.here):  # nobody declares it dead
            cluster.monitor._look = lambda *_: True  # type: ignore[method-assign]  # it looks away
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0")))
            with anyio.fail_after(60):
                await begun.wait()

                def unreachable(_connection: Any) -> None:
                    raise JournalError("database", "it cannot be reached")

                lost.journal.process._beat = unreachable  # type: ignore[method-assign, assignment]  # it is cut off
                while not ended:
                    await anyio.sleep(0.01)
                run.cancel("enough")
                await run.result()
    assert {*ended} == {"a"}


class Handing:
    """Hands deliveries over by hand, and ends its receiving when they have ended."""

    def __init__(self) -> None:
        self.take: Any = None
        self.given: list[Any] = []

    @contextmanager
    def receiving(self, process: str, queues: Any, concurrency: int, take: Any) -> Generator[Handing]:
        self.take = take
        yield self
        for future in self.given:
            future.exception(timeout=20)

    def stop(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("how", ["cancelled", "lost"])
async def test_a_delivery_that_nobody_has_begun_holds_up_no_worker_that_ends(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin_nothing(worker: Worker) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Worker, "_serve", begin_nothing)
    async with crew(new_database("procrastinate")) as cast:
        cluster, handing = cast.new_cluster(), Handing()
        await to_thread.run_sync(cluster.start)
        monkeypatch.setattr(cluster, "delivery", handing)
        worker = Worker(cluster, team_of(work))
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await worker.wait_ready()
                handing.given.append(handing.take("u", 1))
                while not worker._delivered:
                    await anyio.sleep(0.01)
                if how == "cancelled":
                    group.cancel_scope.cancel()
                else:
                    worker._end_lost("it cannot reach the database")
    with pytest.raises(RuntimeError, match="the worker ends"):
        handing.given[0].result(timeout=0)
