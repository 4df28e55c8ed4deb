"""A team as a member of another: one budget, one kill, one deadline."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedAgent

pytestmark = pytest.mark.anyio

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


def nested(agent: Any, *, depth: int = 1, **options: Any) -> TeamAgent:
    """A team in a team in a team ..."""
    inner = TeamAgent(kt.Team(f"inner-{depth}", [kt.Member("worker", agent)]), coordinator=ONCE, **options)
    return inner if depth == 1 else nested(inner, depth=depth - 1, **options)


async def run(agent: Any, *subscribers: Any, **config: Any) -> kt.TeamResult:
    team = kt.Team("outer", [kt.Member("desk", agent)], runtime=kt.Runtime(subscribers=subscribers))
    return await ONCE.execute(kt.TeamExecutionRequest("Do it.", config=kt.TeamConfig(**config), run_id="out"), team)


@pytest.mark.parametrize("depth", [1, 3])
async def test_what_the_inner_team_makes_is_the_members_artifact(depth: int) -> None:
    recorder = EventRecorder()
    result = await run(nested(ScriptedAgent(["made"]), depth=depth), recorder)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "made")
    assert len({event.run_id for event in recorder.events}) == depth + 1
    recorder.assert_lawful()


async def test_the_first_event_says_the_limits_and_which_task_the_run_is_inside() -> None:
    recorder = EventRecorder()
    agent = nested(ScriptedAgent(["made"]), config=kt.TeamConfig(budget=kt.Budget(tokens=50, dollars="0.5")))
    result = await run(agent, recorder, budget=kt.Budget(tokens=1_000))
    outer, inner = recorder.of(kt.events.TeamStarted)
    [task] = result.outcomes
    assert (outer.tokens, outer.picodollars, outer.within, outer.within_task) == (1_000, None, None, None)
    assert (inner.tokens, inner.picodollars, inner.within, inner.within_task) == (
        50,
        500_000_000_000,
        "out",
        task.task_id,
    )


@pytest.mark.parametrize("depth", [1, 3])
async def test_kf_b02_what_is_spent_inside_counts_on_every_team_around(depth: int) -> None:
    """B02: each nested agent got a fresh counter: limit 3, 120 child calls."""
    model = FunctionModel(lambda _: "word " * 50)
    agent = kt.MiniAgent(model, max_turns=1, settings={"max_tokens": 50})
    plan = kt.TaskGraph([kt.Task(f"t{number}", "Say it.") for number in range(40)])
    result = await run(nested(agent, depth=depth, plan=plan), budget=kt.Budget(tokens=1_000, loops=3))
    assert result.usage.loops <= 3
    assert len(model.calls) <= 3
    assert result.usage.tokens <= 1_000
    assert result.status is not kt.TeamStatus.COMPLETED


async def test_an_inner_budget_is_a_part_of_the_outer() -> None:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=30)
        return str(context.remaining.tokens)

    agent = nested(spend, config=kt.TeamConfig(budget=kt.Budget(tokens=50)))
    result = await run(agent, budget=kt.Budget(tokens=1_000))
    assert (result.output, result.usage.tokens) == ("20", 30)


async def test_the_outer_deadline_ends_the_inner_team() -> None:
    async def slow(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        await anyio.sleep(100)
        return "whole"

    recorder = EventRecorder()
    result = await run(nested(slow, depth=2), recorder, budget=kt.Budget(seconds=5.0))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert result.duration == pytest.approx(5, abs=0.1)
    recorder.assert_lawful()
    assert {event.type for event in recorder.events if event.type.startswith("team.")} <= {
        *("team.started", "team.timed_out", "team.cancelled"),
    }


async def test_a_kill_of_the_outer_run_ends_the_inner_team() -> None:
    recorder, began = EventRecorder(), anyio.Event()

    async def slow(assignment: kt.Assignment) -> str:
        began.set()
        await anyio.sleep_forever()
        return "never"

    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("outer", [kt.Member("desk", nested(slow))], runtime=runtime)
    results: list[kt.TeamResult] = []

    async def start() -> None:
        results.append(await ONCE.execute(kt.TeamExecutionRequest("Do it.", run_id="out"), team))

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        await began.wait()
        assert len(runtime.runs) == 2
        runtime.runs["out"].cancel("enough")
    assert (results[0].status, results[0].error) == (kt.TeamStatus.CANCELLED, "enough")
    assert len(runtime.runs) == 0
    recorder.assert_lawful()


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half")
    await anyio.sleep_forever()
    return "never"


@pytest.mark.parametrize("depth", [1, 3])
async def test_cancelling_the_outer_task_ends_the_inner_team_and_nothing_else(depth: int) -> None:
    async def other(assignment: kt.Assignment) -> str:
        await anyio.sleep(3)
        return "made"

    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("outer", [kt.Member("desk", nested(hang, depth=depth)), kt.Member("other", other)])
    plan = kt.TaskGraph([kt.Task("a", "do", member="desk"), kt.Task("b", "do", member="other")])
    async with runtime:
        run = await runtime.start(team, kt.TeamExecutionRequest("Do it.", plan=plan, run_id="out"), coordinator=ONCE)
        await anyio.sleep(1)
        assert len(runtime.runs) == depth + 1
        run.cancel_task("a", "not needed")
        await anyio.sleep(1)
        assert list(runtime.runs) == ["out"]
        result = await run.result()
    assert [outcome.status.value for outcome in result.outcomes] == ["cancelled", "completed"]
    recorder.assert_lawful()
    ends = [event.type for event in recorder.events if event.type.startswith("team.") and event.run_id != "out"]
    assert ends[depth:] == ["team.cancelled"] * depth


@pytest.mark.parametrize("depth", [1, 3])
async def test_the_timeout_of_the_outer_attempt_ends_the_inner_team(depth: int) -> None:
    recorder = EventRecorder()
    result = await run(nested(hang, depth=depth), recorder, task_timeout=5.0)
    assert result.status is kt.TeamStatus.FAILED
    assert result.duration == pytest.approx(5, abs=0.1)
    assert "timed out after 5 seconds" in str(result.error)
    recorder.assert_lawful()


@pytest.mark.parametrize("depth", [1, 3])
async def test_a_halt_of_the_outer_team_ends_the_inner_one_in_the_middle_of_its_work(depth: int) -> None:
    """Somebody beside it spends the last of the team's tokens."""
    ended: list[str] = []

    async def waits(assignment: kt.Assignment) -> str:
        try:
            await anyio.sleep(100)
        finally:
            ended.append("inner")
        return "never"

    async def spends(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(3)
        context.governor.record_usage(prompt_tokens=10_000)
        return "made"

    recorder = EventRecorder()
    team = kt.Team(
        "outer",
        [kt.Member("desk", nested(waits, depth=depth)), kt.Member("other", spends)],
        runtime=kt.Runtime(subscribers=[recorder]),
    )
    plan = kt.TaskGraph([kt.Task("a", "do", member="desk"), kt.Task("b", "do", member="other")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_000), task_timeout=50.0)
    result = await ONCE.execute(kt.TeamExecutionRequest("Do it.", plan=plan, config=config, run_id="out"), team)
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.TOKEN_BUDGET_EXCEEDED)
    assert ended == ["inner"]
    assert result.duration == pytest.approx(3, abs=0.1)
    recorder.assert_lawful()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("end", ["task_timeout", "budget"])
@pytest.mark.parametrize("grace", [0.0, 2.0])
async def test_a_stubborn_agent_inside_ends_within_the_outer_grace_and_its_runs_in_order(
    depth: int, end: str, grace: float
) -> None:
    """Nothing around it is closed over its head: its runs end by themselves, inner ones first, whatever their grace."""

    async def shields(assignment: kt.Assignment) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)
        return "late"

    recorder = EventRecorder()
    agent = nested(shields, depth=depth, config=kt.TeamConfig(cancel_grace=50.0))
    result = await run(
        agent, recorder, cancel_grace=grace, **{end: 5.0 if end == "task_timeout" else kt.Budget(seconds=5.0)}
    )
    assert result.status is (kt.TeamStatus.FAILED if end == "task_timeout" else kt.TeamStatus.TIMEOUT)
    assert result.duration == pytest.approx(5 + grace, abs=0.15)
    recorder.assert_lawful()
    ends = [
        event.run_id for event in recorder.events if event.type.startswith("team.") and event.type != "team.started"
    ]
    assert len(ends) == depth + 1
    assert ends == sorted(ends, key=len, reverse=True)


async def test_what_shields_itself_after_a_run_inside_is_closed_too() -> None:
    inner = nested(hang)

    async def goes_on(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        try:
            return (await inner.run(assignment, context)).text
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(100)

    for end in ("task_timeout", "budget"):
        result = await run(goes_on, cancel_grace=1.0, **{end: 5.0 if end == "task_timeout" else kt.Budget(seconds=5.0)})
        assert result.duration == pytest.approx(6, abs=0.15)
        assert any("'desk' did not end" in warning for warning in result.warnings)


async def test_the_inner_team_is_told_what_the_task_is_told() -> None:
    seen = ScriptedAgent(["made"])
    plan = kt.TaskGraph(
        [
            kt.Task("first", "Begin.", member="first"),
            kt.Task("then", "Go on.", member="desk", depends_on=["first"], inputs={"quarter": 3}),
        ]
    )
    team = kt.Team("outer", [kt.Member("first", ScriptedAgent(["begun"])), kt.Member("desk", nested(seen))])
    request = kt.TeamExecutionRequest("All of it.", context={"for": "the board"}, plan=plan)
    assert (await kt.run(team, request)).status is kt.TeamStatus.COMPLETED
    (given,) = seen.calls
    assert given.goal == "Go on."
    assert dict(given.context) == {
        "goal": "All of it.", "for": "the board", "quarter": 3, "results": {"first": "begun"}
    }  # fmt: skip


async def test_an_inner_run_that_fails_is_a_failed_attempt() -> None:
    async def bad(assignment: kt.Assignment) -> str:
        raise OSError("no paper")

    result = await run(nested(bad))
    assert result.status is kt.TeamStatus.FAILED
    assert "no paper" in str(result["task"].error)


async def test_a_degraded_inner_run_degrades_the_outer() -> None:
    plan = kt.TaskGraph([kt.Task("good", "do", member="good"), kt.Task("bad", "do", member="bad")])

    async def bad(assignment: kt.Assignment) -> str:
        raise OSError("no paper")

    async def good(assignment: kt.Assignment) -> str:
        return "made"

    inner = kt.Team("inner", [kt.Member("good", good), kt.Member("bad", bad)])
    result = await run(TeamAgent(inner, plan=plan, coordinator=ONCE))
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made")


async def test_alone_it_is_a_run_of_the_team() -> None:
    output = await nested(ScriptedAgent(["made"])).run("Do it.", budget=kt.Budget(loops=2))
    assert (output.text, output.usage.loops) == ("made", 1)
    with pytest.raises(kt.TeamFailed):
        await nested(ScriptedAgent(["made"])).run("Do it.", budget=kt.Budget(loops=0))


@pytest.mark.parametrize("wrong", [None, "team", kt.Member("m", lambda _: "x")])
def test_it_takes_a_team(wrong: Any) -> None:
    with pytest.raises(ValueError, match="takes a Team"):
        TeamAgent(wrong)
