"""Limits, retries, spares, streams and a budget at once: nothing is overspent, nobody waits for ever."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.errors import HaltError, InsufficientBudget, ModelCallError
from kairo_team.governance import Governor
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.limits import ModelLimits
from kairo_team.testing import FunctionModel
from tests.models.reports import at_end, ignore

pytestmark = pytest.mark.anyio

Fate = Literal["full", "silent", "refused", "lost", "broken"]
FATES: tuple[Fate, ...] = ("full", "silent", "refused", "lost", "broken")


@dataclass(frozen=True)
class Errand:
    """One call: when it begins, what becomes of its tries, how long each takes, and when the caller gives up."""

    begins: float
    lasts: float
    reply: int
    fates: tuple[Fate, ...]
    patience: float
    streamed: bool


class Provider:
    """Does to each try what its errand says, and keeps the bill."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.billed = self.in_flight = self.most = 0

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return 5

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: kt.ModelRequest, tell: Any) -> kt.ModelResponse:
        fate: Fate = next(request.settings["fates"], "full")
        if fate == "refused":
            raise ModelCallError("rate_limited", self.name, "later", retry_after=2.0, unspent=True)
        assert request.max_tokens is not None
        self.billed += 5 + request.max_tokens
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await anyio.sleep(request.settings["lasts"])
        finally:
            self.in_flight -= 1
        if fate == "lost":
            raise ModelCallError("connection", self.name, "lost")
        tell("word")
        if fate == "broken":
            raise ModelCallError("timeout", self.name, "broken off")
        return kt.ModelResponse("word", usage=None if fate == "silent" else kt.Usage(5, request.max_tokens))


errands = st.builds(
    Errand,
    begins=st.floats(0, 5),
    lasts=st.floats(0, 5),
    reply=st.integers(1, 60),
    fates=st.lists(st.sampled_from(FATES), max_size=6).map(tuple),
    patience=st.floats(0.5, 300),
    streamed=st.booleans(),
)


@given(
    st.lists(errands, max_size=20),
    st.integers(0, 500),
    st.builds(kt.ModelLimit, st.none() | st.integers(1, 3), st.none() | st.integers(1, 5)),
)
@settings(max_examples=settings().max_examples * 4 // 5)
async def test_any_crowd_keeps_the_budget_and_the_limits_and_leaves_nothing_behind(
    crowd: list[Errand], budget: int, limit: kt.ModelLimit
) -> None:
    team = Governor(kt.Budget(tokens=budget))
    providers = Provider("a:first"), Provider("b:spare")
    limits = ModelLimits({"a:*": limit, "b:*": kt.ModelLimit(concurrency=1)})
    rules = CallRules(kt.ModelRetry(retries=2, backoff=0.1), limits)

    async def run(errand: Errand, governor: Governor) -> None:
        await anyio.sleep(errand.begins)
        model = GovernedModel(kt.Fallback(*providers), governor, ignore, rules=rules)
        asked = {"fates": iter(errand.fates), "lasts": errand.lasts}
        request = kt.ModelRequest([kt.Message.user("x")], max_tokens=errand.reply, settings=asked)
        told: list[str] = []
        with suppress(HaltError, InsufficientBudget, ModelCallError), anyio.move_on_after(errand.patience):
            await (model.stream(request, told.append) if errand.streamed else model.complete(request))
        assert len(told) <= 1

    with anyio.fail_after(10_000):
        async with anyio.create_task_group() as group:
            for number, errand in enumerate(crowd):
                group.start_soon(run, errand, team if number % 3 else team.carve(f"task-{number}"))
    assert sum(provider.billed for provider in providers) <= team.usage.tokens <= budget
    assert team.held.tokens == 0
    assert limit.concurrency is None or providers[0].most <= limit.concurrency
    assert providers[1].most <= 1
    for name in ("a:first", "b:spare"):
        gate: Any = limits.gate(name)
        assert (gate._inside, len(gate._line)) == (0, 0)


class Wrong:
    """Answers with what is no reply."""

    name = "mine:wrong"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(self, request: kt.ModelRequest) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", ["text", None, {"text": "x"}])
async def test_what_is_no_reply_is_an_error_that_names_the_model_and_is_charged(answer: Any) -> None:
    tries: list[tuple[str, int]] = []
    team = Governor()

    def report(_: str, outcome: str, held: int, usage: kt.Usage) -> None:
        tries.append((outcome, usage.tokens))

    model = GovernedModel(Wrong(answer), team, at_end(report))
    request = kt.ModelRequest([kt.Message.user("word")], max_tokens=10)
    with pytest.raises(TypeError, match="model 'mine:wrong' must answer with a ModelResponse, not with"):
        await model.complete(request)
    assert (tries, team.usage.tokens) == ([("error", 62)], 62)


@pytest.mark.parametrize("count", [None, -5, 2.5, float("nan"), "12"])
async def test_a_count_that_is_none_is_refused_by_name_and_makes_no_call(count: Any) -> None:
    """It would be held: a wrong one must not let a call through."""

    class Counts(FunctionModel):
        async def count_tokens(self, request: kt.ModelRequest) -> Any:
            return count

    model = Counts(lambda _: "hello", name="mine:counts")
    team = kt.Team("t", [kt.Member("a", kt.MiniAgent(model))])
    result = await kt.run(team, "go", budget=kt.Budget(tokens=1_000))
    why = f"model 'mine:counts': count_tokens must return a whole number >= 0, not {count!r}"
    assert (why in str(result.error), model.calls, result.usage.tokens) == (True, [], 0)
