"""The law of slices when deliveries are lost: whoever dies, nothing is overspent, forgotten or kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from kairo_team.budget import Budget, Usage
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.governance.governor import Governor
from kairo_team.governance.ledger import COMMITTED, limits_of
from kairo_team.governance.slices import Ask, Borrower, Grant, Granter, cover_tool_call
from kairo_team.testing import run_in_virtual_time

TASKS = 3


class Attempt:
    """An attempt at a task, by one delivery after the other; letters of each come in order, and late."""

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self.granter = Granter(governor)
        self.tokens = 0
        """What the provider charges, by all deliveries."""
        self.tool_calls = 0
        self.ended = False
        self.deliver_anew()

    def deliver_anew(self) -> None:
        spent = self.granter.spent
        before = Usage(
            spent.prompt_tokens, spent.completion_tokens, loops=self.granter.repeats, tool_calls=self.tool_calls
        )
        self.letters: list[Any] = []
        self.holds: list[tuple[Any, bool]] = []
        """What is in flight, and whether it is a tool call."""
        put = self.letters
        self.borrower = Borrower(
            "task", self.granter.first(), self._ask, lambda *report: put.append(report), spent=before
        )

    async def _ask(self, ask: Ask, on_wait: Callable[[], object] | None) -> Grant:
        self.read()
        return await self.granter.grant(ask, on_wait)

    def read(self) -> None:
        """Let the granter read the letters that were sent so far."""
        for letter in self.letters:
            self.granter.report(*letter)
        self.letters.clear()

    async def call(self, tokens: int) -> None:
        with anyio.move_on_after(1):  # of virtual time: what waits then waits for ever
            hold = await self.borrower.governor.hold(tokens=tokens)
            self.holds.append((hold, False))

    async def use_tool(self, _amount: int) -> None:
        await cover_tool_call(self.borrower.governor)
        self.holds.append((self.borrower.governor.reserve(tool_calls=1), True))

    async def step(self, _amount: int) -> None:
        self.borrower.governor.pre_step()

    async def settle(self, tokens: int) -> None:
        if self.holds:
            hold, is_tool = self.holds.pop(0)
            if is_tool:
                hold.settle(tool_calls=1)
                self.tool_calls += 1
            else:
                used = min(tokens, hold.tokens)
                hold.settle(used)
                self.tokens += used

    async def lose(self, _amount: int) -> None:
        """The worker is gone: calls in flight are in doubt, and charged what was held."""
        self.tokens += sum(hold.tokens for hold, is_tool in self.holds if not is_tool)
        self.tool_calls += sum(is_tool for _, is_tool in self.holds)
        loops = self.borrower.governor.usage.loops
        self.granter.lose(Usage(self.tokens, loops=loops, tool_calls=self.tool_calls))
        try:
            self.deliver_anew()
        except HaltError:  # what the lost one is charged leaves nothing to begin with
            self.governor.close()
            self.ended = True

    async def end(self, tokens: int) -> None:
        while self.holds:
            await self.settle(tokens)
        self.read()
        self.granter.end(self.borrower.governor.usage)
        self.governor.close()
        self.ended = True


ACTS = ("call", "call", "use_tool", "step", "settle", "settle", "read", "lose", "end")
Act = tuple[int, str, int]


@given(
    st.builds(Budget, tokens=st.integers(0, 200), loops=st.none() | st.integers(0, 5), tool_calls=st.integers(0, 3)),
    st.lists(st.integers(0, 60), min_size=TASKS, max_size=TASKS),
    st.lists(st.tuples(st.integers(0, TASKS - 1), st.sampled_from(ACTS), st.integers(1, 90)), max_size=40),
)
@settings(deadline=None, max_examples=settings().max_examples * 5)
def test_whoever_dies_nothing_is_overspent_forgotten_or_kept(
    limit: Budget, guarantees: list[int], acts: list[Act]
) -> None:
    run_in_virtual_time(_play, limit, guarantees, acts)


async def _play(limit: Budget, guarantees: list[int], acts: list[Act]) -> None:
    team = Governor(limit, name="team")
    attempts: list[Attempt] = []
    for number, tokens in enumerate(guarantees):
        try:
            attempts.append(Attempt(team.carve(f"task-{number}", guarantee=Budget(tokens=tokens))))
        except InsufficientBudget:
            continue
    for number, act, amount in acts:
        if number < len(attempts) and not attempts[number].ended:
            await _do(attempts[number], act, amount)
            _check(team)
    for attempt in attempts:
        if not attempt.ended:
            await attempt.end(10)
        _check(team)
    assert team.usage.tokens == sum(one.tokens for one in attempts)
    assert team.usage.tool_calls == sum(one.tool_calls for one in attempts)
    assert team.held == Usage()
    assert team._node.cells[COMMITTED] == team.usage.tokens


async def _do(attempt: Attempt, act: str, amount: int) -> None:
    if act == "read":
        attempt.read()
        return
    try:
        await getattr(attempt, act)(amount)
    except (HaltError, InsufficientBudget):
        return


def _check(team: Governor) -> None:
    for dim, most in enumerate(limits_of(team.budget)):
        assert most is None or team._node.cells[COMMITTED + dim] <= most, (dim, most)
