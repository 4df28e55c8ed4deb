"""`MiniAgent`: the last turn that can be paid is the wrap-up, and is told so."""

from __future__ import annotations

import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.anyio

LAST = "This is your last turn: finish now with what you have."


async def asked(budget: kt.Budget, *, max_turns: int = 10, price: kt.Price | None = None, reply: int = 20) -> list[str]:
    """Run an agent whose replies are always cut off; return what it was told in each turn."""
    prompts: list[str] = []

    def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        prompts.append(request.messages[-1].text)
        usage = kt.Usage(prompt_tokens=10, completion_tokens=min(reply, request.max_tokens or reply))
        return kt.ModelResponse("and so on ", usage=usage, finish_reason="length")

    runtime = kt.Runtime(
        models={"test:*": FunctionModel(answer, name="test:m")}, prices={"test:*": price or kt.Price()}
    )
    agent = kt.MiniAgent("test:m", max_turns=max_turns, settings={"max_tokens": reply})
    team = kt.Team("team", [kt.Member("writer", agent)], runtime=runtime)
    request = kt.TeamExecutionRequest("Write.", config=kt.TeamConfig(budget=budget))
    await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team)
    return prompts


@pytest.mark.parametrize(
    ("budget", "max_turns", "price"),
    [
        (kt.Budget(), 3, None),
        (kt.Budget(loops=3), 10, None),
        (kt.Budget(tokens=1500), 10, None),
        (kt.Budget(dollars="0.0009"), 10, kt.Price(request="0.0003")),
    ],
    ids=["turns", "loops", "tokens", "dollars"],
)
async def test_kf_b24_the_last_affordable_turn_is_told_so(
    budget: kt.Budget, max_turns: int, price: kt.Price | None
) -> None:
    """B24: the agent learned of its limit on its last turn, no turn left to answer."""
    prompts = await asked(budget, max_turns=max_turns, price=price)
    assert len(prompts) > 1
    assert LAST in prompts[-1]
    assert LAST not in prompts[0]


async def test_an_agent_of_one_turn_is_told_nothing_of_turns() -> None:
    (prompt,) = await asked(kt.Budget(), max_turns=1)
    assert "turn" not in prompt


async def test_what_is_left_is_said_before_the_last_turn() -> None:
    first, *_ = await asked(kt.Budget(tokens=5000, dollars=1), max_turns=2)
    assert "Left for this task: 2 turns, 5000 tokens, $1." in first
