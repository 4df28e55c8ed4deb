"""How many calls of a model are in flight, and how many begin in a minute."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.errors import HaltError, ModelCallError, ModelUnavailable
from kairo_team.governance import Governor
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.limits import ModelLimits
from kairo_team.testing import FunctionModel, run_in_virtual_time
from tests.models.reports import ignore

pytestmark = pytest.mark.anyio

ASK = kt.ModelRequest([kt.Message.user("one two")], max_tokens=8)


class Provider:
    """Takes a second for a reply, and remembers when calls began and how many were in flight."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.began: list[float] = []
        self.order: list[str] = []
        self.in_flight = self.most = 0

    async def __call__(self, request: kt.ModelRequest) -> str:
        self.began.append(anyio.current_time())
        self.order.append(request.messages[-1].text)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        return "Fine."


def govern(
    provider: Provider, governor: Governor | None = None, name: str = "openai:m", **limits: kt.ModelLimit
) -> GovernedModel:
    patterns = {pattern.replace("__", ":").replace("any", "*"): limit for pattern, limit in limits.items()}
    rules = CallRules(limits=ModelLimits(patterns))
    return GovernedModel(FunctionModel(provider, name=name), governor or Governor(), ignore, rules=rules)


async def ask_all(model: GovernedModel, count: int) -> None:
    """Call one after the other, a millisecond apart, without waiting for replies."""
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(model.complete, kt.ModelRequest([kt.Message.user(str(number))], max_tokens=8))
            await anyio.sleep(0.001)


async def test_no_more_calls_are_in_flight_than_the_limit_and_whoever_came_first_goes_first() -> None:
    provider = Provider()
    await ask_all(govern(provider, openai__any=kt.ModelLimit(concurrency=3)), 10)
    assert provider.most == 3
    assert provider.order == [str(number) for number in range(10)]


async def test_no_more_calls_begin_in_any_minute_than_the_limit() -> None:
    provider = Provider()
    began = anyio.current_time()
    await ask_all(govern(provider, openai__any=kt.ModelLimit(per_minute=4)), 10)
    assert [round(at - began) for at in provider.began] == [0] * 4 + [60] * 4 + [120] * 2


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=25),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 3)),
    st.floats(0, 30),
)
@settings(max_examples=settings().max_examples * 3 // 5)
async def test_any_crowd_keeps_both_limits_and_all_get_through(
    arrivals: Sequence[float], per_minute: int, concurrency: int | None, seconds: float
) -> None:
    provider = Provider(seconds)
    model = govern(provider, any=kt.ModelLimit(concurrency, per_minute))

    async def arrive(after: float) -> None:
        await anyio.sleep(after)
        await model.complete(ASK)

    async with anyio.create_task_group() as group:
        for after in arrivals:
            group.start_soon(arrive, after)
    assert len(provider.began) == len(arrivals)
    assert concurrency is None or provider.most <= concurrency
    windows = zip(provider.began, provider.began[per_minute:], strict=False)
    assert all(later - earlier >= 60 - 1e-3 for earlier, later in windows)


def spends(prompt: int, completion: int) -> kt.ModelResponse:
    return kt.ModelResponse("Fine.", usage=kt.Usage(prompt_tokens=prompt, completion_tokens=completion))


class Metered(Provider):
    """Says what a reply has used; raises what it is given instead."""

    def __init__(self, *replies: kt.ModelResponse | Exception, seconds: float = 1.0) -> None:
        super().__init__(seconds)
        self.replies = list(replies)

    async def __call__(self, request: kt.ModelRequest) -> Any:
        await super().__call__(request)
        reply = self.replies[min(len(self.began), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply


MOST = 2 + 8
"""The most tokens that the call `ASK` can use: this model counts words."""


async def test_audit_g21_no_more_tokens_are_asked_for_in_any_minute_than_the_limit() -> None:
    provider = Provider(90)  # until it has ended a call counts as the most it can use
    model = govern(provider, any=kt.ModelLimit(tokens_per_minute=2 * MOST))
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(model.complete, ASK)
    assert [round(at - began) for at in provider.began] == [0, 0, 60, 60, 120]


async def test_audit_g21_a_call_that_has_ended_counts_as_what_it_used() -> None:
    provider = Metered(spends(2, 1), spends(MOST, 0), spends(1, 1))
    model = govern(provider, any=kt.ModelLimit(tokens_per_minute=MOST + 3))
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(model.complete, ASK)
    assert [round(at - began) for at in provider.began] == [0, 1, 61, 62]


@pytest.mark.parametrize(
    ("reply", "later"),
    [
        (ModelCallError("overloaded", "openai:m", "not reached", unspent=True), 1),
        (ModelUnavailable("openai:m", "not installed"), 1),
        (ModelCallError("overloaded", "openai:m", "broke off"), 60),
        (RuntimeError("broke off"), 60),
        (kt.ModelResponse("Fine."), 60),
        (spends(MOST, 100), 60),
    ],
)
async def test_audit_g21_what_may_have_been_used_counts_and_what_was_not_does_not(reply: Any, later: int) -> None:
    provider = Metered(reply, spends(1, 1))
    rules = CallRules(kt.ModelRetry(retries=0), ModelLimits({"*": kt.ModelLimit(tokens_per_minute=MOST)}))
    unmetered = FunctionModel(provider, name="openai:m")
    model = GovernedModel(unmetered, Governor(), ignore, rules=rules)
    began = anyio.current_time()
    with suppress(Exception):
        await model.complete(ASK)
    await model.complete(ASK)
    assert [round(at - began) for at in provider.began] == [0, later]


async def test_audit_g21_a_call_that_no_budget_allowed_counts_nothing() -> None:
    provider, rules = Metered(spends(1, 1)), ModelLimits({"*": kt.ModelLimit(tokens_per_minute=MOST)})
    models = [
        GovernedModel(FunctionModel(provider, name="a:m"), governor, ignore, rules=CallRules(limits=rules))
        for governor in (Governor(kt.Budget(tokens=2)), Governor())
    ]
    began = anyio.current_time()
    with pytest.raises(HaltError):
        await models[0].complete(ASK)
    await models[1].complete(ASK)
    assert anyio.current_time() - began == pytest.approx(1)


async def test_audit_g21_a_call_larger_than_the_limit_goes_alone() -> None:
    provider = Metered(spends(1, 1), spends(9, 9), spends(1, 1))
    model = govern(provider, any=kt.ModelLimit(tokens_per_minute=10))
    began = anyio.current_time()
    for _ in range(3):
        await model.complete(ASK)
    assert [round(at - began) for at in provider.began] == [0, 60, 120]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 40), st.integers(0, 100)), min_size=1, max_size=20),
    st.integers(1, 400),
    st.one_of(st.none(), st.integers(1, 3)),
    st.floats(0, 30),
)
@settings(max_examples=settings().max_examples * 3 // 5)
async def test_audit_g21_in_any_crowd_what_was_used_stays_within_the_limit_and_all_get_through(
    calls: Sequence[tuple[float, int, int]], limit: int, concurrency: int | None, seconds: float
) -> None:
    used: list[tuple[float, int, int]] = []

    async def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        at = anyio.current_time()
        await anyio.sleep(seconds)
        most = 1 + (request.max_tokens or 0)
        truth = int(request.messages[0].text) * most // 100
        used.append((at, truth, most))
        return spends(truth, 0)

    rules = CallRules(limits=ModelLimits({"*": kt.ModelLimit(concurrency, tokens_per_minute=limit)}))
    model = GovernedModel(FunctionModel(answer, name="a:m"), Governor(), ignore, rules=rules)

    async def arrive(after: float, length: int, percent: int) -> None:
        await anyio.sleep(after)
        await model.complete(kt.ModelRequest([kt.Message.user(str(percent))], max_tokens=length))

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(arrive, *call)
    assert len(used) == len(calls)
    for began, _, most in used:
        window = [truth for at, truth, _ in used if began - 60 + 1e-3 < at <= began]
        assert sum(window) <= limit or len([truth for truth in window if truth]) == 1 <= most


async def test_a_caller_that_leaves_the_line_keeps_nobody_waiting() -> None:
    provider = Provider(10)
    model = govern(provider, any=kt.ModelLimit(concurrency=1))

    async def give_up(after: float) -> None:
        with anyio.move_on_after(after):
            await model.complete(kt.ModelRequest([kt.Message.user("left")], max_tokens=8))

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, ASK)
        await anyio.sleep(1)
        group.start_soon(give_up, 2)
        group.start_soon(give_up, 20)
        await anyio.sleep(1)
        group.start_soon(model.complete, ASK)
    assert provider.order == ["one two", "left", "one two"]
    assert anyio.current_time() - began == pytest.approx(30)
    assert provider.in_flight == 0


async def test_whoever_waits_holds_no_budget_and_is_halted_in_line_like_anywhere() -> None:
    governor = Governor(kt.Budget(tokens=1000), name="team")
    provider = Provider(5)
    model = govern(provider, governor, any=kt.ModelLimit(concurrency=1))
    refused: list[HaltError] = []

    async def late() -> None:
        try:
            await model.complete(ASK)
        except HaltError as halt:
            refused.append(halt)

    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, ASK)
        await anyio.sleep(1)
        group.start_soon(late)
        await anyio.sleep(1)
        assert governor.held.tokens == 10
        governor.cancel()
    assert [halt.reason for halt in refused] == [kt.HaltReason.CANCELLED]
    assert len(provider.began) == 1


async def test_a_pattern_is_one_limit_for_all_its_models_and_the_first_that_fits_counts() -> None:
    limits = ModelLimits(
        {
            "openai:*": kt.ModelLimit(1),
            "*:small": kt.ModelLimit(2),
            "openai:big": kt.ModelLimit(3),
            "*": kt.ModelLimit(9),
        }
    )
    assert limits.gate("openai:small") is limits.gate("openai:other") is not limits.gate("google:small")
    assert limits.gate("openai:big") is not limits.gate("openai:small"), "an exact name goes first"
    assert ModelLimits().gate("openai:big") is ModelLimits({"google:*": kt.ModelLimit(1)}).gate("openai:big") is None


async def test_every_run_of_a_runtime_shares_its_limits() -> None:
    provider = Provider()
    runtime = kt.Runtime(
        models={"openai:*": FunctionModel(provider, name="openai:m")},
        model_limits={"openai:*": kt.ModelLimit(concurrency=2)},
    )

    async def run(number: int) -> None:
        team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent("openai:m"))])
        result = await kt.run(team, f"Write {number}.", runtime=runtime)
        assert result.check().output == "Fine."

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(run, number)
    assert (provider.most, len(provider.began)) == (2, 6)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_runtime_serves_one_event_loop_after_another(backend: str) -> None:
    provider = Provider()
    model = govern(provider, any=kt.ModelLimit(concurrency=1, per_minute=2))
    for _ in range(3):
        run_in_virtual_time(partial(ask_all, model, 3), backend=backend)
    assert (len(provider.began), provider.most) == (9, 1)


@pytest.mark.real_time
async def test_event_loops_in_several_threads_share_one_limit() -> None:
    provider = Provider(0.02)
    model = govern(provider, any=kt.ModelLimit(concurrency=1))

    async def ask_in_a_thread() -> None:
        await anyio.to_thread.run_sync(lambda: anyio.run(ask_all, model, 4))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask_in_a_thread)
    assert (provider.most, len(provider.order)) == (1, 12)


@pytest.mark.parametrize("limit", [{"concurrency": 0}, {"per_minute": 0}, {"concurrency": -1}, {"per_minute": 2.5}])
def test_a_limit_that_is_none_is_refused(limit: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"ModelLimit\.\w+ must be (at least 1|a whole number)"):
        kt.ModelLimit(**limit)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"openai": kt.ModelLimit(1)}, "limits are set for 'provider:name' or a pattern"),
        ({3: kt.ModelLimit(1)}, "limits are set for 'provider:name' or a pattern"),
        ({"openai:*": 8}, r"the limit of 'openai:\*' must be a kt.ModelLimit"),
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, kt.ModelLimit], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kt.Runtime(model_limits=limits)


async def test_a_call_that_is_alone_waits_for_nobody() -> None:
    provider = Provider(0)
    model = govern(provider, any=kt.ModelLimit(concurrency=1, per_minute=1000))
    began = anyio.current_time()
    for _ in range(20):
        await model.complete(ASK)
    assert anyio.current_time() == pytest.approx(began)
    assert all(later >= earlier for earlier, later in pairwise(provider.began))
