"""Read invoices from pictures into checked records, with any model that sees images.

    python -m kairo_team.examples.read_invoices --model openai:gpt-5-mini                # three shipped pictures
    python -m kairo_team.examples.read_invoices --model anthropic:claude-haiku-4-5 a.png b.pdf

Each picture is a task of its own, so only its reader gets it. A record whose lines do not add up to its total is sent
back to the model once. `table` is plain code and gets the records, no pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

from pydantic import BaseModel, model_validator

import kairo_team as kt

DATA: Final = Path(__file__).with_name("read_invoices_data")
READER: Final = kt.Role("reader", "You copy invoices into records, exactly as they are printed.")


class Line(BaseModel):
    """One line of an invoice."""

    item: str
    count: int
    each: Decimal
    """EUR for one."""


class Invoice(BaseModel):
    """An invoice whose lines add up to its total."""

    seller: str
    number: str
    day: date
    lines: list[Line]
    total: Decimal
    """EUR."""

    @model_validator(mode="after")
    def _adds_up(self) -> Invoice:
        found = sum((line.count * line.each for line in self.lines), Decimal(0))
        if found != self.total:
            raise ValueError(f"the lines add up to {found}, and the total says {self.total}")
        return self


def table(assignment: kt.Assignment) -> str:
    """List the invoices and their sum."""
    found = [artifact.data_as(Invoice) for artifact in assignment.upstream.values()]
    rows = [f"{one.day} {one.seller} {one.number}: {one.total} EUR" for one in found]
    return "\n".join([*rows, f"All: {sum((one.total for one in found), Decimal(0))} EUR"])


def make_team(model: str) -> kt.Team:
    """Make the team: a reader on a model, and a function that lists what was read."""
    members = [kt.Member(READER, kt.MiniAgent(model, max_turns=3)), kt.Member("clerk", table)]
    return kt.Team("invoices", members, output_types={"invoice": Invoice})


def make_plan(paths: Sequence[Path]) -> kt.TaskGraph:
    """Make a task for each picture or PDF, and one for the table; raises `ValueError` for what is not a file."""
    words = "Copy this invoice into the record."
    reads = [
        kt.Task(f"read-{number}", words, role="reader", output_type="invoice", files=[kt.File(path=path)])
        for number, path in enumerate(paths, 1)
    ]
    names = [task.id for task in reads]
    return kt.TaskGraph([*reads, kt.Task("table", "List them.", role="clerk", depends_on=names)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the invoices and print the table."""
    parser = argparse.ArgumentParser(description="Read invoices from pictures or PDFs.")
    parser.add_argument("paths", nargs="*", type=Path, help="pictures or PDFs; default: three shipped ones")
    parser.add_argument("--model", required=True, help="a model that sees images, such as openai:gpt-5-mini")
    given = parser.parse_args(arguments)
    plan = make_plan(given.paths or sorted(DATA.glob("*.png")))
    budget = kt.Budget(tokens=40_000 * len(plan))
    result = kt.run_sync(make_team(given.model), "Read the invoices.", plan=plan, budget=budget)
    print(result.output or result.error)
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    raise SystemExit(main())
