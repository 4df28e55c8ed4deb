"""Halts: why a node of the tree refuses to go on, who is told, and the guards that find out.

An exhausted node makes guards refuse and lets what is in flight finish; a stopped one also interrupts
its scopes. Nothing here takes the ledger's lock: a halt may come from a signal handler whose own thread holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from kairo_team.budget import HaltReason
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance.units import DIMENSIONS, DOLLARS, LOOPS, TOKENS, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kairo_team.governance.ledger import Node
    from kairo_team.governance.scope import GovernorScope
    from kairo_team.governance.tree import Registry
    from kairo_team.governance.units import Units

One = TypeVar("One")

REASONS: Final = (
    HaltReason.TOKEN_BUDGET_EXCEEDED,
    HaltReason.DOLLAR_BUDGET_EXCEEDED,
    HaltReason.LOOP_BUDGET_EXCEEDED,
    HaltReason.TOOL_BUDGET_EXCEEDED,
)
"""The reason for which a node halts, by dimension."""

FINAL: Final = -1
"""In place of a dimension: no top-up lifts it."""

_NOBODY: Final[dict[Any, None]] = {}


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
    halt = Halt(node, REASONS[dim], dim, lacking, stopped=False)
    first = node.tree.halts.setdefault(node, halt)
    if first is halt:
        wake_waiters(node)
    return first


def stop(node: Node, reason: HaltReason, dim: int = FINAL) -> Halt:
    """Halt a node, interrupt every scope in its subtree, and return its first reason. Never blocks.

    A node that is stopped already interrupts nobody again: each scope looks for halts once it is registered, so none
    was missed.
    """
    tree = node.tree
    halt = Halt(node, reason, dim, stopped=True)
    if dim == FINAL:
        tree.final.setdefault(node, halt)
    first = tree.halts.setdefault(node, halt)
    if first is halt or not first.stopped:
        first.stopped = True
        for scope in scopes_inside(node):
            scope.interrupt(first)
        wake_waiters(node)
    return first


def wake_waiters(node: Node) -> None:
    """Let those who wait for a hold at a node or below it look again."""
    for waiter in _inside(node.tree.waiters, node):
        waiter.wake()


def scopes_inside(node: Node) -> list[GovernorScope]:
    """List the scopes open at a node and below it; it costs what is there, not what is elsewhere in the tree."""
    scopes = node.tree.scopes
    if node.parent is None:
        found = snapshot(scopes.values())
    else:
        found = [scope for one in family(node) if (scope := scopes.get(one)) is not None]
    return found + _inside(node.tree.more_scopes, node)


def _inside(registry: Registry[One], node: Node) -> list[One]:
    if not registry:
        return []
    nodes = snapshot(registry) if node.parent is None else family(node)
    return [found for one in nodes for found in snapshot(registry.get(one, _NOBODY))]


def family(node: Node) -> list[Node]:
    """List a node and all that was carved below it."""
    family = [node]
    for one in family:  # it grows while it is walked
        if one.children:
            family += snapshot(one.children.values())
    return family


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
    """Raise `HaltError` or `GovernorClosed` if nothing may start here; a halt has its reason also after the end."""
    halt = in_force(node)
    if halt is not None:
        raise halt.error()
    if node.ended is not None:
        raise GovernorClosed(node.name)
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


def snapshot(registry: Iterable[One]) -> list[One]:
    """List what is registered now, however many threads are changing it."""
    while True:
        try:
            return list(registry)
        except RuntimeError:  # it changed while it was read; the next try reads it newer
            continue
