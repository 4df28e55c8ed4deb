"""Coordinators: who works when, and what follows a verdict."""

from kairo_team.coordinators.agent_planner import AgentPlanner
from kairo_team.coordinators.best_of import BestOf
from kairo_team.coordinators.expert_team import ExpertTeamCoordinator
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.group_chat import GroupChatCoordinator
from kairo_team.coordinators.handoff import HandoffCoordinator
from kairo_team.coordinators.planners import RolePlanner
from kairo_team.coordinators.supervisor import SupervisorCoordinator
from kairo_team.coordinators.task_dispatch import TaskDispatchCoordinator

__all__ = [
    "AgentPlanner",
    "BestOf",
    "ExpertTeamCoordinator",
    "FailurePolicy",
    "GroupChatCoordinator",
    "HandoffCoordinator",
    "RolePlanner",
    "SupervisorCoordinator",
    "TaskDispatchCoordinator",
]
