"""No task waits for a member that is free: after every step of the board, and at every moment of whole runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.coordinators.review_rounds import ReviewRounds
from kairo_team.coordinators.reviewers import Reviewers
from kairo_team.engine.live.task_pool import background
from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks
from kairo_team.engine.tasks.task_run import PENDING
from kairo_team.errors import Misuse
from kairo_team.testing import run_in_virtual_time, virtual_time_backends
from tests.test_ready_tasks import MEMBERS, Candidates, Oracle

# pyright: reportPrivateUsage=false
# What is parked, and who has a claim, is the board's own.

SEEDS = st.integers(0, 2**32 - 1)


# ---------------------------------------------------------------- the board, step by step


def unclaimed(board: ReadyTasks) -> list[str]:
    """Return the members with more free leases than claims on these, for which tasks are parked."""
    live = [entry for entry in board.entries.values() if not entry.ended and entry.queued is not None]
    claims = Counter(entry.claim for entry in live if entry.claim is not None)
    parked = {
        name
        for queue in board._parked.values()
        for queued in queue
        if queued[2].queued is queued and not queued[2].ended
        for name in queued[2].candidates
    }
    leases = board._leases
    return [name for name in parked if claims[name] < (leases[name].limit or 0) - leases[name].taken]


def short_of_members(seed: int) -> tuple[kt.TaskGraph, Candidates]:
    """Make a plan with little order, in which some tasks are one member's and some several members'.

    By a seed: what hypothesis draws piece by piece is mostly so small that nobody waits for anybody.
    """
    chance = Random(seed)  # noqa: S311 - nothing is secret here
    tasks: list[kt.Task] = []
    candidates: dict[str, tuple[str, ...]] = {}
    for number in range(chance.randint(8, 16)):
        before = [chance.choice(tasks).id] if tasks and chance.random() < 0.2 else []
        tasks.append(kt.Task(f"t{number}", "do", depends_on=before, needs=chance.choice(["all", 0])))
        candidates[f"t{number}"] = chance.choice([("x",), ("y",), ("x", "y"), MEMBERS])
    return kt.TaskGraph(tasks), candidates


class Board(RuleBasedStateMachine):
    """Tasks start, wait, are reviewed, tried again elsewhere, put back, cancelled and ended, in any order."""

    @initialize(
        plan=st.builds(short_of_members, SEEDS), limits=st.tuples(*[st.sampled_from([1, 1, 1, 2])] * len(MEMBERS))
    )
    def begin(self, plan: tuple[kt.TaskGraph, Candidates], limits: tuple[int, ...]) -> None:
        capacity: dict[str, int | None] = dict(zip(MEMBERS, limits, strict=True))
        self.board = ReadyTasks(*plan, capacity)
        self.oracle = Oracle(*plan, capacity)
        self.taken: dict[str, Entry] = {}
        self.working: dict[str, str] = {}
        """Who has a lease for which task that was taken; the oracle's view of it."""
        self.waiting: dict[str, Callable[[], None]] = {}
        """Attempts that wait for a member's lease, with what ends that."""
        self.put_back: list[Entry] = []

    def startable(self) -> list[str]:
        self.oracle.flying = {f"{task_id}": name for task_id, name in self.working.items()}
        kept = {*self.taken, *(entry.task.id for entry in self.put_back)}
        return [task_id for task_id in self.oracle.startable() if task_id not in kept]

    def one_of(self, data: st.DataObject, names: Any) -> str:
        name: str = data.draw(st.sampled_from(sorted(names)))
        return name

    @rule()
    def take(self) -> None:
        startable, found = self.startable(), self.board.take()
        assert (found is None) == (not startable)
        if found is not None:
            entry, member = found
            assert entry.task.id == startable[0]
            assert self.oracle.free(member)
            self.taken[entry.task.id] = entry
            self.working[entry.task.id] = member

    @rule()
    def take_all(self) -> None:
        while self.startable():
            self.take()
        self.take()

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def put_back_for_lack_of_budget(self, data: st.DataObject) -> None:
        task_id = self.one_of(data, self.working)
        self.board.release(self.working.pop(task_id))
        self.put_back.append(self.taken.pop(task_id))

    @precondition(lambda self: self.put_back)
    @rule()
    def queue_again(self) -> None:
        entry = self.put_back.pop()
        if not entry.ended:
            self.board.make_ready(entry)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def review(self, data: st.DataObject) -> None:
        self.board.release(self.working.pop(self.one_of(data, self.working)))

    @precondition(lambda self: self.working)
    @rule()
    def review_all(self) -> None:
        while self.working:
            self.board.release(self.working.popitem()[1])
        self.take_all()

    @precondition(lambda self: self.taken.keys() - self.working.keys() - self.waiting.keys())
    @rule(data=st.data())
    def try_again(self, data: st.DataObject) -> None:
        task_id = self.one_of(data, self.taken.keys() - self.working.keys() - self.waiting.keys())
        member: str = data.draw(st.sampled_from(MEMBERS))
        if self.board.try_lease(member):
            self.working[task_id] = member
        else:
            self.waiting[task_id] = self.board.wait_for_lease(member, partial(self.grant, task_id, member))

    def grant(self, task_id: str, member: str) -> None:
        del self.waiting[task_id]
        self.working[task_id] = member

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.waiting.pop(self.one_of(data, self.waiting))()

    @rule()
    def tell_who_lacks_a_slot(self) -> None:
        for entry in self.board.untold():
            assert not entry.ended

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), accepted=st.booleans())
    def end(self, data: st.DataObject, accepted: bool) -> None:
        task_id = self.one_of(data, self.taken)
        if task_id in self.waiting:
            self.waiting.pop(task_id)()
        if task_id in self.working:
            self.board.release(self.working.pop(task_id))
        self.book(self.taken.pop(task_id), accepted=accepted)

    @precondition(lambda self: self.untouched())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Anything that has not started: it may be parked, queued with a claim, put back, or not ready yet."""
        self.book(self.board.entries[self.one_of(data, self.untouched())], accepted=False)

    def untouched(self) -> set[str]:
        return {name for name, entry in self.board.entries.items() if not entry.ended and name not in self.taken}

    def book(self, entry: Entry, *, accepted: bool) -> None:
        self.oracle.ended[entry.task.id] = accepted
        skipped = [lost.task.id for lost, _ in self.board.end(entry, accepted=accepted)]
        self.oracle.ended.update(dict.fromkeys(skipped, False))

    @invariant()
    def no_parked_task_has_a_free_candidate(self) -> None:
        if hasattr(self, "board"):
            assert unclaimed(self.board) == []


TestThirdO47Board = Board.TestCase
TestThirdO47Board.settings = settings(stateful_step_count=50)


def test_third_o47_a_lease_that_comes_back_is_offered_on_when_its_task_takes_another_member() -> None:
    """Both members are free again; the task of either of them takes the other one, and leaves this one free."""
    graph = kt.TaskGraph([kt.Task(name, "do") for name in ("a", "b", "either", "named")])
    board = ReadyTasks(graph, {"a": ("x",), "b": ("y",), "either": ("x", "y"), "named": ("y",)}, {"x": 1, "y": 1})
    assert [board.take() is not None for _ in range(3)] == [True, True, False]
    board.release("y")
    board.release("x")
    found = [(entry.task.id, member) for entry, member in iter(board.take, None)]
    assert found == [("either", "x"), ("named", "y")]


@pytest.mark.parametrize("ends", [True, False])
def test_third_o47_a_claim_that_ends_with_its_task_goes_to_the_next_one(ends: bool) -> None:
    graph = kt.TaskGraph([kt.Task(name, "do") for name in ("a", "b", "c")])
    board = ReadyTasks(graph, dict.fromkeys("abc", ("x",)), {"x": 1})
    assert [board.take() is not None for _ in range(2)] == [True, False]
    board.release("x")
    if ends:
        assert list(board.end(board.entries["b"], accepted=False)) == []
    else:
        board.retire(board.entries["b"])
    found = board.take()
    assert found is not None
    assert found[0].task.id == "c"


# ---------------------------------------------------------------- whole runs


@dataclass
class Crowd:
    """A run in which members are short, and what is done to it."""

    tasks: list[kt.Task]
    limits: list[int | None]
    seconds: list[float]
    fails: list[int]
    """How many tries of each task fail."""
    revisions: list[int]
    """How often each task is sent back."""
    slots: int | None
    cancels: list[tuple[float, int]]
    """When which task is cancelled."""
    waited: list[str] = field(default_factory=list[str])
    """What waited in vain."""


def crowd_of(seed: int) -> Crowd:
    """Make a run by a seed, which is large enough that members are short."""
    chance = Random(seed)  # noqa: S311 - nothing is secret here
    members, count = chance.choice([2, 2, 2, 3]), chance.randint(12, 24)

    def each(*values: Any) -> list[Any]:
        return [chance.choice(values) for _ in range(count)]

    tasks: list[kt.Task] = []
    for number in range(count):
        by_role = chance.random() < 0.4
        before = [f"t{chance.randrange(number)}"] if number and chance.random() < 0.25 else []
        tasks.append(
            kt.Task(
                f"t{number}",
                "do",
                role="r" if by_role else None,
                member=None if by_role else f"m{chance.randrange(members)}",
                depends_on=before,
                needs=chance.choice(["all", 0]) if before else "all",
                evaluator=chance.choice(["ed", "ed", None]),
                retries=chance.randint(0, 2),
            )
        )
    cancels = [
        (chance.choice([0.0, 0.75, 1.5, 2.25, 4.0]), chance.randrange(count)) for _ in range(chance.randint(0, 3))
    ]
    return Crowd(
        tasks,
        [chance.choice([1, 1, 1, 1, 1, 2]) for _ in range(members)],
        seconds=each(1.0, 1.0, 2.0, 5.0),
        fails=each(0, 0, 0, 0, 1, 4),
        revisions=each(0, 1, 1, 2),
        slots=chance.choice([None, 4, 2]),
        cancels=cancels,
    )


class Watched(TaskDispatchCoordinator):
    """The task board, and somebody who looks at it again and again."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(failure_policy=FailurePolicy(backoff=1.0))
        self.crowd = crowd

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team, tolerate_failures=True) as run:
            graph = await run.plan(self.preview(request, team))
            reviewers = Reviewers(run.team)
            async with background(partial(self.look, run), partial(self.cancel, run)):
                async for task in run.ready(graph):
                    run.go(self.work, run, task, reviewers)
        return run.result

    async def work(self, run: kt.TeamRun, task: kt.Task, reviewers: Reviewers) -> None:
        await ReviewRounds(run, task, reviewers.of(task), self.failure_policy).finish()

    async def look(self, run: kt.TeamRun) -> None:
        """Note what could go on, whenever everybody has done what there was to do."""
        await anyio.sleep(0.1307)
        while not self.crowd.waited:
            self.crowd.waited += waits_in_vain(run)
            await anyio.sleep(0.25)

    async def cancel(self, run: kt.TeamRun) -> None:
        began = anyio.current_time()
        for at, number in sorted(self.crowd.cancels):
            await anyio.sleep(max(0.0, began + at - anyio.current_time()))
            with suppress(Misuse):
                run.cancel_task(f"t{number}", "no longer wanted")


def waits_in_vain(run: kt.TeamRun) -> list[str]:
    """Return the tasks that wait for a member that is free, or for a slot, while there are slots.

    Without slots nothing can begin: who has been granted a member that came back waits for a slot.
    """
    dispatcher = run._dispatcher
    assert dispatcher is not None
    tasks = dispatcher.tasks.values()
    leased, slots = Counter(one.leased for one in tasks), sum(one.has_slot for one in tasks)
    limits = {member.id: member.concurrency for member in run.team.everyone}
    if dispatcher.active == 0 or len([one for one in tasks if one.ended]) == len(tasks):
        return []
    full = run.config.max_parallel_tasks is not None and slots >= run.config.max_parallel_tasks

    def free(name: str | None) -> bool:
        limit = None if name is None else limits[name]
        return name is not None and (limit is None or leased[name] < limit)

    return [
        f"{one.task.id} {one.state} {one.waits_for}"
        for one in tasks
        if (one.state is PENDING and one.entry.ready and any(map(free, one.entry.candidates)) and not full)
        or (one.in_flight and one.waits_for == "member" and free(one.member) and not full)
        or (one.in_flight and one.waits_for == "slot" and not full)
    ]


async def play(crowd: Crowd) -> kt.TeamResult:
    tries: Counter[str] = Counter()

    async def work(assignment: kt.Assignment) -> str:
        task_id = assignment.task.id
        number = int(task_id[1:])
        tries[task_id] += 1
        await anyio.sleep(crowd.seconds[number])
        if tries[task_id] <= crowd.fails[number]:
            raise ConnectionError("busy")
        return f"{task_id} {tries[task_id]}"

    class Editor:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            await anyio.sleep(1.0)
            if len(context.prior_verdicts) < crowd.revisions[int(context.task.id[1:])]:
                return kt.EvaluationVerdict.revise("again", findings=[kt.Finding("f", observed="wrong")])
            return kt.EvaluationVerdict.passed(1.0)

    members = [kt.Member("r", work, f"m{n}", max_concurrency=limit) for n, limit in enumerate(crowd.limits)]
    team = kt.Team("team", members, evaluators={"ed": Editor()})
    config = kt.TeamConfig(max_parallel_tasks=crowd.slots)
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(crowd.tasks), config=config)
    with anyio.fail_after(1_000):
        return await Watched(crowd).execute(request, team)


@pytest.mark.sampled("backend")
@pytest.mark.parametrize("backend", virtual_time_backends)
def test_third_o47_nothing_waits_for_a_member_that_is_free(backend: str) -> None:
    @settings(max_examples=3 * settings().max_examples)
    @given(crowd=st.builds(crowd_of, SEEDS))
    def law(crowd: Crowd) -> None:
        result = run_in_virtual_time(lambda: play(crowd), backend=backend)
        assert crowd.waited == []
        assert result.error is None or "no task is ready" not in result.error
        assert all(outcome.status is not kt.TaskStatus.PENDING for outcome in result.outcomes)

    law()
