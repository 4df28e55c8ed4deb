"""How a budget is shared out: among members, planning, reviews and tasks, with top-ups, and among a runtime's runs."""

from __future__ import annotations

from decimal import Decimal

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import BudgetNode
from kairo_team.testing import EventRecorder, FunctionModel

pytestmark = pytest.mark.anyio

NEVER = FailurePolicy(retries=0)


def node(result: kt.TeamResult, *path: str) -> BudgetNode:
    """Return one governor of a result's tree, by the names below the root."""
    found = result.budget
    for name in path:
        assert found is not None
        found = next(child for child in found.children if child.name == name)
    assert found is not None
    return found


# -- plan and evaluate --------------------------------------------------------------------------


class AskingPlanner:
    """Asks a model for a plan, and notes what was guaranteed to planning."""

    def __init__(self) -> None:
        self.guaranteed: list[kt.Budget] = []

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        self.guaranteed.append(context.governor.guarantee)
        reply = await context.model("test:planner").complete(kt.ModelRequest([kt.Message.user("plan")], max_tokens=8))
        return kt.TaskGraph([kt.Task("only", reply.text, member="a")])


def say(text: str) -> FunctionModel:
    return FunctionModel(lambda _: text)


async def test_planning_has_its_share_and_gives_the_rest_back() -> None:
    planner = AskingPlanner()
    events = EventRecorder()
    seen: list[kt.Budget] = []

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        seen.append(context.remaining)
        return "done"

    runtime = kt.Runtime(models={"test:*": say("write it")}, subscribers=[events])
    team = kt.Team("team", [kt.Member("a", work)], runtime=runtime)
    policy = kt.BudgetPolicy(plan=0.25, evaluate=0.0, reserve=0.0)
    config = kt.TeamConfig(budget=kt.Budget(tokens=1000, loops=10), budget_policy=policy)
    request = kt.TeamExecutionRequest("goal", config=config)
    result = await ExpertTeamCoordinator(planner=planner).execute(request, team)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert planner.guaranteed == [kt.Budget(tokens=250, loops=2)]
    spent = node(result, "plan").usage.tokens
    assert 0 < spent == result.usage.tokens
    assert seen[0].tokens == 1000 - spent, "what planning did not use is back"
    carved = [event for event in events.events if isinstance(event, kt.events.BudgetCarved)]
    assert (carved[0].task_id, carved[0].member, carved[0].tokens) == (None, None, 250)


async def test_members_budgets_are_set_aside_before_anybody_plans() -> None:
    """A planner cannot eat what a member was promised."""
    planner = AskingPlanner()
    runtime = kt.Runtime(models={"test:*": say("write it")})
    member = kt.Member("a", lambda _: "done", budget=kt.Budget(tokens=1000))
    config = kt.TeamConfig(budget=kt.Budget(tokens=1000))
    request = kt.TeamExecutionRequest("goal", config=config)
    result = await ExpertTeamCoordinator(planner=planner).execute(request, kt.Team("team", [member], runtime=runtime))
    assert planner.guaranteed == [kt.Budget()]
    assert result.status is kt.TeamStatus.FAILED
    assert result.usage.tokens == 0
    assert "0 left" in str(result.error) or "0 tokens left" in str(result.error)


class Judging:
    """A coordinator whose reviews ask a model, paid from the purpose `evaluate`."""

    def __init__(self) -> None:
        self.guaranteed = kt.Budget()

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            assert request.plan is not None
            plan = request.plan
            graph = await run.plan(lambda: plan)
            judge = run.context("evaluate")
            self.guaranteed = judge.governor.guarantee
            async for task in run.ready(graph):
                run.go(self.one, run, task, judge)
        return run.result

    async def one(self, run: kt.TeamRun, task: kt.Task, judge: kt.MemberContext) -> None:
        attempt = await run.attempt(task, 1)
        await judge.model("test:judge").complete(kt.ModelRequest([kt.Message.user("good?")], max_tokens=8))
        run.accept(task, attempt)


async def greedy(_: kt.Assignment, context: kt.MemberContext) -> str:
    """Spend whatever there is."""
    while context.remaining.tokens:
        with context.governor.reserve(tokens=context.remaining.tokens) as hold:
            hold.settle(prompt_tokens=hold.tokens)
    return "spent it all"


async def test_kf_e19_judges_are_paid_from_their_own_share() -> None:
    """E19: judge calls paid from the generator's money until it starved; nor can members take the judges' share."""
    coordinator = Judging()
    policy = kt.BudgetPolicy(evaluate=0.2, reserve=0.0)
    config = kt.TeamConfig(budget=kt.Budget(tokens=1000, dollars="0.1"), budget_policy=policy)
    plan = kt.TaskGraph([kt.Task("a", "spend")])
    runtime = kt.Runtime(models={"test:*": say("yes")}, prices={"test:*": kt.Price(0, 0)})
    team = kt.Team("team", [kt.Member("m", greedy)], runtime=runtime)
    result = await coordinator.execute(kt.TeamExecutionRequest("goal", plan=plan, config=config), team)
    assert coordinator.guaranteed == kt.Budget(tokens=200, dollars=Decimal("0.02"))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert node(result, "m", "a").usage.tokens == 800
    assert 0 < node(result, "evaluate").usage.tokens <= 200
    assert result.usage.tokens <= 1000


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"plan": 1.0}, r"BudgetPolicy\.plan must be a share from 0 up to \(not including\) 1, not 1\.0"),
        ({"evaluate": -0.1}, r"BudgetPolicy\.evaluate must be a share"),
        ({"reserve": True}, r"BudgetPolicy\.reserve must be a share"),
        ({"plan": "0.1"}, r"BudgetPolicy\.plan must be a share"),
        ({"top_ups": -1}, r"BudgetPolicy\.top_ups must be a whole number >= 0, not -1"),
        ({"plan": 0.5, "evaluate": 0.4}, r"leave nothing for the tasks; together they must be less than 1"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(fields: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kt.BudgetPolicy(**fields)  # type: ignore[arg-type]  # wrong types are the point


# -- top-ups ------------------------------------------------------------------------------------


async def needs_sixty(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Hold on to 60 tokens; `slow` does so for a while and then needs none of them."""
    if assignment.task.id == "slow":
        with context.governor.reserve(tokens=50) as hold:
            await anyio.sleep(5)
            hold.release()
        return "slept"
    with context.governor.reserve(tokens=60) as hold:
        hold.settle(prompt_tokens=60)
    return "paid"


SHORT = kt.TaskGraph([kt.Task("slow", "wait"), kt.Task("short", "pay")])


async def run_short(policy: kt.BudgetPolicy, plan: kt.TaskGraph = SHORT) -> tuple[kt.TeamResult, EventRecorder]:
    recorder = EventRecorder()
    team = kt.Team("team", [kt.Member("m", needs_sixty)], runtime=kt.Runtime(subscribers=[recorder]))
    config = kt.TeamConfig(budget=kt.Budget(tokens=100), budget_policy=policy)
    request = kt.TeamExecutionRequest("goal", plan=plan, config=config)
    return await TaskDispatchCoordinator(failure_policy=NEVER).execute(request, team), recorder


async def test_a_task_that_ran_short_is_topped_up_once_others_gave_back() -> None:
    result, recorder = await run_short(kt.BudgetPolicy(reserve=0.0))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert (result["short"].attempts, result["short"].artifact) == (2, kt.Artifact("paid"))
    assert recorder.types.count("budget.topped_up") == 1
    assert result.usage.tokens == 60


async def test_without_top_ups_it_fails_at_once() -> None:
    result, recorder = await run_short(kt.BudgetPolicy(reserve=0.0, top_ups=0))
    assert result["short"].status is kt.TaskStatus.FAILED
    assert (result["short"].attempts, recorder.types.count("budget.topped_up")) == (1, 0)


async def test_a_top_up_never_passes_the_tasks_own_budget() -> None:
    plan = kt.TaskGraph([kt.Task("slow", "wait"), kt.Task("short", "pay", budget=kt.Budget(tokens=40))])
    result, recorder = await run_short(kt.BudgetPolicy(reserve=0.0), plan)
    assert result["short"].status is kt.TaskStatus.FAILED
    assert (result["short"].attempts, result["short"].usage.tokens) == (1, 0)
    assert result["short"].error == "'short' has 40 tokens left, 60 asked"
    assert "budget.topped_up" not in recorder.types


async def test_tasks_that_all_wait_for_each_other_end() -> None:
    """Nobody is left who could give back: each fails in turn, and what that one had lets the next one go on."""

    async def need(_: kt.Assignment, context: kt.MemberContext) -> str:
        with context.governor.reserve(tokens=20) as mine:
            await anyio.sleep(0.1)
            with context.governor.reserve(tokens=70) as hold:
                hold.settle(prompt_tokens=1)
            mine.settle(prompt_tokens=1)
        return "done"

    plan = kt.TaskGraph([kt.Task(f"t{n}", "need") for n in range(3)])
    config = kt.TeamConfig(
        budget=kt.Budget(tokens=100), budget_policy=kt.BudgetPolicy(reserve=0.0), max_parallel_tasks=3
    )
    team = kt.Team("team", [kt.Member("m", need)])
    request = kt.TeamExecutionRequest("goal", plan=plan, config=config)
    with anyio.fail_after(60):
        result = await TaskDispatchCoordinator(failure_policy=NEVER).execute(request, team)
    assert result.status in (kt.TeamStatus.FAILED, kt.TeamStatus.DEGRADED)
    assert result.usage.tokens <= 100
    assert all(outcome.status is not kt.TaskStatus.IN_FLIGHT for outcome in result.outcomes)


async def test_a_waiting_task_leaves_its_slot_to_others() -> None:
    plan = kt.TaskGraph(
        [kt.Task("slow", "wait"), kt.Task("short", "pay"), kt.Task("third", "pay", depends_on=["slow"])]
    )
    recorder = EventRecorder()
    team = kt.Team("team", [kt.Member("m", needs_sixty)], runtime=kt.Runtime(subscribers=[recorder]))
    config = kt.TeamConfig(
        budget=kt.Budget(tokens=150), budget_policy=kt.BudgetPolicy(reserve=0.0), max_parallel_tasks=2
    )
    request = kt.TeamExecutionRequest("goal", plan=plan, config=config)
    with anyio.fail_after(60):
        result = await TaskDispatchCoordinator(failure_policy=NEVER).execute(request, team)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.usage.tokens == 120


# -- a runtime's budget -------------------------------------------------------------------------


async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=int(assignment.inputs["tokens"]))
    return "spent"


def spending(tokens: int, limit: int | None = None) -> kt.TeamExecutionRequest:
    plan = kt.TaskGraph([kt.Task("t", "spend", inputs={"tokens": tokens})])
    return kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=limit)))


async def test_every_run_is_carved_from_the_runtimes_budget() -> None:
    runtime = kt.Runtime(budget=kt.Budget(tokens=100))
    team = kt.Team("team", [kt.Member("m", spend)])
    first = await kt.run(team, spending(30, 60), runtime=runtime)
    assert (first.status, first.usage.tokens) == (kt.TeamStatus.COMPLETED, 30)
    assert runtime.governor is not None
    assert runtime.governor.remaining.tokens == 70, "what the run did not use is back"
    second = await kt.run(team, spending(10, 80), runtime=runtime)
    assert second.status is kt.TeamStatus.FAILED
    assert second.refused
    assert "the runtime's budget does not cover this run: 'runtime' has 70 tokens left, 80 asked" in str(second.error)
    assert [outcome.attempts for outcome in second.outcomes] == [0]
    third = await kt.run(team, spending(70), runtime=runtime)
    assert third.halt is kt.HaltReason.TOKEN_BUDGET_EXCEEDED
    last = await kt.run(team, spending(1), runtime=runtime)
    assert (last.status, last.refused) == (kt.TeamStatus.FAILED, True)
    assert "token_budget_exceeded" in str(last.error)
    assert runtime.governor.usage.tokens == 100
    assert [one.usage.tokens for one in (first, second, third, last)] == [30, 0, 70, 0]
    assert list(runtime.governor.tree().children) == [], "a finished run leaves nothing behind"


async def test_many_runs_at_once_never_spend_more_than_the_runtime_has() -> None:
    runtime = kt.Runtime(budget=kt.Budget(tokens=250, loops=1000))
    results: list[kt.TeamResult] = []

    async def call(_: kt.Assignment, context: kt.MemberContext) -> str:
        for _call in range(3):
            with await context.governor.hold(tokens=10) as hold:
                await anyio.sleep(0.01)
                hold.settle(prompt_tokens=min(8, hold.tokens))
        return "done"

    team = kt.Team("team", [kt.Member("m", call)])

    async def one() -> None:
        plan = kt.TaskGraph([kt.Task(f"t{n}", "call") for n in range(4)])
        results.append(await kt.run(team, kt.TeamExecutionRequest("goal", plan=plan), runtime=runtime))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(one)
    assert runtime.governor is not None
    assert runtime.governor.usage.tokens == sum(result.usage.tokens for result in results) <= 250
    assert runtime.governor.usage.tokens >= 200


async def test_killing_the_runtimes_governor_stops_its_runs() -> None:
    runtime = kt.Runtime(budget=kt.Budget(tokens=100))

    async def wait(_: kt.Assignment) -> str:
        assert runtime.governor is not None
        runtime.governor.cancel()
        await anyio.sleep_forever()
        return "never"

    result = await kt.run(kt.Team("team", [kt.Member("m", wait)]), spending(0), runtime=runtime)
    assert result.status is kt.TeamStatus.CANCELLED
