"""The budget tree as a value: it prints for people and goes to JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kairo_team.budget import Budget, HaltReason, Usage


@dataclass(frozen=True, slots=True)
class BudgetNode:
    """One governor and everything carved from it, at one moment. `str()` draws the tree."""

    name: str
    path: str
    """Names from the root to here, joined by slashes; unique in the tree."""
    budget: Budget = field(default_factory=Budget)
    """The ceiling."""
    guarantee: Budget = field(default_factory=Budget)
    """What was set aside for it; `None` where nothing was."""
    usage: Usage = field(default_factory=Usage)
    """What it and everything below it spent."""
    held: Usage = field(default_factory=Usage)
    """What is held for calls in flight (tokens as prompt tokens)."""
    overshoot: Usage = field(default_factory=Usage)
    """By how much truths booked late passed its limits (tokens as prompt tokens)."""
    halt: HaltReason | None = None
    """Why it, or one above it, halted."""
    origin: str | None = None
    """Name of the governor whose limit `halt` was."""
    closed: bool = False
    children: tuple[BudgetNode, ...] = ()

    def __str__(self) -> str:
        rows = list(_rows(self, "", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def _rows(node: BudgetNode, stem: str, branch: str) -> Iterator[tuple[str, ...]]:
    yield (stem + branch + node.name, *_cells(node))
    stem += {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for child in node.children:
        yield from _rows(child, stem, "└─ " if child is node.children[-1] else "├─ ")


def _cells(node: BudgetNode) -> tuple[str, ...]:
    used, limit = node.usage, node.budget
    return (
        _cell("tokens", used.tokens, limit.tokens),
        _cell("dollars", used.dollars, limit.dollars, "$"),
        _cell("loops", used.loops, limit.loops),
        _cell("tool calls", used.tool_calls, limit.tool_calls),
        _cell("seconds", round(used.seconds, 1), limit.seconds),
        node.halt.value if node.halt else "",
    )


def _cell(label: str, used: object, limit: object, sign: str = "") -> str:
    if limit is None:
        return f"{label} {sign}{used:,}" if used else ""
    return f"{label} {sign}{used:,} of {sign}{limit:,}"
