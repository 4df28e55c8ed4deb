"""How a model call is admitted: held before it is made, clamped to what is left, settled with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from kairo_team.budget import Budget, Usage
from kairo_team.errors import MissingExtra, ModelUnavailable, UnpricedModel

if TYPE_CHECKING:
    from kairo_team.budget import Money
    from kairo_team.contracts import ChatModel
    from kairo_team.governance.governor import Governor, Reservation
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

    __slots__ = ("_governor", "_model", "_report")

    def __init__(self, model: ChatModel, governor: Governor, report: Report) -> None:
        self._model = model
        self._governor = governor
        self._report = report

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raises `HaltError` or `InsufficientBudget` instead of overspending.

        A call that fails or is cancelled on its way is charged what was held for it: the provider may have answered.
        """
        self._governor.can_proceed()
        prompt = await self._count(request)
        wanted = request.max_tokens or getattr(self._model, "max_output_tokens", None) or DEFAULT_MAX_TOKENS
        hold = await self._governor.hold(
            tokens=prompt + wanted, dollars=self._price(prompt, wanted), minimum=Budget(tokens=prompt + 1)
        )
        with hold:
            clamped = replace(request, max_tokens=min(wanted, hold.tokens - prompt))
            response = await self._call(clamped, hold)
            self._settle(hold, response)
        return response

    async def _call(self, request: ModelRequest, hold: Reservation) -> ModelResponse:
        try:
            return await self._model.complete(request)
        except (ModelUnavailable, MissingExtra):
            hold.release()
            raise
        except Exception:
            self._report(self.name, "error", hold.tokens, Usage(prompt_tokens=hold.tokens))
            raise

    def _settle(self, hold: Reservation, response: ModelResponse) -> None:
        held = hold.tokens
        usage = response.usage
        if usage is None:
            self._report(self.name, "unknown", held, Usage(prompt_tokens=held))
            return  # leaving the reservation unsettled charges all of it
        dollars = usage.dollars or self._price(usage.prompt_tokens, usage.completion_tokens)
        hold.settle(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, dollars=dollars)
        self._report(self.name, "ok", held, usage)

    async def _count(self, request: ModelRequest) -> int:
        count = getattr(self._model, "count_tokens", None)
        return int(await count(request)) if count is not None else prompt_bound(request)

    def _price(self, prompt: int, completion: int) -> Money:
        price = getattr(self._model, "price", None)
        if price is not None:
            cost: Money = price(Usage(prompt_tokens=prompt, completion_tokens=completion))
            return cost
        if self._governor.remaining.dollars is not None:
            raise UnpricedModel(self.name)
        return 0
