"""How a model call is admitted: held before it is made, clamped to what is left, settled with the truth."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from kairo_team.budget import Budget, Usage
from kairo_team.errors import MissingExtra, ModelUnavailable
from kairo_team.governance.pricing import FREE, PriceBook

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.contracts import ChatModel
    from kairo_team.governance.governor import Governor, Reservation
    from kairo_team.governance.pricing import Tariff
    from kairo_team.models.chat_model import ModelRequest, ModelResponse

DEFAULT_MAX_TOKENS: Final = 4096
"""Tokens held for a reply when neither the request nor the model says how long it may get."""
_PER_MESSAGE: Final = 16
_PER_REQUEST: Final = 32
"""Tokens a provider may add around each message and each request (roles, separators, tool preambles)."""

CallOutcome = Literal["ok", "error", "unknown"]
Report = Callable[[str, CallOutcome, int, Usage], None]
"""Told of every call: model name, outcome, tokens held, usage."""


def prompt_bound(request: ModelRequest) -> int:
    """Return a safe upper bound of a request's prompt tokens: no tokenizer makes more tokens than UTF-8 bytes."""
    text = sum(len(message.text.encode("utf-8", "surrogatepass")) for message in request.messages)
    schema = len(repr(request.output_schema).encode()) if request.output_schema else 0
    return text + schema + _PER_MESSAGE * len(request.messages) + _PER_REQUEST


class GovernedModel:
    """A chat model whose every call is held on a governor, clamped, settled and reported."""

    __slots__ = ("_governor", "_model", "_prices", "_report")

    def __init__(self, model: ChatModel, governor: Governor, report: Report, prices: PriceBook | None = None) -> None:
        self._model = model
        self._governor = governor
        self._report = report
        self._prices = prices or PriceBook()

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raises `HaltError` or `InsufficientBudget` instead of overspending.

        Raises `UnpricedModel` when dollars are limited and nobody knows what the call costs. A call that fails or is
        cancelled on its way is charged what was held for it: the provider may have answered.
        """
        self._governor.can_proceed()
        tariff = self._tariff(request)
        prompt = await self._count(request)
        wanted = request.max_tokens or getattr(self._model, "max_output_tokens", None) or DEFAULT_MAX_TOKENS
        dollars = tariff.most(prompt, wanted)
        least = Budget(prompt + 1, tariff.most(prompt, 1) if dollars else None)
        hold = await self._governor.hold(tokens=prompt + wanted, dollars=dollars, minimum=least)
        with hold:
            most = min(wanted, hold.tokens - prompt)
            if hold.dollars < dollars:
                most = _affordable(tariff, prompt, most, hold.dollars)
            response = await self._call(replace(request, max_tokens=most), hold)
            return self._settle(hold, response, tariff)

    async def _call(self, request: ModelRequest, hold: Reservation) -> ModelResponse:
        try:
            return await self._model.complete(request)
        except (ModelUnavailable, MissingExtra):
            hold.release()
            raise
        except Exception:
            self._report(self.name, "error", hold.tokens, _all_of(hold))
            raise

    def _settle(self, hold: Reservation, response: ModelResponse, tariff: Tariff) -> ModelResponse:
        """Book what the call used and return the reply with its dollars: the provider's own say, else the tariff's."""
        usage = response.usage
        if usage is None:
            self._report(self.name, "unknown", hold.tokens, _all_of(hold))
            return response  # leaving the reservation unsettled charges all of it
        if not usage.dollars:
            usage = replace(usage, dollars=tariff.cost(usage, response.billing))
        hold.settle(usage.prompt_tokens, usage.completion_tokens, usage.dollars)
        self._report(self.name, "ok", hold.tokens, usage)
        return replace(response, usage=usage)

    async def _count(self, request: ModelRequest) -> int:
        count = getattr(self._model, "count_tokens", None)
        return int(await count(request)) if count is not None else prompt_bound(request)

    def _tariff(self, request: ModelRequest) -> Tariff:
        """Return what the call is priced by; without a price it is free where nobody limits dollars."""
        tariff = self._prices.of(self._model, request.settings)
        if tariff is None and self._governor.remaining.dollars is not None:
            raise self._prices.refusal(self._model)
        return tariff or FREE


def _affordable(tariff: Tariff, prompt: int, most: int, dollars: Decimal) -> int:
    """Return how long the reply may get, from 1 up to `most` tokens, to cost no more than `dollars` in any case."""
    return 1 + bisect_right(range(2, most + 1), dollars, key=lambda completion: tariff.most(prompt, completion))


def _all_of(hold: Reservation) -> Usage:
    """Return what is charged when nobody knows what the call used."""
    return Usage(prompt_tokens=hold.tokens, dollars=hold.dollars)
