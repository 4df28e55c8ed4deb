"""The checks of the rubric: each is a function of an artifact that returns True, or a sentence on what is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from clinical_dose.notes import Dose, read_note
from clinical_dose.table import read_table

if TYPE_CHECKING:
    import os

    from clinical_dose.table import Row, Table
    from kairo_team import Artifact

Check = Callable[["Artifact"], "bool | str"]


def readable(artifact: Artifact) -> bool | str:
    """Find lines that are not in the form, such as one without a unit, and notes without a line."""
    doses, unread = read_note(artifact.text)
    if unread:
        return f"line {', '.join(map(str, unread))}: write `substance: amount unit, n a day [row]`, and nothing else"
    return bool(doses) or "the note has no dose"


def form() -> Check:
    """Make the check of the form, as it is published: what is published makes the check."""
    return readable


def single_dose_by(table: str | os.PathLike[str]) -> Check:
    """Make the check of single doses by a table in a file, which is read once."""
    return single_dose(read_table(table))


def daily_dose_by(table: str | os.PathLike[str]) -> Check:
    """Make the check of the doses of a day by a table in a file, which is read once."""
    return daily_dose(read_table(table))


def single_dose(table: Table) -> Check:
    """Make a check that every dose is what the row it cites allows."""

    def check(artifact: Artifact) -> bool | str:
        doses, _ = read_note(artifact.text)
        wrong = [f"line {dose.line}: {said}" for dose in doses if (said := _problem(dose, table.get(dose.row)))]
        return not wrong or "; ".join(wrong)

    return check


def _problem(dose: Dose, row: Row | None) -> str:
    """Say what is wrong with a single dose; nothing where nothing is."""
    if row is None:
        return f"[{dose.row}] is no row of the dose table"
    if dose.substance != row.substance:
        return f"[{dose.row}] is for {row.substance}, not for {dose.substance}"
    if dose.unit != row.unit:
        return f"[{dose.row}] is in {row.unit}, not in {dose.unit}"
    if not row.least <= dose.amount <= row.most:
        return f"{dose.amount} {dose.unit} is not within {row.least} to {row.most} {row.unit} [{dose.row}]"
    return "" if dose.times > 0 else "0 a day is no dose"


def daily_dose(table: Table) -> Check:
    """Make a check that the doses of each substance, over all lines and rows, add up to no more than is allowed."""

    def check(artifact: Artifact) -> bool | str:
        taken: dict[str, int] = defaultdict(int)
        allowed: dict[str, int] = {}
        for dose in read_note(artifact.text)[0]:
            row = table.get(dose.row)
            if row is not None and row.unit == dose.unit:
                taken[row.substance] += dose.amount * dose.times
                allowed[row.substance] = min(row.day, allowed.get(row.substance, row.day))
        wrong = [name for name, amount in taken.items() if amount > allowed[name]]
        return not wrong or "; ".join(f"{name}: {taken[name]} a day, at most {allowed[name]}" for name in wrong)

    return check
