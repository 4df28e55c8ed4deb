"""kairo-team: a member of a team whose callers share the budget of the run."""

from __future__ import annotations

import kairo_team as kt
from benchmarks.peers.experiment import LIMIT, PROMPT, QUESTION, REPLY, Provider, at_once, main
from kairo_team.errors import HaltError, InsufficientBudget


class FakeModel:
    """Reaches the provider."""

    name = "test:provider"

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Answer one request."""
        reply = await self._provider.answer(request.max_tokens)
        return kt.ModelResponse("word " * reply, usage=kt.Usage(PROMPT, reply))

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        """Count the words."""
        return sum(len(message.text.split()) for message in request.messages)


async def spend(width: int) -> int:
    """Return what so many callers spent."""
    provider = Provider()

    async def fan_out(_: kt.Assignment, context: kt.MemberContext) -> str:
        model = context.model(FakeModel.name)

        async def call() -> None:
            await model.complete(kt.ModelRequest([kt.Message.user(QUESTION)], max_tokens=REPLY))

        await at_once(width, call, (HaltError, InsufficientBudget))
        return "done"

    runtime = kt.Runtime(models={FakeModel.name: FakeModel(provider)})
    team = kt.Team("callers", [kt.Member("caller", fan_out)])
    await kt.run(team, "Ask.", budget=kt.Budget(tokens=LIMIT), runtime=runtime)
    return provider.billed


if __name__ == "__main__":
    main("kairo-team", spend)
