"""Prices from the data that ships with `genai-prices` (extra `prices`); nothing is downloaded.

A listing may have other prices for longer prompts, for other service tiers, and for times of the day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kairo_team.budget import to_dollars, to_picodollars
from kairo_team.governance.pricing import Price
from kairo_team.messages import PLAIN

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, PriceCalculation, TieredPrices

    from kairo_team.budget import Usage
    from kairo_team.messages import Billing

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


def installed() -> bool:
    """Return whether the library is installed; loads nothing."""
    return find_spec("genai_prices") is not None


def find(name: str, settings: Mapping[str, Any]) -> ListedPrice | None:
    """Return the current price of `provider:model`; None without the library.

    Also None unless the library has a price for both prompt and reply text.
    """
    provider, _, model = name.partition(":")
    if not model or not installed():
        return None
    from genai_prices import Usage, calc_price

    now = datetime.now(UTC)

    def look_up(served: Mapping[str, str]) -> PriceCalculation:
        return calc_price(Usage(), model, provider_id=provider, genai_request_timestamp=now, price_context=dict(served))

    try:
        found = look_up({})
    except LookupError:
        return None
    if _rate(found.model_price, _INPUT, _ANY) is None or _rate(found.model_price, _OUTPUT, _ANY) is None:
        return None
    if any(word in setting for setting, given in settings.items() if given is not False for word in _MAY_COST_MORE):
        variants = [look_up(variant.when) for variant in found.model.price_variants or ()]
        possible = [_tiers(each.model_price) for each in (found, *variants)]
    else:
        possible = [_tiers(found.model_price, kept_1h=False)]
    return ListedPrice(tuple(possible), lambda served: _tiers(look_up(served).model_price))


def listed_window(name: str) -> int | None:
    """Return the most tokens of prompt and reply of `provider:model`; None: unknown."""
    provider, _, model = name.partition(":")
    if not model or not installed():
        return None
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model, provider_id=provider).model.context_window
    except LookupError:
        return None


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """The tariff of a listed model, as of the look-up."""

    possible: tuple[Tiers, ...]
    """The price lists that the provider may apply, given the call's settings."""
    charged: Callable[[Mapping[str, str]], Tiers]
    """Returns the price list for how the provider served the call."""

    def most(self, prompt: int, completion: int) -> Decimal:
        """Return the highest possible charge for a prompt up to that length."""
        return max(price.most(prompt, completion) for tiers in self.possible for price in _reached(tiers, prompt))

    def cost(self, usage: Usage, billing: Billing = PLAIN) -> Decimal:
        """Return the charge, by the length of the prompt and how the call was served."""
        *_, price = _reached(self.charged(billing.served), usage.prompt_tokens)
        return price.cost(usage, billing)


def _reached(tiers: Tiers, prompt: int) -> Iterator[Price]:
    """Yield the prices that can apply to a prompt up to that length; the last applies to exactly that length."""
    return (price for above, price in tiers if above < prompt)


def _tiers(prices: ModelPrice, *, kept_1h: bool = True) -> Tiers:
    """Turn a listing into prices by prompt length; `kept_1h=False` if no setting asks for an hour of caching."""
    starts = {_ANY}
    for key in (*_INPUT, *_OUTPUT, *_CACHED, *_CACHE_WRITE, *_CACHE_WRITE_1H):
        starts.update(tier.start for tier in getattr(getattr(prices, key, None), "tiers", ()))
    return tuple((above, _price(prices, above, kept_1h=kept_1h)) for above in sorted(starts))


def _price(prices: ModelPrice, above: int, *, kept_1h: bool) -> Price:
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
    return max((_at(value, above) for value in listed), default=None)


def _at(value: Decimal | TieredPrices, above: int) -> Decimal:
    """Return the rate for a prompt longer than `above`."""
    if isinstance(value, Decimal):
        return value
    # Beyond a tier's start the whole call is charged at that tier.
    return next((tier.price for tier in reversed(value.tiers) if tier.start <= above), value.base)
