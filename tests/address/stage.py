"""A member that is one async function, and clients of real libraries in front of its address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.testing import FunctionModel

Use = Callable[[ModelAddress], Awaitable[Any]]


async def work(
    use: Use, model: Any, budget: kt.Budget | None = None, **team: Any
) -> tuple[kt.TeamResult, list[Exception]]:
    """Let a member use an address for one task; return the result and what the client raised."""
    raised: list[Exception] = []

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with context.address(model) as address:
            try:
                return str(await use(address))
            except Exception as error:  # noqa: BLE001 - whatever the library raises
                raised.append(error)
                return "the library hid it"
        return "never"

    result = await kt.run(kt.Team("t", [kt.Member("m", member)], **team), "Explain tides.", budget=budget)
    return result, raised


def says(*replies: str | kt.ModelResponse, **options: Any) -> FunctionModel:
    """A model that gives these replies, the last one again and again."""
    left = list(replies)

    def answer(_: kt.ModelRequest) -> str | kt.ModelResponse:
        return left.pop(0) if len(left) > 1 else left[0]

    return FunctionModel(answer, **options)
