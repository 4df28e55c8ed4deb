"""Why a task or a call waits is in its run's events: a slot, a member, budget, or its model's limit."""

from __future__ import annotations

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import BudgetToppedUp, ModelStarted, ModelWaiting, TaskAssigned, TaskWaiting
from kairo_team.testing import EventRecorder, FunctionModel

pytestmark = pytest.mark.anyio

BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


def tasks(count: int) -> list[kt.Task]:
    return [kt.Task(f"t{number}", "do") for number in range(count)]


async def nap(assignment: kt.Assignment) -> str:
    await anyio.sleep(1)
    return "done"


async def record(
    members: list[kt.Member], plan: list[kt.Task], runtime: dict[str, object] | None = None, **config: object
) -> EventRecorder:
    recorder = EventRecorder()
    made = kt.Runtime(subscribers=[recorder], **(runtime or {}))  # type: ignore[arg-type]  # by name
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph(plan), config=kt.TeamConfig(**config))  # type: ignore[arg-type]  # the same
    await kt.run(kt.Team("t", members, runtime=made), request, coordinator=BOARD)
    return recorder


def waits(recorder: EventRecorder) -> list[tuple[str, str | None]]:
    return [(one.task_id, one.waits_for) for one in recorder.of(TaskWaiting)]


async def test_a_task_that_starts_at_once_waits_for_nothing() -> None:
    plan = [*tasks(2), kt.Task("end", "do", depends_on=["t0", "t1"])]
    assert waits(await record([kt.Member("m", nap)], plan)) == []


async def test_a_task_without_a_slot_says_so_once() -> None:
    recorder = await record([kt.Member("m", nap)], tasks(4), max_parallel_tasks=1)
    assert waits(recorder) == [("t1", "slot"), ("t2", "slot"), ("t3", "slot")]
    starts = {one.task_id: one.seq for one in recorder.of(TaskAssigned)}
    assert all(one.seq < starts[one.task_id] for one in recorder.of(TaskWaiting))
    assert list(starts) == ["t0", "t1", "t2", "t3"]


async def test_the_longest_path_goes_first_also_where_others_were_told_to_wait() -> None:
    plan = [*tasks(3), kt.Task("late", "do", depends_on=["t0"]), kt.Task("end", "do", depends_on=["late"], weight=9)]
    recorder = await record([kt.Member("m", nap)], plan, max_parallel_tasks=1)
    assert [one.task_id for one in recorder.of(TaskAssigned)] == ["t0", "late", "end", "t1", "t2"]
    assert waits(recorder) == [("t1", "slot"), ("t2", "slot")]


async def test_a_task_whose_member_is_taken_says_so() -> None:
    recorder = await record([kt.Member("m", nap, max_concurrency=1)], tasks(3))
    assert waits(recorder) == [("t1", "member"), ("t2", "member")]


async def test_a_task_for_which_there_is_no_budget_says_so() -> None:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(30)
        await anyio.sleep(1)
        return "done"

    plan = [kt.Task(f"t{number}", "do", budget=kt.Budget(tokens=40)) for number in range(3)]
    recorder = await record([kt.Member("m", spend)], plan, budget=kt.Budget(tokens=100))
    assert {what for _, what in waits(recorder)} == {"budget"}
    starts = {one.task_id: one.seq for one in recorder.of(TaskAssigned)}
    assert all(one.seq < starts[one.task_id] for one in recorder.of(TaskWaiting) if one.task_id in starts)


async def test_a_task_in_flight_that_waits_for_budget_says_when_it_goes_on() -> None:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "short" and assignment.attempt == 1:
            with context.governor.reserve(tokens=70) as hold:
                hold.settle(prompt_tokens=70)
        await anyio.sleep(5)
        return "done"

    policy = kt.BudgetPolicy(reserve=0.0, top_ups=1)
    plan = [kt.Task("short", "do"), kt.Task("other", "do")]
    recorder = await record([kt.Member("m", spend)], plan, budget=kt.Budget(tokens=100), budget_policy=policy)
    assert waits(recorder) == [("short", "budget"), ("short", None)]
    (topped,) = recorder.of(BudgetToppedUp)
    first, last = recorder.of(TaskWaiting)
    assert first.seq < topped.seq
    assert (last.at - first.at).total_seconds() >= 0


async def test_a_call_says_that_it_waits_for_its_models_limit_and_for_budget_that_others_hold() -> None:
    async def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(1)
        return kt.ModelResponse("yes", usage=kt.Usage(5, 5))

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async def ask(number: int) -> None:
            request = kt.ModelRequest([kt.Message.user(f"q{number}")], max_tokens=20)
            await context.model("m:x").complete(request)

        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(ask, number)
        return "done"

    models: dict[str, object] = {"models": {"m:x": FunctionModel(answer, name="m:x")}}
    limited = models | {"model_limits": {"m:x": kt.ModelLimit(concurrency=1)}}
    recorder = await record([kt.Member("m", agent)], tasks(1), limited)
    (waiting,) = recorder.of(ModelWaiting)
    first, second = recorder.of(ModelStarted)
    assert (waiting.waits_for, waiting.call_id, waiting.number) == ("rate", second.call_id, second.number)
    assert (waiting.task_id, waiting.member, waiting.attempt, waiting.purpose) == ("t0", "m", 1, "generate")
    assert first.call_id != second.call_id
    recorder = await record([kt.Member("m", agent)], tasks(1), models, budget=kt.Budget(tokens=40))
    (waiting,) = recorder.of(ModelWaiting)
    assert (waiting.waits_for, waiting.call_id) == ("budget", recorder.of(ModelStarted)[1].call_id)
