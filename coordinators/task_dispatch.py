"""The task board: run a plan, and review only tasks that name an evaluator."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import known_arguments
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.review_rounds import ReviewRounds
from kairo_team.coordinators.reviewers import Reviewers
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.prompts import Prompts
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.results import TeamResult
    from kairo_team.team import Team, TeamExecutionRequest


@known_arguments
class TaskDispatchCoordinator:
    """Runs the request's plan as a task board, or one task with its goal.

    A task is reviewed only if it names an evaluator. Failed attempts go through the failure policy. A task that is out
    of tries is FAILED and its dependents are SKIPPED; the other branches finish and the run is DEGRADED. `templates`
    replace prompt templates by name (see `kairo_team.prompts.TEMPLATES`), before the runtime's.
    """

    def __init__(
        self, *, failure_policy: FailurePolicy = FailurePolicy(), templates: Mapping[str, str] | None = None
    ) -> None:
        Prompts(templates)  # raises for templates that cannot be filled in
        self.failure_policy = failure_policy
        self.templates = dict(templates or {})

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that a run would use."""
        return request.plan or TaskGraph([Task("task", request.goal)])

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return what keeps a task of the plan from being reviewed."""
        return Reviewers(team).problems(self.preview(request, team), request.config)

    def judges(self, plan: TaskGraph | None, team: Team) -> tuple[Any, ...]:
        """Return the models and agents that reviews of a plan call."""
        return Reviewers(team).models(plan)

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        async with TeamRun.open(request, team, tolerate_failures=True, templates=self.templates) as run:
            graph = await run.plan(self.preview(request, team))
            reviewers = Reviewers(run.team)
            reviewers.check(run, graph)

            def work(task: Task) -> Awaitable[None]:
                return ReviewRounds(run, task, reviewers.of(task), self.failure_policy).finish()

            async for task in run.ready(graph):
                run.go(work, task)
        return run.result
