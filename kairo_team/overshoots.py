"""Overshoots of one run: calls that used more than was held for them, and limits that what was booked has passed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.budget import Usage
from kairo_team.governance.units import DIMENSIONS, DOLLARS, shown

if TYPE_CHECKING:
    from kairo_team.contracts import Journal
    from kairo_team.governance.governor import Governor

_logger = logging.getLogger("kairo_team")

_KEY: Final = "overshoots"
_NAMED: Final = 3
"""Governors that are named; of more it is said how many."""


class _Overshoot(NamedTuple):
    """The calls of one model that used more than was held for them."""

    calls: int = 0
    held: Usage = Usage()
    used: Usage = Usage()


class Overshoots:
    """Counts, by model, the calls that used more than was held; recorded, so that a replay says the same."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def note(self, model: str, held: Usage, used: Usage) -> None:
        """Take note of a call; dollars count where some were held: else nobody said what the call may cost."""
        if used.tokens <= held.tokens and not (held.dollars and used.dollars > held.dollars):
            return
        before = self._found.get(model, _Overshoot())
        now = _Overshoot(before.calls + 1, before.held + held, before.used + used)
        self._journal.put(_KEY, MappingProxyType({**self._found, model: now}))
        if not before.calls:
            _logger.warning("%s", _describe(model, now))

    @property
    def warnings(self) -> list[str]:
        """One sentence for each model, with the numbers."""
        return [_describe(model, overshoot) for model, overshoot in self._found.items()]

    @property
    def _found(self) -> Mapping[str, _Overshoot]:
        found: Any = self._journal.get(_KEY, None)
        return found or {}


def _describe(model: str, overshoot: _Overshoot) -> str:
    calls, held, used = overshoot
    parts: list[str] = []
    if used.tokens > held.tokens:
        parts.append(f"{used.tokens:,} tokens where {held.tokens:,} were held")
    if held.dollars and used.dollars > held.dollars:
        parts.append(f"${used.dollars} where ${held.dollars} were held")
    what = "1 call" if calls == 1 else f"{calls:,} calls"
    return (
        f"model {model!r} used more than was held for {what}: {' and '.join(parts)}; all of it is booked. Its provider "
        "does not keep to max_tokens, or the prompt was longer than was counted"
    )


def passed_limits(governor: Governor) -> list[str]:
    """Say which limits of a governor and of those below it were passed, and by how much."""
    found = list(_passed(governor))
    more = len(found) - _NAMED
    return found if more <= 0 else [*found[:_NAMED], f"{more:,} more limits were passed: see the result's budget"]


def _passed(governor: Governor) -> Iterator[str]:
    for name, dim, limit, over in governor.passed_limits():
        sign, unit = ("$", "") if dim == DOLLARS else ("", f" {DIMENSIONS[dim].replace('_', ' ')}")
        amounts = [f"{sign}{shown(dim, amount):,}" for amount in (limit + over, limit, over)]
        yield f"the budget of {name!r} was passed: {amounts[0]} of {amounts[1]}{unit} are booked, {amounts[2]} too many"
