"""`MiniAgent`: the last turn that can be paid is the wrap-up, and is told so."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.anyio

LAST = "This is your last turn: finish now with what you have."


def told(request: kt.ModelRequest) -> str:
    """What a prompt says of what is left."""
    return "".join(message.text for message in request.messages if message.aside)


async def asked(budget: kt.Budget, *, max_turns: int = 10, price: kt.Price | None = None, reply: int = 20) -> list[str]:
    """Run an agent whose replies are always cut off; return what it was told of its limits in each turn."""
    prompts: list[str] = []

    def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        prompts.append(told(request))
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


async def test_who_has_one_turn_and_no_tools_is_told_nothing() -> None:
    assert await asked(kt.Budget(), max_turns=1) == [""]
    first, *later = await asked(kt.Budget(tokens=5000, dollars=1, seconds=600), max_turns=4)
    assert first == ""
    assert later[0] == "Left for this task: 3 turns, about 4,900 tokens."


# ---------------------------------------------------------------- the model's own count


class Notice(BaseModel):
    title: str
    lines: list[str]


async def notice(tokens: int, *, reply: int | None = 20, counts: bool = True) -> tuple[kt.TaskOutcome, list[str]]:
    """Have an agent answer wrong, and then right; return what came of it and its prompts."""
    replies = iter(['{"title": "Tide"}', '{"title": "Tide", "lines": ["high at noon"]}'])
    model = FunctionModel(lambda _: next(replies), name="test:m")
    if not counts:
        model.count_tokens = None  # type: ignore[method-assign,assignment]  # as a model without
    agent = kt.MiniAgent(model, max_turns=3, settings={"max_tokens": reply} if reply else None)
    team = kt.Team("team", [kt.Member("writer", agent)], output_types={"notice": Notice})
    plan = kt.TaskGraph([kt.Task("t", "Write it.", output_type="notice")])
    request = kt.TeamExecutionRequest("Write.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=tokens)))
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0)).execute(request, team)
    return result["t"], [told(call) for call in model.calls]


@pytest.mark.parametrize("reply", [20, None])
async def test_a_small_budget_pays_for_a_repair_where_the_model_counts_its_prompts(reply: int | None) -> None:
    """In bytes a prompt is several times as long as in tokens."""
    done, prompts = await notice(600, reply=reply)
    assert (done.status, len(prompts)) == (kt.TaskStatus.COMPLETED, 2)
    assert done.usage.tokens < 300
    assert LAST not in prompts[0]


async def test_without_a_count_a_prompt_is_bounded_by_its_bytes() -> None:
    done, prompts = await notice(800, counts=False)
    assert (done.status, len(prompts)) == (kt.TaskStatus.FAILED, 1)
    assert prompts == [""], "an agent that was never told of turns needs no words for its only one"


@pytest.mark.parametrize(("tokens", "counted"), [(None, 1), (100_000, 1), (600, 2)])
async def test_a_prompt_is_counted_for_this_only_where_its_bytes_are_too_many(
    tokens: int | None, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call counts its prompt once, for its hold; some models take their time to count."""
    asked: list[kt.ModelRequest] = []
    count = FunctionModel.count_tokens

    async def counting(self: FunctionModel, request: kt.ModelRequest) -> int:
        asked.append(request)
        return await count(self, request)

    monkeypatch.setattr(FunctionModel, "count_tokens", counting)
    agent = kt.MiniAgent(FunctionModel(lambda _: "done", name="test:m"), max_turns=3, settings={"max_tokens": 20})
    instructions = "Write. " * 40
    team = kt.Team("team", [kt.Member(kt.Role("writer", instructions), agent)])
    result = await kt.run(team, "Write.", budget=kt.Budget(tokens=tokens))
    assert result.status is kt.TeamStatus.COMPLETED
    assert len(asked) == counted


@pytest.mark.parametrize("reply", [1, 20, 90])
async def test_who_was_not_told_that_a_turn_is_the_last_can_pay_for_another(reply: int) -> None:
    for tokens in range(60, 1500, 53):
        model = FunctionModel(lambda _: "so " * 500, name="test:m")
        model_calls = model.calls
        team = kt.Team("team", [kt.Member("w", kt.MiniAgent(model, max_turns=6, settings={"max_tokens": reply}))])
        await kt.run(team, "Write " + "very " * 40 + "well.", budget=kt.Budget(tokens=tokens))
        warned = [LAST in told(call) for call in model_calls]
        assert len(warned) < 2 or warned.count(True) >= 1, f"{tokens} tokens"
