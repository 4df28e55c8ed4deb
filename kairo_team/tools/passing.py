"""Errors that a tool passes on: they end the attempt, not only the call."""

from __future__ import annotations

from typing import Final

from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, TurnEnded
from kairo_team.plugin_calls import leaves_of

PASSING: Final = (HaltError, ConstraintExit, GuardrailDenied, InsufficientBudget, TurnEnded)
"""Errors of the governed models and tools that a tool may use itself, in order of priority."""


def passing(error: Exception) -> Exception | None:
    """Return the error that must leave the tool unchanged, also from inside a group; None for a failure of the tool."""
    leaves = list(leaves_of(error))
    # The kind comes first: among several errors in a group, a halt matters most.
    return next((leaf for kind in PASSING for leaf in leaves if isinstance(leaf, kind)), None)
