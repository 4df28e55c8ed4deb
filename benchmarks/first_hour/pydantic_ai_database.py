"""pydantic-ai: a tool whose errors are turned into a retry; otherwise they end the run."""

from __future__ import annotations

import sqlite3
from typing import Any

from pydantic_ai import Agent, ModelRetry, UsageLimits

from benchmarks.first_hour.jobs import QUESTION, SHOP


def run(model: Any) -> str:
    """Answer a question over a database that the model cannot change."""
    agent = Agent(model)

    @agent.tool_plain
    def query(sql: str) -> str:
        """Run one SELECT on the table sale(city, eur)."""
        try:
            with sqlite3.connect(SHOP, uri=True) as db:
                return str(db.execute(sql).fetchall())
        except sqlite3.Error as error:
            raise ModelRetry(str(error)) from error

    return agent.run_sync(QUESTION, usage_limits=UsageLimits(total_tokens_limit=20_000)).output
