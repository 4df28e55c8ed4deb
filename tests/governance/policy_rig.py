"""What tests of the built-in guardrails share: contexts in few words, and a policy asked through a chain."""

from __future__ import annotations

from typing import Any

import kairo_team as kt
from kairo_team.governance import (
    GuardrailChain,
    GuardrailContext,
    GuardrailDecision,
    GuardrailPolicy,
    ModelOutput,
    ToolOutput,
)


def about(payload: Any, *, member: str | None = "writer", **metadata: Any) -> GuardrailContext:
    return GuardrailContext(payload.phase, member, "target", payload, metadata)


def said(text: str, *calls: kt.ToolCall) -> GuardrailContext:
    return about(ModelOutput(kt.ModelResponse(text, calls)))


def got(result: Any) -> GuardrailContext:
    return about(ToolOutput("search", result))


async def decide(policy: GuardrailPolicy, context: GuardrailContext) -> GuardrailDecision:
    """Ask through a chain, as everybody does."""
    (ruling,) = (await GuardrailChain([policy]).evaluate(context)).trail
    assert ruling.policy == policy.name  # type: ignore[attr-defined]  # ours have one
    return ruling.decision


async def text_after(policy: GuardrailPolicy, context: GuardrailContext) -> str:
    return (await GuardrailChain([policy]).evaluate(context)).payload.text
