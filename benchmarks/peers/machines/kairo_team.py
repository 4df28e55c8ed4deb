"""kairo-team: a task a lane, whose member makes five calls; two workers on one database, and a run with a budget."""

from __future__ import annotations

import os
import time
from typing import Any, Final, cast

import anyio
from anyio.to_thread import run_sync

import kairo_team as kt
from benchmarks.peers.machines.job import AT_ONCE, LANES, STEPS, WORKER, Place, main, ready, step
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.cluster.service import WorkerService
from kairo_team.recorded import ENDED
from kairo_team.testing import FunctionModel

BUDGET: Final = kt.Budget(tokens=20_000)
RUN: Final = "lanes"


async def _answer(request: kt.ModelRequest) -> str:
    lane, number = request.messages[-1].text.split()
    return await run_sync(step, lane, int(number))


async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Make the calls of a lane."""
    answers: list[str] = []
    for number in range(STEPS):
        request = kt.ModelRequest([kt.Message.user(f"{assignment.task.id} {number}")], max_tokens=50)
        answers.append((await context.model("m:x").complete(request)).text)
    return " ".join(answers)


def desk() -> kt.Team:
    """Return the team, as every process has it."""
    return kt.Team("desk", [kt.Member("clerk", clerk)], runtime=kt.Runtime(models={"m:x": FunctionModel(_answer)}))


def _cluster(place: Place) -> Cluster:
    return Cluster(place.backend, engine=cast("EngineName", place.way))


def work(place: Place) -> None:
    """Be a worker; one that was declared dead begins anew, as that of `kairo worker` does."""

    def tell(line: str) -> None:
        if line.startswith("ready"):
            ready()

    service = WorkerService(lambda: _cluster(place), desk(), concurrency=AT_ONCE, drain=1, tell=tell)
    anyio.run(service.run)


def do(place: Place) -> dict[str, Any]:
    """Submit the run, and wait for its end: workers coordinate it."""
    cluster = _cluster(place)
    plan = kt.TaskGraph([kt.Task(lane, "Ask.", member="clerk") for lane in LANES])
    request = kt.TeamExecutionRequest("Ask.", plan=plan, config=kt.TeamConfig(budget=BUDGET), run_id=RUN)
    cluster.submit(desk(), request)
    journal = cluster.journal
    while (run := journal.show(RUN)).state not in ENDED:
        time.sleep(0.1)
    calls = journal.calls(RUN)
    listed = sum(call.state == "unknown" for call in calls) + len(journal.in_doubt(RUN))
    result = journal.result(RUN)
    answers = " ".join(str(one.artifact.text) for one in result.outcomes if one.artifact) if result else ""
    cluster.close()
    return {
        "answers": len(answers.split()),
        "state": run.state,
        "listed": listed,
        "recorded": len(calls),
        "tokens": run.usage.tokens,
    }


if __name__ == "__main__":
    os.environ.setdefault(WORKER, "w")
    main("kairo-team", work, do)
