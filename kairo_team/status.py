"""How a run's status follows from what happened: one pure function, first rule that applies."""

from __future__ import annotations

from dataclasses import dataclass

from kairo_team.budget import HaltReason
from kairo_team.results import TeamStatus
from kairo_team.team import RiskProfile

EXHAUSTED = frozenset(
    {
        HaltReason.TOKEN_BUDGET_EXCEEDED,
        HaltReason.DOLLAR_BUDGET_EXCEEDED,
        HaltReason.LOOP_BUDGET_EXCEEDED,
        HaltReason.TOOL_BUDGET_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the status of a run is decided from."""

    halt: HaltReason | None
    """Why the team's own governor stopped."""
    caller_cancelled: bool
    broken: bool
    """Planning or binding failed, the failure policy ended the run, or the coordinator itself raised."""
    ended_for_halt: bool
    """Some task ended because the team's budget was exhausted."""
    waiting: bool
    """A task, or the plan, waits for a person."""
    accepted: int
    lost: int
    """Tasks not accepted that somebody needed."""
    dispensable: int
    """Tasks not accepted whose dependents all met their needs without them."""
    blemished: bool
    """An artifact was accepted without a PASS after a review, or partial without one, or the plan is a fallback."""
    risk: RiskProfile
    tolerate_failures: bool


def decide_status(facts: RunFacts) -> TeamStatus:
    """Return the status of a run that ended with these facts."""
    if facts.caller_cancelled or facts.halt is HaltReason.CANCELLED:
        return TeamStatus.CANCELLED
    if facts.halt is HaltReason.TIME_BUDGET_EXCEEDED:
        return TeamStatus.TIMEOUT
    if facts.broken or facts.halt is HaltReason.EMERGENCY_STOP:
        return TeamStatus.FAILED
    if facts.halt in EXHAUSTED and facts.ended_for_halt:
        lenient = facts.risk is RiskProfile.LOW and facts.accepted
        return TeamStatus.DEGRADED if lenient else TeamStatus.FAILED
    return TeamStatus.SUSPENDED if facts.waiting else _decide_by_tasks(facts)


def _decide_by_tasks(facts: RunFacts) -> TeamStatus:
    if not facts.accepted:
        return TeamStatus.FAILED
    if facts.lost and not (facts.tolerate_failures or facts.risk is RiskProfile.LOW):
        return TeamStatus.FAILED
    if facts.lost or facts.dispensable or facts.blemished:
        return TeamStatus.DEGRADED
    return TeamStatus.COMPLETED
