"""`TeamRun`: what a coordinator of one's own can rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import Misuse
from kairo_team.results import Attempt
from kairo_team.testing import EventRecorder, ScriptedAgent
from tests.debate import Debate

Body = Callable[[kt.TeamRun], Any]


class Coordinator:
    """A coordinator whose block is one function."""

    def __init__(self, block: Body, **options: Any) -> None:
        self.block = block
        self.options = options

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team, **self.options) as run:
            await self.block(run)
        return run.result


def bench(*agents: Any, **runtime: Any) -> tuple[kt.Team, EventRecorder]:
    recorder = EventRecorder()
    members = [kt.Member(name, agent) for name, agent in zip("abc", agents, strict=False)]
    return kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder], **runtime)), recorder


async def good(assignment: kt.Assignment) -> str:
    return f"made {assignment.task.id}"


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half of it")
    await anyio.sleep_forever()
    raise AssertionError


def graph_of(*ids: str) -> kt.TaskGraph:
    return kt.TaskGraph([kt.Task(name, "do") for name in ids])


async def test_the_debate_example_runs() -> None:
    agents = [ScriptedAgent(["for"]), ScriptedAgent(["against"]), ScriptedAgent(["settled"])]
    team, recorder = bench(*agents)
    result = (await Debate().execute(kt.TeamExecutionRequest("Cats or dogs?"), team)).check()
    assert result.output == "settled"
    assert {name: artifact.text for name, artifact in agents[2].calls[0].upstream.items()} == {
        "pro": "for",
        "con": "against",
    }
    recorder.assert_lawful()
    assert recorder.types[:2] == ["team.started", "plan.ready"]


async def test_the_debate_example_fails_as_it_says() -> None:
    team, recorder = bench(good, ScriptedAgent([OSError("hoarse")]), good)
    result = await Debate().execute(kt.TeamExecutionRequest("Cats or dogs?"), team)
    assert (result.status, result.error) == (kt.TeamStatus.FAILED, "task 'con' failed: OSError: hoarse")
    assert [outcome.status.value for outcome in result.outcomes] == ["completed", "failed", "skipped"]
    recorder.assert_lawful()


# ---------------------------------------------------------------- however the block ends


async def nothing(run: kt.TeamRun) -> None:
    pass


async def plan_only(run: kt.TeamRun) -> None:
    await run.plan(lambda: graph_of("x", "y"))


async def raises(run: kt.TeamRun) -> None:
    await plan_only(run)
    raise LookupError("the coordinator is broken")


async def raises_a_base_exception_group(run: kt.TeamRun) -> None:
    async with anyio.create_task_group():
        raise LookupError("from a group")


async def leaves_while_tasks_run(run: kt.TeamRun) -> None:
    graph = await run.plan(lambda: graph_of("x", "y"))
    async for task in run.ready(graph):
        run.go(forget, run, task)
        break


async def forget(run: kt.TeamRun, task: kt.Task) -> None:
    await anyio.sleep(3)


async def body_raises(run: kt.TeamRun) -> None:
    async def body(run: kt.TeamRun, task: kt.Task) -> None:
        raise LookupError(task.id)

    async for task in run.ready(await run.plan(lambda: graph_of("x", "y"))):
        run.go(body, run, task)


async def body_forgets(run: kt.TeamRun) -> None:
    async for task in run.ready(await run.plan(lambda: graph_of("x", "y"))):
        run.go(forget, run, task)


async def skips_all(run: kt.TeamRun) -> None:
    async for task in run.ready(await run.plan(lambda: graph_of("x", "y"))):
        run.skip(task, "not today")


@pytest.mark.parametrize(
    ("block", "error", "tasks"),
    [
        (nothing, "nothing was planned", []),
        (plan_only, "task 'x' skipped: the run ended", ["skipped", "skipped"]),
        (raises, "the coordinator is broken", ["skipped", "skipped"]),
        (raises_a_base_exception_group, "from a group", []),
        (leaves_while_tasks_run, "returned without accepting", ["failed", "skipped"]),
        (body_raises, "the coordinator raised LookupError: x", ["failed", "failed"]),
        (body_forgets, "returned without accepting, failing or skipping it", ["failed", "failed"]),
        (skips_all, "task 'x' skipped: not today", ["skipped", "skipped"]),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
async def test_whatever_the_block_does_a_failed_result_comes_of_it(block: Body, error: str, tasks: list[str]) -> None:
    team, recorder = bench(good)
    result = await Coordinator(block).execute(kt.TeamExecutionRequest("goal"), team)
    assert result.status is kt.TeamStatus.FAILED
    assert [outcome.status.value for outcome in result.outcomes] == tasks
    assert error in (result.error or "")
    assert result.error, "a run that did not complete says why"
    assert result.warnings[0] == result.error
    recorder.assert_lawful()
    assert recorder.types[-1] == "team.failed"


async def test_the_result_is_there_only_after_the_block() -> None:
    team, _ = bench(good)
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), team) as run:
        with pytest.raises(Misuse, match="has not ended"):
            _ = run.result
    assert run.result.status is kt.TeamStatus.FAILED


async def test_nothing_follows_the_last_event() -> None:
    team, recorder = bench(good)
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), team) as run:
        pass
    count = len(recorder.events)
    run.emit(events.PlanReady, ())
    assert len(recorder.events) == count


MISUSES: list[Callable[[Any], object]] = [
    lambda run: run.go(forget, run),
    lambda run: run.accept(kt.Task("ghost", "do"), None),
    lambda run: run.skip(kt.Task("ghost", "do"), "why"),
]


@pytest.mark.parametrize("misuse", MISUSES)
async def test_misuse_is_refused_in_words(misuse: Callable[[kt.TeamRun], object]) -> None:
    team, _ = bench(good)

    async def block(run: kt.TeamRun) -> None:
        await plan_only(run)
        with pytest.raises(Misuse, match=r"`go` takes|is not in this run's plan"):
            misuse(run)

    await Coordinator(block).execute(kt.TeamExecutionRequest("goal"), team)


async def test_ready_wants_the_graph_that_plan_returned() -> None:
    team, _ = bench(good)

    async def block(run: kt.TeamRun) -> None:
        await plan_only(run)
        async for _ in run.ready(graph_of("x", "y")):
            raise AssertionError

    result = await Coordinator(block).execute(kt.TeamExecutionRequest("goal"), team)
    assert "plan first" in (result.error or "")


@pytest.mark.parametrize("value", ["my own", kt.Artifact("my own", data={"x": 1})])
async def test_the_output_can_be_set(value: Any) -> None:
    team, _ = bench(good)

    async def block(run: kt.TeamRun) -> None:
        async for task in run.ready(await run.plan(lambda: graph_of("x"))):
            run.accept(task, await run.attempt(task, 1))
        run.output = value

    result = await Coordinator(block).execute(kt.TeamExecutionRequest("goal"), team)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "my own")


async def test_tolerate_failures_makes_the_run_degraded_not_failed() -> None:
    async def block(run: kt.TeamRun) -> None:
        async for task in run.ready(await run.plan(lambda: graph_of("x", "y"))):
            attempt = await run.attempt(task, 1)
            run.accept(task, attempt) if task.id == "x" else run.fail(task, "no")

    for tolerate, status in [(True, kt.TeamStatus.DEGRADED), (False, kt.TeamStatus.FAILED)]:
        team, _ = bench(good)
        result = await Coordinator(block, tolerate_failures=tolerate).execute(kt.TeamExecutionRequest("goal"), team)
        assert result.status is status


# ---------------------------------------------------------------- cancellation against halts


@pytest.mark.parametrize("delay", [0.0, 0.5])
async def test_kf_u05_the_callers_cancellation_wins_over_a_halt(delay: float) -> None:
    """Killed and cancelled at once, or one just after the other: the caller's cancellation is never swallowed."""
    team, recorder = bench(hang)
    reached = False
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def strike() -> None:
                await anyio.sleep(1)
                team.runtime.runs["r"].cancel("killed")
                await anyio.sleep(delay) if delay else None
                scope.cancel()

            group.start_soon(strike)

            async def run() -> None:
                nonlocal reached
                await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id="r"), team)
                await anyio.sleep(2)
                reached = True

            await run()
    assert scope.cancelled_caught
    assert not reached
    recorder.assert_lawful()
    assert recorder.types[-1] == "team.cancelled"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_kf_u05_a_native_asyncio_cancel_wins_too(anyio_backend: Any) -> None:
    """`task.cancel()` on the task that awaits `execute`, in the same breath as a kill."""
    team, recorder = bench(hang)
    task = asyncio.ensure_future(TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id="r"), team))
    await asyncio.sleep(0.01)
    team.runtime.runs["r"].cancel("killed")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    recorder.assert_lawful()
    assert recorder.types[-1] == "team.cancelled"


async def test_the_callers_cancellation_wins_over_an_error_in_the_same_breath() -> None:
    """Nothing but the cancellation leaves `execute`."""
    team, recorder = bench(good)

    async def block(run: kt.TeamRun) -> None:
        scope.cancel()
        raise LookupError("both at once")

    with anyio.CancelScope() as scope:
        await Coordinator(block).execute(kt.TeamExecutionRequest("g"), team)
        await anyio.lowlevel.checkpoint()
        raise AssertionError("it was cancelled")
    assert scope.cancelled_caught
    recorder.assert_lawful()


async def test_an_emergency_stop_of_the_root_fails_the_run_and_interrupts_what_is_in_flight() -> None:
    team, recorder = bench(hang)

    async def stop(run: kt.TeamRun) -> None:
        async for task in run.ready(await run.plan(lambda: graph_of("x"))):
            run.go(forget, run, task)
            await anyio.sleep(1)
            run.governor.cancel(kt.HaltReason.EMERGENCY_STOP)

    result = await Coordinator(stop).execute(kt.TeamExecutionRequest("g"), team)
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.EMERGENCY_STOP)
    assert result.duration == pytest.approx(1.0)
    recorder.assert_lawful()


async def test_an_emergency_stop_of_an_attempt_ends_its_task_without_a_ladder() -> None:
    async def alarmed(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        context.governor.cancel(kt.HaltReason.EMERGENCY_STOP)
        await anyio.sleep(5)
        return "never"

    team, recorder = bench(alarmed)
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=3)).execute(
        kt.TeamExecutionRequest("g"), team
    )
    outcome = result.outcomes[0]
    assert (outcome.status, outcome.attempts) == (kt.TaskStatus.FAILED, 1)
    assert outcome.artifact == kt.Artifact("half", partial=True)
    assert result.duration == pytest.approx(0.0)
    recorder.assert_lawful()


async def test_crossing_the_teams_budget_stops_everybody_and_keeps_what_was_done() -> None:
    """Spending that was not held and reaches the limit interrupts the others; finished work comes back."""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "quick":
            return "done"
        if assignment.task.id == "slow":
            return await hang(assignment, context)
        await anyio.sleep(2)
        context.governor.record_usage(prompt_tokens=150)
        raise AssertionError

    for risk, status in [(kt.RiskProfile.LOW, kt.TeamStatus.DEGRADED), (kt.RiskProfile.MEDIUM, kt.TeamStatus.FAILED)]:
        team, recorder = bench(work)
        request = kt.TeamExecutionRequest(
            "g",
            plan=graph_of("quick", "slow", "greedy"),
            config=kt.TeamConfig(budget=kt.Budget(tokens=100), risk_profile=risk),
        )
        result = await TaskDispatchCoordinator().execute(request, team)
        assert (result.status, result.halt) == (status, kt.HaltReason.TOKEN_BUDGET_EXCEEDED)
        low = risk is kt.RiskProfile.LOW
        assert (result.output, result.usage.tokens) == ("done" if low else None, 150)
        assert result["slow"].artifact == kt.Artifact("half of it", partial=True)
        assert result["slow"].status is not kt.TaskStatus.COMPLETED
        recorder.assert_lawful()


@pytest.mark.parametrize("data", [{"x": object()}, {"x": float("nan")}, {"x": {1: 2}}])
async def test_progress_that_json_cannot_hold_is_the_agents_mistake(data: dict[str, Any]) -> None:
    async def talks(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.emit("fine", rows=[1, {"a": None}])
        context.emit("not fine", **data)
        return "done"

    team, recorder = bench(talks)
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result = await coordinator.execute(kt.TeamExecutionRequest("g"), team)
    assert "must be" in (result.outcomes[0].error or "")
    assert [event.data for event in recorder.of(events.AttemptProgress)] == [{"rows": (1, {"a": None})}]


async def halts_in_a_group(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("so far")

    async def spend() -> None:
        context.governor.record_usage(prompt_tokens=60)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(spend)
    raise AssertionError("the group must have raised")


async def is_short_in_a_group(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("so far")
    async with anyio.create_task_group():
        context.governor.reserve(tokens=60)
        context.governor.reserve(tokens=60)
    raise AssertionError("the group must have raised")


@pytest.mark.parametrize("agent", [halts_in_a_group, is_short_in_a_group])
async def test_kf_u06_a_halt_out_of_a_task_group_is_a_halt(agent: Any) -> None:
    """It is unwrapped from its ExceptionGroup: the attempt is HALTED with reason and partial work, not retried."""
    team, recorder = bench(agent)
    request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(budget=kt.Budget(tokens=100)))
    result = await TaskDispatchCoordinator().execute(request, team)
    outcome = result.outcomes[0]
    assert (outcome.attempts, outcome.artifact) == (1, kt.Artifact("so far", partial=True))
    assert [event.reason for event in recorder.of(events.BudgetHalted)] == ["token_budget_exceeded"]
    assert result.status is kt.TeamStatus.FAILED
    if agent is halts_in_a_group:
        assert result.halt is kt.HaltReason.TOKEN_BUDGET_EXCEEDED


# ---------------------------------------------------------------- what a try spent


async def test_audit_g13_an_attempts_last_event_has_what_that_attempt_spent() -> None:
    """Its seconds too: neither the tries before nor the pause between them."""
    spending = iter((10, 7, 5))

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=next(spending), dollars="0.5", tool_calls=1)
        await anyio.sleep(2)
        return "made"

    async def block(run: kt.TeamRun) -> None:
        async for task in run.ready(await run.plan(lambda: graph_of("one"))):
            attempts: list[Attempt] = []
            for number in (1, 2, 3):
                attempts.append(await run.attempt(task, number))
                await run.pause(task, 60)
            assert [made.usage.tokens for made in attempts] == [10, 17, 22], "all the task spent so far"
            outputs = [made.output for made in attempts if made.output is not None]
            assert [made.usage.tokens for made in outputs] == [10, 7, 5]
            run.accept(task, attempts[-1])

    team, recorder = bench(work)
    result = await Coordinator(block).execute(kt.TeamExecutionRequest("goal"), team)
    assert result.check()["one"].usage.tokens == 22
    finished = [event.usage for event in recorder.of(events.AttemptFinished)]
    assert [(one.tokens, one.loops, one.tool_calls, str(one.dollars)) for one in finished] == [
        (10, 1, 1, "0.5"),
        (7, 1, 1, "0.5"),
        (5, 1, 1, "0.5"),
    ]
    assert [one.seconds for one in finished] == pytest.approx([2, 2, 2])
