"""The budget tree as a value: it prints for people and goes to JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, overload

from pydantic import AfterValidator, WrapSerializer

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.frozen import quick


class ReadLater(Sequence["BudgetNode"]):
    """A tuple of nodes that is made when it is first looked at: nobody waits for a big tree that nobody reads."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[BudgetNode, ...]]) -> None:
        self._make: Callable[[], tuple[BudgetNode, ...]] | None = make
        self._made: tuple[BudgetNode, ...] = ()

    def _read(self) -> tuple[BudgetNode, ...]:
        make = self._make
        if make is not None:
            self._made = make()
            self._make = None
        return self._made

    @overload
    def __getitem__(self, index: int) -> BudgetNode: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BudgetNode, ...]: ...
    def __getitem__(self, index: int | slice) -> BudgetNode | tuple[BudgetNode, ...]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[BudgetNode]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        return self._read() == (other._read() if isinstance(other, ReadLater) else other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[tuple[BudgetNode, ...]]]:
        return (tuple, (self._read(),))


def _dump_all(nodes: Sequence[BudgetNode], dump: Callable[[Any], Any]) -> Any:
    return dump(tuple(nodes))


@quick
@dataclass(frozen=True, slots=True)
class BudgetNode:
    """One governor and everything carved from it, at one moment. `str()` draws the tree."""

    name: str
    path: str
    """Names from the root to here, joined by slashes; unique in the tree."""
    budget: Budget = Budget()
    """The ceiling."""
    guarantee: Budget = Budget()
    """What was set aside for it; `None` where nothing was."""
    usage: Usage = Usage()
    """What it and everything below it spent."""
    held: Usage = Usage()
    """What is held for calls in flight (tokens as prompt tokens)."""
    overshoot: Usage = Usage()
    """By how much truths booked late passed its limits (tokens as prompt tokens)."""
    halt: HaltReason | None = None
    """Why it, or one above it, halted."""
    origin: str | None = None
    """Name of the governor whose limit `halt` was."""
    closed: bool = False
    children: Annotated[Sequence[BudgetNode], AfterValidator(tuple), WrapSerializer(_dump_all)] = ()

    def __str__(self) -> str:
        rows = list(_rows(self, "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = [n for n, width in enumerate(widths) if width]
        return "\n".join("  ".join(row[n].ljust(widths[n]) for n in shown).rstrip() for row in rows)


def _rows(node: BudgetNode, stem: str, branch: str) -> Iterator[tuple[str, ...]]:
    """Yield a line of cells for the node, then those of its children."""
    yield (stem + branch + node.name, *_cells(node))
    stem += {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for child in node.children:
        yield from _rows(child, stem, "└─ " if child is node.children[-1] else "├─ ")


def _cells(node: BudgetNode) -> Iterator[str]:
    for field_name, label in (("tokens", "tokens"), ("dollars", "$"), ("loops", "loops"), ("tool_calls", "tool calls")):
        used, held, over = (getattr(usage, field_name) for usage in (node.usage, node.held, node.overshoot))
        limit, given = getattr(node.budget, field_name), getattr(node.guarantee, field_name)
        yield _cell(label, used, limit, {"held": held, "guaranteed": None if given == limit else given, "over": over})
    seconds = "" if node.budget.seconds is None else f" of {node.budget.seconds:g}"
    yield f"{node.usage.seconds:.1f}{seconds} s"
    yield "" if node.halt is None else f"{node.halt.value} by {node.origin!r}"


def _cell(label: str, used: Decimal, limit: Decimal | None, notes: Mapping[str, Decimal | None]) -> str:
    """Say what was used, of what, and the notes that are not nothing: `60 of 400 tokens (150 held)`."""
    sign, unit = ("$", "") if label == "$" else ("", f" {label}")
    most = "" if limit is None else f" of {sign}{limit:,}"
    noted = ", ".join(f"{sign}{amount:,} {note}" for note, amount in notes.items() if amount)
    if not (used or most or noted):
        return ""
    return f"{sign}{used:,}{most}{unit}{noted and f' ({noted})'}"
