"""pydantic-ai: an output type, and a validator of the output."""

from __future__ import annotations

from datetime import date
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry

from benchmarks.first_hour.jobs import CONTRACT


class Clause(BaseModel):
    """One clause."""

    number: int
    kind: str
    until: date | None


class Contract(BaseModel):
    """A contract."""

    clauses: list[Clause]


def run(model: Any) -> str:
    """Read the clauses of a contract."""
    agent = Agent(model, output_type=Contract)

    @agent.output_validator
    def lawful(contract: Contract) -> Contract:
        ends = [one.number for one in contract.clauses if one.kind == "term" and one.until is None]
        if ends:
            raise ModelRetry("; ".join(f"clause {one} has no end: give the date" for one in ends))
        return contract

    return str(agent.run_sync(f"List the clauses of this contract:\n{CONTRACT}").output.clauses[0].until)
