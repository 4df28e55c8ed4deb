"""The board: needs, leases, order and skips, whatever the plan and whatever the order of ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.engine.tasks import ready_tasks as board_module
from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks

MEMBERS = ("x", "y", "z")
Candidates = Mapping[str, tuple[str, ...]]


@st.composite
def plans(draw: st.DrawFn) -> tuple[kt.TaskGraph, Candidates]:
    tasks: list[kt.Task] = []
    candidates: dict[str, tuple[str, ...]] = {}
    for number in range(draw(st.integers(1, 9))):
        before = draw(st.lists(st.sampled_from([t.id for t in tasks]), unique=True, max_size=4)) if tasks else []
        needs: Any = draw(st.just("all") | st.integers(0, len(before)))
        weight = draw(st.sampled_from([1.0, 2.0, 5.5]))
        tasks.append(kt.Task(f"t{number}", "do", depends_on=before, needs=needs, weight=weight))
        candidates[f"t{number}"] = tuple(sorted(draw(st.sets(st.sampled_from(MEMBERS), min_size=1))))
    return kt.TaskGraph(tasks), candidates


class Oracle:
    """What must hold, worked out anew from the plan at every step."""

    def __init__(self, graph: kt.TaskGraph, candidates: Candidates, limits: Mapping[str, int | None]) -> None:
        self.graph = graph
        self.candidates = candidates
        self.limits = limits
        self.ended: dict[str, bool] = {}
        self.flying: dict[str, str] = {}

    def free(self, member: str) -> bool:
        limit = self.limits[member]
        return limit is None or list(self.flying.values()).count(member) < limit

    def priority(self, task_id: str) -> float:
        after = [self.priority(task.id) for task in self.graph.tasks if task_id in task.depends_on]
        return self.graph[task_id].weight + max(after, default=0.0)

    def startable(self) -> list[str]:
        """Tasks that may start now, best first."""
        order = {task.id: index for index, task in enumerate(self.graph.tasks)}
        found = [
            task.id
            for task in self.graph.tasks
            if task.id not in self.ended
            and task.id not in self.flying
            and all(need in self.ended for need in task.depends_on)
            and sum(self.ended[need] for need in task.depends_on) >= task.needed
            and any(self.free(member) for member in self.candidates[task.id])
        ]
        return sorted(found, key=lambda task_id: (-self.priority(task_id), order[task_id]))

    def hopeless(self) -> set[str]:
        """Tasks that have not started and whose needs can no longer be met, whatever happens."""
        lost = {task_id for task_id, accepted in self.ended.items() if not accepted}
        while True:
            more = {
                task.id
                for task in self.graph.tasks
                if task.id not in self.ended and len(set(task.depends_on) - lost) < task.needed
            }
            if more <= lost:
                return lost - self.ended.keys()
            lost |= more


@given(plan=plans(), data=st.data())
def test_any_order_of_ends_keeps_needs_leases_and_priority(plan: tuple[kt.TaskGraph, Candidates], data: Any) -> None:
    graph, candidates = plan
    limits = {member: data.draw(st.sampled_from([None, 1, 2]), label=member) for member in MEMBERS}
    board, oracle = ReadyTasks(graph, candidates, limits), Oracle(graph, candidates, limits)
    taken: dict[str, Entry] = {}
    while board.unended:
        take_all(board, oracle, taken)
        assert taken, "nothing in flight and nothing to start"
        task_id = data.draw(st.sampled_from(sorted(taken)))
        accepted = data.draw(st.booleans())
        entry = taken.pop(task_id)
        board.release(oracle.flying.pop(task_id))
        oracle.ended[task_id] = accepted
        hopeless = oracle.hopeless()
        skipped = {skipped.task.id: cause.task.id for skipped, cause in board.end(entry, accepted=accepted)}
        assert set(skipped) == hopeless
        for lost, cause in skipped.items():
            assert cause in graph[lost].depends_on
            assert cause in skipped or cause == task_id
        oracle.ended.update(dict.fromkeys(skipped, False))
    assert set(oracle.ended) == {task.id for task in graph.tasks}
    assert board.take() is None


def take_all(board: ReadyTasks, oracle: Oracle, taken: dict[str, Entry]) -> None:
    """Take until nothing can start: always the best, and nothing that could start is left."""
    while True:
        startable = oracle.startable()
        found = board.take()
        if found is None:
            assert startable == []
            return
        entry, member = found
        assert entry.task.id == startable[0]
        assert entry.priority == oracle.priority(entry.task.id)
        assert member in oracle.candidates[entry.task.id]
        assert oracle.free(member)
        oracle.flying[entry.task.id] = member
        taken[entry.task.id] = entry


def board_of(*tasks: kt.Task, **limits: int | None) -> ReadyTasks:
    return ReadyTasks(kt.TaskGraph(tasks), {task.id: tuple(limits) for task in tasks}, limits)


def take(board: ReadyTasks) -> str | None:
    found = board.take()
    return None if found is None else found[0].task.id


def test_the_longest_path_goes_first_then_plan_order() -> None:
    board = board_of(
        kt.Task("short", "do"), kt.Task("long", "do"), kt.Task("next", "do", depends_on=["long"]),
        kt.Task("heavy", "do", weight=2.0), kt.Task("light", "do"), m=None,
    )  # fmt: skip
    assert [take(board) for _ in range(5)] == ["long", "heavy", "short", "light", None]


def test_the_least_busy_of_several_members_is_taken() -> None:
    board = board_of(*(kt.Task(f"t{n}", "do") for n in range(4)), x=None, y=None)
    members = Counter(found[1] for _ in range(4) if (found := board.take()) is not None)
    assert members == {"x": 2, "y": 2}


def test_an_attempt_in_flight_gets_a_lease_before_a_task_that_has_not_started() -> None:
    board = board_of(kt.Task("a", "do"), kt.Task("b", "do"), m=1)
    granted: list[str] = []
    assert take(board) == "a"
    board.wait_for_lease("m", lambda: granted.append("first"))
    give_up = board.wait_for_lease("m", lambda: granted.append("second"))
    assert take(board) is None
    board.release("m")
    assert granted == ["first"]
    assert take(board) is None
    give_up()
    board.release("m")
    assert granted == ["first"]
    assert take(board) == "b"


def test_giving_up_a_lease_that_was_granted_already_passes_it_on() -> None:
    board = board_of(kt.Task("a", "do"), kt.Task("b", "do"), m=1)
    assert take(board) == "a"
    give_up = board.wait_for_lease("m", lambda: None)
    board.release("m")
    give_up()
    assert take(board) == "b"


def test_a_parked_task_that_ended_otherwise_does_not_block_the_one_behind_it() -> None:
    """A coordinator may skip a task that waits for its member."""
    board = board_of(kt.Task("a", "do"), kt.Task("b", "do"), kt.Task("c", "do"), m=1)
    assert take(board) == "a"
    assert take(board) is None
    assert list(board.end(board.entries["b"], accepted=False)) == []
    board.release("m")
    assert take(board) == "c"


def test_what_was_put_back_can_be_taken_again() -> None:
    board = board_of(kt.Task("a", "do"), m=1)
    found = board.take()
    assert found is not None
    entry, member = found
    board.release(member)
    board.make_ready(entry)
    assert take(board) == "a"


@pytest.mark.parametrize("limit", [None, 1, 50])
def test_the_work_per_task_does_not_grow_with_the_plan(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in queue operations, not in seconds: as many per task for 200 tasks as for 2,000."""
    counts: Counter[str] = Counter()
    for name in ("heappush", "heappop"):
        real = getattr(board_module, name)

        def counted(*args: Any, real: Any = real) -> Any:
            counts["operations"] += 1
            return real(*args)

        monkeypatch.setattr(board_module, name, counted)
    per_task: list[float] = []
    for layers in (20, 200):
        counts.clear()
        run_through(layers, limit)
        per_task.append(counts["operations"] / (layers * 10))
    assert per_task[1] <= per_task[0] * 1.1 <= 10


def run_through(layers: int, limit: int | None) -> None:
    tasks = [
        kt.Task(f"t{layer}-{n}", "do", depends_on=[f"t{layer - 1}-{(n + k) % 10}" for k in range(3)] if layer else [])
        for layer in range(layers)
        for n in range(10)
    ]
    board = board_of(*tasks, m=limit)
    while board.unended:
        flying: list[Entry] = []
        while (found := board.take()) is not None:
            flying.append(found[0])
        for entry in flying:
            board.release("m")
            assert list(board.end(entry, accepted=True)) == []
