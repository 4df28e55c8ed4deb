"""Whatever a plan grows into: order, needs and budgets hold, and the result does not depend on who works when."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends
from tests.lost_needs import any_need
from tests.test_recorded_steps import Broken, Replay, comparable

KINDS: Final = ("plain", "plain", "list", "map", "loop", "branch", "each")
COORDINATOR: Final = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep still: many attempts fail here, and say so."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@dataclass
class Growing:
    """A plan, and what comes of each task: by its id, so that it is the same whoever does it, and when."""

    plan: tuple[kt.Task, ...]
    seed: int
    failing: int
    """How many of a hundred attempts fail."""

    def number(self, task_id: str, most: int) -> int:
        return sum(ord(one) * (place + 7) for place, one in enumerate(f"{task_id}{self.seed}")) % most

    async def work(self, assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
        task_id = assignment.task.id
        cost = 5 + self.number(task_id, 20)
        with await context.governor.hold(cost, minimum=kt.Budget(tokens=cost)) as hold:
            await anyio.sleep(self.number(f"{task_id}!", 4))
            hold.settle(cost)
        if self.number(f"{task_id}?", 100) < self.failing:
            raise ValueError("it cannot be done")
        found = sorted(assignment.upstream)
        items = [{"n": n} for n in range(self.number(f"{task_id}*", 5))]
        facts = {"kind": self.number(task_id, 2), "done": self.number(task_id, 3) == 0}
        data: object = items if task_id.rpartition(".")[2].startswith("list") else facts
        return kt.Artifact(f"{task_id} of {json.dumps(found)} {assignment.inputs.get('item')}", data)

    async def run(self, runtime: kt.Runtime, agent: Any = None, **config: Any) -> kt.TeamResult:
        request = kt.TeamExecutionRequest("g", plan=kt.TaskGraph(self.plan), config=kt.TeamConfig(**config), run_id="r")
        members = [kt.Member("m", agent or self.work, name=name, max_concurrency=99) for name in ("a", "b")]
        team = kt.Team("team", members, runtime=runtime, conditions={"odd": lambda made: len(made.text) % 2 == 1})
        with anyio.fail_after(100_000):
            return await COORDINATOR.execute(request, team)


@st.composite
def tasks(draw: st.DrawFn, depth: int = 0) -> list[kt.Task]:
    made: list[kt.Task] = []
    for number in range(draw(st.integers(1, 5 if depth == 0 else 3))):
        kind = draw(st.sampled_from(KINDS))
        lists = [one.id for one in made if one.id.startswith("list")]
        plain = [one.id for one in made if not one.grows and not one.id.startswith("list")]
        before = draw(st.lists(st.sampled_from([one.id for one in made]), unique=True, max_size=2)) if made else []
        fields: dict[str, Any] = {"depends_on": before, "weight": draw(st.sampled_from([0.5, 1.0, 3.0]))}
        if before:
            fields["needs"] = draw(st.sampled_from(["all", 0.5, 0, 1]))
        if kind == "list":
            made.append(kt.Task(f"list{number}", "do", **fields))
            continue
        if kind in {"map", "each"} and lists:
            fields |= {"over": draw(st.sampled_from(lists)), "max_items": draw(st.sampled_from([3, 9]))}
        if kind == "branch" and plain:
            source, way = draw(st.sampled_from(plain)), draw(st.sampled_from(["equals", "holds"]))
            test = {"field": "kind", "equals": 1} if way == "equals" else {"holds": "odd"}
            fields["when"] = {"from": source, **test}
        if kind in {"loop", "each"} and depth < 2:
            body = draw(tasks(depth + 1))
            ends = [one.id for one in body if not one.grows and not one.id.startswith("list")]
            until = draw(st.sampled_from([None, *({"from": one, "field": "done", "equals": True} for one in ends)]))
            fields["loop"] = kt.Loop(body, until=until, max_rounds=draw(st.integers(1, 3)))
        if "loop" in fields or "over" in fields:
            fields["budget"] = draw(st.sampled_from([None, None, kt.Budget(tokens=60)]))
        made.append(kt.Task(f"t{number}", "do", **fields))
    return made


def growing(failing: int = 15) -> st.SearchStrategy[Growing]:
    return st.builds(Growing, tasks().map(tuple), st.integers(0, 99), st.sampled_from([0, failing]))


def without_budgets(task: kt.Task) -> kt.Task:
    """Return a task without budgets: which task is the one that has none left depends on who came first."""
    loop = task.loop and replace(task.loop, body=[without_budgets(one) for one in task.loop.body])
    return replace(task, budget=None, loop=loop)


def checked(recorder: EventRecorder, result: kt.TeamResult) -> None:
    """Check order and needs by the events, and budgets of maps and loops by the outcomes."""
    recorder.assert_lawful()
    assert result.plan is not None
    plan = {task.id: task for task in result.plan.tasks}
    ended: dict[str, bool] = {}
    for event in recorder.events:
        if isinstance(event, events.TaskAssigned):
            task = plan[event.task_id or ""]
            assert not task.grows
            assert all(name in ended for name in task.depends_on)
            _check_needs(task, plan, ended)
            assert task.part_of is None or task.part_of not in ended
        elif isinstance(event, events.TaskEnded):
            assert event.task_id not in ended
            ended[event.task_id or ""] = isinstance(event, events.TaskCompleted)
            if plan[event.task_id or ""].grows:
                assert all(one.id in ended for one in plan.values() if one.part_of == event.task_id)
    for task in plan.values():
        if task.budget is not None and task.budget.tokens is not None:
            assert _spent(task.id, plan, result) <= task.budget.tokens


def _check_needs(task: kt.Task, plan: Mapping[str, kt.Task], ended: Mapping[str, bool]) -> None:
    """Check that enough was accepted, counting each item of a map."""
    counted: list[bool] = []
    for name in task.depends_on:
        items = [ended[one.id] for one in plan.values() if one.part_of == name]
        counted += items if plan[name].over is not None and (items or ended[name]) else [ended[name]]
    assert sum(counted) >= task.needed_of(len(counted))


def _spent(task_id: str, plan: Mapping[str, kt.Task], result: kt.TeamResult) -> int:
    parts = [one.id for one in plan.values() if one.part_of == task_id]
    return sum(result[name].usage.tokens + _spent(name, plan, result) for name in parts)


def told(result: kt.TeamResult) -> list[Any]:
    return [
        (one.task_id, one.status, any_need(one.error), None if one.artifact is None else one.artifact.text)
        for one in result.outcomes
    ]


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(case=growing(), slots=st.sampled_from([None, 1, 2]), tokens=st.sampled_from([None, 40, 200]))
def test_kf_map_growth_keeps_order_needs_and_budgets_and_a_replay_grows_the_same(
    backend: str, case: Growing, slots: int | None, tokens: int | None
) -> None:
    async def main() -> None:
        journal, recorder = MemoryRecords(), EventRecorder()
        config: dict[str, Any] = {"max_parallel_tasks": slots, "budget": kt.Budget(tokens=tokens)}
        first = await case.run(Replay(journal, subscribers=[recorder]), **config)
        checked(recorder, first)
        assert tokens is None or first.usage.tokens <= tokens
        broken: Any = Broken()
        replayed, again = EventRecorder(), MemoryRecords(dict(journal.records))
        second = await case.run(Replay(again, subscribers=[replayed]), broken, **config)
        checked(replayed, second)
        assert comparable(second) == comparable(first)

    run_in_virtual_time(main, backend=backend)


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(case=growing())
def test_kf_map_the_result_is_the_same_whatever_the_parallelism(backend: str, case: Growing) -> None:
    case = replace(case, plan=tuple(map(without_budgets, case.plan)))

    async def main() -> None:
        results = [await case.run(kt.Runtime(), max_parallel_tasks=slots) for slots in (None, 1, 3)]
        assert told(results[0]) == told(results[1]) == told(results[2])
        assert len({result.status for result in results}) == 1

    run_in_virtual_time(main, backend=backend)


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(case=growing(), kill=st.floats(0.5, 12))
def test_a_run_that_is_killed_while_it_grows_ends_every_task(backend: str, case: Growing, kill: float) -> None:
    async def main() -> None:
        recorder = EventRecorder()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await anyio.sleep(kill)
                    scope.cancel()

                group.start_soon(stop)
                await case.run(kt.Runtime(subscribers=[recorder]))
                group.cancel_scope.cancel()
        recorder.assert_lawful()

    run_in_virtual_time(main, backend=backend)
