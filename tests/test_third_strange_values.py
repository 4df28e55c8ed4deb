"""Values that cannot be shown, errors that cannot be raised twice, and plug-ins that cancel the task they run in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.conditions import Condition
from kairo_team.coordinators import ExpertTeamCoordinator, GroupChatCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.events import Event
from kairo_team.messages import Message, ModelRequest
from kairo_team.plugin_calls import problem_of, shown, words_of
from kairo_team.testing import EventRecorder, FunctionModel, virtual_time
from kairo_team.tools import Tool
from tests.misdeeds import End
from tests.test_borders import ONCE, good, slow

COMPLETED, FAILED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED
ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", [virtual_time("asyncio")], ids=["asyncio"])


def unshown(raises: BaseException) -> Any:
    """Return a value whose `repr` raises."""

    class Value:
        def __repr__(self) -> str:
            raise raises

    return Value()


ERRORS = [ValueError("no"), SystemExit(3), KeyboardInterrupt(), End("x"), RecursionError()]


@pytest.mark.parametrize("raises", ERRORS, ids=lambda error: type(error).__name__)
def test_third_o05_a_value_that_cannot_be_shown_is_named_by_its_class(raises: BaseException) -> None:
    assert shown(unshown(raises)) == "a Value that cannot be shown"
    assert shown("x" * 500, 10) == "'xxxxxxxxx"


@pytest.mark.parametrize("raises", ERRORS, ids=lambda error: type(error).__name__)
async def test_third_o05_a_condition_whose_value_cannot_be_shown_fails_only_its_task(raises: BaseException) -> None:
    team = kt.Team("team", [kt.Member("m", good)], conditions={"odd": lambda value: unshown(raises)})
    plan = kt.TaskGraph(
        [
            kt.Task("a", "do"),
            kt.Task("b", "do", depends_on=["a"], when=Condition("a", "holds", "odd")),
            kt.Task("c", "do"),
        ]
    )
    result = await kt.run(team, "goal", plan=plan, coordinator="board")
    assert (result["a"].status, result["b"].status, result["c"].status) == (COMPLETED, FAILED, COMPLETED)
    assert "returned a Value that cannot be shown" in (result["b"].error or "")


@pytest.mark.parametrize("raises", ERRORS, ids=lambda error: type(error).__name__)
async def test_third_o05_a_verdict_that_cannot_be_shown_fails_only_its_task(raises: BaseException) -> None:
    class Evaluator:
        async def evaluate(self, context: kt.EvaluationContext) -> Any:
            return unshown(raises)

    team = kt.Team("team", [kt.Member("m", good)], evaluators={"odd": Evaluator()})
    plan = kt.TaskGraph([kt.Task("a", "do", evaluator="odd"), kt.Task("b", "do")])
    result = await kt.run(team, "goal", plan=plan, coordinator=TaskDispatchCoordinator(failure_policy=ONCE))
    assert (result["a"].status, result["b"].status) == (FAILED, COMPLETED)
    assert "returned a Value that cannot be shown" in (result["a"].error or "")


@pytest.mark.parametrize("raises", ERRORS, ids=lambda error: type(error).__name__)
async def test_third_o05_a_plan_that_cannot_be_shown_is_no_plan(raises: BaseException) -> None:
    class Planner:
        async def plan(self, request: Any, team: Any, context: Any) -> Any:
            return unshown(raises)

    coordinator = ExpertTeamCoordinator(planner=Planner(), evaluator=None)
    result = await kt.run(kt.Team("team", [kt.Member("m", good)]), "goal", coordinator=coordinator)
    assert any("the planner returned a Value that cannot be shown" in one for one in result.warnings), result


# ---------------------------------------------------------------- who cancels the task it runs in


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def of(culprit: str, *, awaits: bool) -> Any:
    async def act(*_: Any, **__: Any) -> Any:
        cancel()
        if awaits:
            await asyncio.sleep(0.1)
        return {"planner": kt.TaskGraph([kt.Task("a", "do")]), "moderator": "a"}.get(culprit)

    return act


@ON_ASYNCIO
@pytest.mark.parametrize("awaits", [False, True])
async def test_third_o05_a_planner_that_cancels_its_task_has_failed(anyio_backend: Any, awaits: bool) -> None:
    class Planner:
        plan = staticmethod(of("planner", awaits=awaits))

    planner: Any = Planner()
    coordinator = ExpertTeamCoordinator(planner=planner, evaluator=None)
    result = await kt.run(kt.Team("team", [kt.Member("m", good)]), "goal", coordinator=coordinator)
    assert result.status is (kt.TeamStatus.FAILED if awaits else kt.TeamStatus.COMPLETED), result
    assert ("it was not cancelled" in (result.error or "")) is awaits


@ON_ASYNCIO
@pytest.mark.parametrize("awaits", [False, True])
async def test_third_o05_a_moderator_that_cancels_its_task_has_failed(anyio_backend: Any, awaits: bool) -> None:
    team = kt.Team("team", [kt.Member("a", good), kt.Member("b", good)])
    coordinator = GroupChatCoordinator(moderator=of("moderator", awaits=awaits), max_turns=3)
    result = await kt.run(team, "goal", coordinator=coordinator)
    assert [one.status for one in result.outcomes] == [COMPLETED] * 3, result


@ON_ASYNCIO
async def test_third_o05_a_condition_that_cancels_its_task_fails_only_what_it_decides(anyio_backend: Any) -> None:
    def odd(value: object) -> bool:
        cancel()
        return True

    team = kt.Team("team", [kt.Member("m", good)], conditions={"odd": odd})
    plan = kt.TaskGraph(
        [
            kt.Task("a", "do"),
            kt.Task("b", "do", depends_on=["a"], when=Condition("a", "holds", "odd")),
            *(kt.Task(f"beside-{n}", "do") for n in range(4)),
        ]
    )
    result = await kt.run(team, "goal", plan=plan, coordinator="board")
    assert {one.task_id for one in result.outcomes if one.status is not COMPLETED} == {"b"}, result.outcomes
    assert "it cancelled the task it ran in" in (result["b"].error or "")


@ON_ASYNCIO
async def test_third_o05_an_until_that_cancels_its_task_does_not_end_the_talk(anyio_backend: Any) -> None:
    def until(transcript: Any) -> bool:
        cancel()
        return False

    team = kt.Team("team", [kt.Member("a", good), kt.Member("b", good)])
    result = await kt.run(team, "goal", coordinator=GroupChatCoordinator(until=until, max_turns=3))
    assert [one.status for one in result.outcomes] == [COMPLETED] * 3, result


@ON_ASYNCIO
@pytest.mark.parametrize("at", range(0, 30, 3))
async def test_third_o05_a_subscriber_that_cancels_the_task_it_is_called_in_hurts_nobody(
    anyio_backend: Any, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def subscriber(event: Event) -> None:
        seen.append(event.type)
        if len(seen) > at:
            cancel()

    team = kt.Team("team", [kt.Member("m", kt.MiniAgent(FunctionModel(lambda request: "well"))), kt.Member("n", slow)])
    plan = kt.TaskGraph([kt.Task(f"t{n}", "do", member="m" if n % 2 else "n") for n in range(4)])
    with caplog.at_level(logging.ERROR):
        result = await kt.run(team, "goal", plan=plan, runtime=kt.Runtime(subscribers=[subscriber]))
    assert result.status is kt.TeamStatus.COMPLETED, result
    assert len(seen) == at + 1, "it gets no more events"
    assert "it cancelled the task it ran in" in caplog.text


@ON_ASYNCIO
@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("at", [0, 4, 9])
async def test_third_o05_an_async_subscriber_that_cancels_its_task_ends_nothing_but_itself(
    anyio_backend: Any, at: int, awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen, told = list[str](), list[str]()

    async def subscriber(event: Event) -> None:
        seen.append(event.type)
        if len(seen) > at:
            cancel()
            if awaits:
                await anyio.lowlevel.checkpoint()

    async def other(event: Event) -> None:
        told.append(event.type)

    team = kt.Team("team", [kt.Member("m", kt.MiniAgent(FunctionModel(lambda request: "well"))), kt.Member("n", slow)])
    with caplog.at_level(logging.ERROR):
        result = await kt.run(team, "goal", runtime=kt.Runtime(subscribers=[subscriber, other]))
    assert result.status is kt.TeamStatus.COMPLETED, result
    assert len(seen) == at + 1, "it gets no more events"
    assert told[-1] == "team.completed"
    assert "raised and gets no more events" in caplog.text


# ---------------------------------------------------------------- groups


class Own(ExceptionGroup[Exception]):
    """A group that cannot be split."""

    def derive(self, excs: Any, /) -> Any:
        raise TypeError("it cannot be copied")


def deep(levels: int, leaf: Exception) -> Exception:
    error = leaf
    for _ in range(levels):
        error = ExceptionGroup("", [error])
    return error


GROUPS: dict[str, Callable[[], Exception]] = {
    "cannot be copied": lambda: Own("own", [OSError("disk full"), ValueError("x")]),
    "inside another": lambda: ExceptionGroup("outer", [Own("own", [OSError("disk full")]), ValueError("x")]),
    "3,000 deep": lambda: deep(3000, OSError("disk full")),
    "deep and wide": lambda: ExceptionGroup("two", [deep(3000, OSError("disk full")), ValueError("x")]),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", GROUPS)
async def test_third_o05_a_group_that_no_scope_can_split_fails_only_its_attempt(name: str, waits: bool) -> None:
    async def agent(assignment: kt.Assignment) -> str:
        if waits:
            await anyio.sleep(0.5)
        error = GROUPS[name]()
        raise error

    recorder = EventRecorder()
    team = kt.Team("team", [kt.Member("bad", agent), kt.Member("good", slow)])
    plan = kt.TaskGraph([kt.Task("bad", "do", member="bad"), kt.Task("good", "do", member="good")])
    runtime = kt.Runtime(subscribers=[recorder])
    coordinator = TaskDispatchCoordinator(failure_policy=ONCE)
    result = await kt.run(team, "goal", plan=plan, coordinator=coordinator, runtime=runtime)
    recorder.assert_lawful()
    assert (result["bad"].status, result["good"].status) == (FAILED, COMPLETED)
    assert "OSError: disk full" in (result["bad"].error or "")


def two() -> ExceptionGroup[Exception]:
    return ExceptionGroup(
        "unhandled errors in a TaskGroup", [OSError("disk full"), ExceptionGroup("", [KeyError("k")])]
    )


def test_third_o40_a_group_says_what_its_leaves_say_within_bounds() -> None:
    assert problem_of(two()) == ("ExceptionGroup: unhandled errors in a TaskGroup: OSError: disk full; KeyError: 'k'")
    assert words_of(two()) == problem_of(two())
    assert problem_of(ExceptionGroup("one", [OSError("disk full")])) == "OSError: disk full"
    many = problem_of(ExceptionGroup("many", [OSError(str(number)) for number in range(2000)]))
    assert many.endswith("OSError: 4; and 1,995 more")
    assert len(problem_of(ExceptionGroup("long", [OSError("x" * 10_000), OSError("y")]))) == 500
    assert problem_of(deep(3000, OSError("disk full"))) == "OSError: disk full"


@pytest.mark.parametrize("place", ["agent", "tool", "evaluator", "check", "model", "planner"])
async def test_third_o40_a_group_of_two_shows_its_causes_wherever_it_is_raised(place: str) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        await anyio.sleep(0.1)
        raise two()

    async def uses(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(Tool("bad", fail))()).text

    async def asks(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        class Model:
            name = "test:bad"
            complete = staticmethod(fail)

        model: Any = Model()
        return (await context.model(model).complete(ModelRequest([Message.user("go")]))).text

    class Strategy:
        evaluate = plan = staticmethod(fail)

    strategy: Any = Strategy()
    evaluators = {"evaluator": strategy, "check": Rubric([Criterion("c", "it is well", fail)])}
    agent: Any = {"agent": fail, "tool": uses, "model": asks}.get(place, good)
    team = kt.Team("team", [kt.Member("m", agent)], evaluators=evaluators)
    given = kt.TaskGraph([kt.Task("a", "do", evaluator=place if place in evaluators else None)])
    coordinator: Any = TaskDispatchCoordinator(failure_policy=ONCE)
    if place == "planner":
        coordinator = ExpertTeamCoordinator(planner=strategy, evaluator=None)
    plan = None if place == "planner" else given
    result = await kt.run(team, "goal", plan=plan, coordinator=coordinator)
    said = repr((result.warnings, [(one.error, one.verdict, one.artifact) for one in result.outcomes]))
    assert "OSError: disk full" in said
    assert "KeyError: " in said
