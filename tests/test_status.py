"""The status of a run: the whole table, against an oracle written from the design's sentence alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from kairo_team.budget import HaltReason
from kairo_team.results import TeamStatus
from kairo_team.status import RunFacts, decide_status
from kairo_team.team import RiskProfile

PLAIN = RunFacts(
    halt=None,
    caller_cancelled=False,
    broken=False,
    ended_for_halt=False,
    accepted=2,
    lost=0,
    dispensable=0,
    blemished=False,
    risk=RiskProfile.MEDIUM,
    tolerate_failures=False,
)


def oracle(facts: RunFacts) -> str:
    """Say the rules of the design one after another, as they are written there."""
    exhausted = {"token_budget_exceeded", "dollar_budget_exceeded", "loop_budget_exceeded", "tool_budget_exceeded"}
    low = facts.risk == "low"
    rules = [
        (facts.halt == "cancelled" or facts.caller_cancelled, "cancelled"),
        (facts.halt == "time_budget_exceeded", "timeout"),
        (facts.broken or facts.halt == "emergency_stop", "failed"),
        (facts.halt in exhausted and facts.ended_for_halt, "degraded" if low and facts.accepted > 0 else "failed"),
        (facts.accepted == 0, "failed"),
        (
            facts.lost > 0,
            "degraded" if facts.tolerate_failures or low else "failed",
        ),
        (facts.dispensable > 0, "degraded"),
        (facts.blemished, "degraded"),
        (True, "completed"),
    ]
    return next(status for applies, status in rules if applies)


def every_combination() -> list[RunFacts]:
    booleans = (False, True)
    axes = product(
        [None, *HaltReason], booleans, booleans, booleans, (0, 1), (0, 1), (0, 1), booleans, RiskProfile, booleans
    )
    return [RunFacts(*combination) for combination in axes]


def test_every_combination_of_facts_has_the_status_the_design_says() -> None:
    wrong = [facts for facts in every_combination() if decide_status(facts) != oracle(facts)]
    assert wrong == []


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (PLAIN, TeamStatus.COMPLETED),
        (replace(PLAIN, halt=HaltReason.CANCELLED, broken=True), TeamStatus.CANCELLED),
        (replace(PLAIN, halt=HaltReason.TIME_BUDGET_EXCEEDED, accepted=0), TeamStatus.TIMEOUT),
        (replace(PLAIN, caller_cancelled=True, halt=HaltReason.TIME_BUDGET_EXCEEDED), TeamStatus.CANCELLED),
        (replace(PLAIN, halt=HaltReason.TOKEN_BUDGET_EXCEEDED), TeamStatus.COMPLETED),
        (replace(PLAIN, lost=1, dispensable=1), TeamStatus.FAILED),
        (replace(PLAIN, dispensable=1, risk=RiskProfile.HIGH), TeamStatus.DEGRADED),
        (replace(PLAIN, blemished=True), TeamStatus.DEGRADED),
        (replace(PLAIN, accepted=0, tolerate_failures=True), TeamStatus.FAILED),
    ],
)
def test_the_cases_people_ask_about(facts: RunFacts, status: TeamStatus) -> None:
    assert decide_status(facts) is status
