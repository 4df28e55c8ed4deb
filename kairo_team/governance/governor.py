"""`Governor`: the budget of a run, a team, a member or a task, and the kill switch of everything under it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, final

from kairo_team.budget import (
    Budget,
    BudgetNode,
    HaltReason,
    Money,
    ReadLater,
    Usage,
    check_count,
    check_used,
    picodollars,
)
from kairo_team.errors import GovernorClosed, InsufficientBudget
from kairo_team.governance import halts
from kairo_team.governance.halts import Tree, family, in_force
from kairo_team.governance.holds import Reservation, Waiter, dismiss, holds_already, refusal, reservation, serve, wait
from kairo_team.governance.ledger import (
    ALL_DIMENSIONS,
    COMMITTED,
    DIMENSIONS,
    DOLLARS,
    FREE,
    LOOPS,
    NOTHING,
    PEAK,
    TOKENS,
    TOOL_CALLS,
    UNLIMITED,
    Limits,
    Node,
    Units,
    budget_of,
    check_within,
    cut,
    finite,
    limits_of,
    plant,
    shown,
    units_of,
    usage_of,
)
from kairo_team.governance.scope import GovernorScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from kairo_team.governance.halts import Halt

__all__ = ["Governor", "Reservation"]

_ONE_LOOP: Final[Units] = (0, 0, 1, 0)
_ONE_OF_EACH: Final[Units] = (1, 1, 1, 1)

_blank = object.__new__


@final
class Governor:
    """One node of a budget tree: what is spent here counts on every ancestor, and no limit is ever passed.

    Time starts now. `clock` (seconds, any origin; default `time.monotonic`) is read by the guards and may be
    called from any thread. `restored_usage` counts against the budget again, active seconds included;
    `restored_halt` is terminal. Safe to use from any thread; `cancel` also from signal handlers.
    """

    __slots__ = ("__weakref__", "_node")

    def __init__(
        self,
        budget: Budget = FREE,
        *,
        name: str = "run",
        clock: Callable[[], float] | None = None,
        restored_usage: Usage | None = None,
        restored_halt: HaltReason | None = None,
    ) -> None:
        tree = Tree(clock or time.monotonic)
        self._node = node = plant(tree, None, name, budget, limits_of(budget))
        if restored_usage is not None:
            restore(node, restored_usage)
        if restored_halt is not None:
            halts.stop(node, HaltReason(restored_halt))

    # -- guards -------------------------------------------------------------------------------

    def pre_step(self) -> None:
        """Count one iteration, here and on every ancestor: call it before each turn of an agent.

        Raises `HaltError` if halted, when spent tokens, dollars (under a limit above 0) or time have reached a
        limit here or above, or if the iteration would be one more than a limit; `InsufficientBudget` if only the
        guarantees of others prevent it. A token limit of 0 of which nothing is spent refuses no iteration: it may need
        no model.
        """
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            for limited in node.limited:
                spent = limited.cells
                if spent[TOKENS] or spent[DOLLARS]:
                    tokens, dollars, _, _ = limited.limit
                    if (tokens is not None and 0 < spent[TOKENS] >= tokens) or (dollars and spent[DOLLARS] >= dollars):
                        halts.check_spent(node)
            if not node.claim(LOOPS, 1):
                halts.check_hopeless(node, _ONE_LOOP, _ONE_LOOP)
                raise node.insufficient(LOOPS, 1)
            node.pay(LOOPS, 1)
        finally:
            tree.release()

    def can_proceed(self) -> None:
        """Check that a call may be made now: call it immediately before.

        Raises `HaltError` if halted, or when spent tokens, dollars (under a limit above 0) or time have
        reached a limit here or above. Loops and tool calls are not looked at.
        """
        node = self._node
        if node.ended is not None or node.timed or node.tree.halts:
            halts.check(node)
        for limited in node.limited:
            tokens, dollars, _, _ = limited.limit
            spent = limited.cells
            if (tokens is not None and spent[TOKENS] >= tokens) or (dollars and spent[DOLLARS] >= dollars):
                halts.check_spent(node)

    # -- spending -----------------------------------------------------------------------------

    def reserve(
        self, tokens: int = 0, dollars: Money = 0, tool_calls: int = 0, *, minimum: Budget | Usage | None = None
    ) -> Reservation:
        """Hold all of it on the whole path, at once or not at all; never waits.

        Raises `InsufficientBudget` if it does not fit now: nothing is held, nothing halted. Raises
        `HaltError` if halted, time is up, or if not even `minimum` (default, and for 0: one unit
        of each dimension asked for) fits between what is spent and a limit; that limit's governor is then
        halted. A tool call over its limit is refused, never a halt.
        """
        units = _asked(tokens, dollars, tool_calls)
        least = _ONE_OF_EACH if minimum is None else _least(units, minimum)
        node = self._node
        with node.tree.lock:
            halts.check(node)
            if node.book(units):
                return reservation(node, units)
            raise refusal(node, units, least)

    async def hold(
        self, tokens: int = 0, dollars: Money = 0, tool_calls: int = 0, *, minimum: Budget | Usage | None = None
    ) -> Reservation:
        """Like `reserve`, but wait, first come first served, while other holds are open where it does not fit.

        Waits for the full amount; when no other hold is open there, takes what is left, down to `minimum`.
        Never waits for what others were guaranteed, nor while the caller itself holds the same dimension:
        both raise `InsufficientBudget`. Cancelled while waiting, it holds nothing. Suspends only to wait.
        """
        units = _asked(tokens, dollars, tool_calls)
        least = _ONE_OF_EACH if minimum is None else _least(units, minimum)
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            if not tree.lines and node.book(units):
                return reservation(node, units)
            waiter = _line_up(node, units, least)
        finally:
            tree.release()
        return reservation(node, await wait(waiter))

    def record_usage(
        self, prompt_tokens: int = 0, completion_tokens: int = 0, dollars: Money = 0, tool_calls: int = 0
    ) -> None:
        """Book what was spent without a hold, here and on every ancestor.

        Books first. Then, if what it added used a limit up here or above, or time is up, stops that
        governor and raises `HaltError`; also when it was halted before. After `close` the nearest open
        ancestor books it.
        """
        try:
            if (prompt_tokens | completion_tokens | tool_calls) < 0:
                check_used(prompt_tokens, completion_tokens, tool_calls)
        except TypeError:
            check_used(prompt_tokens, completion_tokens, tool_calls)
        tokens = prompt_tokens + completion_tokens
        picos = picodollars(dollars) if dollars else 0
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None:
                node = node.nearest_open()
            node.spend(tokens, completion_tokens, picos, tool_calls)
            if _reaches_a_limit(node, tokens, picos, tool_calls):
                node.mark_overdrawn()
                halts.stop_crossed(node, (tokens, picos, 0, tool_calls))
            if (node.timed or tree.halts) and node.ended is None:
                halts.check(node)
        finally:
            tree.release()

    def restore(self, usage: Usage, sign: int = 1) -> None:
        """Book what an earlier session spent here, seconds aside; nothing is checked. The sign -1 takes it back."""
        with self._node.tree.lock:
            charge(self._node.nearest_open(), usage, sign)

    def cancel(self, reason: HaltReason = HaltReason.CANCELLED) -> None:
        """Stop this governor and everything under it: from any task, thread or signal handler.

        Never blocks and may be called again: the first reason wins. Work inside a `scope` is interrupted.
        """
        halts.stop(self._node, HaltReason(reason))

    def carve(self, name: str, budget: Budget = FREE, *, guarantee: Budget | None = None) -> Governor:
        """Make a child: `budget` is its ceiling, `guarantee` is set aside here at once.

        The default guarantee is all of the ceiling that is finite. Beyond its guarantee the child draws on
        what no node was guaranteed. Its seconds start now and never outlast its ancestors'. Names may repeat.
        Raises `InsufficientBudget` naming the dimension if the guarantee is not there, `ValueError` if it
        is more than the ceiling, `HaltError` if halted, `GovernorClosed` after `close`.
        """
        limit = UNLIMITED if budget is FREE else limits_of(budget)
        if guarantee is None:
            amounts = NOTHING if limit is UNLIMITED else finite(limit)
        else:
            amounts = units_of(guarantee)
            if limit is not UNLIMITED:
                check_within(amounts, limit)
        node = self._node
        tree = node.tree
        child = _blank(Governor)
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            child._node = node.carve(name, budget, limit, amounts)  # noqa: SLF001 - one of its own kind
        finally:
            tree.release()
        return child

    def carve_again(self, name: str, budget: Budget, spent: Usage) -> Governor:
        """Carve a child that was closed and continues: its earlier spending, seconds included, is its own again."""
        with self._node.tree.lock:
            charge(self._node.nearest_open(), spent, -1)
            try:
                child = self.carve(name, budget)
            except BaseException:
                charge(self._node.nearest_open(), spent)
                raise
            restore(child._node, spent)  # noqa: SLF001 - one of its own kind
        return child

    def carve_share(
        self, name: str, ceiling: Budget | None, part: float, reserve: float, least: Units = NOTHING
    ) -> tuple[Governor, Units]:
        """Make a child guaranteed a part of what is not allotted yet; return it and its guarantee in ledger units.

        `part` and `reserve` are shares (0 to 1) of what is left and of the limit, which is left aside. Rounded down,
        but at least one unit of each limited dimension that is not limited to 0; more than the ceiling is cut to it;
        a part of 0 is nothing. Where the part is less than `least` the child gets `least`, in ledger units too, and
        nothing is carved where that much is not there beside the reserve. Ledger units are tokens, picodollars, loops,
        tool calls. Raises `InsufficientBudget` and `GovernorClosed` like `carve`; of a halted governor it makes a
        halted child: the attempt finds out.
        """
        budget, limit = (FREE, UNLIMITED) if ceiling is None else (ceiling, limits_of(ceiling))
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None:
                raise GovernorClosed(node.name)
            least = least if limit is UNLIMITED or least is NOTHING else cut(least, limit)
            guarantee = node.share(part, reserve, least) if node.limited and part else NOTHING
            guarantee = guarantee if limit is UNLIMITED else cut(guarantee, limit)
            carved = node.carve(name, budget, limit, guarantee)
        finally:
            tree.release()
        child = _blank(Governor)
        child._node = carved  # noqa: SLF001 - one of its own kind
        return child, guarantee

    def top_up(self, budget: Budget) -> None:
        """Enlarge the guarantee and ceiling from the parent's remainder; on the root, raise the limit.

        `None` leaves a dimension as it is; what has no ceiling stays without one. Lifts exhaustion of what
        was enlarged, never a cancel, an emergency stop, a deadline that passed or a restored halt. Raises
        `InsufficientBudget` when there is not that much: then nothing moves. `GovernorClosed` after `close`.
        """
        node = self._node
        more = units_of(budget)
        with node.tree.lock:
            if node.ended is not None:
                raise GovernorClosed(node.name)
            node.enlarge(more, budget.seconds)
            for dim, extra in enumerate(more):
                if extra:
                    halts.lift(node, dim)
            serve(node)
        if budget.seconds is not None:
            for scope in halts.scopes_inside(node):
                scope.refresh()

    def top_up_share(self, dimension: str, part: float) -> Units:
        """Set aside more of one dimension, out of what the parent has not allotted; return it in ledger units.

        `part` (0 to 1) is the share of that remainder. At least one unit, at most up to the own ceiling, which stays;
        nothing where there is nothing to set aside. `dimension` is a field of `Budget` other than seconds.
        """
        node, dim = self._node, DIMENSIONS.index(dimension)
        more = [0, 0, 0, 0]
        with node.tree.lock:
            parent = node.parent
            left = parent.unallotted(dim) if parent is not None and node.ended is None else None
            if parent is None or not left:
                return NOTHING
            ceiling = node.limit[dim]
            wanted = max(1, min(left, int(left * part)))
            more[dim] = wanted if ceiling is None else min(wanted, ceiling - node.guarantee[dim])
            tokens, dollars, loops, tool_calls = more
            try:
                node.enlarge_guarantee(parent, (tokens, dollars, loops, tool_calls))
            except InsufficientBudget:
                return NOTHING
            serve(node)
        return (tokens, dollars, loops, tool_calls)

    def close(self) -> None:
        """End this governor: close its children, charge open holds in full, give the rest back.

        May be called again. Afterwards guards raise `GovernorClosed`, or the `HaltError` of the halt it ended with;
        late money is still booked.
        """
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is None:
                node.close()
                if tree.waiters:
                    dismiss(node)
        finally:
            tree.release()

    def forget(self) -> None:
        """Take a closed governor out of its parent's tree; what is booked late on it still counts there."""
        with self._node.tree.lock:
            self._node.tree.forget(self._node)

    # -- interruption -------------------------------------------------------------------------

    def scope(self) -> GovernorScope:
        """Return an async context manager whose body is cancelled as soon as this or an ancestor is stopped.

        Entry raises `HaltError` if halted. Exit raises it only if this scope itself caught the
        cancellation: the outermost stopped scope raises, a foreign cancellation always passes, a body that
        finished keeps its value. A group of nothing but `HaltError`s becomes the first of them.
        After `GovernorScope.cancel` the block is left quietly.
        """
        return GovernorScope(self._node)

    # -- views --------------------------------------------------------------------------------

    @property
    def halted(self) -> HaltReason | None:
        """Why guards here refuse: the own reason, else the nearest ancestor's; `None` while they do not."""
        node = self._node
        halt = in_force(node) if node.tree.halts else None
        return halt.reason if halt else None

    @property
    def stopped(self) -> HaltReason | None:
        """Why what runs here is being interrupted; `None` while it is not (an exhausted governor only refuses)."""
        node = self._node
        halt = in_force(node, stopped=True) if node.tree.halts else None
        return halt.reason if halt else None

    @property
    def final(self) -> HaltReason | None:
        """Why work here has ended for good, so that no top-up can help; `None` while a top-up still could."""
        node = self._node
        final = node.tree.final
        return next((final[one].reason for one in node.line() if one in final), None) if final else None

    @property
    def budget(self) -> Budget:
        """The ceiling, top-ups included."""
        return self._node.budget

    @property
    def name(self) -> str:
        """The name it was given; others may have the same."""
        return self._node.name

    @property
    def path(self) -> str:
        """The names from the root to here, joined by slashes; unique in the tree (a second `a` is `a#2`)."""
        return self._node.full_path()

    @property
    def remaining(self) -> Budget:
        """The largest `reserve` that would succeed now (and loops and seconds left); `None` is unlimited."""
        node = self._node
        with node.tree.lock:
            if node.ended is not None:
                return Budget(0, 0, 0, 0, 0)
            due = node.earliest_deadline()
            seconds = None if due is None else max(0.0, due[0] - node.tree.clock())
            return budget_of((node.room(TOKENS), node.room(DOLLARS), node.room(LOOPS), node.room(TOOL_CALLS)), seconds)

    @property
    def unallotted(self) -> Budget:
        """Limit minus committed, at the nearest governor limited in each dimension; `None` is unlimited."""
        node = self._node
        with node.tree.lock:
            tokens, dollars, loops, tool_calls = map(node.unallotted, ALL_DIMENSIONS)
        return budget_of((tokens, dollars, loops, tool_calls))

    def allottable(self, reserve: float) -> Limits:
        """Return what could be guaranteed to children now beside a reserve, in ledger units; `None` is unlimited.

        `reserve` is a share (0 to 1) of the limit of the nearest governor limited in each dimension.
        """
        node = self._node
        with node.tree.lock:
            tokens, dollars, loops, tool_calls = (node.allottable(dim, reserve) for dim in ALL_DIMENSIONS)
        return (tokens, dollars, loops, tool_calls)

    @property
    def unspent(self) -> Limits:
        """Limit minus spent, at the nearest governor limited in each dimension, in ledger units; `None`: unlimited."""
        tokens, dollars, loops, tool_calls = map(self._node.unspent, ALL_DIMENSIONS)
        return (tokens, dollars, loops, tool_calls)

    @property
    def limited(self) -> bool:
        """Whether it or a governor above it has a limit other than seconds."""
        return bool(self._node.limited)

    @property
    def guarantee(self) -> Budget:
        """What was set aside for it, top-ups included; `None` in dimensions without a guarantee."""
        return guarantee_of(self._node)

    @property
    def held(self) -> Usage:
        """What is held for calls in flight, here and below (tokens as prompt tokens)."""
        with self._node.tree.lock:
            return usage_of(*self._node.held_units())

    @property
    def overshoot(self) -> Usage:
        """By how much truths booked late have passed its limits (tokens as prompt tokens)."""
        with self._node.tree.lock:
            return usage_of(*self._node.overshoot_units())

    def passed_limits(self) -> list[tuple[str, int, int, int]]:
        """Return the limits passed here and below, outermost first: name, dimension, limit, and how much is beyond it.

        In ledger units; a dimension is a place in tokens, dollars, loops, tool calls.
        """
        with self._node.tree.lock:
            return passed_limits(self._node)

    @property
    def elapsed(self) -> float:
        """Seconds since it was made, restored ones included, until `close`."""
        return self._node.elapsed()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._node.ended is not None

    @property
    def usage(self) -> Usage:
        """What it and everything below it spent."""
        return self._node.usage()

    @property
    def spent(self) -> list[int]:
        """What it and everything below it spent, in ledger units: tokens, picodollars, loops, tool calls."""
        return self._node.cells[:4]

    @property
    def took(self) -> Units:
        """What it and everything below it spent, in ledger units; of tokens and dollars the most that was claimed.

        That is spent and held together, at the hold made here that had to fit in beside most.
        """
        cells = self._node.cells
        most, most_picos = cells[PEAK], cells[PEAK + DOLLARS]
        tokens, picos = cells[TOKENS], cells[DOLLARS]
        return (most if most > tokens else tokens, most_picos if most_picos > picos else picos, cells[2], cells[3])  # noqa: FURB136 - `max` is slow

    def status(self) -> tuple[Usage, HaltReason | None]:
        """Return what it and everything below it spent, and why it halted (or `None`)."""
        return self._node.usage(), self.halted

    def tree(self) -> BudgetNode:
        """Write down this governor and everything carved from it: prints for people and goes to JSON."""
        with self._node.tree.lock:
            return write_down(self._node, self.path)

    def __repr__(self) -> str:
        return f"<Governor {self.path!r} {self.budget!r} halted={self.halted and str(self.halted)!r}>"


def _asked(tokens: int, dollars: Money, tool_calls: int) -> Units:
    """Turn what is asked for into ledger units."""
    if type(tokens) is not int or type(tool_calls) is not int or (tokens | tool_calls) < 0:
        check_count("an amount of tokens to hold", tokens)
        check_count("an amount of tool calls to hold", tool_calls)
    return (tokens, picodollars(dollars) if dollars else 0, 0, tool_calls)


def _line_up(node: Node, units: Units, least: Units) -> Waiter:
    """Make the caller wait for what it cannot have at once; decided already where there is nothing to wait for."""
    waiter = Waiter(node, units, least)
    if not holds_already(node, units):
        waiter.decide()
    elif node.book(units):
        waiter.granted = units
    else:
        raise refusal(node, units, least)
    return waiter


def _least(asked: Units, minimum: Budget | Usage) -> Units:
    """Return the least useful amount: `minimum`, or one unit when that is missing or 0."""
    least = [1, 1, 1, 1]
    for dim, amount in ((TOKENS, minimum.tokens), (TOOL_CALLS, minimum.tool_calls), (DOLLARS, minimum.dollars)):
        if amount:
            least[dim] = amount if isinstance(amount, int) else picodollars(amount)
            if least[dim] > asked[dim]:
                raise ValueError(f"minimum {DIMENSIONS[dim]} ({amount}) is more than asked ({shown(dim, asked[dim])})")
    tokens, dollars, loops, tool_calls = least
    return (tokens, dollars, loops, tool_calls)


def _reaches_a_limit(node: Node, tokens: int, picos: int, tool_calls: int) -> bool:
    """Return whether all of a limit of the path is committed, in one of the dimensions just charged."""
    for limited in node.limited:
        most, cells = limited.limit, limited.cells
        if tokens:
            limit = most[TOKENS]
            if limit is not None and cells[COMMITTED] >= limit:
                return True
        if picos:
            limit = most[DOLLARS]
            if limit is not None and cells[COMMITTED + DOLLARS] >= limit:
                return True
        if tool_calls:
            limit = most[TOOL_CALLS]
            if limit is not None and cells[COMMITTED + TOOL_CALLS] >= limit:
                return True
    return False


def write_down(node: Node, path: str) -> BudgetNode:
    """Write down a node and everything below it, as it is now. Needs the lock."""
    tree = node.tree
    if node.ended is not None and not tree.halts:
        return _write_ended(_remember(node), path)
    children = (node.children or {}).values()
    return _write(
        node, node.cells, path, in_force(node), tuple(write_down(one, f"{path}/{one.escaped()}") for one in children)
    )


Ended = tuple["Node", list[int], Sequence["Ended"]]
"""A closed node, what it counted, and those below it."""


def _remember(node: Node) -> Ended:
    """Keep what a closed node counted: a truth booked later counts anew (`Node.cells` is then another list)."""
    children = node.children
    return node, node.cells, [_remember(child) for child in children.values()] if children else ()


def _write_ended(ended: Ended, path: str) -> BudgetNode:
    """Return a closed node as a value; its children are made when they are read."""
    node, cells, below = ended
    children = ReadLater(partial(_write_all_ended, below, path)) if below else ()
    return _write(node, cells, path, None, children)


def _write_all_ended(nodes: Sequence[Ended], path: str) -> tuple[BudgetNode, ...]:
    return tuple(_write_ended(ended, f"{path}/{ended[0].escaped()}") for ended in nodes)


def _write(node: Node, cells: list[int], path: str, halt: Halt | None, children: Sequence[BudgetNode]) -> BudgetNode:
    return BudgetNode(
        name=node.name,
        path=path,
        budget=node.budget,
        guarantee=guarantee_of(node),
        usage=node.usage(cells),
        held=usage_of(*node.held_units()),
        overshoot=usage_of(*node.overshoot_units(cells)),
        halt=halt.reason if halt else None,
        origin=halt.node.name if halt else None,
        closed=node.ended is not None,
        children=children,
    )


def passed_limits(node: Node) -> list[tuple[str, int, int, int]]:
    """List the limits passed at a node and below it, with what is beyond them. Needs the lock."""
    if not node.tree.overdrawn:
        return []
    return [
        (one.name, dim, limit, over)
        for one in family(node)
        for dim, (limit, over) in enumerate(zip(one.limit, one.overshoot_units(), strict=True))
        if limit is not None and over
    ]


def guarantee_of(node: Node) -> Budget:
    """Return what was set aside for a node; `None` in dimensions without a guarantee."""
    tokens, dollars, loops, tool_calls = node.guarantee
    return budget_of((tokens or None, dollars or None, loops or None, tool_calls or None))


def charge(node: Node, usage: Usage, sign: int = 1) -> None:
    """Book a usage here and above, seconds aside; with the sign -1 take it back."""
    tokens, completion = sign * usage.tokens, sign * usage.completion_tokens
    node.spend(tokens, completion, sign * picodollars(usage.dollars), sign * usage.tool_calls)
    node.move(LOOPS, sign * usage.loops, sign * usage.loops)
    node.mark_overdrawn()


def restore(node: Node, usage: Usage) -> None:
    """Book what an earlier session spent, its active seconds included."""
    charge(node, usage)
    node.started -= usage.seconds
    if node.deadline is not None:
        node.deadline -= usage.seconds
