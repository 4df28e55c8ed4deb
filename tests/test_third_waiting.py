"""Who waits for what, and what a wait costs the others."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import Governor
from kairo_team.testing import EventRecorder

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


async def test_third_o55_a_task_that_waits_for_its_senior_holds_no_slot() -> None:
    """Two slots: the senior is busy for long, a task was handed to it, and another member has something to do."""
    started: dict[str, float] = {}

    async def junior(assignment: kt.Assignment) -> str:
        return "bad"

    async def senior(assignment: kt.Assignment) -> str:
        started[assignment.task.id] = anyio.current_time() - began
        await anyio.sleep(100)
        return "good"

    async def other(assignment: kt.Assignment) -> str:
        started[assignment.task.id] = anyio.current_time() - began
        return "good"

    class Judge:
        models = ()

        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            if context.artifact.text == "good":
                return kt.EvaluationVerdict.passed(1.0)
            await anyio.sleep(1)
            return kt.EvaluationVerdict.escalate(kt.Cause.UNDECIDED, "hard to say")

    expert = kt.Member("senior", senior, max_concurrency=1)
    members = [kt.Member("junior", junior, senior=expert), kt.Member("other", other)]
    tasks = [
        kt.Task("long", "Do it.", member="junior", weight=3),
        kt.Task("handed", "Do it.", member="junior", weight=2),
        kt.Task("quick", "Do it.", member="other"),
    ]
    config = kt.TeamConfig(max_parallel_tasks=2)
    request = kt.TeamExecutionRequest("Do all.", plan=kt.TaskGraph(tasks), config=config)
    recorder = EventRecorder()
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder]))
    began = anyio.current_time()
    result = await ExpertTeamCoordinator(evaluator=Judge()).execute(request, team)
    assert result.status == "completed", result.error
    assert started.pop("quick") == pytest.approx(1)
    assert sorted(started.values()) == [pytest.approx(1), pytest.approx(101)]
    recorder.assert_lawful()


async def test_third_o55_a_task_that_is_cancelled_while_it_waits_for_its_senior_gives_up_its_claim() -> None:
    started: list[str] = []

    async def junior(assignment: kt.Assignment) -> str:
        raise OSError("cannot")

    async def senior(assignment: kt.Assignment) -> str:
        started.append(assignment.task.id)
        await anyio.sleep(10)
        return "good"

    tasks = [
        kt.Task("long", "Do it.", member="b"),
        kt.Task("handed", "Do it."),
        kt.Task("later", "Do it.", member="b", depends_on=["long"]),
    ]
    team = kt.Team("team", [kt.Member("a", junior), kt.Member("b", senior, max_concurrency=1)])
    request = kt.TeamExecutionRequest("Do all.", plan=kt.TaskGraph(tasks))
    async with kt.Runtime() as runtime:
        live = await runtime.start(team, request, coordinator=ONCE)
        await anyio.sleep(5)
        live.cancel_task("handed", "not needed")
        result = await live.result()
    assert started == ["long", "later"]
    assert [one.status.value for one in result.outcomes] == ["completed", "cancelled", "completed"]


async def test_third_o55_a_wait_for_budget_is_told_once_however_often_the_task_looks() -> None:
    """Ten tasks run short and wait; thirty others of another member end one after the other."""
    recorder = EventRecorder()

    async def hungry(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(1)
        with context.governor.reserve(tokens=900) as hold:
            hold.settle(prompt_tokens=1)
        return "made"

    async def modest(assignment: kt.Assignment) -> str:
        await anyio.sleep(2 + int(assignment.task.id.removeprefix("m")))
        return "made"

    members = [
        kt.Member("hungry", hungry, max_concurrency=None, budget=kt.Budget(tokens=1_000)),
        kt.Member("modest", modest, max_concurrency=None),
    ]
    tasks = [kt.Task(f"h{number}", "Do it.", member="hungry") for number in range(10)]
    tasks += [kt.Task(f"m{number}", "Do it.", member="modest") for number in range(30)]
    policy = kt.BudgetPolicy(reserve=0.0, expect=kt.Budget(tokens=1))
    config = kt.TeamConfig(kt.Budget(tokens=2_000), budget_policy=policy)
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder]))
    await ONCE.execute(kt.TeamExecutionRequest("Do all.", plan=kt.TaskGraph(tasks), config=config), team)
    waits = [one for one in recorder.of(events.TaskWaiting) if one.task_id.startswith("h")]
    assert {one.waits_for for one in waits} >= {"budget"}
    assert len(waits) <= 4 * 10
    recorder.assert_lawful()


async def test_third_o55_in_a_line_for_budget_each_return_decides_whom_it_serves_and_no_other() -> None:
    """Looks at the governor's line grow with who waits, not with its square."""
    from kairo_team.governance import holds

    looks: dict[int, int] = {}
    decide: Any = holds.Waiter.decide
    with pytest.MonkeyPatch.context() as patch:
        for count in (20, 80):
            seen: list[int] = []

            def counted(waiter: Any, seen: list[int] = seen) -> bool:
                seen.append(1)
                return bool(decide(waiter))

            patch.setattr(holds.Waiter, "decide", counted)
            governor = Governor(kt.Budget(tokens=10 * count + 10))

            async def call(governor: Governor = governor) -> None:
                with await governor.hold(tokens=10 * 10) as hold:
                    await anyio.sleep(1)
                    hold.settle(prompt_tokens=1)

            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(call)
            looks[count] = len(seen)
    assert looks[80] <= 6 * looks[20]


async def test_third_o55_a_reservation_that_does_not_wait_goes_before_holds_that_do_and_loses_none_of_them() -> None:
    """It is what `reserve` says: now or never. Who waits is served when it has ended."""
    governor = Governor(kt.Budget(tokens=100))
    order: list[str] = []

    async def call() -> None:
        with await governor.hold(tokens=60, on_wait=lambda: order.append("waits")) as hold:
            order.append("held")
            hold.settle(prompt_tokens=1)

    async def first() -> None:
        with governor.reserve(tokens=60) as hold:
            await anyio.sleep(1)
            hold.settle(prompt_tokens=1)

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await anyio.sleep(0.5)
        group.start_soon(call)
        await anyio.sleep(0.25)
        with governor.reserve(tokens=40) as hold:
            order.append("reserved")
            await anyio.sleep(1)
            hold.settle(prompt_tokens=1)
    assert order == ["waits", "reserved", "held"]
