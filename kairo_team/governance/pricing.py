"""Prices of model calls: from the user's table, from the model itself, or from the price library.

Money is exact: prices are whole picodollars per million tokens, and the price of a call is rounded up once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import Usage, picodollars, to_dollars, to_picodollars
from kairo_team.errors import UnpricedModel
from kairo_team.messages import PLAIN, Billing
from kairo_team.plugin_calls import plain_failure_of

if TYPE_CHECKING:
    from kairo_team.budget import BudgetPolicy, Money
    from kairo_team.contracts import ChatModel

_MILLION: Final = 10**6


class Tariff(Protocol):
    """The current prices of one model's calls; one object prices a call both before and after it is made."""

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
        dearest = max(self.input, self.cached_input, self.cache_write, self.cache_write_1h)
        return self._sum((prompt, dearest), (completion, self.output))

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
        self._table = dict(table or {})
        self._otherwise: Price | None = None
        for name, price in self._table.items():
            _check_entry(name, price)

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
        price = self._entry(name)
        if price is not None:
            return price
        own: Callable[[Usage], Money] | None = getattr(model, "price", None)
        if own is not None:
            return OwnPrice(own)
        if name.startswith("local:"):
            return FREE
        from kairo_team.governance import price_library

        return price_library.find(name, settings or {}) or self._otherwise

    def problem(self, model: str | ChatModel) -> str | None:
        """Return the advice for a model without a known price under a limit in dollars; None if it has a price."""
        return None if self.of(model) is not None else str(self.refusal(model))

    @staticmethod
    def refusal(model: str | ChatModel) -> UnpricedModel:
        """Build the refusal of a model without a known price."""
        from kairo_team.governance import price_library

        return UnpricedModel(_name(model), library=price_library.installed())

    def _entry(self, name: str) -> Price | None:
        if name in self._table:
            return self._table[name]
        return next((price for key, price in self._table.items() if fnmatchcase(name, key)), None)


def _name(model: str | ChatModel) -> str:
    return model if isinstance(model, str) else model.name


def _check_entry(name: object, price: object) -> None:
    if not isinstance(name, str) or not (":" in name or "*" in name):
        raise ValueError(f"prices are given for 'provider:name' or a pattern such as 'openai:*', not for {name!r}")
    if not isinstance(price, Price):
        raise ValueError(f"the price of {name!r} must be a kt.Price, such as kt.Price(0.25, 2), not {price!r}")
