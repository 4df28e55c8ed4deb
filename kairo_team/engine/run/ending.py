"""The end of a run: what happened, the status that follows, and the result that is always returned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

import anyio

from kairo_team import events
from kairo_team._util.frozen import EMPTY, FrozenDict, maker
from kairo_team.artifacts import Artifact, is_blank
from kairo_team.budget import HaltReason
from kairo_team.engine.plan.growth import ends_of, join, made_by_loop
from kairo_team.engine.records.plan_records import NO_STEPS, EarlyEnd, NewPlanRecords, without_secrets
from kairo_team.engine.records.suspension import WAITING, EarlierSessions
from kairo_team.engine.tasks.dispatcher import Dispatcher
from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks
from kairo_team.engine.tasks.task_run import COMPLETED, PENDING, SUSPENDED, TaskRun, TaskState
from kairo_team.errors import HaltError, Interrupted, JournalError, PlanRefused, TeamAborted, innermost
from kairo_team.governance.ledger import DIMENSIONS, DOLLARS, shown
from kairo_team.plugin_calls import judged_failure_of, sentence_of, without_failures
from kairo_team.results import TaskOutcome, TeamResult, TeamStatus
from kairo_team.tasks import TaskGraph, TaskStatus
from kairo_team.team import RiskProfile, TeamConfig
from kairo_team.verdicts import VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import RunJournal
    from kairo_team.engine.records.run_scope import RunScope
    from kairo_team.human import HumanRequest

_logger = logging.getLogger("kairo_team")


LAST_EVENT: Final[Mapping[TeamStatus, type[events.TeamEnded]]] = {
    TeamStatus.COMPLETED: events.TeamCompleted,
    TeamStatus.DEGRADED: events.TeamCompleted,
    TeamStatus.FAILED: events.TeamRunFailed,
    TeamStatus.TIMEOUT: events.TeamTimedOut,
    TeamStatus.CANCELLED: events.TeamCancelled,
    TeamStatus.SUSPENDED: events.TeamSuspended,
}
"""The last event of a run, by its status."""


_NAMED: Final = 3
"""How many governors are named; the others are counted."""


_make_result: Final = maker(TeamResult)
"""Makes a result from values that were checked before."""


@dataclass(slots=True)
class RunEnd:
    """What brought a run to its end."""

    tolerate_failures: bool
    caller_cancelled: bool = False
    error: Exception | None = None
    """The exception of planning, binding or the coordinator itself."""
    reason: str | None = None
    """Why the run was killed."""
    warnings: list[str] = field(default_factory=list[str])
    degraded: str | None = None
    """Why the run continues with less than requested, such as a fallback plan; None: it does not."""
    aborted: bool = False
    """Whether the failure policy, or the coordinator, ended the run."""
    concluded: str | None = None
    """Why the coordinator needed nothing more; None: it did not conclude the run."""
    called_off: Collection[str] = ()
    """Ids of the tasks that the run was concluded without."""
    output: Artifact | None = None
    """The output that replaces what the plan's last tasks made."""
    partial: Artifact | None = None
    """The coordinator's partial artifact, for a run without an output."""
    question: HumanRequest | None = None
    """The question about the plan that waits for an answer."""

    @contextmanager
    def watching(self) -> Generator[None]:
        """Keep an exception of the block as the run's error; raise the caller's cancellation, and signals, again."""
        try:
            yield
        except BaseException as raised:
            error = judged_failure_of(raised)
            if error is None:
                self.caller_cancelled = True
                rest = without_failures(raised)  # the caller gets its cancellation without the concurrent failures
                if rest is not raised:
                    raise rest from None
                raise
            cause = innermost(error)
            if self.question is None or not isinstance(cause, Interrupted):
                self.error = self.error or cause
                _logger.debug("a run ended early", exc_info=True)

    def recall(self, early: EarlyEnd) -> None:
        """Take over the recorded cause of the run's end."""
        if early.concluded:
            self.concluded = early.reason
        elif early.aborted:
            self.aborted, self.error = True, TeamAborted(early.reason or "")
        else:
            self.reason = early.reason

    @property
    def refused(self) -> bool:
        """Whether nothing was started."""
        return isinstance(self.error, PlanRefused)

    def end_of_cut_short(self) -> TaskState:
        """Return how a task in flight ends when the run is cut short."""
        if self.caller_cancelled or self.error is None or isinstance(self.error, HaltError | TeamAborted):
            return TaskState.CANCELLED
        return TaskState.FAILED

    def cut_short_by(self, halt: HaltReason | None) -> str | None:
        """Return a sentence on what ended the run early; None if nothing did."""
        if self.caller_cancelled:
            return "the caller was cancelled"
        if self.reason is not None and halt is not HaltReason.TIME_BUDGET_EXCEEDED:
            return self.reason
        if self.concluded is not None:
            return self.concluded
        error = self.error
        if isinstance(error, HaltError) and halt is not None:  # it may name what was exhausted before
            error = HaltError(halt, error.usage, error.origin, path=error.path)
        if error is not None:
            return sentence_of(error)
        return f"the team was halted: {halt.value}" if halt is not None else None

    def explain(self, halt: HaltReason | None, outcomes: Sequence[TaskOutcome], status: TeamStatus) -> str:
        """Return a sentence on why the run did not complete."""
        if status is TeamStatus.SUSPENDED:
            asleep = [f"task {o.task_id!r} {o.error}" for o in outcomes if o.status is TaskStatus.SUSPENDED]
            return "; ".join(asleep) or "the plan waits for a person"
        went_on = status is TeamStatus.DEGRADED
        if went_on and self.partial is not None:
            return str(self.degraded)
        failed = [one for one in outcomes if one.status is TaskStatus.FAILED and one.task_id not in self.called_off]
        if failed and (went_on or self.concluded is not None or self.cut_short_by(None) is None):
            more = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
            return f"task {failed[0].task_id!r} failed: {failed[0].error}{more}"
        lost = next(self._lost(outcomes), None)
        if went_on:
            return lost or next(self._short_of(outcomes), "an accepted artifact is partial")
        if self.concluded is not None:
            return lost or self.concluded
        return self.cut_short_by(halt) or lost or "nothing was planned"

    def _lost(self, outcomes: Sequence[TaskOutcome]) -> Iterator[str]:
        """Yield a sentence on each task that was needed and not accepted."""
        for one in outcomes:
            if one.error is not None and one.task_id not in self.called_off:
                yield f"task {one.task_id!r} {one.status.value}: {one.error}"

    def _short_of(self, outcomes: Sequence[TaskOutcome]) -> Iterator[str]:
        """Yield a sentence on each reason why a run without lost tasks is DEGRADED."""
        if self.degraded is not None:
            yield self.degraded
        for one in outcomes:
            if one.status is TaskStatus.COMPLETED and one.warnings and _is_unpassed(one):
                yield f"task {one.task_id!r}: {one.warnings[-1]}"

    def exception(self, outcomes: Sequence[TaskOutcome]) -> BaseException | None:
        """Return the exception of planning, binding or the coordinator, else of the first lost task."""
        own = None if isinstance(self.error, TeamAborted) else self.error
        return own or next((one.exception for one in outcomes if one.exception is not None), self.error)

    def all_warnings(
        self, error: str | None, noticed: Sequence[str], outcomes: Sequence[TaskOutcome]
    ) -> tuple[str, ...]:
        """Return each warning once: the error first, then the warnings, then the lost tasks."""
        of_tasks = [f"task {o.task_id!r}: {text}" for o in outcomes for text in o.warnings]
        lost = self._lost(outcomes)
        return tuple(dict.fromkeys([*([error] if error else []), *self.warnings, *noticed, *of_tasks, *lost]))

    def status(
        self, halt: HaltReason | None, task_runs: Sequence[TaskRun], config: TeamConfig, *, waiting: bool
    ) -> TeamStatus:
        """Decide the status; `waiting`: a person has something to decide."""
        accepted = [task_run for task_run in task_runs if task_run.state is COMPLETED]
        missing = [one for one in task_runs if one.state is not COMPLETED and one.task.id not in self.called_off]
        dispensable = sum(map(_is_dispensable, missing))
        facts = RunFacts(
            halt=halt,
            caller_cancelled=self.caller_cancelled,
            broken=self.error is not None and not (halt is not None and isinstance(self.error, HaltError)),
            ended_for_halt=any(task_run.for_halt for task_run in missing),
            waiting=waiting,
            accepted=len(accepted),
            lost=len(missing) - dispensable,
            dispensable=dispensable,
            degraded=self.degraded is not None or any(map(_is_unpassed, accepted)),
            risk=config.risk_profile,
            tolerate_failures=self.tolerate_failures,
        )
        return decide_status(facts)


def _is_dispensable(task_run: TaskRun) -> bool:
    """Return whether a later plan does without the task, or all its dependents met their needs without it."""
    return task_run.superseded or _is_made_up_for(task_run.entry)


def _is_made_up_for(entry: Entry) -> bool:
    """Return whether all dependents of the task, or of the map or loop around it, met their needs without it."""
    while entry.parent is not None and not entry.dependents:
        if entry.parent.task.over is None:
            return entry.parent.accepted
        entry = entry.parent
    dependents = entry.dependents
    return bool(dependents) and all(dependent.accepted_needs >= dependent.needed for dependent in dependents)


def _is_unpassed(accepted: TaskRun | TaskOutcome) -> bool:
    """Return whether a task was accepted without a PASS after a review, or its artifact is partial."""
    verdict, artifact = accepted.verdict, accepted.artifact
    if artifact is not None and artifact.partial:
        return True
    return verdict is not None and verdict.outcome is not VerdictOutcome.PASS


def join_output(
    task_runs: Sequence[TaskRun], tasks: Mapping[str, TaskRun], called_off: Collection[str]
) -> Artifact | None:
    """Return the artifacts of the plan's last tasks, in plan order, each under its id if several; None without any."""
    planned = [task_run.entry for task_run in task_runs if task_run.entry.parent is None]
    return join((one.task.id, one.artifact) for one in ends_of(planned, tasks, called_off) if one.entry.accepted)


def join_partial(task_runs: Sequence[TaskRun], outcomes: Sequence[TaskOutcome]) -> Artifact | None:
    """Return the partial output: accepted tasks without an accepted dependent, and all that were not accepted.

    A blank artifact, such as an answer that a provider's filter has cut off, is left out.
    """
    both = zip(task_runs, outcomes, strict=True)
    there = (one for run, one in both if run.entry.parts is None and not (run.entry.accepted and _led_on(run.entry)))
    return join((one.task_id, one.artifact) for one in there if one.artifact and not is_blank(one.artifact))


def _led_on(entry: Entry) -> bool:
    """Return whether a dependent of the task was accepted."""
    for dependent in entry.dependents:
        if dependent.accepted and (_made_something(dependent) or _led_on(dependent)):
            return True
    return entry.parent is not None and (_led_on(entry.parent) or _is_outdated(entry, entry.parent))


def _made_something(entry: Entry) -> bool:
    """Return whether an accepted task may have an artifact: not a map of an empty list."""
    return entry.task.over is None or entry.parts is None or bool(entry.parts.entries)


def _is_outdated(entry: Entry, parent: Entry) -> bool:
    """Return whether a later round of the loop has an accepted task."""
    parts = parent.parts
    if parts is None or entry.round >= len(parts.rounds):
        return False
    return any(later.accepted for later in islice(parts.entries, parts.rounds[entry.round], None))


def skip_unbound(graph: TaskGraph | None, emit: Callable[..., object]) -> list[TaskRun]:
    """Skip every task of a plan, if there is one, that was never bound."""
    task_runs = [TaskRun(Entry(task, index, ()), NO_STEPS) for index, task in enumerate(graph.tasks if graph else ())]
    for task_run in task_runs:
        task_run.move(TaskState.SKIPPED)
        task_run.error = "the run ended before it started"
        emit(events.TaskSkipped, task_run.task.id, None, 0, task_run.error)
    return task_runs


def _catch_up(
    scope: RunScope, dispatcher: Dispatcher | None, graph: TaskGraph | None, earlier: EarlierSessions
) -> tuple[Dispatcher | None, TaskGraph | None]:
    """Add the tasks of an earlier session that this one did not reach; return the plan with them."""
    plan = earlier.plan
    if dispatcher is not None and graph is not None and {task.id for task in graph.tasks} != set(dispatcher.tasks):
        dispatcher = None  # another plan replaced the bound one, and could not be bound itself
    # An earlier plan without any attempt gives way to the plan of this session, if there is one.
    if plan is None or (graph is not None and not any(outcome.attempts for outcome in earlier.outcomes.values())):
        return dispatcher, graph
    records = NewPlanRecords(scope.journal, 0, earlier.outcomes)
    unbound: dict[str, tuple[str, ...]] = {task.id: () for task in plan.tasks}
    if dispatcher is None:
        return Dispatcher(ReadyTasks(plan, unbound, {}), {}, scope.config, scope.emit, records, earlier), plan
    new = [task for task in plan.tasks if task.id not in dispatcher.tasks]
    if not new:
        return dispatcher, graph
    more = [task_run.task for task_id, task_run in dispatcher.tasks.items() if task_id not in unbound]
    dispatcher.settle(dispatcher.extend(new, unbound, records))
    return dispatcher, TaskGraph([*plan.tasks, *more]) if more else plan


def finish(
    scope: RunScope,
    ending: RunEnd,
    dispatcher: Dispatcher | None,
    graph: TaskGraph | None,
    noticed: Sequence[str],
    earlier: EarlierSessions,
) -> TeamResult:
    """End every task, decide the status, and assemble the result."""
    # First, because it records which tasks are open, and the next steps end them.
    halt, passed = _final_halt(scope, ending, dispatcher), scope.governor.passed_limits()
    dispatcher, plan = _catch_up(scope, dispatcher, graph, earlier)
    waiting = ending.question is not None
    if dispatcher is None:
        task_runs = skip_unbound(plan, scope.emit)
    else:
        task_runs = [dispatcher.tasks[task.id] for task in plan.tasks] if plan is not None else []
        waiting = waiting or (ending.concluded is None and any(task_run.state is SUSPENDED for task_run in task_runs))
        # A run that ends for another reason asks nothing any more, so its waiting tasks end with it.
        waiting = waiting and ending.status(halt, task_runs, scope.config, waiting=True) is TeamStatus.SUSPENDED
        _end_tasks(dispatcher, ending, halt, waiting=waiting)
    status = ending.status(halt, task_runs, scope.config, waiting=waiting)
    scope.governor.close()
    budget = scope.governor.tree()
    outcomes = tuple(map(TaskRun.outcome, task_runs))
    error = artifact = partial = None
    if status in (TeamStatus.COMPLETED, TeamStatus.DEGRADED) and ending.partial is None:
        tasks = {} if dispatcher is None else dispatcher.tasks
        artifact = ending.output or join_output(task_runs, tasks, ending.called_off)
    if status is not TeamStatus.COMPLETED:
        error = ending.explain(halt, outcomes, status)
    if error is not None and artifact is None:
        left = ending.output or ending.partial or join_partial(task_runs, outcomes)
        partial = left and replace(left, partial=True)
    return _make_result(
        run_id=scope.request.run_id,
        status=status,
        outcomes=outcomes,
        artifact=artifact,
        plan=plan,
        usage=budget.usage,
        budget=budget,
        duration=scope.clock() - scope.started,
        warnings=ending.all_warnings(error, (*noticed, *_describe_passed(passed)), outcomes),
        error=error,
        halt=halt,
        refused=ending.refused and halt is None,
        partial_artifact=partial,
        usage_by_model=FrozenDict(scope.tally.used) if scope.tally.used else EMPTY,
        exception=None if status is TeamStatus.COMPLETED else ending.exception(outcomes),
    )


def _describe_passed(limits: Sequence[tuple[str, int, int, int]]) -> list[str]:
    """Return a sentence on each limit that was passed."""
    found = list(map(_describe_limit, limits))
    more = len(found) - _NAMED
    return found if more <= 0 else [*found[:_NAMED], f"{more:,} more limits were passed: see the result's budget"]


def _describe_limit(passed: tuple[str, int, int, int]) -> str:
    name, dim, limit, over = passed
    sign, unit = ("$", "") if dim == DOLLARS else ("", f" {DIMENSIONS[dim].replace('_', ' ')}")
    amounts = [f"{sign}{shown(dim, amount):,}" for amount in (limit + over, limit, over)]
    return f"the budget of {name!r} was passed: {amounts[0]} of {amounts[1]}{unit} are booked, {amounts[2]} too many"


def log_end(result: TeamResult, team: str) -> None:
    """Log in one line why a run has no output."""
    # A caller that reads `output` alone sees None without a reason.
    missing = result.status is TeamStatus.DEGRADED and result.artifact is None
    if missing or result.status in (TeamStatus.FAILED, TeamStatus.TIMEOUT):
        how = "was refused, and nothing was started" if result.refused else f"ended {result.status.value}"
        then = "" if result.refused else "; result.partial_output has what there is, result.check() raises the error"
        values = (result.run_id, team, how, result.error, then)
        _logger.error("run %r of team %r %s: %s%s", *values, extra={"result": result})


async def record_end(kept: RunJournal, result: TeamResult) -> TeamResult:
    """Record the end of a session and wait until others can see it; the result warns if it is not recorded."""
    kept.end(result)
    # Wait even if the caller is cancelled: another process may resume the run next.
    with anyio.CancelScope(shield=True):
        try:
            await kept.written()
        except JournalError as error:
            if not kept.interrupted:
                warning = f"the end of the run is not recorded: {error}"
                _logger.warning("run %s: %s", result.run_id, warning)
                return replace(result, warnings=(*result.warnings, warning))
    return result


def _final_halt(scope: RunScope, ending: RunEnd, dispatcher: Dispatcher | None) -> HaltReason | None:
    """Return why the run's governor stopped, and record it."""
    governor, error, journal = scope.governor, ending.error, scope.journal
    early = scope.early_end
    if early is not None:
        ending.recall(early)
        if ending.output is None and early.output is not None:
            ending.output = early.output
        return early.halt or cast("HaltReason | None", journal.get("halt", None))
    halt = governor.final or governor.halted or (error.reason if isinstance(error, HaltError) else None)
    # A step answered from the records spends nothing, so a later session would not reach this halt by itself.
    if halt in EXHAUSTED:
        journal.put("halt", halt)
    stopped = governor.stopped is not None or isinstance(error, HaltError)
    if stopped or error is not None or ending.caller_cancelled:
        ending.concluded = None  # what happened during the end counts
    if stopped or ending.aborted or ending.concluded is not None:
        task_runs = () if dispatcher is None else dispatcher.tasks.values()
        left = {task_run.task.id: task_run.member for task_run in task_runs if not task_run.ended}
        ended = len(task_runs) - len(left)
        if ending.concluded is None:
            why = ending.reason or ending.cut_short_by(halt)
            end = EarlyEnd(halt if stopped else None, why, ending.aborted, unended=FrozenDict(left), ended=ended)
        else:
            end = EarlyEnd(None, ending.concluded, False, True, FrozenDict(left), ended, ending.output)
        journal.put("end", without_secrets(end))
    return halt or cast("HaltReason | None", journal.get("halt", None))


def _end_tasks(dispatcher: Dispatcher, ending: RunEnd, halted: HaltReason | None, *, waiting: bool) -> None:
    """End the open tasks: SKIPPED if never started, cut short if in flight; note the ones called off.

    When the run waits for a person, the waiting tasks and their dependents stay as they are.
    """
    reason = ending.cut_short_by(halted) or "the run ended"
    called_off: set[str] = set()
    if ending.concluded is not None:
        called_off.update(dispatcher.call_off(reason))
    for task_run in _parts_first(dispatcher) if dispatcher.board.unended else ():
        if waiting and task_run.state is SUSPENDED:
            dispatcher.emit_end(task_run)
        elif not task_run.ended and not waiting:
            dispatcher.cut(task_run, reason)
            if task_run.task.loop is not None:
                task_run.artifact = made_by_loop(task_run.entry, dispatcher.tasks, accepted=False)
            end = _end_of(task_run, ending, reason)
            dispatcher.end(task_run, *end)
            if ending.concluded is not None and end[1] == reason:
                called_off.add(task_run.task.id)
    not_taken = (task_id for task_id, task_run in dispatcher.tasks.items() if task_run.not_taken)
    ending.called_off = called_off.union(not_taken)


def _parts_first(dispatcher: Dispatcher) -> list[TaskRun]:
    """Return all tasks, maps and loops after the tasks they grew into."""
    task_runs = list(dispatcher.tasks.values())
    growing = [one for one in reversed(task_runs) if one.entry.parts is not None]
    return [*(one for one in task_runs if one.entry.parts is None), *growing] if growing else task_runs


def _end_of(task_run: TaskRun, ending: RunEnd, reason: str) -> tuple[TaskState, str | None]:
    """Return the end of a task that the run's end interrupts; a task that ended in an earlier session ends as there."""
    earlier = task_run.last
    over = earlier is not None and earlier.status not in (*WAITING, TaskStatus.SKIPPED)
    # A map or a loop has no attempts, and was in flight if its parts waited.
    grown = earlier is not None and earlier.status is TaskStatus.IN_FLIGHT and task_run.state is PENDING
    if earlier is not None and (over or grown or task_run.attempts < earlier.attempts):
        task_run.remember(earlier)
        if over:
            return TaskState(earlier.status), earlier.error
    member = task_run.records.had_in_flight(task_run.task.id) if task_run.state is PENDING else None
    if member is not None:  # the recorded run had started it, without an attempt yet
        task_run.member = member
        task_run.move(TaskState.IN_FLIGHT)
    if task_run.state is PENDING:
        return TaskState.SKIPPED, task_run.skip_reason(reason)
    return ending.end_of_cut_short(), reason


def end_early(scope: RunScope, ending: RunEnd, group: anyio.abc.TaskGroup | None) -> None:
    """End the run where the recorded one was cut short, if it was."""
    early = scope.early_end
    if early is None:
        return
    ending.recall(early)
    if early.halt is not None:
        scope.governor.cancel(early.halt)
    elif group is not None:
        group.cancel_scope.cancel()


EXHAUSTED = frozenset(
    {
        HaltReason.TOKEN_BUDGET_EXCEEDED,
        HaltReason.DOLLAR_BUDGET_EXCEEDED,
        HaltReason.LOOP_BUDGET_EXCEEDED,
        HaltReason.TOOL_BUDGET_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that decide the status of a run."""

    halt: HaltReason | None
    """Why the team's own governor stopped."""
    caller_cancelled: bool
    broken: bool
    """Whether planning or binding failed, the failure policy ended the run, or the coordinator itself raised."""
    ended_for_halt: bool
    """Whether a task ended because the team's budget was exhausted."""
    waiting: bool
    """Whether a task, or the plan, waits for a person."""
    accepted: int
    lost: int
    """Number of needed tasks that were not accepted."""
    dispensable: int
    """Number of tasks not accepted whose dependents all met their needs without them."""
    degraded: bool
    """Whether an artifact was accepted partial or without a PASS after a review, or the plan is a fallback."""
    risk: RiskProfile
    tolerate_failures: bool


def decide_status(facts: RunFacts) -> TeamStatus:
    """Return the status of a run that ended with these facts."""
    # A cause from outside counts first: a cancelled run has not failed, whatever its tasks did.
    if facts.caller_cancelled or facts.halt is HaltReason.CANCELLED:
        return TeamStatus.CANCELLED
    if facts.halt is HaltReason.TIME_BUDGET_EXCEEDED:
        return TeamStatus.TIMEOUT
    if facts.broken or facts.halt is HaltReason.EMERGENCY_STOP:
        return TeamStatus.FAILED
    if facts.halt in EXHAUSTED and facts.ended_for_halt:
        lenient = facts.risk is RiskProfile.LOW and facts.accepted
        return TeamStatus.DEGRADED if lenient else TeamStatus.FAILED
    return TeamStatus.SUSPENDED if facts.waiting else _decide_by_tasks(facts)


def _decide_by_tasks(facts: RunFacts) -> TeamStatus:
    if not facts.accepted:
        return TeamStatus.FAILED
    if facts.lost and not (facts.tolerate_failures or facts.risk is RiskProfile.LOW):
        return TeamStatus.FAILED
    if facts.lost or facts.dispensable or facts.degraded:
        return TeamStatus.DEGRADED
    return TeamStatus.COMPLETED
