"""Run a team of agents over a task graph, under a budget that holds.

import kairo_team as kt
"""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    __version__: str
    from kairo_team import events as events
    from kairo_team.agents.mini import MiniAgent as MiniAgent
    from kairo_team.api import check as check
    from kairo_team.api import run as run
    from kairo_team.api import run_sync as run_sync
    from kairo_team.budget import Budget as Budget
    from kairo_team.budget import BudgetNode as BudgetNode
    from kairo_team.budget import BudgetPolicy as BudgetPolicy
    from kairo_team.budget import HaltReason as HaltReason
    from kairo_team.budget import Usage as Usage
    from kairo_team.contracts import Agent as Agent
    from kairo_team.contracts import ChatModel as ChatModel
    from kairo_team.contracts import EvaluationStrategy as EvaluationStrategy
    from kairo_team.contracts import HumanGate as HumanGate
    from kairo_team.contracts import MemberContext as MemberContext
    from kairo_team.contracts import Planner as Planner
    from kairo_team.contracts import TeamCoordinator as TeamCoordinator
    from kairo_team.engine.preflight import PlanCheck as PlanCheck
    from kairo_team.engine.run_handle import Run as Run
    from kairo_team.engine.runtime import Runtime as Runtime
    from kairo_team.engine.team_run import TeamRun as TeamRun
    from kairo_team.errors import HaltError as HaltError
    from kairo_team.errors import InsufficientBudget as InsufficientBudget
    from kairo_team.errors import KairoError as KairoError
    from kairo_team.errors import RunExists as RunExists
    from kairo_team.errors import RunFinished as RunFinished
    from kairo_team.errors import RunNotFound as RunNotFound
    from kairo_team.errors import TeamFailed as TeamFailed
    from kairo_team.gates import CallbackGate as CallbackGate
    from kairo_team.gates import ConsoleGate as ConsoleGate
    from kairo_team.gates import DeferGate as DeferGate
    from kairo_team.governance.pricing import Price as Price
    from kairo_team.human import HumanDecision as HumanDecision
    from kairo_team.human import HumanRequest as HumanRequest
    from kairo_team.messages import Message as Message
    from kairo_team.messages import ModelRequest as ModelRequest
    from kairo_team.messages import ModelResponse as ModelResponse
    from kairo_team.messages import ToolCall as ToolCall
    from kairo_team.messages import ToolSpec as ToolSpec
    from kairo_team.models.fallback import Fallback as Fallback
    from kairo_team.models.limits import ModelLimit as ModelLimit
    from kairo_team.models.retries import ModelRetry as ModelRetry
    from kairo_team.results import AgentOutput as AgentOutput
    from kairo_team.results import AgentStatus as AgentStatus
    from kairo_team.results import Artifact as Artifact
    from kairo_team.results import TaskOutcome as TaskOutcome
    from kairo_team.results import TeamResult as TeamResult
    from kairo_team.results import TeamStatus as TeamStatus
    from kairo_team.tasks import Assignment as Assignment
    from kairo_team.tasks import Task as Task
    from kairo_team.tasks import TaskGraph as TaskGraph
    from kairo_team.tasks import TaskStatus as TaskStatus
    from kairo_team.team import Member as Member
    from kairo_team.team import PlannerFailureMode as PlannerFailureMode
    from kairo_team.team import RiskProfile as RiskProfile
    from kairo_team.team import Role as Role
    from kairo_team.team import Team as Team
    from kairo_team.team import TeamConfig as TeamConfig
    from kairo_team.team import TeamExecutionRequest as TeamExecutionRequest
    from kairo_team.tools.permissions import ToolPermissions as ToolPermissions
    from kairo_team.tools.tool import tool as tool
    from kairo_team.verdicts import Cause as Cause
    from kairo_team.verdicts import CriterionResult as CriterionResult
    from kairo_team.verdicts import EvaluationContext as EvaluationContext
    from kairo_team.verdicts import EvaluationVerdict as EvaluationVerdict
    from kairo_team.verdicts import Finding as Finding
    from kairo_team.verdicts import VerdictOutcome as VerdictOutcome

__all__ = [
    "Agent",
    "AgentOutput",
    "AgentStatus",
    "Artifact",
    "Assignment",
    "Budget",
    "BudgetNode",
    "BudgetPolicy",
    "CallbackGate",
    "Cause",
    "ChatModel",
    "ConsoleGate",
    "CriterionResult",
    "DeferGate",
    "EvaluationContext",
    "EvaluationStrategy",
    "EvaluationVerdict",
    "Fallback",
    "Finding",
    "HaltError",
    "HaltReason",
    "HumanDecision",
    "HumanGate",
    "HumanRequest",
    "InsufficientBudget",
    "KairoError",
    "Member",
    "MemberContext",
    "Message",
    "MiniAgent",
    "ModelLimit",
    "ModelRequest",
    "ModelResponse",
    "ModelRetry",
    "PlanCheck",
    "Planner",
    "PlannerFailureMode",
    "Price",
    "RiskProfile",
    "Role",
    "Run",
    "RunExists",
    "RunFinished",
    "RunNotFound",
    "Runtime",
    "Task",
    "TaskGraph",
    "TaskOutcome",
    "TaskStatus",
    "Team",
    "TeamConfig",
    "TeamCoordinator",
    "TeamExecutionRequest",
    "TeamFailed",
    "TeamResult",
    "TeamRun",
    "TeamStatus",
    "ToolCall",
    "ToolPermissions",
    "ToolSpec",
    "Usage",
    "VerdictOutcome",
    "__version__",
    "check",
    "events",
    "run",
    "run_sync",
    "tool",
]


def _version() -> str:
    from importlib.metadata import version  # slow to import, and rarely asked for

    return version("kairo-team")


if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "events": "",
        "agents.mini": "MiniAgent",
        "budget": "Budget BudgetNode BudgetPolicy HaltReason Usage",
        "contracts": "Agent ChatModel EvaluationStrategy HumanGate MemberContext Planner TeamCoordinator",
        "errors": "HaltError InsufficientBudget KairoError RunExists RunFinished RunNotFound TeamFailed",
        "engine.preflight": "PlanCheck",
        "api": "check run run_sync",
        "gates": "CallbackGate ConsoleGate DeferGate",
        "governance.pricing": "Price",
        "human": "HumanDecision HumanRequest",
        "messages": "Message ModelRequest ModelResponse ToolCall ToolSpec",
        "models.fallback": "Fallback",
        "models.limits": "ModelLimit",
        "models.retries": "ModelRetry",
        "results": "AgentOutput AgentStatus Artifact TaskOutcome TeamResult TeamStatus",
        "engine.run_handle": "Run",
        "engine.runtime": "Runtime",
        "tasks": "Assignment Task TaskGraph TaskStatus",
        "team": "Member PlannerFailureMode RiskProfile Role Team TeamConfig TeamExecutionRequest",
        "engine.team_run": "TeamRun",
        "tools.permissions": "ToolPermissions",
        "tools.tool": "tool",
        "verdicts": "Cause CriterionResult EvaluationContext EvaluationVerdict Finding VerdictOutcome",
    }
    """Where the names live. Each is imported when it is first used, so that `import kairo_team` is quick."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, made={"__version__": _version})
