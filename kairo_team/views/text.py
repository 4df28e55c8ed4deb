"""Texts for people; texts that members wrote are made harmless for a terminal first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean

NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold, not even escaped."""
_MINUTE: Final = 60.0

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationVerdict


def one_line(text: str, most: int | None = None) -> str:
    """Return the text in one clean line, cut to `most` characters."""
    line = clean(" ".join(text.split()))
    return line if most is None or len(line) <= most else line[: most - 3].rstrip() + "..."


def some_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Name the first few, and count the others: `a, b and 3 more`."""
    left_out = len(names) - most
    return between.join(names[:most]) + (f" and {left_out:,} more" if left_out > 0 else "")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, with hours when there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    """Write how long something took: `0.2 s`, `12.9 s`, `3:05`."""
    return f"{seconds:.1f} s" if seconds < _MINUTE else clock(seconds)


def describe_verdict(verdict: EvaluationVerdict, *, brief: bool = False) -> str:
    """Describe what a review decided: `pass`, `not blank`, `revise, 2 findings`, `rounds exhausted`."""
    if verdict.vacuous:
        return verdict.feedback
    if verdict.cause is not None:
        return verdict.cause.value.replace("_", " ")
    findings = sum(finding.severity == "blocking" for finding in verdict.findings)
    if not findings:
        return verdict.outcome.value
    return f"{verdict.outcome.value} {findings}" if brief else f"{verdict.outcome.value}, {count(findings, 'finding')}"


def describe_findings(verdict: EvaluationVerdict) -> str:
    """Describe the findings of a review."""
    observed = "; ".join(finding.observed for finding in verdict.findings if finding.observed)
    return one_line(observed or verdict.feedback)
