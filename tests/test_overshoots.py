"""A provider that uses more than was held for it: all of it is booked, and the result says so with numbers."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.anyio

NAME = "test:greedy"


def greedy(used: kt.Usage) -> FunctionModel:
    """Make a model that ignores its cap."""
    return FunctionModel(lambda _: kt.ModelResponse("Hm.", usage=used), name=NAME)


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    request = kt.ModelRequest([kt.Message.user("Go on, please.")], max_tokens=10)
    return (await context.model(NAME).complete(request)).text


async def run(
    model: Any, *, tasks: int = 1, budget: kt.Budget | None = None, team: kt.Team | None = None, **runtime: Any
) -> kt.TeamResult:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "Ask.") for number in range(tasks)])
    request = kt.TeamExecutionRequest("Ask.", plan=plan, run_id="r", config=kt.TeamConfig(budget=budget or kt.Budget()))
    team = team or kt.Team("team", [kt.Member("member", ask)], coordinator=TaskDispatchCoordinator())
    return await kt.run(team, request, runtime=kt.Runtime(models={"test:*": model}, **runtime))


async def test_audit_g32_an_overshoot_is_a_warning_of_the_run_with_numbers(caplog: pytest.LogCaptureFixture) -> None:
    """The cap was 10 and the prompt has three words: 13 tokens were held for each call."""
    with caplog.at_level(logging.WARNING, "kairo_team"):
        result = await run(greedy(kt.Usage(3, 1000)), tasks=2)
    assert (result.status, result.usage.tokens) == (kt.TeamStatus.COMPLETED, 2006)
    (warning,) = result.warnings
    assert warning.startswith(
        f"model '{NAME}' used more than was held for 2 calls: 2,006 tokens where 26 were held; all of it is booked."
    )
    assert len([one for one in caplog.messages if "1,003 tokens where 13 were held" in one]) == 1


async def test_audit_g32_a_limit_that_was_passed_is_a_warning_with_numbers() -> None:
    result = await run(greedy(kt.Usage(3, 1000)), budget=kt.Budget(tokens=500))
    assert result.usage.tokens == 1003
    assert "the budget of 'team' was passed: 1,003 of 500 tokens are booked, 503 too many" in result.warnings


async def test_dollars_beyond_what_was_held_are_told_too() -> None:
    model = FunctionModel(
        lambda _: kt.ModelResponse("Hm.", usage=kt.Usage(3, 10, Decimal("0.5"))), name=NAME, dollars_per_token="0.001"
    )
    result = await run(model, budget=kt.Budget(dollars="0.4"))
    assert any("1 call: $0.5 where $0.013 were held; all of it is booked" in one for one in result.warnings)
    assert "the budget of 'team' was passed: $0.5 of $0.4 are booked, $0.1 too many" in result.warnings


@pytest.mark.parametrize("used", [kt.Usage(3, 10), kt.Usage(3, 10, Decimal("0.5"))])
async def test_what_keeps_to_its_cap_is_not_warned_of_whatever_it_costs_where_nobody_priced_it(used: kt.Usage) -> None:
    assert (await run(greedy(used))).warnings == ()


async def test_many_limits_that_were_passed_are_counted() -> None:
    members = [kt.Member(f"m{number}", ask, budget=kt.Budget(tokens=20)) for number in range(6)]
    team = kt.Team("team", members, coordinator=TaskDispatchCoordinator())
    result = await run(greedy(kt.Usage(3, 1000)), tasks=6, team=team)
    passed = [one for one in result.warnings if "was passed" in one or "were passed" in one]
    assert passed[-1] == "3 more limits were passed: see the result's budget"
    assert passed[0] == "the budget of 'm0' was passed: 1,003 of 20 tokens are booked, 983 too many"
    assert len(passed) == 4


async def test_planning_and_reviews_are_looked_at_too_and_so_is_a_team_inside_a_task() -> None:
    class Judge:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            assert context.context is not None
            await context.context.model(NAME).complete(kt.ModelRequest([kt.Message.user("Good?")], max_tokens=10))
            return kt.EvaluationVerdict.passed()

    inner = kt.Team("inner", [kt.Member("m", ask)], coordinator=TaskDispatchCoordinator())
    coordinator = ExpertTeamCoordinator(evaluator=Judge())
    team = kt.Team("team", [kt.Member("member", TeamAgent(inner))], coordinator=coordinator)
    result = await run(greedy(kt.Usage(3, 1000)), team=team)
    assert any("used more than was held for 2 calls" in one for one in result.warnings)


async def test_a_replay_says_the_same() -> None:
    class Kept(kt.Runtime):
        def journal_for(self, run_id: str) -> MemoryRecords:
            return journal

    journal = MemoryRecords()
    plan = kt.TaskGraph([kt.Task("t", "Ask.")])
    team = kt.Team("team", [kt.Member("member", ask)], coordinator=TaskDispatchCoordinator())
    results: list[kt.TeamResult] = []
    model = greedy(kt.Usage(3, 1000))
    for _ in range(2):
        request = kt.TeamExecutionRequest(
            "Ask.", plan=plan, run_id="r", config=kt.TeamConfig(budget=kt.Budget(tokens=500))
        )
        results.append(await kt.run(team, request, runtime=Kept(models={"test:*": model})))
        journal = MemoryRecords(journal.records)
    first, second = results
    assert len(first.warnings) == 2
    assert first.warnings == second.warnings
    assert len(model.calls) == 1
