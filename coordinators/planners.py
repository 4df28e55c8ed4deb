"""Plans of the expert team: `RolePlanner`, and how a plan is made, approved by a person, and replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import trusted
from kairo_team.budget import left_of
from kairo_team.engine.plan.preflight import plan_problems
from kairo_team.errors import ContractBreach, HaltError, PlanRefused, PlanRejected, innermost
from kairo_team.human import HumanRequest
from kairo_team.plugin_calls import AWAITED_CALL, shown, words_of
from kairo_team.tasks import Task, TaskGraph
from kairo_team.team import PlannerFailureMode, Team, TeamExecutionRequest

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext, Planner
    from kairo_team.engine.run.team_run import TeamRun


class RolePlanner:
    """One task per role, in the team's order, each after the one before; the goal is every task's description."""

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Return the plan without calling a model."""
        return self.preview(request, team)

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that `plan` will return."""
        roles = dict.fromkeys(member.role.id for member in team.members)
        tasks: list[Task] = []
        for role in roles:
            before = (tasks[-1].id,) if tasks else ()
            # Unchecked, because the parts are of a checked team: `kt.run` without a plan comes here each time.
            tasks.append(trusted(Task)(role, request.goal, role=role, depends_on=before))
        return trusted(TaskGraph)(tuple(tasks))


class PlanMaker:
    """Makes the plans of one run."""

    def __init__(
        self, run: TeamRun, planner: Planner, failure_mode: PlannerFailureMode, known: TaskGraph | None = None
    ) -> None:
        """Take the run, and the plan of the request or the planner, if it is known.

        If another plan may replace it, the planner is called nevertheless.
        """
        self._run = run
        fail_fast = failure_mode is PlannerFailureMode.FAIL_FAST
        self._known = known if fail_fast or run.request.plan is not None else None
        self._planner = planner
        self._failure_mode = failure_mode
        self._number = 0

    async def plan(self, **more: Any) -> TaskGraph:
        """Take the known plan, or have one made; `more` is added to the context that the planner reads."""
        run, failures = self._run, list[str]()
        self._number += 1
        given = run.request.plan if more else self._known  # with `more` the first plan was sent back
        if given is not None:
            return await run.plan(given)
        request = replace(run.request, context={**run.request.context, **more}) if more else run.request
        graph = await run.plan(lambda: self._ask(request, failures))
        if self._failure_mode is PlannerFailureMode.FAIL_FAST:
            return graph
        # The failure is recorded, since a replay does not call the planner.
        failure = await run.step(f"fallback:{self._number}", lambda: failures[0] if failures else "")
        if failure:
            run.degrade(f"planning failed, one task replaces the plan: {failure}")
        return graph

    async def plan_until_approved(self) -> TaskGraph:
        """Have the plan approved by a person, who may request revisions; raise `PlanRejected` if it is not approved."""
        run, graph = self._run, await self.plan()
        sent_back, most = 0, self._run.config.max_human_rounds
        while True:
            text, left = f"May {run.team.name!r} work by this plan?", most - sent_back
            consequences = self._consequences(left)
            decision = await run.ask(HumanRequest("plan", text, show_plan(graph), consequences=consequences))
            if decision is None:
                raise PlanRejected("no person approved the plan, and no work starts without approval")
            if decision.action == "approve":
                return graph
            if decision.action == "reject":
                raise PlanRejected(f"a person rejected the plan: {decision.feedback or 'no reason was given'}")
            if run.request.plan is not None:
                raise PlanRejected(
                    f"a person wants another plan ({decision.feedback}), and this one was given with the request: "
                    "change it and begin a new run"
                )
            if not left:
                raise PlanRejected(
                    f"a person wants another plan ({decision.feedback}), and {most} were made already "
                    "(TeamConfig.max_human_rounds): change the goal, or give the plan with the request"
                )
            sent_back += 1
            graph = await self.plan(previous_plan=show_plan(graph), wanted_of_the_plan=decision.feedback)

    def _consequences(self, left: int) -> Mapping[str, str]:
        """Return what follows from each answer, with so many revisions left."""
        given = self._run.request.plan is not None
        ends = "the run fails, and nothing is started"
        return {
            "approve": "the work begins",
            "revise": ends if given or not left else f"another plan is made from your words (revisions left: {left})",
            "reject": ends,
            "silence": ends,
        }

    async def replan(self, failing: Task, error: str) -> bool:
        """Have the planner replace the tasks that have not started, as one is about to fail; return whether it did."""
        return await self._run.replan(failing, lambda kept: self._ask_for_rest(kept, failing, error)) is not None

    async def _ask(self, request: TeamExecutionRequest, failures: list[str]) -> TaskGraph:
        run = self._run
        fail_fast = self._failure_mode is PlannerFailureMode.FAIL_FAST
        try:
            with AWAITED_CALL:
                graph = await self._planner.plan(request, run.team, run.context("plan"))
            if fail_fast:
                return graph
            # Checked here, where an invalid plan can still be replaced; else the run checks it.
            made: Any = graph
            if not isinstance(made, TaskGraph):
                raise ContractBreach(f"the planner returned {shown(graph)}, not a TaskGraph")
            problems = plan_problems(graph.tasks, run.team)
            if problems:
                raise PlanRefused(problems)
            return graph
        except Exception as error:
            cause = innermost(error)
            if fail_fast or isinstance(cause, HaltError):
                raise
            failures.append(words_of(cause))  # a list: the function that asks runs inside the recorded step
            return TaskGraph([Task("task", run.request.goal)])

    async def _ask_for_rest(self, kept: TaskGraph, failing: Task, error: str) -> TaskGraph:
        run = self._run
        context: Mapping[str, Any] = {**run.request.context, "failed": {failing.id: error}}
        work = run.context("plan")
        left = await work.recorded("left", lambda: left_of(run.governor.budget, run.governor.usage))
        request = replace(run.request, plan=kept, context=context, config=replace(run.config, budget=left))
        return await self._planner.plan(request, run.team, work)


def show_plan(graph: TaskGraph) -> str:
    """Write a plan for a person: a line for each task, in plan order."""
    lines: list[str] = []
    for task in graph.tasks:
        who = task.member or task.role or ", ".join(sorted(task.requires)) or "anybody"
        after = f" after {', '.join(task.depends_on)}" if task.depends_on else ""
        lines.append(f"{task.id} ({who}){after}: {task.description}")
    return "\n".join(lines)
