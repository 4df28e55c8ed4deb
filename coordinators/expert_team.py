"""The expert team: plan, generate, evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.planners import RolePlanner
from kairo_team.coordinators.task_work import TaskWork
from kairo_team.errors import HaltError, PlanRefused, innermost, known
from kairo_team.evaluators import SimpleEvaluationStrategy
from kairo_team.prompts import Prompts
from kairo_team.tasks import Task, TaskGraph
from kairo_team.team import PlannerFailureMode
from kairo_team.team_run import TeamRun

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy, Planner
    from kairo_team.results import TeamResult
    from kairo_team.team import Team, TeamExecutionRequest


class ExpertTeamCoordinator:
    """Plans the request, has members generate, reviews every artifact and sends it back with findings.

    `planner` is asked when the request has no plan; None is `RolePlanner()`. When it fails the run fails too
    (`PlannerFailureMode.FAIL_FAST`), or one task takes the place of the plan and the run is DEGRADED at best
    (`SINGLE_TASK_FALLBACK`). `evaluator` reviews every task that
    names none of its own: a strategy or rubric, or the name of one of the team's; None checks that the artifact is not
    blank. `templates` replace the packaged prompt templates by name (see `kairo_team.prompts.TEMPLATES`).
    """

    def __init__(
        self,
        *,
        planner: Planner | None = None,
        evaluator: EvaluationStrategy | str | None = None,
        planner_failure_mode: PlannerFailureMode = PlannerFailureMode.FAIL_FAST,
        failure_policy: FailurePolicy = FailurePolicy(),
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self.planner: Planner = planner or RolePlanner()
        self.evaluator = evaluator if evaluator is not None else SimpleEvaluationStrategy()
        self.planner_failure_mode = PlannerFailureMode(planner_failure_mode)
        self.failure_policy = failure_policy
        self.templates = dict(templates or {})
        _check_has("planner", self.planner, "plan")
        if not isinstance(self.evaluator, str):
            _check_has("evaluator", self.evaluator, "evaluate")
        Prompts(self.templates)  # refuses unknown names

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph | None:
        """Return the plan it will run, if that is known without asking anybody.

        Raises `PlanRefused` for an evaluator the team does not have.
        """
        self._evaluator(team)
        if request.plan is not None:
            return request.plan
        preview = getattr(self.planner, "preview", None)
        return None if preview is None else cast("TaskGraph | None", preview(request, team))

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        async with TeamRun.open(request, team, templates=self.templates) as run:
            work = TaskWork(run, self.failure_policy, self._evaluator(team))
            graph = await self._plan(run)
            async for task in run.ready(graph):
                run.go(work.do, task)
        return run.result

    async def _plan(self, run: TeamRun) -> TaskGraph:
        """Plan the run; what keeps the planner from it is recorded, for a replay asks no planner."""
        plan, failures = run.request.plan, list[str]()
        if plan is not None:
            return await run.plan(lambda: plan)
        graph = await run.plan(lambda: self._ask_planner(run, failures))
        if self.planner_failure_mode is PlannerFailureMode.FAIL_FAST:
            return graph
        failure = await run.step("fallback:1", lambda: failures[0] if failures else "")
        if failure:
            run.degrade(f"planning failed, one task takes the place of the plan: {failure}")
        return graph

    async def _ask_planner(self, run: TeamRun, failures: list[str]) -> TaskGraph:
        try:
            return await self.planner.plan(run.request, run.team, run.context("plan"))
        except Exception as error:
            cause = innermost(error)
            if self.planner_failure_mode is PlannerFailureMode.FAIL_FAST or isinstance(cause, HaltError):
                raise
            failures.append(str(cause) or type(cause).__name__)
            return TaskGraph([Task("task", run.request.goal)])

    def _evaluator(self, team: Team) -> EvaluationStrategy:
        if not isinstance(self.evaluator, str):
            return self.evaluator
        if self.evaluator not in team.evaluators:
            raise PlanRefused([f"the evaluator {self.evaluator!r} is unknown; the team has {known(team.evaluators)}"])
        named: EvaluationStrategy = team.evaluators[self.evaluator]
        return named


def _check_has(what: str, plug_in: object, method: str) -> None:
    if not callable(getattr(plug_in, method, None)):
        raise ValueError(f"ExpertTeamCoordinator.{what} must have an async {method}(...), not {plug_in!r}")
