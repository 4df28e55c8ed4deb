"""What a run cost: its calls summed up by member, model and purpose."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING

from kairo_team.budget import NO_USAGE, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kairo_team.views.run_story import CallStory, RunStory


@dataclass(frozen=True, slots=True)
class CostRow:
    """The calls of one member on one model for one purpose."""

    member: str | None
    """None for calls without a member, such as a planner's."""
    model: str | None
    """None for usage that was charged without a governed call."""
    purpose: str
    calls: int
    usage: Usage
    in_doubt: int
    """Tokens that may not have been used."""


def costs(story: RunStory, inside: Iterable[RunStory] = ()) -> tuple[CostRow, ...]:
    """Return the costs of the run, most expensive first; tokens and dollars sum up exactly to the run's usage.

    The calls of the runs `inside` its tasks are counted by their own members.
    Usage beyond the model calls, which agents report themselves, is a row without a model.
    """
    rows: dict[tuple[str | None, str, str], list[CallStory]] = {}
    for call in chain(story.calls, *(one.calls for one in inside)):
        if call.what == "model":
            rows.setdefault((call.member, call.name, call.purpose), []).append(call)
    found = [
        CostRow(*key, len(calls), sum((one.usage for one in calls), NO_USAGE), sum(one.in_doubt for one in calls))
        for key, calls in rows.items()
    ]
    known = sum((row.usage for row in found), NO_USAGE)
    total = story.usage
    rest = (
        max(total.prompt_tokens - known.prompt_tokens, 0),
        max(total.completion_tokens - known.completion_tokens, 0),
        max(total.dollars - known.dollars, Decimal(0)),
    )
    if any(rest):
        found.append(CostRow(None, None, "reported", 0, Usage(*rest), 0))
    return tuple(sorted(found, key=lambda row: (-row.usage.dollars, -row.usage.tokens)))
