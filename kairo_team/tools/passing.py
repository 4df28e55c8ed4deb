"""What a tool may raise that is not the tool's own failure: it ends the attempt, not just the call."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, cast

from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget

PASSING: Final = (HaltError, ConstraintExit, GuardrailDenied, InsufficientBudget)
"""They come from the governed models and tools that a tool may use itself. The first goes before the others."""


def passing(error: Exception) -> Exception | None:
    """Return what of an error must leave the tool untouched, also out of a group; None if it is a plain failure."""
    leaves = list(_leaves(error))
    return next((leaf for kind in PASSING for leaf in leaves if isinstance(leaf, kind)), None)


def is_nobodys(error: BaseException) -> bool:
    """Say whether this is a cancellation that nobody asked for: on asyncio a tool may await what somebody cancelled.

    On trio there is none: what cancels is in nobody's hands there.
    """
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    try:
        return not asyncio.current_task().cancelling()
    except RuntimeError:  # this is trio: there it means nothing
        return True


def _leaves(error: Exception) -> Iterable[Exception]:
    if not isinstance(error, ExceptionGroup):
        return (error,)
    group = cast("ExceptionGroup[Exception]", error)
    return (leaf for inner in group.exceptions for leaf in _leaves(inner))
