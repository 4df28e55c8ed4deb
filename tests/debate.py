"""A coordinator whose every task is reviewed and accepted, whatever the verdict: shared by two test files."""

from __future__ import annotations

import kairo_team as kt
from kairo_team.evaluators import SimpleEvaluationStrategy


class Debate:
    """Two argue, one decides."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(
                lambda: kt.TaskGraph(
                    [
                        kt.Task("pro", "Argue for.", member="a"),
                        kt.Task("con", "Argue against.", member="b"),
                        kt.Task("vote", "Decide.", member="c", depends_on=["pro", "con"]),
                    ]
                )
            )
            async for task in run.ready(graph):
                run.go(self.one, run, task)
        return run.result

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error:
            run.fail(task, attempt.error)
            return
        verdict = await run.review(task, attempt, SimpleEvaluationStrategy())
        run.accept(task, attempt, verdict)
