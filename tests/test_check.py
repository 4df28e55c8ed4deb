"""`kt.check`: what would be refused, and how the budget would be split, without asking anybody."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team.agents import FunctionAgent
from kairo_team.api import PlanCheck
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Rubric
from kairo_team.governance import BudgetNode


def never(_: kt.Assignment) -> str:
    raise AssertionError("an agent was called")


async def done(_: kt.Assignment) -> str:
    return "done"


class Unpriced:
    name = "odd:model"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        raise AssertionError("a model was called")


class NeverPlans:
    async def plan(self, request: Any, team: Any, context: Any) -> kt.TaskGraph:
        raise AssertionError("a planner was called")


TEAM = kt.Team("team", [kt.Member("a", never), kt.Member("b", never, budget=kt.Budget(tokens=300))])
PLAN = kt.TaskGraph(
    [kt.Task("one", "do", role="a"), kt.Task("two", "do", role="a", weight=3.0), kt.Task("x", "do", role="b")]
)


def request(**config: Any) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("goal", plan=PLAN, config=kt.TeamConfig(**config))


def paths(check: PlanCheck) -> dict[str, int | None]:
    """Return what is guaranteed, in tokens, by path."""
    found: dict[str, int | None] = {}

    def walk(node: BudgetNode) -> None:
        found[node.path] = node.guarantee.tokens
        for child in node.children:
            walk(child)

    assert check.split is not None
    walk(check.split)
    return found


def test_the_split_is_what_a_run_sets_aside() -> None:
    check = kt.check(TEAM, request(budget=kt.Budget(tokens=1000), budget_policy=kt.BudgetPolicy(reserve=0.1)))
    assert (check.ok, check.problems) == (True, ())
    split = paths(check)
    assert split == {
        "team": None,
        "team/a": None,
        "team/a/one": 120,  # (1000 - 300 of b - 100 in reserve) x 1 / 5
        "team/a/two": 360,
        "team/b": 300,
        "team/b/x": 270,  # 300, its own 30 in reserve
        "team/reserve": 100,
    }
    assert str(check).startswith("can start; expect 0 of 3 tasks done\nteam")
    assert "120 guaranteed" in str(check)


async def _run_first(tokens: int) -> dict[str, int | None]:
    seen: dict[str, int | None] = {}

    async def look(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        seen[assignment.task.id] = context.governor.guarantee.tokens
        return "seen"

    team = kt.Team("team", [kt.Member("a", look), kt.Member("b", look, budget=kt.Budget(tokens=300))])
    await kt.run(team, request(budget=kt.Budget(tokens=tokens), max_parallel_tasks=1))
    return seen


@pytest.mark.anyio
async def test_a_run_gives_its_first_task_what_the_check_said() -> None:
    seen = await _run_first(1000)
    assert seen["two"] == 360 or seen["x"] == 270


def test_a_plan_that_has_to_be_asked_for_shows_the_planners_share() -> None:
    check = kt.check(
        TEAM,
        "goal",
        budget=kt.Budget(tokens=1000),
        coordinator=ExpertTeamCoordinator(planner=NeverPlans()),
    )
    assert check.ok
    assert paths(check) == {"team": None, "team/a": None, "team/b": 300, "team/plan": 50, "team/reserve": 100}


def judged(**fields: Any) -> ExpertTeamCoordinator:
    rubric = Rubric([Criterion("plain", "a child understands it", by="judge")])
    return ExpertTeamCoordinator(evaluator=rubric, judge="test:judge", **fields)


@pytest.mark.parametrize(
    ("coordinator", "shares"),
    [
        (judged(planner=NeverPlans()), {"plan": 50, "evaluate": 200}),
        (judged(), {"evaluate": 200}),
        (ExpertTeamCoordinator(planner=NeverPlans()), {"plan": 50}),
        (TaskDispatchCoordinator(), {}),
    ],
    ids=["planner and judge", "judge", "planner", "neither"],
)
def test_the_shares_of_planning_and_of_reviews_are_shown_where_a_model_is_wired_for_them(
    coordinator: Any, shares: dict[str, int]
) -> None:
    runtime = kt.Runtime(models={"test:judge": Unpriced()})
    team = kt.Team("team", [kt.Member("a", never)], runtime=runtime)
    split = paths(kt.check(team, "goal", budget=kt.Budget(tokens=1000), coordinator=coordinator))
    purposes = {name: split.get(f"team/{name}") for name in ("plan", "evaluate")}
    assert {name: share for name, share in purposes.items() if share is not None} == shares
    assert split["team/reserve"] == 100
    tasks = [share for path, share in split.items() if path.startswith("team/a/")]
    assert tasks == ([] if "plan" in shares else [900 - shares.get("evaluate", 0)])


def test_a_named_evaluator_that_asks_a_model_gets_the_reviews_share_too() -> None:
    rubric = Rubric([Criterion("plain", "a child understands it", by="judge")])
    evaluators = {"strict": AgentEvaluationStrategy("test:judge", rubric)}
    runtime = kt.Runtime(models={"test:judge": Unpriced()})
    team = kt.Team("team", [kt.Member("a", never)], runtime=runtime, evaluators=evaluators)
    for evaluator, share in (("strict", 200), (None, None)):
        plan = kt.TaskGraph([kt.Task("t", "do", evaluator=evaluator)])
        asked = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=1000)))
        found = kt.check(team, asked, coordinator=TaskDispatchCoordinator())
        assert paths(found).get("team/evaluate") == share


def test_without_a_reserve_none_is_shown() -> None:
    policy = kt.BudgetPolicy(reserve=0.0)
    assert "team/reserve" not in paths(kt.check(TEAM, request(budget=kt.Budget(tokens=1000), budget_policy=policy)))


def test_the_role_planners_plan_is_known_without_asking() -> None:
    check = kt.check(TEAM, "goal", budget=kt.Budget(tokens=1000))
    assert {"team/a/a", "team/b/b"} <= set(paths(check))
    assert {"team/a/task", "team/b/task"} & set(
        paths(kt.check(TEAM, "goal", budget=kt.Budget(tokens=1000), coordinator=TaskDispatchCoordinator()))
    )


def test_without_limits_nothing_is_set_aside() -> None:
    assert set(paths(kt.check(kt.Team("team", [kt.Member("a", never)]), "goal")).values()) == {None}


def test_everything_that_would_be_refused_is_said_at_once() -> None:
    plan = kt.TaskGraph([kt.Task("x", "do", role="nobody"), kt.Task("y", "do", evaluator="none")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    found = kt.check(TEAM, kt.TeamExecutionRequest("goal", plan=plan, config=config))
    assert not found.ok
    assert found.split is None
    assert [problem.split(";")[0] for problem in found.problems] == [
        "the members' budgets add up to 300 tokens, the team has 100",
        "task 'x' needs the role 'nobody', which no member offers",
        "task 'y' names the evaluator 'none'",
    ]
    assert str(found).startswith(
        "cannot start: the members' budgets add up to 300 tokens, the team has 100\ncannot start"
    )


def test_a_plan_that_cannot_start_is_refused_with_the_numbers() -> None:
    team = kt.Team("team", [kt.Member("a", never), kt.Member("b", never, budget=kt.Budget(tokens=100))])
    plan = kt.TaskGraph([kt.Task("one", "do", role="a")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=100))
    found = kt.check(team, kt.TeamExecutionRequest("goal", plan=plan, config=config))
    assert not found.ok
    assert found.problems == ("no task can get its share of the budget; task 'one': 'team' has 0 tokens left, 1 asked",)
    assert found.split is not None, "where it all went"


def test_a_model_without_a_price_is_refused_under_a_limit_in_dollars() -> None:
    runtime = kt.Runtime(models={"odd:*": Unpriced()})
    team = kt.Team("team", [kt.Member("a", kt.MiniAgent("odd:model"))], runtime=runtime)
    assert kt.check(team, "goal", budget=kt.Budget(tokens=9000)).ok
    found = kt.check(team, "goal", budget=kt.Budget(dollars=1))
    assert not found.ok
    assert "member 'a'" in found.problems[0]
    assert "odd:model" in found.problems[0]
    free = kt.TeamConfig(budget=kt.Budget(dollars=1), budget_policy=kt.BudgetPolicy(allow_unpriced=True))
    assert kt.check(team, kt.TeamExecutionRequest("goal", config=free)).ok


def test_a_runtimes_budget_is_looked_at_and_left_alone() -> None:
    runtime = kt.Runtime(budget=kt.Budget(tokens=400, loops=5))
    assert kt.check(TEAM, request(budget=kt.Budget(tokens=400)), runtime=runtime).ok
    found = kt.check(TEAM, request(budget=kt.Budget(tokens=401, loops=6)), runtime=runtime)
    assert found.problems == (
        "the runtime's budget does not cover this run: 400 tokens are left, 401 asked",
        "the runtime's budget does not cover this run: 5 loops are left, 6 asked",
    )
    assert runtime.governor is not None
    assert runtime.governor.tree().children == ()
    runtime.governor.cancel()
    assert kt.check(TEAM, request(), runtime=runtime).problems == ("the runtime's budget is halted: cancelled",)


@pytest.mark.anyio
async def test_checking_does_not_use_the_request_up() -> None:
    asked = kt.TeamExecutionRequest("goal")
    runtime = kt.Runtime()
    team = kt.Team("team", [kt.Member("a", done)], runtime=runtime)
    assert kt.check(team, asked) == kt.check(team, asked)
    assert (await kt.run(team, asked)).status is kt.TeamStatus.COMPLETED


def test_a_check_goes_through_json() -> None:
    check = kt.check(TEAM, request(budget=kt.Budget(tokens=1000, dollars="0.5")))
    adapter = TypeAdapter(PlanCheck)
    assert adapter.validate_json(adapter.dump_json(check)) == check


# ---------------------------------------------------------------- what a function's own client spends


OUTSIDE = (
    "outside the budget, if it calls a model by itself: {}; a function that takes `context` has context.model and "
    "context.address inside it"
)


async def governed(_: kt.Assignment, context: kt.MemberContext) -> str:
    return "done"


class Agent:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "done"


@pytest.mark.parametrize(
    ("budget", "own", "named"),
    [
        (kt.Budget(), None, []),
        (kt.Budget(loops=500, tool_calls=90, seconds=100), None, []),
        (kt.Budget(tokens=900_000), None, ["'a'", "'w'"]),
        (kt.Budget(dollars=90), None, ["'a'", "'w'"]),
        (kt.Budget(), kt.Budget(tokens=90_000), ["'w'"]),
    ],
    ids=str,
)
def test_a_check_notes_functions_without_context_under_a_limit_of_tokens_or_dollars(
    budget: kt.Budget, own: kt.Budget | None, named: list[str]
) -> None:
    members = [kt.Member("a", never), kt.Member("w", FunctionAgent(done), budget=own)]
    members += [kt.Member("g", governed), kt.Member("c", Agent())]
    found = kt.check(kt.Team("team", members), "goal", budget=budget)
    assert found.ok
    assert found.notes == ((OUTSIDE.format(", ".join(named)),) if named else ())
