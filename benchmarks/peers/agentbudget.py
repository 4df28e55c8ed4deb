"""agentbudget: calls wrapped in one async session with a limit in dollars, at a tenth of a cent a token."""

from __future__ import annotations

from types import SimpleNamespace

import agentbudget

from benchmarks.peers.experiment import LIMIT, PRICE, PROMPT, REPLY, Provider, at_once, main

MODEL = "fake"


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider = Provider()
    agentbudget.register_model(MODEL, PRICE * 1_000_000, PRICE * 1_000_000)

    async def complete() -> SimpleNamespace:
        made = await provider.answer(REPLY)
        return SimpleNamespace(model=MODEL, usage=SimpleNamespace(prompt_tokens=PROMPT, completion_tokens=made))

    # Its loop detection is another feature: the same model may be called as often as the money allows.
    budget = agentbudget.AgentBudget(max_spend=LIMIT * PRICE, max_repeated_calls=1_000_000)
    async with budget.async_session() as session:

        async def call() -> None:
            if session.would_exceed((PROMPT + REPLY) * PRICE):
                raise agentbudget.BudgetExhausted(LIMIT * PRICE, session.spent)
            await session.wrap_async(complete())

        await at_once(width, call, (agentbudget.BudgetExhausted,))
    return provider.billed


if __name__ == "__main__":
    main("agentbudget", spend)
