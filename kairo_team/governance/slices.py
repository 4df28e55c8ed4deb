"""Slices: the part of a budget that a borrower, such as a worker on another machine, may hold without asking.

The granter is in the process that has the budget tree. It promises the unspent guarantee of one governor, which is
already set aside on the whole path. When the borrower asks for more, the granter holds that on the path too, until the
call that needed it has ended. So a slice never exceeds what the tree allows.

Granter and borrower exchange totals since the work began: how much was spent, and how much may be spent and held.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import anyio

from kairo_team.budget import NO_USAGE, HaltReason, Usage, picodollars
from kairo_team.errors import HaltError, KairoError
from kairo_team.governance import halts
from kairo_team.governance.governor import Governor
from kairo_team.governance.holds import Waiter, holds_already, refusal, serve, wait
from kairo_team.governance.ledger import (
    ALL_DIMENSIONS,
    COMMITTED,
    DOLLARS,
    HELD_DIMENSIONS,
    LOOPS,
    NOTHING,
    TOKENS,
    TOOL_CALLS,
    USED,
    Limits,
    Node,
    Units,
    budget_of,
)

# pyright: reportPrivateUsage=false
# A slice works on the node of a governor.

_ONE_LOOP: Final[Units] = (0, 0, 1, 0)


class Ask(NamedTuple):
    """A borrower's request for more than its slice, of which it has given the unused rest back."""

    spent: Usage
    """All that the borrower has spent."""
    holding: Units
    """The amounts held for calls in flight."""
    units: Units
    """The most that the next call may use."""
    least: Units
    """The least that the next call needs."""
    loops: int
    """Iterations to grant in advance. The ask succeeds without them too."""
    waits: bool
    """Whether the ask may wait until other holds are given back."""
    number: int = 0
    """Number of the borrower's ask, from 1."""


class Grant(NamedTuple):
    """The amounts that the borrower may spend and hold, in total since its work began."""

    allowance: Units
    limit: Limits
    """The most the whole path would let the work spend, in tokens and dollars; loops and tool calls as `allowance`."""
    remaining: Limits
    """The most that the work could spend when this was granted, earlier spending included."""
    seconds: float | None
    """Seconds until the earliest deadline on the path; None without one."""
    granted: Units = NOTHING
    """Amounts granted to this call."""


class Granter:
    """Give out slices of a governor's budget, to one borrower at a time. Only `grant` and `when_granted` wait."""

    def __init__(self, governor: Governor, spent: Usage = NO_USAGE) -> None:
        """Lend the budget of `governor`; `spent` is earlier usage of the work, already booked on the governor."""
        self._governor = governor
        self._node: Node = governor._node  # noqa: SLF001 - its own kind
        self._spent = spent
        # Taken out of this tree, because the borrower counts its iterations.
        self.repeats = self._node.tree.repeats.pop(self._node, 0)
        """How many of the next iterations repeat recorded calls."""
        self._out: list[int] = [0, 0, 0, 0]
        """Amounts held on the node for the borrower."""
        self._granted: tuple[int, Units] = (0, NOTHING)
        """Number of the last granted ask, and the amounts held for that ask."""
        self._settled = 0
        """Number of the last ask that is over for the borrower."""

    @property
    def spent(self) -> Usage:
        """All usage that the borrower has reported."""
        return self._spent

    def first(self) -> Grant:
        """Return the first slice: the unspent guarantee and the first iteration.

        Raises `HaltError` if no iteration may begin, like `Governor.pre_step`.
        """
        node = self._node
        with node.tree.lock:
            halts.check(node)
            if not self.repeats:
                halts.check_begin(node)
            has_loop = node.guarantee[LOOPS] > node.cells[COMMITTED + LOOPS]
            if not has_loop and not self._out[LOOPS] and node.claim(LOOPS, 1):
                self._out[LOOPS] += 1
            return self._grant(NOTHING)

    def report(self, spent: Usage, holding: Units | None = NOTHING, asks: int | None = None) -> None:
        """Book the borrower's usage, and give back what it does not hold; give nothing back if `holding` is None.

        `asks` is the number of the last ask that was over when the borrower wrote the report, None if no ask is open.
        The grant of a later ask stays held.
        """
        node = self._node
        with node.tree.lock:
            self._book(spent)
            number, granted = self._granted
            if asks is not None:
                self._settled = max(self._settled, asks)  # an older report must not open an ask again
            if holding is not None:
                self._keep(holding if asks is None or asks >= number else _sum(holding, granted))
            serve(node)

    async def grant(self, ask: Ask, on_wait: Callable[[], object] | None = None) -> Grant:
        """Hold the requested amounts and return the larger slice; wait and raise like `Governor.hold`."""
        made = self.receive(ask)
        return await self.when_granted(ask, made, on_wait) if isinstance(made, Waiter) else made

    def receive(self, ask: Ask) -> Grant | Waiter:
        """Return the larger slice, or a waiter for that. Call in the order of the borrower's asks and reports.

        Raises like `Governor.hold`.
        """
        node = self._node
        with node.tree.lock:
            self._book(ask.spent)
            self._keep(ask.holding)
            # A borrower makes one ask at a time, so every earlier one is over.
            self._settled = ask.number - 1
            serve(node)
            if not any(ask.units):
                return self._answer(ask, NOTHING)
            halts.check(node)
            waiter = self._line_up(ask)
            if waiter.refused is None and waiter.granted is None:
                return waiter
            return self._answer(ask, waiter.outcome())

    async def when_granted(self, ask: Ask, waiter: Waiter, on_wait: Callable[[], object] | None = None) -> Grant:
        """Wait for the requested amounts and return the larger slice; raise like `Governor.hold`."""
        granted = await wait(waiter, on_wait)
        with self._node.tree.lock:
            return self._answer(ask, granted)

    def end(self, spent: Usage) -> None:
        """Book the total usage, and give everything back."""
        self.report(spent, NOTHING)

    def lose(self, charged: Usage) -> None:
        """Book `charged` for a borrower that is gone. When its work is repeated, its iterations are counted again."""
        loops, self.repeats = self._spent.loops, charged.loops
        self._granted, self._settled = (0, NOTHING), 0
        self.end(_with_loops(charged, loops))
        if loops:
            self._governor.restore(Usage(loops=loops), -1)
            self._spent = _with_loops(self._spent, 0)

    def why_halted(self, reason: HaltReason) -> KairoError | None:
        """Return why the path refuses what the borrower needed, and halt exhausted nodes; None if some is left now."""
        node = self._node
        try:
            if reason is not HaltReason.LOOP_BUDGET_EXCEEDED:
                self._governor.can_proceed()
                return None
            with node.tree.lock:
                halts.check(node)
                if node.claim(LOOPS, 1):
                    node.move(LOOPS, -1, 0)
                    return None
                halts.check_hopeless(node, _ONE_LOOP, _ONE_LOOP)
                return node.insufficient(LOOPS, 1)
        except KairoError as error:
            return error

    # -- with the lock ------------------------------------------------------------------------

    def _answer(self, ask: Ask, granted: Units) -> Grant:
        node = self._node
        # Only if it fits: the call that asks does not need it.
        loops = ask.loops if ask.loops and node.claim(LOOPS, ask.loops) else 0
        held: Units = (granted[TOKENS], granted[DOLLARS], loops, granted[TOOL_CALLS])
        before: Units = (self._out[0], self._out[1], self._out[2], self._out[3])
        self._out[:] = _sum(before, held)
        if ask.number and ask.number <= self._settled:  # the borrower no longer waits for this ask
            self._keep(before)
            serve(node)
        else:
            self._granted = (ask.number, held)
        return self._grant(granted)

    def _line_up(self, ask: Ask) -> Waiter:
        node = self._node
        waiter = Waiter(node, ask.units, ask.least)
        if ask.waits:
            waiter.decide()
        elif node.book(ask.units):
            waiter.granted = ask.units
        else:
            raise refusal(node, ask.units, ask.least)
        return waiter

    def _book(self, spent: Usage) -> None:
        """Book the usage since the last report, out of the held amounts first."""
        before, self._spent = self._spent, spent
        used = tuple(now - then for now, then in zip(_units(spent), _units(before), strict=True))
        if not any(used):
            return
        node, out = self._node, self._out
        held = [min(amount, out[dim]) if amount > 0 else 0 for dim, amount in enumerate(used)]
        completion = spent.completion_tokens - before.completion_tokens
        node.settle((held[TOKENS], held[DOLLARS], 0, held[TOOL_CALLS]), (used[0], used[1], 0, used[3]), completion)
        if node.ended is None:
            node.move(LOOPS, used[LOOPS] - held[LOOPS], used[LOOPS])
        for dim in ALL_DIMENSIONS:
            out[dim] -= held[dim]
        node.mark_overdrawn()

    def _keep(self, holding: Units) -> None:
        """Hold exactly the amounts that the borrower holds. They fit: they are part of the grants."""
        node, out = self._node, self._out
        for dim in ALL_DIMENSIONS:
            more = holding[dim] - out[dim]
            if not more:
                continue
            if node.ended is None:
                node.move(dim, more, 0)
            elif more < 0 and dim in HELD_DIMENSIONS:  # `close` has charged the hold
                node.reduce(_only(dim, -more), NOTHING)
            out[dim] = holding[dim]

    def _grant(self, granted: Units) -> Grant:
        node, out, spent = self._node, self._out, _units(self._spent)
        spare = [max(0, node.guarantee[dim] - node.cells[COMMITTED + dim]) for dim in ALL_DIMENSIONS]
        tokens, picos, loops, tool_calls = (spent[dim] + out[dim] + spare[dim] for dim in ALL_DIMENSIONS)
        rooms = [node.room(dim) for dim in ALL_DIMENSIONS]
        left = tuple(None if room is None else spent[dim] + out[dim] + room for dim, room in enumerate(rooms))
        limit = (
            _unspent(node, TOKENS, spent),
            _unspent(node, DOLLARS, spent),
            None if rooms[LOOPS] is None else loops,
            None if rooms[TOOL_CALLS] is None else tool_calls,
        )
        known = (left[0], left[1], left[2], left[3])
        return Grant((tokens, picos, loops, tool_calls), limit, known, node.seconds_left(), granted)


class Borrower:
    """The governor of work on a slice. It asks for more before it holds more than the slice."""

    def __init__(
        self,
        name: str,
        grant: Grant,
        ask: Callable[[Ask, Callable[[], object] | None], Awaitable[Grant]],
        give_back: Callable[[Usage, Units, int], object],
        *,
        clock: Callable[[], float] | None = None,
        spent: Usage = NO_USAGE,
        path: str = "",
    ) -> None:
        """Take the first slice.

        `ask` returns a larger slice or raises why it cannot; it calls its second argument before it waits.
        `give_back` reports the usage, the held amounts, and the number of the last ask that is over. `spent` is the
        usage of the same work before it was interrupted; its iterations are counted again. `path` is the granter's.
        """
        self.path = path
        limit = grant.limit
        self.governor = Governor(budget_of(limit, grant.seconds), name=name, clock=clock)
        self._node: Node = self.governor._node  # noqa: SLF001 - its own kind
        self._ask = ask
        self._give_back = give_back
        self._asking: anyio.Event | None = None
        self._behind: list[Callable[[], object]] = []
        """The `on_wait` of the calls that wait for the ask under way; called once it waits itself."""
        self._waits = False
        """Whether the ask under way waits."""
        self._asks = 0
        """Number of asks made."""
        self._own = grant.allowance
        """The guarantee, which the work may always hold."""
        self._allowance = grant.allowance
        self._grant = grant
        self._limited = tuple(most is not None for most in grant.remaining)
        self._remaining = grant.remaining
        if spent != NO_USAGE:
            self.governor.restore(_with_loops(spent, 0))
            self.governor.repeat_steps(spent.loops)
        self._node.tree.borrower = self  # last: from here on every hold asks

    def room(self, dim: int) -> int | None:
        """Return the amount of a dimension that could still be spent, as of the last grant; None is unlimited."""
        most = self._remaining[dim]
        return None if most is None else max(0, most - self._node.cells[USED + dim])

    async def cover(
        self, node: Node, units: Units, least: Units, on_wait: Callable[[], object] | None = None, *, waits: bool = True
    ) -> Units:
        """Make the slice cover the hold of a call, by an ask if necessary; return the amounts it may hold."""
        waits, tell = waits and not holds_already(node, units), _once(on_wait)
        units = self._within(node, units, least)
        # Again after each ask: another call may have taken what came.
        while self._short(units) or not self._has_loop_ahead():
            if self._asking is not None:  # another call's ask is under way
                if self._waits:
                    tell()
                self._behind.append(tell)
                try:
                    await self._asking.wait()
                finally:
                    self._behind.remove(tell)
                continue
            asked = (units[TOKENS], units[DOLLARS], 0, units[TOOL_CALLS]) if self._short(units) else NOTHING
            grant = await self._ask_for(asked, least, tell, waits=waits)
            if asked is not NOTHING:
                tokens, picos, _, tool_calls = map(min, units, grant.granted)
                return (tokens, picos, 0, tool_calls)
            break  # only an iteration in advance was missing, and the call does not need it
        return units

    async def _ask_for(self, units: Units, least: Units, on_wait: Callable[[], object], *, waits: bool) -> Grant:
        """Give back what is left, and ask for the amounts that the call needs."""
        self._asking = anyio.Event()
        self._asks += 1
        # The rest is given back with the ask: two borrowers that each keep a part would wait for one another.
        before = self._give_up_rest()
        loops = 0 if self._has_loop_ahead() else 1
        ask = Ask(self.governor.usage, self._holding(), units, least, loops, waits, self._asks)
        try:
            self._take(await self._ask(ask, partial(self._tell_waits, on_wait)), before)
        except BaseException as error:
            # The granter may or may not have granted: only the guarantee is sure.
            self._allowance = self._guaranteed()
            if not isinstance(error, Exception):  # the call is cancelled: give back what may still be granted
                self._give_back(self.governor.usage, self._holding(), self._asks)
            if isinstance(error, HaltError):  # the granter's governor or an ancestor is halted
                halts.repeat(self._node, error)
            raise
        finally:
            self._asking.set()
            self._asking, self._waits = None, False
        return self._grant

    def _tell_waits(self, on_wait: Callable[[], object]) -> None:
        self._waits = True
        for tell in (on_wait, *self._behind):
            tell()

    def settled(self) -> None:
        """Give back amounts beyond the guarantee after the call that needed them has ended. Needs the lock."""
        if self._asking is not None:  # give all of it back: other borrowers may wait for it
            self._give_up_rest()
            self._give_back(self.governor.usage, self._holding(), self._asks - 1)
            return
        own = self._guaranteed()
        if any(limited and self._allowance[dim] > own[dim] for dim, limited in enumerate(self._limited)):
            self._allowance = own
            self._give_back(self.governor.usage, self._holding(), self._asks)

    def _give_up_rest(self) -> Units:
        """Cut the slice to the spent and held amounts, but keep an iteration in advance."""
        # Guards do not wait, so the next one could not ask for an iteration.
        tokens, picos, loops, tool_calls = self._used()
        self._allowance = (tokens, picos, max(loops, self._allowance[LOOPS]), tool_calls)
        return self._allowance

    def _take(self, grant: Grant, before: Units) -> None:
        """Take a larger slice, minus what was given back since the ask; `before` is the slice at the ask."""
        self._grant, self._remaining = grant, grant.remaining
        now = _sum(self._used(), grant.granted)
        # The granter did not know of these amounts when it counted.
        given = [max(0, then - left) for then, left in zip(before, self._allowance, strict=True)]
        lent = [amount - back for amount, back in zip(grant.allowance, given, strict=True)]
        tokens, picos, loops, tool_calls = map(max, self._own, now, lent)
        self._allowance = (tokens, picos, loops, tool_calls)
        node = self._node
        with node.tree.lock:
            node.limit = grant.limit
            node.budget = budget_of(grant.limit, grant.seconds)

    def _within(self, node: Node, units: Units, least: Units) -> Units:
        """Cut the amounts to the room of the nodes in this tree, where that is enough: more could not be held."""
        cut = list(units)
        for dim in HELD_DIMENSIONS:
            room = node.room(dim) if units[dim] else None
            # The slice itself is left out, because its limit is what the ask enlarges.
            if room is not None and least[dim] <= room < units[dim] and node is not self._node:
                cut[dim] = room
        return (cut[TOKENS], cut[DOLLARS], 0, cut[TOOL_CALLS])

    def _short(self, units: Units) -> bool:
        used = self._used()
        return any(
            units[dim] and self._limited[dim] and used[dim] + units[dim] > self._allowance[dim]
            for dim in HELD_DIMENSIONS
        )

    def _has_loop_ahead(self) -> bool:
        return not self._limited[LOOPS] or self._node.cells[USED + LOOPS] < self._allowance[LOOPS]

    def _used(self) -> Units:
        tokens, picos, loops, tool_calls = self._node.cells[USED : USED + 4]
        return (tokens, picos, loops, tool_calls)

    def _holding(self) -> Units:
        """Return the held amounts, with the iterations in advance."""
        tokens, picos, _, tool_calls = self._node.held_units()
        return (tokens, picos, max(0, self._allowance[LOOPS] - self._node.cells[USED + LOOPS]), tool_calls)

    def _guaranteed(self) -> Units:
        """Return the amounts that may always be held, with the iterations in advance."""
        tokens, picos, loops, tool_calls = map(max, self._own, self._used())
        return (tokens, picos, max(loops, self._allowance[LOOPS]), tool_calls)


async def cover_tool_call(governor: Governor) -> None:
    """In a slice, ask for one more tool call before it is reserved; raise the refusal."""
    node: Node = governor._node  # noqa: SLF001 - its own kind
    if node.tree.borrower is not None:
        await node.tree.borrower.cover(node, (0, 0, 0, 1), (1, 1, 1, 1), waits=False)


def _once(call: Callable[[], object] | None) -> Callable[[], object]:
    """Return a function that makes a call the first time alone."""
    left = [] if call is None else [call]
    return lambda: left.pop()() if left else None


def _units(usage: Usage) -> Units:
    return (usage.tokens, picodollars(usage.dollars), usage.loops, usage.tool_calls)


def _with_loops(usage: Usage, loops: int) -> Usage:
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.dollars, loops, usage.tool_calls, usage.seconds)


def _sum(some: Units, more: Units) -> Units:
    tokens, picos, loops, tool_calls = (one + other for one, other in zip(some, more, strict=True))
    return (tokens, picos, loops, tool_calls)


def _only(dim: int, amount: int) -> Units:
    tokens, picos, loops, tool_calls = (amount if one == dim else 0 for one in ALL_DIMENSIONS)
    return (tokens, picos, loops, tool_calls)


def _unspent(node: Node, dim: int, spent: Units) -> int | None:
    """Return the most of a dimension that the path would let the work spend, spent amounts included; None: no limit."""
    left = [most - one.cells[dim] for one in node.limited if (most := one.limit[dim]) is not None]
    return None if not left else spent[dim] + max(0, min(left))
