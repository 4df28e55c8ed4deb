"""Whether a team can start on a request, and how its budget would be split: found out without asking anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kairo_team.agents.alone import tell_nobody
from kairo_team.binding import bind, plan_problems, team_problems
from kairo_team.budget import Budget
from kairo_team.budget_tree import BudgetNode
from kairo_team.carving import EVALUATE, PLAN, Carving, Earlier, root_budget
from kairo_team.errors import InsufficientBudget, PlanRefused
from kairo_team.governance.governor import Governor
from kairo_team.governance.units import DIMENSIONS

if TYPE_CHECKING:
    from kairo_team.budget import BudgetPolicy
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.runtime import Runtime
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import Team, TeamExecutionRequest


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """What a run would meet before its first task; `str()` says it to people."""

    ok: bool
    """Nothing would be refused."""
    problems: tuple[str, ...] = ()
    """A sentence for each thing that would be refused."""
    split: BudgetNode | None = None
    """What would be set aside for each member, for planning and for reviews where these ask a model, and, if the plan
    is known, for each task when all of them are dispatched with nothing spent; `reserve` is what stays back for
    retries, seniors and top-ups. None when the members' budgets do not even add up."""
    carries: int | None = None
    """How many of the plan's tasks the budget can be expected to carry to their end, if each takes what
    `BudgetPolicy.expect` says; None when the plan is not known."""
    notes: tuple[str, ...] = ()
    """Sentences on what may surprise, such as a budget that is not expected to carry all tasks."""

    def __str__(self) -> str:
        lines = [f"cannot start: {problem}" for problem in self.problems] or ["can start"]
        return "\n".join([*lines, *([str(self.split)] if self.split else []), *self.notes])


def check_request(
    request: TeamExecutionRequest, team: Team, coordinator: TeamCoordinator, runtime: Runtime
) -> PlanCheck:
    """Bind the plan and split the budget as the run would; calls no agent, planner or model."""
    problems: list[str] = []
    plan: TaskGraph | None = request.plan
    preview = getattr(coordinator, "preview", None)
    if preview is not None:
        try:
            plan = preview(request, team)
        except PlanRefused as refused:
            problems += refused.problems
    preflight = getattr(coordinator, "preflight", None)
    if preflight is not None:
        problems += preflight(request, team)
    prices = runtime.prices.under(request.config.budget_policy)
    problems += team_problems(team, request.config, runtime.models, prices)
    bound: Mapping[str, tuple[str, ...]] = {} if plan is None else bind(plan, team)
    if plan is not None:
        problems += plan_problems(plan, team, bound)
    problems += _shortage(runtime, request)
    if problems:
        return PlanCheck(ok=False, problems=tuple(dict.fromkeys(problems)))
    judges = getattr(coordinator, "judges", None)
    return _split(request, team, plan, bound, judged=judges is not None and bool(judges(plan, team)))


def _shortage(runtime: Runtime, request: TeamExecutionRequest) -> list[str]:
    """Say what the runtime's budget lacks for this run."""
    if runtime.governor is None:
        return []
    left, asked = runtime.governor.unallotted, request.config.budget
    short = [
        f"the runtime's budget does not cover this run: {getattr(left, name)} {name} are left, {want} asked"
        for name in ("tokens", "dollars", "loops", "tool_calls")
        if (want := getattr(asked, name)) is not None and getattr(left, name) is not None and want > getattr(left, name)
    ]
    halt = runtime.governor.halted
    return short if halt is None else [*short, f"the runtime's budget is halted: {halt.value}"]


def _split(
    request: TeamExecutionRequest,
    team: Team,
    plan: TaskGraph | None,
    bound: Mapping[str, tuple[str, ...]],
    *,
    judged: bool,
) -> PlanCheck:
    policy, root_limit = request.config.budget_policy, root_budget(request.config)
    carving = _carve_team(root_limit, policy, team, planned=plan is not None, judged=judged)
    problems = () if plan is None else _carve_tasks(carving, policy, plan, bound)
    carving.hold_back(policy.reserve)
    carries: int | None = None
    notes: tuple[str, ...] = ()
    if plan is not None and not problems:
        anew = _carve_team(root_limit, policy, team, planned=True, judged=judged)
        carries, notes = _count_carried(anew, policy, plan, bound)
    return PlanCheck(not problems, problems, carving.root.tree(), carries, notes)


def _carve_team(limit: Budget, policy: BudgetPolicy, team: Team, *, planned: bool, judged: bool) -> Carving:
    """Carve what is set aside before the first task."""
    carving = Carving(Governor(limit, name=team.name, clock=_at_rest), policy, tell_nobody)
    carving.set_aside(team, Earlier(carving.root, None))
    for purpose, wired in ((PLAN, not planned), (EVALUATE, judged)):
        if wired:
            carving.purpose(purpose)
    return carving


def _count_carried(
    carving: Carving, policy: BudgetPolicy, plan: TaskGraph, bound: Mapping[str, tuple[str, ...]]
) -> tuple[int, tuple[str, ...]]:
    """Return how many tasks get to their end if each takes what is expected, and say so if these are not all."""
    carried, scarce = 0, ""
    for task in plan.tasks:
        expected = policy.expect if task.budget is None else _least(policy.expect, task.budget)
        try:
            carving.members[bound[task.id][0]].carve(task.id, guarantee=expected)
            carried += 1
        except InsufficientBudget as short:
            scarce = scarce or short.dimension
    if not scarce:
        return carried, ()
    amount = getattr(policy.expect, scarce)
    takes = f"${amount}" if scarce == "dollars" else f"{amount:,} {scarce.replace('_', ' ')}"
    note = f"the budget can be expected to carry {carried} of {len(plan.tasks)} tasks, if each takes {takes}"
    return carried, (f"{note} (BudgetPolicy.expect); once one has ended, what it took counts instead",)


def _least(one: Budget, other: Budget) -> Budget:
    """Return the lower of two limits, in each dimension."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in DIMENSIONS)
    return Budget(*(mine if its is None or (mine is not None and mine < its) else its for mine, its in pairs))


def _carve_tasks(
    carving: Carving, policy: BudgetPolicy, plan: TaskGraph, bound: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Carve for all tasks as if they were dispatched one after another; say so if not one could be paid for."""
    weight = sum(task.weight for task in plan.tasks)
    paid, lacking = 0, ""
    for task in plan.tasks:
        try:
            carving.members[bound[task.id][0]].carve_share(task.id, task.budget, task.weight / weight, policy.reserve)
            paid += 1
        except InsufficientBudget as short:
            lacking = lacking or f"task {task.id!r}: {short}"
        weight -= task.weight
    return () if paid else (f"no task can get its share of the budget; {lacking}",)


def _at_rest() -> float:
    """Tell the time of a clock that stands: no second of the budget passes while it is split."""
    return 0.0
