"""kairo-team: a map over the list of documents, of which four fifths are needed; a budget, and a journal on SQLite."""

from __future__ import annotations

import kairo_team as kt
from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main
from kairo_team.models import OpenAICompatible


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    agent = kt.MiniAgent("scripted", settings={"max_tokens": 150})
    told = {"lister": LISTER, "reader": READER, "joiner": JOINER}
    team = kt.Team("documents", [kt.Member(kt.Role(role, text), agent) for role, text in told.items()])
    plan = kt.TaskGraph(
        [
            kt.Task("split", GOAL, role="lister"),
            kt.Task.map("read", "Summarise the document `item`.", over="split", max_items=20, role="reader"),
            kt.Task("gather", "Join the summaries.", role="joiner", depends_on=["read"], needs=0.8),
        ]
    )
    config = kt.TeamConfig(budget=kt.Budget(tokens=given.tokens))
    request = kt.TeamExecutionRequest(GOAL, plan=plan, config=config, run_id="run-1")
    journal = kt.SqliteJournal(given.folder / "runs.db")
    models = {"scripted": OpenAICompatible(MODEL, given.url)}
    async with kt.Runtime(journal=journal, models=models) as runtime:
        if not given.again:
            result = await kt.run(team, request, runtime=runtime)
        else:
            ended = journal.result("run-1")
            failed = [one.task_id for one in ended.outcomes if one.status is kt.TaskStatus.FAILED] if ended else []
            run_id = journal.fork("run-1", before=failed[-1]) if failed else "run-1"
            result = await runtime.resume(run_id, team)
    return f"{result.status}: {result.output or result.partial_output}"


if __name__ == "__main__":
    main(run)
