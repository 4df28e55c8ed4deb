"""An attempt that is to end ends: whatever its agent does about its cancellation, and the run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import HaltError
from kairo_team.governance import Timeout
from kairo_team.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

GRACE = 2.0
ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
Agent = Callable[[kt.Assignment, kt.MemberContext], Awaitable[str]]


async def swallows(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Take the cancellation for a hint."""
    context.keep("half")
    try:
        await anyio.sleep(100)
    except anyio.get_cancelled_exc_class():
        return "late"
    return "whole"


async def shields(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half")
    with anyio.CancelScope(shield=True):
        await anyio.sleep(100)
    return "late"


async def shields_for_ever(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half")
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()
    raise AssertionError


async def shields_after_its_cancellation(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half")
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)
    raise AssertionError


async def fails_instead(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        raise OSError("connection lost") from None
    raise AssertionError


STUBBORN = [swallows, shields, shields_for_ever, shields_after_its_cancellation, fails_instead]


def team_of(agent: Agent, **fields: Any) -> kt.Team:
    return kt.Team("team", [kt.Member("rude", agent), kt.Member("other", ScriptedAgent(["made"]))], **fields)


def request(*, budget: kt.Budget | None = None, **config: Any) -> kt.TeamExecutionRequest:
    given = kt.TeamConfig(cancel_grace=GRACE, **config)
    plan = kt.TaskGraph([kt.Task("a", "do", member="rude", budget=budget)])
    return kt.TeamExecutionRequest("goal", plan=plan, config=given, run_id="r")


def check(result: kt.TeamResult, agent: Agent, end: float) -> None:
    """Check that the attempt was over within the grace, with what was kept, and who had to be closed is named."""
    assert end <= result.duration <= end + GRACE + 0.1
    assert result["a"].artifact == kt.Artifact("half", partial=True)
    closed = agent not in {swallows, fails_instead}
    assert any("'rude' did not end" in one for one in result.warnings) == closed


@pytest.mark.parametrize("agent", STUBBORN)
@pytest.mark.parametrize("own", [False, True])
async def test_kf_t02_an_attempt_that_timed_out_has_failed_whatever_its_agent_returns(agent: Agent, own: bool) -> None:
    """T02: a step timeout was booked as PASS."""
    asked = request(task_timeout=None if own else 1.0)
    if own:
        plan = kt.TaskGraph([kt.Task("a", "do", member="rude", timeout=1.0)])
        asked = kt.TeamExecutionRequest("goal", plan=plan, config=asked.config)
    result = await ONCE.execute(asked, team_of(agent))
    assert (result["a"].status, result["a"].error) == (kt.TaskStatus.FAILED, "timed out after 1 second")
    check(result, agent, 1.0)


@pytest.mark.parametrize("agent", STUBBORN)
async def test_a_cancelled_task_ends_within_the_grace_and_the_run_goes_on(agent: Agent) -> None:
    plan = kt.TaskGraph([kt.Task("a", "do", member="rude"), kt.Task("b", "do", member="other")])
    config = kt.TeamConfig(cancel_grace=GRACE, max_parallel_tasks=1)
    asked = kt.TeamExecutionRequest("goal", plan=plan, config=config, run_id="r")
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(agent), asked, coordinator=ONCE)
        await anyio.sleep(1)
        run.cancel_task("a", "not needed")
        result = await run.result()
    assert (result["a"].status, result["a"].error) == (kt.TaskStatus.CANCELLED, "not needed")
    assert result["b"].status is kt.TaskStatus.COMPLETED
    check(result, agent, 1.0)


@pytest.mark.parametrize("agent", STUBBORN)
async def test_the_seconds_of_a_tasks_budget_bound_it_too(agent: Agent) -> None:
    result = await ONCE.execute(request(budget=kt.Budget(seconds=1.0)), team_of(agent))
    assert result["a"].status is kt.TaskStatus.FAILED
    assert result.duration <= 1.0 + GRACE + 0.1


def spend(governor: Any) -> None:
    """Book what the agent gets to know from its scope alone."""
    with contextlib.suppress(HaltError):
        governor.record_usage(prompt_tokens=500)


async def spend_later(governor: Any) -> None:
    await anyio.sleep(1)
    spend(governor)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("agent", STUBBORN)
async def test_a_stopped_attempt_ends_within_the_grace(agent: Agent, at_once: bool) -> None:
    """A budget that is used up in the middle, or before the agent first waits for anything."""

    async def spends(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if at_once:
            spend(context.governor)
        else:
            beside.start_soon(spend_later, context.governor)
        return await agent(assignment, context)

    async with anyio.create_task_group() as beside:
        result = await ONCE.execute(request(budget=kt.Budget(tokens=100)), team_of(spends))
        assert result["a"].status is kt.TaskStatus.FAILED
        assert result.duration <= 1.0 + GRACE + 0.1


@pytest.mark.parametrize("agent", STUBBORN)
async def test_a_member_that_may_be_called_once_at_a_time_is_free_again_when_its_agent_has_ended(agent: Agent) -> None:
    inside = most = 0

    async def once(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return await agent(assignment, context)
        finally:
            inside -= 1

    team = kt.Team("team", [kt.Member("rude", once, max_concurrency=1)])
    plan = kt.TaskGraph([kt.Task(name, "do") for name in "abc"])
    asked = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(cancel_grace=GRACE, task_timeout=1.0))
    result = await ONCE.execute(asked, team)
    assert {one.error for one in result.outcomes} == {"timed out after 1 second"}
    assert (most, inside) == (1, 0)
    assert result.duration <= 3 * (1.0 + GRACE) + 0.1


async def test_one_that_cannot_be_closed_has_failed_all_the_same_and_is_named(
    anyio_backend: tuple[str, dict[str, Any]],
) -> None:
    """On trio an open task group must be waited for: nothing may close what it stands in."""

    async def in_a_task_group(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with anyio.create_task_group():
            return await shields(assignment, context)
        raise AssertionError

    result = await ONCE.execute(request(task_timeout=1.0), team_of(in_a_task_group))
    assert (result["a"].status, result["a"].error) == (kt.TaskStatus.FAILED, "timed out after 1 second")
    assert result["a"].artifact == kt.Artifact("half", partial=True)
    assert any("'rude' did not end when it was cancelled" in warning for warning in result.warnings)
    late = anyio_backend[0] == "trio"
    assert result.duration == pytest.approx(100.0 if late else 1.0 + GRACE, abs=0.1)
    assert any("it was waited for" in warning for warning in result.warnings) == late


async def test_many_at_once_end_at_once() -> None:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do", member="rude") for number in range(100)])
    config = kt.TeamConfig(cancel_grace=GRACE, task_timeout=1.0)
    result = await ONCE.execute(kt.TeamExecutionRequest("goal", plan=plan, config=config), team_of(shields_for_ever))
    assert {one.error for one in result.outcomes} == {"timed out after 1 second"}
    assert result.duration <= 1.0 + GRACE + 0.1


@pytest.mark.parametrize("grace", [0.0, GRACE])
async def test_clean_up_at_the_timeout_has_the_grace_and_some_turns_in_any_case(grace: float) -> None:
    ended: list[str] = []

    async def tidy(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                await anyio.sleep(grace * 0.9)
            ended.append("tidied")
        raise AssertionError

    config = kt.TeamConfig(cancel_grace=grace, task_timeout=1.0)
    asked = kt.TeamExecutionRequest("goal", plan=request().plan, config=config)
    result = await ONCE.execute(asked, team_of(tidy))
    assert ended == ["tidied"]
    assert result.duration == pytest.approx(1.0 + grace * 0.9)
    assert not any("closed" in warning for warning in result.warnings)


async def test_a_watch_of_a_constraint_that_stops_the_attempt_stops_a_shielded_one() -> None:
    team = kt.Team("team", [kt.Member("rude", shields, constraints=[Timeout(1.0)])])
    result = await ONCE.execute(request(), team)
    assert result["a"].status is kt.TaskStatus.FAILED
    assert result.duration <= 1.0 + GRACE + 0.1


@pytest.mark.parametrize("by", ["timeout", "cancel"])
async def test_a_review_that_is_cancelled_ends_within_the_grace(by: str) -> None:
    ended: list[float] = []

    class Stuck:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep_forever()
            finally:
                ended.append(anyio.current_time())
            raise AssertionError

    config = kt.TeamConfig(cancel_grace=GRACE, review_timeout=1.0 if by == "timeout" else None)
    asked = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("a", "do")]), config=config)
    team = kt.Team("team", [kt.Member("m", ScriptedAgent(["made"]))])
    runtime = kt.Runtime()
    async with runtime:
        run = await runtime.start(team, asked, coordinator=ExpertTeamCoordinator(evaluator=Stuck()))
        await anyio.sleep(1)
        if by == "cancel":
            run.cancel_task("a", "not needed")
    result = await run.result()
    assert result["a"].status is (kt.TaskStatus.CANCELLED if by == "cancel" else kt.TaskStatus.FAILED)
    assert result.duration == pytest.approx(1.0 + GRACE, abs=0.1)
    assert len(ended) == 1


async def test_a_late_verdict_is_no_verdict() -> None:
    """T02 again: the evaluator takes its cancellation for a hint, and passes."""

    class Late:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
            return kt.EvaluationVerdict.passed()

    asked = kt.TeamExecutionRequest("goal", config=kt.TeamConfig(cancel_grace=GRACE, review_timeout=1.0))
    team = kt.Team("team", [kt.Member("m", ScriptedAgent(["made"]))])
    result = await ExpertTeamCoordinator(evaluator=Late()).execute(asked, team)
    verdict = result.outcomes[0].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, "evaluator_timeout")
