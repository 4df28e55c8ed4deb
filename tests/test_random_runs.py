"""Any graph, any team, any misbehaviour, any end: what holds of every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends
from tests.status_oracle import an_end_is_accepted
from tests.team_machine_doubles import clean_up_slowly, swallow

BEHAVIOURS = (
    "succeed", "succeed", "fail", "flaky", "hang", "nothing", "empty", "partial", "spend", "overspend", "swallow",
    "swallow slowly", "clean up slowly", "halt oneself", "group", "record",
)  # fmt: skip
TOKENS_A_CALL = 10


@dataclass
class Scenario:
    """One run, and what is done to it."""

    tasks: list[kt.Task]
    behaviours: dict[str, str]
    durations: dict[str, float]
    members: list[dict[str, Any]]
    config: kt.TeamConfig
    expert: bool
    retries: int
    end: str | None
    """`kill` or `cancel`, at `end_at`; None lets it run."""
    end_at: float


@dataclass
class World:
    """What the members saw and did."""

    scenario: Scenario
    running: Counter[str] = field(default_factory=Counter[str])
    most: Counter[str] = field(default_factory=Counter[str])
    tries: Counter[str] = field(default_factory=Counter[str])

    def agent(self, member: str) -> Any:
        async def act(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
            task_id = assignment.task.id
            self.tries[task_id] += 1
            for counted in (member, "everybody"):
                self.running[counted] += 1
                self.most[counted] = max(self.most[counted], self.running[counted])
            try:
                context.keep(f"kept by {member}")
                await anyio.sleep(self.scenario.durations[task_id])
                return await self.behave(self.scenario.behaviours[task_id], task_id, context)
            finally:
                for counted in (member, "everybody"):
                    self.running[counted] -= 1

        return act

    async def behave(self, behaviour: str, task_id: str, context: kt.MemberContext) -> Any:
        match behaviour:
            case "fail":
                raise ValueError("cannot")
            case "flaky" if self.tries[task_id] % 2:
                raise ConnectionError("busy")
            case "hang":
                await anyio.sleep_forever()
            case "nothing":
                return None
            case "empty":
                return ""
            case "partial":
                return kt.AgentOutput(kt.Artifact("so far"), kt.AgentStatus.TURN_LIMIT_REACHED)
            case "spend":
                await self.call_model(context)
            case "overspend":
                for _ in range(50):
                    await self.call_model(context)
            case "swallow":
                await swallow(0.0)
            case "swallow slowly":
                await swallow(0.1)
            case "clean up slowly":
                await clean_up_slowly()
            case "halt oneself":
                context.governor.cancel()
                await anyio.sleep(1)
            case "record":  # spending that nobody held: booked whatever the limit
                context.governor.record_usage(prompt_tokens=30)
            case "group":
                async with anyio.create_task_group() as group:
                    for _ in range(5):
                        group.start_soon(self.call_model, context)
            case _:
                pass
        return "made"

    async def call_model(self, context: kt.MemberContext) -> None:
        with await context.governor.hold(tokens=TOKENS_A_CALL) as hold:
            await anyio.sleep(0.1)
            hold.settle(prompt_tokens=min(hold.tokens, 7))


class Editor:
    """Sends every second artifact back, breaks on every fifth."""

    def __init__(self) -> None:
        self.seen = 0

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.seen += 1
        await anyio.sleep(0.05)
        if self.seen % 5 == 0:
            raise RuntimeError("the editor is ill")
        return kt.EvaluationVerdict.revise("again") if self.seen % 2 else kt.EvaluationVerdict.passed()


some_seconds = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0])


def needs_up_to(dependencies: int) -> st.SearchStrategy[Any]:
    return st.just("all") | st.integers(0, dependencies)


@st.composite
def tasks_of(draw: st.DrawFn, members: int) -> list[kt.Task]:
    tasks: list[kt.Task] = []
    for number in range(draw(st.integers(1, 8))):
        before = draw(st.lists(st.sampled_from([t.id for t in tasks]), unique=True, max_size=3)) if tasks else []
        task = kt.Task(
            f"t{number}",
            "do",
            member=draw(st.none() | st.sampled_from([f"m{n}" for n in range(members)])),
            depends_on=before,
            needs=draw(needs_up_to(len(before))),
            weight=draw(st.sampled_from([1.0, 0.5, 7.0])),
            timeout=draw(st.sampled_from([None, None, 2.0])),
            budget=draw(st.sampled_from([None, None, kt.Budget(tokens=25), kt.Budget(loops=1)])),
            evaluator=draw(st.sampled_from([None, None, "ed"])),
        )
        tasks.append(task)
    return tasks


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    members = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "max_concurrency": st.sampled_from([None, 1, 2]),
                    "budget": st.sampled_from([None, None, kt.Budget(tokens=30), kt.Budget(loops=3)]),
                }
            ),
            min_size=1,
            max_size=3,
        )
    )
    tasks = draw(tasks_of(len(members)))
    config = kt.TeamConfig(
        budget=kt.Budget(
            tokens=draw(st.sampled_from([None, None, 100, 200, 0])),
            loops=draw(st.sampled_from([None, None, 12, 4])),
            seconds=draw(st.sampled_from([None, None, None, 1.5, 2.5, 6.0, 0.0])),
        ),
        risk_profile=draw(st.sampled_from(kt.RiskProfile)),
        max_feedback_rounds=draw(st.integers(0, 2)),
        task_timeout=20.0,
        review_timeout=draw(st.sampled_from([None, 0.01, 5.0])),
        max_parallel_tasks=draw(st.sampled_from([None, 1, 2, 3])),
        cancel_grace=draw(st.sampled_from([0.0, 0.5, 2.0])),
    )
    return Scenario(
        tasks=tasks,
        behaviours={t.id: draw(st.sampled_from(BEHAVIOURS)) for t in tasks},
        durations={t.id: draw(some_seconds) for t in tasks},
        members=members,
        config=config,
        expert=draw(st.booleans()),
        retries=draw(st.integers(0, 2)),
        end=draw(st.sampled_from([None, None, "kill", "cancel"])),
        end_at=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0, 4.0])),
    )


@dataclass
class Played:
    world: World
    recorder: EventRecorder
    runtime: Recorded
    result: kt.TeamResult | None
    took: float


class Recorded(kt.Runtime):
    """A runtime whose only run records into a journal of ours."""

    def __init__(self, recorder: EventRecorder, journal: MemoryRecords) -> None:
        super().__init__(subscribers=[recorder])
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
        return self.journal


class Dead:
    """A member and an evaluator that nobody may call."""

    reentrant = True

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        raise AssertionError("a member was called")

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        raise AssertionError("an evaluator was called")


async def play(scenario: Scenario, records: Mapping[str, object] | None = None) -> Played:
    """Run the scenario; with `records` replay it, where nobody may be called."""
    world, recorder = World(scenario), EventRecorder()
    runtime = Recorded(recorder, MemoryRecords(records or {}))
    members = [
        kt.Member(f"m{n}", world.agent(f"m{n}") if records is None else Dead(), **fields)
        for n, fields in enumerate(scenario.members)
    ]
    evaluators = {"ed": Editor() if records is None else Dead()}
    team = kt.Team("team", members, evaluators=evaluators, runtime=runtime)
    kind = ExpertTeamCoordinator if scenario.expert else TaskDispatchCoordinator
    coordinator = kind(failure_policy=FailurePolicy(retries=scenario.retries, backoff=0.2))
    request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph(scenario.tasks), config=scenario.config, run_id="r")
    result: kt.TeamResult | None = None
    began, took = anyio.current_time(), 0.0
    with anyio.fail_after(100_000):  # a run that hangs fails, in no time
        async with anyio.create_task_group() as group:

            async def end() -> None:
                await anyio.sleep(scenario.end_at)
                if scenario.end == "cancel":
                    caller.cancel()
                elif "r" in runtime.runs:
                    runtime.runs["r"].cancel("killed")

            caller = anyio.CancelScope()
            if scenario.end is not None:
                group.start_soon(end)
            with caller:
                result = await coordinator.execute(request, team)
            took = anyio.current_time() - began
            group.cancel_scope.cancel()
    return Played(world, recorder, runtime, result, took)


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=settings().max_examples * 3 // 2)
@given(scenario=scenarios())
def test_what_holds_of_every_run(backend: str, scenario: Scenario) -> None:
    played = run_in_virtual_time(play, scenario, backend=backend)
    check_events(played)
    check_limits(played)
    check_time(played)
    if played.result is None:
        assert scenario.end == "cancel"
        assert played.recorder.types[-1] == "team.cancelled"
    else:
        check_result(played.result, played)


@settings(max_examples=settings().max_examples * 4 // 5)
@given(scenario=scenarios())
def test_a_replay_of_any_run_gives_the_same_result_and_calls_nobody(scenario: Scenario) -> None:
    """Also of one that was killed, came to its deadline, or booked past a limit: its end is recorded.

    A run whose caller was cancelled has no result to give again.
    """
    scenario = replace(scenario, end="kill" if scenario.end == "cancel" else scenario.end)
    first = run_in_virtual_time(play, scenario)
    again = run_in_virtual_time(play, replace(scenario, end=None), dict(first.runtime.journal.records))
    assert first.result is not None
    assert again.result is not None
    assert comparable(again.result) == comparable(first.result)


def comparable(result: kt.TeamResult) -> kt.TeamResult:
    """Leave out durations and the split, who had to be closed, and which of several lost needs was lost first."""
    outcomes = tuple(
        replace(
            outcome,
            usage=replace(outcome.usage, seconds=0.0),
            error="skipped" if outcome.status is kt.TaskStatus.SKIPPED else outcome.error,
        )
        for outcome in result.outcomes
    )
    usage = replace(result.usage, seconds=0.0)
    return replace(result, outcomes=outcomes, usage=usage, budget=None, warnings=())


def check_events(played: Played) -> None:
    played.recorder.assert_lawful()
    ended: dict[str, bool] = {}
    tasks = {task.id: task for task in played.world.scenario.tasks}
    for event in played.recorder.events:
        if isinstance(event, events.TaskAssigned):
            needs = tasks[event.task_id].depends_on
            assert all(need in ended for need in needs), f"{event.task_id} started before its needs had ended"
            assert sum(ended[need] for need in needs) >= tasks[event.task_id].needed
        elif isinstance(event, events.TaskEnded):
            ended[event.task_id] = isinstance(event, events.TaskCompleted)
    assert set(ended) == set(tasks)


def check_limits(played: Played) -> None:
    scenario, world = played.world.scenario, played.world
    assert +world.running == Counter(), "something is still running"
    assert list(played.runtime.runs) == []
    most = scenario.config.max_parallel_tasks
    assert most is None or world.most["everybody"] <= most
    for number, member in enumerate(scenario.members):
        assert member["max_concurrency"] is None or world.most[f"m{number}"] <= member["max_concurrency"]


def check_time(played: Played) -> None:
    scenario = played.world.scenario
    config = scenario.config
    ends = [config.budget.seconds, scenario.end_at if scenario.end else None]
    deadlines = [end for end in ends if end is not None]
    if deadlines:
        assert played.took <= min(deadlines) + config.cancel_grace + 1e-6


def check_result(result: kt.TeamResult, played: Played) -> None:
    scenario, config = played.world.scenario, played.world.scenario.config
    assert [outcome.task_id for outcome in result.outcomes] == [task.id for task in scenario.tasks]
    if config.budget.tokens is not None and "record" not in scenario.behaviours.values():
        assert result.usage.tokens <= config.budget.tokens
    if config.budget.loops is not None:
        assert result.usage.loops <= config.budget.loops
    assert result.usage.tokens == sum(outcome.usage.tokens for outcome in result.outcomes)
    assert result.usage.loops == sum(outcome.usage.loops for outcome in result.outcomes)
    assert result.budget is not None
    assert result.budget.held == kt.Usage()
    statuses = {outcome.status for outcome in result.outcomes}
    assert not statuses & {kt.TaskStatus.PENDING, kt.TaskStatus.IN_FLIGHT}
    for outcome in result.outcomes:
        check_outcome(outcome, played.world)
    if result.status is kt.TeamStatus.COMPLETED:
        assert statuses == {kt.TaskStatus.COMPLETED}
    assert (result.error is None) is (result.status is kt.TeamStatus.COMPLETED)
    assert result.error is None or result.warnings[0] == result.error
    check_output(result)
    last = played.recorder.events[-1]
    assert isinstance(last, events.TeamEnded)
    assert (last.status, last.usage, last.error) == (result.status, result.usage, result.error)


def check_output(result: kt.TeamResult) -> None:
    """Nothing looks like a success that is none, and every other end says why."""
    made = [outcome for outcome in result.outcomes if outcome.artifact is not None]
    there = result.status in {kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED} and an_end_is_accepted(result)
    assert (result.output is not None) is there
    assert (result.partial_output is not None) is (bool(made) and not there)
    assert result.partial_artifact is None or result.partial_artifact.partial
    assert result.status is kt.TeamStatus.COMPLETED or result.warnings
    for outcome in result.outcomes:
        cut = outcome.artifact is not None and outcome.artifact.partial
        plain = outcome.status is kt.TaskStatus.COMPLETED and not cut
        assert plain or outcome.error or outcome.warnings, f"{outcome.task_id!r} ended {outcome.status} without a word"


def check_outcome(outcome: kt.TaskOutcome, world: World) -> None:
    assert outcome.attempts >= world.tries[outcome.task_id]
    match outcome.status:
        case kt.TaskStatus.COMPLETED:
            assert outcome.artifact is not None
            assert outcome.error is None
        case kt.TaskStatus.SKIPPED:
            assert (outcome.attempts, outcome.artifact) == (0, None)
            assert outcome.error
        case _:
            assert outcome.error
