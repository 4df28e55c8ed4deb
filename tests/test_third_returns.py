"""What comes back is seen by whoever can use it: of a hand-over, of another account, during an attempt's last words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import InsufficientBudget
from kairo_team.events import BudgetToppedUp
from kairo_team.testing import EventRecorder
from kairo_team.verdicts import Cause

pytestmark = pytest.mark.anyio

BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0, try_others=False))
POLICY = kt.BudgetPolicy(reserve=0.0)


class Work:
    """An agent whose tasks take the seconds that are given; it notes when they begin."""

    reentrant = True

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds
        self.began = anyio.current_time()
        self.begun: dict[str, float] = {}

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        task_id = assignment.task.id
        self.begun.setdefault(task_id, anyio.current_time() - self.began)
        await anyio.sleep(self.seconds.get(task_id, 1_000.0))
        return f"{task_id} is done, by who takes {self.seconds}"


class Spending(Work):
    """Spends the tokens that are given, and then works."""

    def __init__(self, seconds: Mapping[str, float], tokens: Mapping[str, int]) -> None:
        super().__init__(seconds)
        self.tokens = tokens

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=self.tokens.get(assignment.task.id, 0))
        return await super().run(assignment, context)


class Slow:
    """An evaluator that takes its time, and passes what it does not leave open."""

    def __init__(self, seconds: float, cause: Cause | None = None) -> None:
        self.seconds = seconds
        self.cause = cause

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        await anyio.sleep(self.seconds)
        if self.cause is None or context.prior_verdicts:
            return kt.EvaluationVerdict.passed(1.0)
        return kt.EvaluationVerdict.escalate(self.cause, "somebody else must look")


async def run(team: kt.Team, tasks: list[kt.Task], **config: Any) -> kt.TeamResult:
    made = kt.TeamConfig(budget_policy=POLICY, **config)
    return await kt.run(team, kt.TeamExecutionRequest("go", plan=kt.TaskGraph(tasks), config=made), coordinator=BOARD)


async def test_third_o51_what_a_hand_over_gives_back_starts_who_waited_for_it() -> None:
    """The first task's review ends at 11 seconds and gives it to the senior; its member's budget is free then."""
    work = Work({"first": 10.0, "second": 200.0, "third": 200.0})
    member = kt.Member("m", work, budget=kt.Budget(tokens=100), senior=kt.Member("chief", Work({"first": 200.0})))
    team = kt.Team("team", [member], evaluators={"ed": Slow(1.0, Cause.UNDECIDED)})
    tasks = [kt.Task("first", "do", weight=98, evaluator="ed"), kt.Task("second", "do"), kt.Task("third", "do")]
    result = await run(team, tasks)
    assert result.status is kt.TeamStatus.COMPLETED
    assert work.begun == {"first": 0, "second": 0, "third": 11}


@pytest.mark.parametrize("others", [1, 20, 200])
async def test_third_o52_who_waits_for_one_account_does_not_hold_those_of_another(others: int) -> None:
    work = Work({"y0": 1.0})
    members = [kt.Member(name, work, name, budget=kt.Budget(tokens=100)) for name in ("x", "y")]
    tasks = [kt.Task(f"x{number}", "do", member="x") for number in range(others + 2)]
    tasks += [kt.Task(f"y{number}", "do", member="y") for number in range(3)]
    with anyio.move_on_after(5):
        await run(kt.Team("team", members), tasks)
    assert {name: at for name, at in work.begun.items() if name in {"x2", "y0", "y1", "y2"}} == {
        "y0": 0,
        "y1": 0,
        "y2": 1,
    }


async def test_third_o52_who_waits_for_much_of_one_account_does_not_hold_who_needs_little_of_it() -> None:
    """All draw on the run's budget, and what a task of the second member needs is known after one second."""
    work = Spending({"first": 1.0}, {"first": 10})
    tasks = [kt.Task("long", "do", member="m", weight=60), kt.Task("first", "do", member="n")]
    tasks += [kt.Task(f"much{number}", "do", member="m") for number in range(20)]
    tasks += [kt.Task("little", "do", member="n")]
    with anyio.move_on_after(5):
        await run(
            kt.Team("team", [kt.Member(name, work, name) for name in "mn"]), tasks, budget=kt.Budget(tokens=1_000)
        )
    assert work.begun["little"] == 1
    assert len(work.begun) < 8, "most of the others wait"


async def test_third_o52_a_task_that_one_member_cannot_pay_for_starts_with_another_who_is_free_again() -> None:
    """The second member's lease comes back at 5 seconds, when its task is reviewed; no budget comes back with it."""
    work = Work({"busy": 5.0})
    members = [
        kt.Member("r", work, "poor", budget=kt.Budget(tokens=100)),
        kt.Member("r", work, "rich", max_concurrency=1),
    ]
    tasks = [kt.Task("one", "do", member="poor"), kt.Task("two", "do", member="poor")]
    tasks += [kt.Task("busy", "do", member="rich", evaluator="ed"), kt.Task("either", "do", role="r")]
    with anyio.move_on_after(50):
        await run(kt.Team("team", members, evaluators={"ed": Slow(200.0)}), tasks)
    assert work.begun == {"one": 0, "two": 0, "busy": 0, "either": 5}


@pytest.mark.parametrize("returns", [5.0, 30.0])
async def test_third_o50_what_came_back_while_a_refused_attempt_cleaned_up_is_seen(returns: float) -> None:
    """Refused at once, it cleans up for 20 seconds; the other task ends before that, or after it."""
    recorder = EventRecorder()
    tries: list[float] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "other":
            await anyio.sleep(returns)
            return "done"
        tries.append(anyio.current_time() - began)
        try:
            with context.governor.reserve(tokens=80) as hold:
                hold.settle(prompt_tokens=80)
        except InsufficientBudget:
            await anyio.sleep(20)
            raise
        return "done"

    began = anyio.current_time()
    team = kt.Team("team", [kt.Member("m", work)], runtime=kt.Runtime(subscribers=[recorder]))
    result = await run(team, [kt.Task("one", "do"), kt.Task("other", "do")], budget=kt.Budget(tokens=100))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert tries == [0.0, max(20.0, returns)]
    assert [one.task_id for one in recorder.of(BudgetToppedUp)] == ["one"]


async def test_third_o50_a_limit_of_the_agents_own_is_not_a_reason_to_try_again() -> None:
    """What the agent carved for itself was short, not its task's budget: nothing that comes back changes that."""
    tries: list[str] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        tries.append(assignment.task.id)
        own = context.governor.carve("own", kt.Budget(tokens=5))
        with own.reserve(tokens=50) as hold:
            hold.settle(prompt_tokens=50)
        return "done"

    result = await run(kt.Team("team", [kt.Member("m", work)]), [kt.Task("one", "do")], budget=kt.Budget(tokens=1_000))
    assert result.status is not kt.TeamStatus.COMPLETED
    assert tries == ["one"]


async def test_third_o51_two_that_wait_for_budget_do_not_wake_each_other_for_ever() -> None:
    """Each gives its slot back while it waits. Once nobody else works one of them gives up, and the other goes on."""
    tries: list[float] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "other":
            await anyio.sleep(50)
            return "done"
        await anyio.sleep(1)
        tries.append(anyio.current_time() - began)
        with context.governor.reserve(tokens=60) as hold:
            hold.settle(prompt_tokens=60)
        return "done"

    began = anyio.current_time()
    members = [kt.Member("m", work, budget=kt.Budget(tokens=100)), kt.Member("n", work)]
    tasks = [kt.Task("one", "do", member="m"), kt.Task("two", "do", member="m"), kt.Task("other", "do", member="n")]
    with anyio.fail_after(1_000):
        result = await run(kt.Team("team", members), tasks, max_parallel_tasks=3)
    assert sorted(one.status.value for one in result.outcomes) == ["completed", "completed", "failed"]
    assert tries == [1, 1, 51]
