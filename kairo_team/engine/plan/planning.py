"""The plan of one run: made or recalled, checked and bound before any work starts, and changed while it runs."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from kairo_team._util.masking import masked
from kairo_team._util.narrowing import is_several
from kairo_team.budget import NO_USAGE, Usage
from kairo_team.engine.plan.preflight import binding, file_problems, plan_problems, team_problems
from kairo_team.engine.records.journal import within
from kairo_team.engine.records.plan_records import (
    MISSING,
    NO_STEPS,
    Added,
    NewPlanRecords,
    PlanFailed,
    PlanRecords,
    Replan,
)
from kairo_team.engine.tasks.member_budgets import PLAN, BudgetSplit
from kairo_team.errors import ContractBreach, Interrupted, Misuse, Outcome, PlanRefused, innermost, known
from kairo_team.events import PlannedTask
from kairo_team.plugin_calls import AWAITED_CALL, PLAIN_CALL, failure_of, sentence_of, shown
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.engine.records.run_scope import RunScope
    from kairo_team.engine.records.suspension import EarlierSessions
    from kairo_team.engine.tasks.dispatcher import Bound, Dispatcher
    from kairo_team.engine.tasks.ready_tasks import Entry
    from kairo_team.engine.tasks.task_run import TaskRun
    from kairo_team.engine.work.run_services import RunServices

Make = Callable[[], Awaitable[TaskGraph] | TaskGraph]
MakeRest = Callable[[TaskGraph], Awaitable[TaskGraph] | TaskGraph]
MakeTasks = Callable[[], Awaitable[Sequence[Task]] | Sequence[Task]]


class RunPlan:
    """Makes and changes the plan of one run."""

    def __init__(
        self,
        scope: RunScope,
        budgets: BudgetSplit,
        services: RunServices,
        earlier: EarlierSessions,
        *,
        refused: PlanRefused | None,
        end_early: Callable[[], None],
        warn: Callable[[str], None],
        on_new_plan: Callable[[], None],
        on_growth: Callable[[str | None, Sequence[Entry]], None],
    ) -> None:
        """Take the parts of the run that a plan needs, and its callbacks.

        `refused` says why the run has no budget, if so. `end_early` ends the run where the recorded one ended.
        `on_new_plan` is called for a plan that is not recorded; `on_growth` for added tasks, with the id of the task
        that added them.
        """
        self.graph: TaskGraph | None = scope.request.plan
        """The current plan."""
        self.number = 0
        """How many plans were requested; 0 before the first."""
        self.recorded: PlanRecords = NO_STEPS
        """The recorded steps of the last plan's tasks."""
        self._scope = scope
        self._bind = binding(scope.team)
        self._budgets = budgets
        self._services = services
        self._supervisor = scope.supervisor
        self._earlier = earlier
        self._refused = refused
        self.foreign: set[str] = set()
        """Ids of the tasks that a model may have written."""
        self._given: set[str] = set()
        """Descriptions of tasks that no model has written."""
        self._looked_at = 0
        """Number of plans requested when `foreign` and `_given` were made."""
        self._end_early = end_early
        self._warn = warn
        self._on_new_plan = on_new_plan
        self._on_growth = on_growth
        self._replanned = False
        self._changing = anyio.Lock(fast_acquire=True)
        """Held while the current plan is changed; without another waiter it is taken at once."""
        self._parts: dict[int, tuple[Task, ...]] = {}
        """The first tasks of the plan, under 0, and what each change added, by its number."""
        self._last = 0
        """The highest of these numbers."""
        self._highest = 0
        """The highest number of a change that was made, or is recorded."""
        self._to_come: deque[Added] = deque()
        """Recorded additions that this session has not put on the board yet, in order."""
        self._additions: dict[tuple[int, type[PlanRecords]], PlanRecords] = {}
        """The records of tasks added to a plan, by its number and kind: recalled ones, and new ones."""
        self._first = 0
        """The number that the current plan began with."""
        self._added: set[int] = set()
        """Numbers of the changes that were additions."""
        self._asked: dict[str, int] = {}
        """How many additions were requested, by the id of the requesting task in flight, or "" without one."""

    async def make(self, make: Make | TaskGraph) -> tuple[TaskGraph, Bound]:
        """Take or make a plan and bind it; raise `PlanRefused` with the problems of plan, team and budget."""
        if not (callable(make) or isinstance(make, TaskGraph)):
            raise Misuse(f"a plan is a kt.TaskGraph([...]), or a function that makes one, not {make!r:.80}")
        scope, key = self._scope, f"plan:{self.number + 1}"
        self._book_if_cut(key)
        await self.reach(key)
        models, files = self._services.models, scope.request.files
        problems = team_problems(scope.team, scope.config, models, self._services.prices)
        problems += file_problems(None, files, scope.team, models) if callable(make) and files else []
        if self._refused is not None:
            raise PlanRefused([*self._refused.problems, *problems]) from self._refused.__cause__
        if problems:
            raise PlanRefused(problems)
        self._budgets.carve_members(scope.team)
        self._book(key)
        self.number += 1
        made = await self._step(make if isinstance(make, TaskGraph) else partial(self._ask, make))
        self.graph = graph = cast("TaskGraph", made)
        self._parts, self._first, self._added = {0: tuple(graph.tasks)}, self.number, set()
        self._last = 0
        self._recall_changes()
        self._look_at_words(graph.tasks)
        if self.recorded.is_new and self._earlier.outcomes:  # the plan may have tasks that ended in the last session
            self._on_new_plan()
        bound = self._bind(graph.tasks)
        problems = plan_problems(graph.tasks, scope.team, bound)
        grown = next((task for task in graph.tasks if task.part_of is not None), None)
        if grown is not None:
            problems.append(
                f"task {grown.id!r} grew from {grown.part_of!r} in an earlier run, and will again: plan without what "
                "grew, kt.TaskGraph([task for task in plan.tasks if task.part_of is None])"
            )
        problems += file_problems(graph.tasks, files, scope.team, models)
        if problems:
            raise PlanRefused(problems)
        return graph, bound

    async def reach(self, key: str) -> None:
        """Wait for the end if the run is stopped, or if the recorded run ended before it made the step `key`."""
        journal = self._scope.journal
        never = self._scope.early_end is not None and journal.get(key, MISSING) is MISSING
        if never or self._scope.governor.final is not None:
            self._end_early()
            await anyio.sleep_forever()

    async def replan(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeRest) -> TaskGraph | None:
        """Replace the tasks that have not started by new ones; see `TeamRun.replan`."""
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

    async def _replan(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeRest) -> TaskGraph | None:
        key, journal = f"plan:{self.number}", self._scope.journal
        self._book(key)
        journal.put(f"{key}:for", failing.task.id)
        if journal.get(key, MISSING) is MISSING:
            await self.reach(key)
        made = await self._step(lambda: self._ask_for_rest(failing, dispatcher, make))
        change = cast("Replan", made)
        if change.graph is None:
            which = f"the one in which {failing.task.id!r} failed"
            self._warn(f"no new plan replaces {which}: {change.problem}")
            return None
        new = [task for task in change.graph.tasks if task.id not in dispatcher.tasks]
        graph = self._grow(change.number, new)
        self._take_up(change.number, new, graph, added=False)
        failing.superseded = True
        dispatcher.supersede(change.replaced)
        dispatcher.settle(dispatcher.extend(new, self._bind(new), self.recorded))
        return graph

    async def add(self, by: TaskRun | None, dispatcher: Dispatcher, make: MakeTasks) -> TaskGraph:
        """Add tasks to the current plan; see `TeamRun.add`."""
        who = "" if by is None else by.task.id
        self._asked[who] = nth = self._asked.get(who, 0) + 1
        key, journal = f"add:{who}:{nth}", self._scope.journal
        await self._enter(key, by, dispatcher)
        if self._changing.locked():
            await self._changing.acquire()
            self._changing.release()
        made = journal.get(key, MISSING)
        self._book(key)
        if made is MISSING:
            with self._paid(key), within(key):
                await self._ask_for_tasks(key, by, dispatcher, make)
        else:
            self._recall_additions(dispatcher, cast("Added", _unless_failed(made)).number)
        assert self.graph is not None
        return self.graph

    async def decide(
        self, key: str, by: TaskRun | None, dispatcher: Dispatcher | None, make: Callable[[], Awaitable[object]]
    ) -> object:
        """Return what was recorded under `key`, else make it, paid like a plan; see `TeamRun.step`."""
        if dispatcher is None:
            raise Misuse("plan first: a step with planning=True decides how a plan continues")
        await self._enter(key, by, dispatcher)
        async with self._changing:
            self._book(key)
            return await self._recall_or_make(key, make)

    async def _enter(self, key: str, by: TaskRun | None, dispatcher: Dispatcher) -> None:
        """Begin the step `key` for a task, or for the run; wait for the end if the recorded run ended before it."""
        if by is None:
            self._book_if_cut(key)
            await self.reach(key)
            return
        if not by.records.is_new:
            if by.records.ended_before(key):
                self._book_if_cut(key)
                await dispatcher.wait_for_end(by)
            by.recall_cancel(key)
        if by.interrupted is not None:
            raise Interrupted(str(by.interrupted))

    async def _ask_for_tasks(self, key: str, by: TaskRun | None, dispatcher: Dispatcher, make: MakeTasks) -> None:
        """Make the tasks of an addition, record it, and put them on the board."""
        with PLAIN_CALL:
            given: Any = make()
        if type(given) is not list and inspect.isawaitable(given):
            async with self._changing:
                given = await self._supervisor.run(given, "who adds tasks")
        new = _tasks_of(given)
        self._recall_additions(dispatcher, self._highest)
        assert self.graph is not None
        # Nothing is awaited from here on, so that no other change comes in between.
        bound = self._bind(new)
        problems = _addition_problems(new, dispatcher.tasks) or plan_problems(new, self._scope.team, bound)
        problems += file_problems(new, self._scope.request.files, self._scope.team, self._services.models)
        if problems:
            raise PlanRefused(problems)
        try:
            graph = self.graph.grown(new)
        except ValueError as error:
            raise PlanRefused([str(error)]) from None
        number = self._highest + 1
        change = Added(self.number, new, None if by is None else by.task.id, number)
        self._scope.journal.put(key, change)
        self._take_up(number, new, graph, added=True)
        self._begin_with(change, bound, NewPlanRecords, dispatcher)

    def _recall_changes(self) -> None:
        """Find the recorded changes of the current plan."""
        self._highest, self._additions = 0, {}
        steps: Mapping[str, object] = {} if self.recorded.is_new else self._scope.journal.records
        changes = [one for one in steps.values() if isinstance(one, Added) and one.number and one.plan >= self._first]
        self._to_come = deque(sorted(changes, key=lambda change: change.number))
        replans = (one.number for one in steps.values() if isinstance(one, Replan))
        self._highest = max((*(change.number for change in changes), *replans), default=0)

    def _recall_additions(self, dispatcher: Dispatcher, last: int) -> None:
        """Put the tasks of recorded additions on the board, up to number `last`, unless they are there."""
        assert self.graph is not None
        while self._to_come and self._to_come[0].number <= last:
            change = self._to_come.popleft()
            self._take_up(change.number, change.tasks, self._grow(change.number, change.tasks), added=True)
            self._begin_with(change, self._bind(change.tasks), PlanRecords, dispatcher)

    def _begin_with(self, change: Added, bound: Bound, kind: type[PlanRecords], dispatcher: Dispatcher) -> None:
        """Put the tasks of an addition on the board."""
        records = self._additions.get((change.plan, kind))
        if records is None:
            records = kind(self._scope.journal, change.plan, self._earlier.outcomes)
            self._additions[change.plan, kind] = records
        added = dispatcher.extend(change.tasks, bound, records)
        self._on_growth(change.by, added)
        dispatcher.settle(added)

    def _grow(self, number: int, new: Sequence[Task]) -> TaskGraph:
        """Return the plan with the tasks of a change, in the order of changes."""
        assert self.graph is not None
        if number > self._last:
            return self.graph.grown(new)
        parts = {**self._parts, number: new}  # a recorded change may be made later than it was then
        in_order = {task.id: task for part in sorted(parts) for task in parts[part]}
        return TaskGraph([*in_order.values(), *(task for task in self.graph.tasks if task.id not in in_order)])

    def _take_up(self, number: int, new: Sequence[Task], graph: TaskGraph, *, added: bool) -> None:
        """Replace the current plan by the one that a change has made."""
        self.graph, self._parts[number] = graph, tuple(new)
        self._last, self._highest = max(self._last, number), max(self._highest, number)
        if added:
            self._added.add(number)
        if added and self._looked_at == self.number:
            self.foreign.update(task.id for task in new if task.description not in self._given)
        else:
            self._look_at_words(graph.tasks)

    def grow(self, by: TaskRun, number: int, dispatcher: Dispatcher, tasks: Sequence[Task]) -> None:
        """Put the tasks on the board that a map or a loop grew into for the `number`th time."""
        assert self.graph is not None
        key, who = by.records.key("grown", by.task.id, number), by.task.id
        # The growth is derived from other steps each time. It is recorded only for readers of the journal.
        if self._scope.kept is not None and by.records.recall(key) is MISSING:
            self._scope.kept.put(key, Added(self.number, tuple(tasks), who))
        self.graph = self.graph.grown(tasks)
        if who in self.foreign:
            self.foreign.update(task.id for task in tasks)
        added = dispatcher.grow(by, tasks, self._bind(tasks))
        self._on_growth(who, added)
        dispatcher.settle(added)

    @property
    def grows_further(self) -> bool:
        """Whether the journal has additions that this session has not reached yet."""
        return bool(self._to_come)

    @property
    def is_outdated(self) -> bool:
        """Whether an earlier session made a later plan, which this session has not reached."""
        made = self._scope.journal.get(f"plan:{self.number + 1}", None)
        return self._earlier.plan is not None and isinstance(made, TaskGraph)

    def _spent(self, key: str) -> Usage:
        """Return what a step has cost so far, as recorded."""
        return cast("Usage", self._scope.journal.get(f"{key}:usage", NO_USAGE))

    def _book_if_cut(self, key: str) -> None:
        """Book on the run what a step had cost if the recorded run ended during the step: it will not be repeated."""
        if self._scope.early_end is not None and self._scope.journal.get(key, MISSING) is MISSING:
            self._earlier.book(self._scope.governor, self._spent(key))

    def _book(self, key: str) -> None:
        """Book on planning what a step has cost in earlier sessions; a recorded step costs nothing more."""
        journal = self._scope.journal
        if journal.get(f"{key}:usage", None) is not None:
            self._earlier.book(self._budgets.purpose(PLAN), self._spent(key))
            if journal.get(key, MISSING) is not MISSING:
                self._budgets.close_purpose(PLAN)

    def hold_back(self, dispatcher: Dispatcher) -> None:
        """Keep tasks from starting that the recorded run replaced or cancelled before they started."""
        recorded = self._replan_record()
        if recorded is not None and recorded.graph is not None:
            self.recorded.replaced = frozenset(recorded.replaced)
        dispatcher.skip_cancelled(self.recorded)

    def _replan_record(self) -> Replan | None:
        """Return the recorded replan of the first plan; None if it was not replanned."""
        first = self.number - 1 if self._replanned else self.number
        found = self._scope.journal.get(f"plan:{first + 1}", None)
        return found if isinstance(found, Replan) else None

    async def _step(self, make: Callable[[], Awaitable[object]] | TaskGraph) -> object:
        """Return the recorded plan, or the given one, or make one and record its cost."""
        journal, key = self._scope.journal, f"plan:{self.number}"
        kind = NewPlanRecords if journal.get(key, MISSING) is MISSING else PlanRecords
        self.recorded = kind(journal, self.number, self._earlier.outcomes)
        if not isinstance(make, TaskGraph):
            return await self._recall_or_make(key, make)
        if self.recorded.is_new:
            journal.put(key, make)
        return _unless_failed(journal.get(key, make))

    async def _recall_or_make(self, key: str, make: Callable[[], Awaitable[object]]) -> object:
        """Return the recorded plan, or decision on one, else make it and record it with its cost."""
        made: object = self._scope.journal.get(key, MISSING)
        if made is MISSING:
            with self._paid(key):
                with within(key):
                    made = await make()
                self._scope.journal.put(key, made)
        return _unless_failed(made)

    @contextmanager
    def _paid(self, key: str) -> Generator[None]:
        """Plan, or change the plan, inside the block: record why it failed, and what it has cost.

        A failure is not recorded if the end of the run prevented the work.
        """
        journal = self._scope.journal
        try:
            yield
        except BaseException as raised:
            error = failure_of(raised)
            cause = None if error is None else innermost(error)
            if cause is not None and (isinstance(cause, PlanRefused) or self._scope.governor.stopped is None):
                journal.put(key, PlanFailed(masked(sentence_of(cause)), isinstance(cause, PlanRefused)))
            raise
        finally:
            spent = self._budgets.close_purpose(PLAN)
            if spent is not None:
                journal.put(f"{key}:usage", spent)

    def _look_at_words(self, tasks: Sequence[Task]) -> None:
        """Find the tasks whose words a model may have written: all new descriptions, if plans cost tokens."""
        request = self._scope.request
        given = {request.goal} | {task.description for task in (() if request.plan is None else request.plan.tasks)}
        found = [task for task in tasks if task.description not in given]
        if found and not any(self._spent(f"plan:{number}").tokens for number in range(1, self.number + 1)):
            # No model planned. Only added tasks may repeat what a member wrote.
            parts = (part for number, part in self._parts.items() if number not in self._added)
            given.update(task.description for part in parts for task in part)
        self.foreign = {task.id for task in found if task.description not in given}
        self._given, self._looked_at = given, self.number

    async def _ask(self, make: Make) -> TaskGraph:
        with PLAIN_CALL:
            made = make()
        graph: Any = made
        if inspect.isawaitable(made):
            graph = await self._supervisor.run(made, "the planner")
        if not isinstance(graph, TaskGraph):
            raise ContractBreach(f"the planner returned {shown(graph)}, not a TaskGraph")
        return graph

    async def _ask_for_rest(self, failing: TaskRun, dispatcher: Dispatcher, make: MakeRest) -> Replan:
        """Request new tasks to go with the started ones; problems with them become a warning."""
        scope = self._scope
        started = [task_run.task for task_run in dispatcher.tasks.values() if task_run.begun]
        failing_id = failing.task.id
        try:
            graph = await self._ask(lambda: make(TaskGraph(started)))
            problems = _replan_problems(graph, started, dispatcher.tasks, failing_id)
            problems += plan_problems(graph.tasks, scope.team)
            if problems:
                raise PlanRefused(problems)
        except BaseException as raised:
            error = failure_of(raised)
            if error is None:  # a cancellation propagates
                raise
            return Replan(failing_id, (), None, masked(sentence_of(error)))
        replaced = tuple(one.task.id for one in dispatcher.tasks.values() if not one.begun)
        return Replan(failing_id, replaced, graph, number=self._highest + 1)


async def make_step(key: str, make: Callable[[], Any], returns: Any) -> Any:
    """Make what is recorded under `key`; `ContractBreach` unless it has the required type, if any."""
    with AWAITED_CALL:
        made: Any = make()
        if inspect.isawaitable(made):
            made = await made
    if returns is not None and not isinstance(made, returns):
        raise ContractBreach(f"step {key!r} made {shown(made)}, not a {getattr(returns, '__name__', returns)}")
    return made


def _unless_failed(made: object) -> object:
    """Return a recorded step, or raise the failure that is recorded in its place."""
    if isinstance(made, PlanFailed):
        raise PlanRefused([made.error]) if made.refused else Outcome(made.error)
    return made


def _replan_problems(
    graph: TaskGraph, started: Sequence[Task], task_runs: Mapping[str, TaskRun], failing: str
) -> list[str]:
    """Return the problems of a plan that replaces the tasks that have not started."""
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
    """Return the tasks to add as a tuple; `ContractBreach` for anything else."""
    if not is_several(given):
        raise ContractBreach(f"tasks are added as a list of kt.Task, not as {shown(given)}")
    tasks = tuple(given)
    for task in tasks:
        if not isinstance(task, Task):
            raise ContractBreach(f"tasks are added as a list of kt.Task, and {shown(task)} is not one")
    return tasks


def _addition_problems(new: Sequence[Task], task_runs: Mapping[str, TaskRun]) -> list[str]:
    """Return the problems of tasks that would be added to a plan."""
    if not new:
        return ["there is no task to add"]
    reused = [task.id for task in new if task.id in task_runs]
    if reused:
        return [f"ids are used again: {known(reused)}; tasks that are added need ids of their own"]
    lost = {name for task in new for name in task.depends_on if name in task_runs and task_runs[name].lost}
    return _hopeless(new, lost) if lost else []


_MOST_DESCRIBED: Final = 2_000
"""Characters of a task's description in events."""


def _hopeless(tasks: Sequence[Task], lost: Collection[str]) -> list[str]:
    """Return a sentence on the tasks that could never start."""
    hopeless = [task.id for task in tasks if sum(name not in lost for name in task.depends_on) < task.needed]
    return [f"tasks need what was not accepted: {known(hopeless)}"] if hopeless else []


def planned_task(task: Task, members: tuple[str, ...]) -> PlannedTask:
    """Return a task as an event shows it."""
    grows, when = task.growth, None if task.condition is None else str(task.condition)
    members = () if task.loop is not None else members
    # A cut must not halve a secret, which would then not be masked.
    asked = masked(task.description)[:_MOST_DESCRIBED]
    until = None if task.loop is None or task.loop.end is None else str(task.loop.end)
    needs = (tuple(task.depends_on), task.needed)
    return PlannedTask(task.id, *needs, members, task.evaluator, task.weight, grows, task.part_of, when, asked, until)
