"""kairo-team: `MiniAgent.run` alone, and a team of one under limits on tokens, dollars and loops."""

from __future__ import annotations

from decimal import Decimal

import kairo_team as kt
from benchmarks.peers.turns.experiment import ANSWER, GOAL, INSTRUCTIONS, look, main, suspend

BUDGET = kt.Budget(tokens=100_000, dollars=10, loops=10)
USAGE = kt.Usage(700, 20)


class Model:
    """Call the tool, then answer."""

    name = "m:m"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Reply after one suspension."""
        await suspend()
        if any(message.role == "tool" for message in request.messages):
            return kt.ModelResponse(ANSWER, usage=USAGE, model="m")
        call = kt.ToolCall("call-1", "look", {"port": "Oslo"})
        return kt.ModelResponse("", tool_calls=[call], usage=USAGE, model="m")

    def price(self, usage: kt.Usage) -> Decimal:
        """Ask a dollar for a million tokens."""
        return Decimal(usage.tokens) / 1_000_000


agent = kt.MiniAgent(Model(), tools=[kt.tool(look)])
team = kt.Team("desk", [kt.Member(kt.Role("desk", instructions=INSTRUCTIONS), agent)])


async def alone() -> str:
    """Run the agent without a team."""
    return (await agent.run(GOAL, budget=BUDGET)).text


async def in_a_team() -> str:
    """Run a team of one."""
    result = (await kt.run(team, GOAL, budget=BUDGET)).check()
    return str(result.output)


if __name__ == "__main__":
    main("kairo-team", {"alone": alone, "team": in_a_team})
