"""`kairo graph`: find the plan a run would follow; no agent or model is called."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.cli.refusal import Refusal, explain
from kairo_team.engine.plan.preflight import bind, plan_problems
from kairo_team.engine.work.run_arguments import pick_coordinator
from kairo_team.errors import PlanRefused
from kairo_team.tasks import TaskGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.cli.job import Job

_MOST_PROBLEMS: Final = 3


def known_plan(job: Job) -> TaskGraph:
    """Return the plan that the job's run would follow; `Refusal` if only a planner knows it, or no member can do it."""
    plan = _preview(job)
    if plan is None:
        raise Refusal(
            f"the plan of team {job.team.name!r} is known only once its planner was asked, which kairo graph does not "
            "do: let the file build a `plan` (kt.TaskGraph), or a `request` with one"
        )
    if not isinstance(plan, TaskGraph):
        raise Refusal(f"the coordinator's preview must return a TaskGraph or None, not {plan!r:.80}")
    problems = plan_problems(plan, job.team, bind(plan, job.team))
    if problems:
        raise Refusal(f"the plan cannot be carried out: {_listed(problems)}")
    return plan


def _preview(job: Job) -> Any:
    """Return the plan that the coordinator would run, if it is known; else the request's plan, which may be None."""
    team, request = replace(job.team, runtime=None), job.request
    # First, as in `kairo check`: the coordinator need not follow the request's plan.
    coordinator = pick_coordinator(team, request, job.coordinator)
    preview = getattr(coordinator, "preview", None)
    try:
        plan = None if preview is None else preview(request, team)
    except PlanRefused as refused:
        raise Refusal(f"the plan cannot be carried out: {_listed(refused.problems)}") from None
    except Exception as error:
        raise Refusal(f"the plan cannot be previewed: {explain(error)}") from error
    return request.plan if plan is None else plan


def _listed(problems: Sequence[str]) -> str:
    left_out = len(problems) - _MOST_PROBLEMS
    listed = "; ".join(problems[:_MOST_PROBLEMS])
    return f"{listed}; and {left_out:,} more, which kairo check lists" if left_out > 0 else listed
