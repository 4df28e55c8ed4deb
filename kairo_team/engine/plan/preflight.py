"""Who can do which task, and why a plan or a team cannot start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.narrowing import is_tuple
from kairo_team._util.plugin_shapes import context_by
from kairo_team.budget import Budget, BudgetNode, BudgetPolicy
from kairo_team.engine.live.event_bus import discard_event
from kairo_team.engine.live.function_agent import FunctionAgent
from kairo_team.engine.plan.grown_tasks import most_tasks, templates, worst_case
from kairo_team.engine.records.digests import why_not_frozen
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.records.suspension import EarlierSessions
from kairo_team.engine.tasks.member_budgets import EVALUATE, PLAN, BudgetSplit
from kairo_team.errors import InsufficientBudget, KairoError, PlanRefused, known
from kairo_team.files import File, unique
from kairo_team.governance.governor import Governor
from kairo_team.governance.guardrails import GuardrailChain
from kairo_team.governance.ledger import DIMENSIONS
from kairo_team.models.resolver import single_models
from kairo_team.output_types import output_type_problem
from kairo_team.tasks import Task, TaskGraph, done_by_members, exact_weight
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest, root_budget
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.sources import blocked_sources

if TYPE_CHECKING:
    from kairo_team.conditions import Condition
    from kairo_team.contracts import ChatModel, Models, Planner, TeamCoordinator
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.governance.pricing import PriceBook


def able_members(task: Task, team: Team) -> tuple[str, ...]:
    """Return the names of the members that may do a task: its `member`, else its `role`, and what it `requires`."""
    return tuple(member.id for member in team.members if _is_able(task, member))


def _is_able(task: Task, member: Member) -> bool:
    if task.member is not None and member.name != task.member:
        return False
    if task.role is not None and member.role.id != task.role:
        return False
    return not task.requires or set(task.requires) <= set(member.role.capabilities)


def bind(tasks: Sequence[Task], team: Team) -> dict[str, tuple[str, ...]]:
    """Find who may do each task, by task id, in time linear in tasks and members."""
    return binding(team)(tasks)


def binding(team: Team) -> Callable[[Sequence[Task]], dict[str, tuple[str, ...]]]:
    """Return a function that finds who may do each of some tasks, by task id; it may be called often.

    Equal requests are looked up once; members are found by name or by role.
    """
    found: dict[object, tuple[str, ...]] = {}
    named = {member.id: [member] for member in team.members}
    in_role: dict[str, list[Member]] = {}
    for member in team.members:
        in_role.setdefault(member.role.id, []).append(member)

    def bind_these(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
        bound: dict[str, tuple[str, ...]] = {}
        for task in tasks:
            if task.loop is not None:  # the tasks of its body have members
                bound[task.id] = ()
                continue
            need = (task.member, task.role, task.requires)
            if need not in found:
                among: Sequence[Member] = team.members if task.role is None else in_role.get(task.role, ())
                among = among if task.member is None else named.get(task.member, ())
                found[need] = tuple(member.id for member in among if _is_able(task, member))
            bound[task.id] = found[need]
        return bound

    return bind_these


def plan_problems(tasks: Sequence[Task], team: Team, bound: Mapping[str, tuple[str, ...]] | None = None) -> list[str]:
    """Return one sentence for each task that no member can do, or that names something the team does not have.

    `bound` is what `bind` returns, if that is known.
    """
    problems: list[str] = []
    bound = bind(tasks, team) if bound is None else bound
    for task in tasks:
        if task.evaluator is not None or task.output_type is not None or not bound[task.id]:
            problems += _task_problems(task, team, bound[task.id])
        if task.when is not None:
            problems += _condition_problems(f"task {task.id!r}", task.condition, team)
        if task.loop is not None:
            problems += _condition_problems(f"the loop {task.id!r}", task.loop.end, team)
            problems += [f"in the loop {task.id!r}: {one}" for one in plan_problems(task.loop.body, team)]
    return problems


def _condition_problems(where: str, condition: Condition | None, team: Team) -> Iterator[str]:
    if condition is not None and condition.test == "holds" and condition.value not in team.conditions:
        yield f"{where} asks the condition {condition.value!r}; the team has {known(team.conditions)}"


def _task_problems(task: Task, team: Team, able: tuple[str, ...]) -> Iterator[str]:
    if task.evaluator is not None and task.evaluator not in team.evaluators:
        yield _unknown_name(task, "evaluator", task.evaluator, "evaluators", team.evaluators)
    if task.output_type is not None and not isinstance(task.output_type, str):
        problem = output_type_problem(f"the output type of task {task.id!r}", task.output_type)
        yield from () if problem is None else (problem,)
    elif task.output_type is not None and task.output_type not in team.output_types:
        yield _unknown_name(task, "output type", task.output_type, "output_types", team.output_types)
    if not able and task.loop is None:
        yield f"task {task.id!r} needs {_need(task)}, which no member offers; the team has {_offered_by_members(team)}"


def _unknown_name(task: Task, kind: str, name: str, field: str, there: Iterable[str]) -> str:
    has = known(there)
    return f"task {task.id!r} names the {kind} {name!r}; the team has {has}: name one it has, or add it to Team.{field}"


def _need(task: Task) -> str:
    needs: list[str] = []
    if task.member is not None:
        needs.append(f"the member {task.member!r}")
    if task.role is not None:
        needs.append(f"the role {task.role!r}")
    if task.requires:
        needs.append(f"the capabilities {known(task.requires)}")
    return " with ".join(needs)


def _offered_by_members(team: Team) -> str:
    offers: list[str] = []
    for member in team.members[:_MOST_OFFERS]:
        skills = f" able to do {known(member.role.capabilities)}" if member.role.capabilities else ""
        role = f" (role {member.role.id!r})" if member.name != member.role.id else ""
        offers.append(f"{member.id!r}{role}{skills}")
    more = len(team.members) - _MOST_OFFERS
    return ", ".join(offers) + (f" and {more} more members" if more > 0 else "")


_MOST_OFFERS: Final = 30
"""How many members a message describes."""


def team_problems(team: Team, config: TeamConfig, models: Models, prices: PriceBook) -> list[str]:
    """Return one sentence for each reason the team cannot start, such as budgets that do not add up.

    Other reasons are an unavailable model, and a model without a price under a limit in dollars.
    """
    problems = list(_budget_problems(team, config.budget))
    for member in team.everyone:
        if _ceiling(member, config.budget).dollars is not None:
            problems += [f"member {member.id!r}: {problem}" for problem in _unpriced(member.agent, models, prices)]
    problems += [
        problem
        for name, kind in team.output_types.items()
        if (problem := output_type_problem(f"the team's output type {name!r}", kind)) is not None
    ]
    problems += _guardrail_problems(team)
    problems += _tool_problems(team)
    for member in team.everyone:
        ask = getattr(member.agent, "preflight", None)
        if ask is not None:
            found: Sequence[str] = ask(member.role, models, _ceiling(member, config.budget))
            problems.extend(f"member {member.id!r}: {problem}" for problem in found)
    return problems


def file_problems(tasks: Sequence[Task] | None, files: Sequence[File], team: Team, models: Models) -> list[str]:
    """Return one sentence for each file that a member cannot be given, although a task of its may bring it.

    `files` are the request's, which every task brings; `tasks` is None while the plan is not known. Agents that say
    nothing about files are not asked.
    """
    if tasks is None:
        return [problem for file in files for one in team.everyone for problem in _file_problem(one, file, models)]
    found: list[str] = []
    for task in done_by_members(tasks):
        if not (given := unique([*files, *task.files])):
            continue
        able = set(able_members(task, team))
        for one in [member for member in team.members if member.id in able]:
            member: Member | None = one
            while member is not None:
                found += [f"task {task.id!r}: {why}" for file in given for why in _file_problem(member, file, models)]
                member = member.senior
    return found


def _file_problem(member: Member, file: File, models: Models) -> Iterator[str]:
    ask: Any = getattr(member.agent, "file_problem", None)
    try:
        why = None if ask is None else ask(file, models)
    except KairoError:  # the member's own check reports a model that cannot be found
        return
    if why is not None:
        yield f"member {member.id!r}: {why}; to give files to some tasks only, write Task(files=[...])"


def _guardrail_problems(team: Team) -> Iterator[str]:
    owners = [(f"team {team.name!r}", team.guardrails)] if team.guardrails else []
    owners += [(f"member {member.id!r}", member.guardrails) for member in team.everyone if member.guardrails]
    for owner, policies in owners:
        try:
            GuardrailChain(policies)
        except ValueError as error:
            yield f"{owner}: {error}"


def _tool_problems(team: Team) -> Iterator[str]:
    permissions: Any = team.permissions
    if permissions is not None and not isinstance(permissions, ToolPermissions):
        yield f"Team.permissions must be a ToolPermissions, such as kt.ToolPermissions(guard=...), not {permissions!r}"
        return
    for member in team.everyone:
        tools: Any = getattr(member.agent, "tools", ())
        if tools and is_tuple(tools):
            yield from (f"member {member.id!r}: {problem}" for problem in blocked_sources(tools, permissions))


def _unpriced(agent: object, models: Models, prices: PriceBook) -> list[str]:
    model: Any = getattr(agent, "model", None)
    return [problem for problem in map(prices.problem, _models_behind(model, models)) if problem]


def planner_problems(planner: Planner, config: TeamConfig, runtime: Runtime) -> list[str]:
    """Return one sentence for each reason a planner could not be called, such as an unavailable model."""
    ask = getattr(planner, "preflight", None)
    problems: list[str] = [] if ask is None else list(ask(runtime.models))
    if config.budget.dollars is not None:
        problems += _unpriced(planner, runtime.models, runtime.prices.under(config.budget_policy))
    return [f"the planner: {problem}" for problem in problems]


def judge_problems(judge: Any, config: TeamConfig, runtime: Runtime, what: str = "the judge") -> list[str]:
    """Return one sentence for each reason a judge could not be called; an agent that judges checks its own models.

    `what` names the judge in the sentences; other callers of models use it too.
    """
    if not isinstance(judge, str) and not hasattr(judge, "complete"):
        return []
    try:
        found = list(single_models(runtime.models.resolve(judge)))
    except KairoError as error:
        return [f"{what}: {error}"]
    if config.budget.dollars is None:
        return []
    unpriced = map(runtime.prices.under(config.budget_policy).problem, found)
    return [f"{what}: {problem}" for problem in unpriced if problem]


def _budget_problems(team: Team, budget: Budget) -> Iterator[str]:
    for field in ("tokens", "dollars", "loops", "tool_calls"):
        limit = getattr(budget, field)
        asked = [getattr(m.budget, field) or 0 for m in team.everyone if m.budget is not None]
        if limit is not None and sum(asked) > limit:
            yield f"the members' budgets add up to {sum(asked)} {field}, the team has {limit}"
    if budget.loops == 0:
        yield "the budget allows 0 loops, and every attempt is one: allow at least 1 (None is unlimited)"


def _ceiling(member: Member, budget: Budget) -> Budget:
    """Return the tighter of the team's and the member's limit, field by field."""
    own = member.budget
    if own is None:
        return budget
    limits: dict[str, Any] = {}
    for field in Budget.__slots__:
        given = [limit for limit in (getattr(own, field), getattr(budget, field)) if limit is not None]
        limits[field] = min(given) if given else None
    return Budget(**limits)


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """What a run would meet before its first task; `str()` is for people."""

    ok: bool
    """Whether nothing would be refused."""
    problems: tuple[str, ...] = ()
    """A sentence for each thing that would be refused."""
    split: BudgetNode | None = None
    """The budget set aside for each member, for planning and reviews if these call a model, and, if the plan is known,
    for each task as if all were dispatched with nothing spent. `reserve` is held back for retries, seniors and top-ups.
    None if the members' budgets do not even add up."""
    carries: int | None = None
    """How many of the plan's tasks the budget is expected to carry to their end, if each takes what
    `BudgetPolicy.expect` says. For a plan that grows turn by turn, the tasks of the longest run count. None if the plan
    is not known."""
    most_tasks: int | None = None
    """The most tasks that members may do: all items of each map, all rounds of each loop, all turns. None if the plan
    is not known."""
    notes: tuple[str, ...] = ()
    """Sentences on what may surprise, such as a budget that is not expected to carry all tasks."""

    @property
    def verdict(self) -> str:
        """One line: whether the run can start, and whether its budget is expected to carry the plan."""
        if not self.ok:
            return "cannot start"
        is_short = self.carries is not None and self.most_tasks is not None and self.carries < self.most_tasks
        return f"can start; expect {self.carries} of {self.most_tasks} tasks done" if is_short else "can start"

    def __str__(self) -> str:
        lines = [f"cannot start: {problem}" for problem in self.problems] or [self.verdict]
        return "\n".join([*lines, *([str(self.split)] if self.split else []), *self.notes])


def check_request(
    request: TeamExecutionRequest, team: Team, coordinator: TeamCoordinator, runtime: Runtime
) -> PlanCheck:
    """Bind the plan and split the budget as the run would; call no agent, planner or model."""
    problems: list[str] = []
    plan: TaskGraph | None = request.plan
    preview, preflight = (getattr(coordinator, name, None) for name in ("preview", "preflight"))
    try:
        plan = plan if preview is None else preview(request, team)
    except PlanRefused as refused:
        problems += refused.problems
    try:
        problems += [] if preflight is None else preflight(request, team)
    except PlanRefused as refused:
        problems += refused.problems
    prices = runtime.prices.under(request.config.budget_policy)
    problems += team_problems(team, request.config, runtime.models, prices)
    if plan is not None:
        problems += plan_problems(plan.tasks, team)
    problems += file_problems(None if plan is None else plan.tasks, request.files, team, runtime.models)
    problems += _shortage(runtime, request)
    if problems:
        # Each once: `preview` and `preflight` may refuse the same.
        return PlanCheck(ok=False, problems=tuple(dict.fromkeys(problems)))
    ask = getattr(coordinator, "judges", None)
    judges = () if ask is None else tuple(ask(plan, team))
    worst_of = getattr(coordinator, "worst_case", None)
    worst: TaskGraph | None = plan if worst_of is None else worst_of(request, team)
    check = _split(request, team, plan, worst, judged=bool(judges))
    notes = (*check.notes, *_not_frozen(team, coordinator), *_limits(team, coordinator, judges, runtime))
    return replace(check, notes=(*notes, *_ungoverned_functions(team, root_budget(request.config))))


def _ungoverned_functions(team: Team, budget: Budget) -> Iterator[str]:
    """Yield a sentence on functions that have nothing to call a model by under a limit of what models use."""
    outside: list[str] = []
    for member in team.everyone:
        limit, agent = _ceiling(member, budget), member.agent
        function = agent.function if isinstance(agent, FunctionAgent) else None if hasattr(agent, "run") else agent
        if (limit.tokens, limit.dollars) != (None, None) and function is not None and context_by(function) is None:
            outside.append(repr(member.id))
    if outside:
        named = ", ".join(outside)
        yield (
            f"outside the budget, if it calls a model by itself: {named}; a function that takes `context` has "
            "context.model and context.address inside it"
        )


def _limits(team: Team, coordinator: TeamCoordinator, judges: Sequence[Any], runtime: Runtime) -> list[str]:
    """Return a sentence for each model that is known before the run, with the runtime's limit that applies."""
    limits = runtime.call_rules.limits
    others = (getattr(coordinator, name, None) for name in ("planner", "evaluator", "moderator"))
    asking: list[Any] = [*_agents(team), *others, *team.evaluators.values(), *judges]
    named: list[Any] = [getattr(one, name, None) for one in asking for name in ("model", "judge")]
    found = [one for model in [*named, *asking] for one in _models_behind(model, runtime.models)] if limits else []
    return limits.notes(dict.fromkeys(map(limits.names, found)))


def _agents(team: Team) -> Iterator[Any]:
    """Yield the agents of a team and of the teams inside it."""
    for member in team.everyone:
        agent: Any = member.agent
        yield agent
        inner = getattr(agent, "team", None)
        if isinstance(inner, Team):
            yield from _agents(inner)


def _models_behind(model: Any, models: Models) -> Sequence[ChatModel]:
    """Return the models that a call of `model` may use; none if it is not a model, or cannot be found."""
    if not (isinstance(model, str) or hasattr(model, "complete")):
        return ()
    try:
        return tuple(single_models(models.resolve(model)))
    except KairoError:
        return ()  # the check of its user reports the problem


def _not_frozen(team: Team, coordinator: TeamCoordinator) -> Iterator[str]:
    """Yield a sentence for each evaluator whose criteria may change while a task is worked on."""
    own: Any = getattr(coordinator, "evaluator", None)
    unnamed = {} if own is None or isinstance(own, str) else {"the coordinator's evaluator": own}
    named = {f"the evaluator {name!r}": one for name, one in team.evaluators.items()}
    for name, evaluator in (unnamed | named).items():
        why = why_not_frozen(evaluator)
        if why:
            yield f"{name}: {why}"


def _shortage(runtime: Runtime, request: TeamExecutionRequest) -> list[str]:
    """Return one sentence for each dimension in which the runtime's budget does not cover this run."""
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
    worst: TaskGraph | None,
    *,
    judged: bool,
) -> PlanCheck:
    policy, root_limit = request.config.budget_policy, root_budget(request.config)
    budgets = _carve_team(root_limit, policy, team, planned=plan is not None, judged=judged)
    problems = () if plan is None else _carve_tasks(budgets, policy, plan, team)
    budgets.hold_back(policy.reserve)
    most = None if worst is None else most_tasks(worst.tasks)
    carries: int | None = None
    notes: tuple[str, ...] = ()
    if worst is not None and most is not None and not problems:
        # Another split, because the tasks above have their shares already.
        fresh = _carve_team(root_limit, policy, team, planned=True, judged=judged)
        carries, notes = _count_carried(fresh, policy, worst, team, most)
    return PlanCheck(not problems, problems, budgets.root.tree(), carries, most, notes)


def _carve_team(limit: Budget, policy: BudgetPolicy, team: Team, *, planned: bool, judged: bool) -> BudgetSplit:
    """Carve what is set aside before the first task."""
    root = Governor(limit, name=team.name, clock=lambda: 0.0)  # no second of the budget passes meanwhile
    budgets = BudgetSplit(root, policy, discard_event, EarlierSessions(root, None), MemoryRecords())
    budgets.carve_members(team)
    for purpose, wired in ((PLAN, not planned), (EVALUATE, judged)):
        if wired:
            budgets.purpose(purpose)
    return budgets


def _count_carried(
    budgets: BudgetSplit, policy: BudgetPolicy, plan: TaskGraph, team: Team, most: int
) -> tuple[int, tuple[str, ...]]:
    """Return how many tasks the budget carries if each takes what is expected, and a note if these are not all.

    Maps and loops count with their worst case: as many items and rounds as they may have.
    """
    carried, scarce = 0, ""
    grows = any(task.grows for task in plan.tasks)
    tasks = list(islice(worst_case(plan.tasks), _MOST_COUNTED if grows else None))
    bound, shared, each = bind([task for task, _ in tasks], team), dict[str, Governor](), set[Budget]()
    for task, around in tasks:
        expected = policy.expect if task.budget is None or task.grows else _lower_of(policy.expect, task.budget)
        each.add(expected)
        try:
            account = _shared_account(budgets.root, around, shared)
            budgets.members[bound[task.id][0]].carve(task.id, guarantee=expected, shared=account)
            carried += 1
        except InsufficientBudget as short:
            scarce = scarce or short.dimension
    if not scarce:
        carried = max(carried, most) if budgets.root.budget == Budget() else carried
        return carried, (f"the plan can grow to {most:,} tasks",) if grows else ()
    of = f"{most:,} tasks that the plan can grow to" if grows else f"{most:,} tasks"
    amounts: set[Any] = {getattr(one, scarce) for one in each} - {None}
    amount, at_most = max(amounts), "at most " if len(amounts) > 1 else ""
    unit = scarce.replace("_", " ").removesuffix("s" if amount == 1 else "")
    takes = f"${amount}" if scarce == "dollars" else f"{amount:,} {unit}"
    source = "BudgetPolicy.expect" if amount == getattr(policy.expect, scarce) else "Task.budget"
    note = f"the budget can be expected to carry {carried} of {of}, if each takes {at_most}{takes} ({source})"
    return carried, (f"{note}; once one has ended, what it took counts instead",)


def _shared_account(root: Governor, around: Sequence[Task], shared: dict[str, Governor]) -> Governor | None:
    """Return the account of the innermost of these maps and loops, whose budgets are nested."""
    account: Governor | None = None
    for task in around:
        found = shared.get(task.id)
        if found is None and task.budget is not None:
            free = Budget()
            found = (
                root.beside(task.id, task.budget)
                if account is None
                else account.carve(task.id, task.budget, guarantee=free)
            )
            shared[task.id] = found
        account = found
    return account


_MOST_COUNTED: Final = 20_000
"""How many tasks of a growing plan are carved, one after another, to find how many the budget carries."""


def _lower_of(one: Budget, other: Budget) -> Budget:
    """Return the lower of two limits, in each dimension."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in DIMENSIONS)
    return Budget(*(mine if its is None or (mine is not None and mine < its) else its for mine, its in pairs))


def _carve_tasks(budgets: BudgetSplit, policy: BudgetPolicy, plan: TaskGraph, team: Team) -> tuple[str, ...]:
    """Carve for all tasks as if they were dispatched one after another; return the problem if none could be paid.

    A map counts as one task, and so does each task of a loop's body, for all its rounds.
    """
    tasks = list(_templates(plan.tasks))
    bound = bind(tasks, team)
    left = sum(exact_weight(task.weight) for task in tasks)
    paid, lacking = 0, ""
    for task in tasks:
        weight = exact_weight(task.weight)
        try:
            budgets.members[bound[task.id][0]].carve_share(task.id, task.budget, weight / left, policy.reserve)
            paid += 1
        except InsufficientBudget as short:
            lacking = lacking or f"task {task.id!r}: {short}"
        left -= weight
    return () if paid else (f"no task can get its share of the budget; {lacking}",)


def _templates(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield the tasks, with each loop replaced by the tasks of its body, which share its weight."""
    for task in tasks:
        if task.loop is None:
            yield task
        else:
            yield from _templates(templates(task))
