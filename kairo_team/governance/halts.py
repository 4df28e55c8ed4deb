"""Halts: why a node of the tree refuses to go on, who is told, and the guards that find out.

An exhausted node makes guards refuse and lets what is in flight finish; a stopped one also interrupts
its scopes. Nothing here takes the ledger's lock: a halt may come from a signal handler whose own thread holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kairo_team.budget import HaltReason
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance.units import DIMENSIONS, DOLLARS, LOOPS, TOKENS, shown

if TYPE_CHECKING:
    from kairo_team.governance.ledger import Node
    from kairo_team.governance.units import Units

Key = TypeVar("Key")

REASONS: Final = (
    HaltReason.TOKEN_BUDGET_EXCEEDED,
    HaltReason.DOLLAR_BUDGET_EXCEEDED,
    HaltReason.LOOP_BUDGET_EXCEEDED,
    HaltReason.TOOL_BUDGET_EXCEEDED,
)
"""The reason for which a node halts, by dimension."""

FINAL: Final = -1
"""In place of a dimension: no top-up lifts it."""


class Halt:
    """Why a node refuses to go on; `dim` is the dimension that a top-up may refill, or `FINAL`."""

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
        """What did not fit; None where nothing was left, or nothing was asked."""
        self.stopped = stopped
        """Whether the node also interrupts what runs in its scopes."""

    def error(self) -> HaltError:
        """Build the error a guard raises: with the usage and the name of the node whose limit it was."""
        return HaltError(self.reason, self.node.usage(), self.node.name, lacking=self.lacking)


def in_force(node: Node, *, stopped: bool = False) -> Halt | None:
    """Return the node's own halt, else that of its nearest halted ancestor; only one that stops, if so asked."""
    halts = node.tree.halts
    if not halts:
        return None
    for one in node.line():
        halt = halts.get(one)
        if halt is not None and (halt.stopped or not stopped):
            return halt
    return None


def beyond_help(node: Node) -> HaltReason | None:
    """Return why the node, else its nearest ancestor with a reason, was halted as no top-up can lift."""
    final = node.tree.final
    return next((final[one].reason for one in node.line() if one in final), None) if final else None


def exhaust(node: Node, dim: int, lacking: InsufficientBudget | None = None) -> Halt:
    """Halt a node for one dimension and return its first reason: guards refuse, what is in flight finishes."""
    halt = node.tree.halts.setdefault(node, Halt(node, REASONS[dim], dim, lacking, stopped=False))
    _wake_waiters(node)
    return halt


def stop(node: Node, reason: HaltReason, dim: int = FINAL) -> Halt:
    """Halt a node, interrupt every scope in its subtree, and return its first reason. Never blocks."""
    tree = node.tree
    halt = Halt(node, reason, dim, stopped=True)
    if dim == FINAL:
        tree.final.setdefault(node, halt)
    first = tree.halts.setdefault(node, halt)
    first.stopped = True
    for scope in snapshot(tree.scopes):
        if scope.node.below(node):
            scope.interrupt(first)
    _wake_waiters(node)
    return first


def _wake_waiters(node: Node) -> None:
    for waiter in snapshot(node.tree.waiters):
        if waiter.node.below(node):
            waiter.wake()


def lift(node: Node, dim: int) -> None:
    """Forget the node's exhaustion in `dim` if there is room again; never a halt that is final."""
    tree = node.tree
    halt = tree.halts.get(node)
    limit = node.limit[dim]
    if halt is None or halt.dim != dim or (limit is not None and node.cells[dim] >= limit):
        return
    if node not in tree.final:
        tree.halts.pop(node, None)
    if node in tree.final:  # a kill came between the two lines and found the old reason still there
        tree.halts.setdefault(node, tree.final[node])


def check(node: Node) -> None:
    """Raise `GovernorClosed` or `HaltError` if nothing may start here."""
    if node.ended is not None:
        raise GovernorClosed(node.name)
    halt = in_force(node)
    if halt is not None:
        raise halt.error()
    if node.timed:
        due = node.earliest_deadline()
        if due is not None and node.tree.clock() >= due[0]:
            raise stop(due[1], HaltReason.TIME_BUDGET_EXCEEDED).error()


def check_spent(node: Node) -> None:
    """Exhaust the outermost node whose tokens or dollars are used up; raise `HaltError`.

    A dollar limit of 0 is not used up by spending nothing: free models are a fine team.
    """
    for dim in (TOKENS, DOLLARS):
        found = None
        for one in node.limited:
            limit = one.limit[dim]
            if limit is not None and one.cells[dim] >= limit and (limit or dim == TOKENS):
                found = one
        if found is not None:
            raise exhaust(found, dim).error()


def check_hopeless(node: Node, units: Units, minimum: Units) -> None:
    """Exhaust the outermost node where `minimum` will never fit again; raise `HaltError`.

    A tool call over its limit is a refusal the member can read, not a halt.
    """
    for dim in (TOKENS, DOLLARS, LOOPS):
        found = node.without_room(dim, minimum[dim]) if units[dim] else None
        if found is not None:
            raise exhaust(found, dim, _lacking(found, dim, minimum[dim])).error()


def _lacking(node: Node, dim: int, needed: int) -> InsufficientBudget | None:
    """Say what does not fit; nothing where it is the least there is: then all is spent, which the usage says."""
    limit = node.limit[dim]
    if needed <= 1 or limit is None:
        return None
    left = max(0, limit - node.cells[dim])
    return InsufficientBudget(DIMENSIONS[dim], shown(dim, needed), shown(dim, left), node.name)


def stop_crossed(node: Node, added: Units) -> None:
    """Stop the outermost node in which what was just added used a limit up, in each dimension."""
    for dim, amount in enumerate(added):
        crossed = node.without_room(dim, 1) if amount else None
        if crossed is not None:
            stop(crossed, REASONS[dim], dim)


def snapshot(registry: dict[Key, None]) -> list[Key]:
    """List what is registered now, however many threads are changing it."""
    while True:
        try:
            return list(registry)
        except RuntimeError:  # it changed while it was read; the next try reads it newer
            continue
