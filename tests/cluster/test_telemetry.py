"""Workers and OpenTelemetry: what a worker measures of itself, and one trace of a run over many processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.service import WorkerService
from kairo_team.testing import FunctionModel
from tests.cluster.stage import BEAT, execute, new_database, until
from tests.telemetry.traced import Traced, said, trace_of

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
LONG = 60.0
TOP = "invoke_workflow desk"


class Served:
    """A service that runs, with the clusters that it made."""

    def __init__(self, url: str, team: kt.Team) -> None:
        self.url = url
        self.clusters: list[Cluster] = []
        self.lines: list[str] = []
        self.service = WorkerService(self.connect, team, tell=self.lines.append)

    def connect(self) -> Cluster:
        self.clusters.append(Cluster(self.url, engine="procrastinate", beat=BEAT))
        return self.clusters[-1]

    def ready(self) -> int:
        return sum(line.startswith("ready: ") for line in self.lines)


@asynccontextmanager
async def serving(team: kt.Team) -> AsyncGenerator[Served]:
    """Let a service work on a new database for the block, from when it is ready."""
    served = Served(new_database("procrastinate"), team)
    async with anyio.create_task_group() as group:
        group.start_soon(served.service.run)
        await until(served.ready)
        try:
            yield served
        finally:
            served.service.stop()


def team_of(act: Any, *subscribers: Any, model: Any = None) -> kt.Team:
    models = {} if model is None else {"m:x": model}
    return kt.Team("desk", [kt.Member("clerk", act)], runtime=kt.Runtime(subscribers=subscribers, models=models))


def request_of(*tasks: kt.Task, run_id: str = "r", **config: Any) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(tasks), config=kt.TeamConfig(**config), run_id=run_id)


async def write(assignment: kt.Assignment) -> str:
    return f"{assignment.task.id} is written"


def counted(traced: Traced, name: str) -> dict[Any, Any]:
    """The values of a metric, by what came of it and by the kind of unit."""
    found: dict[Any, Any] = {}
    for one in traced.points(name):
        key = tuple(one.attributes.get(of) for of in ("kairo.unit.kind", "kairo.outcome"))
        found[key] = getattr(one, "value", None) if hasattr(one, "value") else one.count
    return found


async def test_a_worker_counts_what_it_does() -> None:
    traced = Traced()
    team = team_of(write, traced.subscriber)
    async with serving(team) as served:
        tasks = (kt.Task("letter", "Write."), kt.Task("reply", "Write."))
        await to_thread.run_sync(served.clusters[0].submit, team, request_of(*tasks))
        await until(lambda: ("run", "finished") in counted(traced, "kairo.worker.deliveries"))
        assert counted(traced, "kairo.worker.deliveries") == {("run", "finished"): 1, ("attempt", "finished"): 2}
        assert counted(traced, "kairo.worker.active_units") == {("run", None): 0, ("attempt", None): 0}
        assert counted(traced, "kairo.worker.delivery.wait_time") == {("run", None): 1, ("attempt", None): 2}
        assert all(one.min >= 0 for one in traced.points("kairo.worker.delivery.wait_time"))
        [silence] = traced.points("kairo.worker.silence")
        assert silence.value >= 0
    shown = [f"{TOP} > task letter", f"{TOP} > task reply"]
    assert traced.tree() == sorted([TOP, *shown, *(f"{task} > invoke_agent clerk" for task in shown)])


async def test_a_delivery_that_does_not_count_is_refused() -> None:
    traced = Traced()
    team = team_of(write, traced.subscriber)
    async with serving(team) as served:
        cluster = served.clusters[0]
        await to_thread.run_sync(cluster.submit, team, request_of(kt.Task("letter", "Write.")))
        await until(lambda: execute(served.url, "SELECT 1 FROM unit WHERE id = 'run:r' AND state = 'done'"))
        [(queue,)] = execute(served.url, "SELECT queue FROM unit WHERE id = 'run:r'")

        def send(connection: Any) -> None:
            cluster.delivery.send(connection.raw, queue, "run:r", 1)

        await to_thread.run_sync(cluster.journal.change, send)
        await until(lambda: counted(traced, "kairo.worker.deliveries").get((None, "refused")) == 1)


async def test_who_asks_for_more_than_its_slice_is_measured() -> None:
    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        asked = kt.ModelRequest([kt.Message.user("Say something.")], max_tokens=200)
        return (await context.model("m:x").complete(asked)).text

    traced = Traced()
    team = team_of(ask, traced.subscriber, model=FunctionModel(lambda _: "a word", name="test:m"))
    async with serving(team) as served:
        tasks = [kt.Task(f"t{number}", "Ask.") for number in range(6)]
        request = request_of(*tasks, budget=kt.Budget(tokens=900))
        await to_thread.run_sync(served.clusters[0].submit, team, request)
        await until(lambda: any(kind == "run" for kind, _ in counted(traced, "kairo.worker.deliveries")))
    assert counted(traced, "kairo.worker.budget.wait_time")[None, "granted"] > 0


async def test_what_it_takes_from_the_dead_and_its_own_losses_are_counted() -> None:
    traced = Traced()
    team = team_of(write, traced.subscriber)
    async with serving(team) as served:
        execute(
            served.url,
            "INSERT INTO unit (id, kind, run_id, step, epoch, queue, fence, body, state, process, sent_at)"
            " VALUES ('u', 'run', 'r', '', 1, 'q', 1, '', 'taken', 'gone', 0)",
        )
        await until(lambda: counted(traced, "kairo.worker.reaped_units") == {("run", None): 1})
        first = served.clusters[0].journal.process.id
        execute(served.url, "UPDATE process SET state = 'dead' WHERE id = %s", first)
        await until(lambda: served.ready() == 2)
        assert counted(traced, "kairo.worker.restarts") == {(None, None): 1}


async def test_a_delivery_that_counts_no_more_and_one_that_is_given_back_say_so() -> None:
    begun, go = anyio.Event(), anyio.Event()

    async def wait(assignment: kt.Assignment) -> str:
        begun.set()
        await go.wait()
        return "done"

    traced = Traced()
    team = team_of(wait, traced.subscriber)
    async with serving(team) as served:
        await to_thread.run_sync(served.clusters[0].submit, team, request_of(kt.Task("letter", "Write.")))
        with anyio.fail_after(LONG):
            await begun.wait()
        assert counted(traced, "kairo.worker.active_units") == {("run", None): 1, ("attempt", None): 1}
        execute(served.url, "UPDATE process SET state = 'dead'")
        await until(lambda: served.ready() == 2)
        ended = counted(traced, "kairo.worker.deliveries")
        assert ended.keys() & {("attempt", "fenced"), ("attempt", "given_back")}
        go.set()
        await until(lambda: ("run", "finished") in counted(traced, "kairo.worker.deliveries"))


async def test_nobody_measures_a_worker_without_a_subscriber_that_does() -> None:
    async with serving(team_of(write)) as served:
        assert served.service.sends_heartbeat


@pytest.mark.parametrize("traces", [True, False], ids=["traced", "not traced"])
async def test_spans_of_libraries_at_a_worker_belong_to_the_attempt_at_the_coordinator(traces: bool) -> None:
    here, there = Traced(), Traced()

    async def work(assignment: kt.Assignment) -> str:
        with there.tracer.start_as_current_span("GET of a library"):
            return "done"

    team = team_of(work, there.subscriber)
    async with serving(team) as served:
        cluster = Cluster(served.url, engine="procrastinate", beat=BEAT)
        runtime = kt.Runtime(engine=cluster, subscribers=[here.subscriber] if traces else [])
        with anyio.fail_after(LONG):
            result = await kt.run(replace(team, runtime=None), request_of(kt.Task("a", "do")), runtime=runtime)
        await to_thread.run_sync(cluster.close)
    assert result.status is kt.TeamStatus.COMPLETED
    assert here.tree() == ([TOP, f"{TOP} > task a", f"{TOP} > task a > invoke_agent clerk"] if traces else [])
    span = there.span("GET of a library")
    if not traces:
        assert span.parent is None
        return
    attempt = here.span("invoke_agent clerk")
    assert span.parent is not None
    assert attempt.context is not None
    assert (trace_of(span), span.parent.span_id) == (trace_of(attempt), attempt.context.span_id)


async def test_texts_of_work_at_a_worker_are_in_the_spans_of_a_coordinator_that_asks_for_them() -> None:
    here = Traced(capture_content=True)

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        request = kt.ModelRequest([kt.Message.user("Is it high?")], max_tokens=20)
        return (await context.model("m:x").complete(request)).text

    model = FunctionModel(lambda _: "The tide is high.", name="m:x")
    team = team_of(work, model=model)
    async with serving(team) as served:
        cluster = Cluster(served.url, engine="procrastinate", beat=BEAT)
        runtime = kt.Runtime(engine=cluster, subscribers=[here.subscriber], models={"m:x": model})
        with anyio.fail_after(LONG):
            result = await kt.run(replace(team, runtime=None), request_of(kt.Task("a", "do")), runtime=runtime)
        await to_thread.run_sync(cluster.close)
    assert result.status is kt.TeamStatus.COMPLETED
    chat = said(here.span("chat x"))
    assert "Is it high?" in chat["gen_ai.input.messages"]
    assert "The tide is high." in chat["gen_ai.output.messages"]
    assert said(here.span("invoke_agent clerk"))["output.value"] == "The tide is high."
