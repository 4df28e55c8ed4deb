"""What comparable systems got wrong between agents, shown right here - for both coordinators where it applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder, ScriptedAgent
from tests.coordinators.bench import KINDS

COMPLETED, FAILED, SKIPPED, CANCELLED = (
    kt.TaskStatus.COMPLETED,
    kt.TaskStatus.FAILED,
    kt.TaskStatus.SKIPPED,
    kt.TaskStatus.CANCELLED,
)
ONCE = FailurePolicy(retries=0)
Coordinator = Callable[..., TeamCoordinator]


@pytest.fixture(params=KINDS, ids=["board", "expert"])
def kind(request: pytest.FixtureRequest) -> Coordinator:
    chosen: Coordinator = request.param
    return chosen


class Bench:
    """A team whose events are recorded."""

    def __init__(self, **agents: Any) -> None:
        self.recorder = EventRecorder()
        members = [kt.Member(name, agent) for name, agent in agents.items()]
        self.runtime = kt.Runtime(subscribers=[self.recorder])
        self.team = kt.Team("team", members, runtime=self.runtime)

    async def run(self, coordinator: TeamCoordinator, tasks: Sequence[kt.Task] = (), **config: Any) -> kt.TeamResult:
        plan = kt.TaskGraph(tasks) if tasks else None
        request = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id="r")
        result = await coordinator.execute(request, self.team)
        self.recorder.assert_lawful()
        return result


def task(task_id: str, *needs: str, **fields: Any) -> kt.Task:
    return kt.Task(task_id, f"do {task_id}", depends_on=needs, **fields)


def statuses(result: kt.TeamResult) -> dict[str, kt.TaskStatus]:
    return {outcome.task_id: outcome.status for outcome in result.outcomes}


async def good(assignment: kt.Assignment) -> str:
    return f"made {assignment.task.id}"


async def bad(assignment: kt.Assignment) -> str:
    raise ValueError(f"cannot do {assignment.task.id}")


async def hang(assignment: kt.Assignment) -> str:
    await anyio.sleep_forever()
    raise AssertionError


def sleeper(seconds: float) -> Any:
    async def sleep(assignment: kt.Assignment) -> str:
        await anyio.sleep(seconds)
        return "slept"

    return sleep


@pytest.mark.parametrize("risk", kt.RiskProfile)
@pytest.mark.parametrize("failing", [bad, hang, ScriptedAgent([None])], ids=["raises", "hangs", "nothing"])
async def test_kf_t01_a_failed_task_is_an_outcome_and_the_rest_goes_on(
    kind: Coordinator, risk: kt.RiskProfile, failing: Any
) -> None:
    """Attempts may be 0: a failed task, the skipped one behind it and a finished one stand side by side."""
    if isinstance(failing, ScriptedAgent):
        failing = ScriptedAgent([None])
    bench = Bench(bad=failing, good=good)
    plan = [task("a", member="bad"), task("b", "a", member="good"), task("c", member="good")]
    result = await bench.run(kind(failure_policy=ONCE), plan, risk_profile=risk, task_timeout=5.0)
    assert statuses(result) == {"a": FAILED, "b": SKIPPED, "c": COMPLETED}
    assert [outcome.attempts for outcome in result.outcomes] == [1, 0, 1]
    assert result["b"].error is not None
    assert "'a'" in result["b"].error
    tolerant = kind is TaskDispatchCoordinator or risk is kt.RiskProfile.LOW
    assert result.status is (kt.TeamStatus.DEGRADED if tolerant else kt.TeamStatus.FAILED)
    assert (result.output if tolerant else result.partial_output) == "made c"


async def test_kf_t02_a_timeout_of_an_attempt_is_a_failure_and_no_verdict(kind: Coordinator) -> None:
    """Out of time is a failed attempt: no score, no PASS, and as many tries as the policy says."""
    bench = Bench(slow=hang)
    result = await bench.run(kind(failure_policy=FailurePolicy(retries=1, backoff=0.0)), [task("a")], task_timeout=7.0)
    outcome = result["a"]
    assert (outcome.status, outcome.verdict, outcome.attempts) == (FAILED, None, 2)
    assert outcome.error == "timed out after 7 seconds"
    assert result.duration == pytest.approx(14.0)
    assert not bench.recorder.of(events.EvaluationStarted)
    assert {finished.error for finished in bench.recorder.of(events.AttemptFinished)} == {outcome.error}


class SlowPlanner:
    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        await anyio.sleep(100)
        return kt.TaskGraph([task("a")])


async def test_kf_t03_the_deadline_covers_planning_and_is_a_timeout() -> None:
    """A planner slower than the deadline ends the run at the deadline, TIMEOUT and not FAILED."""
    bench = Bench(a=good)
    result = await bench.run(ExpertTeamCoordinator(planner=SlowPlanner()), budget=kt.Budget(seconds=10))
    assert (result.status, result.outcomes) == (kt.TeamStatus.TIMEOUT, ())
    assert result.duration == pytest.approx(10.0)
    assert bench.recorder.types == ["team.started", "team.timed_out"]


@pytest.mark.parametrize("error", [TimeoutError("the tool took too long"), anyio.ClosedResourceError()])
async def test_kf_t04_a_timeout_error_of_a_tool_is_that_attempts_failure(kind: Coordinator, error: Exception) -> None:
    """A TimeoutError raised inside an agent ends neither the team nor its siblings."""
    bench = Bench(tool=ScriptedAgent([error, "second try"]), good=good)
    result = await bench.run(
        kind(failure_policy=FailurePolicy(retries=1)),
        [task("a", member="tool"), task("b", member="good")],
        budget=kt.Budget(seconds=60.0),
    )
    assert result.status is kt.TeamStatus.COMPLETED
    assert [outcome.attempts for outcome in result.outcomes] == [2, 1]


async def test_kf_t05_execute_does_nothing_before_it_is_awaited_and_is_reentrant(kind: Coordinator) -> None:
    """Calling `execute` has no effect by itself; one coordinator object runs several teams at once and again."""
    bench = Bench(a=sleeper(1.0))
    coordinator = kind()
    requests = [kt.TeamExecutionRequest(f"goal {n}", run_id=f"r{n}") for n in range(4)]
    coordinator.execute(requests[0], bench.team).close()
    assert bench.recorder.events == []
    assert list(bench.runtime.runs) == []
    results: list[kt.TeamResult] = []

    async def run(request: kt.TeamExecutionRequest) -> None:
        results.append(await coordinator.execute(request, bench.team))

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for request in requests[:3]:
            group.start_soon(run, request)
    assert anyio.current_time() - began == pytest.approx(1.0), "side by side"
    await run(requests[3])
    bench.recorder.assert_lawful()
    assert sorted(result.run_id for result in results) == ["r0", "r1", "r2", "r3"]
    assert {result.status for result in results} == {kt.TeamStatus.COMPLETED}


async def test_kf_t06_cancelling_the_caller_cancels_the_agents_and_is_raised_again(kind: Coordinator) -> None:
    """In-flight agents end for real, `team.cancelled` is out, and the caller's cancellation goes on."""
    ended: list[str] = []

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(assignment.task.id)
        raise AssertionError

    bench = Bench(a=agent)
    with anyio.move_on_after(5) as scope:
        await bench.run(kind(), [task("a"), task("b"), task("c", "a", "b")])
        raise AssertionError("it must not return a result")
    assert scope.cancelled_caught
    assert sorted(ended) == ["a", "b"]
    bench.recorder.assert_lawful()
    assert bench.recorder.types[-1] == "team.cancelled"
    assert len(bench.recorder.of(events.TaskCancelled)) == 2
    assert len(bench.recorder.of(events.TaskSkipped)) == 1
    assert list(bench.runtime.runs) == []


async def test_kf_t13_a_task_starts_as_soon_as_its_own_needs_are_met(kind: Coordinator) -> None:
    """No barrier per layer: two chains of a slow and a quick step take 1.1 s, not 2 s."""
    durations = {"a1": 1.0, "a2": 0.1, "b1": 0.1, "b2": 1.0}

    async def work(assignment: kt.Assignment) -> str:
        await anyio.sleep(durations[assignment.task.id])
        return "done"

    bench = Bench(w=work)
    result = await bench.run(kind(), [task("a1"), task("b1"), task("a2", "a1"), task("b2", "b1")])
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.duration == pytest.approx(1.1)


async def test_kf_t14_a_dependency_listed_twice_is_one(kind: Coordinator) -> None:
    """It is neither a cycle nor two needs."""
    bench = Bench(w=good)
    twice = kt.Task("b", "do b", depends_on=["a", "a"])
    assert twice.depends_on == ("a",)
    result = await bench.run(kind(), [task("a"), twice])
    assert statuses(result) == {"a": COMPLETED, "b": COMPLETED}


@pytest.mark.parametrize(
    ("tasks", "names"),
    [
        ([task("a", "b"), task("b", "a")], r"cycle: (a -> b -> a|b -> a -> b)"),
        ([task("a", "a")], "'a' depends on itself"),
        ([task("a", "ghost")], "'a' depends on unknown tasks 'ghost'"),
        ([task("x"), task("a", "c"), task("b", "a"), task("c", "b", "x")], "cycle: "),
    ],
)
def test_kf_t15_cycles_and_unknown_dependencies_are_refused_when_built(tasks: list[kt.Task], names: str) -> None:
    """No run can block on them, because no plan holds them."""
    with pytest.raises(ValueError, match=names):
        kt.TaskGraph(tasks)


async def test_kf_t16_nothing_of_one_run_leaks_into_the_next(kind: Coordinator) -> None:
    """State lives in the run: a second run of the same coordinator, team and agents starts from nothing."""
    seen: list[kt.Assignment] = []

    async def agent(assignment: kt.Assignment) -> str:
        seen.append(assignment)
        await anyio.sleep(1)
        return f"version {assignment.attempt}"

    class Picky:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.passed() if context.attempt > 1 else kt.EvaluationVerdict.revise("again")

    bench = Bench(a=agent)
    team = kt.Team("team", bench.team.members, evaluators={"picky": Picky()}, runtime=bench.runtime)
    coordinator = kind(failure_policy=FailurePolicy(retries=1, backoff=0.0))

    async def run(goal: str) -> kt.TeamResult:
        plan = kt.TaskGraph([kt.Task("t", "do", evaluator="picky", inputs={"goal": goal})])
        return await coordinator.execute(kt.TeamExecutionRequest(goal, plan=plan), team)

    results = [await run("second"), await run("second")]
    assert [a.attempt for a in seen] == [1, 2, 1, 2]
    assert [bool(a.findings) for a in seen] == [False, True, False, True]
    assert [a.previous is not None for a in seen] == [False, True, False, True]
    assert results[0].run_id != results[1].run_id
    assert results[0].outcomes[0].usage == results[1].outcomes[0].usage


async def test_kf_t17_a_degraded_run_is_completed_with_its_output(kind: Coordinator) -> None:
    """DEGRADED tells the world `team.completed`, and keeps what was made."""
    bench = Bench(good=good, bad=bad)
    result = await bench.run(
        kind(failure_policy=ONCE), [task("a", member="good"), task("b", member="bad")], risk_profile=kt.RiskProfile.LOW
    )
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made a")
    last = bench.recorder.of(events.TeamCompleted)
    assert [event.status for event in last] == [kt.TeamStatus.DEGRADED]
    assert result.warnings
    with pytest.raises(kt.TeamFailed) as caught:
        result.check()
    assert caught.value.result is result


class BrokenPlanner:
    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        raise ConnectionError("no planner there")


WAYS_TO_END: dict[str, tuple[dict[str, Any], list[kt.Task], dict[str, Any], str]] = {
    "all good": ({"a": good}, [task("a")], {}, "team.completed"),
    "all bad": ({"a": bad}, [task("a"), task("b", "a")], {}, "team.failed"),
    "unbound": ({"a": good}, [task("a", role="nobody")], {}, "team.failed"),
    "unknown evaluator": ({"a": good}, [task("a", evaluator="ghost")], {}, "team.failed"),
    "deadline": ({"a": hang}, [task("a"), task("b", "a")], {"budget": kt.Budget(seconds=3.0)}, "team.timed_out"),
    "no time at all": ({"a": good}, [task("a")], {"budget": kt.Budget(seconds=0)}, "team.timed_out"),
    "no loop at all": ({"a": good}, [task("a")], {"budget": kt.Budget(loops=0)}, "team.failed"),
    "one loop for two": ({"a": good}, [task("a"), task("b", "a")], {"budget": kt.Budget(loops=1)}, "team.failed"),
}


@pytest.mark.parametrize("way", WAYS_TO_END)
async def test_kf_t18_every_run_has_one_first_and_one_last_event(kind: Coordinator, way: str) -> None:
    """However early a run ends: `team.started` first, exactly one terminal event last (checked by `assert_lawful`)."""
    agents, tasks, config, last = WAYS_TO_END[way]
    bench = Bench(**agents)
    result = await bench.run(kind(failure_policy=ONCE), tasks, **config)
    assert bench.recorder.types[0] == "team.started"
    assert bench.recorder.types[-1] == last
    assert [outcome.task_id for outcome in result.outcomes] == [t.id for t in tasks]
    assert bench.recorder.of(events.TeamEnded)[-1].status is result.status


async def test_kf_t18_a_planner_that_raises_still_gets_both_events() -> None:
    """Planning failed: started, failed, and the reason."""
    bench = Bench(a=good)
    result = await bench.run(ExpertTeamCoordinator(planner=BrokenPlanner()))
    assert bench.recorder.types == ["team.started", "team.failed"]
    assert (result.status, result.error) == (kt.TeamStatus.FAILED, "ConnectionError: no planner there")
    assert result.warnings[0] == result.error


@pytest.mark.parametrize("output", [None, 5, b"bytes", ("text",), object()], ids=lambda o: type(o).__name__)
async def test_kf_t19_an_agent_that_returns_nothing_fails_at_once(kind: Coordinator, output: Any) -> None:
    """None or a wrong type is a failed attempt, not retried and not waited for."""
    bench = Bench(a=ScriptedAgent([output]))
    result = await bench.run(kind(failure_policy=FailurePolicy(retries=3)), [task("a")])
    outcome = result["a"]
    assert (outcome.status, outcome.attempts, outcome.artifact) == (FAILED, 1, None)
    assert "returned" in (outcome.error or "")
    assert result.duration == pytest.approx(0.0, abs=1e-6)


class RaisesBeforeItsCoroutine:
    def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        raise RuntimeError("not even a coroutine")


class NoCoroutine:
    """One that can be seen to be none, by the type it returns, is no member of a team."""

    def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        return "plain"


@pytest.mark.parametrize("agent", [bad, RaisesBeforeItsCoroutine(), NoCoroutine()], ids=["first line", "call", "sync"])
async def test_kf_t20_an_agent_that_raises_before_its_first_await_is_a_failed_attempt(
    kind: Coordinator, agent: Any
) -> None:
    """It does not kill the run, and its sibling finishes."""
    bench = Bench(a=agent, b=good)
    result = await bench.run(kind(failure_policy=ONCE), [task("a", member="a"), task("b", member="b")])
    assert statuses(result) == {"a": FAILED, "b": COMPLETED}
    assert result["a"].error


async def test_kf_t21_branches_are_independent_and_results_are_kept(kind: Coordinator) -> None:
    """One failed branch skips its own dependents, through all levels, and nobody else's."""
    bench = Bench(good=good, bad=bad, slow=sleeper(9.0))
    plan = [
        task("root", member="good"),
        task("bad", "root", member="bad"),
        task("behind", "bad", member="good"),
        task("far-behind", "behind", member="good"),
        task("slow", "root", member="slow"),
        task("after", "slow", member="good"),
        task("join", "after", "bad", member="good"),
    ]
    result = await bench.run(kind(failure_policy=ONCE), plan)
    assert list(statuses(result).values()) == [COMPLETED, FAILED, SKIPPED, SKIPPED, COMPLETED, COMPLETED, SKIPPED]
    assert result["slow"].artifact == kt.Artifact("slept")
    assert (result.output, result.partial_output) == (None, "made after"), "no last task of the plan was accepted"


async def test_kf_t22_outcomes_come_in_plan_order_also_on_timeout(kind: Coordinator) -> None:
    """Whatever ended first, and whatever never began."""
    durations = {"a": 8.0, "b": 100.0, "c": 1.0, "d": 0.0, "e": 5.0}

    async def work(assignment: kt.Assignment) -> str:
        await anyio.sleep(durations[assignment.task.id])
        return assignment.task.id

    bench = Bench(w=work)
    plan = [task("a"), task("b"), task("c"), task("d", "b"), task("e", "c")]
    result = await bench.run(kind(), plan, budget=kt.Budget(seconds=20.0))
    assert result.status is kt.TeamStatus.TIMEOUT
    assert list(statuses(result).items()) == [
        ("a", COMPLETED), ("b", CANCELLED), ("c", COMPLETED), ("d", SKIPPED), ("e", COMPLETED)
    ]  # fmt: skip
    assert result.partial_output == "a:\na\n\ne:\ne"


async def test_kf_t23_retries_wait_with_backoff_and_jitter(kind: Coordinator) -> None:
    """Each retry waits longer than the one before could have, and not two tasks wait alike."""
    times: dict[str, list[float]] = {"a": [], "b": []}

    async def agent(assignment: kt.Assignment) -> str:
        times[assignment.task.id].append(anyio.current_time())
        raise ConnectionError("busy")

    bench = Bench(a=agent)
    policy = FailurePolicy(retries=4, backoff=2.0, backoff_max=10.0)
    await bench.run(kind(failure_policy=policy), [task("a"), task("b")])
    waits = {name: [y - x for x, y in pairwise(t)] for name, t in times.items()}
    for full, first, second in zip([2.0, 4.0, 8.0, 10.0], waits["a"], waits["b"], strict=True):
        assert full / 2 <= first <= full
        assert full / 2 <= second <= full
        assert first != second


async def test_kf_t24_results_of_earlier_tasks_reach_later_ones(kind: Coordinator) -> None:
    """The accepted artifacts of a task's dependencies are in its assignment, in the order it names them."""
    agent = ScriptedAgent(["alpha", "beta", "gamma"])
    bench = Bench(a=agent)
    await bench.run(kind(), [task("one"), task("two", "one"), task("three", "two", "one")])
    assert [list(assignment.upstream) for assignment in agent.calls] == [[], ["one"], ["two", "one"]]
    assert [artifact.text for artifact in agent.calls[2].upstream.values()] == ["beta", "alpha"]


async def test_kf_t27_error_text_is_never_an_artifact(kind: Coordinator) -> None:
    """A failed member's message is in `error`; nobody downstream gets it as an answer, and it is not the output."""
    after = ScriptedAgent(["made without"])
    bench = Bench(bad=bad, after=after)
    plan = [task("a", member="bad"), task("b", "a", member="after", needs=0)]
    result = await bench.run(kind(failure_policy=ONCE), plan)
    assert result["a"].artifact is None
    assert result["a"].error == "ValueError: cannot do a"
    assert dict(after.calls[0].upstream) == {}
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "made without")


async def stubborn(assignment: kt.Assignment) -> str:
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():  # what must never be written
            continue


@pytest.mark.parametrize("grace", [0.0, 0.25, 2.0])
async def test_kf_t29_the_teams_timeout_is_kept_within_the_grace(kind: Coordinator, grace: float) -> None:
    """0.5 s is 0.5 s - and the grace, for agents that swallow their cancellation; they are named."""
    bench = Bench(polite=hang, rude=stubborn)
    plan = [task("a", member="polite"), task("b", member="rude")]
    result = await bench.run(kind(), plan, budget=kt.Budget(seconds=0.5), cancel_grace=grace)
    assert result.status is kt.TeamStatus.TIMEOUT
    assert 0.5 <= result.duration <= 0.5 + grace + 0.05
    assert statuses(result) == {"a": CANCELLED, "b": CANCELLED}
    assert any("'rude'" in warning for warning in result.warnings)
    assert not any("'polite'" in warning for warning in result.warnings)
