"""What is in flight when a run, or an attempt, is cut short is told: every call that was begun, and every attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.testing import EventRecorder

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


class Hangs:
    """A model that takes its time, and may not let itself be cancelled."""

    name = "test:slow"
    max_output_tokens = 100

    def __init__(self, *, shield: bool = False) -> None:
        self._shield = shield

    async def complete(self, request: ModelRequest) -> ModelResponse:
        with anyio.CancelScope(shield=self._shield):
            await anyio.sleep_forever()
        raise AssertionError

    async def stream(self, request: ModelRequest, tell: Callable[[str], object]) -> ModelResponse:
        tell("I think")
        return await self.complete(request)


def asking(model: Any, *, stream: bool = False) -> Any:
    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        governed = context.model(model)
        asked = ModelRequest([Message.user("go")])
        return (await (governed.stream(asked) if stream else governed.complete(asked))).text

    return ask


async def play(agent: Any, by: str) -> tuple[EventRecorder, kt.TeamResult | None]:
    """Run one task of that agent, and another, until they are cut short at 2 seconds."""
    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("team", [kt.Member("m", agent), kt.Member("n", agent)], runtime=runtime)
    plan = kt.TaskGraph([kt.Task("a", "do", member="m"), kt.Task("b", "do", member="n")])
    budget = kt.Budget(seconds=2.0 if by == "budget" else None)
    config = kt.TeamConfig(budget, cancel_grace=1.0, task_timeout=2.0 if by == "timeout" else None)
    result: kt.TeamResult | None = None

    async def cut() -> None:
        await anyio.sleep(2)
        if by == "kill":
            runtime.runs["r"].cancel("enough")
        elif by == "task":
            runtime.runs["r"].cancel_task("a")
            runtime.runs["r"].cancel_task("b")
        elif by == "caller":
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cut)
        result = await ONCE.execute(kt.TeamExecutionRequest("goal", plan=plan, config=config, run_id="r"), team)
    recorder.assert_lawful()
    return recorder, result


ENDS = ["budget", "kill", "caller", "timeout", "task"]


@pytest.mark.parametrize("shield", [False, True], ids=["", "shielded"])
@pytest.mark.parametrize("stream", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("by", ENDS)
async def test_audit_g32_a_call_in_flight_has_its_model_called_with_what_was_held(
    by: str, stream: bool, shield: bool
) -> None:
    recorder, result = await play(asking(Hangs(shield=shield), stream=stream), by)
    calls = recorder.of(events.ModelCalled)
    assert sorted((call.task_id, call.outcome) for call in calls) == [("a", "unknown"), ("b", "unknown")]
    assert all(call.usage.tokens == call.held > 100 for call in calls)
    if result is not None:
        assert result.usage.tokens == sum(call.usage.tokens for call in calls)


@pytest.mark.parametrize("by", ENDS)
async def test_audit_g32_an_attempt_in_flight_has_its_attempt_finished(by: str) -> None:
    async def spends(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=7)
        context.keep("half")
        await anyio.sleep_forever()
        raise AssertionError

    recorder, _ = await play(spends, by)
    finished = recorder.of(events.AttemptFinished)
    ends = [(one.task_id, one.attempt, one.usage.tokens) for one in finished]
    assert sorted(ends) == [("a", 1, 7), ("b", 1, 7)]
    assert all(one.error for one in finished)
    over = "'team' halted: time_budget_exceeded (spent 14 tokens, 2 loops)"
    told = {"budget": over, "kill": "enough", "caller": "the caller was cancelled"}
    if by in told:
        assert {(one.status, one.error) for one in finished} == {("halted", told[by])}


async def test_audit_g32_of_the_second_try_only_what_it_spent_is_told() -> None:
    tries: list[int] = []

    async def spends(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        tries.append(1)
        context.governor.record_usage(prompt_tokens=10 * len(tries))
        if len(tries) > 1:
            await anyio.sleep_forever()
        raise OSError("no ink")

    recorder = EventRecorder()
    team = kt.Team("team", [kt.Member("m", spends)], runtime=kt.Runtime(subscribers=[recorder]))
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1, backoff=0.1))
    config = kt.TeamConfig(budget=kt.Budget(seconds=3.0))
    await coordinator.execute(kt.TeamExecutionRequest("goal", config=config), team)
    finished = recorder.of(events.AttemptFinished)
    assert [(one.attempt, one.usage.tokens) for one in finished] == [(1, 10), (2, 20)]
