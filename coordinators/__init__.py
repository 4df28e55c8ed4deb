"""Coordinators: who works when, and what follows a verdict."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.coordinators.agent_planner import AgentPlanner
    from kairo_team.coordinators.best_of import BestOf
    from kairo_team.coordinators.expert_team import ExpertTeamCoordinator
    from kairo_team.coordinators.failure_policy import FailurePolicy
    from kairo_team.coordinators.group_chat import GroupChatCoordinator
    from kairo_team.coordinators.handoff import HandoffCoordinator
    from kairo_team.coordinators.planners import RolePlanner
    from kairo_team.coordinators.review_rounds import ReviewRounds
    from kairo_team.coordinators.reviewers import Reviewers
    from kairo_team.coordinators.supervisor import SupervisorCoordinator
    from kairo_team.coordinators.task_dispatch import TaskDispatchCoordinator
    from kairo_team.coordinators.turns import Said
    from kairo_team.results import Attempt

__all__ = [
    "AgentPlanner",
    "Attempt",
    "BestOf",
    "ExpertTeamCoordinator",
    "FailurePolicy",
    "GroupChatCoordinator",
    "HandoffCoordinator",
    "ReviewRounds",
    "Reviewers",
    "RolePlanner",
    "Said",
    "SupervisorCoordinator",
    "TaskDispatchCoordinator",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    _HOMES = {
        "agent_planner": "AgentPlanner",
        "best_of": "BestOf",
        "expert_team": "ExpertTeamCoordinator",
        "failure_policy": "FailurePolicy",
        "group_chat": "GroupChatCoordinator",
        "handoff": "HandoffCoordinator",
        "planners": "RolePlanner",
        "review_rounds": "ReviewRounds",
        "reviewers": "Reviewers",
        "supervisor": "SupervisorCoordinator",
        "task_dispatch": "TaskDispatchCoordinator",
        "turns": "Said",
        "kairo_team.results": "Attempt",
    }
    """Modules of the names. Each is imported when it is first used: a run has one coordinator."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
