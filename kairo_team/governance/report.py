"""The budget tree as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.budget import Budget
from kairo_team.budget_tree import BudgetNode
from kairo_team.governance.halts import in_force
from kairo_team.governance.units import budget_of, usage_of

if TYPE_CHECKING:
    from kairo_team.governance.ledger import Node


def write_down(node: Node, path: str) -> BudgetNode:
    """Write down a node and everything below it. Needs the lock."""
    halt = in_force(node) if node.tree.halts else None
    children = node.children
    return BudgetNode(
        node.name,
        path,
        node.budget,
        guarantee_of(node),
        node.usage(),
        usage_of(*node.held_units()),
        usage_of(*node.overshoot_units()),
        halt.reason if halt else None,
        halt.node.name if halt else None,
        node.ended is not None,
        tuple([write_down(child, f"{path}/{child.escaped()}") for child in children.values()]) if children else (),
    )


def guarantee_of(node: Node) -> Budget:
    """Return what was set aside for a node; `None` in dimensions without a guarantee."""
    tokens, dollars, loops, tool_calls = node.guarantee
    return budget_of((tokens or None, dollars or None, loops or None, tool_calls or None))
