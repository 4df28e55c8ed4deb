"""Runs whose attempts are made by workers: what comes from outside reaches them, and what they do comes back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.cluster.attempt_host import AttemptHost
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.worker import Worker
from kairo_team.constraints import ResourceAction, ResourceValidation
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.testing import EventRecorder, FunctionModel
from tests.cluster.stage import BEAT, crew, new_database, until, warned, working
from tests.constrained import Bell

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

Act = Callable[[kt.Assignment, kt.MemberContext], Awaitable[Any]]


def team_of(*acts: Act | Any, model: Any = None, **team: Any) -> kt.Team:
    """Make a team whose members `m0`, `m1` do these things."""
    runtime = kt.Runtime(models={} if model is None else {"m:x": model})
    return kt.Team("desk", [kt.Member(f"m{n}", act) for n, act in enumerate(acts)], runtime=runtime, **team)


def request_of(*tasks: kt.Task, run_id: str = "r", **config: Any) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(tasks), config=kt.TeamConfig(**config), run_id=run_id)


def elsewhere(team: kt.Team, cluster: Cluster, **runtime: Any) -> tuple[kt.Team, kt.Runtime]:
    """Return the team as a coordinator has it, and its runtime."""
    return replace(team, runtime=None), kt.Runtime(engine=cluster, **runtime)


async def ask(assignment: kt.Assignment, context: kt.MemberContext, times: int = 1) -> str:
    said = ""
    for number in range(times):
        prompt = kt.Message.user(f"{assignment.task.id} {number}")
        said = (await context.model("m:x").complete(kt.ModelRequest([prompt], max_tokens=20))).text
    return said


async def wait_for_ever(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("so far")
    await anyio.sleep_forever()
    raise AssertionError


@kt.tool(side_effect="read")
async def look() -> str:
    return "found"


def answering() -> FunctionModel:
    return FunctionModel(lambda request: f"answer to {request.messages[-1].text}", name="test:m")


async def test_no_event_loop_waits_for_the_database_while_a_work_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose loop waits could not end its work before others declare it dead."""
    decode, threads = PostgresJournal.decode, set[threading.Thread]()

    def noted(self: PostgresJournal, text: str) -> Any:
        threads.add(threading.current_thread())
        return decode(self, text)

    monkeypatch.setattr(PostgresJournal, "decode", noted)
    team = team_of(ask, model=answering())
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            await kt.run(here, request_of(kt.Task("a", "do", member="m0")), runtime=runtime)
    assert threads
    assert threading.current_thread() not in threads


async def test_events_of_workers_come_in_their_order() -> None:
    team, recorder = team_of(ask, model=answering()), EventRecorder()
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster, subscribers=[recorder])
        with anyio.fail_after(60):
            await kt.run(here, request_of(kt.Task("a", "do", member="m0")), runtime=runtime)
    kinds = [type(event) for event in recorder.events if event.type.startswith(("attempt", "model", "task"))]
    assert kinds == [
        events.TaskAssigned,
        events.AttemptStarted,
        events.ModelStarted,
        events.ModelCalled,
        events.AttemptFinished,
        events.TaskCompleted,
    ]
    assert [event.seq for event in recorder.events] == [*range(1, len(recorder.events) + 1)]


async def test_an_attempt_that_is_done_is_not_said_to_be_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its unit is done then, and a check of its session would find no delivery."""
    caplog.set_level(logging.INFO, "kairo_team")
    monkeypatch.setattr("kairo_team.durable.database._BEAT", 0.001)

    async def act(assignment: kt.Assignment) -> str:
        await anyio.sleep(0.05)
        return "done"

    team = team_of(act)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            await kt.run(here, request_of(*[kt.Task(f"t{n}", "do") for n in range(10)]), runtime=runtime)
    said = [one.getMessage() for one in caplog.records if one.getMessage().startswith("unit r:")]
    assert len(said) == 20
    assert {line.rpartition(": ")[2] for line in said} == {"begun", "ended"}


async def test_a_coordinator_reads_nothing_for_the_attempts_that_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tasks that begin at once would read a thousand times before the first one is sent."""
    team = team_of(ask, model=answering())
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        reads: list[str] = []
        for name in ("digests", "charges", "show"):
            monkeypatch.setattr(cluster.journal, name, partial(reads.append, name))
        tasks = [kt.Task(f"t{number}", "do", member="m0") for number in range(10)]
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(*tasks), runtime=runtime)
        assert (result.status, reads) == ("completed", [])


async def test_a_budget_holds_over_workers_and_what_is_spent_is_the_teams() -> None:
    model = answering()
    team = team_of(partial(ask, times=3), model=model)
    tasks = [kt.Task(f"t{n}", "do", member="m0") for n in range(8)]
    async with working(new_database("procrastinate"), team, workers=2) as cluster:
        here, runtime = elsewhere(team, cluster)
        budget = kt.Budget(tokens=600)
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(*tasks, budget=budget), runtime=runtime)
        spent = sum(call.usage.tokens for call in cluster.journal.calls("r"))
    assert result.usage.tokens == spent <= 600
    assert result.status in {kt.TeamStatus.DEGRADED, kt.TeamStatus.FAILED, kt.TeamStatus.COMPLETED}


@pytest.mark.parametrize("way", ["run", "task", "deadline"])
async def test_a_cancel_reaches_the_worker_and_partial_work_comes_back(way: str) -> None:
    ended: list[str] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        try:
            return await wait_for_ever(assignment, context)
        finally:
            ended.append(assignment.task.id)

    team = team_of(work)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        limit: dict[str, Any] = {"budget": kt.Budget(seconds=1.5)} if way == "deadline" else {}
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0"), **limit))
            with anyio.fail_after(60):
                async for event in run.events():
                    if isinstance(event, events.AttemptStarted):
                        break
                await anyio.sleep(0.5)
                if way == "run":
                    run.cancel("enough")
                elif way == "task":
                    run.cancel_task("a")
                result = await run.result()
    assert ended == ["a"]
    artifact = result["a"].artifact
    assert artifact is not None
    assert (artifact.text, artifact.partial) == ("so far", True)
    expected = {"run": "cancelled", "task": "failed", "deadline": "timeout"}[way]
    assert result.status == expected


async def cancelled(runtime: kt.Runtime, team: kt.Team, begun: list[str], way: str) -> kt.TeamResult:
    """Cancel a run, or its only task, once the member is at work."""
    async with runtime:
        run = await runtime.start(team, request_of(kt.Task("a", "do", member="m0"), cancel_grace=0.2))
        with anyio.fail_after(60):
            while not begun:
                await anyio.sleep(0.01)
            if way == "run":
                run.cancel("enough")
            else:
                run.cancel_task("a")
            return await run.result()


@pytest.mark.parametrize("way", ["run", "task"])
@pytest.mark.parametrize("heard", [True, False], ids=["in time", "too late"])
async def test_who_ignores_its_cancellation_at_a_worker_is_named_in_the_result(
    way: str, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def shield(assignment: kt.Assignment) -> str:
        begun.append(assignment.task.id)
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()
        raise AssertionError

    team = team_of(shield)
    local = await cancelled(kt.Runtime(), replace(team, runtime=None), begun, way)
    begun.clear()
    async with working(new_database("procrastinate"), team) as cluster:
        await to_thread.run_sync(cluster.start)
        assert cluster.mailbox is not None
        if heard:
            cluster.journal.beat = 60.0  # it waits for the grace and so long
        else:
            monkeypatch.setattr(AttemptHost, "_cancel", lambda *_: None)
        here, runtime = elsewhere(team, cluster)
        result = await cancelled(runtime, here, begun, way)
    closed = "'m0' did not end when it was cancelled and was closed"
    too_late = "'m0' did not end when it was cancelled: its worker was fenced off and can record nothing more"
    assert closed in local.warnings
    assert set(warned(result)) == {one if heard or one != closed else too_late for one in warned(local)}


async def test_who_blocks_the_event_loop_of_a_worker_is_named_once() -> None:
    async def block(assignment: kt.Assignment) -> str:
        time.sleep(1.1)  # noqa: ASYNC251 - that is what is tested
        return "done"

    team = team_of(block)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(kt.Task("a", "do"), kt.Task("b", "do")), runtime=runtime)
    [warning] = result.warnings
    assert warning.startswith("'m0' blocked the event loop for ")


async def test_a_directive_reaches_the_member_at_its_next_turn() -> None:
    prompts: list[str] = []
    told = anyio.Event()

    def answer(request: kt.ModelRequest) -> str:
        prompts.append("\n".join(message.text for message in request.messages))
        return "said"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await ask(assignment, context)
        context.emit("asked once")
        await told.wait()
        await anyio.sleep(4 * BEAT)
        return await ask(replace(assignment, task=replace(assignment.task, id="again")), context)

    team = team_of(work, model=FunctionModel(answer, name="test:m"))
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0")))
            with anyio.fail_after(60):
                async for event in run.events():
                    if isinstance(event, events.AttemptProgress):
                        break
                run.steer("shorter")
                told.set()
                result = await run.result()
    assert result.status is kt.TeamStatus.COMPLETED
    assert "shorter" not in prompts[0]
    assert "shorter" in prompts[1]


async def test_a_person_is_asked_by_the_coordinator_about_a_workers_tool() -> None:
    @kt.tool(side_effect="write")
    def publish(text: str) -> str:
        """Publish a text."""
        return f"published {text}"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(publish)(text="it")).text

    asked: list[str] = []

    async def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question.text)
        return kt.HumanDecision("approve")

    permissions = kt.ToolPermissions(guard=AskAlways())
    team = team_of(work, permissions=permissions)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster, gate=kt.CallbackGate(decide))
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(kt.Task("a", "do", member="m0")), runtime=runtime)
    assert result.output == "published it"
    assert len(asked) == 1


async def test_what_a_watched_constraint_decides_reaches_the_worker() -> None:
    """The team's watch runs where the coordinator is; attempts of all workers end in order."""
    asked, may_exit = anyio.Event(), anyio.Event()

    class Late(Bell):
        async def watch(self) -> ResourceValidation:
            await may_exit.wait()
            return ResourceValidation(True, "it is late")

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep(await ask(assignment, context))
        asked.set()
        while True:
            await anyio.sleep(BEAT)
            await ask(assignment, context)

    team = team_of(work, model=answering(), constraints=[Late(ResourceAction.GRACEFUL_EXIT)])
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        async with runtime:
            run = await runtime.start(here, request_of(kt.Task("a", "do", member="m0")))
            with anyio.fail_after(60):
                await asked.wait()
                may_exit.set()
                result = await run.result()
    assert "it is late" in str(result["a"].warnings) + str(result["a"].error)


class AskAlways:
    async def check(self, tool: str, arguments: Any, side_effect: str) -> Any:
        from kairo_team.permissions import PermissionDecision

        return PermissionDecision("ask", "write it?")


async def test_a_team_inside_a_task_runs_where_the_task_is_done() -> None:
    inner = kt.Team("inner", [kt.Member("hand", ask)])
    plan = kt.TaskGraph([kt.Task("x", "Do x."), kt.Task("y", "Do y.", depends_on=["x"])])
    model = answering()
    team = team_of(TeamAgent(inner, plan=plan), model=model)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(kt.Task("a", "do", member="m0")), runtime=runtime)
        calls = cluster.journal.calls("r")
    assert result.status is kt.TeamStatus.COMPLETED
    assert len(calls) == 2
    assert result.usage.tokens == sum(call.usage.tokens for call in calls)


@pytest.mark.parametrize("engine", ["procrastinate", "dbos"])
async def test_a_submitted_run_is_coordinated_by_a_worker(engine: Any) -> None:
    team = team_of(ask, model=answering())
    async with working(new_database(engine), team, engine=engine) as cluster:
        request = request_of(kt.Task("a", "do", member="m0"), kt.Task("b", "do", member="m0", depends_on=["a"]))
        run_id = await to_thread.run_sync(cluster.submit, replace(team, runtime=None), request)
        await until(lambda: cluster.journal.show(run_id).state not in {"queued", "running"})
        shown = await to_thread.run_sync(cluster.journal.show, run_id)
        result = await to_thread.run_sync(cluster.journal.result, run_id)
        told = [event.type for event in cluster.journal.events_after(run_id)]
    assert shown.state == "completed"
    assert result is not None
    assert result.output == "answer to b 0"
    assert (told[0], told[-1]) == ("team.started", "team.completed")


async def test_a_worker_that_is_cancelled_while_it_begins_to_receive_does_not_receive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins, may_begin, ended = threading.Event(), threading.Event(), threading.Event()

    @contextmanager
    def receiving(*_: Any) -> Generator[None]:
        begins.set()
        assert may_begin.wait(60)
        yield
        ended.set()

    cluster = Cluster(new_database("procrastinate"), engine="procrastinate", beat=BEAT)
    monkeypatch.setattr(cluster.delivery, "receiving", receiving)
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(cluster, team_of(ask)).run)
        assert await to_thread.run_sync(begins.wait, 60)
        group.cancel_scope.cancel()
    may_begin.set()
    assert await to_thread.run_sync(ended.wait, 60)
    await to_thread.run_sync(cluster.close)


async def test_a_worker_makes_no_more_attempts_at_once_than_its_concurrency() -> None:
    running, most = [0], [0]

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        while most[0] < 2:  # the second is on its way: how long it takes depends on the machine
            await anyio.sleep(0.01)
        await anyio.sleep(0.05)
        running[0] -= 1
        return "done"

    team = team_of(work)
    async with working(new_database("procrastinate"), team, concurrency=2) as cluster:
        here, runtime = elsewhere(team, cluster)
        tasks = [kt.Task(f"t{n}", "do", member="m0") for n in range(8)]
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(*tasks), runtime=runtime)
    assert result.status is kt.TeamStatus.COMPLETED
    assert most[0] == 2


async def test_a_member_of_some_workers_alone_is_done_there() -> None:
    where: list[str] = []

    def on(worker: str) -> kt.Team:
        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            where.append(f"{assignment.task.id} on {worker}")
            return "done"

        return team_of(work, work)

    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(on("one"), members=["m0"])
        cast.add_worker(on("two"), members=["m1"])
        here, runtime = elsewhere(on("here"), cast.here)
        tasks = [kt.Task(f"t{n}", "do", member=f"m{n % 2}") for n in range(4)]
        with anyio.fail_after(60):
            await kt.run(here, request_of(*tasks), runtime=runtime)
    assert sorted(where) == ["t0 on one", "t1 on two", "t2 on one", "t3 on two"]


async def test_third_o9_what_a_worker_made_until_a_budget_ended_it_is_reviewed_and_has_the_reason() -> None:
    """Its own limit and one above it, which the coordinator alone knows."""
    call = kt.ModelResponse("half a page", [kt.ToolCall("1", "look", {})], kt.Usage(100, 20))
    agent = kt.MiniAgent(FunctionModel(lambda _: call), tools=[look], max_turns=50, settings={"max_tokens": 20})
    team = team_of(agent)
    async with working(new_database("procrastinate"), team) as cluster:
        for run_id, task in (("r", kt.Task("a", "do", budget=kt.Budget(loops=3))), ("s", kt.Task("a", "do"))):
            recorder = EventRecorder()
            here, runtime = elsewhere(team, cluster, subscribers=[recorder])
            budget = kt.Budget(loops=50 if run_id == "r" else 3)
            with anyio.fail_after(60):
                result = await kt.run(here, request_of(task, run_id=run_id, budget=budget), runtime=runtime)
            assert (result.status, result["a"].status) == ("degraded", "completed")
            [warning] = result["a"].warnings
            assert warning.startswith("the accepted work was cut short: the budget could not pay turn ")
            [halted] = recorder.of(events.BudgetHalted)
            assert (halted.reason, halted.origin) == ("loop_budget_exceeded", "a" if run_id == "r" else "desk")
