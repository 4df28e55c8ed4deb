"""Run a team of agents over a task graph, under a budget that holds.

import kairo_team as kt
"""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    __version__: str
    from kairo_team import events
    from kairo_team.agents.mini import MiniAgent
    from kairo_team.api import check, run, run_sync
    from kairo_team.budget import Budget, BudgetNode, BudgetPolicy, HaltReason, Usage
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.conditions import Condition
    from kairo_team.contracts import (
        Agent,
        ChatModel,
        EvaluationStrategy,
        HumanGate,
        MemberContext,
        Planner,
        TeamCoordinator,
    )
    from kairo_team.coordinators.group_chat import GroupChatCoordinator
    from kairo_team.coordinators.handoff import HandoffCoordinator
    from kairo_team.coordinators.supervisor import SupervisorCoordinator
    from kairo_team.coordinators.turns import Said
    from kairo_team.durable.journal import SqliteJournal
    from kairo_team.durable.postgres import PostgresJournal
    from kairo_team.engine.plan.preflight import PlanCheck
    from kairo_team.engine.records.run_handle import Run
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.errors import (
        HaltError,
        InsufficientBudget,
        KairoError,
        RunExists,
        RunFinished,
        RunNotFound,
        TeamFailed,
    )
    from kairo_team.evaluators.rubric_data import load_rubric
    from kairo_team.gates import CallbackGate, ConsoleGate, DeferGate, JournalGate
    from kairo_team.governance.pricing import Price
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.messages import Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
    from kairo_team.models.fallback import Fallback
    from kairo_team.models.limits import ModelLimit
    from kairo_team.models.retries import ModelRetry
    from kairo_team.results import AgentOutput, AgentStatus, Artifact, TaskOutcome, TeamResult, TeamStatus
    from kairo_team.tasks import Assignment, Loop, Task, TaskGraph, TaskRef, TaskStatus
    from kairo_team.team import Member, PlannerFailureMode, RiskProfile, Role, Team, TeamConfig, TeamExecutionRequest
    from kairo_team.team_data.loading import TeamJob, load_job, load_team, team_schema
    from kairo_team.tools.permissions import ToolPermissions
    from kairo_team.tools.tool import tool
    from kairo_team.verdicts import (
        Cause,
        CriterionResult,
        EvaluationContext,
        EvaluationVerdict,
        Finding,
        VerdictOutcome,
    )
    from kairo_team.views.json_lines import JsonLines
    from kairo_team.views.telemetry import OpenTelemetry
    from kairo_team.web_console.console import console

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
    "Cluster",
    "Condition",
    "ConsoleGate",
    "CriterionResult",
    "DeferGate",
    "EvaluationContext",
    "EvaluationStrategy",
    "EvaluationVerdict",
    "Fallback",
    "Finding",
    "GroupChatCoordinator",
    "HaltError",
    "HaltReason",
    "HandoffCoordinator",
    "HumanDecision",
    "HumanGate",
    "HumanRequest",
    "InsufficientBudget",
    "JournalGate",
    "JsonLines",
    "KairoError",
    "Loop",
    "Member",
    "MemberContext",
    "Message",
    "MiniAgent",
    "ModelLimit",
    "ModelRequest",
    "ModelResponse",
    "ModelRetry",
    "OpenTelemetry",
    "PlanCheck",
    "Planner",
    "PlannerFailureMode",
    "PostgresJournal",
    "Price",
    "RiskProfile",
    "Role",
    "Run",
    "RunExists",
    "RunFinished",
    "RunNotFound",
    "Runtime",
    "Said",
    "SqliteJournal",
    "SupervisorCoordinator",
    "Task",
    "TaskGraph",
    "TaskOutcome",
    "TaskRef",
    "TaskStatus",
    "Team",
    "TeamConfig",
    "TeamCoordinator",
    "TeamExecutionRequest",
    "TeamFailed",
    "TeamJob",
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
    "console",
    "events",
    "load_job",
    "load_rubric",
    "load_team",
    "run",
    "run_sync",
    "team_schema",
    "tool",
]


def _version() -> str:
    from importlib.metadata import version  # slow to import, and rarely asked for

    return version("kairo-team")


if not TYPE_CHECKING:  # a type checker would accept any name
    _HOMES = {
        "events": "",
        "agents.mini": "MiniAgent",
        "budget": "Budget BudgetNode BudgetPolicy HaltReason Usage",
        "conditions": "Condition",
        "contracts": "Agent ChatModel EvaluationStrategy HumanGate MemberContext Planner TeamCoordinator",
        "coordinators.group_chat": "GroupChatCoordinator",
        "coordinators.handoff": "HandoffCoordinator",
        "coordinators.supervisor": "SupervisorCoordinator",
        "coordinators.turns": "Said",
        "errors": "HaltError InsufficientBudget KairoError RunExists RunFinished RunNotFound TeamFailed",
        "cluster.cluster": "Cluster",
        "durable.journal": "SqliteJournal",
        "durable.postgres": "PostgresJournal",
        "engine.plan.preflight": "PlanCheck",
        "api": "check run run_sync",
        "evaluators.rubric_data": "load_rubric",
        "gates": "CallbackGate ConsoleGate DeferGate JournalGate",
        "governance.pricing": "Price",
        "human": "HumanDecision HumanRequest",
        "messages": "Message ModelRequest ModelResponse ToolCall ToolSpec",
        "models.fallback": "Fallback",
        "models.limits": "ModelLimit",
        "models.retries": "ModelRetry",
        "results": "AgentOutput AgentStatus Artifact TaskOutcome TeamResult TeamStatus",
        "engine.records.run_handle": "Run",
        "engine.work.runtime": "Runtime",
        "tasks": "Assignment Loop Task TaskGraph TaskRef TaskStatus",
        "team": "Member PlannerFailureMode RiskProfile Role Team TeamConfig TeamExecutionRequest",
        "engine.run.team_run": "TeamRun",
        "team_data.loading": "TeamJob load_job load_team team_schema",
        "tools.permissions": "ToolPermissions",
        "tools.tool": "tool",
        "verdicts": "Cause CriterionResult EvaluationContext EvaluationVerdict Finding VerdictOutcome",
        "views.json_lines": "JsonLines",
        "views.telemetry": "OpenTelemetry",
        "web_console.console": "console",
    }
    """Modules of the names. Each is imported when it is first used, so that `import kairo_team` is quick."""
    _BESIDE = ("evaluators", "coordinators", "agents", "tools", "models", "governance", "testing", "gates", "errors")
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, made={"__version__": _version}, beside=_BESIDE)
