"""A planner has a say before anything starts, like the members: `preflight`."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import Models
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator
from kairo_team.testing import EventRecorder, ScriptedModel

pytestmark = pytest.mark.anyio

WORK = kt.TaskGraph([kt.Task("t", "do")])
BOTH = list(kt.PlannerFailureMode)


class Unpriced:
    """A model nobody knows the price of."""

    name = "odd:model"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        raise AssertionError("a model was called")


class OwnPlanner:
    """A planner of somebody else's."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def preflight(self, models: Models) -> list[str]:
        assert models.resolve(ScriptedModel([])).name
        return self.problems

    async def plan(self, *_: Any) -> kt.TaskGraph:
        return WORK


def never(_: kt.Assignment) -> str:
    raise AssertionError("a member was called")


def team(planner: Any, mode: kt.PlannerFailureMode = kt.PlannerFailureMode.FAIL_FAST, **options: Any) -> kt.Team:
    coordinator = ExpertTeamCoordinator(planner=planner, planner_failure_mode=mode, **options)
    return kt.Team("t", [kt.Member("a", never)], coordinator=coordinator)


@pytest.mark.parametrize("mode", BOTH)
async def test_a_planner_without_a_model_is_refused_and_nothing_takes_its_place(mode: kt.PlannerFailureMode) -> None:
    recorder = EventRecorder()
    alone = team(AgentPlanner("local:nope"), mode)
    result = await kt.run(alone, "Do it.", runtime=kt.Runtime(subscribers=[recorder]))
    assert (result.status, result.refused, result.outcomes) == (kt.TeamStatus.FAILED, True, ())
    assert str(result.error).startswith("the planner: model 'local:nope' cannot be used")
    assert "planner" in kt.check(alone, "Do it.").problems[0]
    recorder.assert_lawful()


@pytest.mark.parametrize("mode", BOTH)
async def test_a_planners_model_needs_a_price_where_dollars_are_limited(mode: kt.PlannerFailureMode) -> None:
    priced = team(AgentPlanner(Unpriced()), mode)
    assert kt.check(priced, "Do it.", budget=kt.Budget(tokens=900)).ok
    (problem,) = kt.check(priced, "Do it.", budget=kt.Budget(dollars=1)).problems
    assert problem.startswith("the planner: the price of model 'odd:model' is unknown")
    result = await kt.run(priced, "Do it.", budget=kt.Budget(dollars=1))
    assert (result.refused, result.error) == (True, problem)
    free = kt.TeamConfig(budget=kt.Budget(dollars=1), budget_policy=kt.BudgetPolicy(allow_unpriced=True))
    assert kt.check(priced, kt.TeamExecutionRequest("Do it.", config=free)).ok


def test_the_runtime_says_which_models_there_are() -> None:
    runtime = kt.Runtime(models={"x:*": ScriptedModel([])})
    assert kt.check(team(AgentPlanner("x:y")), "Do it.", runtime=runtime).ok


def test_every_planner_may_have_a_say_and_none_must() -> None:
    assert kt.check(team(OwnPlanner([])), "Do it.").ok
    assert kt.check(team(OwnPlanner(["no ink", "no paper"])), "Do it.").problems == (
        "the planner: no ink",
        "the planner: no paper",
    )


@pytest.mark.parametrize(("replan", "ok"), [(False, True), (True, False)])
def test_a_planner_that_is_never_asked_needs_nothing(replan: bool, ok: bool) -> None:
    request = kt.TeamExecutionRequest("Do it.", plan=WORK)
    assert kt.check(team(AgentPlanner("local:nope"), replan=replan), request).ok is ok


def test_what_is_wrong_with_the_planner_and_with_the_team_is_said_at_once() -> None:
    found = kt.check(team(AgentPlanner("local:nope")), "Do it.", budget=kt.Budget(loops=0))
    assert [problem.split(" ")[1] for problem in found.problems] == ["planner:", "budget"]
