"""The caller's cancellation leaves a run as a cancellation, and the journal says that the run was interrupted."""

from __future__ import annotations

import asyncio
import importlib
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.durable.memory import MemoryJournal
from kairo_team.testing import EventRecorder, FunctionModel, virtual_time
from kairo_team.tools import Tool
from tests.agents.rigs import Reply

PATIENT = kt.TeamConfig(task_timeout=None, review_timeout=None)
"""While a thread writes the journal, virtual time jumps past every deadline."""


@dataclass
class Scene:
    """A run that is at work for ever."""

    agent: Any
    coordinator: Any = "board"


def stay_forever(begun: anyio.Event) -> Callable[..., Awaitable[str]]:
    """Return a member that is at work until it is ended, with task groups and scopes of its own inside."""

    async def wait() -> None:
        with anyio.CancelScope():
            async with anyio.create_task_group() as inner:
                inner.start_soon(anyio.sleep_forever)
                inner.start_soon(anyio.sleep_forever)

    async def stay(*_: object) -> str:
        begun.set()
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await wait()
        return "never"

    return stay


def model_of(begun: anyio.Event) -> FunctionModel:
    stay = stay_forever(begun)

    async def answer(request: kt.ModelRequest) -> str:
        return await stay()

    return FunctionModel(answer)


def team_of(agent: Any) -> TeamAgent:
    return TeamAgent(kt.Team("inner", [kt.Member("i", agent)]), coordinator="board", plan=plan(), config=PATIENT)


def plan(*_: object) -> kt.TaskGraph:
    return kt.TaskGraph([kt.Task("do", "do it")])


def say_done(assignment: kt.Assignment) -> str:
    return "done"


class Given:
    async def plan(self, *_: object) -> kt.TaskGraph:
        return plan()


def function(begun: anyio.Event) -> Scene:
    return Scene(stay_forever(begun))


def nested_team(begun: anyio.Event) -> Scene:
    return Scene(team_of(stay_forever(begun)))


def nested_team_twice(begun: anyio.Event) -> Scene:
    return Scene(team_of(team_of(stay_forever(begun))))


def mini_agent(begun: anyio.Event) -> Scene:
    return Scene(kt.MiniAgent(model_of(begun)))


class Source:
    name = "shelf"

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[list[Tool]]:
        with anyio.CancelScope():
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                yield []
                group.cancel_scope.cancel()


def tool_source(begun: anyio.Event) -> Scene:
    return Scene(kt.MiniAgent(model_of(begun), tools=[Source()]))


def tool(begun: anyio.Event) -> Scene:
    stay = stay_forever(begun)

    @kt.tool(side_effect="read")
    async def look() -> str:
        """Look for ever."""
        return await stay()

    calls = [kt.ToolCall("1", "look", {}), kt.ToolCall("2", "look", {})]
    return Scene(kt.MiniAgent(FunctionModel(lambda request: kt.ModelResponse("", calls)), tools=[look]))


def rigged(begun: anyio.Event, library: str, module: str) -> Scene:
    pytest.importorskip(library)
    rig = importlib.import_module(f"tests.agents.{module}").RIG

    def answer(number: int) -> Reply:
        begun.set()
        return Reply("never", seconds=1e9)

    return Scene(rig(answer).agent())


def pydantic_ai(begun: anyio.Event) -> Scene:
    return rigged(begun, "pydantic_ai", "rig_pydantic_ai")


def lang_graph(begun: anyio.Event) -> Scene:
    return rigged(begun, "langgraph", "rig_langgraph")


def openai_agents(begun: anyio.Event) -> Scene:
    return rigged(begun, "agents", "rig_openai_agents")


def planner(begun: anyio.Event) -> Scene:
    return Scene(say_done, coordinator=ExpertTeamCoordinator(planner=AgentPlanner(model_of(begun))))


def planner_with_groups(begun: anyio.Event) -> Scene:
    class Planner:
        async def plan(self, *_: object) -> kt.TaskGraph:
            await stay_forever(begun)()
            raise AssertionError("it waits for ever")

    one: Any = Planner()
    return Scene(say_done, coordinator=ExpertTeamCoordinator(planner=one))


def recorded_step(begun: anyio.Event) -> Scene:
    class Asks:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with kt.TeamRun.open(request, team) as run:
                await run.step("mine", stay_forever(begun))
            return run.result

    return Scene(say_done, coordinator=Asks())


def review(begun: anyio.Event) -> Scene:
    class Evaluator:
        evaluate = staticmethod(stay_forever(begun))

    evaluator: Any = Evaluator()
    given: Any = Given()
    return Scene(say_done, ExpertTeamCoordinator(evaluator=evaluator, planner=given))


KINDS = [
    function, nested_team, nested_team_twice, mini_agent, tool_source, tool, pydantic_ai, lang_graph, openai_agents,
    planner, planner_with_groups, recorded_step, review,
]  # fmt: skip
ON_ASYNCIO = {pydantic_ai, lang_graph, openai_agents}
"""Those whose library runs on asyncio alone."""

Work = Callable[[], Coroutine[Any, Any, kt.TeamResult]]


async def task_cancel(work: Work, begun: anyio.Event) -> None:
    async def call() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await work()
        finally:
            assert task.cancelling() == 1, "the cancellation was taken back"

    task = asyncio.ensure_future(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def wait_for(work: Work, begun: anyio.Event) -> None:
    task = asyncio.ensure_future(work())
    await begun.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 1)


async def asyncio_timeout(work: Work, begun: anyio.Event) -> None:
    async def expire(timeout: asyncio.Timeout) -> None:
        await begun.wait()
        timeout.reschedule(0)

    async with asyncio.TaskGroup() as group:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as timeout:
                group.create_task(expire(timeout))
                await work()


async def failing_sibling(work: Work, begun: anyio.Event) -> None:
    async def fail() -> None:
        await begun.wait()
        raise OSError("the sibling fails")

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await work()
    assert [type(one) for one in raised.value.exceptions] == [OSError]


async def cancel_scope(work: Work, begun: anyio.Event) -> None:
    async def end(scope: anyio.CancelScope) -> None:
        await begun.wait()
        scope.cancel()

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        with scope:
            group.start_soon(end, scope)
            await work()
            raise AssertionError("a result came back")
    assert scope.cancelled_caught


async def task_group(work: Work, begun: anyio.Event) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await begun.wait()
        group.cancel_scope.cancel()


WAYS = {
    "asyncio": [task_cancel, wait_for, asyncio_timeout, failing_sibling, cancel_scope, task_group],
    "trio": [cancel_scope, task_group],
}
MATRIX = [
    pytest.param(kind, way, virtual_time(loop), id=f"{kind.__name__}-{way.__name__}-{loop}")
    for kind in KINDS
    for loop, ways in WAYS.items()
    if loop == "asyncio" or kind not in ON_ASYNCIO
    for way in ways
]


@pytest.mark.parametrize(("kind", "way", "anyio_backend"), MATRIX)
async def test_third_o32_the_callers_cancellation_leaves_the_run_as_one(
    kind: Callable[[anyio.Event], Scene], way: Callable[[Work, anyio.Event], Awaitable[None]], anyio_backend: Any
) -> None:
    begun, journal, recorder = anyio.Event(), MemoryJournal(), EventRecorder()
    scene = kind(begun)
    runtime = kt.Runtime(journal=journal, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("m", scene.agent)], runtime=runtime)

    def work() -> Any:
        given = plan() if scene.coordinator == "board" else None
        return kt.run(team, "go", plan=given, config=PATIENT, run_id="r", coordinator=scene.coordinator)

    await way(work, begun)
    states = {run_id: run.stands for run_id, run in journal.storage.runs.items()}
    assert set(states.values()) == {"interrupted"}, states
    ends = [event.type for event in recorder.events if event.run_id == "r"]
    assert ends[-1] == "team.interrupted"
    recorder.assert_lawful()


def interrupted_ones(journal: MemoryJournal) -> list[str]:
    return sorted(run_id for run_id, run in journal.storage.runs.items() if run.stands == "interrupted")


def desk(agent: Any, journal: MemoryJournal) -> kt.Team:
    return kt.Team("team", [kt.Member("m", agent)], runtime=kt.Runtime(journal=journal))


@pytest.mark.parametrize("kind", [function, nested_team, mini_agent, tool_source, pydantic_ai])
@pytest.mark.parametrize("anyio_backend", [virtual_time("asyncio")], ids=["asyncio"])
async def test_third_o32_a_coordinator_that_is_called_directly_lets_the_cancellation_through(
    kind: Callable[[anyio.Event], Scene], anyio_backend: Any
) -> None:
    begun, journal = anyio.Event(), MemoryJournal()
    team = desk(kind(begun).agent, journal)
    request = kt.TeamExecutionRequest("go", plan=plan(), config=PATIENT, run_id="r")
    await task_cancel(lambda: TaskDispatchCoordinator().execute(request, team), begun)
    assert "r" in interrupted_ones(journal)


@pytest.mark.parametrize("begin", ["start", "stream"])
@pytest.mark.parametrize("kind", [function, nested_team, tool_source])
@pytest.mark.parametrize("anyio_backend", [virtual_time("asyncio")], ids=["asyncio"])
async def test_third_o32_a_cancelled_runtime_interrupts_what_it_serves(
    kind: Callable[[anyio.Event], Scene], begin: str, anyio_backend: Any
) -> None:
    begun, journal = anyio.Event(), MemoryJournal()
    team = kt.Team("team", [kt.Member("m", kind(begun).agent)])

    async def serve() -> None:
        async with kt.Runtime(journal=journal) as runtime:
            if begin == "start":
                run = await runtime.start(team, "go", plan=plan(), config=PATIENT, run_id="r")
                await run.result()
            async with runtime.stream(team, "go", plan=plan(), config=PATIENT, run_id="r") as run:
                await run.result()

    task = asyncio.ensure_future(serve())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    states = {run_id: run.stands for run_id, run in journal.storage.runs.items()}
    assert states["r"] == ("interrupted" if begin == "start" else "cancelled"), states


@pytest.mark.parametrize("kind", [function, nested_team, nested_team_twice, tool_source, planner])
def test_third_o32_a_loop_that_closes_on_a_run_interrupts_it(kind: Callable[[anyio.Event], Scene]) -> None:
    """`asyncio.run` cancels every task at its end, those of the library too, and each by itself."""
    journal = MemoryJournal()
    tasks: list[asyncio.Future[Any]] = []

    async def main() -> None:
        begun = anyio.Event()
        scene = kind(begun)
        given = plan() if scene.coordinator == "board" else None
        work = kt.run(
            desk(scene.agent, journal), "go", plan=given, config=PATIENT, run_id="r", coordinator=scene.coordinator
        )
        tasks.append(asyncio.ensure_future(work))
        await begun.wait()

    asyncio.run(main())
    assert tasks[0].cancelled()
    assert "r" in interrupted_ones(journal)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread")
@pytest.mark.parametrize("kind", [function, nested_team, tool_source, pydantic_ai, planner])
def test_third_o32_ctrl_c_in_run_sync_is_a_keyboard_interrupt(kind: Callable[[anyio.Event], Scene]) -> None:
    journal = MemoryJournal()

    class Press:
        def set(self) -> None:
            signal.raise_signal(signal.SIGINT)

    pressed: Any = Press()
    scene = kind(pressed)
    given = plan() if scene.coordinator == "board" else None
    team = desk(scene.agent, journal)
    with pytest.raises(KeyboardInterrupt):
        kt.run_sync(team, "go", plan=given, config=PATIENT, run_id="r", coordinator=scene.coordinator)
    assert "r" in interrupted_ones(journal)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("kind", [function, nested_team])
async def test_third_o32_what_was_interrupted_goes_on_and_completes(kind: Callable[[anyio.Event], Scene]) -> None:
    journal = MemoryJournal()
    begun, answers = anyio.Event(), anyio.Event()

    async def member(assignment: kt.Assignment) -> str:
        begun.set()
        await answers.wait()
        return "done"

    team = kt.Team("team", [kt.Member("m", member if kind is function else team_of(member))])
    runtime = kt.Runtime(journal=journal)
    await cancel_scope(lambda: kt.run(team, "go", plan=plan(), config=PATIENT, run_id="r", runtime=runtime), begun)
    answers.set()
    result = await kt.Runtime(journal=journal.elsewhere()).resume("r", team)
    assert result.status is kt.TeamStatus.COMPLETED
    assert result["do"].artifact == kt.Artifact("done")


async def test_third_o32_what_a_coordinator_raises_comes_out_as_it_was_raised() -> None:
    class Odd:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            raise LookupError("odd")

    team = kt.Team("team", [kt.Member("m", say_done)])
    with pytest.raises(LookupError, match="odd"):
        await kt.run(team, "go", coordinator=Odd())
