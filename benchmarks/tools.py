"""How much the tool pipeline costs where no guard, guardrail or limit of tools is set.

In units of one plain check-and-record pair, as in `benchmarks.governor`: the cost of the pipeline around one call of a
tool that does nothing. For information, the same for a typed function, whose arguments are checked, and that against
the bare call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from benchmarks.governor import WIDE, Work, plain_pair, ratio
from benchmarks.table import Row
from kairo_team.governance import Governor
from kairo_team.tools import Tool, ToolPipeline, as_tool

ARGUMENTS = {"query": "tides", "limit": 3}


async def found(arguments: Mapping[str, Any]) -> Any:
    """Do next to nothing, as a tool made by hand."""
    return arguments["query"]


async def search(query: str, limit: int = 5) -> str:
    """Do next to nothing, as a typed function."""
    return query if limit else ""


def bare_calls(rounds: int) -> None:
    """Call the function itself."""

    async def call() -> object:
        return await search(**ARGUMENTS)  # type: ignore[arg-type]  # as a model gives them

    _repeat(call, rounds)


def piped_calls(rounds: int) -> None:
    """Call a tool through a pipeline without policies."""
    pipeline, tool = ToolPipeline(Governor(WIDE)), Tool("search", found)
    _repeat(lambda: pipeline.call(tool, ARGUMENTS), rounds)


def typed_calls(rounds: int) -> None:
    """Call a typed function through a pipeline without policies."""
    pipeline, tool = ToolPipeline(Governor(WIDE)), as_tool(search)
    _repeat(lambda: pipeline.call(tool, ARGUMENTS), rounds)


def _repeat(call: Callable[[], Awaitable[object]], rounds: int) -> None:
    async def main() -> None:
        for _ in range(rounds):
            await call()

    anyio.run(main)


def _many(work: Work, unit: Work) -> float:
    """Compare so many rounds that the start of the event loop is nothing beside them."""
    return ratio(work, unit, rounds=2000, turns=25)


def rows() -> list[Row]:
    """Measure; section 7 of the governance page limits the first."""
    return [
        Row("tool pipeline with no policies", _many(piped_calls, plain_pair), 60),
        Row("tool pipeline, of a typed function", _many(typed_calls, plain_pair), None, "its arguments are checked"),
        Row("tool pipeline, against the bare call", _many(typed_calls, bare_calls), None, "of a typed function"),
    ]


def main() -> None:
    """Print the figures."""
    for row in rows():
        limit = f"(at most {row.limit:g} x)" if row.limit else f"({row.note})"
        print(f"{row.what:40} {row.measured:5.1f} x  {limit}")


if __name__ == "__main__":
    main()
