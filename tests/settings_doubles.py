"""Members and evaluators that show what a setting does."""

from __future__ import annotations

from typing import Any

import anyio

import kairo_team as kt


async def good(assignment: kt.Assignment) -> str:
    return f"made {assignment.task.id}"


async def bad(assignment: kt.Assignment) -> str:
    raise ValueError("cannot")


class Unsure:
    """Leaves every artifact to a higher authority."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE)


async def nap(assignment: kt.Assignment) -> str:
    await anyio.sleep(10)
    return "slept"


def spend(tokens: int) -> Any:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.reserve(tokens=tokens).settle(prompt_tokens=tokens)
        return "spent"

    return agent


class Reject:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.revise("no")


class Slow:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        await anyio.sleep(10)
        return kt.EvaluationVerdict.passed()
