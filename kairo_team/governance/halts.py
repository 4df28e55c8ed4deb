"""Halts: why a node of the tree refuses work, how waiters and scopes are woken, and the guards that check it.

Guards refuse at an exhausted node, and calls in flight finish; a stopped node also interrupts its scopes. Nothing here
takes the ledger's lock: a halt may come from a signal handler whose own thread holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio.lowlevel import current_token

from kairo_team._util.clock import LoopClock
from kairo_team.budget import HaltReason
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance.ledger import DIMENSIONS, DOLLARS, LOOPS, TOKENS, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kairo_team.governance.cancel_scope import GovernorScope
    from kairo_team.governance.holds import Waiter
    from kairo_team.governance.ledger import Node, Units
    from kairo_team.governance.slices import Borrower

One = TypeVar("One")
Registry = dict["Node", dict[One, None]]
"""Objects registered at each node; changed under the lock, read without it."""


class Tree:
    """The state that all nodes of one tree share.

    `halts`, `final` and `scopes` are read and written without the lock, by single dictionary operations. The other
    registries are read without the lock. So a signal handler can stop the tree while its own thread holds the lock.
    """

    __slots__ = (
        "acquire",
        "beside",
        "borrower",
        "clock",
        "final",
        "halts",
        "home",
        "lines",
        "lock",
        "more_scopes",
        "overdrawn",
        "release",
        "repeats",
        "scopes",
        "waiters",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self.home = clock if isinstance(clock, LoopClock) else None
        """The clock of the event loop this tree belongs to; None for another clock."""
        self.clock = self.home.read if self.home else clock
        # Reentrant: operations that hold it call others that take it.
        self.lock = threading.RLock()
        self.acquire = self.lock.acquire  # bound once, because every turn of every agent uses them
        self.release = self.lock.release
        self.beside: Registry[Node] = {}
        """The shared nodes that `Governor.beside` opened at each node."""
        self.repeats: dict[Node, int] = {}
        """How many of a node's next iterations repeat calls that are paid already."""
        self.halts: dict[Node, Halt] = {}
        """The first reason of each halted node."""
        self.final: dict[Node, Halt] = {}
        """Halts that no top-up lifts."""
        self.scopes: dict[Node, GovernorScope] = {}
        """The scope now open at each node; a node that is stopped interrupts those in its subtree."""
        self.more_scopes: Registry[GovernorScope] = {}
        """Scopes that were opened at a node while another one was open there."""
        self.waiters: Registry[Waiter] = {}
        """Callers of `hold` now waiting, by node; any halt wakes those in its subtree."""
        self.lines: dict[tuple[Node, int], list[Waiter]] = {}
        """The same callers by the node and dimension they wait for, first come first."""
        self.borrower: Borrower | None = None
        """Asks for more budget if the tree is a slice of another tree; None if it is not."""
        self.overdrawn = False
        """Usage above its hold has exceeded a limit somewhere: a guarantee no longer proves that the money is left."""

    def join(self, registry: Registry[One], node: Node, one: One) -> None:
        """Register something at a node."""
        with self.lock:
            registry.setdefault(node, {})[one] = None  # a dict as an ordered set: first come, first served

    def leave(self, registry: Registry[One], node: Node, one: One) -> None:
        """Remove something from a node; do nothing if it was removed before."""
        with self.lock:
            here = registry.get(node)
            if here is not None:
                here.pop(one, None)
                if not here:
                    del registry[node]

    def forget(self, node: Node) -> None:
        """Remove a closed node and all nodes below; usage booked there later still counts above. Needs the lock."""
        if node.ended is None or node.parent is None or node.parent.children is None:
            return
        node.parent.children.pop(node.segment, None)
        if node.shared is not None and node.shared.children is not None:
            node.shared.children.pop(node, None)
        for one in family(node) if self.beside else ():
            self.beside.pop(one, None)
        for halts in (self.halts, self.final):
            # A copy in one step, because a signal handler may add a halt meanwhile.
            for halted in [one for one in tuple(halts) if one.below(node)]:
                halts.pop(halted, None)


REASONS: Final = (
    HaltReason.TOKEN_BUDGET_EXCEEDED,
    HaltReason.DOLLAR_BUDGET_EXCEEDED,
    HaltReason.LOOP_BUDGET_EXCEEDED,
    HaltReason.TOOL_BUDGET_EXCEEDED,
)
"""The reason for which a node halts, by dimension."""
DIMENSION_OF: Final[Mapping[HaltReason, str]] = dict(zip(REASONS, DIMENSIONS, strict=True))
"""From a halt reason to the budget dimension that ran out."""
_HALT_OF: Final[Mapping[str, HaltReason]] = dict(zip(DIMENSIONS, REASONS, strict=True))


def reason_of(error: BaseException) -> HaltReason | None:
    """Return why work ended with this error: a halt's reason, or the budget that was short; None for other errors."""
    if isinstance(error, InsufficientBudget):
        dimension: object = error.dimension  # errors are made by hand too
        return _HALT_OF.get(dimension) if isinstance(dimension, str) else None
    return error.reason if isinstance(error, HaltError) and isinstance(error.reason, HaltReason) else None


FINAL: Final = -1
"""Used instead of a dimension: no top-up lifts the halt."""

_EMPTY: Final[dict[Any, None]] = {}


class Halt:
    """Why a node refuses further work; `dim` is the dimension that a top-up may refill, or `FINAL`."""

    __slots__ = ("dim", "lacking", "node", "reason", "stopped")

    def __init__(
        self,
        node: Node,
        reason: HaltReason,
        dim: int,
        lacking: InsufficientBudget | None = None,
        *,
        stopped: bool,
    ) -> None:
        self.node = node
        self.reason = reason
        self.dim = dim
        self.lacking = lacking
        """The amount that did not fit; None where nothing was left, or no amount was requested."""
        self.stopped = stopped
        """Whether the node also interrupts the work in its scopes."""

    def error(self) -> HaltError:
        """Return the error that a guard raises, with the usage and name of the node that reached a limit."""
        node = self.node
        return HaltError(self.reason, node.usage(), node.name, lacking=self.lacking, path=node.full_path())


class _Told(Halt):
    """The halt of a node in the tree that this one is a slice of."""

    __slots__ = ("told",)

    told: HaltError

    def error(self) -> HaltError:
        """Return the error that a guard there raised."""
        told = self.told
        return HaltError(self.reason, told.usage, told.origin, lacking=told.lacking, path=told.path)


def in_force(node: Node, *, stopped: bool = False) -> Halt | None:
    """Return the node's own halt, else its nearest halted ancestor's; with `stopped`, only a halt that interrupts."""
    halts = node.tree.halts
    if not halts:
        return None
    for one in node.line():
        halt = halts.get(one)
        if halt is not None and (halt.stopped or not stopped):
            return halt
    return None


def exhaust(node: Node, dim: int, lacking: InsufficientBudget | None = None) -> Halt:
    """Halt a node for one dimension and return its first halt: guards refuse, calls in flight finish."""
    halt = Halt(node, REASONS[dim], dim, lacking, stopped=False)
    first = node.tree.halts.setdefault(node, halt)
    # Waiters of an earlier halt are awake already.
    if first is halt:
        wake_waiters(node)
    return first


def repeat(node: Node, error: HaltError) -> None:
    """Halt a node of a slice because the governor it was cut from is halted: guards here refuse with that error."""
    dim = REASONS.index(error.reason) if error.reason in REASONS else FINAL
    halt = _Told(node, error.reason, dim, stopped=False)
    halt.told = error
    if node.tree.halts.setdefault(node, halt) is halt:
        wake_waiters(node)


def stop(node: Node, reason: HaltReason, dim: int = FINAL) -> Halt:
    """Halt a node, interrupt every scope in its subtree, and return its first halt. Never blocks."""
    tree = node.tree
    halt = Halt(node, reason, dim, stopped=True)
    if dim == FINAL:
        # Before `halts`: `lift` removes there what is not final.
        tree.final.setdefault(node, halt)
    first = tree.halts.setdefault(node, halt)
    # A second stop interrupts no scope: a scope checks for halts after it is registered, so the first stop reached all.
    if first is halt or not first.stopped:
        first.stopped = True  # it was exhausted; now it is stopped too
        for scope in scopes_inside(node):
            scope.interrupt(first)
        wake_waiters(node)
    return first


def wake_waiters(node: Node) -> None:
    """Wake all waiters for a hold at a node or below it."""
    for waiter in _inside(node.tree.waiters, node):
        waiter.wake()


def scopes_inside(node: Node) -> list[GovernorScope]:
    """Return the scopes open at a node and below; the cost grows with this subtree, not with the whole tree."""
    scopes = node.tree.scopes
    if _is_above_all(node):
        found = snapshot(scopes.values())
    else:
        found = [scope for one in family(node) if (scope := scopes.get(one)) is not None]
    return found + _inside(node.tree.more_scopes, node)


def _inside(registry: Registry[One], node: Node) -> list[One]:
    if not registry:
        return []
    nodes = snapshot(registry) if _is_above_all(node) else family(node)
    return [found for one in nodes for found in snapshot(registry.get(one, _EMPTY))]


def _is_above_all(node: Node) -> bool:
    """Return whether every node of the tree is below this one; a shared node, which has no parent either, is not."""
    return node.parent is None and not node.tree.beside


def family(node: Node) -> list[Node]:
    """Return a node and all nodes below: carved nodes, and the children that count on a shared node."""
    family = [node]
    for one in family:  # the loop appends to the list
        if one.children:
            family += snapshot(one.children.values())
    return family


def lift(node: Node, dim: int) -> None:
    """Remove the node's exhaustion in `dim` if its limit is no longer reached; a final halt stays."""
    tree = node.tree
    halt = tree.halts.get(node)
    limit = node.limit[dim]
    if halt is None or halt.dim != dim or (limit is not None and node.cells[dim] >= limit):
        return
    if node not in tree.final:
        tree.halts.pop(node, None)
    if node in tree.final:  # the node was stopped after the check above: `setdefault` in `stop` kept the old halt
        tree.halts.setdefault(node, tree.final[node])


def check(node: Node) -> None:
    """Raise `HaltError` if a halt is in force, also on a closed node; else `GovernorClosed` if the node is closed."""
    halt = in_force(node)
    if halt is not None:
        raise halt.error()
    if node.ended is not None:
        raise GovernorClosed(node.name)
    if node.timed:
        due = node.earliest_deadline()
        if due is not None and node.tree.clock() >= due[0]:
            raise stop(due[1], HaltReason.TIME_BUDGET_EXCEEDED).error()  # a timer may not have fired yet


def check_spent(node: Node, least: int = 0) -> None:
    """Exhaust the outermost node whose tokens or dollars are used up; raise `HaltError`.

    A limit is not used up while less than `least` is spent. A dollar limit of 0 is never used up: a team may use free
    models only.
    """
    for dim in (TOKENS, DOLLARS):
        found = None
        for one in node.limited:
            limit = one.limit[dim]
            if limit is not None and one.cells[dim] >= max(limit, least) and (limit or dim == TOKENS):
                found = one
        if found is not None:
            raise exhaust(found, dim).error()


def check_begin(node: Node) -> None:
    """Raise `HaltError` if spent tokens, or dollars under a limit above 0, allow no iteration."""
    for one in node.limited:
        spent = one.cells
        tokens, dollars, _, _ = one.limit
        if (tokens is not None and spent[TOKENS] >= tokens) or (dollars and spent[DOLLARS] >= dollars):
            check_spent(node, least=1)


def check_hopeless(node: Node, units: Units, minimum: Units) -> None:
    """Exhaust the outermost node where `minimum` will never fit again; raise `HaltError`.

    A tool call over its limit does not halt: the member gets a refusal.
    """
    for dim in (TOKENS, DOLLARS, LOOPS):
        found = node.without_room(dim, minimum[dim]) if units[dim] else None
        if found is not None:
            raise exhaust(found, dim, _lacking(found, dim, minimum[dim])).error()


def _lacking(node: Node, dim: int, needed: int) -> InsufficientBudget | None:
    """Return the shortage; None if one unit is needed: then the usage already shows that all is spent."""
    limit = node.limit[dim]
    if needed <= 1 or limit is None:
        return None
    left = max(0, limit - node.cells[dim])
    return InsufficientBudget(DIMENSIONS[dim], shown(dim, needed), shown(dim, left), node.name, path=node.full_path())


def stop_crossed(node: Node, added: Units) -> None:
    """Stop, in each dimension, the outermost node whose limit the amount just added used up."""
    for dim, amount in enumerate(added):
        crossed = node.without_room(dim, 1) if amount else None
        if crossed is not None:
            stop(crossed, REASONS[dim], dim)


def snapshot(registry: Iterable[One]) -> list[One]:
    """Return a copy of a registry that other threads may be changing."""
    while True:
        try:
            return list(registry)
        except RuntimeError:  # another thread changed it meanwhile
            continue


def current_loop() -> object:
    """Return an object that identifies the running event loop; raises `anyio.NoEventLoopError` outside one."""
    return current_token().native_token


def send(loop: object, function: Callable[..., object], *args: object) -> None:
    """Call `function` soon in `loop`; may be used from any task, thread or signal handler, and does not wait.

    Does nothing when the loop has ended: everything that waited in it has ended too.
    """
    # The loop's own method: anyio has no call that may come from a signal handler or a foreign thread.
    post: Callable[..., object] = getattr(loop, "call_soon_threadsafe", None) or _post_to_trio(loop)
    try:
        post(function, *args)
    except RuntimeError:
        return


def _post_to_trio(loop: object) -> Callable[..., object]:
    post: Callable[..., object] = getattr(loop, "run_sync_soon")  # noqa: B009 - anyio does not publish its type
    return post
