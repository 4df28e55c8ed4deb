"""The budget tree as a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kairo_team.budget import Budget
from kairo_team.budget_tree import BudgetNode, ReadLater
from kairo_team.governance.halts import family, in_force
from kairo_team.governance.units import budget_of, usage_of

if TYPE_CHECKING:
    from kairo_team.governance.halts import Halt
    from kairo_team.governance.ledger import Node


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
    """Write down a closed node, and what is below it when it is looked at."""
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
