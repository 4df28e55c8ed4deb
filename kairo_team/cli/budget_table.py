"""The budget tree as a table: what each member and task spent, its limit, and its guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kairo_team.budget import HaltReason

if TYPE_CHECKING:
    from kairo_team.budget import BudgetNode

_HEADS: Final = ("", "tokens", "set aside", "dollars", "loops", "tool calls", "seconds", "")
_BRANCHES: Final = {"": "", "├─ ": "│  ", "└─ ": "   ", "|- ": "|  ", "`- ": "   "}

_HALTS: Final = {
    HaltReason.TOKEN_BUDGET_EXCEEDED: "tokens used up",
    HaltReason.DOLLAR_BUDGET_EXCEEDED: "dollars used up",
    HaltReason.LOOP_BUDGET_EXCEEDED: "loops used up",
    HaltReason.TOOL_BUDGET_EXCEEDED: "tool calls used up",
    HaltReason.TIME_BUDGET_EXCEEDED: "time is up",
    HaltReason.CANCELLED: "cancelled",
    HaltReason.EMERGENCY_STOP: "stopped",
}


def draw_tree(root: BudgetNode, *, ascii_only: bool = False) -> list[str]:
    """Return the lines of the table; columns that would be empty are left out."""
    forks = ("|- ", "`- ") if ascii_only else ("├─ ", "└─ ")
    rows = list(_rows(root, None, "", "", forks))
    used = [n for n in range(len(_HEADS)) if n == 0 or any(row[n] for row in rows)]
    table = [[row[n] for n in used] for row in [_HEADS, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _rows(
    node: BudgetNode, above: BudgetNode | None, stem: str, branch: str, forks: tuple[str, str]
) -> Iterator[tuple[str, ...]]:
    yield (stem + branch + node.name, *_cells(node, above))
    stem += _BRANCHES[branch]
    for child in node.children:
        yield from _rows(child, node, stem, forks[child is node.children[-1]], forks)


def _cells(node: BudgetNode, above: BudgetNode | None) -> tuple[str, ...]:
    used, limit, aside = node.usage, node.budget, node.guarantee.tokens
    # A halt from above is named only where it began.
    inherited = above is not None and above.halt is node.halt and above.origin_path == node.origin_path
    return (
        _cell(used.tokens, limit.tokens),
        "" if aside is None or above is None else f"{aside:,}",
        _cell(used.dollars, limit.dollars, "$"),
        _cell(used.loops, limit.loops),
        _cell(used.tool_calls, limit.tool_calls),
        _cell(round(used.seconds, 1), limit.seconds),
        "" if node.halt is None or inherited else _HALTS[node.halt],
    )


def _cell(used: object, limit: object, sign: str = "") -> str:
    if limit is None:
        return f"{sign}{used:,}" if used else ""
    return f"{sign}{used:,} of {sign}{limit:,}"
