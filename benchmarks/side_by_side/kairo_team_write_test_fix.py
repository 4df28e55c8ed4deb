"""kairo-team: a loop of two tasks until the tests pass; a budget, and a journal on SQLite."""

from __future__ import annotations

import kairo_team as kt
from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main
from kairo_team.models import OpenAICompatible


async def test(assignment: kt.Assignment) -> kt.Artifact:
    """Run the tests on what was written."""
    failed = fault(assignment.upstream["write"].text)
    return kt.Artifact(failed or "passed", {"passed": failed is None})


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    agent = kt.MiniAgent("scripted", settings={"max_tokens": 150})
    writer, documenter = kt.Role("writer", WRITER), kt.Role("documenter", DOCUMENTER)
    team = kt.Team("code", [kt.Member(writer, agent), kt.Member("tester", test), kt.Member(documenter, agent)])
    rounds = [
        kt.Task("write", WRITE, role="writer"),
        kt.Task("test", "Test it.", role="tester", depends_on=["write"]),
    ]
    passed = {"from": "test", "field": "passed", "equals": True}
    plan = kt.TaskGraph(
        [
            kt.Task("code", "Write until the tests pass.", loop=kt.Loop(rounds, until=passed, max_rounds=ROUNDS)),
            kt.Task("document", "Document it.", role="documenter", depends_on=["code"]),
        ]
    )
    config = kt.TeamConfig(budget=kt.Budget(tokens=given.tokens))
    request = kt.TeamExecutionRequest(WRITE, plan=plan, config=config, run_id="run-1")
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
