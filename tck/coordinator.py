"""The kit of `TeamCoordinator`: everything that a run shows outside."""

from __future__ import annotations

from kairo_team.tck.coordinator_before import BeforeTests
from kairo_team.tck.coordinator_budget import BudgetTests
from kairo_team.tck.coordinator_calls import CallTests
from kairo_team.tck.coordinator_cancel import CancelTests
from kairo_team.tck.coordinator_cuts import CutTests
from kairo_team.tck.coordinator_ends import EndTests
from kairo_team.tck.coordinator_failures import FailureTests
from kairo_team.tck.coordinator_gate import GateTests
from kairo_team.tck.coordinator_judged_runs import JudgedRunTests
from kairo_team.tck.coordinator_limits import LimitTests
from kairo_team.tck.coordinator_order import OrderTests
from kairo_team.tck.coordinator_planning import PlanningTests
from kairo_team.tck.coordinator_resumed import ResumedTests
from kairo_team.tck.coordinator_reviews import ReviewTests
from kairo_team.tck.coordinator_revisions import RevisionTests
from kairo_team.tck.coordinator_work import WorkTests


class TeamCoordinatorTCK(
    BeforeTests,
    CallTests,
    EndTests,
    CutTests,
    CancelTests,
    WorkTests,
    OrderTests,
    FailureTests,
    BudgetTests,
    LimitTests,
    ReviewTests,
    JudgedRunTests,
    RevisionTests,
    PlanningTests,
    GateTests,
    ResumedTests,
):
    """The contract kit of coordinators: override `make_coordinator` and declare what it supports.

    For a coordinator with its own choreography set `supports_plan = False`, and override `make_team` if it needs
    certain members; every member of the team must have the given agent. Risk is MEDIUM unless a test sets another.
    """
