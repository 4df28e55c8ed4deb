"""The plan of one run: made or recalled, checked and bound before any work starts, and changed while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio

from kairo_team.budget import NO_USAGE
from kairo_team.engine.budget_split import PLAN
from kairo_team.engine.preflight import bind, plan_problems, team_problems
from kairo_team.engine.records.journal import within
from kairo_team.engine.records.replay import MISSING, NO_STEPS, Added, NewPlanRecords, PlanFailed, PlanRecords, Replan
from kairo_team.errors import ContractBreach, Interrupted, Misuse, Outcome, PlanRefused, innermost, known
from kairo_team.plugin_calls import AWAITED_CALL, PLAIN_CALL, failure_of, words_of
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.budget import Usage
    from kairo_team.engine.budget_split import BudgetSplit
    from kairo_team.engine.dispatcher import Bound, Dispatcher
    from kairo_team.engine.enforced_end import CallSupervisor
    from kairo_team.engine.ready_tasks import Entry
    from kairo_team.engine.run_scope import RunScope
    from kairo_team.engine.run_services import RunServices
    from kairo_team.engine.suspension import EarlierSessions
    from kairo_team.engine.task_run import TaskRun

Make = Callable[[], Awaitable[TaskGraph] | TaskGraph]
MakeAnew = Callable[[TaskGraph], Awaitable[TaskGraph] | TaskGraph]
MakeTasks = Callable[[], Awaitable[Sequence[Task]] | Sequence[Task]]


class RunPlan:
    """Makes and changes the plan of one run."""

    def __init__(
        self,
        scope: RunScope,
        budgets: BudgetSplit,
        services: RunServices,
        supervisor: CallSupervisor,
        earlier: EarlierSessions,
        *,
        budget_problem: str | None,
        end_early: Callable[[], None],
        warn: Callable[[str], None],
        on_new_plan: Callable[[], None],
        on_growth: Callable[[str | None, Sequence[Entry]], None],
    ) -> None:
        """Take the parts of the run that a plan needs, and what it calls.

        `budget_problem` says why the run has no budget, if so. `end_early` ends the run where the recorded one ended.
        `on_new_plan` is called for a plan that is not recorded, `on_growth` for tasks that were added, with the id of
        the task that they were added by.
        """
        self.graph: TaskGraph | None = scope.request.plan
        """The plan as it stands."""
        self.number = 0
        """How many plans were asked for; 0 before the first."""
        self.recorded: PlanRecords = NO_STEPS
        """The recorded steps of the tasks of the last plan."""
        self._scope = scope
        self._budgets = budgets
        self._services = services
        self._supervisor = supervisor
        self._earlier = earlier
        self._budget_problem = budget_problem
        self.foreign: set[str] = set()
        """Ids of the tasks that a model may have written."""
        self._given: set[str] = set()
        """Descriptions of tasks that no model has written."""
        self._looked_at = 0
        """How many plans had been asked for when both were made."""
        self._end_early = end_early
        self._warn = warn
        self._on_new_plan = on_new_plan
        self._on_growth = on_growth
        self._replanned = False
        self._changing = anyio.Lock(fast_acquire=True)
        """Held while the plan that stands is changed; without another waiter it is taken at once."""
        self._parts: dict[int, tuple[Task, ...]] = {}
        """What the plan was made of at first, under 0, and what each change of it added, by number."""
        self._last = 0
        """The highest of these numbers."""
        self._reached = 0
        """No addition up to this number is left that has to be put on the board."""
        self._additions: dict[type[PlanRecords], PlanRecords] = {}
        """The recorded steps of tasks that were added to the last plan: of those recalled, and of new ones."""
        self._first = 0
        """The number of the plan it began as."""
        self._added: set[int] = set()
        """Numbers of the changes that were additions."""
        self._asked: dict[str, int] = {}
        """How many additions were asked for, by the id of the task in flight, or "" where there was none."""

    async def make(self, make: Make | TaskGraph) -> tuple[TaskGraph, Bound]:
        """Take or make a plan and bind it; raises `PlanRefused` with what is wrong with it, the team, or the budget."""
        scope, key = self._scope, f"plan:{self.number + 1}"
        self._book_if_cut(key)
        await self.reach(key)
        problems = team_problems(scope.team, scope.config, self._services.models, self._services.prices)
        if self._budget_problem or problems:
            raise PlanRefused([*([self._budget_problem] if self._budget_problem else []), *problems])
        self._budgets.set_aside(scope.team)
        self._book(key)
        self.number += 1
        made = await self._step(make if isinstance(make, TaskGraph) else partial(self._ask, make))
        self.graph = graph = cast("TaskGraph", made)
        self._parts, self._first, self._added = {0: tuple(graph.tasks)}, self.number, set()
        self._last = self._reached = 0
        self._additions = {}
        self._look_at_words(graph.tasks)
        if self.recorded.is_new and self._earlier.outcomes:  # it may bring back what ended in the last one
            self._on_new_plan()
        bound = bind(graph, scope.team)
        problems = [*plan_problems(graph, scope.team, bound), *_grown_before(graph)]
        if problems:
            raise PlanRefused(problems)
        return graph, bound

    async def reach(self, key: str) -> None:
        """Go no further once the run is stopped, or where the recorded run ended before it made the step `key`."""
        journal = self._scope.journal
        never = self._scope.early_end is not None and journal.get(key, MISSING) is MISSING
        if never or self._scope.governor.final is not None:
            self._end_early()
            await anyio.sleep_forever()

    async def replan(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeAnew) -> TaskGraph | None:
        """Put new tasks in the place of those that have not started; see `TeamRun.replan`."""
        failing_id = self._scope.journal.get(f"plan:{self.number + 1}:for", failing.task.id)
        if self._replan_record() is None:
            failing.recall_cancel()
        if self._replanned or failing.interrupted is not None or failing_id != failing.task.id:
            return None
        self._replanned = True
        self.number += 1
        if failing.records.ended_before(f"plan:{self.number}"):
            self._book_if_cut(f"plan:{self.number}")
            await dispatcher.wait_for_end(failing)
        async with self._changing:
            return await self._replan(failing, dispatcher, make)

    async def _replan(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeAnew) -> TaskGraph | None:
        key, journal = f"plan:{self.number}", self._scope.journal
        self._book(key)
        journal.put(f"{key}:for", failing.task.id)
        if journal.get(key, MISSING) is MISSING:
            await self.reach(key)
        made = await self._step(lambda: self._ask_anew(failing, dispatcher, make))
        change = cast("Replan", made)
        if change.graph is None:
            which = f"the one in which {failing.task.id!r} failed"
            self._warn(f"no new plan in the place of {which}: {change.problem}")
            return None
        new = [task for task in change.graph.tasks if task.id not in dispatcher.tasks]
        graph = self._grow(change.number, new)
        failing.superseded = True
        dispatcher.supersede(change.replaced)
        dispatcher.settle(dispatcher.extend(new, bind(new, self._scope.team), self.recorded))
        return graph

    async def add(self, by: TaskRun | None, dispatcher: Dispatcher, make: MakeTasks) -> TaskGraph:
        """Add tasks to the plan that stands; see `TeamRun.add`."""
        who = "" if by is None else by.task.id
        self._asked[who] = nth = self._asked.get(who, 0) + 1
        key, journal = f"add:{who}:{nth}", self._scope.journal
        await self._enter(key, by, dispatcher)
        async with self._changing:
            self._book(key)
            made: object = journal.get(key, MISSING)
            recalled = made is not MISSING
            if not recalled:
                made = await self._make_paid(key, lambda: self._ask_for_tasks(by, dispatcher, make))
            if isinstance(made, PlanFailed):
                raise PlanRefused([made.error]) if made.refused else Outcome(made.error)
            last = cast("int", made)
            for number in range(self._reached + 1, last + 1):
                self._apply(number, dispatcher, kind=PlanRecords if recalled or number < last else NewPlanRecords)
            self._reached = max(self._reached, last)
        dispatcher.wake()
        assert self.graph is not None
        return self.graph

    async def decide(
        self, key: str, by: TaskRun | None, dispatcher: Dispatcher | None, make: Callable[[], Awaitable[object]]
    ) -> object:
        """Return what was recorded under `key`, else make it, paid like a plan; see `TeamRun.step`."""
        if dispatcher is None:
            raise Misuse("plan first: a step with planning=True decides how a plan goes on")
        await self._enter(key, by, dispatcher)
        async with self._changing:
            self._book(key)
            made: object = self._scope.journal.get(key, MISSING)
            if made is MISSING:
                made = await self._make_paid(key, make)
        if isinstance(made, PlanFailed):
            raise PlanRefused([made.error]) if made.refused else Outcome(made.error)
        return made

    async def _enter(self, key: str, by: TaskRun | None, dispatcher: Dispatcher) -> None:
        """Begin the step `key` in the work of a task, or in the block; not where the recorded run ended before it."""
        if by is None:
            self._book_if_cut(key)
            await self.reach(key)
            return
        if by.records.ended_before(key):
            self._book_if_cut(key)
            await dispatcher.wait_for_end(by)
        by.recall_cancel(key)
        if by.interrupted is not None:
            raise Interrupted(str(by.interrupted))

    async def _ask_for_tasks(self, by: TaskRun | None, dispatcher: Dispatcher, make: MakeTasks) -> int:
        with PLAIN_CALL:
            given: Any = make()
        if inspect.isawaitable(given):
            given = await self._supervisor.run(given, "who adds tasks")
        new = _tasks_of(given)
        assert self.graph is not None
        problems = _addition_problems(new, self.graph, dispatcher.tasks)
        problems = problems or plan_problems(new, self._scope.team, bind(new, self._scope.team))
        if problems:
            raise PlanRefused(problems)
        number = self._next_change()
        self._scope.journal.put(f"change:{number}", Added(self.number, new, None if by is None else by.task.id))
        return number

    def _next_change(self) -> int:
        """Return the number of a change of the plan: no recorded one has it."""
        number = self._last + 1
        while self._scope.journal.get(f"change:{number}", None) is not None:
            number += 1
        return number

    def _apply(self, number: int, dispatcher: Dispatcher, kind: type[PlanRecords]) -> None:
        """Put the tasks of an addition on the board, where they are not yet; other changes are put there elsewhere."""
        scope, change = self._scope, self._scope.journal.get(f"change:{number}", None)
        if number in self._parts or not isinstance(change, Added) or change.plan < self._first:
            return
        records = self._additions.get(kind)
        if records is None:
            records = self._additions[kind] = kind(scope.journal, change.plan, self._earlier.outcomes)
        self._added.add(number)
        self._grow(number, change.tasks)
        added = dispatcher.extend(change.tasks, bind(change.tasks, scope.team), records)
        self._on_growth(change.by, added)
        dispatcher.settle(added)

    def _grow(self, number: int, tasks: Sequence[Task]) -> TaskGraph:
        """Take the tasks of a change into the plan that stands, in the order of changes."""
        assert self.graph is not None
        self._parts[number] = new = tuple(tasks)
        if number > self._last:
            self._last = number
            self.graph = graph = self.graph.grown(new)
        else:  # a recorded plan may take its place later than it did
            self.graph = graph = TaskGraph([task for part in sorted(self._parts) for task in self._parts[part]])
        if number in self._added and self._looked_at == self.number:
            self.foreign.update(task.id for task in new if task.description not in self._given)
        else:
            self._look_at_words(graph.tasks)
        return graph

    def grow(self, by: TaskRun, number: int, dispatcher: Dispatcher, tasks: Sequence[Task]) -> None:
        """Put on the board what a map or a loop grew into for the `number`th time.

        It follows from what is recorded and is made anew; where the journal outlives the process, those who look at the
        run read it there.
        """
        assert self.graph is not None
        key, who = by.records.key("grown", by.task.id, number), by.task.id
        if self._scope.kept is not None and by.records.recall(key) is MISSING:
            self._scope.kept.put(key, Added(self.number, tuple(tasks), who))
        self.graph = self.graph.grown(tasks)
        if who in self.foreign:
            self.foreign.update(task.id for task in tasks)
        added = dispatcher.grow(by, tasks, bind(tasks, self._scope.team))
        self._on_growth(who, added)
        dispatcher.settle(added)

    @property
    def grows_further(self) -> bool:
        """Whether the journal has additions that this session has not reached yet."""
        number = self._last + 1
        while (change := self._scope.journal.get(f"change:{number}", None)) is not None:
            if isinstance(change, Added):
                return True
            number += 1
        return False

    def _spent(self, key: str) -> Usage:
        """Return what a step has cost so far, as recorded."""
        return cast("Usage", self._scope.journal.get(f"{key}:usage", NO_USAGE))

    def _book_if_cut(self, key: str) -> None:
        """Book on the run what a step had cost when the recorded run ended in it: it is not made any more."""
        if self._scope.early_end is not None and self._scope.journal.get(key, MISSING) is MISSING:
            self._earlier.book(self._scope.governor, self._spent(key))

    def _book(self, key: str) -> None:
        """Book on planning what a step has cost in earlier sessions; one that is recorded costs nothing more."""
        journal = self._scope.journal
        if journal.get(f"{key}:usage", None) is not None:
            self._earlier.book(self._budgets.purpose(PLAN), self._spent(key))
            if journal.get(key, MISSING) is not MISSING:
                self._budgets.close_purpose(PLAN)

    def hold_back(self, dispatcher: Dispatcher) -> None:
        """Keep tasks from being started that the recorded run never started: it replaced or cancelled them before."""
        recorded = self._replan_record()
        if recorded is not None and recorded.graph is not None:
            self.recorded.replaced = frozenset(recorded.replaced)
        dispatcher.skip_cancelled(self.recorded)

    def _replan_record(self) -> Replan | None:
        """Return the replanning that is recorded, if there is one: it follows the plan that was begun with."""
        first = self.number - 1 if self._replanned else self.number
        found = self._scope.journal.get(f"plan:{first + 1}", None)
        return found if isinstance(found, Replan) else None

    async def _step(self, make: Callable[[], Awaitable[object]] | TaskGraph) -> object:
        """Take the recorded plan, or the one that is given, or make one and record what it cost."""
        scope, key = self._scope, f"plan:{self.number}"
        made: object = scope.journal.get(key, MISSING)
        kind = NewPlanRecords if made is MISSING else PlanRecords
        self.recorded = kind(scope.journal, self.number, self._earlier.outcomes)
        if made is MISSING:
            if isinstance(make, TaskGraph):
                made = make
                scope.journal.put(key, made)
            else:
                made = await self._make_paid(key, make)
        if isinstance(made, PlanFailed):
            raise PlanRefused([made.error]) if made.refused else Outcome(made.error)
        return made

    async def _make_paid(self, key: str, make: Callable[[], Awaitable[object]]) -> object:
        """Make a plan, or more tasks, and record it with what it has cost by now."""
        try:
            return await self._make(key, make)
        finally:
            spent = self._budgets.close_purpose(PLAN)
            if spent is not None:
                self._scope.journal.put(f"{key}:usage", spent)

    async def _make(self, key: str, make: Callable[[], Awaitable[object]]) -> object:
        """Make a plan and record it, or why there is none, unless the end of the run prevents it."""
        journal = self._scope.journal
        try:
            with within(key):
                made = await make()
        except BaseException as raised:
            error = failure_of(raised)
            cause = None if error is None else innermost(error)
            if cause is not None and (isinstance(cause, PlanRefused) or self._scope.governor.stopped is None):
                journal.put(key, PlanFailed(words_of(cause), isinstance(cause, PlanRefused)))
            raise
        journal.put(key, made)
        return made

    def _look_at_words(self, tasks: Sequence[Task]) -> None:
        """Find the tasks that a model may have written, and whose words are not given.

        Of a plan that cost tokens these are all, else those that were added: they may repeat what a member wrote.
        """
        request = self._scope.request
        given = {request.goal} | {task.description for task in (() if request.plan is None else request.plan.tasks)}
        if not any(self._spent(f"plan:{number}").tokens for number in range(1, self.number + 1)):
            parts = (part for number, part in self._parts.items() if number not in self._added)
            given.update(task.description for part in parts for task in part)
        self.foreign = {task.id for task in tasks if task.description not in given}
        self._given, self._looked_at = given, self.number

    async def _ask(self, make: Make) -> TaskGraph:
        with PLAIN_CALL:
            made = make()
        graph: Any = made
        if inspect.isawaitable(made):
            graph = await self._supervisor.run(made, "the planner")
        if not isinstance(graph, TaskGraph):
            raise ContractBreach(f"the planner returned {graph!r:.200}, not a TaskGraph")
        return graph

    async def _ask_anew(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeAnew) -> Replan:
        """Ask for new tasks beside the ones that have started; what is wrong with them is a warning."""
        scope = self._scope
        started = [task_run.task for task_run in dispatcher.tasks.values() if task_run.begun]
        failing_id = failing.task.id
        try:
            graph = await self._ask(lambda: make(TaskGraph(started)))
            problems = _replan_problems(graph, started, dispatcher.tasks, failing_id)
            problems += plan_problems(graph, scope.team, bind(graph, scope.team))
            if problems:
                raise PlanRefused(problems)
        except BaseException as raised:
            error = failure_of(raised)
            if error is None:  # a cancellation goes on
                raise
            return Replan(failing_id, (), None, words_of(innermost(error)))
        replaced = tuple(one.task.id for one in dispatcher.tasks.values() if not one.begun)
        number = self._next_change()
        scope.journal.put(f"change:{number}", True)
        return Replan(failing_id, replaced, graph, number=number)


async def make_step(key: str, make: Callable[[], Any], returns: Any) -> Any:
    """Make what is to be recorded under `key`; `ContractBreach` unless it has the type that it must have, if any."""
    with AWAITED_CALL:
        made: Any = make()
        if inspect.isawaitable(made):
            made = await made
    if returns is not None and not isinstance(made, returns):
        raise ContractBreach(f"step {key!r} made {made!r:.200}, not a {getattr(returns, '__name__', returns)}")
    return made


def _replan_problems(
    graph: TaskGraph, started: Sequence[Task], task_runs: Mapping[str, TaskRun], failing: str
) -> list[str]:
    """Return what is wrong with a plan that is to take the place of what has not started."""
    kept = {task.id: task for task in started}
    new = [task for task in graph.tasks if task.id not in kept]
    changed = [task.id for task in graph.tasks if task.id in kept and task != kept[task.id]]
    reused = [task.id for task in new if task.id in task_runs]
    lost = {name for name in kept if name == failing or task_runs[name].lost}
    problems = [] if new else ["the new plan has no new task"]
    problems += [f"it changes tasks that have started: {known(changed)}"] if changed else []
    problems += [f"it uses ids again: {known(reused)}; new tasks need ids of their own"] if reused else []
    return problems + _hopeless(new, lost)


def _tasks_of(given: Any) -> tuple[Task, ...]:
    """Return tasks that were to be added; `ContractBreach` for anything else."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ContractBreach(f"tasks are added as a list of kt.Task, not as {given!r:.200}")
    tasks = tuple(cast("Iterable[Any]", given))  # type: ignore[redundant-cast]  # pyright needs it
    for task in tasks:
        if not isinstance(task, Task):
            raise ContractBreach(f"tasks are added as a list of kt.Task, and {task!r:.200} is none")
    return tasks


def _addition_problems(new: Sequence[Task], graph: TaskGraph, task_runs: Mapping[str, TaskRun]) -> list[str]:
    """Return what is wrong with tasks that are to be added to a plan."""
    if not new:
        return ["there is no task to add"]
    reused = [task.id for task in new if task.id in task_runs]
    if reused:
        return [f"ids are used again: {known(reused)}; tasks that are added need ids of their own"]
    try:
        graph.check_more(new)
    except ValueError as error:
        return [str(error)]
    needed = {name for task in new for name in task.depends_on}
    return _hopeless(new, {name for name in needed if name in task_runs and task_runs[name].lost})


def _grown_before(graph: TaskGraph) -> Iterator[str]:
    """Return a sentence on tasks that a map or a loop grew into in another run."""
    for task in graph.tasks:
        if task.part_of is not None:
            yield (
                f"task {task.id!r} grew from {task.part_of!r} in an earlier run, and will again: plan without what "
                "grew, kt.TaskGraph([task for task in plan.tasks if task.part_of is None])"
            )
            return


def _hopeless(tasks: Sequence[Task], lost: Collection[str]) -> list[str]:
    """Return a sentence on the tasks that could never start."""
    hopeless = [task.id for task in tasks if sum(name not in lost for name in task.depends_on) < task.needed]
    return [f"tasks need what was not accepted: {known(hopeless)}"] if hopeless else []
