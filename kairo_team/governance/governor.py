"""`Governor`: the budget of a run, a team, a member or a task, and the kill switch of everything under it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, final

from kairo_team._util.drawn import drawing
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
from kairo_team.governance.cancel_scope import GovernorScope
from kairo_team.governance.halts import Halt, Tree, family, in_force
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
    smaller,
    units_of,
    usage_of,
)

__all__ = ["Governor", "Reservation"]

_ONE_LOOP: Final[Units] = (0, 0, 1, 0)
_ONE_OF_EACH: Final[Units] = (1, 1, 1, 1)


@final
class Governor:
    """One node of a budget tree: spending counts on every ancestor, and no spending passes a limit.

    `beside` opens a shared governor: one budget over children of several parents. A child carved with `shared` counts
    on its parent and the parent's ancestors, and on the shared governor and its ancestors. Every limit and every halt
    of both lines applies to the child.

    Its seconds start when it is made. The guards read `clock` (seconds, any origin; default `time.monotonic`), possibly
    from several threads. `restored_usage`, seconds included, counts against the budget again; no top-up lifts
    `restored_halt`. All methods may be called from any thread, and `cancel` from signal handlers too.
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

        Raises `HaltError` if the governor is halted, if spent tokens, dollars (under a limit above 0) or time have
        reached a limit here or above, or if the iteration would exceed a limit. Raises `InsufficientBudget` if only
        the guarantees of others prevent it. A token limit of 0 refuses no iteration while no tokens are spent: an
        iteration may need no model.
        """
        node = self._node
        tree = node.tree
        # `acquire` and `release` are cheaper than `with tree.lock`, and every turn of every agent comes here.
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            left = 0
            if tree.repeats:  # an iteration that repeats recorded calls is counted, and not refused
                left = tree.repeats.pop(node, 0)
                if left > 1:
                    tree.repeats[node] = left - 1
            if not left:
                halts.check_begin(node)
            # A claim that is paid at once: an iteration has no time in flight.
            if not node.claim(LOOPS, 1):
                halts.check_hopeless(node, _ONE_LOOP, _ONE_LOOP)
                raise node.insufficient(LOOPS, 1)
            node.pay(LOOPS, 1)
        finally:
            tree.release()

    def repeat_steps(self, count: int) -> None:
        """Do not refuse the next `count` iterations because of spending: they repeat calls that are paid already."""
        self._node.tree.repeats[self._node] = count

    def can_proceed(self) -> None:
        """Check that a call may be made now: call it immediately before.

        Raises `HaltError` if the governor is halted, or if spent tokens, dollars (under a limit above 0) or time have
        reached a limit here or above. It does not check loops and tool calls.
        """
        node = self._node
        if node.ended is not None or node.timed or node.tree.halts:
            halts.check(node)
        for limited in node.limited:
            tokens, dollars, _, _ = limited.limit  # without the lock: the hold that follows checks under it
            spent = limited.cells
            if (tokens is not None and spent[TOKENS] >= tokens) or (dollars and spent[DOLLARS] >= dollars):
                halts.check_spent(node)

    # -- spending -----------------------------------------------------------------------------

    def reserve(
        self, tokens: int = 0, dollars: Money = 0, tool_calls: int = 0, *, minimum: Budget | Usage | None = None
    ) -> Reservation:
        """Hold the whole amount on this governor and its ancestors, or nothing; never wait.

        Raises `InsufficientBudget` if it does not fit now; then nothing is held or halted. Raises `HaltError` if the
        governor is halted, if its time is up, or if even `minimum` does not fit between the spent amount and a limit;
        then the governor with that limit halts. `minimum` is by default, and for 0, one unit of each requested
        dimension. A tool call over its limit is refused and never halts.
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
        self,
        tokens: int = 0,
        dollars: Money = 0,
        tool_calls: int = 0,
        *,
        minimum: Budget | Usage | None = None,
        on_wait: Callable[[], object] | None = None,
    ) -> Reservation:
        """Like `reserve`, but wait, first come first served, while other holds are open where it does not fit.

        It waits for the full amount. Once no other hold is open there, it takes the amount left, down to `minimum`. It
        raises `InsufficientBudget` instead of waiting for the guarantees of others, or while the caller itself holds
        the same dimension. When cancelled it holds nothing. It suspends only to wait; `on_wait` is called before that.
        """
        units = _asked(tokens, dollars, tool_calls)
        least = _ONE_OF_EACH if minimum is None else _least(units, minimum)
        node = self._node
        tree = node.tree
        if tree.borrower is not None:
            units = await tree.borrower.cover(node, units, least, on_wait)
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            # Where others wait, this call joins the line, even if its own amount would fit now.
            if not tree.lines and node.book(units):
                return reservation(node, units)
            waiter = _line_up(node, units, least)
        finally:
            tree.release()
        return reservation(node, await wait(waiter, on_wait))

    def record_usage(
        self, prompt_tokens: int = 0, completion_tokens: int = 0, dollars: Money = 0, tool_calls: int = 0
    ) -> None:
        """Book spending that had no hold, here and on every ancestor.

        It books first. If the amount used up a limit here or above, or if time is up, it then stops that governor and
        raises `HaltError`. It also raises if the governor was halted before. After `close` the nearest open ancestor
        books the amount.
        """
        try:
            # One test for three whole numbers; the full check also names the wrong one.
            if (prompt_tokens | completion_tokens | tool_calls) < 0:
                check_used(prompt_tokens, completion_tokens, tool_calls)
        except TypeError:  # not whole numbers
            check_used(prompt_tokens, completion_tokens, tool_calls)
        tokens = prompt_tokens + completion_tokens
        picos = picodollars(dollars) if dollars else 0
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None:
                _record_late(node, (tokens, picos, 0, tool_calls), completion_tokens)
                return
            node.spend(tokens, completion_tokens, picos, tool_calls)
            if _reaches_a_limit(node, tokens, picos, tool_calls):
                node.mark_overdrawn()
                halts.stop_crossed(node, (tokens, picos, 0, tool_calls))
            if node.timed or tree.halts:
                halts.check(node)
        finally:
            tree.release()

    def restore(self, usage: Usage, sign: int = 1) -> None:
        """Book the usage of an earlier session here, without seconds and without a check; sign -1 takes it back."""
        with self._node.tree.lock:
            charge(self._node, usage, sign)

    def cancel(self, reason: HaltReason = HaltReason.CANCELLED) -> None:
        """Stop this governor and its descendants; may be called from any task, thread or signal handler.

        Never blocks. May be called again: the first reason stays. Work inside a `scope` is interrupted.
        """
        halts.stop(self._node, HaltReason(reason))

    def beside(self, name: str, budget: Budget = FREE, *, restored_usage: Usage | None = None) -> Governor:
        """Open a shared governor; `budget` is the ceiling of all children carved with it, here and below.

        A shared governor is not a child: nothing is set aside for it, its usage does not count here, and its path
        begins with its own name. A governor carved from it is shared too, with both ceilings. Stopping or closing it
        also stops or closes its children; closing this governor closes it. `restored_usage`, seconds included, counts
        against that budget again. Raises `GovernorClosed` after `close`.
        """
        node = self._node
        with node.tree.lock:
            if node.ended is not None:
                raise GovernorClosed(node.name)
            beside = plant(node.tree, None, name, budget, limits_of(budget))
            node.tree.join(node.tree.beside, node, beside)
            node.children = node.children or {}  # not None: only then does `Node.close` look for shared nodes
            if restored_usage is not None:
                restore(beside, restored_usage)
        return _governor_of(beside)

    def carve(
        self, name: str, budget: Budget = FREE, *, guarantee: Budget | None = None, shared: Governor | None = None
    ) -> Governor:
        """Make a child: `budget` is its ceiling, and `guarantee` is set aside here at once.

        The default guarantee is the ceiling, in the dimensions where it is finite. Above its guarantee the child uses
        amounts that are not guaranteed to any node. Its seconds start now and never outlast its ancestors'. Names may
        repeat. Raises `InsufficientBudget`, which names the dimension, if the guarantee cannot be set aside,
        `ValueError` if it is more than the ceiling, `HaltError` if halted, and `GovernorClosed` after `close`.
        `shared` is a governor that `beside` opened here or above, or one carved from it: the child counts on it too,
        and the guarantee is set aside there too. Raises `ValueError` for any other governor, and if this governor
        already counts on `shared`.
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
        tree.acquire()
        try:
            if node.ended is not None or node.timed or tree.halts:
                halts.check(node)
            if shared is None:
                return _governor_of(node.carve(name, budget, limit, amounts))
            across = self._across(shared)
            halts.check(across)
            return _governor_of(node.carve_under(across, name, budget, limit, amounts))
        finally:
            tree.release()

    def carve_again(self, name: str, budget: Budget, spent: Usage) -> Governor:
        """Carve a closed child again: its earlier spending, seconds included, counts on it again."""
        with self._node.tree.lock:
            charge(self._node, spent, -1)  # first: `carve` needs that room
            try:
                child = self.carve(name, budget)
            except BaseException:
                charge(self._node, spent)
                raise
            restore(child._node, spent)  # noqa: SLF001 - one of its own kind
        return child

    def carve_share(
        self,
        name: str,
        ceiling: Budget | None,
        part: float,
        reserve: float,
        least: Units = NOTHING,
        *,
        shared: Governor | None = None,
        shared_part: float = 1.0,
    ) -> tuple[Governor, Units]:
        """Make a child whose guarantee is a part of the unallotted amount; return it and its guarantee.

        `part` is a share (0 to 1) of the unallotted amount without the reserve, and `reserve` a share of the limit. The
        guarantee is rounded down to whole ledger units (tokens, picodollars, loops, tool calls). It is at least one
        unit in each dimension with a limit above 0, at least `least`, and at most the ceiling. A part of 0 gives no
        guarantee. Raises `InsufficientBudget` where the reserve leaves less than `least`, and `GovernorClosed` like
        `carve`. A halted governor makes a halted child, and the first guard of the attempt raises.

        With `shared` (as for `carve`) the guarantee is at most `shared_part` of the unallotted amount there, by the
        same rules and without a reserve.
        """
        budget, limit = (FREE, UNLIMITED) if ceiling is None else (ceiling, limits_of(ceiling))
        node = self._node
        tree = node.tree
        tree.acquire()
        try:
            if node.ended is not None:
                raise GovernorClosed(node.name)
            least = least if limit is UNLIMITED or least is NOTHING else cut(least, limit)
            across = None if shared is None else self._across(shared)
            guarantee = node.share(part, reserve, least) if node.limited and part else NOTHING
            if across is not None and across.limited and part:
                guarantee = smaller(node, guarantee, across, across.fitting_share(shared_part, least))
            guarantee = guarantee if limit is UNLIMITED else cut(guarantee, limit)
            carved = node.carve_under(across, name, budget, limit, guarantee)
        finally:
            tree.release()
        return _governor_of(carved), guarantee

    def carve_with(
        self, name: str, ceiling: Budget | None, guarantee: Units, *, shared: Governor | None = None
    ) -> Governor:
        """Make a child with a guarantee, in ledger units, that was decided before. A halted governor makes one too.

        Raises `InsufficientBudget` where the guarantee does not fit, here or at `shared` (as for `carve`), and
        `GovernorClosed` after `close`.
        """
        budget, limit = (FREE, UNLIMITED) if ceiling is None else (ceiling, limits_of(ceiling))
        node = self._node
        with node.tree.lock:
            if node.ended is not None:
                raise GovernorClosed(node.name)
            carved = node.carve_under(None if shared is None else self._across(shared), name, budget, limit, guarantee)
        return _governor_of(carved)

    def _across(self, shared: Governor) -> Node:
        """Return the node of a shared governor for a new child. Needs the lock."""
        if type(shared) is not Governor or shared._node.tree is not self._node.tree:
            raise ValueError(f"shared must be opened by Governor.beside in the same tree, not {shared!r}")
        self._node.check_shared(shared._node)
        if shared._node.ended is not None:
            raise GovernorClosed(shared._node.name)
        return shared._node

    def graft(self, ended: Sequence[BudgetNode]) -> None:
        """Add closed children of an earlier session that are not here yet; books nothing."""
        node = self._node
        with node.tree.lock:
            for one in ended[len(node.children or ()) :]:  # those before it are grafted already
                _graft(node, one)

    @property
    def inside(self) -> Sequence[BudgetNode]:
        """The children and everything below, as values."""
        node = self._node
        return self.tree().children if node.children else ()

    def top_up(self, budget: Budget) -> None:
        """Enlarge the guarantee and ceiling from the parent's unallotted amount; without a parent, raise the limit.

        `None` leaves a dimension as it is; a dimension without a ceiling stays without one. A top-up lifts the
        exhaustion of the dimensions it enlarges, but no cancel, emergency stop, passed deadline or restored halt.
        Raises `InsufficientBudget` if the parent has less left, `GovernorClosed` after `close`; both change nothing.
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
        if budget.seconds is not None:  # timers were set for the old deadline
            for scope in halts.scopes_inside(node):
                scope.refresh()

    def top_up_share(self, dimension: str, part: float, asked: int = 0) -> Units:
        """Enlarge the guarantee in one dimension, out of the parent's unallotted amount; return the amount added.

        `part` (0 to 1) is the share of that unallotted amount; more is added where `asked` ledger units fit now, and
        others could take them. At least one unit is added, at most up to the governor's own ceiling, which stays, and
        nothing where the parent has nothing unallotted. `dimension` is a field of `Budget` other than seconds.
        """
        node, dim, more = self._node, DIMENSIONS.index(dimension), [0, 0, 0, 0]
        with node.tree.lock:
            parent = node.parent
            owners = () if node.ended is not None else (one for one in (parent, node.shared) if one is not None)
            left = min((free for one in owners if (free := one.unallotted(dim)) is not None), default=None)
            if parent is None or not left:
                return NOTHING
            wanted = max(1, min(left, int(left * part)))  # rounding to 0 would never help a small budget
            unused = node.guarantee[dim] - node.cells[COMMITTED + dim]  # below 0 where it borrowed
            if asked and unused < asked <= (node.room(dim) or 0):
                wanted = max(wanted, asked - unused)
            ceiling = node.limit[dim]
            more[dim] = wanted if ceiling is None else min(wanted, ceiling - node.guarantee[dim])
            added: Units = (more[0], more[1], more[2], more[3])
            try:
                node.enlarge_guarantee(parent, added)
            except InsufficientBudget:
                return NOTHING
            serve(node)
        return added

    def close(self) -> None:
        """Close the children and this governor, charge open holds in full, give the rest back.

        May be called again. Afterwards guards raise `GovernorClosed`, or `HaltError` if the governor was halted
        before. Spending that is reported later is still booked.
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
        """Remove a closed governor from the parent's tree; spending booked on it later still counts there."""
        with self._node.tree.lock:
            self._node.tree.forget(self._node)

    # -- interruption -------------------------------------------------------------------------

    def scope(self) -> GovernorScope:
        """Return an async context manager whose body is cancelled as soon as this or an ancestor is stopped.

        Entry raises `HaltError` if the governor is halted. Exit raises it only if this scope itself caught the
        cancellation: the outermost stopped scope raises, a cancellation from elsewhere always passes, and a body that
        finished keeps its value. An exception group with only `HaltError`s is replaced by its first. After
        `GovernorScope.cancel` the block ends without an error.
        """
        return GovernorScope(self._node)

    # -- views --------------------------------------------------------------------------------

    @property
    def halted(self) -> HaltReason | None:
        """Why guards refuse: the governor's own reason, else the nearest ancestor's; `None` while they do not."""
        node = self._node
        halt = in_force(node) if node.tree.halts else None
        return halt.reason if halt else None

    @property
    def stopped(self) -> HaltReason | None:
        """Why work here is interrupted; `None` while it is not (an exhausted governor only refuses)."""
        node = self._node
        halt = in_force(node, stopped=True) if node.tree.halts else None
        return halt.reason if halt else None

    @property
    def final(self) -> HaltReason | None:
        """Why work here has ended for good; `None` while it runs or a top-up could resume it."""
        node = self._node
        final = node.tree.final
        return next((final[one].reason for one in node.line() if one in final), None) if final else None

    @property
    def budget(self) -> Budget:
        """The ceiling, top-ups included."""
        return self._node.budget

    @property
    def name(self) -> str:
        """The given name; other governors may have the same."""
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
            tokens, dollars, loops, tool_calls = map(node.known_room, ALL_DIMENSIONS)
            return budget_of((tokens, dollars, loops, tool_calls), node.seconds_left())

    def scarcest(self, dimension: str) -> tuple[str, str]:
        """Return name and path of the governor with the least left of a limited dimension: itself, or one above it."""
        with self._node.tree.lock:
            short = self._node.insufficient(DIMENSIONS.index(dimension), 1)
        return short.origin, short.path

    @property
    def unallotted(self) -> Budget:
        """Limit minus committed, at the nearest governor limited in each dimension; `None` is unlimited."""
        node = self._node
        with node.tree.lock:
            tokens, dollars, loops, tool_calls = map(node.unallotted, ALL_DIMENSIONS)
        return budget_of((tokens, dollars, loops, tool_calls))

    def allottable(self, reserve: float) -> Limits:
        """Return the amounts that could be guaranteed to children now without a reserve, in ledger units.

        `reserve` is a share (0 to 1) of the limit of the nearest governor limited in each dimension; `None` in the
        result is unlimited.
        """
        node = self._node
        with node.tree.lock:
            return (
                node.allottable(TOKENS, reserve),
                node.allottable(DOLLARS, reserve),
                node.allottable(LOOPS, reserve),
                node.allottable(TOOL_CALLS, reserve),
            )

    @property
    def unspent(self) -> Limits:
        """Limit minus spent, at the nearest governor limited in each dimension, in ledger units; `None`: unlimited."""
        tokens, dollars, loops, tool_calls = map(self._node.unspent, ALL_DIMENSIONS)
        return (tokens, dollars, loops, tool_calls)

    @property
    def limited(self) -> bool:
        """Whether this governor or an ancestor has a limit other than seconds."""
        return bool(self._node.limited)

    @property
    def guarantee(self) -> Budget:
        """The amount set aside for this governor, top-ups included; `None` in dimensions without a guarantee."""
        return guarantee_of(self._node)

    @property
    def held(self) -> Usage:
        """The amounts held for calls in flight, here and below (tokens as prompt tokens)."""
        with self._node.tree.lock:
            return usage_of(*self._node.held_units())

    @property
    def overshoot(self) -> Usage:
        """The excess over the limits, from usage that was reported above its hold (tokens as prompt tokens)."""
        with self._node.tree.lock:
            return usage_of(*self._node.overshoot_units())

    def passed_limits(self) -> list[tuple[str, int, int, int]]:
        """Return the exceeded limits here and below, outermost first: name, index of dimension, limit, excess."""
        with self._node.tree.lock:
            return passed_limits(self._node)

    @property
    def elapsed(self) -> float:
        """Seconds from the start to `close`, or to now while open; restored seconds included."""
        return self._node.elapsed()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, here or above."""
        return self._node.ended is not None

    @property
    def usage(self) -> Usage:
        """The usage of this governor and everything below."""
        return self._node.usage()

    @property
    def spent(self) -> list[int]:
        """The usage here and below, in ledger units: tokens, picodollars, loops, tool calls."""
        return self._node.cells[:4]

    @property
    def took(self) -> Units:
        """The usage here and below, in ledger units; for tokens and dollars at least the peak at a hold here."""
        cells = self._node.cells
        most, most_picos = cells[PEAK], cells[PEAK + DOLLARS]
        tokens, picos = cells[TOKENS], cells[DOLLARS]
        return (most if most > tokens else tokens, most_picos if most_picos > picos else picos, cells[2], cells[3])  # noqa: FURB136 - `max` is slow

    def status(self) -> tuple[Usage, HaltReason | None]:
        """Return the usage here and below, and the reason of the halt (or `None`)."""
        return self._node.usage(), self.halted

    def tree(self) -> BudgetNode:
        """Return this governor and everything below as a value, which prints for people and converts to JSON."""
        with self._node.tree.lock:
            return write_down(self._node, self.path)

    def __repr__(self) -> str:
        return f"<Governor {self.path!r} {self.budget!r} halted={self.halted and str(self.halted)!r}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the tree of budgets."""
        return drawing("show_governor")(self)


def _governor_of(node: Node) -> Governor:
    """Return a governor for a node that was made already."""
    made = object.__new__(Governor)
    made._node = node  # pyright: ignore[reportPrivateUsage]  # its own kind
    return made


def _asked(tokens: int, dollars: Money, tool_calls: int) -> Units:
    """Return the requested amounts in ledger units."""
    if type(tokens) is not int or type(tool_calls) is not int or (tokens | tool_calls) < 0:
        check_count("an amount of tokens to hold", tokens)
        check_count("an amount of tool calls to hold", tool_calls)
    return (tokens, picodollars(dollars) if dollars else 0, 0, tool_calls)


def _line_up(node: Node, units: Units, least: Units) -> Waiter:
    """Return a waiter for an amount that does not fit now; already decided if there is nothing to wait for."""
    waiter = Waiter(node, units, least)
    if not holds_already(node, units):
        waiter.decide()
    elif node.book(units):
        waiter.granted = units
    else:
        raise refusal(node, units, least)
    return waiter


def _least(asked: Units, minimum: Budget | Usage) -> Units:
    """Return the smallest useful amounts: `minimum`, or one unit where that is missing or 0."""
    least = [1, 1, 1, 1]
    for dim, amount in ((TOKENS, minimum.tokens), (TOOL_CALLS, minimum.tool_calls), (DOLLARS, minimum.dollars)):
        if amount:
            least[dim] = amount if isinstance(amount, int) else picodollars(amount)
            if least[dim] > asked[dim]:
                raise ValueError(f"minimum {DIMENSIONS[dim]} ({amount}) is more than asked ({shown(dim, asked[dim])})")
    tokens, dollars, loops, tool_calls = least
    return (tokens, dollars, loops, tool_calls)


def _reaches_a_limit(node: Node, tokens: int, picos: int, tool_calls: int) -> bool:
    """Return whether a limit on the path is fully committed, in one of the dimensions just charged."""
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


def _record_late(node: Node, units: Units, completion: int) -> None:
    """Book usage of a closed node at the nearest open node of each line, then run the guards there."""
    found, (tokens, picos, _, tool_calls) = node.nearest_open(), units
    for one in found:
        one.spend(tokens, completion, picos, tool_calls)
        if _reaches_a_limit(one, tokens, picos, tool_calls):
            one.mark_overdrawn()
            halts.stop_crossed(one, units)
    for one in found:
        if one.ended is None:
            halts.check(one)


def _graft(parent: Node, ended: BudgetNode) -> None:
    """Make a closed node from a value, with everything below it."""
    node = parent.carve(ended.name, ended.budget, limits_of(ended.budget), NOTHING)
    node.guarantee, used = units_of(ended.guarantee), ended.usage
    # The spent amounts; a closed node has no other counts but its peaks.
    node.cells[:5] = used.tokens, picodollars(used.dollars), used.loops, used.tool_calls, used.completion_tokens
    for one in ended.children:
        _graft(node, one)
    node.started, node.ended, node.limited = node.started - used.seconds, node.started, ()


def write_down(node: Node, path: str) -> BudgetNode:
    """Return a node and everything below it as a value, as it is now. Needs the lock."""
    tree = node.tree
    if node.ended is not None and not tree.halts:
        return _write_ended(_remember(node), path)
    children = (node.children or {}).values()
    below = tuple(write_down(one, _path_in(node, path, one)) for one in children)
    return _write(node, node.cells, path, in_force(node), below)


def _path_in(node: Node, path: str, child: Node) -> str:
    """Return the path of a child of a node; a child that a shared node shows has the path of its parent's line."""
    return f"{path}/{child.escaped()}" if child.parent is node else child.full_path()


Ended = tuple["Node", list[int], Sequence["Ended"]]
"""A closed node, its counts, and the closed nodes below it."""


def _remember(node: Node) -> Ended:
    """Keep the current counts of a closed node and of everything below it."""
    children = node.children
    # Late usage cannot change them: `Node._settle_late` replaces `cells` by a copy.
    return node, node.cells, [_remember(child) for child in children.values()] if children else ()


def _write_ended(ended: Ended, path: str) -> BudgetNode:
    """Return a closed node as a value; child values are built when they are read."""
    node, cells, below = ended

    def write_below() -> tuple[BudgetNode, ...]:
        return tuple(_write_ended(one, _path_in(node, path, one[0])) for one in below)

    return _write(node, cells, path, None, ReadLater(write_below) if below else ())


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
        origin_path=halt.node.full_path() if halt else None,
        closed=node.ended is not None,
        children=children,
    )


def passed_limits(node: Node) -> list[tuple[str, int, int, int]]:
    """Return the exceeded limits of a node, its descendants and their shared nodes, with the excess. Needs the lock."""
    tree = node.tree
    if not tree.overdrawn:
        return []
    below = family(node)
    return [
        (one.name, dim, limit, over)
        for one in [*below, *(beside for owner in below for beside in tree.beside.get(owner, ()))]
        for dim, (limit, over) in enumerate(zip(one.limit, one.overshoot_units(), strict=True))
        if limit is not None and over
    ]


def guarantee_of(node: Node) -> Budget:
    """Return the amount set aside for a node; `None` in dimensions without a guarantee."""
    tokens, dollars, loops, tool_calls = node.guarantee
    return budget_of((tokens or None, dollars or None, loops or None, tool_calls or None))


def charge(node: Node, usage: Usage, sign: int = 1) -> None:
    """Book a usage at the nearest open node and above, without its seconds; with the sign -1 take it back."""
    tokens, completion = sign * usage.tokens, sign * usage.completion_tokens
    for one in node.nearest_open():
        one.spend(tokens, completion, sign * picodollars(usage.dollars), sign * usage.tool_calls)
        one.move(LOOPS, sign * usage.loops, sign * usage.loops)
        one.mark_overdrawn()


def restore(node: Node, usage: Usage) -> None:
    """Book the usage of an earlier session, active seconds included."""
    charge(node, usage)
    node.started -= usage.seconds
    if node.deadline is not None:
        node.deadline -= usage.seconds
