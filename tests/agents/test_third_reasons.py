"""An end has its true reason: a budget that ended an agent is no turn limit, in status, warning and halt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder, FunctionModel, virtual_time
from kairo_team.testing.clocks import Backend
from tests.agents.rigs import Ask, Reply, RigTool
from tests.constrained import EXIT, WARN, Rule
from tests.test_offered_tools import Offering

pytestmark = pytest.mark.anyio

BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
PLAN = kt.TaskGraph([kt.Task("t", "Do it.")])


@kt.tool(side_effect="read")
async def look(text: str) -> str:
    """Look for a text."""
    return f"found {text}"


def searcher(text: str, max_turns: int) -> kt.MiniAgent:
    """Return an agent that looks for something in every turn, and says a text beside it."""
    calls = [kt.ToolCall("1", "look", {"text": "it"})]
    reply = kt.ModelResponse(text, tool_calls=calls, usage=kt.Usage(100, 20))
    return kt.MiniAgent(FunctionModel(lambda _: reply), tools=[look], max_turns=max_turns, settings={"max_tokens": 20})


async def run(agent: Any, budget: kt.Budget, **member: Any) -> tuple[kt.TeamResult, EventRecorder]:
    recorder = EventRecorder()
    team = kt.Team("team", [kt.Member("m", agent, **member)], runtime=kt.Runtime(subscribers=[recorder]))
    return await kt.run(team, "goal", plan=PLAN, budget=budget, coordinator=BOARD), recorder


@pytest.mark.parametrize(
    ("budget", "left"),
    [(kt.Budget(tokens=3_000), "tokens left"), (kt.Budget(loops=3), "0 loops left")],
    ids=["tokens", "loops"],
)
async def test_third_o9_where_a_budget_ended_it_that_is_the_reason(budget: kt.Budget, left: str) -> None:
    output = await searcher("half a page", 50).run("Do it.", budget=budget)
    turns = output.turns_completed
    assert (output.status, output.artifact.partial) == (kt.AgentStatus.GRACEFUL_EXIT, True)
    assert 1 <= turns < 50
    assert str(output.error).startswith(f"the budget could not pay turn {turns + 1}: ")
    assert str(output.error).endswith(left)
    result, recorder = await run(searcher("half a page", 50), budget)
    (finished,) = recorder.of(events.AttemptFinished)
    assert finished.status == "graceful_exit"
    (warning,) = result["t"].warnings
    assert warning.startswith("the accepted work was cut short: the budget could not pay turn ")
    assert (result.status, result.error) == (kt.TeamStatus.DEGRADED, f"task 't': {warning}")
    assert "turn limit" not in " ".join(result.warnings)


async def test_third_o9_where_its_turns_ended_it_that_is_the_reason() -> None:
    result, recorder = await run(searcher("half a page", 3), kt.Budget(tokens=100_000))
    (finished,) = recorder.of(events.AttemptFinished)
    assert finished.status == "turn_limit_reached"
    assert result["t"].warnings == ("the accepted work was cut short: the agent reached its turn limit: 3 of 3 turns",)


async def test_third_o9_without_a_text_the_shortage_is_a_halt_like_any_other() -> None:
    result, recorder = await run(searcher("", 50), kt.Budget(tokens=3_000))
    assert result["t"].status is kt.TaskStatus.FAILED
    assert "tokens left" in str(result["t"].error)
    (halted,) = recorder.of(events.BudgetHalted)
    assert halted.reason == kt.HaltReason.TOKEN_BUDGET_EXCEEDED
    result, recorder = await run(searcher("", 50), kt.Budget(loops=3))
    (halted,) = recorder.of(events.BudgetHalted)
    assert halted.reason == kt.HaltReason.LOOP_BUDGET_EXCEEDED
    output = await searcher("", 50).run("Do it.", budget=kt.Budget(tokens=3_000))
    assert output.status is kt.AgentStatus.HALTED


async def test_third_o9_a_warning_of_a_constraint_does_not_hide_the_reason() -> None:
    warns = Rule(lambda context: context.iteration > 0, WARN)
    result, _ = await run(searcher("half a page", 50), kt.Budget(loops=3), constraints=[warns])
    assert len(result["t"].warnings) == 2
    assert result["t"].warnings[1] == "the accepted work was cut short: the budget could not pay turn 4: 0 loops left"


LOOPS, TOKENS, DOLLARS = (kt.HaltReason(f"{name}_budget_exceeded") for name in ("loop", "token", "dollar"))
PRICES = {"test:function": kt.Price("10", "10")}


@pytest.mark.parametrize(
    ("budget", "member", "reason", "origin"),
    [
        (kt.Budget(tokens=3_000), {}, TOKENS, "team"),
        (kt.Budget(loops=3), {}, LOOPS, "team"),
        (kt.Budget(dollars="0.01", tokens=1_000_000), {}, DOLLARS, "team"),
        (kt.Budget(tokens=100_000), {"budget": kt.Budget(tokens=3_000)}, TOKENS, "team/m"),
        (kt.Budget(tokens=100_000), {"constraints": [Rule(lambda context: context.iteration > 1, EXIT)]}, None, None),
        (kt.Budget(tokens=100_000), {"turns": 3}, None, None),
    ],
    ids=["tokens", "loops", "dollars", "member", "constraint", "turns"],
)
async def test_third_o9_the_halt_of_an_attempt_says_what_ended_its_partial_work(
    budget: kt.Budget, member: dict[str, Any], reason: kt.HaltReason | None, origin: str | None
) -> None:
    coordinator, recorder = Offering(), EventRecorder()
    agent = searcher("half a page", member.pop("turns", 50))
    runtime = kt.Runtime(subscribers=[recorder], prices=PRICES if budget.dollars is not None else None)
    team = kt.Team("team", [kt.Member("m", agent, **member)], runtime=runtime)
    result = await kt.run(team, "Do it.", budget=budget, coordinator=coordinator)
    [attempt] = coordinator.attempts
    assert attempt.artifact is not None
    assert (attempt.error, attempt.artifact.partial, result.status) == (None, True, kt.TeamStatus.DEGRADED)
    assert (attempt.halt, attempt.origin_path) == (reason, origin)
    assert [event.reason for event in recorder.of(events.BudgetHalted)] == ([] if reason is None else [reason.value])


async def test_third_o9_what_a_budget_cut_and_cannot_be_read_is_a_halt_too() -> None:
    """The same member cannot do better with the same budget, so it does not try again."""
    coordinator = Offering()
    team = kt.Team("team", [kt.Member("m", searcher("half a page", 50))], output_types={"answer": dict[str, int]})
    result = await kt.run(team, "Do it.", budget=kt.Budget(loops=3), coordinator=coordinator)
    [attempt] = coordinator.attempts
    assert str(attempt.error).startswith("the budget could not pay turn ")
    assert (attempt.halt, attempt.final, result.status) == (LOOPS, True, kt.TeamStatus.FAILED)


@pytest.mark.parametrize("how", ["alone", "reviewed", "recorded"])
@pytest.mark.parametrize("text", ["half a page", ""])
async def test_third_o9_an_agent_alone_says_what_ended_it(tmp_path: Path, how: str, text: str) -> None:
    rubric = kt.Rubric([kt.Criterion("page", "names a page", kt.checks.contains("page"))])
    more: dict[str, Any] = {"evaluator": rubric} if how == "reviewed" else {}
    more |= {"journal": kt.SqliteJournal(tmp_path / "runs.db"), "run_id": "r"} if how == "recorded" else {}
    for budget, reason in ((kt.Budget(tokens=3_000), TOKENS), (kt.Budget(loops=3), LOOPS)):
        output = await searcher(text, 50).run("Do it.", budget=budget, **more)
        assert (output.status is kt.AgentStatus.GRACEFUL_EXIT, output.halt) == (bool(text), reason)
        more |= {"run_id": "s"} if how == "recorded" else {}
    output = await searcher(text, 2).run("Do it.", budget=kt.Budget(tokens=100_000))
    assert output.halt is None


@pytest.mark.parametrize("anyio_backend", [virtual_time("asyncio")])
@pytest.mark.parametrize(
    ("limits", "status", "reason"),
    [
        ({"request_limit": 2}, "turn_limit_reached", "the agent reached its turn limit: 2 of 2 turns"),
        ({"total_tokens_limit": 150}, "graceful_exit", "total_tokens_limit of 150"),
        ({"tool_calls_limit": 1}, "graceful_exit", "tool_calls_limit of 1"),
    ],
)
async def test_third_o9_a_limit_of_pydantic_ai_is_the_one_it_was(
    anyio_backend: Backend, limits: dict[str, int], status: str, reason: str
) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import UsageLimits

    from kairo_team.agents.pydantic_ai import PydanticAIAgent
    from tests.agents.rig_pydantic_ai import PydanticAIRig

    async def find(text: str) -> str:
        return f"found {text}"

    rig = PydanticAIRig([Reply("half a page", [Ask("find", "it")], 90, 10)], [RigTool("find", find)])
    given: Any = limits
    wrapped = PydanticAIAgent(rig.agent().agent, usage_limits=UsageLimits(**given))
    result, recorder = await run(wrapped, kt.Budget(tokens=100_000))
    (finished,) = recorder.of(events.AttemptFinished)
    assert finished.status == status
    assert reason in result["t"].warnings[0]
    assert result.status is kt.TeamStatus.DEGRADED
