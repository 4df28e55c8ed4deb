"""Contract kits: inherit from one in a test, make your implementation, and pytest checks it clause by clause.

```python
from kairo_team.tck import EvaluationStrategyTCK

class TestDosage(EvaluationStrategyTCK):
    deterministic = True; cannot_crash = True
    @classmethod
    def make_strategy(cls): return DosageCheck()
    good_artifacts = ["take 5 mg"]; bad_artifacts = ["take some"]
```

The docstring of the protocol in `kairo_team.contracts` states the clauses. New contract tests come only in minor
releases. Needs the extra `tck`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.tck.agent import AgentTCK
    from kairo_team.tck.agent_model import Look
    from kairo_team.tck.chat_model import ChatModelTCK
    from kairo_team.tck.chat_model_stage import Provider
    from kairo_team.tck.check import CheckTCK
    from kairo_team.tck.constraint_answers import Measure, context_of
    from kairo_team.tck.coordinator import TeamCoordinatorTCK
    from kairo_team.tck.delivery import DeliveryTCK
    from kairo_team.tck.evaluation import EvaluationStrategyTCK
    from kairo_team.tck.evaluation_stage import ArtifactOrText
    from kairo_team.tck.guardrail_policy import GuardrailPolicyTCK
    from kairo_team.tck.human_gate import HumanGateTCK, Person
    from kairo_team.tck.journal import JournalTCK
    from kairo_team.tck.kit import ContractTCK
    from kairo_team.tck.kit_runner import run_kit
    from kairo_team.tck.permission_guard import PermissionGuardTCK
    from kairo_team.tck.planner import PlannerTCK
    from kairo_team.tck.reports import ContractResult, KitReport
    from kairo_team.tck.resource_constraint import ResourceConstraintTCK
    from kairo_team.tck.tool_source import ToolCallExample, ToolSourceTCK

__all__ = [
    "AgentTCK",
    "ArtifactOrText",
    "ChatModelTCK",
    "CheckTCK",
    "ContractResult",
    "ContractTCK",
    "DeliveryTCK",
    "EvaluationStrategyTCK",
    "GuardrailPolicyTCK",
    "HumanGateTCK",
    "JournalTCK",
    "KitReport",
    "Look",
    "Measure",
    "PermissionGuardTCK",
    "Person",
    "PlannerTCK",
    "Provider",
    "ResourceConstraintTCK",
    "TeamCoordinatorTCK",
    "ToolCallExample",
    "ToolSourceTCK",
    "context_of",
    "run_kit",
]


def _prepare() -> None:
    from kairo_team.errors import MissingExtra

    missing = [name for name in ("pytest", "hypothesis", "trio") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"kairo_team.tck (without {', '.join(missing)})", "tck")
    import pytest

    pytest.register_assert_rewrite(__name__)  # failed asserts of the kits show the compared values


if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "agent": "AgentTCK",
        "agent_model": "Look",
        "chat_model": "ChatModelTCK",
        "chat_model_stage": "Provider",
        "check": "CheckTCK",
        "constraint_answers": "Measure context_of",
        "coordinator": "TeamCoordinatorTCK",
        "delivery": "DeliveryTCK",
        "evaluation": "EvaluationStrategyTCK",
        "evaluation_stage": "ArtifactOrText",
        "guardrail_policy": "GuardrailPolicyTCK",
        "human_gate": "HumanGateTCK Person",
        "journal": "JournalTCK",
        "kit": "ContractTCK",
        "kit_runner": "run_kit",
        "permission_guard": "PermissionGuardTCK",
        "planner": "PlannerTCK",
        "reports": "ContractResult KitReport",
        "resource_constraint": "ResourceConstraintTCK",
        "tool_source": "ToolCallExample ToolSourceTCK",
    }
    """Names by module. Each is imported on first use: pytest loads this plugin at every start."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, before=_prepare)
