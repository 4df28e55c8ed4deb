"""Kits of what differs in a setting or two from an implementation whose own kit runs on both event loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import pytest

from kairo_team.tck import ContractTCK

K = TypeVar("K", bound=type[ContractTCK])


def variant(loop: Literal["asyncio", "trio"]) -> Callable[[K], K]:
    """Leave the kit of a variant out of `make test`, and run it on one event loop.

    Loops and settings meet in pairs, not in every combination: variants take the two loops in turn.
    """

    def mark(kit: K) -> K:
        kit.backends = (loop,)
        return pytest.mark.exhaustive(kit)

    return mark
