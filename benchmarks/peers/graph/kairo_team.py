"""kairo-team: a task board with every limit set; leases and recorded steps are always on."""

from __future__ import annotations

import kairo_team as kt
from benchmarks.peers.graph.experiment import Graph, Run, Work, main
from kairo_team.coordinators import TaskDispatchCoordinator

BUDGET = kt.Budget(tokens=10_000_000, dollars=1_000, loops=1_000_000)


def build(graph: Graph, work: Work) -> Run:
    """Make a plan of one task a name, and a team of one member."""

    async def agent(assignment: kt.Assignment) -> str:
        await work(assignment.task.id)
        return "done"

    team = kt.Team("workers", [kt.Member("worker", agent)])
    plan = kt.TaskGraph([kt.Task(name, "Work.", depends_on=list(needs)) for name, needs in graph.items()])

    async def run() -> None:
        request = kt.TeamExecutionRequest("Work.", plan=plan, config=kt.TeamConfig(budget=BUDGET))
        (await TaskDispatchCoordinator().execute(request, team)).check()

    return run


if __name__ == "__main__":
    main("kairo-team", build)
