"""Rubrics for tests: criteria whose check says what it is told to, and criteria for others to decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.evaluators.criterion import By

TASK = kt.Task("t", "Explain tides.")


def context(text: str = "The moon pulls the sea.", **fields: Any) -> kt.EvaluationContext:
    return kt.EvaluationContext(TASK, kt.Artifact(text), fields.pop("attempt", 1), **fields)


def said(answer: Any) -> Callable[[kt.Artifact], Any]:
    """A check that says this of every artifact."""

    async def check(_: kt.Artifact) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return check


def one(answer: Any, **fields: Any) -> Criterion:
    return Criterion(fields.pop("id", "c"), fields.pop("text", "it is good"), said(answer), **fields)


def asked(criterion_id: str, by: By = "judge", **fields: Any) -> Criterion:
    return Criterion(criterion_id, f"{criterion_id} is good", by=by, **fields)


async def verdict(
    *criteria: Criterion, threshold: float = 1.0, text: str = "The moon pulls the sea."
) -> kt.EvaluationVerdict:
    return await Rubric(criteria, threshold).evaluate(context(text))
