"""A call that waits for its budget keeps no place under a model's limit."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.errors import HaltError
from kairo_team.governance import Governor
from kairo_team.governance.governor import Reservation
from kairo_team.governance.slices import Borrower, Granter
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.limits import ModelLimits
from kairo_team.testing import FunctionModel
from tests.models.reports import ignore

pytestmark = pytest.mark.anyio


class Provider:
    """Answers after some seconds, and writes down when each call began and which budget paid it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: list[tuple[str, float]] = []
        self.in_flight = self.most = 0

    async def __call__(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.began.append((request.messages[-1].text, anyio.current_time()))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        return kt.ModelResponse("Fine.", usage=kt.Usage(20, 20))


async def taken(governor: Governor, tokens: int) -> Reservation:
    """Hold tokens as another caller: who holds some itself is refused instead of waiting."""
    held: list[Reservation] = []

    async def take() -> None:
        held.append(governor.reserve(tokens=tokens))

    async with anyio.create_task_group() as group:
        group.start_soon(take)
    return held[0]


def ask(text: str, most: int = 8) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=most)


def two_runs(provider: Provider, limit: kt.ModelLimit, tokens: int) -> tuple[GovernedModel, GovernedModel, Governor]:
    """Return one model as two runs have it: the first with few tokens, the second without a limit."""
    rules = CallRules(limits=ModelLimits({"*": limit}))
    governor = Governor(kt.Budget(tokens=tokens), name="poor")
    model = FunctionModel(provider, name="openai:m")
    poor, rich = (GovernedModel(model, one, ignore, rules=rules) for one in (governor, Governor()))
    return poor, rich, governor


@pytest.mark.parametrize("limit", [kt.ModelLimit(concurrency=1), kt.ModelLimit(concurrency=1, per_minute=50)])
async def test_third_o54_another_run_does_not_wait_for_the_budget_of_the_first(limit: kt.ModelLimit) -> None:
    provider = Provider(1)
    poor, rich, governor = two_runs(provider, limit, tokens=110)
    with await taken(governor, 100) as hold:
        async with anyio.create_task_group() as group:
            began = anyio.current_time()
            group.start_soon(poor.complete, ask("poor", 60))
            await anyio.sleep(2)
            await rich.complete(ask("rich"))
            assert anyio.current_time() - began == pytest.approx(3)
            await anyio.sleep(95)
            hold.release()
    assert [name for name, _ in provider.began] == ["rich", "poor"]


async def test_third_o54_whoever_waited_for_budget_lines_up_again() -> None:
    provider = Provider(10)
    poor, rich, governor = two_runs(provider, kt.ModelLimit(concurrency=1), tokens=110)
    began = anyio.current_time()
    with await taken(governor, 100) as hold:
        async with anyio.create_task_group() as group:
            group.start_soon(poor.complete, ask("poor", 60))
            await anyio.sleep(1)
            for name in ("first", "second"):
                group.start_soon(rich.complete, ask(name))
                await anyio.sleep(1)
            hold.release()
    assert [(name, round(at - began)) for name, at in provider.began] == [("first", 1), ("second", 11), ("poor", 21)]
    assert governor.held == kt.Usage()


async def test_third_o54_a_turn_of_which_no_call_was_made_counts_nothing() -> None:
    """Neither at calls a minute nor at tokens a minute."""
    provider = Provider(1)
    limit = kt.ModelLimit(per_minute=1, tokens_per_minute=200)
    poor, rich, governor = two_runs(provider, limit, tokens=110)
    began = anyio.current_time()
    with await taken(governor, 100) as hold:
        async with anyio.create_task_group() as group:
            group.start_soon(poor.complete, ask("poor", 60))
            await anyio.sleep(1)
            await rich.complete(ask("rich"))
            assert anyio.current_time() - began == pytest.approx(2)
            hold.release()
    assert [(name, round(at - began)) for name, at in provider.began] == [("rich", 1), ("poor", 61)]


async def test_third_o54_who_waits_outside_is_halted_and_cancelled_like_anywhere() -> None:
    poor, _, governor = two_runs(Provider(1), kt.ModelLimit(concurrency=1), tokens=110)
    ends: list[Any] = []

    async def call() -> None:
        try:
            await poor.complete(ask("poor", 60))
        except HaltError as halt:
            ends.append(halt.reason)

    with await taken(governor, 100) as hold:
        with anyio.move_on_after(5) as scope:
            await call()
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.sleep(1)
            governor.cancel()
        hold.release()
    assert ends == [kt.HaltReason.CANCELLED]
    assert governor.held == kt.Usage()


async def test_third_o54_on_a_worker_a_call_behind_another_ones_ask_keeps_no_place() -> None:
    """Two calls of one attempt: the first asks the coordinator for budget and waits, the second is limited."""
    team = Governor(kt.Budget(tokens=300), name="team")
    attempt = team.carve("attempt")
    granter = Granter(attempt)
    borrower = Borrower("attempt", granter.first(), granter.grant, granter.report)
    limits = ModelLimits({"openai:*": kt.ModelLimit(concurrency=1)})
    provider = Provider(1)
    limited = FunctionModel(provider, name="openai:m")
    rules = CallRules(limits=limits)
    free = GovernedModel(FunctionModel(Provider(1), name="other:m"), borrower.governor, ignore, rules=rules)
    slow, rich = (GovernedModel(limited, one, ignore, rules=rules) for one in (borrower.governor, Governor()))
    with await taken(team, 290) as hold:
        async with anyio.create_task_group() as group:
            began = anyio.current_time()
            group.start_soon(free.complete, ask("free", 60))
            await anyio.sleep(1)
            group.start_soon(slow.complete, ask("slow", 60))
            await anyio.sleep(1)
            await rich.complete(ask("rich"))
            assert anyio.current_time() - began == pytest.approx(3)
            hold.release()
    granter.end(borrower.governor.usage)
    assert [name for name, _ in provider.began] == ["rich", "slow"]
    assert team.held == kt.Usage()


@given(
    st.lists(st.tuples(st.floats(0, 20), st.booleans(), st.integers(1, 60)), min_size=1, max_size=12),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 4)),
)
@settings(max_examples=settings().max_examples // 4)
async def test_third_o54_in_any_crowd_both_limits_hold_and_whoever_can_be_paid_is_answered(
    crowd: list[tuple[float, bool, int]], concurrency: int, per_minute: int | None
) -> None:
    provider = Provider(7)
    poor, rich, governor = two_runs(provider, kt.ModelLimit(concurrency, per_minute), tokens=10_000)
    answered: list[int] = []

    async def arrive(number: int, after: float, of_the_poor: bool, most: int) -> None:
        await anyio.sleep(after)
        await (poor if of_the_poor else rich).complete(ask(str(number), most))
        answered.append(number)

    with await taken(governor, 9_880) as hold:
        async with anyio.create_task_group() as group:
            for number, one in enumerate(crowd):
                group.start_soon(arrive, number, *one)
            await anyio.sleep(30)
            hold.release()
    assert sorted(answered) == list(range(len(crowd)))
    assert provider.most <= concurrency
    assert governor.held == kt.Usage()
    if per_minute is not None:
        times = [at for _, at in provider.began]
        windows = zip(times, times[per_minute:], strict=False)
        assert all(later - earlier >= 60 - 1e-3 for earlier, later in windows)
