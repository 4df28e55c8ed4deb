"""kairo-team: a plan of tasks."""

from __future__ import annotations

from typing import Any

import kairo_team as kt
from benchmarks.first_hour.jobs import CHUNKS


def run(runtime: Any) -> str:
    """Take notes of each part at the same time, gather them, edit the minutes."""
    parts = [kt.Task(f"part-{n}", f"Take notes:\n{text}", role="taker") for n, text in enumerate(CHUNKS)]
    gather = kt.Task("gather", "Put the notes together.", role="taker", depends_on=[one.id for one in parts])
    edit = kt.Task("edit", "Write the minutes: decisions first.", role="editor", depends_on=["gather"])
    agent = kt.MiniAgent("openai:gpt-5-mini")
    team = kt.Team("minutes", [kt.Member("taker", agent, max_concurrency=None), kt.Member("editor", agent)])
    plan = kt.TaskGraph([*parts, gather, edit])
    return str(kt.run_sync(team, "Minutes", plan=plan, runtime=runtime, budget=kt.Budget(tokens=50_000)).output)
