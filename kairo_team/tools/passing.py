"""Errors that a tool passes on: they end the attempt, not only the call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, TurnEnded

PASSING: Final = (HaltError, ConstraintExit, GuardrailDenied, InsufficientBudget, TurnEnded)
"""Errors of the governed models and tools that a tool may use itself, in order of priority."""


def passing(error: Exception) -> Exception | None:
    """Return the error that must leave the tool unchanged, also from inside a group; None for a failure of the tool."""
    leaves = list(_leaves(error))
    # The kind comes first: among several errors in a group, a halt matters most.
    return next((leaf for kind in PASSING for leaf in leaves if isinstance(leaf, kind)), None)


def _leaves(error: Exception) -> Iterable[Exception]:
    if not isinstance(error, ExceptionGroup):
        return (error,)
    group = cast("ExceptionGroup[Exception]", error)
    return (leaf for inner in group.exceptions for leaf in _leaves(inner))
