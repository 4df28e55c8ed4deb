"""Doubles that note when they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kairo_team.budget import Budget
from kairo_team.governance import Governor
from kairo_team.governance.guardrails import (
    GuardrailChain,
    GuardrailContext,
    GuardrailDecision,
    GuardrailPhase,
    GuardrailRuling,
    ToolInput,
)
from kairo_team.tools import PermissionDecision, Tool, ToolPermissions, ToolPipeline

ALLOW = PermissionDecision.allow()


class Guard:
    """A permission guard that answers what it is told and notes what it was asked."""

    def __init__(self, answer: Any = ALLOW, log: list[str] | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Mapping[str, Any], str]] = []
        self.log = log if log is not None else []

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> PermissionDecision:
        self.asked.append((tool, arguments, side_effect))
        self.log.append("guard")
        answer: Any = self.answer(tool, arguments) if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        decision: PermissionDecision = answer
        return decision


class Policy:
    """A guardrail policy that answers what it is told and notes what it was shown."""

    def __init__(
        self, *phases: GuardrailPhase, answer: Any = None, name: str = "policy", log: list[str] | None = None
    ) -> None:
        self.name = name
        self.phases = frozenset(phases) or frozenset(GuardrailPhase)
        self.answer = answer
        self.shown: list[GuardrailContext] = []
        self.log = log if log is not None else []

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.shown.append(context)
        self.log.append(context.phase.value)
        answer: Any = self.answer(context) if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        decision: GuardrailDecision = GuardrailDecision.allow() if answer is None else answer
        return decision


class Calls(list[tuple[str, str, str | None, str | None]]):
    """What a pipeline reported of its calls, and the rulings it told of."""

    def __init__(self) -> None:
        super().__init__()
        self.rulings: list[tuple[GuardrailPhase, str, GuardrailRuling]] = []

    def note(
        self, tool: str, outcome: str, refused_by: str | None, reason: str | None, key: str, duration: float
    ) -> None:
        self.append((tool, outcome, refused_by, reason))

    def ruled(self, phase: GuardrailPhase, target: str, ruling: GuardrailRuling) -> None:
        self.rulings.append((phase, target, ruling))

    @property
    def last(self) -> tuple[str, str, str | None, str | None]:
        return self[-1]


def pipeline(
    *policies: Policy,
    guard: Guard | None = None,
    calls: Calls | None = None,
    budget: Budget | None = None,
    **options: Any,
) -> ToolPipeline:
    """Make a pipeline; `budget` is that of its governor."""
    permissions = ToolPermissions(
        guard, **{key: options.pop(key) for key in ("plan_mode", "mcp", "breaker") if key in options}
    )
    if calls is not None:
        options |= {"on_call": calls.note, "on_decision": calls.ruled}
    governor = options.pop("governor", None) or Governor(budget or Budget(), clock=lambda: 0.0)
    return ToolPipeline(governor, permissions=permissions, guardrails=GuardrailChain(policies), **options)


def simple(function: Callable[[Mapping[str, Any]], Any], name: str = "simple", **options: Any) -> Tool:
    """Make a tool of a plain function of the arguments, run in the event loop."""

    async def call(arguments: Mapping[str, Any]) -> Any:
        result = function(arguments)
        return await result if hasattr(result, "__await__") else result

    return Tool(name, call, **options)


def with_arguments(context: GuardrailContext, **arguments: Any) -> GuardrailDecision:
    """Change the arguments of a call."""
    return GuardrailDecision.modify("changed", ToolInput(context.target, arguments))
