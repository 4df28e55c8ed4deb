"""A plan that grows in pieces is the plan at once: as a value, on the board, in a run and in its records."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.durable.codec import decode, encode
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.records.plan_records import recorded_plan
from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends
from kairo_team.views.run_record import read_record
from tests.test_ready_tasks import MEMBERS, Candidates, Oracle, plans
from tests.test_recorded_steps import Replay

Pieces = list[list[kt.Task]]


def cut(data: Any, tasks: Sequence[kt.Task]) -> Pieces:
    """Cut tasks into pieces, none of them empty."""
    marks = sorted(data.draw(st.sets(st.integers(1, max(1, len(tasks) - 1))), label="cuts"))
    places = [0, *(mark for mark in marks if mark < len(tasks)), len(tasks)]
    return [list(tasks[begin:end]) for begin, end in pairwise(places)]


def grown(pieces: Pieces) -> kt.TaskGraph:
    graph = kt.TaskGraph(pieces[0])
    for piece in pieces[1:]:
        graph = graph.grown(piece)
    return graph


# ---------------------------------------------------------------- the value


@given(plan=plans(), data=st.data())
def test_a_graph_that_grew_is_the_value_that_was_made_at_once(plan: tuple[kt.TaskGraph, Candidates], data: Any) -> None:
    whole, pieces = plan[0], cut(data, plan[0].tasks)
    as_values: list[Callable[[kt.TaskGraph], Any]] = [
        lambda one: one,
        encode,
        repr,
        hash,
        len,
        lambda one: list(one.dag.edges),
        lambda one: one.tasks[-1],
    ]
    for look in as_values:
        assert look(grown(pieces)) == look(whole)
    ways: list[Callable[[kt.TaskGraph], Any]] = [
        lambda one: pickle.loads(pickle.dumps(one)),  # noqa: S301 - our own
        copy.copy,
        copy.deepcopy,
        lambda one: decode(encode(one)),
    ]
    for back in ways:
        assert back(grown(pieces)) == whole
    assert all(grown(pieces)[task.id] is task for task in whole.tasks)


@given(plan=plans(), data=st.data())
def test_a_graph_stays_as_it_is_whatever_grows_from_it(plan: tuple[kt.TaskGraph, Candidates], data: Any) -> None:
    pieces = cut(data, plan[0].tasks)
    steps = [kt.TaskGraph(pieces[0])]
    for piece in pieces[1:]:
        steps.append(steps[-1].grown(piece))
    first = steps[0].grown([kt.Task("another", "do")])
    for number, step in enumerate(steps):
        expected = tuple(task for piece in pieces[: number + 1] for task in piece)
        assert (len(step), step.tasks) == (len(expected), expected)
        with pytest.raises(KeyError, match="another"):
            step["another"]
    assert [task.id for task in first.tasks] == [*(task.id for task in pieces[0]), "another"]


@pytest.mark.parametrize(
    "more",
    [
        [kt.Task("a", "do")],
        [kt.Task("b", "do"), kt.Task("b", "do")],
        [kt.Task("b", "do", depends_on=["b"])],
        [kt.Task("b", "do", depends_on=["ghost"])],
        [kt.Task("b", "do", depends_on=["c", "a"]), kt.Task("c", "do", depends_on=["b"])],
        [kt.Task("m.1", "do")],
        [kt.Task("b", "do", when={"from": "m", "equals": 1})],
        [kt.Task("b", "do", part_of="a")],
        [kt.Task("x", "do", loop=kt.Loop([kt.Task("y", "do")], max_rounds=2))],
    ],
)
def test_what_cannot_be_planned_at_once_cannot_be_added_and_for_the_same_reason(more: list[kt.Task]) -> None:
    there = [kt.Task("a", "do"), kt.Task("x.y", "do"), kt.Task.map("m", "do", over="a", max_items=3)]
    with pytest.raises(ValueError, match=r"\w") as at_once:
        kt.TaskGraph([*there, *more])
    with pytest.raises(ValueError, match=r"\w") as later:
        kt.TaskGraph(there).grown(more)
    assert str(later.value) == str(at_once.value)


# ---------------------------------------------------------------- the board


@given(plan=plans(), data=st.data())
def test_a_board_that_grows_has_the_order_of_the_whole_plan(plan: tuple[kt.TaskGraph, Candidates], data: Any) -> None:
    candidates = plan[1]
    pieces = cut(data, plan[0].tasks)
    graph = kt.TaskGraph(pieces.pop(0))
    board = ReadyTasks(graph, candidates, dict.fromkeys(MEMBERS))
    flying: list[tuple[Entry, str]] = []
    while True:
        waiting = [one for one in board.entries.values() if one.ready and not one.started and not one.ended]
        steps = ["grow"] * bool(pieces) + ["end"] * bool(flying) + ["take"] * bool(waiting)
        if not steps:
            assert not board.unended
            return
        step = data.draw(st.sampled_from(steps), label="step")
        if step == "grow":
            graph = grow(board, graph, pieces.pop(0), candidates)
        elif step == "take":
            taken = board.take()
            assert taken is not None
            taken[0].started = True
            flying.append(taken)
            assert taken[0] is min(waiting, key=lambda one: (-one.priority, one.index))
        else:
            entry, member = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            list(board.end(entry, accepted=data.draw(st.booleans(), label="accepted")))
            board.release(member)
        oracle = Oracle(graph, candidates, {})
        for one in board.entries.values():
            if not one.started and not one.ended:  # what ended early keeps nobody waiting that came after it
                assert open_path(one) <= one.priority <= oracle.priority(one.task.id)


def open_path(entry: Entry) -> float:
    """Return the heaviest path from a task to the end through tasks that have not ended."""
    after = (open_path(one) for one in entry.dependents if not one.ended)
    return entry.task.weight + max(after, default=0.0)


def grow(board: ReadyTasks, graph: kt.TaskGraph, piece: Sequence[kt.Task], candidates: Candidates) -> kt.TaskGraph:
    """Add those of some tasks that can start one day, as `TeamRun.add` does; return the plan with them."""
    new: dict[str, kt.Task] = {}
    for task in piece:
        if all(name in board.entries or name in new for name in task.depends_on) and not lost(task, board):
            new[task.id] = task
    board.extend(list(new.values()), candidates)
    return graph.grown(new.values())


def lost(task: kt.Task, board: ReadyTasks) -> bool:
    """Say whether a task could never start: `TeamRun.add` refuses it."""
    there = [board.entries.get(name) for name in task.depends_on]
    return sum(one is None or one.accepted or not one.ended for one in there) < task.needed


# ---------------------------------------------------------------- the run


class InPieces:
    """Plans the first piece and adds the others, before any task is taken."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(lambda: kt.TaskGraph(self.pieces[0]))
            for piece in self.pieces[1:]:
                graph = await run.add(partial(list, piece))
            async for task in run.ready(graph):
                run.go(self.body, run, task)
        return run.result

    async def body(self, run: kt.TeamRun, task: kt.Task) -> None:
        run.accept(task, await run.attempt(task, 1))


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await anyio.sleep(1 + math.sqrt(int(assignment.task.id[1:]) + 2))  # no two tasks end at the same time
    with context.governor.reserve(tokens=1) as hold:
        hold.settle(prompt_tokens=1)
    return f"made {assignment.task.id} of {sorted(assignment.upstream)}"


async def play(pieces: Pieces, parallel: int | None) -> tuple[kt.TeamResult, list[events.Event], MemoryRecords]:
    recorder, journal = EventRecorder(), MemoryRecords()
    config = kt.TeamConfig(budget=kt.Budget(tokens=100_000), max_parallel_tasks=parallel)
    members = [kt.Member(name, work, max_concurrency=2) for name in ("a", "b")]
    team = kt.Team("t", members, runtime=Replay(journal, subscribers=[recorder]))
    request = kt.TeamExecutionRequest("g", config=config, run_id="r")
    result = await InPieces(pieces).execute(request, team)
    recorder.assert_lawful()
    return result, recorder.events, journal


def told(seen: Sequence[events.Event]) -> list[tuple[Any, ...]]:
    """Return how tasks were dispatched, and how they ended."""
    kinds = (events.TaskAssigned, events.BudgetCarved, events.BudgetReturned, events.TaskEnded)
    kept = [one for one in seen if isinstance(one, kinds)]
    return [(one.type, one.task_id, one.member, getattr(one, "tokens", None)) for one in kept]


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(plan=plans(), parallel=st.sampled_from([None, 1, 2]), data=st.data())
def test_a_run_that_grows_before_it_begins_is_the_run_of_the_whole_plan(
    backend: str, plan: tuple[kt.TaskGraph, Candidates], parallel: int | None, data: Any
) -> None:
    pieces = cut(data, plan[0].tasks)
    result, seen, journal = run_in_virtual_time(play, pieces, parallel, backend=backend)
    whole, at_once, _ = run_in_virtual_time(play, [list(plan[0].tasks)], parallel, backend=backend)
    assert told(seen) == told(at_once)
    assert (result.plan, result.output, result.status) == (whole.plan, whole.output, whole.status)
    planned = [one for event in seen if isinstance(event, events.PlanReady) for one in event.graph]
    added = [one for event in seen if isinstance(event, events.PlanGrew) for one in event.added]
    assert [*planned, *added] == [
        one for event in at_once if isinstance(event, events.PlanReady) for one in event.graph
    ]
    assert len([event for event in seen if isinstance(event, events.PlanGrew)]) == len(pieces) - 1
    assert recorded_plan(journal.records) == whole.plan
    assert sum(key.startswith("add:") for key in journal.records) == len(pieces) - 1


# ---------------------------------------------------------------- the records


class Following:
    """Adds a task after each, up to the fifth."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            async for task in run.ready(await run.plan(lambda: kt.TaskGraph([kt.Task("t1", "do")]))):
                run.go(self.body, run, task)
        return run.result

    async def body(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        number = int(task.id[1:])
        if number < 5:
            await run.add(lambda: [kt.Task(f"t{number + 1}", "do", depends_on=[task.id])])
        run.accept(task, attempt)


async def test_a_run_that_grew_and_was_interrupted_is_shown_and_goes_on_with_its_whole_plan(tmp_path: Path) -> None:
    done: list[str] = []
    reached = anyio.Event()

    async def stop_at_three(assignment: kt.Assignment, _context: kt.MemberContext) -> str:
        if assignment.task.id == "t3" and not reached.is_set():
            reached.set()
            await anyio.sleep_forever()
        done.append(assignment.task.id)
        return "made"

    recorder = EventRecorder()
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        async with kt.Runtime(journal=journal, subscribers=[recorder]) as runtime:
            team = kt.Team("t", [kt.Member("a", stop_at_three)], runtime=runtime)
            request = kt.TeamExecutionRequest("g", run_id="r")
            run = await runtime.start(team, request, coordinator=Following())
            await reached.wait()
            run.interrupt()
            await run.result()
            (recorded,) = journal.runs()
            assert [task.task_id for task in read_record(journal, recorded).tasks] == ["t1", "t2", "t3"]
            result = await runtime.resume("r", team, coordinator=Following())
        assert (result.status, done) == (kt.TeamStatus.COMPLETED, ["t1", "t2", "t3", "t4", "t5"])
        (recorded,) = journal.runs()
        assert [task.task_id for task in read_record(journal, recorded).tasks] == ["t1", "t2", "t3", "t4", "t5"]
    grew = [(event.by, *(task.id for task in event.added)) for event in recorder.of(events.PlanGrew)]
    first, again = grew[:2], grew[2:]
    assert first == [("t1", "t2"), ("t2", "t3")]
    assert again == [("t1", "t2"), ("t2", "t3"), ("t3", "t4"), ("t4", "t5")]
