"""tokencap: an OpenAI client wrapped with a limit of tokens, its network replaced.

Without tiktoken, which downloads its tables, it takes a prompt's tokens to be a quarter of its characters.
"""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace

import openai
import tokencap

from benchmarks.peers.experiment import LIMIT, PROMPT, QUESTION, REPLY, Provider, at_once, main

MODEL = "gpt-4o-mini"


class FakeClient(openai.AsyncOpenAI):
    """A client that reaches the provider of the experiment instead of a network."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(api_key="none")
        self._fake = provider

    @property
    def chat(self) -> SimpleNamespace:  # type: ignore[override]  # the one resource that is called here
        """Chat completions, answered by the provider."""
        return SimpleNamespace(completions=SimpleNamespace(create=self._create))

    async def _create(self, *, max_tokens: int | None = None, **_: object) -> SimpleNamespace:
        made = await self._fake.answer(max_tokens)
        return SimpleNamespace(usage=SimpleNamespace(prompt_tokens=PROMPT, completion_tokens=made))


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider = Provider()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it keeps its ledger in the current folder
        client = tokencap.wrap(FakeClient(provider), limit=LIMIT, quiet=True)

        async def call() -> None:
            question = {"role": "user", "content": QUESTION}
            await client.chat.completions.create(model=MODEL, max_tokens=REPLY, messages=[question])

        await at_once(width, call, (tokencap.BudgetExceededError,))
        tokencap.teardown()
    return provider.billed


if __name__ == "__main__":
    main("tokencap", spend)
