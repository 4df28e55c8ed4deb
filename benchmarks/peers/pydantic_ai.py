"""pydantic-ai: runs that share one `RunUsage` under `UsageLimits`, tokens counted before each request."""

from __future__ import annotations

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, UsageLimitExceeded, UsageLimits
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, RunUsage

from benchmarks.peers.experiment import LIMIT, PROMPT, QUESTION, REPLY, Provider, at_once, main


class CountingModel(FunctionModel):
    """A function model that can count its prompt, which the library then does before each request."""

    async def count_tokens(self, *_args: object, **_settings: object) -> RequestUsage:
        """Count the prompt."""
        return RequestUsage(input_tokens=PROMPT)


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider, usage = Provider(), RunUsage()
    limits = UsageLimits(total_tokens_limit=LIMIT, count_tokens_before_request=True)

    async def reply(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = await provider.answer((info.model_settings or {}).get("max_tokens"))
        return ModelResponse([TextPart("word " * made)], usage=RequestUsage(input_tokens=PROMPT, output_tokens=made))

    agent = Agent(CountingModel(reply), model_settings={"max_tokens": REPLY})

    async def call() -> None:
        await agent.run(QUESTION, usage=usage, usage_limits=limits)

    await at_once(width, call, (UsageLimitExceeded,))
    return provider.billed


if __name__ == "__main__":
    main("pydantic-ai-slim", spend)
