"""kairo-team: an agent alone, an output type, and an evaluator that is a class with one method."""

from __future__ import annotations

from datetime import date
from typing import Any

from pydantic import BaseModel

import kairo_team as kt
from benchmarks.first_hour.jobs import CONTRACT


class Clause(BaseModel):
    """One clause."""

    number: int
    kind: str
    until: date | None


class Contract(BaseModel):
    """A contract."""

    clauses: list[Clause]


class Lawful:
    """A term has an end."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Review one contract."""
        clauses = context.artifact.data_as(Contract).clauses
        ends = [one.number for one in clauses if one.kind == "term" and one.until is None]
        if ends:
            findings = [kt.Finding(f"clause-{one}", observed="it has no end", expected="a date") for one in ends]
            return kt.EvaluationVerdict.revise("a term without an end", findings=findings)
        return kt.EvaluationVerdict.passed()


def run(model: Any) -> str:
    """Read the clauses of a contract."""
    ask = f"List the clauses of this contract:\n{CONTRACT}"
    output = kt.MiniAgent(model).run_sync(ask, output_type=Contract, evaluator=Lawful())
    return str(output.data.clauses[0].until)
