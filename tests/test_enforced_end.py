"""Agents that will not end: they swallow their cancellation, or shield themselves, and the run ends all the same."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.live.enforced_end import CallSupervisor
from kairo_team.engine.live.task_pool import background
from kairo_team.testing import EventRecorder

GRACE = 2.0
Agent = Callable[[kt.Assignment], Awaitable[str]]


async def swallows(assignment: kt.Assignment) -> str:
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            continue


async def swallows_slowly(assignment: kt.Assignment) -> str:
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)


async def shields(assignment: kt.Assignment) -> str:
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()
    raise AssertionError


async def hangs_in_its_clean_up(assignment: kt.Assignment) -> str:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.Event().wait()
    raise AssertionError


STUBBORN = [swallows, swallows_slowly, shields, hangs_in_its_clean_up]


def make(agent: Agent, recorder: EventRecorder | None = None, **fields: Any) -> kt.Team:
    runtime = kt.Runtime(subscribers=[recorder] if recorder else [])
    return kt.Team("team", [kt.Member("rude", agent)], runtime=runtime, **fields)


def request(**config: Any) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("goal", config=kt.TeamConfig(cancel_grace=GRACE, **config), run_id="r")


@pytest.mark.parametrize("agent", STUBBORN)
async def test_at_the_deadline_it_is_closed_after_the_grace_and_named(agent: Agent) -> None:
    result = await TaskDispatchCoordinator().execute(request(budget=kt.Budget(seconds=1.0)), make(agent))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result["task"].status is kt.TaskStatus.CANCELLED
    assert 1.0 <= result.duration <= 1.0 + GRACE + 0.4
    assert any("'rude'" in warning and "closed" in warning for warning in result.warnings)


async def shields_in_task_groups(assignment: kt.Assignment) -> str:
    async with anyio.create_task_group(), anyio.create_task_group():
        await shields(assignment)
    raise AssertionError


async def cleans_up_in_a_task_group(assignment: kt.Assignment) -> str:
    async with anyio.create_task_group() as outer:
        try:
            async with anyio.create_task_group():
                await hangs_in_its_clean_up(assignment)
        finally:
            outer.cancel_scope.cancel()
    raise AssertionError


@pytest.mark.loops("asyncio")  # trio waits for an open nursery: nothing else may close it
@pytest.mark.parametrize("agent", [shields_in_task_groups, cleans_up_in_a_task_group])
async def test_task_groups_around_it_are_left_too(agent: Agent) -> None:
    """Leaving a task group awaits, in a scope of its own: what stayed in that could never be cancelled again."""
    result = await TaskDispatchCoordinator().execute(request(budget=kt.Budget(seconds=1.0)), make(agent))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result.duration <= 1.0 + GRACE + 0.4


@pytest.mark.parametrize("agent", STUBBORN)
async def test_at_a_kill_it_is_closed_after_the_grace_and_named(agent: Agent) -> None:
    team = make(agent)
    async with anyio.create_task_group() as group:

        async def kill() -> None:
            await anyio.sleep(5)
            team.runtime.runs["r"].cancel("enough")

        group.start_soon(kill)
        result = await TaskDispatchCoordinator().execute(request(), team)
        assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "enough")
        assert result.duration <= 5 + GRACE + 0.4
        assert any("'rude'" in warning for warning in result.warnings)


@pytest.mark.parametrize("agent", STUBBORN)
async def test_when_the_caller_is_cancelled_it_is_closed_too(agent: Agent) -> None:
    recorder, began = EventRecorder(), anyio.current_time()
    with anyio.move_on_after(3) as scope:
        await TaskDispatchCoordinator().execute(request(), make(agent, recorder))
    assert scope.cancelled_caught
    assert anyio.current_time() - began <= 3 + GRACE + 0.4
    recorder.assert_lawful()
    assert recorder.types[-1] == "team.cancelled"


@pytest.mark.parametrize("agent", [swallows, swallows_slowly])
async def test_at_the_attempts_own_timeout_it_is_closed_and_the_run_goes_on(agent: Agent) -> None:
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result = await coordinator.execute(request(task_timeout=1.0), make(agent))
    assert result["task"].status is kt.TaskStatus.FAILED
    assert result["task"].error == "timed out after 1 second"
    assert result.duration <= 1.0 + GRACE + 0.4


async def test_an_agent_that_swallows_even_its_closing_does_not_keep_the_run() -> None:
    async def immortal(assignment: kt.Assignment) -> str:
        while True:
            try:
                await anyio.Event().wait()
            except BaseException:  # noqa: BLE001, S112 - what must never be written
                continue

    result = await TaskDispatchCoordinator().execute(request(budget=kt.Budget(seconds=1.0)), make(immortal))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result["task"].status is kt.TaskStatus.CANCELLED
    assert result.duration <= 1.0 + GRACE


async def test_clean_up_within_the_grace_is_left_alone() -> None:
    done: list[str] = []

    async def tidy(assignment: kt.Assignment) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(GRACE * 0.9)
            done.append("tidied")
        raise AssertionError

    result = await TaskDispatchCoordinator().execute(request(budget=kt.Budget(seconds=1.0)), make(tidy))
    assert done == ["tidied"]
    assert result.duration == pytest.approx(1.0 + GRACE * 0.9)
    assert not any("closed" in warning for warning in result.warnings)


@pytest.mark.parametrize("depth", [1, 5])
async def test_an_orderly_end_gets_its_turns_even_without_any_grace(depth: int) -> None:
    """Task groups in task groups need turns of the event loop, not time, to end."""
    ended: list[int] = []

    async def nest(level: int) -> None:
        try:
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(partial(nest, level - 1) if level else anyio.sleep_forever)
        finally:
            ended.append(level)

    async def deep(assignment: kt.Assignment) -> str:
        await nest(depth)
        raise AssertionError

    config = kt.TeamConfig(budget=kt.Budget(seconds=1.0), cancel_grace=0.0)
    result = await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", config=config), make(deep))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result.duration == pytest.approx(1.0)
    assert len(ended) == 2 ** (depth + 1) - 1
    assert not any("closed" in warning for warning in result.warnings)


async def test_an_evaluator_is_held_too() -> None:
    class Stuck:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
            raise AssertionError

    async def good(assignment: kt.Assignment) -> str:
        return "text"

    result = await ExpertTeamCoordinator(evaluator=Stuck()).execute(request(budget=kt.Budget(seconds=1.0)), make(good))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result.outcomes[0].artifact == kt.Artifact("text")
    assert any("'Stuck'" in warning for warning in result.warnings)
    assert result.duration <= 1.0 + GRACE


async def test_a_planner_is_held_too() -> None:
    class Stuck:
        async def plan(
            self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext
        ) -> kt.TaskGraph:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
            raise AssertionError

    result = await ExpertTeamCoordinator(planner=Stuck()).execute(
        request(budget=kt.Budget(seconds=1.0)), make(swallows)
    )
    assert (result.status, result.outcomes) == (kt.TeamStatus.TIMEOUT, ())
    assert result.duration <= 1.0 + GRACE


async def test_what_is_held_behaves_as_if_it_were_not() -> None:
    """Values, errors, inner timeouts and its own cancellations pass through untouched."""

    async def work() -> list[int]:
        made: list[int] = []
        for number in itertools.count():
            with anyio.move_on_after(1) as scope:
                await anyio.sleep(number)
            if scope.cancelled_caught:
                return made
            made.append(number)
        raise AssertionError

    async def fail() -> None:
        await anyio.sleep(1)
        raise LookupError("lost")

    supervisor = CallSupervisor(anyio.current_time, 1.0)
    async with background(supervisor.watch):
        assert await supervisor.run(work(), "work") == [0]
        with pytest.raises(LookupError, match="lost"):
            await supervisor.run(fail(), "fail")
    assert supervisor.warnings == []


@pytest.mark.timeout(60)
async def test_a_call_that_opens_as_the_last_one_ends_is_waited_for() -> None:
    """Its end wakes the supervisor: asking in every turn of the loop would keep the processor busy for the grace."""
    supervisor, ended = CallSupervisor(anyio.current_time, 5.0), anyio.Event()

    async def call_twice() -> None:
        for name in ("first", "second"):
            await supervisor.run(anyio.sleep(1), name)
        ended.set()

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        async with background(supervisor.watch):
            group.start_soon(call_twice)
            await anyio.sleep(0.5)
        assert ended.is_set()
        assert anyio.current_time() - began == pytest.approx(2.0)
    assert supervisor.warnings == []
