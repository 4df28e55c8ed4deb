"""When a member's tries are used up the task goes to the others that may do it, one after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import ResourceAction, ResourceValidation
from kairo_team.testing import FunctionModel, ScriptedAgent
from tests.coordinators.bench import (
    CANCELLED,
    COMPLETED,
    FAILED,
    ONCE,
    PASS,
    REVISE,
    Bench,
    Verdicts,
    bad,
    good,
    hang,
    statuses,
    task,
)

GONE = OSError("gone")


@pytest.fixture(params=[TaskDispatchCoordinator, ExpertTeamCoordinator], ids=["board", "expert"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def named(name: str, agent: Any, role: str = "clerk", **fields: Any) -> kt.Member:
    return kt.Member(kt.Role(role, capabilities=fields.pop("capabilities", ())), agent, name=name, **fields)


def spending(tokens: int, then: Any = "done") -> Any:
    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        context.governor.record_usage(prompt_tokens=tokens)
        if isinstance(then, Exception):
            raise then
        return then

    return spend


TEAM = [
    ("ann", "clerk", {"sums"}),
    ("bea", "clerk", {"sums", "prose"}),
    ("cy", "editor", {"sums", "prose"}),
    ("di", "clerk", set[str]()),
]


@pytest.mark.parametrize(
    ("need", "tried"),
    [
        ({"member": "ann"}, ["ann"]),
        ({"role": "clerk"}, ["ann", "bea", "di"]),
        ({"requires": {"prose"}}, ["bea", "cy"]),
        ({"role": "clerk", "requires": {"sums"}}, ["ann", "bea"]),
        ({"member": "bea", "requires": {"sums"}}, ["bea"]),
        ({}, ["ann", "bea", "cy", "di"]),
    ],
    ids=str,
)
async def test_who_else_may_do_a_task_is_what_its_own_binding_says(
    kind: Any, need: dict[str, Any], tried: list[str]
) -> None:
    """`member` only that one, else `role`, else `requires`; each is retried as often as the policy says."""
    agents = {name: ScriptedAgent([GONE] * 2) for name, *_ in TEAM}
    members = [named(name, agents[name], role, capabilities=skills) for name, role, skills in TEAM]
    bench = Bench(*members)
    result = await bench.run(kind(failure_policy=FailurePolicy(retries=1, backoff=0.0)), task("t", **need))
    assert [event.member for event in bench.recorder.of(events.AttemptStarted)] == [n for n in tried for _ in "12"]
    assert (result["t"].status, result["t"].attempts, result["t"].member) == (FAILED, 2 * len(tried), tried[-1])


async def test_without_try_others_the_task_stays_with_its_member(kind: Any) -> None:
    stand_in = ScriptedAgent([])
    policy = FailurePolicy(retries=1, backoff=0.0, try_others=False)
    result = await Bench(named("a", bad), named("b", stand_in)).run(kind(failure_policy=policy), task("t"))
    assert (result["t"].member, result["t"].attempts, stand_in.calls) == ("a", 2, [])


@pytest.mark.parametrize(
    "failure",
    [GONE, None, kt.AgentOutput(kt.Artifact("half"), kt.AgentStatus.BLOCKED, error="no"), "", kt.HaltError],
    ids=["raises", "wrong type", "blocked", "empty", "halted"],
)
async def test_whatever_failed_the_first_the_second_may_do(kind: Any, failure: Any) -> None:
    """What is never retried on the same member - a block, a wrong type, a halt - is tried on another."""
    first: Any = ScriptedAgent([failure])
    if failure is kt.HaltError:
        first = spending(10)
    bench = Bench(named("a", first, budget=kt.Budget(tokens=5)), named("b", ScriptedAgent(["done"])))
    result = await bench.run(kind(failure_policy=ONCE), task("t"))
    outcome = result["t"]
    assert (result.status, result.output, outcome.member, outcome.attempts) == ("completed", "done", "b", 2)
    returned = [event.member for event in bench.recorder.of(events.BudgetReturned)]
    assert returned == ["a", "b"]


async def test_audit_g13_attempts_and_usage_add_up_over_members(kind: Any) -> None:
    bench = Bench(named("a", spending(7, GONE)), named("b", spending(5, GONE)), named("c", spending(3)))
    result = await bench.run(kind(failure_policy=FailurePolicy(retries=1, backoff=0.0)), task("t"))
    outcome = result["t"]
    assert (outcome.attempts, outcome.usage.tokens, outcome.usage.loops) == (5, 27, 5)
    assert (result.usage.tokens, result.usage.loops) == (27, 5)
    assert result.budget is not None
    assert {node.name: node.usage.tokens for node in result.budget.children} == {"a": 14, "b": 10, "c": 3}
    finished = [event.usage.tokens for event in bench.recorder.of(events.AttemptFinished)]
    assert finished == [7, 7, 5, 5, 3], "each try's own"


async def test_the_first_members_budget_comes_back_before_the_second_gets_its_own(kind: Any) -> None:
    """One task is guaranteed all there is: what the first did not use is there for the second."""
    bench = Bench(named("a", spending(10, GONE)), named("b", spending(10)))
    policy = kt.BudgetPolicy(reserve=0.0)
    limits = kt.Budget(tokens=100, loops=3)
    result = await bench.run(kind(failure_policy=ONCE), task("t"), budget=limits, budget_policy=policy)
    assert (result.status, result["t"].member, result.usage.tokens) == ("completed", "b", 20)
    of_budgets = [event for event in bench.recorder.events if event.type.startswith("budget.")]
    told = [(event.type, getattr(event, "member", None)) for event in of_budgets]
    assert told == [
        ("budget.carved", "a"), ("budget.returned", "a"), ("budget.carved", "b"), ("budget.returned", "b")
    ]  # fmt: skip


async def test_where_no_other_can_pay_the_task_stays_and_fails_with_what_the_first_said(kind: Any) -> None:
    """The only other has set all it has aside for the task it is at."""

    async def slow(assignment: kt.Assignment) -> str:
        await anyio.sleep(5)
        return "done"

    bench = Bench(named("a", spending(1, GONE)), named("b", slow, budget=kt.Budget(loops=1)))
    plan = [task("mine", member="b"), task("t", role="clerk", weight=0.5)]
    result = await bench.run(kind(failure_policy=ONCE), *plan)
    assert (statuses(result), result["t"].error) == ({"mine": COMPLETED, "t": FAILED}, "OSError: gone")
    assert (result["t"].attempts, result["t"].usage.tokens, result.usage.tokens) == (1, 1, 1)


async def test_a_task_that_comes_back_to_a_member_has_what_that_left_of_its_ceiling() -> None:
    """`Task.budget` bounds all the tries of one member, also where another tried in between."""
    left: list[int | None] = []

    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        left.append(context.remaining.tokens)
        context.governor.record_usage(prompt_tokens=6)
        if len(left) == 1:
            raise GONE
        return "by a"

    bench = Bench(named("a", spend), named("b", ScriptedAgent(["by b", GONE])))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts([REVISE, PASS]), failure_policy=ONCE)
    result = await bench.run(coordinator, task("t", budget=kt.Budget(tokens=13)))
    assert (result.output, left, result["t"].usage.tokens) == ("by a", [13, 7], 12)


async def test_each_works_under_its_own_governor(kind: Any) -> None:
    """The second is bounded by its own budget, and its calls are booked on it alone."""

    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        reply = await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("one two")]))
        return reply.text

    bench = Bench(
        named("a", spending(30, GONE)),
        named("b", ask, budget=kt.Budget(tokens=5)),
        models={"test:m": FunctionModel(lambda _: "many words more than it can pay for")},
    )
    result = await bench.run(kind(failure_policy=ONCE), task("t"))
    assert result.output == "many words more"
    assert result.usage.tokens == 35
    assert result.budget is not None
    assert {node.name: node.usage.tokens for node in result.budget.children} == {"a": 30, "b": 5}


async def test_a_halted_members_tasks_go_to_another(kind: Any) -> None:
    """A member whose own budget is used up halts alone; every task it had, and was to have, is done by the other."""
    bench = Bench(named("a", spending(30), budget=kt.Budget(tokens=50)), named("b", spending(1)))
    plan = [task(str(number), *([str(number - 1)] if number else [])) for number in range(4)]
    result = await bench.run(kind(failure_policy=FailurePolicy(retries=3)), *plan)
    assert result.status is kt.TeamStatus.COMPLETED
    assert [outcome.member for outcome in result.outcomes] == ["a", "b", "b", "b"]
    assert result.duration == pytest.approx(0.0, abs=1e-6), "a halt is not retried, so nothing waits"


async def test_max_concurrency_holds_for_tasks_that_were_handed_over(kind: Any) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def slow(name: str, *, fails: bool) -> Any:
        async def work(assignment: kt.Assignment) -> str:
            running[name] += 1
            most[name] = max(most[name], running[name])
            await anyio.sleep(1)
            running[name] -= 1
            if fails:
                raise GONE
            return "done"

        return work

    members = [
        named("a", slow("a", fails=True)), named("b", slow("b", fails=False), max_concurrency=2)
    ]  # fmt: skip
    bench = Bench(*members)
    result = await bench.run(kind(failure_policy=ONCE), *(task(str(number)) for number in range(8)))
    assert result.status is kt.TeamStatus.COMPLETED
    assert {outcome.member for outcome in result.outcomes} == {"b"}
    assert most["b"] == 2


async def test_a_revision_goes_back_to_the_member_who_made_it() -> None:
    """Also where that was the stand-in; where it fails, the others - the first one too - are tried anew."""
    a, b = ScriptedAgent([GONE, "by a again"]), ScriptedAgent(["by b", "by b again", GONE])
    bench = Bench(named("a", a), named("b", b))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts([REVISE, REVISE, PASS]), failure_policy=ONCE)
    result = await bench.run(coordinator, task("t"))
    tried = [event.member for event in bench.recorder.of(events.AttemptStarted)]
    assert tried == ["a", "b", "b", "b", "a"]
    assert (result.output, result["t"].attempts, result["t"].member) == ("by a again", 5, "a")
    assert (a.calls[1].previous, tuple(a.calls[1].findings)[:1]) == (kt.Artifact("by b again"), REVISE.findings)


# ---------------------------------------------------------------- when nobody else is asked


async def test_a_cancelled_task_goes_to_nobody_else(kind: Any) -> None:
    stand_in = ScriptedAgent([])
    bench = Bench(named("a", hang), named("b", stand_in))
    results: list[kt.TeamResult] = []

    async def run() -> None:
        results.append(await bench.run(kind(), task("t"), task("other", member="a")))

    async def cancel() -> None:
        await anyio.sleep(1)
        bench.team.runtime.runs["r"].cancel_task("t", "not needed")
        bench.team.runtime.runs["r"].cancel_task("other", "nor this")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(cancel)
    assert statuses(results[0]) == {"t": CANCELLED, "other": CANCELLED}
    assert [outcome.artifact for outcome in results[0].outcomes] == [kt.Artifact("half", partial=True)] * 2
    assert stand_in.calls == []


class Stop:
    """A constraint that stops at once."""

    async def validate(self, context: Any) -> ResourceValidation:
        return ResourceValidation(True, "smoke")

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.EMERGENCY_STOP


async def test_an_emergency_stop_goes_to_nobody_else(kind: Any) -> None:
    stand_in = ScriptedAgent([])
    bench = Bench(named("a", good, constraints=[Stop()]), named("b", stand_in, role="other"), named("c", good))
    plan = [task("t", role="clerk"), task("fine", member="c")]
    result = await bench.run(kind(), *plan)
    assert (statuses(result), result["t"].attempts) == ({"t": FAILED, "fine": COMPLETED}, 1)


@pytest.mark.parametrize("end", ["killed", "deadline", "exhausted"])
async def test_when_the_run_is_over_nobody_else_is_asked(kind: Any, end: str) -> None:
    stand_in = ScriptedAgent([])
    bench = Bench(named("a", spending(50) if end == "exhausted" else hang), named("b", stand_in))
    config: dict[str, Any] = {"budget": kt.Budget(seconds=5.0)} if end == "deadline" else {}
    if end == "exhausted":
        config = {"budget": kt.Budget(tokens=40)}
    results: list[kt.TeamResult] = []

    async def run() -> None:
        results.append(await bench.run(kind(failure_policy=ONCE), task("t"), **config))

    async def kill() -> None:
        await anyio.sleep(1)
        if end == "killed":
            bench.team.runtime.runs["r"].cancel("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(kill)
    expected = {"killed": "cancelled", "deadline": "timeout", "exhausted": "failed"}
    assert (results[0].status, stand_in.calls) == (expected[end], [])
