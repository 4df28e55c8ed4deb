"""The ledger under `Governor`: a tree of nodes counted in whole units, and the moves that change it.

Every amount is an integer: tokens, picodollars, loops, tool calls. At every node and in every dimension

    spent + held <= committed <= limit

where `spent` and `held` are those of the node's whole subtree, and `committed` is what the node has
spent and held itself, plus, for each open child, the larger of the child's guarantee and `committed`,
plus what closed children spent. Only a truth that was booked late (more than was held) can pass the limit.

All but `Tree.halts`, `final`, `scopes` and `waiters` is changed under `Tree.lock` alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from kairo_team.budget import Budget, Usage, picodollars, to_dollars
from kairo_team.errors import InsufficientBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from kairo_team.governance.halts import Halt
    from kairo_team.governance.scope import GovernorScope
    from kairo_team.governance.waiting import Waiter

Units = tuple[int, int, int, int]
"""Amounts in ledger units: tokens, picodollars, loops, tool calls."""

Limits = tuple[int | None, int | None, int | None, int | None]
"""Limits in ledger units, in the same order; `None` is unlimited."""

DIMENSIONS: Final = ("tokens", "dollars", "loops", "tool_calls")
TOKENS: Final = 0
DOLLARS: Final = 1
LOOPS: Final = 2
TOOL_CALLS: Final = 3

# A node counts in one list: what is spent by dimension, the completion tokens among the tokens spent, then what is
# held by dimension, then what is committed by dimension. A closed node keeps the first five.
COMPLETION: Final = 4
HELD: Final = 5
COMMITTED: Final = 9

HELD_DIMENSIONS: Final = (TOKENS, DOLLARS, TOOL_CALLS)
"""The dimensions a call is held and charged in."""

NOTHING: Final[Units] = (0, 0, 0, 0)
UNLIMITED: Final[Limits] = (None, None, None, None)
FREE: Final = Budget()


def limits_of(budget: Budget) -> Limits:
    """Turn a budget into limits in ledger units; seconds are no part of them."""
    if budget is FREE:
        return UNLIMITED
    dollars = budget.dollars
    return (budget.tokens, None if dollars is None else picodollars(dollars), budget.loops, budget.tool_calls)


def units_of(limits: Limits) -> Units:
    """Turn limits into amounts: `None` counts as nothing."""
    tokens, dollars, loops, tool_calls = limits
    return (tokens or 0, dollars or 0, loops or 0, tool_calls or 0)


def budget_of(limits: Limits, seconds: float | None = None) -> Budget:
    """Turn limits in ledger units back into a budget."""
    tokens, dollars, loops, tool_calls = limits
    return Budget(tokens, None if dollars is None else to_dollars(dollars), loops, tool_calls, seconds)


def usage_of(tokens: int, dollars: int, loops: int, tool_calls: int) -> Usage:
    """Turn amounts in ledger units into a usage, all tokens as prompt tokens."""
    return Usage(tokens, 0, to_dollars(dollars), loops, tool_calls)


def shown(dim: int, units: int) -> int | Decimal:
    """Turn ledger units into what people read: dollars as a `Decimal`, the rest as it is."""
    return to_dollars(units) if dim == DOLLARS else units


class Tree:
    """What all nodes of one tree share.

    `halts`, `final`, `scopes` and `waiters` are read and written without the lock, by single dictionary
    operations, so that a signal handler can stop the tree while its own thread holds the lock.
    """

    __slots__ = ("clock", "final", "halts", "lines", "lock", "overdrawn", "scopes", "waiters")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.halts: dict[Node, Halt] = {}
        """The first reason of each halted node."""
        self.final: dict[Node, Halt] = {}
        """Halts that no top-up lifts."""
        self.scopes: dict[GovernorScope, None] = {}
        """Scopes now open; a node that is stopped interrupts those in its subtree."""
        self.waiters: dict[Waiter, None] = {}
        """Callers of `hold` now waiting; any halt wakes those in its subtree."""
        self.lines: dict[tuple[Node, int], list[Waiter]] = {}
        """The same callers by the node and dimension they wait for, first come first."""
        self.overdrawn = False
        """A truth booked late has passed a limit somewhere: guarantees no longer prove that money is there."""


class Node:
    """One account of the tree. `Governor` is its door; nothing else hands it out."""

    __slots__ = (
        "budget",
        "cells",
        "children",
        "deadline",
        "ended",
        "guarantee",
        "limit",
        "limited",
        "name",
        "parent",
        "path",
        "segment",
        "started",
        "timed",
        "tree",
    )

    def __init__(self, tree: Tree, parent: Node | None, name: str, budget: Budget, limit: Limits) -> None:
        self.tree = tree
        self.parent = parent
        self.name = self.segment = name
        self.budget = budget
        self.limit = limit
        self.guarantee = NOTHING
        self.cells = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        self.children: dict[str, Node] | None = None
        self.started = tree.clock()
        self.ended: float | None = None
        """When it closed; `None` while it is open."""
        seconds = budget.seconds
        self.deadline = None if seconds is None else self.started + seconds
        self.path: tuple[Node, ...]
        """This node and its ancestors, up to the root; empty once closed."""
        self.limited: tuple[Node, ...]
        """The nodes of the path with a limit in any dimension, nearest first; empty once closed."""
        if parent is None:
            self.path = (self,)
            self.limited = () if limit == UNLIMITED else (self,)
            self.timed = seconds is not None
        else:
            self.path = (self, *parent.path)
            self.limited = parent.limited if limit is UNLIMITED else (self, *parent.limited)
            self.timed = parent.timed or seconds is not None

    # -- moves --------------------------------------------------------------------------------

    def move(self, dim: int, held: int, spent: int, completion: int = 0) -> None:
        """Change on the whole path what is held and what is spent (`completion` of it completion tokens).

        What is committed changes by the sum, on ancestors by less where a guarantee on the way covers it.
        """
        delta = held + spent
        for node in self.path:
            cells = node.cells
            if held:
                cells[HELD + dim] += held
            if spent:
                cells[dim] += spent
                if completion:
                    cells[COMPLETION] += completion
            if delta:
                old = cells[COMMITTED + dim]
                cells[COMMITTED + dim] = new = old + delta
                floor = node.guarantee[dim]
                if floor and (floor > old or floor > new):
                    delta = max(new, floor) - max(old, floor)

    def commit(self, dim: int, delta: int) -> None:
        """Change what is committed here by `delta`, on ancestors by less where a guarantee covers it."""
        for node in self.path:
            cells = node.cells
            old = cells[COMMITTED + dim]
            cells[COMMITTED + dim] = new = old + delta
            floor = node.guarantee[dim]
            if floor and (floor > old or floor > new):
                delta = max(new, floor) - max(old, floor)
                if not delta:
                    return

    def book(self, units: Units) -> bool:
        """Hold all of `units` if they fit on the whole path; nothing otherwise."""
        tokens, picos, _, tool_calls = units
        if (
            (tokens and self.blocked(TOKENS, tokens) is not None)
            or (picos and self.blocked(DOLLARS, picos) is not None)
            or (tool_calls and self.blocked(TOOL_CALLS, tool_calls) is not None)
        ):
            return False
        if tokens:
            self.move(TOKENS, tokens, 0)
        if picos:
            self.move(DOLLARS, picos, 0)
        if tool_calls:
            self.move(TOOL_CALLS, tool_calls, 0)
        return True

    def settle(self, held: Units, used: Units, completion: int = 0) -> None:
        """Replace what was held by what was used, `completion` of it completion tokens; also when closed."""
        if self.ended is not None:
            self._settle_late(held, used, completion)
            return
        for dim in HELD_DIMENSIONS:
            spent = used[dim]
            if spent or held[dim]:
                self.move(dim, -held[dim], spent, completion if dim == TOKENS else 0)

    def _settle_late(self, charged: Units, used: Units, completion: int) -> None:
        """Correct what was charged at the close: on the closed nodes, then on the open path above them."""
        for node in self.lineage():
            node.cells[COMPLETION] += completion
        for dim in HELD_DIMENSIONS:
            change = used[dim] - charged[dim]
            for node in self.lineage():
                if node.ended is None:
                    node.move(dim, 0, change)
                    node.mark_overdrawn()
                    break
                node.cells[dim] += change

    # -- what there is ------------------------------------------------------------------------

    def blocked(self, dim: int, amount: int) -> Node | None:
        """Return the nearest node of the path on which `amount` more cannot be committed now."""
        if self.tree.overdrawn:
            wall = self.walled(dim, amount)
            if wall is not None:
                return wall
        for node in self.path:
            committed = node.cells[COMMITTED + dim]
            limit = node.limit[dim]
            if limit is not None and committed + amount > limit:
                return node
            floor = node.guarantee[dim]
            if floor > committed:
                amount -= floor - committed
                if amount <= 0:
                    return None
        return None

    def walled(self, dim: int, amount: int) -> Node | None:
        """Return the nearest node whose limit `amount` more would pass, whatever was guaranteed."""
        for node in self.limited:
            limit = node.limit[dim]
            if limit is not None and node.cells[dim] + node.cells[HELD + dim] + amount > limit:
                return node
        return None

    def without_room(self, dim: int, least: int) -> Node | None:
        """Return the outermost node where `least` more does not fit between what is spent and the limit."""
        found = None
        for node in self.limited:
            limit = node.limit[dim]
            if limit is not None and node.cells[dim] + least > limit:
                found = node
        return found

    def rooms(self, dim: int) -> Iterator[tuple[Node, int]]:
        """Yield each node limited in `dim`, nearest first, with the most it would let through now."""
        spare = 0
        for node in self.path:
            limit = node.limit[dim]
            cells = node.cells
            if limit is not None:
                room = spare + max(0, limit - cells[COMMITTED + dim])
                yield node, min(room, max(0, limit - cells[dim] - cells[HELD + dim]))
            spare += max(0, node.guarantee[dim] - cells[COMMITTED + dim])

    def room(self, dim: int) -> int | None:
        """Return the largest amount that could be held now; `None` is unlimited."""
        return min((room for _, room in self.rooms(dim)), default=None)

    def unallotted(self, dim: int) -> tuple[int, int] | None:
        """Return limit, and limit minus committed, of the nearest node limited in `dim`."""
        for node in self.limited:
            limit = node.limit[dim]
            if limit is not None:
                return limit, max(0, limit - node.cells[COMMITTED + dim])
        return None

    def insufficient(self, dim: int, asked: int) -> InsufficientBudget:
        """Build the refusal that names the tightest node of the path and what it has left."""
        node, left = min(self.rooms(dim), key=lambda pair: pair[1])
        return InsufficientBudget(DIMENSIONS[dim], shown(dim, asked), shown(dim, left), node.name)

    def mark_overdrawn(self) -> None:
        """Remember that a truth booked late has passed a limit of the path, if it has."""
        for node in self.limited:
            for dim, limit in enumerate(node.limit):
                if limit is not None and node.cells[COMMITTED + dim] > limit:
                    self.tree.overdrawn = True

    # -- the tree -----------------------------------------------------------------------------

    def carve(self, name: str, budget: Budget, limit: Limits, guarantee: Units) -> Node:
        """Make a child with `guarantee` set aside on the whole path, or raise `InsufficientBudget`."""
        if guarantee is not NOTHING:
            self._set_aside(guarantee)
        child = Node(self.tree, self, name, budget, limit)
        child.guarantee = guarantee
        siblings = self.children
        if siblings is None:
            self.children = {name: child}
        else:
            if name in siblings:
                child.segment = name = _another(name, siblings)
            siblings[name] = child
        return child

    def _set_aside(self, guarantee: Units) -> None:
        for dim, amount in enumerate(guarantee):
            if amount and self.blocked(dim, amount) is not None:
                raise self.insufficient(dim, amount)
        for dim, amount in enumerate(guarantee):
            if amount:
                self.commit(dim, amount)

    def enlarge(self, more: Units, seconds: float | None) -> None:
        """Enlarge guarantee and ceiling (of the root, the limit), or raise and change nothing."""
        if self.parent is not None:
            self._enlarge_guarantee(self.parent, more)
        tokens, dollars, loops, tool_calls = (
            None if most is None else most + extra for most, extra in zip(self.limit, more, strict=True)
        )
        self.limit = (tokens, dollars, loops, tool_calls)
        most_seconds = self.budget.seconds
        if self.deadline is not None and most_seconds is not None and seconds is not None:
            self.deadline += seconds
            most_seconds += seconds
        self.budget = budget_of(self.limit, most_seconds)

    def _enlarge_guarantee(self, parent: Node, more: Units) -> None:
        old = self.guarantee
        new = (old[0] + more[0], old[1] + more[1], old[2] + more[2], old[3] + more[3])
        used = self.cells[COMMITTED:]
        draws = [max(new[dim], used[dim]) - max(old[dim], used[dim]) for dim in range(4)]
        for dim, draw in enumerate(draws):
            if draw and parent.blocked(dim, draw) is not None:
                raise parent.insufficient(dim, draw)
        for dim, draw in enumerate(draws):
            parent.commit(dim, draw)
        self.guarantee = new

    def close(self) -> None:
        """Close the children, charge what is still held, give back what is left of the guarantee."""
        if self.children:
            for child in self.children.values():
                if child.ended is None:
                    child.close()
        cells = self.cells
        for dim in HELD_DIMENSIONS:
            held = cells[HELD + dim]
            if held:
                self.move(dim, -held, held)
        if self.parent is not None and self.guarantee is not NOTHING:
            for dim, floor in enumerate(self.guarantee):
                if floor > cells[COMMITTED + dim]:
                    self.parent.commit(dim, cells[COMMITTED + dim] - floor)
        self.ended = self.tree.clock()
        self.cells = cells[:HELD]
        self.path = self.limited = ()

    def lineage(self) -> Iterator[Node]:
        """Yield this node and its ancestors, up to the root, also when closed."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def below(self, other: Node) -> bool:
        """Say whether this node is `other` or was carved somewhere below it."""
        return any(node is other for node in self.lineage())

    def nearest_open(self) -> Node:
        """Return the nearest open node of the lineage, or the root when none is."""
        node = self
        for node in self.lineage():  # noqa: B007 - the last one is the answer
            if node.ended is None:
                break
        return node

    def earliest_deadline(self) -> tuple[float, Node] | None:
        """Return the earliest deadline in the tree's clock, and whose it is (of equals, the outermost)."""
        best: tuple[float, Node] | None = None
        for node in self.path or self.lineage():
            if node.deadline is not None and (best is None or node.deadline <= best[0]):
                best = (node.deadline, node)
        return best

    # -- views --------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Return the seconds this node has been open."""
        return max(0.0, (self.tree.clock() if self.ended is None else self.ended) - self.started)

    def usage(self) -> Usage:
        """Return what this node's subtree has spent."""
        with self.tree.lock:
            tokens, dollars, loops, tool_calls, completion = self.cells[:HELD]
        return Usage(tokens - completion, completion, to_dollars(dollars), loops, tool_calls, self.elapsed())

    def held_units(self) -> Units:
        """Return what is held now, by dimension."""
        if self.ended is not None:
            return NOTHING
        tokens, dollars, loops, tool_calls = self.cells[HELD:COMMITTED]
        return (tokens, dollars, loops, tool_calls)

    def overshoot_units(self) -> Units:
        """Return by how much what is spent and held passes the limits, by dimension."""
        tokens, dollars, loops, tool_calls = (
            0 if most is None else max(0, spent + held - most)
            for most, spent, held in zip(self.limit, self.cells, self.held_units(), strict=False)
        )
        return (tokens, dollars, loops, tool_calls)

    def full_path(self) -> str:
        """Return the names from the root to here, joined by slashes."""
        return "/".join(reversed([node.escaped() for node in self.lineage()]))

    def escaped(self) -> str:
        """Return its segment of a path: `~1` stands for a slash inside a name, `~0` for a tilde."""
        return self.segment.replace("~", "~0").replace("/", "~1")


def _another(name: str, taken: dict[str, Node]) -> str:
    """Return a name of its own for one more child of the same name: `a`, then `a#2`, then `a#3`."""
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
