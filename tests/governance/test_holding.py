"""`hold`: who waits, for what, in which order, and what ends the waiting."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget, KairoError
from kairo_team.governance import Governor, Reservation

pytestmark = pytest.mark.anyio


class Callers:
    """Callers of `hold` in tasks of their own, in a known order, and what became of them."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self.group = group
        self.got: dict[str, Reservation] = {}
        self.order: list[str] = []
        self.refused: dict[str, KairoError] = {}

    async def call(self, name: str, hold: Callable[[], Awaitable[Reservation]]) -> None:
        """Start a caller and let it come as far as it can."""
        self.group.start_soon(self._hold, name, hold)
        await settled()

    async def _hold(self, name: str, hold: Callable[[], Awaitable[Reservation]]) -> None:
        try:
            self.got[name] = await hold()
        except KairoError as error:
            self.refused[name] = error
        self.order.append(name)


async def settled() -> None:
    """Let everything that can run, run; calls posted to the loop from outside included."""
    for _ in range(10):
        await checkpoint()
        await anyio.sleep(0)
    await anyio.sleep(0.002)


async def test_an_uncontended_hold_does_not_suspend() -> None:
    governor = Governor(Budget(tokens=100))
    coroutine = governor.hold(tokens=100)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert governor.held.tokens == 100


async def test_kf_b01_spent_never_passes_the_limit_at_any_fan_out() -> None:
    """B01: check, call, record, nothing held in between: 16 parallel callers under 250 tokens spent 1600."""
    team = Governor(Budget(tokens=250), name="team")
    refused = 0

    async def caller(number: int) -> None:
        nonlocal refused
        agent = team.carve(f"agent-{number}")
        try:
            agent.can_proceed()
            with await agent.hold(tokens=100) as hold:
                await anyio.sleep(0)
                assert team.held.tokens <= 250
                hold.settle(prompt_tokens=hold.tokens)
        except (HaltError, InsufficientBudget):
            refused += 1

    async with anyio.create_task_group() as group:
        for number in range(16):
            group.start_soon(caller, number)
    assert (team.status()[0].tokens, refused) == (250, 13)


async def test_kf_b18_a_call_waits_for_returns_before_it_is_refused() -> None:
    """B18: worst-case holds starved a budget with nothing spent."""
    team = Governor(Budget(tokens=100), name="team")

    async def caller() -> None:
        with await team.hold(tokens=90) as hold:
            await anyio.sleep(0)
            hold.settle(prompt_tokens=4)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(caller)
    assert (team.status()[0].tokens, team.halted) == (80, None) or team.status()[0].tokens <= 100


async def test_waiters_are_served_in_the_order_they_came() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = team.reserve(tokens=100)
    other_task = team.carve("other")
    async with anyio.create_task_group() as group:
        callers = await in_fresh_context(Callers(group))
        await callers.call("large", lambda: team.hold(tokens=80))
        await callers.call("small", lambda: other_task.hold(tokens=10))
        await callers.call("tiny", lambda: team.hold(tokens=1))
        assert callers.order == []
        first.settle(prompt_tokens=15)
        await settled()
        assert callers.order == ["large"] or set(callers.order) == {"large"}
        assert "small" not in callers.got, "it does not overtake... unless there is room for both"
        callers.got["large"].settle(prompt_tokens=1)
        await settled()
        assert callers.order == ["large", "small", "tiny"]


async def in_fresh_context(callers: Callers) -> Callers:
    return callers
