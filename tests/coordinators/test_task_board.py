"""The task board as a whole: who gets what and when, under every limit there is, and what it costs to decide that."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import anyio
import pytest
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.engine.tasks.ready_tasks import ReadyTasks
from kairo_team.testing import FunctionModel, ScriptedAgent, run_in_virtual_time
from tests.coordinators.bench import (
    COMPLETED,
    FAILED,
    ONCE,
    PASS,
    REVISE,
    SKIPPED,
    Bench,
    Verdicts,
    bad,
    good,
    statuses,
    task,
)


class Crowd:
    """An agent that takes a second, and counts how many are at work."""

    reentrant = True

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        kinds = ("all", str(assignment.task.member))
        self.order.append(assignment.task.id)
        for kind in kinds:
            self.running[kind] += 1
            self.most[kind] = max(self.most[kind], self.running[kind])
        await anyio.sleep(1)
        for kind in kinds:
            self.running[kind] -= 1
        return "done"


def board() -> TaskDispatchCoordinator:
    return TaskDispatchCoordinator(failure_policy=ONCE)


async def test_a_task_goes_to_the_member_it_names_although_another_is_free() -> None:
    first, second = (ScriptedAgent([f"by {name}"] * 9) for name in "12")
    bench = Bench(kt.Member("clerk", first), kt.Member("clerk", second))
    plan = [task("a", member="clerk-2"), task("b", member="clerk-2"), task("c", member="clerk")]
    result = await bench.run(board(), *plan)
    assert [outcome.member for outcome in result.outcomes] == ["clerk-2", "clerk-2", "clerk"]


async def test_the_heaviest_path_to_the_end_goes_first() -> None:
    """Not the heaviest task, nor the longest chain: the sum of weights from a task to the end."""
    crowd = Crowd()
    plan = [
        task("heavy", weight=5.0),
        task("chain-1", weight=1.0), task("chain-2", "chain-1", weight=1.0), task("chain-3", "chain-2", weight=1.0),
        task("path-1", weight=1.0), task("path-2", "path-1", weight=6.0),
        task("light", weight=0.5),
    ]  # fmt: skip
    await Bench(kt.Member("a", crowd)).run(board(), *plan, max_parallel_tasks=1)
    assert crowd.order == ["path-1", "path-2", "heavy", "chain-1", "chain-2", "chain-3", "light"]


async def test_no_more_tasks_are_in_flight_than_the_team_allows() -> None:
    crowd = Crowd()
    plan = [task(str(number), member=name) for number in range(6) for name in ("a",)]
    result = await Bench(kt.Member("a", crowd)).run(board(), *plan, max_parallel_tasks=2)
    assert crowd.most["all"] == 2
    assert result.duration == pytest.approx(3.0)


async def test_kf_t12_no_more_tasks_share_a_member_than_it_allows() -> None:
    """T12: two parallel tasks shared one agent instance. Leases bound a member, and nobody waits for another's."""
    crowd = Crowd()
    members = [kt.Member("one", crowd, max_concurrency=1), kt.Member("two", crowd, max_concurrency=2)]
    plan = [task(f"{name}-{number}", member=name) for number in range(4) for name in ("one", "two")]
    result = await Bench(*members).run(board(), *plan)
    assert (crowd.most["one"], crowd.most["two"], crowd.most["all"]) == (1, 2, 3)
    assert result.duration == pytest.approx(4.0)


async def test_a_models_limit_holds_for_all_members() -> None:
    running, most = Counter[str](), Counter[str]()

    async def answer(request: kt.ModelRequest) -> str:
        running["m"] += 1
        most["m"] = max(most["m"], running["m"])
        await anyio.sleep(1)
        running["m"] -= 1
        return "answer"

    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("go")]))).text

    runtime = kt.Runtime(
        models={"test:m": FunctionModel(answer)}, model_limits={"test:*": kt.ModelLimit(concurrency=2)}
    )
    team = kt.Team("t", [kt.Member("a", ask), kt.Member("b", ask)], runtime=runtime)
    plan = kt.TaskGraph([task(f"{name}-{number}", member=name) for number in range(3) for name in "ab"])
    result = await board().execute(kt.TeamExecutionRequest("g", plan=plan), team)
    assert (result.status, most["m"]) == (kt.TeamStatus.COMPLETED, 2)
    assert result.duration == pytest.approx(3.0)


async def test_a_skipped_task_names_what_it_lacked() -> None:
    plan = [
        task("bad", member="bad"), task("next", "bad", member="good"), task("last", "next", member="good"),
        task("free", member="good"), task("both", "free", "bad", member="good"),
    ]  # fmt: skip
    bench = Bench(kt.Member("bad", bad), kt.Member("good", good))
    result = await bench.run(board(), *plan)
    assert statuses(result) == {"bad": FAILED, "next": SKIPPED, "last": SKIPPED, "free": COMPLETED, "both": SKIPPED}
    reasons = {event.task_id: event.reason for event in bench.recorder.of(events.TaskSkipped)}
    assert reasons == {
        "next": "it needs 'bad', which was not accepted",
        "both": "it needs 'bad', which was not accepted",
        "last": "it needs 'next', which was not accepted",
    }


async def test_a_task_that_names_an_evaluator_is_reviewed_and_revised() -> None:
    agent = ScriptedAgent(["draft", "text", "plain"])
    bench = Bench(kt.Member("a", agent), evaluators={"ed": Verdicts([REVISE, PASS])})
    result = await bench.run(board(), task("seen", evaluator="ed"), task("plain", "seen"))
    assert [(o.attempts, o.verdict) for o in result.outcomes] == [(2, PASS), (1, None)]
    assert result.status is kt.TeamStatus.COMPLETED


# ---------------------------------------------------------------- U02: names, not objects


@pytest.mark.parametrize("coordinator", [TaskDispatchCoordinator, ExpertTeamCoordinator])
async def test_kf_u02_a_plan_that_went_through_json_is_reviewed_by_the_same_evaluators(coordinator: Any) -> None:
    """U02: evaluators as live objects in a plan vanished on resume. A plan holds names, which the team resolves."""
    legal = Verdicts([REVISE, PASS])
    with pytest.raises(ValueError, match="evaluator"):
        kt.Task("t", "do", evaluator=legal)  # type: ignore[arg-type]
    plan = kt.TaskGraph([task("t", evaluator="legal", output_type="report")])
    request = kt.TeamExecutionRequest("g", plan=plan)
    known = TypeAdapter(kt.TeamExecutionRequest)
    again = known.validate_json(known.dump_json(request))
    assert again.plan == plan
    team = kt.Team(
        "t",
        [kt.Member("a", ScriptedAgent(["1", "2"]))],
        evaluators={"legal": legal},
        output_types={"report": int},
    )
    result = await coordinator().execute(again, team)
    assert (result.status, result["t"].attempts, len(legal.contexts)) == (kt.TeamStatus.COMPLETED, 2, 2)
    without = kt.Team("t", team.members, output_types={"report": int})
    refused = await coordinator().execute(kt.TeamExecutionRequest("g", plan=plan), without)
    assert "names the evaluator 'legal'; the team has none" in (refused.error or "")


# ---------------------------------------------------------------- T30: what it costs


def chain(count: int) -> list[kt.Task]:
    return [task(str(number), *([str(number - 1)] if number else [])) for number in range(count)]


def fan(count: int) -> list[kt.Task]:
    return [
        task("root"),
        *(task(str(number), "root") for number in range(count - 2)),
        task("end", *map(str, range(count - 2))),
    ]


def rows(count: int) -> list[kt.Task]:
    width = 50
    return [task(str(n), *([str(n - width), str(n - n % width - 1)] if n >= width else [])) for n in range(count)]


SHAPES = {"chain": chain, "fan": fan, "rows": rows}


def calls_of_a_run(tasks: list[kt.Task], **limits: Any) -> int:
    """Count the calls of Python functions that a whole run takes: the same on any machine."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def run() -> kt.TeamResult:
        team = kt.Team("t", [kt.Member("a", good, max_concurrency=limits.pop("member", None))])
        request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph(tasks), config=kt.TeamConfig(**limits))
        sys.setprofile(count)
        try:
            return await board().execute(request, team)
        finally:
            sys.setprofile(None)

    assert run_in_virtual_time(run).status is kt.TeamStatus.COMPLETED
    return calls


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"budget": kt.Budget(tokens=10**9, loops=10**6)},
        pytest.param({"max_parallel_tasks": 7}, marks=pytest.mark.exhaustive),
        pytest.param({"member": 3}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_kf_t30_three_times_the_tasks_cost_three_times_the_calls(shape: str, limits: dict[str, Any]) -> None:
    """T30: three times the nodes, sixteen times the seconds."""
    small, big = (calls_of_a_run(SHAPES[shape](count), **limits) for count in (300, 900))
    assert big < 3.2 * small


@pytest.mark.parametrize("shape", SHAPES)
def test_kf_t30_the_boards_calls_per_task_do_not_grow_with_the_plan(shape: str) -> None:
    """`benchmarks` measures the time of whole runs of 100,000 tasks."""

    def calls_a_task(count: int) -> float:
        calls = 0

        def see(*_: object) -> None:
            nonlocal calls
            calls += 1

        graph = kt.TaskGraph(SHAPES[shape](count))
        sys.setprofile(see)
        everybody = {one.id: ("a", "b") for one in graph.tasks}
        tasks = ReadyTasks(graph, everybody, {"a": 3, "b": 3})
        while (taken := tasks.take()) is not None:
            entry, member = taken
            list(tasks.end(entry, accepted=True))
            tasks.release(member)
        sys.setprofile(None)
        assert tasks.unended == 0
        return calls / count

    assert calls_a_task(5_000) < 1.2 * calls_a_task(500), "quadratic would be ten times"
