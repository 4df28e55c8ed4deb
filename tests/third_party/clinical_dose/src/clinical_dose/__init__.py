"""A rubric for dose notes, published as `clinical-dose`. Made up: no medical advice."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from clinical_dose.checks import daily_dose, readable, single_dose
from clinical_dose.table import read_table
from kairo_team.evaluators import Criterion, Rubric, checks

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["dose_rubric", "house_rules"]

_RULE: Final = re.compile(r"^- \*\*(HR-\d+)\*\* (.+)$", re.MULTILINE)


def house_rules() -> dict[str, str]:
    """Return the rules that the criteria come from, by their number."""
    text = resources.files("clinical_dose").joinpath("house_rules.md").read_text(encoding="utf-8")
    return dict(_RULE.findall(text))


def dose_rubric(table: str | Path) -> Rubric:
    """Make the rubric for notes that dose by one table: a CSV file with the columns row,substance,unit,least,most,day.

    There is no table to fall back on: which doses are right is for whoever uses this to say. Code decides what it can,
    a person signs off what code let through. `ValueError` for a table that cannot be read or contradicts itself.
    """
    rows = read_table(table)
    sources = {name: str(row) for name, row in rows.items()}
    text = {number: f"{rule} (house rule {number})" for number, rule in house_rules().items()}
    return Rubric(
        [
            Criterion("form", text["HR-1"], readable),
            Criterion("cited", text["HR-2"], checks.citations(sources)),
            Criterion("dose", text["HR-3"], single_dose(rows)),
            Criterion("day", text["HR-4"], daily_dose(rows)),
            Criterion("sign-off", text["HR-5"], by="human"),
        ]
    )
