"""Dollars at the door of a model: priced before the call, refused without a price, booked as the truth after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import HaltError, InsufficientBudget, UnpricedModel
from kairo_team.governance import Governor
from kairo_team.governance.pricing import PriceBook
from kairo_team.messages import Billing
from kairo_team.models.governed_model import GovernedModel
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from tests.models.reports import at_end

pytestmark = pytest.mark.anyio

ASK = kt.ModelRequest([kt.Message.user("one two three four five six seven eight nine ten")], max_tokens=20)
A_CENT_A_TOKEN = kt.Price(10_000, 10_000)
TEXT = " ".join(["word"] * 20)


class Model:
    """A model that counts its prompt and knows nothing of money; each call takes a second."""

    def __init__(self, *replies: kt.ModelResponse, name: str = "mine:model") -> None:
        self.name = name
        self.asked: list[kt.ModelRequest] = []
        self._replies = list(replies)

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return len(request.messages[0].text.split())

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self.asked.append(request)
        await anyio.sleep(1)
        assert request.max_tokens is not None
        return self._replies.pop(0) if self._replies else kt.ModelResponse("", usage=kt.Usage(10, request.max_tokens))


Reports = list[tuple[str, int, kt.Usage]]


def govern(
    model: Any, budget: kt.Budget, table: dict[str, kt.Price] | None = None, allow_unpriced: bool = False
) -> tuple[GovernedModel, Governor, Reports]:
    """Put a model under a budget; also return its governor and what is reported of its calls."""
    reports: Reports = []
    governor = Governor(budget)

    def report(name: str, outcome: str, held: int, usage: kt.Usage) -> None:
        reports.append((outcome, held, usage))

    prices = PriceBook(table).under(kt.BudgetPolicy(allow_unpriced=allow_unpriced))
    return GovernedModel(model, governor, at_end(report), prices), governor, reports


def spent(governor: Governor) -> kt.Usage:
    """Return what was spent but for the time it took."""
    return replace(governor.status()[0], seconds=0.0)


def dollars(governor: Governor) -> Decimal:
    return spent(governor).dollars


# ---------------------------------------------------------------- the limit holds


@pytest.mark.parametrize("width", [1, 4, 16, 64])
@pytest.mark.parametrize("price", [A_CENT_A_TOKEN, kt.Price(10_000, 30_000, request="0.05")])
async def test_a_limit_in_dollars_is_never_passed_at_any_fan_out(width: int, price: kt.Price) -> None:
    """Replies as long as they may be, prices not divisible: all is used up to the last reply that could be paid."""
    model = Model()
    governed, governor, _ = govern(model, kt.Budget(dollars="2.50"), {"mine:*": price})

    async def use_up() -> None:
        for _ in range(40):
            try:
                await governed.complete(ASK)
            except (HaltError, InsufficientBudget):
                return

    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            for _ in range(width):
                group.start_soon(use_up)
    truth = sum(price.cost(kt.Usage(10, request.max_tokens or 0)) for request in model.asked)
    assert dollars(governor) == truth
    assert Decimal(2) < truth <= Decimal("2.50")
    assert governor.held.dollars == 0


async def test_a_reply_is_capped_to_what_can_be_paid() -> None:
    """Ten cents for the prompt and twelve left: twelve tokens of reply at a cent, six at two."""
    for output, cap in ((10_000, 12), (20_000, 6), (130_000, None)):
        model = Model()
        governed, governor, _ = govern(model, kt.Budget(dollars="0.22"), {"*": kt.Price(10_000, output)})
        if cap is None:
            with pytest.raises(HaltError, match="dollar_budget_exceeded"):
                await governed.complete(ASK)
            assert not model.asked
            assert dollars(governor) == 0
        else:
            await governed.complete(ASK)
            assert model.asked[0].max_tokens == cap
            assert dollars(governor) == Decimal("0.22")


async def test_a_known_price_is_booked_without_a_limit_too() -> None:
    governed, governor, reports = govern(Model(), kt.Budget(), {"mine:model": A_CENT_A_TOKEN})
    reply = await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.30")
    assert reports == [("ok", 30, kt.Usage(10, 20, Decimal("0.30")))]
    assert reply.usage == kt.Usage(10, 20, Decimal("0.30"))


# ---------------------------------------------------------------- the truth afterwards


async def test_cached_tokens_are_held_at_the_highest_price_and_charged_at_what_they_cost() -> None:
    price = kt.Price(10_000, 10_000, cached_input=1_000, cache_write=20_000)
    replies = [
        kt.ModelResponse("", usage=kt.Usage(10, 0), billing=Billing(cached_tokens=10)),
        kt.ModelResponse("", usage=kt.Usage(10, 0), billing=Billing(cached_tokens=4, cache_write_tokens=6)),
    ]
    held: list[Decimal] = []
    model = Model(*replies)
    governed, governor, _ = govern(model, kt.Budget(dollars=1), {"*": price})
    async with anyio.create_task_group() as group:
        group.start_soon(governed.complete, ASK)
        await anyio.sleep(0.5)
        held.append(governor.held.dollars or Decimal(0))
    assert held == [Decimal("0.40")]  # ten tokens as if written to the cache, and twenty of reply
    assert dollars(governor) == Decimal("0.01")
    await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.01") + Decimal("0.124")


async def test_a_reply_that_reports_its_own_dollars_is_believed() -> None:
    reply = kt.ModelResponse("", usage=kt.Usage(10, 20, Decimal("0.007")))
    governed, governor, reports = govern(Model(reply), kt.Budget(dollars=1), {"*": A_CENT_A_TOKEN})
    assert (await governed.complete(ASK)).usage == reply.usage
    assert dollars(governor) == Decimal("0.007")
    assert reports[0][2].dollars == Decimal("0.007")


async def test_kf_b17_a_reply_without_usage_is_charged_the_dollars_held_for_it() -> None:
    """B17: usage missing in a reply: the cap silently inactive."""
    governed, governor, reports = govern(Model(kt.ModelResponse("text")), kt.Budget(dollars=1), {"*": A_CENT_A_TOKEN})
    await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.30")
    assert reports == [("unknown", 30, kt.Usage(30, 0, Decimal("0.30")))]


async def test_a_call_that_fails_is_charged_the_dollars_held_for_it() -> None:
    def fail(request: kt.ModelRequest) -> str:
        raise ConnectionError("the reply was lost")

    governed, governor, reports = govern(FunctionModel(fail, dollars_per_token="0.01"), kt.Budget(dollars=1))
    with pytest.raises(ConnectionError):
        await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.30")
    assert reports == [("error", 30, kt.Usage(30, 0, Decimal("0.30")))]


async def test_more_than_was_held_is_booked_and_ends_the_spending() -> None:
    """A provider that serves a dearer tier than was asked for: the truth counts, and nothing follows."""
    governed, governor, _ = govern(
        Model(kt.ModelResponse("", usage=kt.Usage(90, 20))), kt.Budget(dollars=1), {"*": A_CENT_A_TOKEN}
    )
    await governed.complete(ASK)
    assert dollars(governor) == Decimal("1.10")
    with pytest.raises(HaltError, match="dollar_budget_exceeded"):
        await governed.complete(ASK)


# ---------------------------------------------------------------- without a price


PATHS: dict[str, Callable[[], Governor]] = {
    "its own limit": lambda: Governor(kt.Budget(dollars=1)),
    "a limit above": lambda: Governor(kt.Budget(dollars=1)).carve("member").carve("task", kt.Budget(tokens=100)),
    "nothing at all": lambda: Governor(kt.Budget(dollars=0)),
}


@pytest.mark.parametrize("governor", [pytest.param(make, id=name) for name, make in PATHS.items()])
async def test_kf_b12_a_model_without_a_price_is_refused_under_a_dollar_limit_before_the_call(
    governor: Callable[[], Governor],
) -> None:
    """B12: unknown model priced $0: a dollar limit that never binds."""
    model, limited = Model(), governor()
    reports: list[Any] = []
    governed = GovernedModel(model, limited, at_end(lambda *report: reports.append(report)))
    with pytest.raises(UnpricedModel, match="the price of model 'mine:model' is unknown and the budget limits dollars"):
        await governed.complete(ASK)
    assert (model.asked, reports) == ([], [])
    assert (spent(limited), limited.held.tokens, limited.halted) == (kt.Usage(), 0, None)


async def test_without_a_dollar_limit_a_model_without_a_price_runs_at_0_dollars() -> None:
    governed, governor, _ = govern(Model(), kt.Budget(tokens=100))
    await governed.complete(ASK)
    assert spent(governor) == kt.Usage(10, 20)


async def test_opted_out_a_model_without_a_price_is_booked_at_0_dollars() -> None:
    model = Model()
    governed, governor, _ = govern(model, kt.Budget(dollars=1), allow_unpriced=True)
    await governed.complete(ASK)
    assert (len(model.asked), spent(governor)) == (1, kt.Usage(10, 20))


async def test_opted_out_a_known_price_still_counts() -> None:
    governed, governor, _ = govern(Model(), kt.Budget(dollars=1), {"mine:*": A_CENT_A_TOKEN}, allow_unpriced=True)
    await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.30")


async def test_under_a_limit_of_0_dollars_only_free_models_run() -> None:
    free, dear = kt.Price(), kt.Price(output=1)
    governed, _, _ = govern(Model(), kt.Budget(dollars=0), {"*": free})
    assert (await governed.complete(ASK)).usage == kt.Usage(10, 20)
    governed, _, _ = govern(Model(), kt.Budget(dollars=0), {"*": dear})
    with pytest.raises(HaltError, match="dollar_budget_exceeded"):
        await governed.complete(ASK)


async def test_without_the_price_library_the_refusal_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.governance.pricing.find_spec", lambda _name: None)
    model = Model(name="openai:gpt-5-mini")
    governed, _, _ = govern(model, kt.Budget(dollars=1))
    with pytest.raises(UnpricedModel, match=r"pip install 'kairo-team\[prices\]'") as caught:
        await governed.complete(ASK)
    assert (caught.value.model, model.asked) == ("openai:gpt-5-mini", [])


async def test_with_the_price_library_a_providers_model_is_priced() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    governed, governor, _ = govern(Model(name="openai:gpt-5-mini"), kt.Budget(dollars=1))
    await governed.complete(ASK)
    assert dollars(governor) == Decimal("0.0000425")


async def test_settings_that_ask_for_a_dearer_service_are_held_for_it() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    held: list[Decimal] = []
    for name in ("temperature", "openai_service_tier"):
        governed, _, reports = govern(Model(kt.ModelResponse(""), name="openai:gpt-5-mini"), kt.Budget(dollars=1))
        await governed.complete(replace(ASK, settings={name: 1}))
        held += [usage.dollars for _, _, usage in reports]
    assert held == [Decimal("0.0000425"), Decimal("0.0000765")]


async def test_the_embedded_model_runs_under_a_limit_in_dollars() -> None:
    governed, governor, _ = govern(Model(name="local:smollm2"), kt.Budget(dollars="0.01"))
    await governed.complete(ASK)
    assert spent(governor) == kt.Usage(10, 20)


# ---------------------------------------------------------------- through a run


def team(model: Any, members: int = 1) -> kt.Team:
    return kt.Team("team", [kt.Member(f"m{number}", kt.MiniAgent(model)) for number in range(members)])


async def run(
    model: Any, budget: kt.Budget, *, members: int = 1, subscribers: Sequence[Any] = (), **settings: Any
) -> kt.TeamResult:
    """Run a team whose members each have one task, all at once."""
    prices = settings.pop("prices", None)
    tasks = [kt.Task(f"t{number}", "do", member=f"m{number}") for number in range(members)]
    config = kt.TeamConfig(budget=budget, budget_policy=kt.BudgetPolicy(**settings))
    runtime = kt.Runtime(prices=prices, subscribers=subscribers)
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(tasks), config=config)
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    return await kt.run(team(model, members), request, coordinator=coordinator, runtime=runtime)


@pytest.mark.parametrize("known_before", [True, False])
async def test_kf_b12_a_run_without_prices_ends_with_a_sentence_that_helps(*, known_before: bool) -> None:
    """B12, as a user meets it: with an agent that names its model, and with one that asks for it on its way."""
    model = Model()

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(model).complete(ASK)).text

    members = [kt.Member("m", kt.MiniAgent(model) if known_before else agent)]
    result = await kt.run(kt.Team("team", members), "goal", budget=kt.Budget(dollars=1))
    assert (result.status, model.asked) == (kt.TeamStatus.FAILED, [])
    assert "Runtime(prices={'mine:model': kt.Price(input=..., output=...)})" in (result.error or "")
    assert result.usage.dollars == 0


async def test_allow_unpriced_of_the_runs_policy_lets_it_run() -> None:
    result = await run(Model(kt.ModelResponse("text", usage=kt.Usage(1, 1))), kt.Budget(dollars=1), allow_unpriced=True)
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.usage.dollars == 0


async def test_the_runtimes_prices_are_booked_told_and_handed_on() -> None:
    recorder = EventRecorder()
    result = await run(
        Model(kt.ModelResponse("text", usage=kt.Usage(10, 20))),
        kt.Budget(dollars="60"),
        prices={"mine:model": A_CENT_A_TOKEN},
        subscribers=[recorder],
    )
    assert result.check().usage.dollars == Decimal("0.30")
    assert recorder.of(kt.events.ModelCalled)[0].usage.dollars == Decimal("0.30")
    assert result["t0"].usage.dollars == Decimal("0.30")


async def test_members_side_by_side_never_spend_more_dollars_than_the_team_has() -> None:
    """B01, in dollars: what each of them could afford alone, all of them together cannot."""
    model = FunctionModel(lambda request: " ".join(["word"] * (request.max_tokens or 0)), dollars_per_token="0.001")
    result = await run(model, kt.Budget(dollars="3"), members=8)
    assert sum((model.price(kt.Usage(*count)) for count in counted(model)), Decimal(0)) == result.usage.dollars
    assert 0 < result.usage.dollars <= 3


def counted(model: FunctionModel) -> list[tuple[int, int]]:
    """What the calls really had: the words of their prompts, and replies as long as they might be."""
    return [
        (sum(len(message.text.split()) for message in request.messages), request.max_tokens or 0)
        for request in model.calls
    ]


async def test_kf_b13_every_try_is_paid_for() -> None:
    """B13: retries not counted: three tries, three times the dollars."""
    reply = kt.ModelResponse("", usage=kt.Usage(1, 1))
    governed, governor, _ = govern(
        ScriptedModel([reply, ConnectionError("lost"), reply], dollars_per_token=1), kt.Budget(dollars=1000)
    )
    await governed.complete(ASK)
    with pytest.raises(ConnectionError):
        await governed.complete(ASK)
    await governed.complete(ASK)
    assert dollars(governor) == 2 + 30 + 2
