"""Prices of model calls: from the user's table, from the model itself, or from the data of `genai-prices`.

Money is exact: prices are whole picodollars per million tokens, and the price of a call is rounded up once, at the end.
A listing of `genai-prices` (extra `prices`; nothing is downloaded) may have other prices for longer prompts, for other
service tiers, and for times of the day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import BudgetPolicy, Money, Usage, picodollars, to_dollars, to_picodollars
from kairo_team.errors import UnpricedModel
from kairo_team.messages import PLAIN, Billing
from kairo_team.plugin_calls import plain_failure_of

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

    from kairo_team.contracts import ChatModel

__all__ = ["OwnPrice", "Price", "PriceBook", "Tariff"]

_MILLION: Final = 10**6


@runtime_checkable
class Tariff(Protocol):
    """The current prices of one model's calls. Contract 1.0, experimental.

    One object prices a call both before and after it is made.
    """

    def most(self, prompt: int, completion: int) -> Decimal:
        """Return the most dollars that a call of up to that many tokens can cost, however they are billed."""
        ...

    def cost(self, usage: Usage, billing: Billing = PLAIN) -> Decimal:
        """Return the cost of a finished call, in dollars."""
        ...


@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Price:
    """Prices of a model's calls, in US dollars: per million tokens, and for each request.

    `Price()` is free. Amounts are `Decimal | int | str | float`, kept exactly; fractions of a picodollar are rounded
    up. Raises `ValueError` for an amount that is negative or not finite.
    """

    input: Decimal
    """A million tokens of prompt."""
    output: Decimal
    """A million tokens of reply, thinking included."""
    cached_input: Decimal
    """A million tokens of prompt that the provider had in its cache; None takes `input`."""
    cache_write: Decimal
    """A million tokens of prompt that the provider wrote to its cache; None takes `input`."""
    cache_write_1h: Decimal
    """A million tokens of prompt that the provider caches for an hour; None takes `cache_write`."""
    request: Decimal
    """One request of any length."""

    def __init__(
        self,
        input: Money = 0,
        output: Money = 0,
        *,
        cached_input: Money | None = None,
        cache_write: Money | None = None,
        cache_write_1h: Money | None = None,
        request: Money = 0,
    ) -> None:
        cache_write = input if cache_write is None else cache_write
        amounts = {
            "input": input,
            "output": output,
            "cached_input": input if cached_input is None else cached_input,
            "cache_write": cache_write,
            "cache_write_1h": cache_write if cache_write_1h is None else cache_write_1h,
            "request": request,
        }
        for name, amount in amounts.items():
            object.__setattr__(self, name, to_dollars(to_picodollars(amount, field=f"Price.{name}")))

    def most(self, prompt: int, completion: int) -> Decimal:
        """Return the most dollars that a call of up to that many tokens can cost, with or without a cache."""
        # How the prompt will be cached is unknown before the call.
        highest = max(self.input, self.cached_input, self.cache_write, self.cache_write_1h)
        return self._sum((prompt, highest), (completion, self.output))

    def cost(self, usage: Usage, billing: Billing = PLAIN) -> Decimal:
        """Return the cost of a finished call, in dollars."""
        left = usage.prompt_tokens  # a provider may report more cached tokens than the prompt has
        parts = [(usage.completion_tokens, self.output)]
        for tokens, price in (
            (billing.cached_tokens, self.cached_input),
            (billing.cache_write_tokens, self.cache_write),
            (billing.cache_write_1h_tokens, self.cache_write_1h),
        ):
            part = min(tokens, left)
            parts.append((part, price))
            left -= part
        return self._sum((left, self.input), *parts)

    def _sum(self, *parts: tuple[int, Decimal]) -> Decimal:
        """Add tokens at their prices and the request, rounded up to the picodollar."""
        millionths = sum(tokens * picodollars(price) for tokens, price in parts)
        # `-(-a // b)` rounds up: a hold must not be a picodollar short.
        return to_dollars(-(-millionths // _MILLION) + picodollars(self.request))


FREE: Final = Price()


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """The tariff of a model that has a `price(usage)`, which must not rise for fewer tokens."""

    price: Callable[[Usage], Money]

    def most(self, prompt: int, completion: int) -> Decimal:
        """Return the model's own price of that many tokens."""
        return self.cost(Usage(prompt_tokens=prompt, completion_tokens=completion))

    def cost(self, usage: Usage, billing: Billing = PLAIN) -> Decimal:
        """Return the model's own price of the call."""
        try:
            money = self.price(usage)
        except BaseException as raised:  # noqa: BLE001 - all of it is raised
            raise plain_failure_of(raised) or raised  # noqa: B904 - it has its cause already
        return to_dollars(to_picodollars(money, field="the model's own price"))


class PriceBook:
    """Look up prices: first in the table, then a model's own `price`, then in the price library.

    In the table an exact name comes before patterns such as `openai:*`, which are tried in the order given. Models
    named `local:...` run on this machine and are free. Raises `ValueError` for an invalid table.
    """

    def __init__(self, table: Mapping[str, Price] | None = None) -> None:
        if table is not None and not isinstance(table, Mapping):
            raise ValueError(
                f"prices are given by model, such as {{'openai:gpt-5-mini': kt.Price(0.25, 2)}}, not {table!r:.80}"
            )
        self._table = dict(table or {})
        self._otherwise: Price | None = None
        for name, price in self._table.items():
            if not isinstance(name, str) or not (":" in name or "*" in name):
                raise ValueError(
                    f"prices are given for 'provider:name' or a pattern such as 'openai:*', not for {name!r}"
                )
            if not isinstance(price, Price):
                raise ValueError(f"the price of {name!r} must be a kt.Price, such as kt.Price(0.25, 2), not {price!r}")

    def under(self, policy: BudgetPolicy) -> PriceBook:
        """Return the same prices, with unknown prices counted as free if the policy allows that."""
        book = PriceBook(self._table)
        book._otherwise = FREE if policy.allow_unpriced else None
        return book

    @property
    def allows_unknown(self) -> bool:
        """Whether a model without a price counts as free."""
        return self._otherwise is not None

    def of(self, model: str | ChatModel, settings: Mapping[str, Any] | None = None) -> Tariff | None:
        """Return the current price of the model's calls; None if it is unknown.

        `settings` are the call's: some ask for a more expensive service.
        """
        name = _name(model)
        price = self._table.get(name)
        if price is None:
            price = next((one for key, one in self._table.items() if fnmatchcase(name, key)), None)
        if price is not None:
            return price
        own: Callable[[Usage], Money] | None = getattr(model, "price", None)
        if own is not None:
            return OwnPrice(own)
        if name.startswith("local:"):
            return FREE
        return listed_price(name, settings or {}) or self._otherwise

    def problem(self, model: str | ChatModel) -> str | None:
        """Return the advice for a model without a known price under a limit in dollars; None if it has a price."""
        return None if self.of(model) is not None else str(self.refusal(model))

    @staticmethod
    def refusal(model: str | ChatModel) -> UnpricedModel:
        """Build the refusal of a model without a known price."""
        return UnpricedModel(_name(model), library=lists_prices())


def _name(model: str | ChatModel) -> str:
    return model if isinstance(model, str) else model.name


_INPUT: Final = ("input_mtok", "input_text_mtok")
_OUTPUT: Final = ("output_mtok", "output_text_mtok", "output_reasoning_mtok", "output_citation_mtok")
_CACHED: Final = ("cache_read_mtok", "cache_text_read_mtok")
_CACHE_WRITE: Final = ("cache_write_mtok", "cache_write_5m_mtok", "cache_text_write_mtok", "cache_text_write_5m_mtok")
_CACHE_WRITE_1H: Final = ("cache_write_1h_mtok", "cache_text_write_1h_mtok")
"""The library's fields for prices of text; of several, the highest counts."""
_MAY_COST_MORE: Final = ("cache", "tier", "speed", "extra")
"""Words in names of settings that may ask for a more expensive service: long caching, priority, unknown fields."""

_ANY: Final = -1
"""Below the length of any prompt."""

Tiers = tuple[tuple[int, Price], ...]
"""Prices, each with the prompt length above which it applies, shortest first."""


def lists_prices() -> bool:
    """Return whether the library of prices is installed; loads nothing."""
    return find_spec("genai_prices") is not None


def listed_price(name: str, settings: Mapping[str, Any]) -> ListedPrice | None:
    """Return the current price of `provider:model`; None without the library.

    Also None unless the library has a price for both prompt and reply text.
    """
    found = _listing(name)
    if found is None:
        return None
    provider, model = found
    now, is_own = datetime.now(UTC), any(model is one for one in provider.models)

    def look_up(served: Mapping[str, str]) -> ModelPrice:
        # What another provider charges for how it served the call says nothing about this one.
        return model.get_prices(now, dict(served) if is_own else None)

    plain = look_up({})
    if _rate(plain, _INPUT, _ANY) is None or _rate(plain, _OUTPUT, _ANY) is None:
        return None
    if any(word in setting for setting, given in settings.items() if given is not False for word in _MAY_COST_MORE):
        variants = [look_up(variant.when) for variant in model.price_variants or ()]
        possible = [_tiers(each) for each in (plain, *variants)]
    else:
        possible = [_tiers(plain, kept_1h=False)]
    return ListedPrice(tuple(possible), lambda served: _tiers(look_up(served)))


def _listing(name: str) -> tuple[Provider, ModelInfo] | None:
    """Return what the library has on `provider:model`; None without it."""
    provider, _, model = name.partition(":")
    if not model or not lists_prices():
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        # Not `calc_price`, which would price a usage too.
        return get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


def listed_window(name: str) -> int | None:
    """Return the most tokens of prompt and reply of `provider:model`; None: unknown."""
    found = _listing(name)
    return None if found is None else found[1].context_window


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """The tariff of a listed model, as of the look-up."""

    possible: tuple[Tiers, ...]
    """The price lists that the provider may apply, given the call's settings."""
    charged: Callable[[Mapping[str, str]], Tiers]
    """Returns the price list for how the provider served the call."""

    def most(self, prompt: int, completion: int) -> Decimal:
        """Return the highest possible charge for a prompt up to that length."""
        # All tiers up to this length: a shorter prompt may cost more per token, and the provider counts its own tokens.
        return max(price.most(prompt, completion) for tiers in self.possible for price in _reached(tiers, prompt))

    def cost(self, usage: Usage, billing: Billing = PLAIN) -> Decimal:
        """Return the charge, by the length of the prompt and how the call was served."""
        *_, price = _reached(self.charged(billing.served), usage.prompt_tokens)
        return price.cost(usage, billing)


def _reached(tiers: Tiers, prompt: int) -> Iterator[Price]:
    """Yield the prices that can apply to a prompt up to that length; the last applies to exactly that length."""
    return (price for above, price in tiers if above < prompt)


_known: Final[dict[tuple[int, bool], tuple[ModelPrice, Tiers]]] = {}
"""The prices of the last listings, by the listing's identity, and the listing itself, which keeps the identity."""
_MOST_KNOWN: Final = 256


def _tiers(prices: ModelPrice, *, kept_1h: bool = True) -> Tiers:
    """Turn a listing into prices by prompt length; `kept_1h=False` if no setting asks for an hour of caching."""
    key = (id(prices), kept_1h)
    known = _known.get(key)
    if known is None or known[0] is not prices:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        starts = {_ANY}
        for field in (*_INPUT, *_OUTPUT, *_CACHED, *_CACHE_WRITE, *_CACHE_WRITE_1H):
            starts.update(tier.start for tier in getattr(getattr(prices, field, None), "tiers", ()))
        tiers = tuple((above, _price_above(prices, above, kept_1h=kept_1h)) for above in sorted(starts))
        known = _known[key] = (prices, tiers)
    return known[1]


def _price_above(prices: ModelPrice, above: int, *, kept_1h: bool) -> Price:
    """Return the price in force for prompts just longer than `above`."""
    requests = _rate(prices, ("requests_kcount",), above) or 0
    return Price(
        _rate(prices, _INPUT, above) or 0,
        _rate(prices, _OUTPUT, above) or 0,
        cached_input=_rate(prices, _CACHED, above),
        cache_write=_rate(prices, _CACHE_WRITE, above),
        cache_write_1h=_rate(prices, _CACHE_WRITE_1H, above) if kept_1h else None,
        request=to_dollars(-(-to_picodollars(requests) // 1000)),
    )


def _rate(prices: ModelPrice, keys: tuple[str, ...], above: int) -> Decimal | None:
    """Return the highest listed rate for a prompt longer than `above`; None without a listed rate."""
    listed = [value for key in keys if (value := getattr(prices, key, None)) is not None]
    return max((_rate_beyond(value, above) for value in listed), default=None)


def _rate_beyond(value: Decimal | TieredPrices, above: int) -> Decimal:
    """Return the rate for a prompt longer than `above`."""
    if isinstance(value, Decimal):
        return value
    # Beyond a tier's start the whole call is charged at that tier.
    return next((tier.price for tier in reversed(value.tiers) if tier.start <= above), value.base)
