"""What one member sets in a context variable is seen by no other."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.live.task_pool import TaskPool

SEEN: ContextVar[str] = ContextVar("seen", default="nothing")
BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(backoff=0))


async def run(agent: Any, *ids: str, coordinator: Any = BOARD, chain: bool = False, **config: Any) -> kt.TeamResult:
    tasks = [kt.Task(name, "Do it.", depends_on=ids[:place] if chain else ()) for place, name in enumerate(ids)]
    plan = kt.TaskGraph(tasks)
    request = kt.TeamExecutionRequest("Do all.", plan=plan, config=kt.TeamConfig(**config))
    result: kt.TeamResult = await coordinator.execute(request, kt.Team("team", [kt.Member("m", agent)]))
    return result


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "waits"])
async def test_third_o41_what_a_member_sets_is_not_seen_by_later_ones(waits: bool) -> None:
    found: list[str] = []

    async def work(assignment: kt.Assignment) -> str:
        found.append(SEEN.get())
        SEEN.set(assignment.task.id)
        if waits:
            await anyio.sleep(1)
        found.append(SEEN.get())
        return "made"

    token = SEEN.set("the caller's")
    assert (await run(work, "a", "b", "c", chain=waits)).status == "completed"
    assert found == ["the caller's", "a", "the caller's", "b", "the caller's", "c"]
    assert SEEN.get() == "the caller's"
    SEEN.reset(token)


async def test_third_o41_nor_by_the_next_attempt_at_the_same_task_or_by_its_review() -> None:
    found: list[str] = []

    async def work(assignment: kt.Assignment) -> str:
        found.append(SEEN.get())
        SEEN.set("set")
        if len(found) == 1:
            raise OSError
        return "made"

    class Judge:
        models = ()

        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            found.append(f"review: {SEEN.get()}")
            SEEN.set("judged")
            return kt.EvaluationVerdict.passed(1.0)

    coordinator = ExpertTeamCoordinator(evaluator=Judge(), failure_policy=FailurePolicy(backoff=0))
    await run(work, "a", "b", coordinator=coordinator, chain=True)
    assert found == ["nothing", "nothing", "review: nothing", "nothing", "review: nothing"]


async def test_third_o41_a_body_of_a_coordinator_starts_in_the_context_of_who_called_go() -> None:
    found: list[tuple[str, str]] = []

    class Coordinator:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(kt.TaskGraph([kt.Task(name, "Do it.") for name in ("a", "b", "c")]))
                async for task in run.ready(graph):
                    SEEN.set(f"loop {task.id}")
                    run.go(self.one, run, task)
            return run.result

        async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
            found.append((task.id, SEEN.get()))
            SEEN.set("a body's")
            run.accept(task, await run.attempt(task, 1))

    async def work(assignment: kt.Assignment) -> str:
        return "made"

    team = kt.Team("team", [kt.Member("m", work, max_concurrency=None)])
    assert (await Coordinator().execute(kt.TeamExecutionRequest("Do."), team)).status == "completed"
    assert found == [(name, f"loop {name}") for name in ("a", "b", "c")]


@pytest.mark.parametrize("swallows", [False, True])
async def test_third_o41_clean_up_runs_in_the_context_that_it_began_in(swallows: bool) -> None:
    """A token can be reset where the member is cancelled, and where it is closed because it does not end."""
    ends: list[str] = []

    async def work(assignment: kt.Assignment) -> str:
        token: Token[str] = SEEN.set("inside")
        try:
            while True:
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    if not swallows:
                        raise
        finally:
            SEEN.reset(token)
            ends.append(SEEN.get())

    result = await run(work, "a", task_timeout=5, cancel_grace=1)
    assert result.status == "failed"
    assert set(ends) == {"nothing"}


async def test_third_o41_a_pool_passes_on_errors_and_cancellation() -> None:
    done: list[str] = []
    pools: list[TaskPool] = []

    async def body(name: str) -> None:
        try:
            await anyio.sleep(1 if name == "short" else 99)
            done.append(name)
        except BaseException as raised:
            done.append(f"{name}: {type(raised).__name__}")
            raise

    with anyio.move_on_after(5) as scope:
        async with anyio.create_task_group() as group:
            pools.append(TaskPool(group, body))
            pools[0].add("short")
            pools[0].add("long")
    assert scope.cancelled_caught
    assert done[0] == "short"
    assert done[1] in ("long: CancelledError", "long: Cancelled")
    assert pools[0].running == 0
