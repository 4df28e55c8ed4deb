"""Spending that an earlier session of a run is known to have made. All of it needs the tree's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.budget import picodollars
from kairo_team.governance.units import LOOPS

if TYPE_CHECKING:
    from kairo_team.budget import Usage
    from kairo_team.governance.ledger import Node


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
