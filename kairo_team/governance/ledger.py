"""The ledger of `Governor`: a tree of nodes that count in whole units, and the operations that change it.

Every amount is an integer: tokens, picodollars, loops, tool calls. At every node and in every dimension

    spent + held <= committed <= limit

where `spent` and `held` count the node's whole subtree. `committed` is the sum of the amounts the node itself has spent
and held, for each open child the larger of the child's guarantee and `committed`, and the amounts that closed children
spent. Only usage that is reported above its hold can exceed the limit.

A node may have a shared node besides its parent. Then everything goes up both lines: an amount above the node's
guarantee counts at the parent and at the shared node, and a hold must fit at every node of both lines. A shared node
has no parent, or a shared one, so the two lines never meet.

A node stores `spent`, `committed` and `used`, which is spent and held together. The rest of `committed` is guaranteed
but not used.

All fields but `Tree.halts`, `final` and `scopes` change only under `Tree.lock`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from kairo_team._util.frozen import maker
from kairo_team.budget import NO_USAGE, Budget, Usage, picodollars, to_dollars
from kairo_team.errors import InsufficientBudget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from kairo_team.governance.halts import Tree

Units = tuple[int, int, int, int]
"""Amounts in ledger units: tokens, picodollars, loops, tool calls."""

Limits = tuple[int | None, int | None, int | None, int | None]
"""Limits in ledger units, in the same order; `None` is unlimited."""

DIMENSIONS: Final = ("tokens", "dollars", "loops", "tool_calls")
TOKENS: Final = 0
DOLLARS: Final = 1
LOOPS: Final = 2
TOOL_CALLS: Final = 3

ALL_DIMENSIONS: Final = (TOKENS, DOLLARS, LOOPS, TOOL_CALLS)
HELD_DIMENSIONS: Final = (TOKENS, DOLLARS, TOOL_CALLS)
"""The dimensions a call is held and charged in."""

NOTHING: Final[Units] = (0, 0, 0, 0)
UNLIMITED: Final[Limits] = (None, None, None, None)
"""Compared by identity for speed: an equal tuple gives the same result, more slowly."""
FREE: Final = Budget()


def limits_of(budget: Budget) -> Limits:
    """Return a budget's limits in ledger units, without its seconds."""
    if budget is FREE:
        return UNLIMITED
    if type(budget) is not Budget:
        raise _no_budget(budget)
    dollars = budget.dollars
    limits = (budget.tokens, None if dollars is None else picodollars(dollars), budget.loops, budget.tool_calls)
    # The one object, because its users compare by identity.
    return UNLIMITED if limits == UNLIMITED else limits


def units_of(budget: Budget) -> Units:
    """Return a budget's amounts in ledger units; `None` counts as 0."""
    try:
        dollars = budget.dollars
    except AttributeError:
        raise _no_budget(budget) from None
    units = (budget.tokens or 0, picodollars(dollars) if dollars else 0, budget.loops or 0, budget.tool_calls or 0)
    return NOTHING if units == NOTHING else units


def finite(limits: Limits) -> Units:
    """Return limits as amounts; `None` counts as 0."""
    tokens, picos, loops, tool_calls = limits
    return (tokens or 0, picos or 0, loops or 0, tool_calls or 0)


def larger(one: Units, other: Units) -> Units:
    """Return the larger amount in each dimension."""
    if one is NOTHING or other is NOTHING:
        return other if one is NOTHING else one
    tokens, picos, loops, tool_calls = map(max, one, other)
    return (tokens, picos, loops, tool_calls)


def cut(amounts: Units, limits: Limits) -> Units:
    """Return the amounts, each cut to its limit."""
    tokens, picos, loops, tool_calls = (
        amount if most is None or amount < most else most for amount, most in zip(amounts, limits, strict=True)
    )
    return (tokens, picos, loops, tool_calls)


def _no_budget(given: object) -> ValueError:
    return ValueError(f"a budget is a kt.Budget such as Budget(tokens=1000), not {given!r}")


@lru_cache(maxsize=256)
def budget_of(limits: Limits, seconds: float | None = None) -> Budget:
    """Turn limits in ledger units back into a budget."""
    tokens, dollars, loops, tool_calls = limits
    return Budget(tokens, None if dollars is None else to_dollars(dollars), loops, tool_calls, seconds)


make_usage: Final = maker(Usage)
"""Make a usage from amounts of the ledger, which were checked when they were booked; checks nothing."""


def usage_of(tokens: int, dollars: int, loops: int, tool_calls: int) -> Usage:
    """Turn amounts in ledger units into a usage, all tokens as prompt tokens."""
    if not (tokens or dollars or loops or tool_calls):
        return NO_USAGE
    return Usage(tokens, 0, to_dollars(dollars), loops, tool_calls)


def shown(dim: int, units: int) -> int | Decimal:
    """Return ledger units for people: dollars as a `Decimal`, other dimensions unchanged."""
    return to_dollars(units) if dim == DOLLARS else units


def check_within(guarantee: Units, limit: Limits) -> None:
    """Raise `ValueError` if a guarantee is more than its ceiling."""
    for dim, most in enumerate(limit):
        if most is not None and guarantee[dim] > most:
            what = f"a guarantee of {shown(dim, guarantee[dim])} {DIMENSIONS[dim]}"
            raise ValueError(f"{what} is more than the ceiling of {shown(dim, most)}")


# A node counts in one list: spent by dimension, the completion tokens among the spent tokens, committed by dimension,
# used by dimension, and the most tokens and dollars committed when a hold was made. For a closed node only the spent
# amounts and the last two are valid.
COMPLETION: Final = 4
COMMITTED: Final = 5
USED: Final = 9
PEAK: Final = 13


class Node:
    """One account of the tree. Code outside this package uses it through `Governor`."""

    __slots__ = (
        "budget", "cells", "children", "deadline", "ended", "forked", "guarantee", "limit", "limited", "name", "parent",
        "segment", "shared", "started", "timed", "tree",
    )  # fmt: skip

    tree: Tree
    parent: Node | None
    shared: Node | None
    """The shared node on which this node counts too; None without one."""
    forked: bool
    """Whether this node or an ancestor has a shared node."""
    name: str
    segment: str
    """The name, with a number (`a#2`) where an earlier sibling has the same name."""
    budget: Budget
    limit: Limits
    guarantee: Units
    cells: list[int]
    children: dict[str | Node, Node] | None
    """Carved nodes by segment; on a shared node also the nodes that count on it, each by itself. `None` if empty."""
    started: float
    ended: float | None
    """When it closed; `None` while it is open."""
    deadline: float | None
    limited: tuple[Node, ...]
    """The nodes on this node's lines with a limit in any dimension, nearest first, the shared line before the other."""
    timed: bool
    """Whether any node on this node's lines has a deadline."""

    # -- moves: each goes up the line, from this node to the root; from a forked node, up both lines ----

    def move(self, dim: int, amount: int, spent: int, completion: int = 0) -> None:
        """Change the used amount (held or spent) by `amount` and the spent amount by `spent`, here and above.

        `completion` is the part of `spent` that is completion tokens. Where a guarantee covers the amount, the
        committed amount of the ancestors stays the same.
        """
        if self.forked:
            self._change(dim, amount, amount, spent, completion)
            return
        committed, used = COMMITTED + dim, USED + dim
        delta = amount
        node: Node | None = self
        while node is not None:
            cells = node.cells
            if spent:
                cells[dim] += spent
                if completion:
                    cells[COMPLETION] += completion
            cells[used] += amount
            if delta:
                old = cells[committed]
                cells[committed] = new = old + delta
                floor = node.guarantee[dim]
                if floor:
                    if new > old:
                        if floor > old:
                            delta = new - floor if new > floor else 0
                    elif floor > new:
                        delta = floor - old if old > floor else 0
            node = node.parent

    def claim(self, dim: int, amount: int) -> bool:
        """Book a hold of `amount` here and above; return whether it fits. Take it back if it does not."""
        # After an overshoot a guarantee no longer proves that its money is there.
        if self.tree.overdrawn and self.walled(dim, amount) is not None:
            return False
        if self.forked:
            # Booked first, and taken back if it does not fit: the two lines are checked while they are walked.
            fits = self._change(dim, amount, amount)
            if not fits:
                self.move(dim, -amount, 0)
            return fits
        committed, used = COMMITTED + dim, USED + dim
        fits = True
        delta = amount
        node: Node | None = self
        while node is not None:
            cells = node.cells
            cells[used] += amount
            if delta:
                old = cells[committed]
                cells[committed] = new = old + delta
                limit = node.limit[dim]
                if limit is not None and new > limit:
                    fits = False
                floor = node.guarantee[dim]
                if floor > old:
                    delta = new - floor if new > floor else 0
            node = node.parent
        if not fits:
            self.move(dim, -amount, 0)
        return fits

    def pay(self, dim: int, amount: int) -> None:
        """Count a held amount as spent, here and above."""
        if self.forked:
            self._change(dim, 0, 0, amount)
            return
        node: Node | None = self
        while node is not None:
            node.cells[dim] += amount
            node = node.parent

    def _change(self, dim: int, more: int, used: int, spent: int = 0, completion: int = 0) -> bool:
        """Change the committed amount by `more`, with the used and the spent amount, on both lines of a forked node.

        Return whether no limit was exceeded. The part above the guarantee goes to the parent and to the shared node.
        """
        fits = True
        todo: list[tuple[Node, int]] = [(self, more)]
        for first, amount in todo:  # the loop appends to the list
            node: Node | None = first
            delta = amount
            while node is not None:
                cells = node.cells
                if spent:
                    cells[dim] += spent
                    cells[COMPLETION] += completion
                cells[USED + dim] += used
                if delta:
                    old = cells[COMMITTED + dim]
                    cells[COMMITTED + dim] = new = old + delta
                    limit, floor = node.limit[dim], node.guarantee[dim]
                    if limit is not None and new > limit:
                        fits = False
                    if floor:
                        # The part under the guarantee is committed above since the guarantee was set aside.
                        delta = max(new, floor) - max(old, floor)
                if node.shared is not None:
                    # Parent and shared node are on a level: both get the part that no guarantee here covers.
                    todo.append((node.shared, delta))
                node = node.parent
        return fits

    def book(self, units: Units) -> bool:
        """Hold all of `units` if they fit here and above, else nothing; return whether they fit."""
        tokens, picos, _, tool_calls = units
        if tokens and not self.claim(TOKENS, tokens):
            return False
        # All dimensions or none: a hold in part would help no call.
        if picos and not self.claim(DOLLARS, picos):
            self.move(TOKENS, -tokens, 0)
            return False
        if tool_calls and not self.claim(TOOL_CALLS, tool_calls):
            self.move(TOKENS, -tokens, 0)
            self.move(DOLLARS, -picos, 0)
            return False
        cells = self.cells
        # The most that was committed at a hold: `Governor.took` returns it, and later tasks are expected to need it.
        if cells[5] > cells[13]:  # noqa: PLR1730 - `max` is slow
            cells[13] = cells[5]
        if cells[6] > cells[14]:  # noqa: PLR1730 - `max` is slow
            cells[14] = cells[6]
        return True

    def settle(self, held: Units, used: Units, completion: int = 0) -> None:
        """Replace a hold by the amounts used; `completion` tokens of them are completion tokens. Also when closed."""
        if self.ended is not None:
            self._settle_late(held, used, completion)
            return
        hold, spent = held[TOKENS], used[TOKENS]
        if hold or spent:
            self.move(TOKENS, spent - hold, spent, completion)
        hold, spent = held[DOLLARS], used[DOLLARS]
        if hold or spent:
            self.move(DOLLARS, spent - hold, spent)
        hold, spent = held[TOOL_CALLS], used[TOOL_CALLS]
        if hold or spent:
            self.move(TOOL_CALLS, spent - hold, spent)

    def spend(self, tokens: int, completion: int, picos: int, tool_calls: int) -> None:
        """Book spending without a hold; `completion` of the tokens are completion tokens. Also when closed."""
        if self.ended is not None:
            self._settle_late(NOTHING, (tokens, picos, 0, tool_calls), completion)
            return
        if tokens:
            self.move(TOKENS, tokens, tokens, completion)
        if picos:
            self.move(DOLLARS, picos, picos)
        if tool_calls:
            self.move(TOOL_CALLS, tool_calls, tool_calls)

    def reduce(self, held: Units, still: Units) -> None:
        """Reduce a hold to `still`. If `close` has charged the hold, reduce the charge."""
        if self.ended is not None:
            self._settle_late(held, still, 0)
            return
        for dim in HELD_DIMENSIONS:
            if still[dim] != held[dim]:
                self.move(dim, still[dim] - held[dim], 0)

    def _settle_late(self, charged: Units, used: Units, completion: int) -> None:
        """Correct what `close` charged, on the closed nodes and on the open nodes above."""
        for node in self.line():
            if node.ended is not None:
                node.cells = node.cells.copy()  # a tree that was written down before keeps its counts
            # Counted here for the whole line, because `correct` moves only the totals.
            node.cells[COMPLETION] += completion
        for dim in HELD_DIMENSIONS:
            self.correct(dim, used[dim] - charged[dim])

    def correct(self, dim: int, change: int) -> None:
        """Change the spent amount of closed nodes; from the first open node of each line on, `move` the change."""
        if self.ended is None:
            self.move(dim, change, change)
            self.mark_overdrawn()
            return
        self.cells[dim] += change
        for above in (self.shared, self.parent):
            if above is not None:
                above.correct(dim, change)

    def set_aside(self, amounts: Units) -> None:
        """Commit `amounts` for a child here, and the part no guarantee covers above; raise `InsufficientBudget`."""
        tokens, picos, loops, tool_calls = amounts
        if tokens and not self.commit(TOKENS, tokens):
            self._take_back(amounts, TOKENS)
        if picos and not self.commit(DOLLARS, picos):
            self._take_back(amounts, DOLLARS)
        if loops and not self.commit(LOOPS, loops):
            self._take_back(amounts, LOOPS)
        if tool_calls and not self.commit(TOOL_CALLS, tool_calls):
            self._take_back(amounts, TOOL_CALLS)

    def _take_back(self, amounts: Units, short: int) -> NoReturn:
        """Take back the dimensions up to `short`, which did not fit, and raise `InsufficientBudget`."""
        for dim in range(short + 1):
            self.commit(dim, -amounts[dim])
        raise self.insufficient(short, amounts[short])

    def commit(self, dim: int, amount: int) -> bool:
        """Add `amount` to committed here, and the part that no guarantee covers above; return whether it fits."""
        # Checked before the change, because it reads the used amounts.
        fits = not self.tree.overdrawn or self.walled(dim, amount) is None
        if self.forked:
            return self._change(dim, amount, 0) and fits
        committed = COMMITTED + dim
        node: Node | None = self
        while node is not None and amount:
            cells = node.cells
            old = cells[committed]
            cells[committed] = new = old + amount
            limit = node.limit[dim]
            if limit is not None and new > limit:
                fits = False
            floor = node.guarantee[dim]
            if floor:
                if new > old:
                    if floor > old:
                        amount = new - floor if new > floor else 0
                elif floor > new:
                    amount = floor - old if old > floor else 0
            node = node.parent
        return fits

    # -- what there is ------------------------------------------------------------------------

    def used(self, dim: int) -> int:
        """Return the amount spent and held."""
        return self.cells[USED + dim]

    def held(self, dim: int) -> int:
        """Return the amount held for calls in flight."""
        return self.used(dim) - self.cells[dim]

    def walled(self, dim: int, amount: int) -> Node | None:
        """Return the nearest node whose limit `amount` more would exceed, ignoring guarantees."""
        for node in self.limited:
            limit = node.limit[dim]
            if limit is not None and node.used(dim) + amount > limit:
                return node
        return None

    def without_room(self, dim: int, least: int) -> Node | None:
        """Return the outermost node where `least` more does not fit between spent and limit."""
        found = None
        for node in self.limited:
            limit = node.limit[dim]
            if limit is not None and node.cells[dim] + least > limit:
                found = node
        return found

    def rooms(self, dim: int, spare: int = 0) -> Iterator[tuple[Node, int]]:
        """Yield each node limited in `dim`, nearest first, with the largest amount that fits there now.

        `spare` is the part of an amount that guarantees below cover.
        """
        node: Node | None = self
        while node is not None:
            limit = node.limit[dim]
            committed = node.cells[COMMITTED + dim]
            if limit is not None:
                # The second term holds after an overshoot, where the sum of guarantees exceeds the limit.
                yield node, min(spare + max(0, limit - committed), max(0, limit - node.used(dim)))
            spare += max(0, node.guarantee[dim] - committed)
            if node.shared is not None:
                yield from node.shared.rooms(dim, spare)
            node = node.parent

    def room(self, dim: int) -> int | None:
        """Return the largest amount that could be held now; `None` is unlimited."""
        return min((room for _, room in self.rooms(dim)), default=None)

    def known_room(self, dim: int) -> int | None:
        """Return `room`; in a slice, at most what the other tree would let it hold."""
        room, borrower = self.room(dim), self.tree.borrower
        if room is None or borrower is None:
            return room
        known = borrower.room(dim)
        return room if known is None else min(room, known)

    def nearest(self, dim: int) -> list[tuple[Node, int]]:
        """Return the nearest node limited in `dim` with its limit; for a forked node, one for each line."""
        limit = self.limit[dim]
        if limit is not None:
            return [(self, limit)]
        if self.forked:
            return [found for up in (self.shared, self.parent) if up is not None for found in up.nearest(dim)]
        return [(node, most) for node in self.limited if (most := node.limit[dim]) is not None][:1]

    def unallotted(self, dim: int) -> int | None:
        """Return limit minus committed at the nearest node limited in `dim`; with two lines, the smaller amount."""
        return min((max(0, most - node.cells[COMMITTED + dim]) for node, most in self.nearest(dim)), default=None)

    def unspent(self, dim: int) -> int | None:
        """Return limit minus spent at the nearest node limited in `dim`; with two lines, the smaller amount."""
        return min((max(0, most - node.cells[dim]) for node, most in self.nearest(dim)), default=None)

    def allottable(self, dim: int, reserve: float) -> int | None:
        """Return `unallotted` minus the reserved share of the limit."""
        left = (most - node.cells[COMMITTED + dim] - int(most * reserve) for node, most in self.nearest(dim))
        return min((max(0, one) for one in left), default=None)

    def share(self, part: float, reserve: float, least: Units) -> Units:
        """Return a part of the unallotted amounts, at least one unit where there is a limit above 0.

        Where the part is less than `least`, return `least`; with two lines, the smaller part. Raises
        `InsufficientBudget` where the reserve leaves less than `least`.
        """
        units = [0, 0, 0, 0]
        forked = self.forked
        for dim in ALL_DIMENSIONS:
            found: int | None = None
            for node in [one for one, _ in self.nearest(dim)] if forked else self.limited:
                limit = node.limit[dim]
                if limit is None:
                    continue
                amount = 0
                if limit:
                    left = limit - node.cells[COMMITTED + dim]
                    free = left - int(limit * reserve)
                    amount = int(free * part)
                    amount = 1 if amount < 1 else amount if amount < left else left  # noqa: FURB136 - `min` is slow
                    if least[dim] > amount:
                        amount = least[dim]
                        if amount > free:
                            raise self.insufficient(dim, amount)
                if found is None or amount < found:
                    found = amount
                if not forked:
                    break
            units[dim] = found or 0  # `limited` is nearest first, and one line has one nearest
        tokens, dollars, loops, tool_calls = units
        return (tokens, dollars, loops, tool_calls)

    def fitting_share(self, part: float, least: Units) -> Units:
        """Return `share` of a shared node, without a reserve and cut to the room that shared nodes above leave.

        Each amount is at least one unit. Raises `InsufficientBudget` where less than `least` is left.
        """
        amounts = self.share(part, 0.0, least)
        units = list(amounts)
        for dim, amount in enumerate(amounts) if self.parent is not None else ():
            room = self.room(dim)
            if room is not None and room < amount:
                if room < least[dim]:
                    raise self.insufficient(dim, least[dim])
                units[dim] = max(1, room)
        tokens, dollars, loops, tool_calls = units
        return (tokens, dollars, loops, tool_calls)

    def insufficient(self, dim: int, asked: int) -> InsufficientBudget:
        """Return the error with the least amount left on this node's lines, and the node that has it."""
        node, left = min(self.rooms(dim), key=lambda pair: pair[1])
        amounts = (DIMENSIONS[dim], shown(dim, asked), shown(dim, left))
        return InsufficientBudget(*amounts, node.name, path=node.full_path())

    def mark_overdrawn(self) -> None:
        """Mark the tree as overdrawn if usage above its hold has exceeded a limit here or above."""
        for node in self.limited:
            for dim, limit in enumerate(node.limit):
                if limit is not None and node.cells[COMMITTED + dim] > limit:
                    self.tree.overdrawn = True

    # -- the tree -----------------------------------------------------------------------------

    def carve(self, name: str, budget: Budget, limit: Limits, guarantee: Units) -> Node:
        """Make a child and set its `guarantee` aside here and above; raise `InsufficientBudget`. Needs the lock."""
        if guarantee is not NOTHING:
            self.set_aside(guarantee)
        # Only after the guarantee fits: a child that raised must not be among the children.
        child = plant(self.tree, self, name, budget, limit)
        child.guarantee = guarantee
        siblings = self.children
        if siblings is None:
            self.children = {name: child}
        elif siblings.setdefault(name, child) is not child:
            child.segment = _another(name, siblings)
            siblings[child.segment] = child
        return child

    def carve_under(self, shared: Node | None, name: str, budget: Budget, limit: Limits, guarantee: Units) -> Node:
        """Make a child; with `shared` it counts there too, and its `guarantee` is set aside there too."""
        child = self.carve(name, budget, limit, guarantee)
        if shared is None:
            return child
        try:
            self._set_aside_beside(shared, guarantee)
        except InsufficientBudget:
            if self.children is not None:
                del self.children[child.segment]
            raise
        child.stand_under(shared)
        return child

    def _set_aside_beside(self, shared: Node, amounts: Units) -> None:
        """Commit `amounts`, which were set aside here, at a shared node too; if they do not fit, take both back."""
        try:
            shared.set_aside(amounts)
        except InsufficientBudget:
            for dim in ALL_DIMENSIONS:
                self.commit(dim, -amounts[dim])
            raise

    def check_shared(self, shared: Node) -> None:
        """Raise `ValueError` if a child of this node may not count on `shared`."""
        tree, above = self.tree, set(self.line())
        *_, outermost = line = list(shared.line())
        if not any(outermost in tree.beside.get(one, ()) for one in above):
            raise ValueError(f"{shared.name!r} was not opened beside {self.name!r} or a governor above it")
        if not above.isdisjoint(line):
            raise ValueError(f"{self.name!r} already counts on {shared.name!r}: its spending would count twice")

    def stand_under(self, shared: Node) -> None:
        """Make a shared node the second line upwards. Call it only before anything is booked here."""
        self.shared = shared
        self.forked = True
        parent = self.parent
        own = (self,) if self.limit != UNLIMITED else ()
        self.limited = (*own, *shared.limited, *(parent.limited if parent is not None else ()))
        self.timed = self.timed or shared.timed
        if shared.children is None:
            shared.children = {}
        shared.children[self] = self

    def enlarge(self, more: Units, seconds: float | None) -> None:
        """Enlarge the guarantee and the ceiling; of the root, the limit. Changes nothing when it raises."""
        if self.parent is not None:
            self.enlarge_guarantee(self.parent, more)
        tokens, dollars, loops, tool_calls = (
            None if most is None else most + extra for most, extra in zip(self.limit, more, strict=True)
        )
        self.limit = (tokens, dollars, loops, tool_calls)
        most_seconds = self.budget.seconds
        if self.deadline is not None and most_seconds is not None and seconds is not None:
            self.deadline += seconds
            most_seconds += seconds
        self.budget = budget_of(self.limit, most_seconds)

    def enlarge_guarantee(self, parent: Node, more: Units) -> None:
        """Set more aside at the parent and its ancestors, and on the shared line. Changes nothing when it raises."""
        old = self.guarantee
        new = (old[0] + more[0], old[1] + more[1], old[2] + more[2], old[3] + more[3])
        # The part that the node has borrowed above its guarantee is committed above already.
        used = self.cells[COMMITTED:USED]
        tokens, dollars, loops, tool_calls = (max(new[dim], used[dim]) - max(old[dim], used[dim]) for dim in range(4))
        amounts = (tokens, dollars, loops, tool_calls)
        parent.set_aside(amounts)
        if self.shared is not None:
            parent._set_aside_beside(self.shared, amounts)
        self.guarantee = new  # last: nothing has changed if one of the lines raised

    def close(self) -> None:
        """Close children and the shared nodes opened here, charge open holds, give the unused guarantee back."""
        if self.children is not None:
            self._close_below()
        cells = self.cells
        if cells[5] != cells[0] or cells[6] != cells[1] or cells[8] != cells[3]:  # no child is open: the rest is held
            for dim in HELD_DIMENSIONS:
                self.move(dim, 0, self.held(dim))
        parent = self.parent
        if self.guarantee is not NOTHING and parent is not None:
            tokens, picos, loops, tool_calls = self.guarantee
            if tokens > cells[5]:
                parent.commit(TOKENS, cells[5] - tokens)
            if picos > cells[6]:
                parent.commit(DOLLARS, cells[6] - picos)
            if loops > cells[7]:
                parent.commit(LOOPS, cells[7] - loops)
            if tool_calls > cells[8]:
                parent.commit(TOOL_CALLS, cells[8] - tool_calls)
            if self.shared is not None:
                self._give_back(self.shared)
        self.ended = self.tree.clock()
        self.limited = ()  # guards on a closed node find no limit to read

    def _give_back(self, shared: Node) -> None:
        """Give the unused guarantee back to the shared node."""
        for dim in ALL_DIMENSIONS:
            shared.commit(dim, min(0, self.cells[COMMITTED + dim] - self.guarantee[dim]))

    def _close_below(self) -> None:
        for node in (*(self.children or {}).values(), *self.tree.beside.get(self, ())):
            if node.ended is None:
                node.close()

    def line(self) -> Iterator[Node]:
        """Yield this node and its ancestors, on the shared line before the line to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            if node.shared is not None:
                yield from node.shared.line()
            node = node.parent

    def below(self, other: Node) -> bool:
        """Return whether `other` is this node or above it, on either line."""
        return any(node is other for node in self.line())

    def nearest_open(self) -> list[Node]:
        """Return the nearest open node of each line, or the outermost node of a line where all are closed."""
        above = () if self.ended is None else [one for one in (self.shared, self.parent) if one is not None]
        return [found for one in above for found in one.nearest_open()] or [self]

    def earliest_deadline(self) -> tuple[float, Node] | None:
        """Return the earliest deadline, in the tree's clock, and its node (the outermost of equals)."""
        owner: Node | None = None
        earliest = math.inf
        for node in self.line():
            if node.deadline is not None and node.deadline <= earliest:  # `<=`: the outermost of equals ends more
                earliest, owner = node.deadline, node
        return None if owner is None else (earliest, owner)

    def seconds_left(self) -> float | None:
        """Return the seconds until the earliest deadline; None without one."""
        due = self.earliest_deadline()
        return None if due is None else max(0.0, due[0] - self.tree.clock())

    # -- views --------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Return the seconds this node has been open."""
        seconds = (self.tree.clock() if self.ended is None else self.ended) - self.started
        return seconds if seconds > 0.0 else 0.0  # noqa: FURB136 - `max` is slow

    def usage(self, cells: list[int] | None = None) -> Usage:
        """Return the usage of this node's subtree, from an earlier list of `cells` if one is given."""
        tokens, dollars, loops, tool_calls, completion = (cells or self.cells)[:COMMITTED]  # one step: needs no lock
        spent = to_dollars(dollars) if dollars else NO_USAGE.dollars
        return make_usage(tokens - completion, completion, spent, loops, tool_calls, self.elapsed())

    def held_units(self) -> Units:
        """Return the amounts held now, by dimension."""
        if self.ended is not None:
            return NOTHING
        return (self.held(TOKENS), self.held(DOLLARS), 0, self.held(TOOL_CALLS))

    def overshoot_units(self, cells: list[int] | None = None) -> Units:
        """Return how far spent and held exceed the limits, by dimension (`cells` as for `usage`)."""
        if self.limit is UNLIMITED:
            return NOTHING
        tokens, dollars, loops, tool_calls = (
            0 if most is None else max(0, spent + held - most)
            for most, spent, held in zip(self.limit, cells or self.cells, self.held_units(), strict=False)
        )
        return (tokens, dollars, loops, tool_calls)

    def full_path(self) -> str:
        """Return the names from the root to here, joined by slashes."""
        if self.parent is not None:
            return f"{self.parent.full_path()}/{self.escaped()}"
        borrower = self.tree.borrower
        return self.escaped() if borrower is None else borrower.path or self.escaped()

    def escaped(self) -> str:
        """Return this node's segment of a path: `~1` is a slash inside a name, `~0` a tilde."""
        segment = self.segment
        if "~" in segment or "/" in segment:
            return segment.replace("~", "~0").replace("/", "~1")
        return segment


def smaller(one: Node, units: Units, other: Node, more: Units) -> Units:
    """Return the smaller of two nodes' amounts in each dimension; if only one node is limited, its amount."""
    tokens, dollars, loops, tool_calls = (
        a if not other.nearest(dim) else b if not one.nearest(dim) else min(a, b)
        for dim, (a, b) in enumerate(zip(units, more, strict=True))
    )
    return (tokens, dollars, loops, tool_calls)


def plant(tree: Tree, parent: Node | None, name: str, budget: Budget, limit: Limits) -> Node:
    """Make a node that is not yet among its parent's children. An `__init__` would cost twice as much."""
    if type(name) is not str:
        raise ValueError(f"a governor's name must be a string, not {name!r}")
    node = Node()
    node.tree = tree
    node.parent = parent
    node.name = node.segment = name
    node.budget = budget
    node.limit = limit
    node.guarantee = NOTHING
    node.cells = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    node.children = node.ended = node.deadline = node.shared = None
    node.started = tree.clock()
    if parent is None:
        node.limited, node.timed, node.forked = (), False, False
    else:
        node.limited, node.timed, node.forked = parent.limited, parent.timed, parent.forked
    if budget is not FREE:
        if limit != UNLIMITED:
            node.limited = (node, *node.limited)
        if budget.seconds is not None:
            node.deadline = node.started + budget.seconds
            node.timed = True
    return node


def _another(name: str, taken: dict[str | Node, Node]) -> str:
    """Return a free name for one more child of the same name: `a`, then `a#2`, then `a#3`."""
    number = len(taken) + 1  # not from 2, which would be slow for many of one name
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
