"""kairo-team: a task board with `SqliteJournal`; every limit is set."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import kairo_team as kt
from benchmarks.peers.durable.experiment import PROMPT, RUN, Ask, Go, Graph, main
from kairo_team.testing import FunctionModel

BUDGET = kt.Budget(tokens=100_000_000, dollars=1_000, loops=1_000_000)


@asynccontextmanager
async def prepare(graph: Graph, ask: Ask, folder: Path, way: str) -> AsyncGenerator[Go]:
    """Make a plan of one task a node, and a team of one member."""

    async def answer(request: kt.ModelRequest) -> str:
        text = request.messages[0].text
        return await ask(text.partition(" ")[0], text)

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        message = kt.Message.user(f"{assignment.task.id} {PROMPT}")
        return (await context.model("m:x").complete(kt.ModelRequest([message], max_tokens=1_000))).text

    async def go(again: bool) -> Sequence[str]:
        if again:
            result = await runtime.resume(RUN, team)
        else:
            result = await kt.run(team, request, runtime=runtime)
        return [outcome.task_id for outcome in result.check().outcomes if outcome.artifact is not None]

    plan = kt.TaskGraph([kt.Task(name, "Ask.", depends_on=list(needs)) for name, needs in graph.items()])
    team = kt.Team("askers", [kt.Member("asker", agent)])
    request = kt.TeamExecutionRequest("Ask.", plan=plan, config=kt.TeamConfig(budget=BUDGET), run_id=RUN)
    journal = None
    if way != "nothing recorded":
        journal = kt.SqliteJournal(folder / "runs.db", sync="normal" if way == 'sync="normal"' else "full")
    async with kt.Runtime(journal=journal, models={"m:x": FunctionModel(answer)}) as runtime:
        yield go
    if journal is not None:
        journal.close()


if __name__ == "__main__":
    main("kairo-team", prepare, ['sync="full"', 'sync="normal"', "nothing recorded"])
