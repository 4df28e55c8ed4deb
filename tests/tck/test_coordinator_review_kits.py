"""Coordinators that review in ways of their own fulfil the contract too; so does the one that the mutants change."""

from __future__ import annotations

import pytest

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, Planner, TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, RolePlanner
from tests.mutants.reviewing import Reviewing, ReviewingTCK
from tests.tck.test_coordinator_kits import TestExpertTeam as _ExpertTeam
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


@variant("asyncio")
class TestReviewing(ReviewingTCK):
    """What the mutants change passes unchanged."""


class OwnTasks(Reviewing):
    """Has every goal drafted twice and joined, whatever was planned."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        drafts = [kt.Task(name, "Draft it.", member=name) for name in ("one", "two")]
        return kt.TaskGraph([*drafts, kt.Task("join", "Join them.", depends_on=["one", "two"])])


@variant("trio")
class TestOwnTasks(ReviewingTCK):
    kind = OwnTasks
    supports_plan = False
    supports_planner = False


class PlansOnce(RolePlanner):
    """Has nothing to offer in the place of a plan."""

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        if request.plan is not None:
            raise LookupError("there is no other way")
        return await super().plan(request, team, context)


@variant("asyncio")
class TestExpertTeamThatReplans(_ExpertTeam):
    """Where its planner has nothing new to offer, all is as without it."""

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return ExpertTeamCoordinator(evaluator=evaluator, planner=PlansOnce(), replan=True)

    @classmethod
    def make_planning_coordinator(cls, planner: Planner, *, fallback: bool = False) -> TeamCoordinator:
        mode = kt.PlannerFailureMode.SINGLE_TASK_FALLBACK if fallback else kt.PlannerFailureMode.FAIL_FAST
        return ExpertTeamCoordinator(planner=planner, planner_failure_mode=mode, replan=True)
