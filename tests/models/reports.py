"""What reports the tries of governed models in tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from kairo_team.models.governed_model import ReportStart, StartedTry


def at_end(report: Callable[..., Any]) -> ReportStart:
    """Return what calls `report(model, outcome, held, usage)` at the end of each try."""

    def start(model: str, held: int, held_picodollars: int, most: int | None) -> StartedTry:
        return StartedTry(lambda outcome, usage, _reply: report(model, outcome, held, usage), nullcontext())

    return start


ignore = at_end(lambda *_: None)
"""Reports to nobody."""
