"""The law of budgets over workers: never overspent, usage is what calls cost, and the end is that of one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from tests.cluster.stage import new_database, working
from tests.cluster.test_law import seen
from tests.durable.desk import ask_briefly
from tests.durable.test_law import World

KINDS = ("silent", "asks", "asks twice", "fails", "keeps and fails", "uses a tool", "team")
PRICES = {"test:*": kt.Price(1, 2)}
DIMENSIONS = ("tokens", "dollars", "loops", "tool_calls")


@dataclass(frozen=True)
class Tight:
    """A run that its budgets may cut short."""

    tasks: tuple[kt.Task, ...]
    kinds: tuple[str, ...]
    members: tuple[kt.Budget | None, ...]
    team: kt.Budget
    retries: int
    expert: bool
    parallel: int | None


@st.composite
def budgets(draw: st.DrawFn, share: int = 1) -> kt.Budget:
    """Limits of some dimensions, some of which a few calls reach."""
    of: dict[str, st.SearchStrategy[Any]] = {
        "tokens": st.integers(0, 240 // share),
        "dollars": st.integers(0, 400 // share).map(lambda micros: f"{micros / 1_000_000:.6f}"),
        "loops": st.integers(0, 8 // share),
        "tool_calls": st.integers(0, 3),
    }
    limited = draw(st.sets(st.sampled_from(DIMENSIONS), max_size=2))
    drawn: dict[str, Any] = {name: draw(of[name]) for name in sorted(limited)}
    return kt.Budget(**drawn)


@st.composite
def tight_runs(draw: st.DrawFn) -> Tight:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    tasks: list[kt.Task] = []
    for number in range(len(kinds)):
        before = draw(st.lists(st.sampled_from([one.id for one in tasks]), unique=True, max_size=2)) if tasks else []
        budget = draw(st.none() | budgets(2))
        member = f"m{number}"
        tasks.append(kt.Task(f"t{number}", "do", member=member, depends_on=before, needs=0, budget=budget))
    more = draw(st.sampled_from(["", "", "map", "loop"]))
    if more == "map":
        tasks.append(kt.Task("list", "List.", member="lister"))
        tasks.append(kt.Task.map("each", "Do one.", over="list", max_items=3, member="m0", budget=draw(budgets())))
    elif more == "loop":
        body = [kt.Task("turn", "Do.", member="m0")]
        until = {"from": "turn", "field": "done", "equals": True}
        loop = kt.Loop(body, until=until, max_rounds=3)
        tasks.append(kt.Task("rounds", "Do it.", loop=loop, budget=draw(budgets())))
    members = draw(st.lists(st.none() | budgets(), min_size=len(kinds), max_size=len(kinds)))
    return Tight(
        tuple(tasks),
        tuple(kinds),
        tuple(members),
        draw(budgets()),
        draw(st.integers(0, 1)),
        draw(st.booleans()),
        draw(st.sampled_from([1, 1, 2, None])),
    )


async def make_list(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await context.model("m:x").complete(ask_briefly("list"))
    return '["a", "b", "c"]'


def team_of(run: Tight, world: World, runtime: kt.Runtime | None = None) -> kt.Team:
    members = [
        kt.Member(f"m{number}", world.agent(kind), budget=run.members[number]) for number, kind in enumerate(run.kinds)
    ]
    policy = FailurePolicy(retries=run.retries, backoff=0.001)
    coordinator = (ExpertTeamCoordinator if run.expert else TaskDispatchCoordinator)(failure_policy=policy)
    return kt.Team("team", [*members, kt.Member("lister", make_list)], coordinator=coordinator, runtime=runtime)


def request_of(run: Tight) -> kt.TeamExecutionRequest:
    config = kt.TeamConfig(max_parallel_tasks=run.parallel, risk_profile=kt.RiskProfile.LOW, budget=run.team)
    return kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(run.tasks), config=config, run_id="r")


def has_team_under_limits(run: Tight) -> bool:
    """Whether a team inside a task shares out a limit of its own, here in the nearest, there in what all leave."""
    limits = zip(run.kinds, run.members, (task.budget for task in run.tasks), strict=False)
    return any(kind == "team" and {member, task} - {None, kt.Budget()} for kind, member, task in limits)


def exceeded(usage: kt.Usage, budget: kt.Budget | None) -> list[str]:
    """Return the dimensions of which more was spent than allowed."""
    if budget is None:
        return []
    limits = {name: getattr(budget, name) for name in DIMENSIONS}
    return [name for name, most in limits.items() if most is not None and getattr(usage, name) > most]


def check_books(run: Tight, result: kt.TeamResult, calls: Any) -> None:
    """Nothing is overspent at any place, and what is reported is what the calls cost."""
    assert exceeded(result.usage, run.team) == []
    for number, budget in enumerate(run.members):
        spent = sum((one.usage for one in result.outcomes if one.member == f"m{number}"), kt.Usage())
        assert exceeded(spent, budget) == []
    for task in run.tasks:
        of_task = [one.usage for one in result.outcomes if one.task_id.partition(".")[0] == task.id]
        assert exceeded(sum(of_task, kt.Usage()), task.budget) == []
    charged = sum((call.usage for call in calls), kt.Usage())
    assert (charged.tokens, charged.dollars) == (result.usage.tokens, result.usage.dollars)
    assert charged.tool_calls == result.usage.tool_calls


@pytest.mark.real_time
@given(tight_runs())
@settings(deadline=None)
def test_no_budget_is_overspent_over_workers(run: Tight) -> None:
    anyio.run(_compare, run)


async def _compare(run: Tight) -> None:
    here = World()
    runtime = kt.Runtime(models={"m:x": here.model}, prices=PRICES)
    local = await kt.run(team_of(run, here, runtime), request_of(run))
    there = World()
    team = team_of(run, there, kt.Runtime(models={"m:x": there.model}, prices=PRICES))
    async with working(new_database("procrastinate"), team, workers=2) as cluster:
        runtime = kt.Runtime(models={"m:x": there.model}, prices=PRICES, engine=cluster)
        with anyio.fail_after(60):
            result = await kt.run(team_of(run, there), request_of(run), runtime=runtime)
        calls = cluster.journal.calls("r")
    check_books(run, result, calls)
    assert {call.state for call in calls} <= {"answered"}
    if run.parallel == 1 and not run.retries and not has_team_under_limits(run):  # others have their turn in a pause
        assert seen(result) == seen(local)
        assert sorted(there.asked) == sorted(here.asked)


def test_the_law_finds_what_is_overspent() -> None:
    spent = kt.Usage(3, 4, loops=2)
    assert exceeded(spent, kt.Budget(tokens=6, loops=2)) == ["tokens"]
    assert exceeded(replace(spent, dollars=Decimal(1)), kt.Budget(dollars="0.5")) == ["dollars"]
