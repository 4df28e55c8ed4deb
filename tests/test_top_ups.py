"""More budget for a run that is at work, and the warnings that tell when it is time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, FunctionModel
from tests.team_machine_play import Recorded

BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


class Scene:
    """One run under a budget, which something is done to after three seconds."""

    def __init__(self, agent: Any, *tasks: kt.Task, **runtime: Any) -> None:
        self.recorder = EventRecorder()
        self.runtime = kt.Runtime(subscribers=[self.recorder], **runtime)
        self._team = kt.Team("team", [kt.Member("m", agent)])
        self._plan = kt.TaskGraph(list(tasks) or [kt.Task("one", "do")])

    async def play(self, do: Callable[[kt.Run], object] = lambda _: None, **config: Any) -> kt.TeamResult:
        request = kt.TeamExecutionRequest("goal", plan=self._plan, config=kt.TeamConfig(**config), run_id="r")
        async with self.runtime:
            run = await self.runtime.start(self._team, request, coordinator=BOARD)
            await anyio.sleep(3)
            do(run)
            result = await run.result()
        self.recorder.assert_lawful()
        return result

    @property
    def topped_up(self) -> list[tuple[str | None, int | None, int | None]]:
        told = self.recorder.of(events.BudgetToppedUp)
        return [(event.task_id, event.tokens, event.picodollars) for event in told]

    @property
    def warned(self) -> list[tuple[str, float]]:
        return [(event.dimension, event.share) for event in self.recorder.of(events.BudgetWarned)]


def spending(tokens: int, seconds: float = 10.0) -> Callable[..., Awaitable[str]]:
    """Return an agent that takes its time and then spends so many tokens, if it may."""

    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(seconds)
        with context.governor.reserve(tokens=tokens) as hold:
            hold.settle(prompt_tokens=tokens)
        return "spent"

    return spend


# ---------------------------------------------------------------- top_up


@pytest.mark.parametrize(("more", "ends"), [(100, "completed"), (50, "failed")])
async def test_a_top_up_raises_the_runs_limit(more: int, ends: str) -> None:
    scene = Scene(spending(200))
    result = await scene.play(lambda run: run.top_up(kt.Budget(tokens=more)), budget=kt.Budget(tokens=100))
    assert result.status.value == ends
    assert result.budget is not None
    assert result.budget.budget.tokens == 100 + more
    assert scene.topped_up == [(None, more, None)]


async def test_a_top_up_leaves_what_it_does_not_name() -> None:
    scene = Scene(spending(1))
    budget = kt.Budget(tokens=100, dollars="0.5", loops=7)
    result = await scene.play(lambda run: run.top_up(kt.Budget(dollars="0.25")), budget=budget)
    assert result.budget is not None
    assert result.budget.budget == kt.Budget(tokens=100, dollars="0.75", loops=7)
    assert scene.topped_up == [(None, None, 250_000_000_000)]


async def test_a_task_that_waits_for_budget_goes_on_when_there_is_more() -> None:
    """It need not wait until the one before it gives some back."""
    ceiling = kt.Budget(tokens=60)
    policy = kt.BudgetPolicy(reserve=0.0)
    tasks = [kt.Task(name, "do", budget=ceiling, weight=weight) for name, weight in (("one", 9), ("two", 1))]
    begun: dict[str, float] = {}

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        begun[assignment.task.id] = anyio.current_time()
        await anyio.sleep(50)
        return "done"

    for more, expected in ((None, 50), (60, 3)):
        begun.clear()
        scene = Scene(work, *tasks)
        start = anyio.current_time()

        def top_up(run: kt.Run, more: int | None = more) -> None:
            if more is not None:
                run.top_up(kt.Budget(tokens=more))

        result = await scene.play(top_up, budget=kt.Budget(tokens=1), budget_policy=policy)
        assert result.status is kt.TeamStatus.COMPLETED
        assert begun["two"] - start == expected


async def test_a_task_that_waits_for_a_top_up_of_its_own_goes_on_when_the_run_gets_one() -> None:
    tries: list[float] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "other":
            await anyio.sleep(100)
            return "done"
        tries.append(anyio.current_time())
        context.governor.record_usage(prompt_tokens=min(60, context.remaining.tokens or 0))
        context.governor.can_proceed()
        return "spent"

    scene = Scene(work, kt.Task("one", "do"), kt.Task("other", "do"))
    policy = kt.BudgetPolicy(reserve=0.0, top_ups=2)
    start = anyio.current_time()
    result = await scene.play(
        lambda run: run.top_up(kt.Budget(tokens=100)), budget=kt.Budget(tokens=100), budget_policy=policy
    )
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert tries[-1] - start <= 3


async def test_a_run_that_the_shared_budget_refused_is_not_topped_up_and_refused_again_in_a_replay() -> None:
    """What it was topped up by would be its whole budget then, which fits: the replay would begin to work."""
    refused: list[str] = []
    journal = MemoryRecords()

    def top_up(event: events.Event) -> None:
        if isinstance(event, events.TeamStarted):
            with pytest.raises(Misuse) as it:
                runtime.runs["r"].top_up(kt.Budget(tokens=30))
            refused.append(str(it.value))

    runtime = Recorded(journal, subscribers=[top_up], budget=kt.Budget(tokens=200))
    team = kt.Team("team", [kt.Member("m", spending(10))], runtime=runtime)
    config = kt.TeamConfig(budget=kt.Budget(tokens=300))
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("one", "do")]), config=config, run_id="r")
    result = await BOARD.execute(request, team)
    assert (result.refused, dict(journal)) == (True, {})
    assert [one.partition(": the runtime's budget")[0] for one in refused] == ["run 'r' cannot be topped up"]


async def test_what_the_shared_budget_does_not_have_is_refused_and_changes_nothing() -> None:
    scene = Scene(spending(100), budget=kt.Budget(tokens=150))

    def top_up(run: kt.Run) -> None:
        with pytest.raises(kt.InsufficientBudget, match="'runtime' has 50 tokens left, 51 asked"):
            run.top_up(kt.Budget(tokens=51))
        run.top_up(kt.Budget(tokens=50))

    result = await scene.play(top_up, budget=kt.Budget(tokens=100))
    assert scene.topped_up == [(None, 50, None)]
    assert result.budget is not None
    assert result.budget.budget.tokens == 150
    assert scene.runtime.governor is not None
    assert scene.runtime.governor.remaining.tokens == 50, "what was not used went back"


@pytest.mark.parametrize(
    ("config", "more", "ends"),
    [
        ({"budget": kt.Budget(seconds=5)}, None, 5),
        ({"budget": kt.Budget(seconds=5)}, 10, None),
        ({"budget": kt.Budget(seconds=5)}, 2, 7),
        ({}, 2, None),
    ],
)
async def test_seconds_move_the_deadline(config: dict[str, Any], more: float | None, ends: float | None) -> None:
    scene = Scene(spending(0))
    start = anyio.current_time()

    def top_up(run: kt.Run) -> None:
        if more is not None:
            run.top_up(kt.Budget(seconds=more))

    result = await scene.play(top_up, **config)
    assert anyio.current_time() - start == pytest.approx(ends or 10)
    assert result.status is (kt.TeamStatus.TIMEOUT if ends else kt.TeamStatus.COMPLETED)


@pytest.mark.parametrize("budget", [None, 5, "100", {"tokens": 5}])
async def test_what_is_no_budget_is_refused(budget: Any) -> None:
    def top_up(run: kt.Run) -> None:
        with pytest.raises(ValueError, match=r"top_up takes a Budget, such as kt.Budget\(tokens=500\), not"):
            run.top_up(budget)

    assert (await Scene(spending(1)).play(top_up, budget=kt.Budget(tokens=10))).status is kt.TeamStatus.COMPLETED


# ---------------------------------------------------------------- budget.warned


def model_of(tokens: int) -> FunctionModel:
    """A model whose every reply costs so many tokens, and as many cents."""
    usage = kt.Usage(0, tokens, Decimal(tokens) / 100)
    return FunctionModel(lambda _: kt.ModelResponse("word", usage=usage, finish_reason="length"))


async def test_most_of_a_limit_is_told_once_and_while_the_task_is_at_work() -> None:
    """At 80 percent, with the call that reached it: early enough to do something about it."""
    scene = Scene(kt.MiniAgent(model_of(9), max_turns=10, settings={"max_tokens": 9}))
    await scene.play(budget=kt.Budget(tokens=20_000, dollars="1", loops=100))
    assert scene.warned == [("dollars", 0.81)]
    place = scene.recorder.types.index("budget.warned")
    assert scene.recorder.types[place - 1] == "model.called"
    assert scene.recorder.types[:place].count("model.called") == 9


async def test_every_limit_has_a_warning_of_its_own() -> None:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        usage = {"tokens": {"prompt_tokens": 8}, "dollars": {"dollars": "0.8"}, "tool_calls": {"tool_calls": 8}}
        context.governor.record_usage(**usage.get(assignment.task.id, {}))  # type: ignore[arg-type]  # by its name
        return "done"

    names = ["none", "dollars", "tokens", "tool_calls", *(f"loop{number}" for number in range(6))]
    tasks = [kt.Task(name, "do", depends_on=names[place - 1 : place]) for place, name in enumerate(names)]
    scene = Scene(work, *tasks)
    await scene.play(budget=kt.Budget(10, 1, 10, 10))
    assert scene.warned == [(name, 0.8) for name in ("dollars", "tokens", "tool_calls", "loops")]


async def test_without_limits_there_are_no_warnings() -> None:
    scene = Scene(spending(1_000_000))
    await scene.play()
    assert scene.warned == []


async def test_a_limit_that_was_raised_is_warned_of_anew_and_the_others_are_not() -> None:
    names = [f"t{number}" for number in range(4)]
    tasks = [kt.Task(name, "do", depends_on=names[place - 1 : place]) for place, name in enumerate(names)]
    scene = Scene(spending(40, seconds=2), *tasks)
    result = await scene.play(lambda run: run.top_up(kt.Budget(tokens=150)), budget=kt.Budget(tokens=50, loops=5))
    assert result.status is kt.TeamStatus.COMPLETED
    assert sorted(scene.warned) == [("loops", 0.8), ("tokens", 0.8), ("tokens", 0.8)]
