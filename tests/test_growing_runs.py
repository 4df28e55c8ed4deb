"""`TeamRun.conclude` and `TeamRun.add`: coordinators that need less than they planned, and more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import Misuse
from kairo_team.evaluators import SimpleEvaluationStrategy
from kairo_team.tck import TeamCoordinatorTCK
from kairo_team.testing import EventRecorder
from tests.test_recorded_steps import Broken, Replay, comparable

Body = Callable[[kt.TeamRun, kt.Task], Awaitable[None]]
COMPLETED, SKIPPED, CANCELLED, FAILED = (
    kt.TaskStatus.COMPLETED,
    kt.TaskStatus.SKIPPED,
    kt.TaskStatus.CANCELLED,
    kt.TaskStatus.FAILED,
)


class Coordinator:
    """Works off a plan with one body for all tasks; `after` follows the loop, `block` takes its place."""

    def __init__(self, plan: Sequence[kt.Task], body: Body, block: Any = None, **options: Any) -> None:
        self.plan = plan
        self.body = body
        self.block = block
        self.options = options

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team, **self.options) as run:
            graph = await run.plan(lambda: kt.TaskGraph(self.plan))
            if self.block is not None:
                await self.block(run, graph, self.body)
            else:
                async for task in run.ready(graph):
                    run.go(self.body, run, task)
        return run.result


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Take as many seconds as the task's inputs say, then do it or fail."""
    context.keep(f"half of {assignment.task.id}")
    await anyio.sleep(assignment.inputs.get("seconds", 1))
    if assignment.inputs.get("fails"):
        raise ValueError("it cannot be done")
    return f"made {assignment.task.id}"


def task(task_id: str, *needs: str, seconds: float = 1, fails: bool = False, **fields: Any) -> kt.Task:
    return kt.Task(task_id, "do", depends_on=needs, inputs={"seconds": seconds, "fails": fails}, **fields)


async def settle(run: kt.TeamRun, one: kt.Task) -> bool:
    """Make one attempt and accept it, or fail the task; say whether it was accepted."""
    attempt = await run.attempt(one, 1)
    if attempt.error is not None:
        run.fail(one, attempt.error)
        return False
    run.accept(one, attempt)
    return True


async def play(coordinator: Any, **config: Any) -> kt.TeamResult:
    """Run it, check that its events are lawful, and that a replay of its records gives the same and calls nobody."""
    journal, recorder = MemoryRecords(), EventRecorder()
    request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(**config), run_id="r")
    runtime = Replay(journal, subscribers=[recorder])
    with anyio.fail_after(10_000):
        first: kt.TeamResult = await coordinator.execute(
            request, kt.Team("team", [kt.Member("a", work)], runtime=runtime)
        )
    recorder.assert_lawful()
    assert (
        [outcome.task_id for outcome in first.outcomes] == [one.id for one in first.plan.tasks] if first.plan else True
    )
    broken: Any = Broken()
    replayed, again = EventRecorder(), MemoryRecords(dict(journal.records))
    member = kt.Member("a", broken, max_concurrency=99)
    with anyio.fail_after(10_000):
        second = await coordinator.execute(
            request, kt.Team("team", [member], runtime=Replay(again, subscribers=[replayed]))
        )
    replayed.assert_lawful()
    assert comparable(second) == comparable(first)
    return first


def statuses(result: kt.TeamResult) -> Mapping[str, str]:
    return {outcome.task_id: outcome.status.value for outcome in result.outcomes}


# ---------------------------------------------------------------- the end comes early


def decides_after(*names: str, reason: str = "it is decided", output: str | None = None) -> Body:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        await settle(run, one)
        if one.id in names:
            if output is not None:
                run.output = output
            await run.conclude(reason)

    return body


async def test_audit_g14_a_run_that_is_decided_ends_early_and_is_completed() -> None:
    plan = [task("a"), task("b", seconds=60), task("c", "a", seconds=60), task("d", "c"), task("e", "d")]
    result = await play(Coordinator(plan, decides_after("a")), max_parallel_tasks=2)
    assert (result.status, result.output, result.error) == (kt.TeamStatus.COMPLETED, "made a", None)
    assert statuses(result) == {
        "a": "completed",
        "b": "cancelled",
        "c": "skipped",
        "d": "skipped",
        "e": "skipped",
    }
    assert {outcome.error for outcome in result.outcomes[1:]} == {"it is decided"}
    assert result["b"].artifact == kt.Artifact("half of b", partial=True)
    assert result.warnings == ()
    assert result.duration == pytest.approx(1.0)


async def test_audit_g14_its_output_may_be_set_before_and_comes_back_in_a_replay() -> None:
    result = await play(Coordinator([task("a"), task("b", seconds=60)], decides_after("a", output="we swim")))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "we swim")


@pytest.mark.parametrize(
    ("plan", "config", "options", "status"),
    [
        ([task("a"), task("b", seconds=60)], {}, {}, kt.TeamStatus.COMPLETED),
        ([task("x", fails=True), task("a", seconds=2), task("b", seconds=60)], {}, {}, kt.TeamStatus.FAILED),
        (
            [task("x", fails=True), task("a", seconds=2), task("b", seconds=60)],
            {"risk_profile": kt.RiskProfile.LOW},
            {},
            kt.TeamStatus.DEGRADED,
        ),
        (
            [task("x", fails=True), task("a", seconds=2), task("b", seconds=60)],
            {},
            {"tolerate_failures": True},
            kt.TeamStatus.DEGRADED,
        ),
        ([task("a", fails=True), task("b", seconds=60)], {}, {}, kt.TeamStatus.FAILED),
    ],
)
async def test_audit_g14_what_was_lost_before_counts_and_what_is_called_off_does_not(
    plan: Any, config: dict[str, Any], options: dict[str, Any], status: kt.TeamStatus
) -> None:
    result = await play(Coordinator(plan, decides_after("a"), **options), **config)
    assert result.status is status
    assert result["b"].status is CANCELLED
    assert (result.error is None) is (status is kt.TeamStatus.COMPLETED)
    assert not any("'b'" in warning for warning in result.warnings)


async def test_audit_g14_nothing_accepted_is_a_failure_that_names_the_end() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        await run.conclude("nobody came")

    result = await play(Coordinator([task("a"), task("b")], body))
    assert (result.status, result.error) == (kt.TeamStatus.FAILED, "nobody came")


async def test_audit_g14_the_block_may_end_it_too() -> None:
    async def block(run: kt.TeamRun, graph: kt.TaskGraph, body: Body) -> None:
        count = 0
        async for one in run.ready(graph):
            count += 1
            if count > 2:
                await run.conclude("two are enough")
            run.go(body, run, one)
        raise AssertionError("it ended before")

    plan = [task("a"), task("b", "a"), task("c", "b"), task("d", "c")]
    result = await play(Coordinator(plan, decides_after(), block))
    assert result.status is kt.TeamStatus.COMPLETED
    assert list(statuses(result).values()) == ["completed", "completed", "cancelled", "skipped"]


async def test_audit_g14_whoever_decides_may_hold_the_only_slot() -> None:
    """In the record others had it in between; a replay that is quicker must not wait for it."""

    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id != "a":
            await settle(run, one)
            return
        attempt = await run.attempt(one, 1)
        await run.pause(one, 30)
        attempt = await run.attempt(one, 2)
        assert attempt.error is None
        await run.conclude("enough")

    result = await play(Coordinator([task("a"), task("b"), task("c")], body), max_parallel_tasks=1)
    assert list(statuses(result).values()) == ["cancelled", "completed", "completed"]
    assert result.status is kt.TeamStatus.COMPLETED


async def test_audit_g14_a_task_the_coordinator_skipped_itself_is_lost_also_in_a_replay() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "x":
            run.skip(one, "not today")
        elif await settle(run, one):
            await run.conclude("enough")

    result = await play(Coordinator([task("x"), task("a"), task("b", seconds=60)], body))
    assert result.status is kt.TeamStatus.FAILED
    assert result.error == "task 'x' skipped: not today"


async def test_audit_g14_a_kill_a_deadline_or_an_abort_before_it_counts() -> None:
    async def kill(run: kt.TeamRun, one: kt.Task) -> None:
        await settle(run, one)
        run.cancel("killed")
        await run.conclude("decided")

    async def abort(run: kt.TeamRun, one: kt.Task) -> None:
        await settle(run, one)
        run.abort("enough")
        await run.conclude("decided")

    assert (await play(Coordinator([task("a")], kill))).status is kt.TeamStatus.CANCELLED
    assert (await play(Coordinator([task("a")], abort))).status is kt.TeamStatus.FAILED


async def test_audit_g14_a_question_that_waits_for_a_person_is_called_off() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "asks":
            await run.attempt(one, 1)
            await run.ask(kt.HumanRequest("review", "good?", "made", one.id, "a", 1))
            raise AssertionError("it was put off")
        await settle(run, one)
        await run.conclude("decided")

    runtime = kt.Runtime(gate=kt.DeferGate())
    team = kt.Team("team", [kt.Member("a", work)], runtime=runtime)
    coordinator = Coordinator([task("asks"), task("a", seconds=5)], body)
    result = await coordinator.execute(kt.TeamExecutionRequest("g", run_id="r"), team)
    assert result.status is kt.TeamStatus.COMPLETED
    assert statuses(result) == {"asks": "cancelled", "a": "completed"}
    assert runtime.pending() == ()


async def test_a_subscriber_may_cancel_a_task_while_the_others_are_called_off() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        await settle(run, one)
        await run.conclude("decided")

    def cancel(event: events.Event) -> None:
        if isinstance(event, events.TaskSkipped) and event.task_id == "b":
            runtime.runs["r"].cancel_task("c", "nor this one")

    tasks = [task("a"), *(task(name, "a") for name in "bcd")]
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder, cancel]) as runtime:
        team = kt.Team("team", [kt.Member("a", work)])
        request = kt.TeamExecutionRequest("g", run_id="r")
        run = await runtime.start(team, request, coordinator=Coordinator(tasks, body))
        result = await run.result()
    recorder.assert_lawful()
    assert result.status is kt.TeamStatus.COMPLETED
    assert statuses(result) == {"a": "completed", "b": "skipped", "c": "skipped", "d": "skipped"}
    assert (result["c"].error, result["d"].error) == ("nor this one", "decided")


async def test_audit_g14_a_blank_reason_is_refused() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        with pytest.raises(ValueError, match="conclude takes a reason in words, not ' '"):
            await run.conclude(" ")
        await settle(run, one)

    assert (await play(Coordinator([task("a")], body))).status is kt.TeamStatus.COMPLETED


# ---------------------------------------------------------------- more than was planned


async def test_audit_g14_tasks_are_added_while_the_run_goes_on() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "a":
            graph = await run.add(lambda: [task("b", "a"), task("c", "b")])
            assert [each.id for each in graph.tasks] == ["a", "z", "b", "c"]
            assert run.graph is graph
        await settle(run, one)

    result = await play(Coordinator([task("a"), task("z")], body))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "z:\nmade z\n\nc:\nmade c")
    assert list(statuses(result)) == ["a", "z", "b", "c"]
    assert result.usage.loops == 4


async def test_audit_g14_rounds_are_added_between_two_loops() -> None:
    """What adds may learn from outside: it is asked once."""

    async def block(run: kt.TeamRun, graph: kt.TaskGraph, body: Body) -> None:
        for number in range(1, 4):
            async for one in run.ready(graph):
                run.go(body, run, one)
            if number < 3:
                graph = await run.add(partial(more, run, number))

    async def more(run: kt.TeamRun, number: int) -> Sequence[kt.Task]:
        await anyio.sleep(1)
        return [task(f"r{number}", graph_end(run))]

    def graph_end(run: kt.TeamRun) -> str:
        assert run.graph is not None
        return run.graph.tasks[-1].id

    result = await play(Coordinator([task("r0")], decides_after(), block))
    assert list(statuses(result).items()) == [("r0", "completed"), ("r1", "completed"), ("r2", "completed")]
    assert result.output == "made r2"


async def test_audit_g14_several_bodies_add_at_once_and_a_replay_keeps_their_order() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        attempt = await run.attempt(one, 1)
        if one.id in "abc":
            await run.add(lambda: [task(f"{one.id}{number}", one.id) for number in range(2)])
            await run.add(lambda: [task(f"{one.id}-last", f"{one.id}1")])
        run.accept(one, attempt)

    plan = [task("a", seconds=3), task("b", seconds=2), task("c", seconds=1)]
    result = await play(Coordinator(plan, body))
    assert list(statuses(result)) == [
        *("a", "b", "c", "c0", "c1", "c-last", "b0", "b1", "b-last", "a0", "a1", "a-last")
    ]
    assert result.status is kt.TeamStatus.COMPLETED


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        ([], "there is no task to add"),
        ([task("a")], "ids are used again: 'a'; tasks that are added need ids of their own"),
        ([task("b", "nobody")], "task 'b' depends on unknown tasks 'nobody'; the plan has 'a', 'b'"),
        ([task("b", "c"), task("c", "b")], "the tasks form a cycle: "),
        ([task("b"), task("b")], "task ids must be unique; given twice: 'b'"),
        ([task("b", member="ghost")], "task 'b' needs the member 'ghost', which no member offers"),
        ([task("b", evaluator="ghost")], "task 'b' names the evaluator 'ghost'"),
        (["b"], "tasks are added as a list of kt.Task, and 'b' is not one"),
        ("b", "tasks are added as a list of kt.Task, not as 'b'"),
        (None, "tasks are added as a list of kt.Task, not as None"),
    ],
)
async def test_audit_g14_what_is_added_is_checked_like_a_plan(tasks: Any, error: str) -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        with pytest.raises(kt.KairoError) as raised:
            await run.add(lambda: tasks)
        assert error in str(raised.value)
        await settle(run, one)

    result = await play(Coordinator([task("a")], body))
    assert (result.status, list(statuses(result))) == (kt.TeamStatus.COMPLETED, ["a"])


async def test_audit_g14_what_could_never_start_is_not_added() -> None:
    async def block(run: kt.TeamRun, graph: kt.TaskGraph, body: Body) -> None:
        async for one in run.ready(graph):
            run.go(body, run, one)
        with pytest.raises(kt.KairoError, match="tasks need what was not accepted: 'b'"):
            await run.add(lambda: [task("b", "x")])

    result = await play(Coordinator([task("a"), task("x", fails=True)], decides_after(), block))
    assert list(statuses(result)) == ["a", "x"]


async def test_audit_g14_a_need_that_fails_later_skips_what_was_added_also_where_a_replay_is_quicker() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "a":
            attempt = await run.attempt(one, 1)
            await run.add(lambda: [task("b", "x"), task("c", "b")])
            run.accept(one, attempt)
        else:
            await settle(run, one)

    result = await play(Coordinator([task("x", seconds=9, fails=True), task("a")], body, tolerate_failures=True))
    assert statuses(result) == {"x": "failed", "a": "completed", "b": "skipped", "c": "skipped"}
    assert result["b"].error == "it needs 'x', which was not accepted"


async def test_audit_g14_tasks_are_added_before_the_task_ends_and_after_the_plan() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        await settle(run, one)
        with pytest.raises(Misuse, match="task 'a' is completed: add tasks before it ends"):
            await run.add(lambda: [task("b")])

    await play(Coordinator([task("a")], body))
    async with kt.TeamRun.open(kt.TeamExecutionRequest("g"), kt.Team("t", [kt.Member("a", work)])) as run:
        with pytest.raises(Misuse, match="plan first: `add` adds tasks to a plan"):
            await run.add(lambda: [task("b")])


async def test_audit_g14_what_makes_tasks_may_ask_models_and_a_replay_books_the_same() -> None:
    calls: list[str] = []

    async def ask(run: kt.TeamRun) -> Sequence[kt.Task]:
        calls.append("asked")
        with await run.context("plan").governor.hold(tokens=20) as hold:
            hold.settle(prompt_tokens=15)
        return [task("b")]

    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "a":
            await run.add(lambda: ask(run))
        await settle(run, one)

    result = await play(Coordinator([task("a")], body), budget=kt.Budget(tokens=1000))
    assert (result.usage.tokens, calls) == (15, ["asked"])


async def test_audit_g14_watchers_are_shown_what_was_added() -> None:
    async def body(run: kt.TeamRun, one: kt.Task) -> None:
        if one.id == "a":
            await run.add(lambda: [task("b")])
        await settle(run, one)

    recorder = EventRecorder()
    team = kt.Team("t", [kt.Member("a", work)], runtime=kt.Runtime(subscribers=[recorder]))
    await kt.run(team, "g", coordinator=Coordinator([task("a")], body))
    assert [event.tasks for event in recorder.of(events.PlanReady)] == [("a",)]
    (grew,) = recorder.of(events.PlanGrew)
    assert (grew.by, grew.added) == ("a", (events.PlannedTask("b", (), 0, ("a",), description="do"),))


# ---------------------------------------------------------------- both: a debate


class Debate:
    """Two argue, round after round, until the third is convinced."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(lambda: kt.TaskGraph(self.round(1)))
            async for one in run.ready(graph):
                run.go(self.one, run, one)
        return run.result

    def round(self, number: int) -> list[kt.Task]:
        before = [f"vote-{number - 1}"] if number > 1 else []
        sides = [kt.Task(f"{side}-{number}", "Argue.", member=side, depends_on=before) for side in ("pro", "con")]
        return [*sides, kt.Task(f"vote-{number}", "Decide.", member="judge", depends_on=[side.id for side in sides])]

    async def one(self, run: kt.TeamRun, one: kt.Task) -> None:
        attempt = await run.attempt(one, 1)
        if attempt.error:
            run.fail(one, attempt.error)
            return
        verdict = await run.review(one, attempt, SimpleEvaluationStrategy())
        name, _, number = one.id.partition("-")
        undecided = name == "vote" and attempt.artifact is not None and attempt.artifact.text == "undecided"
        if undecided:
            await run.add(lambda: self.round(int(number) + 1))
        run.accept(one, attempt, verdict)
        if name == "vote" and not undecided:
            await run.conclude("the debate is decided")


@pytest.mark.parametrize("rounds", [1, 3])
async def test_audit_g14_a_debate_goes_on_until_it_is_decided(rounds: int) -> None:
    async def vote(assignment: kt.Assignment) -> str:
        return "pro" if assignment.task.id == f"vote-{rounds}" else "undecided"

    recorder = EventRecorder()
    members = [kt.Member("pro", work), kt.Member("con", work), kt.Member("judge", vote)]
    team = kt.Team("debate", members, runtime=kt.Runtime(subscribers=[recorder]))
    result = await kt.run(team, "Shall we swim?", coordinator=Debate())
    recorder.assert_lawful()
    assert (result.status, result.output, len(result.outcomes)) == (kt.TeamStatus.COMPLETED, "pro", 3 * rounds)


class TwoRounds(Debate):
    """A debate of two rounds, whatever is said: on any team of three."""

    def round(self, number: int) -> list[kt.Task]:
        return [replace(one, member=None, description=f"{one.description} {one.id}") for one in super().round(number)]

    async def one(self, run: kt.TeamRun, one: kt.Task) -> None:
        attempt = await run.attempt(one, 1)
        if attempt.error:
            run.fail(one, attempt.error)
            return
        if one.id == "vote-1":
            await run.add(lambda: self.round(2))
        run.accept(one, attempt)
        if one.id == "vote-2":
            await run.conclude("the debate is decided")


@pytest.mark.exhaustive
class TestTwoRounds(TeamCoordinatorTCK):
    """A coordinator whose runs grow, and end when it says so, keeps its contract."""

    supports_plan = False
    supports_review = False
    supports_revision = False
    supports_gate = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return TwoRounds()
