"""What tests of checks share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evaluators import Check, Criterion, Rubric

Verdicts = Callable[..., Awaitable[kt.EvaluationVerdict]]


@pytest.fixture
def judge() -> Verdicts:
    """Judge a text by one check, through a rubric as a run would."""

    async def judge(check: Check, text: str, **fields: Any) -> kt.EvaluationVerdict:
        artifact = kt.Artifact(text, data=fields.pop("data", None))
        context = kt.EvaluationContext(kt.Task("t", "do"), artifact, fields.pop("attempt", 1), **fields)
        return await Rubric([Criterion("c", "as it should be", check)]).evaluate(context)

    return judge


@pytest.fixture
def says(judge: Verdicts) -> Callable[..., Awaitable[str | None]]:
    """Return what a check finds wrong with a text: "" for nothing, None when it is undecided."""

    async def says(check: Check, text: str, **fields: Any) -> str | None:
        verdict = await judge(check, text, **fields)
        if verdict.outcome is kt.VerdictOutcome.PASS:
            return ""
        return verdict.findings[0].observed if verdict.findings else None

    return says
