"""The expert team: plan, generate, evaluate."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, cast

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team._util.plugin_shapes import check_plug_in
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.coordinators.planners import PlanMaker, RolePlanner
from kairo_team.coordinators.review_rounds import ReviewRounds
from kairo_team.coordinators.reviewers import Reviewers, ReviewingCoordinator, default_evaluator
from kairo_team.engine.plan.preflight import planner_problems
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.engine.work.runtime import runtime_of
from kairo_team.errors import PlanRefused
from kairo_team.tasks import Task, TaskGraph
from kairo_team.team import PlannerFailureMode, Team, TeamExecutionRequest

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy, HumanGate, Planner
    from kairo_team.results import TeamResult


@known_arguments
class ExpertTeamCoordinator(ReviewingCoordinator):
    """Plans the request, has members generate, reviews every artifact and sends it back with findings.

    `planner` makes the plan if the request has none; None is `RolePlanner()`. If it fails, the run fails too
    (`PlannerFailureMode.FAIL_FAST`), or one task replaces the plan and the run is DEGRADED at best
    (`SINGLE_TASK_FALLBACK`). With `plan_approval` a person approves the plan before any work starts.

    `evaluator` reviews every task that names none of its own: a strategy or rubric, or the name of one of the team's.
    None checks that the artifact is not blank, and with a judge that it does what its task asks. `judge`, a model or an
    agent, answers the criteria `by="judge"` of every rubric. A criterion without its judge or gate is refused before
    work starts; so is, under HIGH risk, a review that checks for blankness alone.

    `gate` asks people; None takes the runtime's, if it has one. With `replan` the planner may once replace the tasks
    that have not started, when a task is about to fail; that plan is checked like the first, but needs no approval.
    `templates` replace prompt templates by name (see `kairo_team.prompts.TEMPLATES`), before the runtime's.
    """

    def __init__(
        self,
        *,
        planner: Planner | None = None,
        evaluator: EvaluationStrategy | str | None = None,
        judge: str | ChatModel | Agent | None = None,
        gate: HumanGate | None = None,
        planner_failure_mode: PlannerFailureMode = PlannerFailureMode.FAIL_FAST,
        plan_approval: bool = False,
        failure_policy: FailurePolicy = FailurePolicy(),
        replan: bool = False,
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self.planner: Planner = planner or RolePlanner()
        self.planner_failure_mode = PlannerFailureMode(planner_failure_mode)
        self.plan_approval = plan_approval
        self.replan = replan
        chosen = evaluator if evaluator is not None else default_evaluator(judge)
        self._take(chosen, judge, gate, failure_policy, templates)
        where = "ExpertTeamCoordinator.planner"
        check_plug_in(where, "a planner", self.planner, "plan", "request", "team", "context")
        for name in ("plan_approval", "replan"):
            check_kind(f"ExpertTeamCoordinator.{name}", getattr(self, name), bool)
        if replan and planner is None:
            raise ValueError("replan=True needs a planner= that can plan again, such as AgentPlanner(model)")

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph | None:
        """Return the plan that a run would use, if it is known without calling a model.

        Raises `PlanRefused` for an evaluator the team does not have, and for an approval without a gate.
        """
        self._reviewers(team)
        self._check_gate(team)
        return self._known_plan(request, team)

    def _known_plan(self, request: TeamExecutionRequest, team: Team) -> TaskGraph | None:
        if request.plan is not None:
            return request.plan
        preview = getattr(self.planner, "preview", None)
        return None if preview is None else cast("TaskGraph | None", preview(request, team))

    def preflight(self, request: TeamExecutionRequest, team: Team) -> list[str]:
        """Return why its planner could not be called, and what keeps a known plan from being reviewed."""
        return self._problems(request, team, self._reviewers(team), self.preview(request, team))

    def _problems(
        self, request: TeamExecutionRequest, team: Team, reviewers: Reviewers, plan: TaskGraph | None
    ) -> list[str]:
        problems: list[str] = []
        if request.plan is None or self.replan:  # else the planner is never called
            problems += planner_problems(self.planner, request.config, runtime_of(team))
        return problems + reviewers.problems(plan, request.config)

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        async with TeamRun.open(request, team, templates=self.templates, gate=self.gate) as run:
            team = run.team
            reviewers = self._reviewers(team)
            self._check_gate(team)
            known = self._known_plan(request, team)
            problems = self._problems(request, team, reviewers, known)  # again, because a run may begin without `check`
            if problems:
                raise PlanRefused(problems)
            making = PlanMaker(run, self.planner, self.planner_failure_mode, known)
            graph = await (making.plan_until_approved() if self.plan_approval else making.plan())
            reviewers.check(run, graph)  # only now are the evaluators of all tasks known
            replan = making.replan if self.replan else None

            def work(task: Task) -> Awaitable[None]:
                return ReviewRounds(run, task, reviewers.of(task), self.failure_policy, replan=replan).finish()

            async for task in run.ready(graph):
                run.go(work, task)
        return run.result

    def _check_gate(self, team: Team) -> None:
        runtime: Any = team.runtime
        if self.plan_approval and self.gate is None and (runtime is None or runtime.gate is None):
            problem = "plan_approval=True without a human gate: give the coordinator or the Runtime a gate=, such as"
            raise PlanRefused([f"{problem} kt.ConsoleGate()"])
