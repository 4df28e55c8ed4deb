"""What model calls cost: exact, held at the most a call can cost, settled at what it did cost."""

from __future__ import annotations

import dataclasses
import decimal
import json
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.budget import PICODOLLARS
from kairo_team.governance.pricing import PriceBook, Tariff
from kairo_team.messages import PLAIN, Billing
from kairo_team.testing import FunctionModel

BOOK = PriceBook()
MILLION = 1_000_000

amounts = st.decimals(min_value=0, max_value=1000, places=12)
counts = st.integers(0, 10**7)


@st.composite
def prices(draw: st.DrawFn) -> kt.Price:
    maybe = st.none() | amounts
    return kt.Price(
        draw(amounts),
        draw(amounts),
        cached_input=draw(maybe),
        cache_write=draw(maybe),
        cache_write_1h=draw(maybe),
        request=draw(amounts),
    )


@st.composite
def billings(draw: st.DrawFn, most: int = 10**7) -> Billing:
    """Any cached tokens, also more than the prompt has."""
    tokens = st.integers(0, most)
    return Billing(draw(tokens), draw(tokens), draw(tokens))


def exact(price: kt.Price, usage: kt.Usage, billing: Billing) -> Fraction:
    """Price a call whose cached tokens fit its prompt, in fractions."""
    cached = billing.cached_tokens + billing.cache_write_tokens + billing.cache_write_1h_tokens
    parts = [
        (usage.prompt_tokens - cached, price.input),
        (billing.cached_tokens, price.cached_input),
        (billing.cache_write_tokens, price.cache_write),
        (billing.cache_write_1h_tokens, price.cache_write_1h),
        (usage.completion_tokens, price.output),
    ]
    return sum((Fraction(rate) * tokens / MILLION for tokens, rate in parts), Fraction(price.request))


# ---------------------------------------------------------------- a price


def test_a_price_is_dollars_per_million_tokens_and_per_request() -> None:
    price = kt.Price(0.25, 2, cached_input="0.025", cache_write="0.3", cache_write_1h="0.5", request="0.01")
    usage = kt.Usage(1000, 500)
    assert price.cost(usage) == Decimal("0.01125")  # 1000 x 0.25 + 500 x 2 millionths, and the request
    assert price.cost(usage, Billing(600)) == Decimal("0.011115")
    assert price.cost(usage, Billing(600, 300, 100)) == Decimal("0.011155")


def test_no_price_is_free_and_what_is_not_named_costs_what_the_prompt_costs() -> None:
    assert kt.Price().cost(kt.Usage(10**6, 10**6)) == 0
    price = kt.Price(3, 4)
    assert price == kt.Price(3, 4, cached_input=3, cache_write=3, cache_write_1h=3, request=0)
    assert kt.Price(3, cache_write=5).cache_write_1h == 5


@pytest.mark.parametrize("field", ["input", "output", "cached_input", "cache_write", "cache_write_1h", "request"])
@pytest.mark.parametrize("amount", [-1, "-0.01", float("nan"), float("inf"), "cheap", True, [1]])
def test_a_price_that_is_no_amount_is_refused_by_its_name(field: str, amount: Any) -> None:
    with pytest.raises(ValueError, match=rf"Price\.{field} must be"):
        kt.Price(**{field: amount})


def test_a_price_is_a_frozen_value() -> None:
    price = kt.Price(1, 2)
    assert price == kt.Price("1.0", 2.0)
    assert hash(price) == hash(kt.Price(1, 2))
    with pytest.raises(AttributeError):
        price.input = Decimal(0)  # type: ignore[misc]  # that is the point


@given(prices(), counts, counts, billings(10**6))
def test_kf_b11_the_cost_of_a_call_is_exact_and_rounded_up_once(
    price: kt.Price, prompt: int, completion: int, billing: Billing
) -> None:
    """B11: floats: exact-limit sums differ by order."""
    usage = kt.Usage(prompt + 3 * 10**6, completion)
    truth = exact(price, usage, billing) * PICODOLLARS
    assert price.cost(usage, billing) * PICODOLLARS == -(-truth.numerator // truth.denominator)


def test_the_applications_decimal_context_changes_nothing() -> None:
    price = kt.Price("0.123456", "7.654321", request="0.0123456789")
    usage = kt.Usage(1_234_567, 7_654_321)
    before = price.cost(usage), BOOK.of("openai:gpt-5-mini").cost(usage)  # type: ignore[union-attr]
    with decimal.localcontext(prec=2):
        assert (price.cost(usage), BOOK.of("openai:gpt-5-mini").cost(usage)) == before  # type: ignore[union-attr]


@given(prices(), counts, counts, counts, counts, billings())
def test_nothing_a_call_can_turn_out_to_be_costs_more_than_its_hold(
    price: kt.Price, prompt: int, completion: int, less: int, fewer: int, billing: Billing
) -> None:
    """The law of pricing: the bound before a call is never below the truth after it."""
    held = price.most(prompt, completion)
    assert price.cost(kt.Usage(max(0, prompt - less), max(0, completion - fewer)), billing) <= held


@pytest.mark.parametrize("field", ["cached_tokens", "cache_write_tokens", "cache_write_1h_tokens"])
@pytest.mark.parametrize("count", [-1, 0.5, True, None])
def test_a_billing_counts_tokens(field: str, count: Any) -> None:
    with pytest.raises(ValueError, match=rf"Billing\.{field} must be a whole number >= 0"):
        Billing(**{field: count})


# ---------------------------------------------------------------- whose price counts


class Unpriced:
    """A model that nobody knows the price of."""

    name = "mine:model"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return kt.ModelResponse("text", usage=kt.Usage(10, 10))


def test_an_exact_name_goes_before_patterns_and_those_in_the_order_given() -> None:
    one, two, three = kt.Price(1), kt.Price(2), kt.Price(3)
    book = PriceBook({"openai:*": one, "openai:gpt-5-mini": two, "*": three})
    assert book.of("openai:gpt-5-mini") is two
    assert book.of("openai:gpt-5") is one
    assert book.of("anthropic:claude-haiku-4-5") is three


def test_the_table_goes_before_the_models_own_price_and_that_before_the_library() -> None:
    model = FunctionModel(lambda _: "text", name="openai:gpt-5-mini", dollars_per_token="0.5")
    usage = kt.Usage(2, 2)

    def cost(table: dict[str, kt.Price]) -> Decimal:
        tariff = PriceBook(table).of(model)
        assert tariff is not None
        return tariff.cost(usage)

    assert cost({}) == 2
    assert cost({"openai:gpt-5-mini": kt.Price(MILLION, MILLION)}) == 4
    assert cost({"anthropic:*": kt.Price(MILLION, MILLION)}) == 2


@pytest.mark.parametrize("amount", [-1, float("nan"), None, "much"])
def test_a_models_own_price_that_is_no_amount_is_refused(amount: Any) -> None:
    model = FunctionModel(lambda _: "text")
    model.price = lambda usage: amount  # type: ignore[method-assign]
    tariff = BOOK.of(model)
    assert tariff is not None
    with pytest.raises(ValueError, match="the model's own price must be"):
        tariff.most(1, 1)


def test_the_embedded_model_is_free() -> None:
    tariff = BOOK.of("local:smollm2")
    assert tariff is not None
    assert tariff.most(10**6, 10**6) == 0
    assert BOOK.problem("local:smollm2") is None


def test_the_embedded_model_can_be_given_a_price_like_any_other() -> None:
    assert PriceBook({"local:*": kt.Price(1)}).of("local:smollm2") == kt.Price(1)


@pytest.mark.parametrize("name", ["gpt-5-mini", "", 7, None])
def test_a_table_names_models_as_they_are_named(name: Any) -> None:
    with pytest.raises(ValueError, match=f"'provider:name' or a pattern such as 'openai:\\*', not for {name!r}"):
        kt.Runtime(prices={name: kt.Price(1)})


@pytest.mark.parametrize("price", [0.25, "free", None, {"input": 1}])
def test_a_table_holds_prices(price: Any) -> None:
    with pytest.raises(ValueError, match=r"the price of 'openai:x' must be a kt\.Price, such as kt\.Price\(0\.25, 2\)"):
        kt.Runtime(prices={"openai:x": price})


def test_a_table_is_copied() -> None:
    table = {"mine:model": kt.Price(1)}
    runtime = kt.Runtime(prices=table)
    table.clear()
    assert runtime.prices.of("mine:model") == kt.Price(1)


def test_a_problem_names_the_model_and_what_to_do() -> None:
    problem = BOOK.problem("mine:model")
    assert problem is not None
    assert problem == BOOK.problem(Unpriced())
    assert problem.startswith(
        "the price of model 'mine:model' is unknown and the budget limits dollars: give its price,"
    )
    assert "Runtime(prices={'mine:model': kt.Price(input=..., output=...)})" in problem
    assert problem.endswith("or let it count as free, BudgetPolicy(allow_unpriced=True)")
    assert PriceBook({"mine:*": kt.Price()}).problem("mine:model") is None


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.governance.pricing.find_spec", lambda _name: None)
    problem = BOOK.problem("openai:gpt-5-mini")
    assert problem is not None
    assert "dollars: install the price library (pip install 'kairo-team[prices]'), give its price" in problem


def test_a_policy_lets_unknown_prices_count_as_free_and_known_ones_stay() -> None:
    book = PriceBook({"mine:dear": kt.Price(1)}).under(kt.BudgetPolicy(allow_unpriced=True))
    tariff = book.of("mine:model")
    assert tariff is not None
    assert tariff.most(10**6, 10**6) == 0
    assert book.problem("mine:model") is None
    assert book.of("mine:dear") == kt.Price(1)
    assert PriceBook().under(kt.BudgetPolicy()).of("mine:model") is None


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_allow_unpriced_is_true_or_false(value: Any) -> None:
    with pytest.raises(ValueError, match=r"BudgetPolicy\.allow_unpriced must be True or False"):
        kt.BudgetPolicy(allow_unpriced=value)


# ---------------------------------------------------------------- the price library


@pytest.fixture
def _library() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")


def listed(name: str, **settings: str) -> Tariff:
    tariff = BOOK.of(name, settings)
    assert tariff is not None, name
    return tariff


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    ("name", "cost", "cached"),
    [
        ("openai:gpt-5-mini", "0.00125", "0.001025"),
        ("openai-chat:gpt-5-mini", "0.00125", "0.001025"),
        ("anthropic:claude-haiku-4-5", "0.0035", "0.0026"),
        ("google:gemini-2.5-flash", "0.00155", "0.00128"),
    ],
)
def test_the_models_people_use_are_priced(name: str, cost: str, cached: str) -> None:
    """As listed when this was written; a model whose price changes since needs new numbers here."""
    assert listed(name).cost(kt.Usage(1000, 500)) == Decimal(cost)
    assert listed(name).cost(kt.Usage(1000, 500), Billing(1000)) == Decimal(cached)
    assert BOOK.problem(name) is None


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    "name", ["openai:gpt-99", "nobody:gpt-5-mini", "openai", "openai:", ":x", "openai:text-embedding-3-small", "a:b:c"]
)
def test_kf_b12_what_the_library_does_not_price_has_no_price(name: str) -> None:
    """B12: unknown model priced $0: a dollar limit that never binds. Half a price, prompts only, is none either."""
    assert BOOK.of(name) is None


@pytest.mark.usefixtures("_library")
def test_above_its_threshold_a_long_prompt_is_charged_by_the_dearer_tier() -> None:
    tariff = listed("google:gemini-2.5-pro")
    assert tariff.cost(kt.Usage(200_000, 10)) == Decimal("0.2501")
    assert tariff.cost(kt.Usage(200_001, 10)) == Decimal("0.5001525")
    assert tariff.most(200_001, 10) == Decimal("0.5001525")
    assert tariff.most(100, 10) < Decimal("0.001")


@pytest.mark.usefixtures("_library")
def test_a_price_for_each_request_is_added() -> None:
    tariff = listed("perplexity:sonar")
    assert tariff.cost(kt.Usage(1000, 1000)) == Decimal("0.014")
    assert tariff.cost(kt.Usage(0, 0)) == Decimal("0.012")


@pytest.mark.usefixtures("_library")
def test_what_is_written_to_the_cache_costs_more_and_is_held() -> None:
    tariff = listed("anthropic:claude-haiku-4-5", anthropic_cache="1h")
    usage = kt.Usage(1000, 0)
    assert [tariff.cost(usage, each) for each in (PLAIN, Billing(0, 1000), Billing(0, 0, 1000))] == [
        Decimal("0.001"),
        Decimal("0.00125"),
        Decimal("0.002"),
    ]
    assert tariff.most(1000, 0) == Decimal("0.002")
    assert listed("anthropic:claude-haiku-4-5").most(1000, 0) == Decimal("0.00125")


@pytest.mark.usefixtures("_library")
def test_a_dearer_service_is_held_where_it_is_asked_for_and_charged_where_it_was_given() -> None:
    usage, priority = kt.Usage(0, MILLION), Billing(served={"service_tier": "priority", "finish_reason": "stop"})
    tariff = listed("openai:gpt-5-mini", openai_service_tier="auto")
    assert tariff.cost(usage) == 2
    assert tariff.cost(usage, priority) == Decimal("3.6")
    assert tariff.most(0, MILLION) == Decimal("3.6")
    assert listed("openai:gpt-5-mini", temperature="0").most(0, MILLION) == 2


@pytest.mark.usefixtures("_library")
def test_newer_prices_of_the_library_count_from_the_next_call_on() -> None:
    from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot
    from genai_prices.types import ModelPrice

    usage = kt.Usage(0, MILLION)
    assert [listed("openai:gpt-5-mini").cost(usage) for _ in range(2)] == [2, 2]
    newer = DataSnapshot(deepcopy(get_snapshot().providers), from_auto_update=True)
    _, model = newer.find_provider_model("gpt-5-mini", None, "openai", None)
    model.prices = ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(3))
    set_custom_snapshot(newer)
    try:
        assert listed("openai:gpt-5-mini").cost(usage) == 3
    finally:
        set_custom_snapshot(None)
    assert listed("openai:gpt-5-mini").cost(usage) == 2


def every_listing() -> Iterator[tuple[str, Any]]:
    """Name a model for every set of prices there is in the library, with what it charges for other services."""
    from genai_prices.data_snapshot import get_snapshot

    seen: set[str] = set()
    for provider in get_snapshot().providers:
        for model in provider.models:
            listing = f"{model.prices} {model.price_variants}"
            if listing not in seen:
                seen.add(listing)
                yield f"{provider.id}:{model.id}", model.price_variants or ()


@pytest.mark.sampled
@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("settings", [{}, {"extra_body": ""}], ids=["plain", "anything"])
def test_for_every_listing_no_call_costs_more_than_its_hold(settings: dict[str, str]) -> None:
    """With settings that may ask for anything: every tier, every service, every split of the prompt."""
    priced = 0
    for name, variants in every_listing():
        tariff = BOOK.of(name, settings)
        if tariff is None:
            continue
        priced += 1
        served: list[dict[str, str]] = [{}, *(variant.when for variant in variants)] if settings else [{}]
        prompt = 300_001
        held = tariff.most(prompt, 5000)
        for billing in (Billing(), Billing(prompt), Billing(0, prompt), Billing(0, 0, prompt if settings else 0)):
            for how in served:
                usage = kt.Usage(prompt, 5000)
                assert tariff.cost(usage, dataclasses.replace(billing, served=how)) <= held, name
        assert tariff.cost(kt.Usage(prompt // 3, 700)) <= held, name
    assert priced > 300


@pytest.mark.usefixtures("_library")
def test_for_every_listing_the_cost_is_the_librarys_own() -> None:
    from genai_prices import Usage, calc_price

    for name, _ in every_listing():
        tariff = BOOK.of(name)
        if tariff is None:
            continue
        provider, _, model = name.partition(":")
        for prompt, cached, completion in ((10, 0, 10), (900_000, 7, 1)):
            tokens = Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=completion)
            theirs = calc_price(tokens, model, provider_id=provider)
            ours = tariff.cost(kt.Usage(prompt, completion), Billing(cached))
            assert 0 <= ours - theirs.total_price < Decimal("1e-12"), (name, theirs)


LAZY = """
import json, sys
import kairo_team as kt
from kairo_team.governance.pricing import PriceBook

kt.Runtime(prices={"mine:*": kt.Price(1)}).prices.of("mine:model")
before = sorted(sys.modules)
PriceBook().of("openai:gpt-5-mini")
print(json.dumps([before, sorted(sys.modules)]))
"""


@pytest.mark.usefixtures("_library")
def test_the_library_is_loaded_when_a_price_is_looked_up_there() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], check=True, capture_output=True, text=True)
    before, after = json.loads(done.stdout)
    assert "genai_prices" not in before
    assert "genai_prices" in after


@pytest.mark.usefixtures("_library")
def test_prices_are_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import genai_prices
    import genai_prices.update_prices

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("prices were to be downloaded")

    monkeypatch.setattr(genai_prices.update_prices.UpdatePrices, "start", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert listed("openai:gpt-5-mini").cost(kt.Usage(1, 1)) > 0
