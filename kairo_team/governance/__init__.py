"""The governor tree, which enforces budgets; constraints, guardrails and prices."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.budget import Budget, BudgetNode, BudgetPolicy, HaltReason, Usage
    from kairo_team.constraints import (
        AgentState,
        ConstraintReport,
        ResourceAction,
        ResourceContext,
        ResourceValidation,
        Violation,
    )
    from kairo_team.contracts import GuardrailPolicy, ResourceConstraint
    from kairo_team.errors import ConstraintExit, GovernorClosed, GuardrailDenied, HaltError, InsufficientBudget
    from kairo_team.governance.constraint_chain import ConstraintChain
    from kairo_team.governance.constraint_limits import (
        CostLimit,
        ExternalSignal,
        MaxIterations,
        Timeout,
        TokenBudget,
        WarnAt,
    )
    from kairo_team.governance.governor import Governor, Reservation
    from kairo_team.governance.guardrails import (
        GuardrailAction,
        GuardrailChain,
        GuardrailContext,
        GuardrailDecision,
        GuardrailOutcome,
        GuardrailPayload,
        GuardrailPhase,
        GuardrailRuling,
        ModelInput,
        ModelOutput,
        ToolInput,
        ToolOutput,
    )

__all__ = [
    "AgentState",
    "Budget",
    "BudgetNode",
    "BudgetPolicy",
    "ConstraintChain",
    "ConstraintExit",
    "ConstraintReport",
    "CostLimit",
    "ExternalSignal",
    "Governor",
    "GovernorClosed",
    "GuardrailAction",
    "GuardrailChain",
    "GuardrailContext",
    "GuardrailDecision",
    "GuardrailDenied",
    "GuardrailOutcome",
    "GuardrailPayload",
    "GuardrailPhase",
    "GuardrailPolicy",
    "GuardrailRuling",
    "HaltError",
    "HaltReason",
    "InsufficientBudget",
    "MaxIterations",
    "ModelInput",
    "ModelOutput",
    "Reservation",
    "ResourceAction",
    "ResourceConstraint",
    "ResourceContext",
    "ResourceValidation",
    "Timeout",
    "TokenBudget",
    "ToolInput",
    "ToolOutput",
    "Usage",
    "Violation",
    "WarnAt",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "kairo_team.budget": "Budget BudgetNode BudgetPolicy HaltReason Usage",
        "kairo_team.constraints": (
            "AgentState ConstraintReport ResourceAction ResourceContext ResourceValidation Violation"
        ),
        "kairo_team.contracts": "GuardrailPolicy ResourceConstraint",
        "kairo_team.errors": "ConstraintExit GovernorClosed GuardrailDenied HaltError InsufficientBudget",
        "constraint_chain": "ConstraintChain",
        "constraint_limits": "CostLimit ExternalSignal MaxIterations Timeout TokenBudget WarnAt",
        "governor": "Governor Reservation",
        "guardrails": (
            "GuardrailAction GuardrailChain GuardrailContext GuardrailDecision GuardrailOutcome "
            "GuardrailPayload GuardrailPhase GuardrailRuling ModelInput ModelOutput ToolInput "
            "ToolOutput"
        ),
    }
    """Names by module. Each is imported on first use: a run needs only a few."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
