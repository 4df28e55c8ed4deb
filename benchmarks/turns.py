"""What an agent's run of two turns costs, alone, in a team and on disk; and a pydantic-ai agent with and without us.

    python -m benchmarks.turns

The model waits for one turn of the event loop, calls a tool, then answers with 3 kB; the prompt has 2 kB. The model has
a listed price. The unit of the first rows is the two calls of the model and the call of the tool, made by hand.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import kairo_team as kt
from benchmarks.table import Row, compare, draw, silence_runs
from kairo_team.agents import PydanticAIAgent

RUNS: Final = 100
REPEATS: Final = 5
PROMPT: Final = "Explain tides. " * 140
REPLY: Final = "The moon pulls the sea. " * 125
BUDGET: Final = kt.Budget(tokens=1_000_000, dollars=100, loops=100)
ALONE: Final = "MiniAgent alone"


async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: the rise of the sea"


class Model:
    """Calls the tool once, then answers."""

    name = "openai:gpt-5-mini"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Answer one request."""
        await asyncio.sleep(0)
        if any(message.role == "tool" for message in request.messages):
            return kt.ModelResponse(REPLY, usage=kt.Usage(700, 700))
        return kt.ModelResponse("", [kt.ToolCall("1", "look_up", {"word": "tide"})], usage=kt.Usage(600, 30))


def works(folder: Path) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return one run of each kind, by name; the unit first."""
    model = Model()
    agent = kt.MiniAgent(model, tools=[look_up])
    team = kt.Team("desk", [kt.Member("writer", agent)])
    on_disk = kt.Runtime(journal=kt.SqliteJournal(folder / "runs.db"))

    async def by_hand() -> str:
        asked = [kt.Message.user(PROMPT)]
        (call,) = (await model.complete(kt.ModelRequest(asked))).tool_calls
        asked += [kt.Message.assistant("", [call]), kt.Message.tool(call.id, await look_up("tide"))]
        return (await model.complete(kt.ModelRequest(asked))).text

    return {
        "by hand": by_hand,
        ALONE: lambda: agent.run(PROMPT, budget=BUDGET),
        "MiniAgent in a team": lambda: kt.run(team, PROMPT, budget=BUDGET),
        "MiniAgent in a team, on disk": lambda: kt.run(team, PROMPT, budget=BUDGET, runtime=on_disk),
    }


def wrapped() -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a run of a pydantic-ai agent by itself, and one of the same agent governed, alone and in a team."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(0)
        if any(part.part_kind == "tool-return" for message in messages for part in message.parts):
            return ModelResponse([TextPart(REPLY)])
        return ModelResponse([ToolCallPart("look_up", {"word": "tide"})])

    agent = Agent(FunctionModel(answer), tools=[look_up])
    governed = PydanticAIAgent(agent)
    team = kt.Team("desk", [kt.Member("writer", governed)])
    return {
        "a pydantic-ai agent": lambda: agent.run(PROMPT),
        "the same, governed, alone": lambda: governed.run(PROMPT, budget=kt.Budget(tokens=1_000_000)),
        "the same, governed, in a team": lambda: kt.run(team, PROMPT, budget=kt.Budget(tokens=1_000_000)),
    }


def measure() -> list[Row]:
    """Measure the runs one after another; each group against its first."""
    with tempfile.TemporaryDirectory() as folder:
        groups = [works(Path(folder)), *([wrapped()] if find_spec("pydantic_ai") is not None else [])]
        return [row for group in groups for row in _rows(group)]


def _rows(group: dict[str, Callable[[], Awaitable[object]]]) -> list[Row]:
    for work in group.values():
        _repeat(work, 3)  # templates, validators
    unit = next(iter(group))
    timings = compare({name: partial(_repeat, work, RUNS) for name, work in group.items()}, REPEATS)
    return [
        Row(f"two turns: {name}, against {unit}", timing.ratio, None, f"{timing.seconds / RUNS * 1e6:.0f} us a run")
        for name, timing in timings.items()
        if name != unit
    ]


def _repeat(work: Callable[[], Awaitable[object]], times: int) -> None:
    async def main() -> None:
        for _ in range(times):
            await work()

    asyncio.run(main())


if __name__ == "__main__":
    silence_runs()
    print(draw(measure()))
