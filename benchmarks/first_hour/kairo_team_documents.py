"""kairo-team: a plan, a limit in dollars, a journal."""

from __future__ import annotations

from typing import Any

import kairo_team as kt
from benchmarks.first_hour.jobs import DOCUMENTS


def run(runtime: Any) -> str:
    """Summarise 200 documents; after Ctrl-C the same call resumes."""
    plan = kt.TaskGraph([kt.Task(f"doc-{n}", f"Summarise:\n{text}") for n, text in enumerate(DOCUMENTS)])
    team = kt.Team("readers", [kt.Member("reader", kt.MiniAgent("openai:gpt-5-mini"), max_concurrency=None)])
    config = kt.TeamConfig(budget=kt.Budget(dollars="0.50"), max_parallel_tasks=8)
    result = kt.run_sync(team, "Read.", plan=plan, config=config, run_id="docs", resume=True, runtime=runtime)
    return f"{len(result.outcomes)} summaries"
