"""A cancel scope or task group that a plug-in leaves open is closed, and hurts nobody else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import MiniAgent
from kairo_team.coordinators import ExpertTeamCoordinator, GroupChatCoordinator, TaskDispatchCoordinator
from kairo_team.engine.run.lone_agent import run_alone
from kairo_team.events import Event
from kairo_team.messages import ModelRequest
from kairo_team.testing import EventRecorder, FunctionModel
from kairo_team.tools import Tool
from tests.test_borders import ONCE, Constraint, good

COMPLETED, FAILED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED
KEPT: list[Any] = []
"""What the plug-ins here keep, so that nothing is closed by the garbage collector."""


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    KEPT.clear()


async def enter_scope(**given: Any) -> anyio.CancelScope:
    scope = anyio.CancelScope(**given)
    scope.__enter__()
    KEPT.append(scope)
    return scope


async def a_scope() -> None:
    await enter_scope()


async def a_cancelled_scope() -> None:
    (await enter_scope()).cancel()


async def a_shielded_scope() -> None:
    await enter_scope(shield=True)


async def a_deadline() -> None:
    await enter_scope(deadline=anyio.current_time() + 0.5)


async def a_task_group() -> None:
    stack = AsyncExitStack()
    KEPT.append(stack)
    group = await stack.enter_async_context(anyio.create_task_group())
    group.start_soon(anyio.sleep_forever)
    await anyio.sleep(0.1)


async def a_failing_task_group() -> None:
    async def fail() -> None:
        await anyio.sleep(0.2)
        raise OSError("in the background")

    stack = AsyncExitStack()
    KEPT.append(stack)
    group = await stack.enter_async_context(anyio.create_task_group())
    group.start_soon(fail)


async def several() -> None:
    await a_scope()
    await a_task_group()
    await a_cancelled_scope()


async def a_generator() -> None:
    async def numbers() -> AsyncGenerator[int]:
        with anyio.CancelScope():
            for number in range(3):
                await anyio.sleep(0.1)
                yield number

    made = numbers()
    KEPT.append(made)
    async for _ in made:
        return


WAYS = [
    a_scope, a_cancelled_scope, a_shielded_scope, a_deadline, a_task_group, a_failing_task_group, several, a_generator,
]  # fmt: skip
Leave = Callable[[], Awaitable[None]]


async def long(assignment: kt.Assignment) -> str:
    for _ in range(4):
        await anyio.sleep(1)
    return "long work"


async def run(agent: Any, *, team: dict[str, Any] | None = None, **given: Any) -> kt.TeamResult:
    """Let the agent work beside others, and let others follow it."""
    recorder = EventRecorder()
    subscribers = [recorder, *given.pop("subscribers", ())]
    members = [kt.Member("bad", agent), kt.Member("long", long), kt.Member("good", good)]
    named = kt.Team("team", members, runtime=kt.Runtime(subscribers=subscribers), **team or {})
    tasks = [
        kt.Task("bad", "do", member="bad", **given.pop("task", {})),
        kt.Task("long", "do", member="long"),
        *(kt.Task(f"after-{n}", "do", member="good", depends_on=["bad"], needs=0) for n in range(3)),
        *(kt.Task(f"beside-{n}", "do", member="good") for n in range(3)),
    ]
    given.setdefault("coordinator", TaskDispatchCoordinator(failure_policy=ONCE))
    result = await kt.run(named, "goal", plan=kt.TaskGraph(tasks), **given)
    recorder.assert_lawful()
    others = {one.task_id: one.status for one in result.outcomes if one.task_id != "bad"}
    assert set(others.values()) == {COMPLETED}, (others, result.error)
    return result


@pytest.mark.parametrize("then", ["returns", "waits", "raises"])
@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_member_that_leaves_one_open_hurts_only_itself(leave: Leave, then: str) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        await leave()
        if then == "waits":
            await anyio.sleep(2)
        if then == "raises":
            raise OSError("no answer")
        return "made"

    result = await run(agent)
    assert any("'bad' left a cancel scope or task group open" in one for one in result.warnings), result.warnings
    if then == "returns":
        assert result["bad"].status is COMPLETED, result["bad"]
    if then == "raises":
        assert (result["bad"].status, result["bad"].error) == (FAILED, "OSError: no answer")


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_member_that_leaves_one_open_and_hangs_ends_at_its_timeout(leave: Leave) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        await leave()
        await anyio.sleep_forever()
        raise AssertionError

    result = await run(agent, task={"timeout": 3.0})
    assert result["bad"].status is FAILED


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_tool_that_leaves_one_open_hurts_only_its_attempt(leave: Leave) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async def act(arguments: Mapping[str, Any]) -> str:
            await leave()
            return "acted"

        return (await context.tool(Tool("bad", act))()).text

    await run(agent)


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_model_that_leaves_one_open_hurts_only_its_attempt(leave: Leave) -> None:
    async def answer(request: ModelRequest) -> str:
        await leave()
        return "answered"

    await run(kt.MiniAgent(FunctionModel(answer)))


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_an_evaluator_that_leaves_one_open_hurts_only_its_review(leave: Leave) -> None:
    class Evaluator:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            await leave()
            return kt.EvaluationVerdict.passed(1.0)

    await run(good, team={"evaluators": {"bad": Evaluator()}}, task={"evaluator": "bad"})


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_subscriber_that_leaves_one_open_hurts_nobody(leave: Leave) -> None:
    seen: list[str] = []

    async def subscriber(event: Event) -> None:
        seen.append(event.type)
        if len(seen) == 3:
            await leave()

    result = await run(good, subscribers=[subscriber])
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert len(seen) >= 3


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_tool_source_that_leaves_one_open_hurts_nobody(leave: Leave) -> None:
    class Source:
        name = "shelf"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[list[Tool]]:
            await leave()
            yield []

    await run(kt.MiniAgent(FunctionModel(lambda request: "well"), tools=[Source()]))


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_watch_that_leaves_one_open_hurts_only_its_attempt(leave: Leave) -> None:
    async def watch() -> Any:
        await leave()
        await anyio.sleep_forever()

    constraint: Any = Constraint(watch=watch)
    team = kt.Team("team", [kt.Member("bad", good, constraints=[constraint]), kt.Member("long", long)])
    plan = kt.TaskGraph([kt.Task("bad", "do", member="bad"), kt.Task("long", "do", member="long")])
    result = await kt.run(team, "goal", plan=plan, coordinator=TaskDispatchCoordinator(failure_policy=ONCE))
    assert result["long"].status is COMPLETED, result.error


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_watch_of_the_team_that_leaves_one_open_is_closed_or_stops_the_run(leave: Leave) -> None:
    async def watch() -> Any:
        await leave()
        await anyio.sleep_forever()

    constraint: Any = Constraint(watch=watch)
    result = await kt.run(kt.Team("team", [kt.Member("m", good)], constraints=[constraint]), "goal")
    if leave in {a_cancelled_scope, a_deadline, a_failing_task_group, several}:  # they end the watch: it has failed
        assert result.error is not None
        assert result.error.startswith("emergency stop by the constraint 'bad': it failed with")
    else:
        assert result.status is kt.TeamStatus.COMPLETED, result.error


@pytest.mark.parametrize("of", ["member", "team"])
async def test_third_o03_a_watch_that_does_not_end_is_closed_after_the_grace(of: str) -> None:
    async def watch() -> Any:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    constraint: Any = Constraint(watch=watch)
    constraints: dict[str, Any] = {of: {"constraints": [constraint]}}
    team = kt.Team("team", [kt.Member("m", good, **constraints.get("member", {}))], **constraints.get("team", {}))
    result = await kt.run(team, "goal", config=kt.TeamConfig(cancel_grace=2.0))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.duration == pytest.approx(1.0 + 2.0)  # the work and the grace
    assert any("the watch of bad' did not end when it was cancelled and was closed" in one for one in result.warnings)


async def test_third_o03_a_watch_of_a_lone_agent_that_does_not_end_is_closed_after_the_grace() -> None:
    async def watch() -> Any:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    constraint: Any = Constraint(watch=watch)
    agent = MiniAgent(FunctionModel(lambda request: "the answer", name="test:m"))
    began = anyio.current_time()
    with anyio.fail_after(60):
        output = await run_alone(agent, "goal", constraints=[constraint])
    assert (output.status, output.artifact.text) == (kt.AgentStatus.COMPLETED, "the answer")
    assert anyio.current_time() - began == pytest.approx(1.0)  # the grace


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_planner_that_leaves_one_open_plans_all_the_same(leave: Leave) -> None:
    class Planner:
        async def plan(
            self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext
        ) -> kt.TaskGraph:
            await leave()
            return kt.TaskGraph([kt.Task("a", "do")])

    team = kt.Team("team", [kt.Member("m", good)])
    coordinator = ExpertTeamCoordinator(planner=Planner(), evaluator=None)
    result = await kt.run(team, "goal", coordinator=coordinator)
    assert result["a"].status is COMPLETED, result.error


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_moderator_that_leaves_one_open_brings_a_result(leave: Leave) -> None:
    async def moderator(transcript: Any) -> str | None:
        await leave()
        return "a" if len(transcript) < 2 else None

    team = kt.Team("team", [kt.Member("a", good), kt.Member("b", good)])
    coordinator = GroupChatCoordinator(moderator=moderator, max_turns=3)
    result = await kt.run(team, "goal", coordinator=coordinator)
    assert result.status is kt.TeamStatus.COMPLETED, result.error


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_a_coordinator_that_leaves_one_open_brings_a_result(leave: Leave) -> None:
    class Odd:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                graph = await run.plan(kt.TaskGraph([kt.Task("a", "do")]))
                async for task in run.ready(graph):
                    run.accept(task, await run.attempt(task, 1))
                await leave()
            return run.result

    result = await kt.run(kt.Team("team", [kt.Member("m", good)]), "goal", coordinator=Odd())
    assert result["a"].status is COMPLETED


@pytest.mark.parametrize("leave", WAYS)
async def test_third_o03_the_callers_cancellation_passes_what_was_left_open(leave: Leave) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        with anyio.CancelScope(shield=True):
            await leave()
        await anyio.sleep_forever()
        raise AssertionError

    team = kt.Team("team", [kt.Member("m", agent)])
    with anyio.move_on_after(3) as scope:
        await kt.run(team, "goal", plan=kt.TaskGraph([kt.Task("a", "do", timeout=None)]), coordinator="board")
    assert scope.cancelled_caught or not scope.cancel_called
