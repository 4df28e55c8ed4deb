"""inspect-ai: generations inside one scoped `token_limit`."""

from __future__ import annotations

from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model
from inspect_ai.util import LimitExceededError, token_limit

from benchmarks.peers.experiment import LIMIT, PROMPT, QUESTION, REPLY, Provider, at_once, main

NAME = "mockllm/model"


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider = Provider()

    async def reply(_input: object, _tools: object, _choice: object, config: GenerateConfig) -> ModelOutput:
        made = await provider.answer(config.max_tokens)
        output = ModelOutput.from_content(NAME, "word " * made)
        output.usage = ModelUsage(input_tokens=PROMPT, output_tokens=made, total_tokens=PROMPT + made)
        return output

    config = GenerateConfig(max_tokens=REPLY, max_connections=width)
    model = get_model(NAME, config=config, custom_outputs=reply)

    async def call() -> None:
        await model.generate(QUESTION)

    with token_limit(LIMIT):
        await at_once(width, call, (LimitExceededError,))
    return provider.billed


if __name__ == "__main__":
    main("inspect-ai", spend)
