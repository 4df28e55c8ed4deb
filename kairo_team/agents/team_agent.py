"""`TeamAgent`: a whole team as a member of another team."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team.api import run
from kairo_team.artifacts import Artifact
from kairo_team.engine.plan.preflight import file_problems, plan_problems
from kairo_team.errors import TeamFailed
from kairo_team.plugins import resolve
from kairo_team.results import AgentOutput, TeamStatus
from kairo_team.tasks import TaskGraph
from kairo_team.team import Role, Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.contracts import MemberContext, Models, TeamCoordinator
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.files import File
    from kairo_team.results import TeamResult
    from kairo_team.tasks import Assignment


@known_arguments
class TeamAgent:
    """Run a team for each task, as a separate run inside the attempt.

    The inner run's budget is carved from the attempt's: its usage counts for the outer member, task and team, and their
    halts, deadlines and kills end the inner run. The inner run shares the runtime of the outer run - models, prices,
    limits, subscribers, the gate - and has a run id of its own for its events, `<outer run id>.<task id>.<8 hex>`. Its
    goal is the task's description; its context is the outer goal, context, inputs, upstream artifacts and findings.
    `plan` is run without planning; `config` is the inner run's, with at most the outer run's `cancel_grace`.

    The rules of the outer team and member apply inside too, before the inner rules: permissions, the role's allowed
    tools, guardrails, an MCP policy if one is set, and constraints, for which the inner model calls are turns.

    A DEGRADED run returns its output as a partial artifact. Without an output, and at any other end without completion,
    the attempt fails with `TeamFailed`, and its partial artifact is what was accepted until then. A SUSPENDED run
    suspends the outer task: its questions are the outer run's too, and resuming the outer run resumes it.
    """

    reentrant = True
    own_loop = True
    takes_tools = False

    def __init__(
        self,
        team: Team,
        *,
        coordinator: TeamCoordinator | str | None = None,
        plan: TaskGraph | None = None,
        config: TeamConfig = TeamConfig(),
    ) -> None:
        if not isinstance(team, Team):
            raise ValueError(f"TeamAgent takes a Team, such as kt.Team('readers', [kt.Member(...)]), not {team!r:.80}")
        check_kind("TeamAgent: plan", plan, TaskGraph, or_none=True)
        check_kind(f"{type(self).__name__}: config", config, TeamConfig)
        self.team = team
        self.coordinator: TeamCoordinator | None = None
        if coordinator is not None:
            self.coordinator = resolve(f"{type(self).__name__}: coordinator", "coordinator", coordinator)
        self.plan = plan
        self.config = config

    def preflight(self, role: Role, models: Models, budget: Budget) -> list[str]:
        """Return why the inner team could not start: its plan, its members' models, or a runtime of its own."""
        if self.team.runtime is not None and self.team.runtime.models is not models:
            return [f"team {self.team.name!r} uses the runtime of the team around it: build it without runtime="]
        plan = self.plan
        problems = [] if plan is None else plan_problems(plan.tasks, self.team)
        for member in self.team.everyone:
            ask: Any = getattr(member.agent, "preflight", None)
            found: list[str] = [] if ask is None else ask(member.role, models, budget)
            problems += [f"member {member.id!r}: {problem}" for problem in found]
        return [f"in team {self.team.name!r}: {problem}" for problem in problems]

    def file_problem(self, file: File, models: Models) -> str | None:
        """Return why a member of the inner team cannot be given a file; None if each can."""
        problems = file_problems(None if self.plan is None else self.plan.tasks, [file], self.team, models)
        return f"in team {self.team.name!r}: {problems[0]}" if problems else None

    async def run(
        self, assignment: Assignment | str, context: MemberContext | None = None, *, budget: Budget | None = None
    ) -> AgentOutput:
        """Do a task; raises `TeamFailed` when the inner run does not complete. Alone: `run("goal", budget=...)`.

        Raises `HaltError` when the reason is the attempt's budget.
        """
        request = self.request_for(assignment, context)
        runtime = context.runtime if context is not None else None
        team = self.team_for(context)
        team = team if runtime is None else replace(team, runtime=runtime)
        result = await self._execute(team, request, budget)
        made = result.output or result.partial_output
        if context is not None and made is not None:
            context.keep(made)
        if context is not None and runtime is not None and result.status is TeamStatus.SUSPENDED:
            for question in runtime.pending(request.run_id)[:1]:  # one is enough: the attempt ends with it
                await context.put_off(question)
        if context is not None and result.status is TeamStatus.FAILED:
            context.governor.can_proceed()  # raises the halt if the budget around it is used up
        return self.output_of(result)

    async def _execute(self, team: Team, request: TeamExecutionRequest, budget: Budget | None) -> TeamResult:
        """Begin the inner run, or resume it: the attempt is repeated once one of its questions has an answer."""
        if team.runtime is not None and request.run_id in team.runtime.runs:
            runtime: Runtime = team.runtime
            return await runtime.resume(request.run_id, team, coordinator=self.coordinator)
        return await run(team, request, budget=budget, coordinator=self.coordinator)

    def request_for(self, assignment: Assignment | str, context: MemberContext | None) -> TeamExecutionRequest:
        """Return the request of the inner run."""
        if isinstance(assignment, str):
            return TeamExecutionRequest(assignment, plan=self.plan, config=self.config)
        goal, inputs = assignment.task.description, _inputs(assignment)
        if context is None:
            return TeamExecutionRequest(goal, inputs, self.plan, self.config, files=assignment.all_files)
        run_id = context.name_inner_run(self.team.name, goal)
        return TeamExecutionRequest(goal, inputs, self.plan, self.config, run_id, assignment.all_files)

    def team_for(self, context: MemberContext | None) -> Team:
        """Return the team that does a task in a context."""
        return self.team

    def output_of(self, result: TeamResult) -> AgentOutput:
        """Return the output of an inner run; raises `TeamFailed` when it did not complete."""
        artifact, error = result.artifact, None
        if result.status is TeamStatus.DEGRADED and artifact is not None:
            artifact = replace(artifact, partial=True)
            error = ": ".join([f"the run of team {self.team.name!r} is degraded", *result.warnings[:1]])
        elif result.status is not TeamStatus.COMPLETED:
            raise TeamFailed(result) from result.exception
        return output_with(result, artifact or Artifact(""), error)

    def __repr__(self) -> str:
        return f"TeamAgent({self.team.name!r})"


def _inputs(assignment: Assignment) -> dict[str, Any]:
    """Return the inputs that the inner team receives in addition to its goal."""
    inputs: dict[str, Any] = {"goal": assignment.goal, **assignment.context, **assignment.inputs}
    if assignment.upstream:
        inputs["results"] = {task_id: artifact.text for task_id, artifact in assignment.upstream.items()}
    if assignment.previous is not None:
        inputs["previous"] = assignment.previous.text
        wrong = [one for one in assignment.findings if not one.is_right]
        inputs["findings"] = [
            {"observed": one.observed, "expected": one.expected} | ({"recheck": one.recheck} if one.recheck else {})
            for one in wrong
        ]
        right = [one.expected or one.id for one in assignment.findings if one.is_right]
        right += assignment.met
        inputs |= {"leave unchanged": right} if right else {}
    if assignment.done:
        inputs["done by an earlier attempt"] = [[one.tool, one.arguments, one.result] for one in assignment.done]
    if assignment.directives:
        inputs["directives"] = list(assignment.directives)
    return inputs


def output_with(result: TeamResult, artifact: Artifact, error: str | None = None) -> AgentOutput:
    """Return an artifact with the usage of the inner run that made it."""
    usage = result.usage
    return AgentOutput(
        artifact,
        turns_completed=usage.loops,
        tool_calls_executed=usage.tool_calls,
        usage=usage,
        error=error,
    )
