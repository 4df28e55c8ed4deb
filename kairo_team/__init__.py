"""Run a team of agents over a task graph, under a budget that holds.

import kairo_team as kt
"""

from typing import TYPE_CHECKING

from kairo_team._util.drawn import register_drawings
from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    __version__: str
    from kairo_team import events
    from kairo_team.agents.mini import MiniAgent
    from kairo_team.api import check, run, run_sync
    from kairo_team.artifacts import Artifact, Finding
    from kairo_team.budget import Budget, BudgetPolicy, HaltReason, Usage
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.contracts import MemberContext
    from kairo_team.coordinators.expert_team import ExpertTeamCoordinator
    from kairo_team.coordinators.group_chat import GroupChatCoordinator
    from kairo_team.coordinators.handoff import HandoffCoordinator
    from kairo_team.coordinators.supervisor import SupervisorCoordinator
    from kairo_team.coordinators.task_dispatch import TaskDispatchCoordinator
    from kairo_team.data.teams.loading import load_job, load_team
    from kairo_team.durable.accounts import account
    from kairo_team.durable.journal import SqliteJournal
    from kairo_team.durable.postgres import PostgresJournal
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
    from kairo_team.evaluators import checks
    from kairo_team.evaluators.criterion import Criterion
    from kairo_team.evaluators.rubric import Rubric, load_rubric
    from kairo_team.files import File
    from kairo_team.gates import CallbackGate, ConsoleGate, DeferGate, JournalGate
    from kairo_team.governance.pricing import Price
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.messages import Message, ModelRequest, ModelResponse, ToolCall
    from kairo_team.models.limits import ModelLimit
    from kairo_team.models.resolver import Fallback
    from kairo_team.models.retries import ModelRetry
    from kairo_team.results import AgentOutput, AgentStatus, TaskOutcome, TeamResult, TeamStatus
    from kairo_team.serve.asgi import asgi
    from kairo_team.tasks import Assignment, Loop, Task, TaskGraph, TaskRef, TaskStatus
    from kairo_team.team import Member, PlannerFailureMode, RiskProfile, Role, Team, TeamConfig, TeamExecutionRequest
    from kairo_team.tools.mcp_config import load_mcp
    from kairo_team.tools.permissions import ToolPermissions
    from kairo_team.tools.tool import tool
    from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome
    from kairo_team.views.json_lines import JsonLines
    from kairo_team.views.telemetry import OpenTelemetry
    from kairo_team.web_console.console import console

__all__ = [
    "AgentOutput",
    "AgentStatus",
    "Artifact",
    "Assignment",
    "Budget",
    "BudgetPolicy",
    "CallbackGate",
    "Cause",
    "Cluster",
    "ConsoleGate",
    "Criterion",
    "DeferGate",
    "EvaluationContext",
    "EvaluationVerdict",
    "ExpertTeamCoordinator",
    "Fallback",
    "File",
    "Finding",
    "GroupChatCoordinator",
    "HaltError",
    "HaltReason",
    "HandoffCoordinator",
    "HumanDecision",
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
    "PlannerFailureMode",
    "PostgresJournal",
    "Price",
    "RiskProfile",
    "Role",
    "Rubric",
    "Run",
    "RunExists",
    "RunFinished",
    "RunNotFound",
    "Runtime",
    "SqliteJournal",
    "SupervisorCoordinator",
    "Task",
    "TaskDispatchCoordinator",
    "TaskGraph",
    "TaskOutcome",
    "TaskRef",
    "TaskStatus",
    "Team",
    "TeamConfig",
    "TeamExecutionRequest",
    "TeamFailed",
    "TeamResult",
    "TeamRun",
    "TeamStatus",
    "ToolCall",
    "ToolPermissions",
    "Usage",
    "VerdictOutcome",
    "__version__",
    "account",
    "asgi",
    "check",
    "checks",
    "console",
    "events",
    "load_job",
    "load_mcp",
    "load_rubric",
    "load_team",
    "run",
    "run_sync",
    "tool",
]


def _version() -> str:
    from kairo_team._util.version import version_of_library

    return version_of_library()


if not TYPE_CHECKING:  # a type checker would accept any name
    _HOMES = {
        "events": "",
        "agents.mini": "MiniAgent",
        "api": "check run run_sync",
        "artifacts": "Artifact Finding",
        "budget": "Budget BudgetPolicy HaltReason Usage",
        "cluster.cluster": "Cluster",
        "contracts": "MemberContext",
        "coordinators": (
            "ExpertTeamCoordinator GroupChatCoordinator HandoffCoordinator SupervisorCoordinator "
            "TaskDispatchCoordinator"
        ),
        "durable.accounts": "account",
        "durable.journal": "SqliteJournal",
        "durable.postgres": "PostgresJournal",
        "engine.records.run_handle": "Run",
        "engine.run.team_run": "TeamRun",
        "engine.work.runtime": "Runtime",
        "errors": "HaltError InsufficientBudget KairoError RunExists RunFinished RunNotFound TeamFailed",
        "evaluators": "checks Criterion load_rubric Rubric",
        "files": "File",
        "gates": "CallbackGate ConsoleGate DeferGate JournalGate",
        "governance.pricing": "Price",
        "human": "HumanDecision HumanRequest",
        "messages": "Message ModelRequest ModelResponse ToolCall",
        "models": "Fallback ModelLimit ModelRetry",
        "results": "AgentOutput AgentStatus TaskOutcome TeamResult TeamStatus",
        "serve.asgi": "asgi",
        "tasks": "Assignment Loop Task TaskGraph TaskRef TaskStatus",
        "team": "Member PlannerFailureMode RiskProfile Role Team TeamConfig TeamExecutionRequest",
        "data.teams.loading": "load_job load_team",
        "tools.mcp_config": "load_mcp",
        "tools.permissions": "ToolPermissions",
        "tools.tool": "tool",
        "verdicts": "Cause EvaluationContext EvaluationVerdict VerdictOutcome",
        "views.json_lines": "JsonLines",
        "views.telemetry": "OpenTelemetry",
        "web_console.console": "console",
    }
    """Modules of the names. Each is imported when it is first used, so that `import kairo_team` is quick."""
    _BESIDE = (
        *("evaluators", "coordinators", "contracts", "agents", "tools", "models", "governance", "messages"),
        *("testing", "gates", "errors"),
    )
    _MOVED = {
        "api": "PlanCheck",
        "conditions": "Condition",
        "contracts": "Agent ChatModel EvaluationStrategy HumanGate Planner TeamCoordinator",
        "coordinators": "Said",
        "evaluators": "CriterionResult",
        "governance": "BudgetNode",
        "messages": "ToolSpec",
        "data.teams": "TeamJob team_schema",
    }
    """Names that `kt.` had in 0.2; until 1.0 they work, with a warning. docs/migration.md lists them."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, made={"__version__": _version}, beside=_BESIDE, moved=_MOVED)

register_drawings(
    {
        "kairo_team.views.eval_page": "show_eval",
        "kairo_team.views.eval_table": "draw_eval",
        "kairo_team.views.notebook": "draw_plan show_governor show_plan show_result show_team show_trial",
        "kairo_team.views.report_html": "write_result",
    }
)
