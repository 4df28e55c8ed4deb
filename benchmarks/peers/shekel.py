"""shekel: a budget in dollars over everybody, at a tenth of a cent a token, and for each call one of its own below it.

Its budgets are not to be shared by concurrent tasks; each task opens its own, which is limited to what is left above.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import openai
import shekel

from benchmarks.peers.experiment import LIMIT, PRICE, PROMPT, QUESTION, REPLY, Provider, at_once, main

PRICES = {"input": 1_000 * PRICE, "output": 1_000 * PRICE}


class FakeClient(openai.AsyncOpenAI):
    """A client that reaches the provider of the experiment instead of a network."""

    def __init__(self, provider: Provider) -> None:
        self._fake = provider
        super().__init__(api_key="none")

    async def post(self, _path: str, *, body: Any, cast_to: Any, **_: Any) -> Any:
        """Answer a request for a completion."""
        made = await self._fake.answer(body["max_tokens"])
        usage = {"prompt_tokens": PROMPT, "completion_tokens": made, "total_tokens": PROMPT + made}
        return cast_to.construct(model=body["model"], usage=openai.types.CompletionUsage(**usage))


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider, numbers = Provider(), count()
    client = FakeClient(provider)

    async with shekel.budget(max_usd=LIMIT * PRICE, price_per_1k_tokens=PRICES, name="all"):

        async def call() -> None:
            async with shekel.budget(max_usd=LIMIT * PRICE, price_per_1k_tokens=PRICES, name=f"call-{next(numbers)}"):
                messages: Any = [{"role": "user", "content": QUESTION}]
                await client.chat.completions.create(model="gpt-4o-mini", max_tokens=REPLY, messages=messages)

        await at_once(width, call, (shekel.BudgetExceededError,))
    return provider.billed


if __name__ == "__main__":
    main("shekel", spend)
