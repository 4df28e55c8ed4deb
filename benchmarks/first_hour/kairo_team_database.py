"""kairo-team: a tool that reads; what it raises goes back to the model."""

from __future__ import annotations

import sqlite3
from typing import Any

import kairo_team as kt
from benchmarks.first_hour.jobs import QUESTION, SHOP


def run(runtime: Any) -> str:
    """Answer a question over a database that the model cannot change."""

    @kt.tool(side_effect="read")
    def query(sql: str) -> str:
        """Run one SELECT on the table sale(city, eur)."""
        with sqlite3.connect(SHOP, uri=True) as db:
            return str(db.execute(sql).fetchall())

    team = kt.Team("desk", [kt.Member("analyst", kt.MiniAgent("openai:gpt-5-mini", tools=[query]))])
    return str(kt.run_sync(team, QUESTION, runtime=runtime, budget=kt.Budget(tokens=20_000)).output)
