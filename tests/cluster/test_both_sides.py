"""What a coordinator has reaches its workers, and what they note reaches the result."""

from __future__ import annotations

import itertools
from dataclasses import replace

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.cluster.attempt_host import AttemptHost
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.testing import FunctionModel
from tests.cluster.stage import new_database, warned, working
from tests.cluster.test_lost_deliveries import Provider, replace_worker, stage
from tests.cluster.test_lost_deliveries import ask as say
from tests.cluster.test_runs import ask, elsewhere, request_of, team_of

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

ONE = kt.Task("a", "do", member="m0")


async def test_prompt_templates_of_the_coordinator_are_the_workers() -> None:
    prompts: list[str] = []

    def answer(request: kt.ModelRequest) -> str:
        prompts.append("\n".join(message.text for message in request.messages))
        return "said"

    agent = kt.MiniAgent("m:x", max_turns=1, settings={"max_tokens": 20})
    team = team_of(agent, model=FunctionModel(answer, name="test:m"))
    board = TaskDispatchCoordinator(templates={"system": "Be {{ role.id }}.", "task": "Now {{ assignment.task.id }}."})
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster, models={"m:x": FunctionModel(answer, name="test:m")})
        with anyio.fail_after(60):
            await kt.run(here, request_of(ONE), coordinator=board, runtime=runtime)
    assert prompts == ["Be m0.\nNow a."]


async def test_a_result_warns_of_calls_at_workers_that_used_more_than_was_held() -> None:
    def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        return kt.ModelResponse("said", usage=kt.Usage(10, 90))

    model = FunctionModel(answer, name="test:m")
    team = team_of(ask, model=model)
    tasks = [kt.Task(name, "do", member="m0") for name in "abc"]
    async with working(new_database("procrastinate"), team, workers=2) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            result = await kt.run(here, request_of(*tasks), runtime=runtime)
    local = await kt.run(here, request_of(*tasks), runtime=kt.Runtime(models={"m:x": model}))
    assert warned(result) == warned(local)
    assert "used more than was held for 3 calls: 300 tokens" in str(result.warnings)


async def test_a_result_warns_of_an_attempt_that_asked_its_second_worker_something_else() -> None:
    provider, asked = Provider(hang_on="second"), itertools.count()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await say(context, f"at {next(asked)}")
        return await say(context, "second")

    team = team_of(work, model=provider.model)
    async with stage() as cast:
        lost = cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, request_of(ONE))
            with anyio.fail_after(60):
                await provider.hangs.wait()
                await replace_worker(cast, lost, team)
                result = await run.result()
    assert provider.asked == ["at 0", "second", "at 1", "second"]
    assert "task 'a' made other calls than before the run was interrupted: 1 call was made" in str(result.warnings)


async def swallow(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Go on after every cancellation."""
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            context.keep("half a text")


async def test_a_result_warns_of_who_ignores_its_cancellation_at_a_worker() -> None:
    team = team_of(swallow)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            request = request_of(replace(ONE, retries=0), task_timeout=0.3, cancel_grace=0.1)
            result = await kt.run(here, request, runtime=runtime)
    assert result.status is kt.TeamStatus.FAILED
    assert "'m0' did not end when it was cancelled and was closed" in result.warnings


async def test_a_result_warns_of_a_worker_that_is_told_to_end_and_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttemptHost, "_cancel", lambda self, reason: None)

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.emit("begun")
        return await swallow(assignment, context)

    team = team_of(work)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            async with runtime:
                run = await runtime.start(here, request_of(ONE, cancel_grace=0.1))
                async for event in run.events():
                    if isinstance(event, events.AttemptProgress):
                        break
                run.cancel("enough")
                result = await run.result()
    assert result.status is kt.TeamStatus.CANCELLED
    how = "its worker was fenced off and can record nothing more"
    assert f"'m0' did not end when it was cancelled: {how}" in result.warnings


async def test_nobody_is_warned_of_an_attempt_that_no_worker_began() -> None:
    team = team_of(ask)
    async with working(new_database("procrastinate"), team, workers=0) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            result = await kt.run(
                here, request_of(ONE, budget=kt.Budget(seconds=0.5), cancel_grace=0.1), runtime=runtime
            )
    assert result.status is kt.TeamStatus.TIMEOUT
    assert not [warning for warning in result.warnings if "did not end" in warning]
