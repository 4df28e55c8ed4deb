"""Failed calls are tried again where that helps, after a wait, and every try is held, charged and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.errors import HaltError, InsufficientBudget, ModelCallError, ModelErrorKind
from kairo_team.governance import Governor
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.retries import TRANSIENT
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from tests.models.reports import at_end, ignore

pytestmark = pytest.mark.anyio

KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)
ASK = kt.ModelRequest([kt.Message.user("one two three four five six seven eight nine ten")], max_tokens=40)
NAME = "test:scripted"


def failure(kind: ModelErrorKind = "overloaded", **more: Any) -> ModelCallError:
    return ModelCallError(kind, NAME, "no", **more)


def govern(
    *replies: Any, budget: kt.Budget | None = None, retry: kt.ModelRetry | None = None
) -> tuple[GovernedModel, Governor, list[tuple[str, int, int]], ScriptedModel]:
    """Put a scripted model under a budget; also return its governor and (outcome, held, charged) of its tries."""
    governor, model = Governor(budget or kt.Budget()), ScriptedModel(replies, name=NAME)
    tries: list[tuple[str, int, int]] = []

    def report(_: str, outcome: str, held: int, usage: kt.Usage) -> None:
        tries.append((outcome, held, usage.tokens))

    rules = CallRules(retry or kt.ModelRetry())
    return GovernedModel(model, governor, at_end(report), rules=rules), governor, tries, model


async def test_kf_b13_every_try_of_a_call_is_held_charged_and_reported() -> None:
    """B13: retries not counted: every provider attempt counts."""
    governed, governor, tries, model = govern(failure(), failure("timeout"), "A fine reply.")
    assert (await governed.complete(ASK)).text == "A fine reply."
    model.assert_complete()
    assert tries == [("error", 50, 50), ("error", 50, 50), ("ok", 50, 13)]
    assert (governor.usage.tokens, governor.held.tokens) == (113, 0)


async def test_kf_b13_tries_of_one_call_are_events_of_the_run_and_use_its_budget() -> None:
    model = ScriptedModel([failure(), failure("connection"), "A fine reply."], name=NAME)
    recorder = EventRecorder()
    runtime = kt.Runtime(models={"openai:m": model}, subscribers=[recorder])
    agent = kt.MiniAgent("openai:m", settings={"max_tokens": 40})
    result = await kt.run(kt.Team("desk", [kt.Member("writer", agent)]), "Write.", runtime=runtime)
    assert (result.check().output, result.outcomes[0].attempts) == ("A fine reply.", 1)
    calls = recorder.of(kt.events.ModelCalled)
    assert [call.outcome for call in calls] == ["error", "error", "ok"]
    assert sum(call.usage.tokens for call in calls) == result.usage.tokens
    recorder.assert_lawful()


@pytest.mark.parametrize("kind", KINDS)
async def test_only_what_passes_by_itself_is_tried_again(kind: ModelErrorKind) -> None:
    governed, _, tries, model = govern(*[failure(kind)] * 3, "Fine.")
    with pytest.raises(ModelCallError) as caught:
        await governed.complete(ASK)
    assert caught.value.kind == kind
    assert len(tries) == len(model.calls) == (3 if kind in TRANSIENT else 1)


@pytest.mark.parametrize("error", [ConnectionError("lost"), TimeoutError("slow"), ValueError("bad")])
async def test_errors_that_do_not_say_what_they_are_are_not_tried_again(error: Exception) -> None:
    governed, governor, tries, _ = govern(error, "Fine.")
    with pytest.raises(type(error)):
        await governed.complete(ASK)
    assert (tries, governor.usage.tokens) == ([("error", 50, 50)], 50)


async def test_a_try_that_the_provider_refused_costs_nothing_and_is_reported() -> None:
    governed, governor, tries, _ = govern(failure("rate_limited", unspent=True), "A fine reply.")
    await governed.complete(ASK)
    assert tries == [("error", 50, 0), ("ok", 50, 13)]
    assert governor.usage.tokens == 13


async def test_the_budget_ends_the_tries() -> None:
    governed, governor, tries, model = govern(*[failure()] * 9, budget=kt.Budget(120), retry=kt.ModelRetry(retries=8))
    with pytest.raises(HaltError) as halt:
        await governed.complete(ASK)
    assert halt.value.reason is kt.HaltReason.TOKEN_BUDGET_EXCEEDED
    assert (governor.usage.tokens, len(model.calls)) == (120, 3), "the last one with what was left"
    assert tries[-1] == ("error", 20, 20)


async def test_a_retry_that_does_not_fit_now_is_refused_and_holds_nothing() -> None:
    governed, governor, _, model = govern(failure(unspent=True), "Fine.", budget=kt.Budget(100))

    async def take_what_comes_back() -> None:
        await anyio.sleep(0.01)
        governor.reserve(tokens=50)

    async with anyio.create_task_group() as group:
        group.start_soon(take_what_comes_back)
        with governor.reserve(tokens=45), pytest.raises(InsufficientBudget):
            await governed.complete(ASK)
    assert (len(model.calls), governor.held.tokens) == (1, 50)


async def test_a_kill_while_it_waits_is_noticed_before_the_next_try() -> None:
    governed, governor, _, model = govern(failure(), "Fine.")

    async def kill() -> None:
        await anyio.sleep(0.1)
        governor.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        with pytest.raises(HaltError):
            await governed.complete(ASK)
    assert len(model.calls) == 1


async def test_the_wait_holds_neither_budget_nor_a_place_in_the_limit() -> None:
    governor, seen = Governor(kt.Budget(tokens=60)), list[int]()
    replies: Iterator[ModelCallError | str] = iter([failure(unspent=True), "Fine.", "Fine."])

    def answer(_: kt.ModelRequest) -> str:
        reply = next(replies)
        if isinstance(reply, str):
            return reply
        raise reply

    limits = kt.Runtime(model_limits={"*": kt.ModelLimit(concurrency=1)}).call_rules.limits
    rules = CallRules(kt.ModelRetry(backoff=10), limits)
    governed = GovernedModel(FunctionModel(answer), governor, ignore, rules=rules)
    began = anyio.current_time()

    async def another() -> None:
        await anyio.sleep(1)
        seen.append(governor.held.tokens)
        await governed.complete(ASK)
        seen.append(int(anyio.current_time() - began))

    async with anyio.create_task_group() as group:
        group.start_soon(governed.complete, ASK)
        group.start_soon(another)
    assert seen == [0, 1]


# ---------------------------------------------------------------- how long is waited


async def waited(retry: kt.ModelRetry, *errors: ModelCallError) -> float:
    governed, *_ = govern(*errors, "Fine.", retry=retry)
    began = anyio.current_time()
    await governed.complete(ASK)
    return anyio.current_time() - began


async def test_kf_t23_waits_double_with_jitter_up_to_the_longest() -> None:
    """T23: retries at once, no backoff."""
    retry = kt.ModelRetry(retries=5, backoff=1.0, backoff_max=4.0)
    times = {await waited(retry, *[failure()] * 5) for _ in range(20)}
    assert all(0.5 * 15 <= time <= 15 for time in times)  # 1 + 2 + 4 + 4 + 4
    assert len(times) > 10


async def test_the_provider_is_given_the_time_it_asks_for() -> None:
    retry = kt.ModelRetry(backoff=0.5, backoff_max=30)
    assert 20 <= await waited(retry, failure("rate_limited", retry_after=20.0)) <= 20.5


@pytest.mark.parametrize("asked", [30.1, float("inf"), float("nan")])
async def test_a_provider_that_asks_for_more_than_the_longest_wait_is_not_asked_again(asked: float) -> None:
    governed, _, tries, _ = govern(failure("rate_limited", retry_after=asked, unspent=True), "Fine.")
    began = anyio.current_time()
    with pytest.raises(ModelCallError):
        await governed.complete(ASK)
    assert (len(tries), anyio.current_time()) == (1, began)


@given(
    st.integers(1, 2000),
    st.floats(0, 100),
    st.floats(0, 100),
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
)
def test_every_pause_is_a_time_that_can_be_slept(tries: int, backoff: float, most: float, asked: float | None) -> None:
    retry = kt.ModelRetry(retries=10**6, backoff=backoff, backoff_max=most)
    pause = retry.pause(tries, failure(retry_after=asked))
    assert pause is None or 0 <= pause <= most + 1
    if asked is not None and 0 <= asked <= most:
        assert pause is not None
        assert pause >= asked


async def test_no_retries_is_a_setting() -> None:
    governed, _, tries, _ = govern(failure(), "Fine.", retry=kt.ModelRetry(retries=0))
    with pytest.raises(ModelCallError):
        await governed.complete(ASK)
    assert len(tries) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: kt.ModelRetry(retries=-1),
        lambda: kt.ModelRetry(backoff=-0.1),
        lambda: kt.ModelRetry(backoff_max=float("inf")),
        lambda: kt.Runtime(model_retry=3),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_none_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"ModelRetry"):
        make()
