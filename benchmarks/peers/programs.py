"""Programs that measure in a process of their own, and the lines of a table."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


class Skipped(Exception):
    """A library could not be measured; the message has the reason."""


def run(command: Sequence[str], seconds: float | None = None) -> str:
    """Run a program at the root of the repository and return what it prints.

    Raises `Skipped` with its error, or when it takes longer than `seconds`; a program that had printed something by
    then had built its graph.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own programs
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        raise Skipped(f"over {seconds:g} s" + ("" if late.stdout else " to build")) from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Skipped(next((one for one in said if one.startswith("ERROR")), said[-1]))
    return done.stdout


def line(first: str, others: Sequence[str]) -> str:
    """Write one line of the table."""
    return f"| {' | '.join([first, *others])} |"
