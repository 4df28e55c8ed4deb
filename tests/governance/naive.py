"""The budget tree once more, as slow and as plain as can be: what the real one is compared with.

A node keeps only what happened to itself. Every sum is added up anew over the whole subtree, and whether an amount
fits is found out by trying it and looking at every node. Amounts are (tokens, picodollars, loops, tool calls).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Literal

from kairo_team.budget import PICODOLLARS, Budget, HaltReason, Usage, to_dollars

TOKENS, DOLLARS, LOOPS, TOOLS = DIMENSIONS = range(4)
CALL = (TOKENS, DOLLARS, TOOLS)
"""What a call is held and charged in."""
REASON = {
    TOKENS: HaltReason.TOKEN_BUDGET_EXCEEDED,
    DOLLARS: HaltReason.DOLLAR_BUDGET_EXCEEDED,
    LOOPS: HaltReason.LOOP_BUDGET_EXCEEDED,
    TOOLS: HaltReason.TOOL_BUDGET_EXCEEDED,
}

Vector = tuple[int, int, int, int]
Limits = tuple[int | None, ...]
Fate = Literal["granted", "waits", "refused", "hopeless"]

ZERO: Vector = (0, 0, 0, 0)
ONE_LOOP: Vector = (0, 0, 1, 0)
UNLIMITED: Limits = (None, None, None, None)


def vector(values: list[int]) -> Vector:
    return (values[0], values[1], values[2], values[3])


def plus(a: Vector, b: Vector) -> Vector:
    return vector([one + other for one, other in zip(a, b, strict=True)])


def minus(a: Vector, b: Vector) -> Vector:
    return vector([one - other for one, other in zip(a, b, strict=True)])


def only(dim: int, amount: int) -> Vector:
    return vector([amount if one == dim else 0 for one in DIMENSIONS])


@dataclass(eq=False)
class Naive:
    """A node that keeps only what happened to itself and adds everything up anew each time."""

    name: str
    parent: Naive | None
    limit: Limits
    guarantee: Vector
    started: float = 0.0
    deadline: float | None = None
    own_spent: Vector = ZERO
    own_completion: int = 0
    late: Vector = ZERO
    """What was booked here without having been held: alone this may pass a limit."""
    holds: list[Vector] = field(default_factory=list[Vector])
    children: list[Naive] = field(default_factory=list["Naive"])
    """Those that were carved here, and those that stand under it as a shared node."""
    shared: Naive | None = None
    beside: list[Naive] = field(default_factory=list["Naive"])
    """The shared nodes that were opened here."""
    ended: float | None = None
    halt: HaltReason | None = None
    stopped: bool = False
    final: bool = False
    exhausted: int | None = None

    # -- sums ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self.ended is not None

    def above(self) -> list[Naive]:
        return [one for one in (self.shared, self.parent) if one is not None]

    def line(self) -> list[Naive]:
        """Return the nodes that it counts on: the shared line before the one to the root."""
        return [self, *(node for one in self.above() for node in one.line())]

    def may_share(self, shared: Naive) -> bool:
        """Return whether a child may stand under a shared node: one that was opened above and is not above already."""
        line, across = self.line(), shared.line()
        return any(across[-1] in node.beside for node in line) and not any(node in line for node in across)

    def family(self) -> list[Naive]:
        return [self, *(below for child in self.children for below in child.family())]

    def depth(self) -> int:
        return 1 + (self.parent.depth() if self.parent else 0)

    def spent(self, dim: int) -> int:
        return self.own_spent[dim] + sum(child.spent(dim) for child in self.children)

    def completion(self) -> int:
        return self.own_completion + sum(child.completion() for child in self.children)

    def own_held(self, dim: int) -> int:
        return 0 if self.closed else sum(hold[dim] for hold in self.holds)

    def held(self, dim: int) -> int:
        return self.own_held(dim) + sum(child.held(dim) for child in self.children)

    def used(self, dim: int) -> int:
        return self.spent(dim) + self.held(dim)

    def committed(self, dim: int) -> int:
        return (
            self.own_spent[dim]
            + self.own_held(dim)
            + sum(c.spent(dim) if c.closed else max(c.guarantee[dim], c.committed(dim)) for c in self.children)
        )

    def booked_late(self, dim: int) -> int:
        return self.late[dim] + sum(child.booked_late(dim) for child in self.children)

    def nearest(self, dim: int) -> list[Naive]:
        """Return the nearest node limited in a dimension, of each line."""
        return [self] if self.limit[dim] is not None else [node for one in self.above() for node in one.nearest(dim)]

    def unallotted(self, dim: int) -> int | None:
        left = [
            max(0, most - node.committed(dim)) for node in self.nearest(dim) if (most := node.limit[dim]) is not None
        ]
        return min(left, default=None)

    # -- what fits ----------------------------------------------------------------------------

    def fits(self, amounts: Vector) -> bool:
        """Try a hold, look at every node that has to commit more, and take it back."""
        return not any(self.short_of(amounts, dim) for dim in DIMENSIONS if amounts[dim])

    def short_of(self, amounts: Vector, dim: int) -> list[Naive]:
        """Return the nodes of the line whose limit a hold would pass."""
        before = [node.committed(dim) for node in self.line()]
        with self.trying(amounts):
            return [
                node
                for node, old in zip(self.line(), before, strict=True)
                if (limit := node.limit[dim]) is not None
                and (limit < node.committed(dim) > old or node.used(dim) > limit)
            ]

    @contextmanager
    def trying(self, amounts: Vector) -> Generator[None]:
        self.holds.append(amounts)
        try:
            yield
        finally:
            self.holds.pop()

    def fits_for_child(self, amounts: Vector, shared: Naive | None = None) -> bool:
        """Try a child with that guarantee, and take it back; what it is guaranteed, it must be able to spend."""
        parents = [one for one in (self, shared) if one is not None]
        before = {node: [node.committed(dim) for dim in DIMENSIONS] for one in parents for node in one.line()}
        for one in parents:
            one.children.append(Naive("try", self, UNLIMITED, amounts))
        try:
            for node, old in before.items():
                for dim, limit in enumerate(node.limit):
                    if limit is None or not amounts[dim]:
                        continue
                    if limit < node.committed(dim) > old[dim] or node.used(dim) + amounts[dim] > limit:
                        return False
        finally:
            for one in parents:
                one.children.pop()
        return True

    def room(self, dim: int, asked: int) -> dict[Naive, int]:
        """Return the most, up to `asked`, that each node of the line lets through now."""

        def too_much(node: Naive, amount: int) -> bool:
            return node in self.short_of(only(dim, amount), dim)

        some = range(1, asked + 1)
        return {
            node: asked if node.limit[dim] is None else bisect_left(some, True, key=partial(too_much, node))
            for node in self.line()
        }

    def fate(self, asked: Vector, least: Vector) -> tuple[Fate, Vector]:
        """Say what becomes of a caller of `hold` that nobody is before, and what it gets."""
        if self.hopeless(asked, least):
            return "hopeless", ZERO
        granted, waits = [0, 0, 0, 0], False
        for dim in CALL:
            rooms = self.room(dim, asked[dim])
            want = min([room for node, room in rooms.items() if not node.held(dim)], default=asked[dim])
            if want < min(least[dim], asked[dim]):
                return "refused", ZERO
            waits = waits or any(room < want for room in rooms.values())
            granted[dim] = want
        return ("waits", ZERO) if waits else ("granted", vector(granted))

    def share(
        self, part: float, reserve: float, ceiling: Limits, least: Vector, across: tuple[Naive, float] | None = None
    ) -> Vector | None:
        """Return what a child of that part is guaranteed, if it is there; None where `least` is more than is free.

        `across` is the shared node it is to stand under, and its part there: it gets the smaller one.
        """
        share = [0, 0, 0, 0]
        shares = [(self, part, reserve), *([] if across is None else [(*across, 0.0)])]
        for dim in DIMENSIONS:
            most = ceiling[dim]
            need = least[dim] if most is None else min(least[dim], most)
            nearest = [(node, some, aside) for one, some, aside in shares for node in one.nearest(dim)]
            parts = [node.part_of_its_own(dim, some, aside, need) for node, some, aside in nearest]
            if across is not None and across[0].parent is not None:
                parts.extend(across[0].fitting(dim, part, need) for part in parts[-1:] if part)
            found = [one for one in parts if one is not None]
            if len(found) < len(parts):
                return None
            share[dim] = min(found, default=0)
            share[dim] = share[dim] if most is None else min(most, share[dim])
        return vector(share)

    def fitting(self, dim: int, amount: int, need: int) -> int | None:
        """Return as much of an amount as the nodes above leave, at least one unit; None if less is left than needed."""
        room = min(self.room(dim, amount).values())
        return amount if room >= amount else None if room < need else max(1, room)

    def part_of_its_own(self, dim: int, part: float, reserve: float, need: int) -> int | None:
        """Return a part of what is not allotted of its own limit; None where that is less than is needed."""
        limit = self.limit[dim]
        if not limit:
            return 0
        left = max(0, limit - self.committed(dim))
        free = left - int(Fraction(reserve) * limit)
        some = max(1, min(left, int(Fraction(part) * free)))
        return some if need <= some else need if need <= free else None

    def draw(self, more: Vector) -> Vector:
        """Return what the parent has to set aside for so much more of a guarantee: what is used is there already."""
        used = [self.committed(dim) for dim in DIMENSIONS]
        has = zip(self.guarantee, more, used, strict=True)
        return vector([max(old + extra, some) - max(old, some) for old, extra, some in has])

    # -- halts --------------------------------------------------------------------------------

    def halted(self) -> Naive | None:
        return next((node for node in self.line() if node.halt), None)

    def interrupted(self) -> Naive | None:
        return next((node for node in self.line() if node.halt and node.stopped), None)

    def outermost(self, dim: int, least: int) -> Naive | None:
        """Return the outermost node where `least` more does not fit between what is spent and the limit."""
        short = [n for n in self.line() if (m := n.limit[dim]) is not None and n.spent(dim) + least > m]
        return short[-1] if short else None

    def hopeless(self, asked: Vector, least: Vector) -> tuple[Naive, int] | None:
        """Return the node, and in which dimension, that will never let the least through again."""
        for dim in (TOKENS, DOLLARS, LOOPS):
            short = self.outermost(dim, least[dim]) if asked[dim] else None
            if short is not None:
                return short, dim
        return None

    def used_up(self, least: int = 0) -> tuple[Naive, int] | None:
        """Return the outermost node whose tokens or dollars are all spent; a dollar limit of 0 never is.

        Less than `least` spent is not all.
        """
        for dim in (TOKENS, DOLLARS):
            limits = [(node, node.limit[dim]) for node in self.line()]
            found = [n for n, m in limits if m is not None and n.spent(dim) >= max(m, least) and (m or dim == TOKENS)]
            if found:
                return found[-1], dim
        return None

    def exhaust(self, dim: int, *, stop: bool = False) -> None:
        if self.halt is None:
            self.halt, self.exhausted = REASON[dim], dim
        self.stopped = self.stopped or stop

    def stop(self, reason: HaltReason) -> None:
        if self.halt is None:
            self.halt = reason
        self.stopped = self.final = True

    def overdue(self, now: float) -> Naive | None:
        """Return whose deadline comes first on the line (of equals, the last of the line), if it has passed."""
        due = [(node.deadline, node) for node in reversed(self.line()) if node.deadline is not None]
        deadline, node = min(due, key=lambda one: one[0], default=(0.0, None))
        return node if now >= deadline else None

    def look_at_the_clock(self, now: float) -> None:
        late = None if self.halted() else self.overdue(now)
        if late is not None:
            late.stop(HaltReason.TIME_BUDGET_EXCEEDED)

    # -- moves --------------------------------------------------------------------------------

    def enlarge(self, more: Vector, seconds: float | None) -> None:
        if self.parent is not None:
            self.guarantee = plus(self.guarantee, more)
        self.limit = tuple(None if most is None else most + some for most, some in zip(self.limit, more, strict=True))
        if self.deadline is not None and seconds is not None:
            self.deadline += seconds
        dim = self.exhausted
        if dim is not None and more[dim] and not self.final:
            most = self.limit[dim]
            if most is None or self.spent(dim) < most:
                self.halt, self.exhausted, self.stopped = None, None, False

    def end(self, held: Vector, truth: Vector, completion: int = 0) -> None:
        """Replace a hold by the truth; what closed in between was charged in full."""
        self.holds.remove(held)
        self.own_spent = plus(self.own_spent, minus(truth, held) if self.closed else truth)
        self.own_completion += completion
        self.late = plus(self.late, vector([max(0, n - o) for n, o in zip(truth, held, strict=True)]))

    def reduce(self, held: Vector, still: Vector) -> None:
        """Hold less; what closed in between was charged in full, and is charged only that much."""
        self.holds.remove(held)
        self.holds.append(still)
        if self.closed:
            self.own_spent = plus(self.own_spent, minus(still, held))

    def book_late(self, truth: Vector, completion: int = 0) -> None:
        """Book what was not held."""
        self.own_spent = plus(self.own_spent, truth)
        self.own_completion += completion
        self.late = plus(self.late, truth)

    def close(self, now: float) -> None:
        if self.closed:
            return
        for child in (*self.children, *self.beside):
            child.close(now)
        for hold in self.holds:
            self.own_spent = plus(self.own_spent, hold)
        self.ended = now

    def nearest_open(self) -> list[Naive]:
        """Return the nearest open node of each line, or the outermost of a line where all are closed."""
        above = self.above() if self.closed else []
        return [node for one in above for node in one.nearest_open()] or [self]


def budget(limit: Limits, seconds: float | None = None) -> Budget:
    tokens, dollars, loops, tools = limit
    return Budget(tokens, None if dollars is None else to_dollars(dollars), loops, tools, seconds)


def units(value: Budget) -> Limits:
    dollars = None if value.dollars is None else int(value.dollars * PICODOLLARS)
    return (value.tokens, dollars, value.loops, value.tool_calls)


def used(usage: Usage) -> Vector:
    return (usage.tokens, int(usage.dollars * PICODOLLARS), usage.loops, usage.tool_calls)
