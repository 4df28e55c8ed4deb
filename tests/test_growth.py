"""Maps, branches and loops in a run: what they grow into, what follows from failures, and the result of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.api import PlanCheck
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder
from tests.test_recorded_steps import Broken, Replay, comparable

COMPLETED, DEGRADED, FAILED = kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED, kt.TeamStatus.FAILED
Answers = Mapping[str, Any]
"""What a member returns for a task: a value, an error to raise, or a function of the assignment."""


def member(answers: Answers, seen: list[kt.Assignment] | None = None) -> kt.Member:
    """Return a member that answers by the id of the task, or by the last part of it."""

    async def work(assignment: kt.Assignment) -> Any:
        if seen is not None:
            seen.append(assignment)
        task_id = assignment.task.id
        answer = answers.get(task_id, answers.get(task_id.rpartition(".")[2], f"made {task_id}"))
        await anyio.sleep(assignment.inputs.get("seconds", 1))
        if callable(answer):
            answer = answer(assignment)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str | kt.Artifact) else kt.Artifact(json.dumps(answer), answer)

    return kt.Member("a", work)


async def play(
    plan: Sequence[kt.Task],
    answers: Answers,
    seen: list[kt.Assignment] | None = None,
    *,
    team: Any = None,
    **config: Any,
) -> kt.TeamResult:
    """Run a plan, check that its events are lawful, and that a replay gives the same and calls nobody."""
    journal, recorder = MemoryRecords(), EventRecorder()
    request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph(plan), config=kt.TeamConfig(**config), run_id="r")
    coordinator = TaskDispatchCoordinator()
    results: list[kt.TeamResult] = []
    broken: Any = Broken()
    for one, records, events_of in (
        (member(answers, seen), journal, recorder),
        (kt.Member("a", broken, max_concurrency=99), journal, EventRecorder()),
    ):
        copy = MemoryRecords(dict(records.records)) if results else records
        with anyio.fail_after(100_000):
            runtime = Replay(copy, subscribers=[events_of])
            results.append(await coordinator.execute(request, kt.Team("team", [one], runtime=runtime, **(team or {}))))
        events_of.assert_lawful()
    first, again = results
    assert comparable(again) == comparable(first)
    assert first.plan is not None
    assert [outcome.task_id for outcome in first.outcomes] == [one.id for one in first.plan.tasks]
    return first


def statuses(result: kt.TeamResult) -> dict[str, str]:
    return {outcome.task_id: outcome.status.value for outcome in result.outcomes}


def upstream(seen: Sequence[kt.Assignment], task_id: str) -> dict[str, str]:
    """Return what a task found upstream."""
    return {name: one.text for name, one in next(a for a in seen if a.task.id == task_id).upstream.items()}


SPLIT = kt.Task("split", "List.")
READ = kt.Task.map("read", "Read `item`.", over="split", max_items=20, inputs={"lang": "en"}, weight=3)
GATHER = kt.Task("gather", "Join.", depends_on=["read"])

# ---------------------------------------------------------------- maps


async def test_kf_map_a_list_becomes_one_task_an_item_and_who_gathers_finds_them_in_order() -> None:
    seen: list[kt.Assignment] = []
    result = await play([SPLIT, READ, GATHER], {"split": ["x", {"y": 1}, None]}, seen)
    assert (result.status, result.output) == (COMPLETED, "made gather")
    items = ["read.0001", "read.0002", "read.0003"]
    assert list(statuses(result)) == ["split", "read", *items, "gather"]
    assert set(statuses(result).values()) == {"completed"}
    given = {one.task.id: one for one in seen}
    assert [given[name].inputs for name in items] == [
        {"lang": "en", "item": "x", "number": 1},
        {"lang": "en", "item": {"y": 1}, "number": 2},
        {"lang": "en", "item": None, "number": 3},
    ]
    assert all(given[name].task.description == "Read `item`." and not given[name].upstream for name in items)
    assert sum(given[name].task.weight for name in items) == pytest.approx(3)
    assert upstream(seen, "gather") == {name: f"made {name}" for name in items}
    assert list(upstream(seen, "gather")) == items


async def test_the_items_of_a_map_work_side_by_side() -> None:
    result = await play([SPLIT, READ, GATHER], {"split": list(range(20))})
    assert result.duration == pytest.approx(3.0)


async def test_a_list_may_be_json_in_the_text_and_may_be_empty() -> None:
    result = await play([SPLIT, READ, GATHER], {"split": "```json\n[1, 2]\n```"})
    assert len(result.outcomes) == 5
    result = await play([SPLIT, READ, GATHER], {"split": []})
    assert (result.status, statuses(result)) == (
        COMPLETED,
        {"split": "completed", "read": "completed", "gather": "completed"},
    )


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (list(range(21)), "the list has 21 items, and the map 'read' takes at most 20 (max_items)"),
        ({"a": 1}, "the map 'read' works on a list, and this is {'a': 1}"),
        ("three things", "the artifact has no data, and its text is not JSON: 'three things'"),
    ],
)
async def test_kf_map_no_list_or_one_that_is_too_long_is_an_error_of_the_task_that_made_it(
    made: Any, problem: str
) -> None:
    result = await play([kt.Task("split", "List.", retries=0), READ, GATHER], {"split": made})
    assert statuses(result) == {"split": "failed", "read": "skipped", "gather": "skipped"}
    assert problem in (result["split"].error or "")
    assert result["split"].artifact is not None
    assert result["split"].artifact.partial


async def test_a_list_that_is_too_long_is_made_anew_as_after_any_failed_attempt() -> None:
    tries = iter([list(range(30)), [1]])
    result = await play([kt.Task("split", "List.", retries=1), READ], {"split": lambda _: next(tries)})
    assert (result.status, result["split"].attempts) == (COMPLETED, 2)


@pytest.mark.parametrize(
    ("needs", "failing", "status"),
    [
        ("all", 0, "completed"),
        ("all", 1, "skipped"),
        (0.8, 2, "completed"),
        (0.8, 3, "skipped"),
        (4, 6, "completed"),
        (4, 7, "skipped"),
        (0, 10, "completed"),
        (11, 0, "skipped"),
    ],
)
async def test_needs_counts_the_items_of_a_map(needs: Any, failing: int, status: str) -> None:
    answers: dict[str, Any] = {"split": list(range(10))}
    answers |= {f"read.{number:04}": ValueError("no") for number in range(1, failing + 1)}
    plan = [SPLIT, READ, kt.Task("gather", "Join.", depends_on=["read"], needs=needs)]
    seen: list[kt.Assignment] = []
    result = await play(plan, answers, seen)
    assert statuses(result)["gather"] == status
    assert statuses(result)["read"] == ("failed" if failing == 10 else "completed")
    if status == "completed":
        assert len(upstream(seen, "gather")) == 10 - failing


async def test_needs_counts_what_stands_beside_a_map_too_whoever_ends_first() -> None:
    for seconds in (0, 9):
        plan = [SPLIT, READ, kt.Task("fact", "f", inputs={"seconds": seconds}, retries=0)]
        plan.append(kt.Task("gather", "Join.", depends_on=["fact", "read"], needs=0.75))
        result = await play(plan, {"split": [1, 2, 3], "fact": ValueError("no")})
        assert statuses(result)["gather"] == "completed"
        result = await play(plan, {"split": [1, 2], "fact": ValueError("no")})
        assert statuses(result)["gather"] == "skipped"


async def test_a_map_whose_list_was_not_made_is_skipped() -> None:
    result = await play([kt.Task("split", "List.", retries=0), READ, GATHER], {"split": ValueError("no")})
    assert statuses(result) == {"split": "failed", "read": "skipped", "gather": "skipped"}
    assert result["read"].error == "it needs 'split', which was not accepted"


async def test_items_get_what_their_map_depends_on_beside_the_list() -> None:
    seen: list[kt.Assignment] = []
    read = kt.Task.map("read", "Read.", over="split", max_items=3, depends_on=["style"])
    result = await play([SPLIT, kt.Task("style", "s"), read], {"split": [1, 2]}, seen)
    assert result.status is COMPLETED
    assert upstream(seen, "read.0002") == {"style": "made style"}


async def test_items_without_a_gatherer_are_the_output() -> None:
    result = await play([SPLIT, READ], {"split": [1, 2]})
    assert result.output == "read.0001:\nmade read.0001\n\nread.0002:\nmade read.0002"


async def test_a_map_of_maps_grows_twice() -> None:
    outer = kt.Task.map("outer", "o", over="split", max_items=3, loop=kt.Loop([SPLIT, READ], max_rounds=1))
    seen: list[kt.Assignment] = []
    result = await play([SPLIT, outer, kt.Task("end", "e", depends_on=["outer"])], {"split": [1, 2]}, seen)
    assert result.status is COMPLETED
    assert len(result.outcomes) == 3 + 2 + 2 * (2 + 2)
    assert list(upstream(seen, "end")) == [
        "outer.0001.split",
        "outer.0001.read.0001",
        "outer.0001.read.0002",
        "outer.0002.split",
        "outer.0002.read.0001",
        "outer.0002.read.0002",
    ]


# ---------------------------------------------------------------- branches

TRIAGE = kt.Task("triage", "Sort it.", retries=0)
FIX = kt.Task("fix", "Fix.", when={"from": "triage", "field": "kind", "equals": "bug"})
ANSWER = kt.Task("answer", "Answer.", when={"from": "triage", "field": "kind", "not_equals": "bug"})
CLOSE = kt.Task("close", "Close.", depends_on=["fix", "answer"], needs=1)


@pytest.mark.parametrize(("kind", "taken", "other"), [("bug", "fix", "answer"), ("question", "answer", "fix")])
async def test_kf_branch_the_branch_that_is_not_taken_is_skipped_and_does_not_count_against_the_run(
    kind: str, taken: str, other: str
) -> None:
    result = await play([TRIAGE, FIX, ANSWER, CLOSE], {"triage": {"kind": kind}})
    assert (result.status, result.output, result.warnings) == (COMPLETED, "made close", ())
    assert statuses(result) == {"triage": "completed", taken: "completed", other: "skipped", "close": "completed"}
    test = "not equals" if other == "answer" else "equals"
    assert result[other].error == f'not taken: triage.kind {test} "bug" does not hold'


async def test_what_depends_on_an_untaken_branch_alone_is_skipped_with_it_and_does_not_count_either() -> None:
    result = await play(
        [TRIAGE, FIX, ANSWER, kt.Task("ship", "s", depends_on=["fix"])], {"triage": {"kind": "question"}}
    )
    assert (result.status, result.output) == (COMPLETED, "made answer")
    assert (result["ship"].status, result["ship"].error) == (
        kt.TaskStatus.SKIPPED,
        "it needs 'fix', which was not accepted",
    )


async def test_a_failed_task_counts_beside_an_untaken_branch() -> None:
    result = await play(
        [TRIAGE, FIX, kt.Task("other", "o", retries=0)], {"triage": {"kind": "q"}, "other": ValueError("no")}
    )
    assert result.status is DEGRADED


async def test_what_a_condition_cannot_read_is_an_error_of_the_task_that_made_it() -> None:
    result = await play([TRIAGE, FIX, ANSWER], {"triage": {"sort": "bug"}})
    assert statuses(result) == {"triage": "failed", "fix": "skipped", "answer": "skipped"}
    assert "has no field 'kind'; it has 'sort'" in (result["triage"].error or "")


async def test_a_condition_on_what_was_not_accepted_is_no_reason_to_start() -> None:
    late = kt.Task("late", "l", depends_on=["split"], needs=0, when={"from": "triage", "equals": "x"})
    result = await play([TRIAGE, SPLIT, late], {"triage": ValueError("no")})
    assert (result["late"].status, result["late"].error) == (
        kt.TaskStatus.FAILED,
        "it looks at 'triage', which was not accepted",
    )


async def test_a_function_of_the_team_decides_once_and_a_replay_does_not_ask_it() -> None:
    asked: list[str] = []

    def urgent(artifact: kt.Artifact) -> bool:
        asked.append(artifact.text)
        assert len(asked) == 1
        return "now" in artifact.text

    team = {"conditions": {"urgent": urgent}}
    fix = kt.Task("fix", "Fix.", when={"from": "triage", "holds": "urgent"})
    result = await play([TRIAGE, fix], {"triage": "do it now"}, team=team)
    assert (statuses(result)["fix"], asked) == ("completed", ["do it now"])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda _: 1, "the team's condition 'odd' returned 1; it has to return True or False"),
        (lambda _: 1 / 0, "the team's condition 'odd' raised ZeroDivisionError: division by zero"),
    ],
)
async def test_a_function_that_fails_fails_its_task(function: Callable[[object], Any], problem: str) -> None:
    fix = kt.Task("fix", "Fix.", when={"from": "triage", "holds": "odd"})
    result = await play([TRIAGE, fix], {}, team={"conditions": {"odd": function}})
    assert (statuses(result)["fix"], result["fix"].error) == ("failed", problem)


# ---------------------------------------------------------------- loops

BODY = (kt.Task("write", "Write.", retries=0), kt.Task("test", "Test.", depends_on=["write"], retries=0))
PASSED = {"from": "test", "field": "passed", "equals": True}


def polish(until: Any = PASSED, rounds: int = 5, **fields: Any) -> kt.Task:
    return kt.Task("polish", "Polish.", loop=kt.Loop(BODY, until=until, max_rounds=rounds), **fields)


def round_of(assignment: kt.Assignment) -> int:
    number: int = assignment.inputs["round"]
    return number


def passes_in(number: int) -> dict[str, Any]:
    """Let the test pass in this round."""
    return {
        "write": lambda given: f"version {round_of(given)}",
        "test": lambda given: {"passed": round_of(given) >= number},
    }


async def test_kf_loop_rounds_go_on_until_the_condition_holds_and_the_last_one_is_the_loops() -> None:
    seen: list[kt.Assignment] = []
    plan = [SPLIT, polish(depends_on=["split"]), kt.Task("ship", "s", depends_on=["polish"])]
    result = await play(plan, passes_in(3), seen)
    assert (result.status, result.output) == (COMPLETED, "made ship")
    rounds = [f"polish.{number:02}.{name}" for number in (1, 2, 3) for name in ("write", "test")]
    assert list(statuses(result)) == ["split", "polish", *rounds, "ship"]
    assert set(statuses(result).values()) == {"completed"}
    assert upstream(seen, "polish.01.write") == {"split": "made split"}
    assert upstream(seen, "polish.02.write") == {
        "split": "made split",
        "last.write": "version 1",
        "last.test": '{"passed": false}',
    }
    assert upstream(seen, "polish.03.test") == {
        "split": "made split",
        "last.write": "version 2",
        "last.test": '{"passed": false}',
        "write": "version 3",
    }
    assert upstream(seen, "ship") == {"polish.write": "version 3", "polish.test": '{"passed": true}'}


async def test_without_a_condition_a_loop_has_as_many_rounds_as_it_says() -> None:
    result = await play([polish(until=None, rounds=3)], {})
    assert (result.status, len(result.outcomes)) == (COMPLETED, 7)


NO_FIELD = "round 1: 'polish.01.test' failed: the artifact has no field 'passed'; it has 'passd'"


@pytest.mark.parametrize(
    ("answers", "rounds", "problem"),
    [
        (passes_in(9), 5, "test.passed equals true did not hold after 5 rounds"),
        (passes_in(9) | {"polish.02.write": ValueError("no")}, 2, "round 2: 'polish.02.write' failed: ValueError: no"),
        (passes_in(9) | {"write": "the same"}, 2, "no progress: round 2 made the same as round 1"),
        (
            passes_in(9) | {"write": lambda given: "ab"[round_of(given) % 2]},
            3,
            "no progress: round 3 made the same as round 1",
        ),
        (passes_in(9) | {"test": {"passd": False}}, 1, NO_FIELD),
    ],
    ids=["rounds", "failure", "no progress", "cycle", "unreadable"],
)
async def test_kf_loop_a_loop_that_does_not_come_to_its_end_fails_with_the_reason(
    answers: Answers, rounds: int, problem: str
) -> None:
    result = await play([polish(), kt.Task("ship", "s", depends_on=["polish"])], answers)
    assert (result["polish"].status, result["polish"].error) == (kt.TaskStatus.FAILED, problem)
    assert (result.status, statuses(result)["ship"]) == (
        DEGRADED if rounds > 1 or "passd" in str(answers) else FAILED,
        "skipped",
    )
    assert len(result.outcomes) == 2 + 2 * rounds


async def test_a_loop_that_fails_gives_back_the_last_round_in_which_something_was_accepted() -> None:
    result = await play([polish()], passes_in(9) | {"polish.03.write": ValueError("no")})
    assert (result.status, result["polish"].status) == (DEGRADED, kt.TaskStatus.FAILED)
    assert (result.output, result.partial_output) == (None, '{"passed": false}')
    assert result["polish"].artifact == result["polish.02.test"].artifact


async def test_a_branch_in_a_loop_and_a_loop_in_a_branch() -> None:
    mend = kt.Task("mend", "m", when={"from": "test", "field": "passed", "equals": False})
    loop = kt.Loop([*BODY, mend], until=PASSED, max_rounds=3)
    plan = [TRIAGE, kt.Task("polish", "p", loop=loop, when={"from": "triage", "field": "kind", "equals": "bug"})]
    result = await play(plan, {"triage": {"kind": "bug"}, **passes_in(2)})
    assert result.status is COMPLETED
    assert (statuses(result)["polish.01.mend"], statuses(result)["polish.02.mend"]) == ("completed", "skipped")
    result = await play(plan, {"triage": {"kind": "question"}})
    assert (result.status, statuses(result)) == (COMPLETED, {"triage": "completed", "polish": "skipped"})


async def test_a_pipeline_for_each_item_is_a_map_with_a_loop() -> None:
    seen: list[kt.Assignment] = []
    each = kt.Task.map("each", "e", over="split", max_items=5, loop=kt.Loop(BODY, until=PASSED, max_rounds=4))
    answers = {"split": [1, 2, 3]} | passes_in(2)
    result = await play([SPLIT, each, kt.Task("end", "e", depends_on=["each"], needs="all")], answers, seen)
    assert result.status is COMPLETED
    assert {one.inputs["item"] for one in seen if one.task.id.endswith("write")} == {1, 2, 3}
    assert list(upstream(seen, "end")) == [
        f"each.{number:04}.{name}" for number in (1, 2, 3) for name in ("write", "test")
    ]


# ---------------------------------------------------------------- from outside, and events


async def test_events_say_what_grew_and_from_what() -> None:
    recorder = EventRecorder()
    team = kt.Team("team", [member({"split": [1, 2]} | passes_in(2))], runtime=kt.Runtime(subscribers=[recorder]))
    await kt.run(team, "g", plan=kt.TaskGraph([SPLIT, READ, polish()]))
    grew = [event for event in recorder.events if isinstance(event, events.PlanGrew)]
    assert sorted((event.by or "", [one.id for one in event.added]) for event in grew) == [
        ("polish", ["polish.01.write", "polish.01.test"]),
        ("polish", ["polish.02.write", "polish.02.test"]),
        ("read", ["read.0001", "read.0002"]),
    ]
    assert {one.part_of for event in grew for one in event.added} == {"polish", "read"}
    recorder.assert_lawful()


async def test_cancelling_a_map_or_a_loop_cancels_what_it_grew_into() -> None:
    team = kt.Team("team", [member({"split": [1, 2]})])
    for plan, name in (([SPLIT, READ], "read"), ([SPLIT, polish()], "polish")):
        async with kt.Runtime() as runtime:
            run = await runtime.start(team, "g", plan=kt.TaskGraph(plan))
            await anyio.sleep(1.5)
            run.cancel_task(name, "enough")
            result = await run.result()
        assert (result[name].status, result[name].error) == (kt.TaskStatus.CANCELLED, "enough")
        assert {status for task_id, status in statuses(result).items() if task_id.startswith(f"{name}.")} <= {
            "cancelled",
            "skipped",
            "completed",
        }


async def test_a_run_that_is_killed_while_it_grows_comes_back_with_what_there_is() -> None:
    team = kt.Team("team", [member({"split": list(range(20))})])
    async with kt.Runtime() as runtime:
        run = await runtime.start(team, "g", plan=kt.TaskGraph([SPLIT, READ, GATHER]))
        await anyio.sleep(1.5)
        run.cancel("stop")
        result = await run.result()
    assert result.status is kt.TeamStatus.CANCELLED
    assert statuses(result)["read"] == "cancelled"
    assert len(result.outcomes) == 23


async def test_a_plan_that_grew_is_not_run_again_as_it_is() -> None:
    result = await play([SPLIT, READ], {"split": [1]})
    assert result.plan is not None
    again = await kt.run(kt.Team("team", [member({})]), "g", plan=result.plan)
    assert again.refused
    assert "'read.0001' grew from 'read' in an earlier run" in (again.error or "")


class Replanning:
    """Puts one new task in the place of what has not started when the task `bad` fails."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            assert request.plan is not None
            graph = await run.plan(request.plan)
            async for task in run.ready(graph):
                run.go(self.body, run, task)
        return run.result

    async def body(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is None:
            run.accept(task, attempt)
            return
        await run.replan(task, lambda kept: kt.TaskGraph([*kept.tasks, kt.Task("instead", "do")]))
        run.fail(task, attempt.error)


async def test_a_new_plan_in_the_place_of_what_a_map_and_a_loop_have_not_begun_does_without_these() -> None:
    bad = kt.Task("bad", "do", depends_on=["split"], inputs={"seconds": 0.5})
    late = kt.Task("late", "do", depends_on=["polish", "read"])
    plan = kt.TaskGraph([SPLIT, READ, polish(depends_on=["split"]), bad, late])
    members = [member({"split": [1, 2, 3], "bad": ValueError("no")} | passes_in(9))]
    recorder = EventRecorder()
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder]))
    request = kt.TeamExecutionRequest("g", plan=plan, config=kt.TeamConfig(max_parallel_tasks=3))
    result = await Replanning().execute(request, team)
    recorder.assert_lawful()
    assert result.status is DEGRADED, result.error
    assert (statuses(result)["instead"], statuses(result)["late"]) == ("completed", "skipped")
    assert statuses(result)["polish.01.test"] == "skipped"


# ---------------------------------------------------------------- before a run


def check(plan: Sequence[kt.Task], budget: kt.Budget, **team: Any) -> PlanCheck:
    members = [kt.Member("a", member({}).agent, name="a"), kt.Member("b", member({}).agent, name="b")]
    return kt.check(kt.Team("team", members, **team), "g", plan=kt.TaskGraph(plan), budget=budget)


def test_check_counts_the_worst_case_of_a_plan_that_grows() -> None:
    body = [kt.Task("write", "w", member="a"), kt.Task("test", "t", member="b", depends_on=["write"])]
    loop = kt.Task("polish", "p", loop=kt.Loop(body, max_rounds=5), weight=2)
    each = kt.Task.map("each", "e", over="split", max_items=4, loop=kt.Loop(body, max_rounds=3))
    plan = [SPLIT, READ, loop, each]
    found = check(plan, kt.Budget(tokens=60_000))
    assert (found.ok, found.most_tasks) == (True, 1 + 20 + 2 * 5 + 4 * 2 * 3)
    assert found.carries is not None
    assert 0 < found.carries < 55
    assert "of 55 tasks that the plan can grow to, if each takes" in found.notes[0]
    assert found.split is not None
    names = {node.name for one in found.split.children for node in one.children}
    assert names == {"split", "read", "polish.write", "polish.test", "each.write", "each.test"}
    free = check(plan, kt.Budget())
    assert (free.carries, free.notes) == (55, ("the plan can grow to 55 tasks",))


def test_check_is_quick_for_a_plan_that_can_grow_without_end() -> None:
    inner = kt.Task("inner", "i", loop=kt.Loop([kt.Task("x", "y", member="a")], max_rounds=10_000))
    each = kt.Task.map("each", "e", over="split", max_items=1_000_000, loop=kt.Loop([inner], max_rounds=10_000))
    found = check([SPLIT, each], kt.Budget())
    assert found.most_tasks == 1 + 10**14


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ([kt.Task.map("m", "d", over="split", max_items=3, role="poet")], "task 'm' needs the role 'poet'"),
        (
            [kt.Task("l", "d", loop=kt.Loop([kt.Task("x", "y", role="poet")]))],
            "in the loop 'l': task 'x' needs the role",
        ),
        (
            [kt.Task("w", "d", when={"from": "split", "holds": "urgent"})],
            "task 'w' asks the condition 'urgent'; the team",
        ),
        (
            [kt.Task("l", "d", loop=kt.Loop([kt.Task("x", "y")], until={"from": "x", "holds": "done"}))],
            "the loop 'l' asks the condition 'done'; the team has none",
        ),
    ],
)
def test_what_a_map_a_branch_or_a_loop_lacks_is_refused_before_work_starts(plan: list[kt.Task], problem: str) -> None:
    found = check([SPLIT, *plan], kt.Budget())
    assert not found.ok
    assert problem in found.problems[0]


# ---------------------------------------------------------------- the budget of a map or a loop


def spending(tokens: int, made: Answers) -> Callable[[kt.Assignment, kt.MemberContext], Any]:
    """Return a member's function that spends as many tokens on each task that grew, in two calls."""
    answer: Any = member(made).agent

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        if assignment.task.part_of is not None:
            cost: int = tokens
            for half in (cost // 2, cost - cost // 2):
                with await context.governor.hold(half, minimum=kt.Budget(tokens=half)) as hold:
                    await anyio.sleep(1)
                    hold.settle(half)
                context.keep(f"half of {assignment.task.id}")
        return await answer(assignment)

    return work


async def run_spending(
    plan: Sequence[kt.Task], tokens: Any, made: Answers, **budgets: kt.Budget | None
) -> kt.TeamResult:
    work = spending(tokens, made)
    members = [kt.Member(name, work, name=name, budget=budgets.get(name)) for name in ("a", "b")]
    recorder = EventRecorder()
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder]))
    with anyio.fail_after(100_000):
        result = await kt.run(team, "g", plan=kt.TaskGraph(plan), budget=budgets.get("team") or kt.Budget())
    recorder.assert_lawful()
    return result


def spent_on(result: kt.TeamResult, name: str) -> int:
    return sum(one.usage.tokens for one in result.outcomes if one.task_id.startswith(f"{name}."))


@pytest.mark.parametrize("limit", [1_000, 250, 99, 10])
async def test_kf_map_the_budget_of_a_map_holds_for_all_its_items_whoever_does_them(limit: int) -> None:
    read = kt.Task.map("read", "r", over="split", max_items=20, budget=kt.Budget(tokens=limit), retries=0)
    plan = [SPLIT, read, kt.Task("gather", "g", depends_on=["read"], needs=0)]
    result = await run_spending(plan, 50, {"split": list(range(20))})
    assert spent_on(result, "read") <= limit
    done = sum(status == "completed" for name, status in statuses(result).items() if name.startswith("read."))
    assert done == limit // 50
    assert {one.member for one in result.outcomes if one.task_id.startswith("read.")} <= {"a", "b", None}
    assert statuses(result)["gather"] == "completed"


async def test_kf_loop_the_budget_of_a_loop_ends_it_with_what_there_is() -> None:
    loop = polish(rounds=50, budget=kt.Budget(tokens=500))
    result = await run_spending([loop], 100, passes_in(99))
    assert spent_on(result, "polish") <= 500
    assert result["polish"].status is kt.TaskStatus.FAILED
    assert "round 3" in (result["polish"].error or "")
    assert result["polish.02.test"].status is kt.TaskStatus.COMPLETED


async def test_the_budgets_of_a_map_its_members_and_the_team_hold_together() -> None:
    read = kt.Task.map("read", "r", over="split", max_items=20, budget=kt.Budget(tokens=600), retries=0)
    other = kt.Task.map("other", "o", over="split", max_items=20, retries=0)
    result = await run_spending(
        [SPLIT, read, other],
        50,
        {"split": list(range(20))},
        team=kt.Budget(tokens=1_000),
        a=kt.Budget(tokens=300),
    )
    assert spent_on(result, "read") <= 600
    assert sum(one.usage.tokens for one in result.outcomes if one.member == "a") <= 300
    assert 900 <= result.usage.tokens <= 1_000


async def test_a_loop_in_a_map_has_a_part_of_its_budget() -> None:
    inner = kt.Task("inner", "i", loop=kt.Loop(BODY, until=None, max_rounds=2), budget=kt.Budget(tokens=150))
    each = kt.Task.map(
        "each", "e", over="split", max_items=9, loop=kt.Loop([inner], max_rounds=1), budget=kt.Budget(tokens=400)
    )
    result = await run_spending([SPLIT, each], 50, {"split": [1, 2, 3, 4]})
    for number in range(1, 5):
        assert spent_on(result, f"each.{number:04}") <= 150
    assert 300 <= spent_on(result, "each") <= 400


async def test_a_loop_that_begins_when_the_budget_of_its_map_is_used_up_fails_with_what_there_is() -> None:
    inner = kt.Task(
        "inner", "i", loop=kt.Loop(BODY, max_rounds=2), budget=kt.Budget(tokens=500), depends_on=["first"], needs=0
    )
    body = kt.Loop([kt.Task("first", "f", retries=0), inner], max_rounds=1)
    each = kt.Task.map("each", "e", over="split", max_items=9, loop=body, budget=kt.Budget(tokens=100))
    result = await run_spending([SPLIT, each], 50, {"split": [1, 2, 3]})
    assert spent_on(result, "each") <= 100
    assert result["each"].status is kt.TaskStatus.FAILED
    assert {result[f"each.{number:04}.01.inner"].status for number in (1, 2, 3)} == {kt.TaskStatus.FAILED}


def test_check_carries_no_more_of_a_map_than_its_budget() -> None:
    read = kt.Task.map("read", "r", over="split", max_items=20, budget=kt.Budget(tokens=10_000))
    policy = kt.BudgetPolicy(expect=kt.Budget(tokens=2_000))
    team = kt.Team("team", [member({})])
    request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph([SPLIT, read]), config=kt.TeamConfig(budget_policy=policy))
    found = kt.check(team, request)
    assert (found.carries, found.most_tasks) == (1 + 5, 21)
