"""Late is late: also an agent that never lets the event loop turn has its timeout, and is warned of by name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import Timeout
from kairo_team.testing import ScriptedAgent, run_in_virtual_time
from tests.constrained import watcher

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
COMPLETED, FAILED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED


def block(seconds: float) -> None:
    """Let virtual time pass without a turn of the event loop, as `time.sleep` does with real time."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        clock: Any = trio.lowlevel.current_clock()
        clock.jump(seconds)
    else:
        loop._jumping.now += seconds


def steps(*given: tuple[str, float]) -> Any:
    """An agent that blocks and waits for so many seconds, and returns something in the end."""

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        for how, seconds in given:
            if how == "block":
                block(seconds)
            else:
                await anyio.sleep(seconds)
        return "late"

    return agent


def asked(**config: Any) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task("a", "do", member="rude"), kt.Task("b", "do", member="other", timeout=60)])
    return kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id="r")


def team_of(agent: Any, **fields: Any) -> kt.Team:
    return kt.Team("team", [kt.Member("rude", agent, **fields), kt.Member("other", ScriptedAgent(["made"]))])


BLOCKED = "'rude' blocked the event loop for 2.0 seconds"


@pytest.mark.parametrize("guarded", [False, True], ids=["", "constrained"])
@pytest.mark.parametrize(
    "how",
    [[("block", 2.0)], [("wait", 0.1), ("block", 2.0)], [("block", 2.0), ("block", 0.1)]],
    ids=["first", "later", "all"],
)
async def test_audit_g03_who_blocks_the_loop_past_its_timeout_and_returns_has_timed_out(
    how: Sequence[tuple[str, float]], guarded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        team = team_of(steps(*how), constraints=[watcher()] if guarded else [])
        result = await ONCE.execute(asked(task_timeout=0.5), team)
    assert (result["a"].status, result["a"].error) == (FAILED, "timed out after 0.5 seconds")
    assert result["a"].artifact == kt.Artifact("half", partial=True)
    assert result["b"].status is COMPLETED
    (warning,) = [one for one in result.warnings if "blocked the event loop" in one]
    assert warning.startswith("'rude' blocked the event loop for 2.")
    assert warning in caplog.text


async def test_audit_g03_a_watch_beside_it_does_not_hide_that_it_is_late() -> None:
    team = team_of(steps(("block", 2.0)), constraints=[Timeout(60)])
    result = await ONCE.execute(asked(task_timeout=0.5), team)
    assert result["a"].error == "timed out after 0.5 seconds"
    assert any(BLOCKED in one for one in result.warnings)


async def test_audit_g03_who_blocks_again_and_again_is_warned_of_once() -> None:
    team = team_of(steps(*[("block", 2.0), ("wait", 1.0)] * 5))
    result = await ONCE.execute(asked(), team)
    assert result["a"].status is COMPLETED
    assert [BLOCKED in one for one in result.warnings].count(True) == 1


async def test_audit_g03_a_block_within_the_timeout_is_in_time_and_a_short_one_is_nobodys_business() -> None:
    result = await ONCE.execute(asked(task_timeout=3.0), team_of(steps(("block", 0.9), ("wait", 0.1), ("block", 0.9))))
    assert result["a"].status is COMPLETED
    assert result.warnings == ()


async def test_audit_g03_the_next_try_may_be_in_time() -> None:
    slow = steps(("block", 2.0))
    tries: list[int] = []

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        tries.append(1)
        text: str = await slow(assignment, context) if len(tries) == 1 else "in time"
        return text

    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1, backoff=0.1))
    result = await coordinator.execute(asked(task_timeout=0.5), team_of(agent))
    assert (result["a"].status, result["a"].attempts) == (COMPLETED, 2)
    assert result["a"].artifact == kt.Artifact("in time")


async def test_audit_g03_a_block_past_the_deadline_of_the_team_ends_the_run() -> None:
    result = await ONCE.execute(asked(budget=kt.Budget(seconds=1.0)), team_of(steps(("block", 2.0))))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result["a"].status is kt.TaskStatus.CANCELLED


async def test_audit_g03_a_review_that_blocks_past_its_timeout_is_late_too() -> None:
    class Blocks:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            block(2.0)
            return kt.EvaluationVerdict.passed()

    team = kt.Team("team", [kt.Member("m", ScriptedAgent(["made"]))])
    request = replace(asked(review_timeout=0.5), plan=kt.TaskGraph([kt.Task("a", "do")]))
    result = await ExpertTeamCoordinator(evaluator=Blocks()).execute(request, team)
    verdict = result["a"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, "evaluator_timeout")
    assert any("'Blocks' blocked the event loop for 2.0 seconds" in one for one in result.warnings)


ways = st.lists(st.tuples(st.sampled_from(["block", "wait"]), st.integers(0, 8).map(lambda n: n / 8)), max_size=6)


@given(ways, st.integers(1, 24).map(lambda n: n / 8 + 1 / 16), st.sampled_from(["asyncio", "trio"]))
def test_audit_g03_an_attempt_is_late_exactly_when_it_took_longer_than_its_timeout(
    how: list[tuple[str, float]], timeout: float, backend: str
) -> None:
    """However the seconds are spent, blocking or waiting, and in whatever order."""

    async def play() -> kt.TeamResult:
        return await ONCE.execute(asked(task_timeout=timeout), team_of(steps(*how)))

    result = run_in_virtual_time(play, backend=backend)
    assert result["b"].status is COMPLETED
    assert (result["a"].status is FAILED) == (sum(seconds for _, seconds in how) > timeout)


@pytest.mark.real_time
async def test_audit_g03_time_sleep_in_an_async_agent() -> None:
    async def agent(assignment: kt.Assignment) -> str:
        time.sleep(0.2)  # noqa: ASYNC251 - what must not be written
        return "late"

    result = await ONCE.execute(asked(task_timeout=0.1), team_of(agent))
    assert result["a"].error == "timed out after 0.1 seconds"
