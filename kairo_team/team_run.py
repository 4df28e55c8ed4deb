"""`TeamRun`: the one owner of a run's lifecycle and of its recorded steps. Every coordinator stands on it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

import anyio
from anyio.lowlevel import checkpoint

from kairo_team import events
from kairo_team.attempts import Attempt, Worker, run_attempt
from kairo_team.binding import bind, evaluator_problems, plan_problems, team_problems
from kairo_team.board import TaskBoard
from kairo_team.budget import HaltReason, Usage, difference
from kairo_team.bus import Bus
from kairo_team.carving import PLAN, Carving, open_governor, root_budget
from kairo_team.clock import LoopClock
from kairo_team.dispatch import Dispatcher
from kairo_team.ending import LAST_EVENT, Ending, join_output, skip_unbound
from kairo_team.errors import ContractBreach, HaltError, Misuse, PlanRefused
from kairo_team.frozen import maker
from kairo_team.leash import Leashes
from kairo_team.opening import open_services
from kairo_team.prompts import Prompts
from kairo_team.recorded import TaskRecords
from kairo_team.results import Artifact, TeamResult, TeamStatus
from kairo_team.reviews import review_artifact
from kairo_team.runners import Runners, beside
from kairo_team.runtime import Run, Runtime
from kairo_team.states import COMPLETED, FAILED, GENERATING, PENDING, RUN_MOVES, RunState, TaskState, check_move
from kairo_team.status import EXHAUSTED
from kairo_team.task_record import TaskRecord, upstream_of
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.team import Role
from kairo_team.timeouts import Timeouts
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict, VerdictOutcome
from kairo_team.work_context import WorkContext

if TYPE_CHECKING:
    from kairo_team.governance.governor import Governor
    from kairo_team.team import Team, TeamExecutionRequest
    from kairo_team.verdicts import Finding

_logger = logging.getLogger("kairo_team")
T = TypeVar("T")
_MISSING: Final = object()

_make_assignment: Final = maker(Assignment)
"""Makes an assignment of values that were checked before."""


class TeamRun:
    """One execution of a request.

    Open it with `TeamRun.open`; inside the block plan, take ready tasks, hand each to `go`, and in its body make an
    attempt, review it, and accept, fail or skip the task. However the block ends, `result` is there afterwards.
    """

    def __init__(
        self, request: TeamExecutionRequest, team: Team, runtime: Runtime, *, tolerate_failures: bool, prompts: Prompts
    ) -> None:
        self.request = request
        self.team = team
        self.config = request.config
        self.clock = LoopClock()
        self.started = self.clock()
        self.governor, self._unfunded = open_governor(runtime.governor, team.name, root_budget(self.config), self.clock)
        self.bus = Bus(request.run_id, runtime.subscribers)
        self.emit: Callable[..., None] = self.bus.emit
        """Emits an event: its class and its own fields in order; run id, number and time are filled in."""
        self._services = open_services(self, runtime, prompts)
        self._timeouts = Timeouts(self.clock.read)
        self._carving = Carving(self.governor, self.config.budget_policy, self.emit)
        self._leashes = Leashes(self.clock, self.config.cancel_grace)
        self._history: list[str] = [RunState.IDLE]
        self._ending = Ending(tolerate_failures=tolerate_failures)
        self._plan_number = 0
        self._recorded = TaskRecords(self._services.journal, 0, replaying=False)
        self._graph: TaskGraph | None = request.plan
        self._workers: dict[str, Worker] = {}
        self._dispatcher: Dispatcher | None = None
        self._records: Mapping[str, TaskRecord] = {}
        self._runners: Runners | None = None
        self._output: Artifact | None = None
        self._result: TeamResult | None = None

    # ------------------------------------------------------------------ lifecycle

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        request: TeamExecutionRequest,
        team: Team,
        *,
        tolerate_failures: bool = False,
        templates: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[TeamRun]:
        """Open a run: its governor, deadline and first event; on leaving the block its result and last event.

        Whatever the block raises becomes a FAILED result, but for the caller's own cancellation, which is raised again
        once everything in flight has ended. With `tolerate_failures` a task that was not accepted makes the run
        DEGRADED instead of FAILED. Raises `RunExists` for a run id that was used before.
        """
        runtime: Runtime = team.runtime or Runtime()
        runtime.runs.check_new(request.run_id)
        run = cls(request, team, runtime, tolerate_failures=tolerate_failures, prompts=Prompts(templates))
        runtime.runs.enter(Run(request.run_id, run.cancel))
        try:
            async with run.bus.pumping(run.config.cancel_grace):
                try:
                    with run._ending.watching():
                        run._begin()
                        async with (
                            run._interruptible(),
                            beside(run._leashes.watch, run._timeouts.watch, *run._services.watches),
                            anyio.create_task_group() as group,
                        ):
                            run._runners = Runners(group)
                            yield run
                finally:
                    run._finish()
        finally:
            runtime.runs.leave(request.run_id)

    def _begin(self) -> None:
        self._move(RunState.PLANNING)
        self.emit(events.TeamStarted, self.team.name, self.request.goal, tuple(m.id for m in self.team.members))

    @asynccontextmanager
    async def _interruptible(self) -> AsyncGenerator[None]:
        """End the block at the deadline or a kill; without any time at all it is cancelled from its first await on."""
        entered = False
        try:
            async with self.governor.scope():
                entered = True
                yield
        except HaltError:
            if not entered:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    yield
            raise

    def _finish(self) -> None:
        """End every task, decide the status, tell it. Nothing is awaited, so nothing can come in between."""
        records = self._end_tasks()
        usage, halt = self.governor.status()
        key = f"halt:{self._plan_number}"
        if halt in EXHAUSTED:  # a replay asks nothing of the budget, so nothing would halt it
            self._services.journal.put(key, halt)
        halt = halt or cast("HaltReason | None", self._services.journal.get(key, None))
        status = self._ending.status(halt, records, self.config)
        self.governor.close()
        outcomes = tuple(record.outcome() for record in records)
        error = None
        if status not in (TeamStatus.COMPLETED, TeamStatus.DEGRADED):
            error = self._ending.explain(halt, outcomes)
        self._result = TeamResult(
            run_id=self.request.run_id,
            status=status,
            outcomes=outcomes,
            artifact=self._output or join_output(records),
            plan=self._graph,
            usage=usage,
            budget=self.governor.tree(),
            duration=self.clock() - self.started,
            warnings=self._ending.all_warnings(error, self._leashes.stubborn, outcomes),
            error=error,
            halt=halt,
            refused=self._ending.refused,
        )
        self._move(RunState(status))
        self.emit(LAST_EVENT[status], status, self._result.duration, usage, error)
        self.bus.closed = True

    def _end_tasks(self) -> list[TaskRecord]:
        """End what has not ended: never started is SKIPPED, in flight is cut short."""
        if self._dispatcher is None:
            return skip_unbound(self._graph, self.emit)
        records = list(self._dispatcher.records.values())
        reason = self._ending.cut_short_by(self.governor.halted) or "the run ended"
        for record in records:
            if record.state is PENDING:
                self._dispatcher.end(record, TaskState.SKIPPED, reason)
            elif not record.ended:
                self._dispatcher.end(record, self._ending.end_of_cut_short(), reason)
        return records

    def _move(self, to: RunState) -> None:
        check_move(self.request.run_id, self._history, to, RUN_MOVES)

    def cancel(self, reason: str = "the run was cancelled") -> None:
        """Kill the run: what is in flight is interrupted and what was kept comes back. From any thread."""
        self._ending.reason = self._ending.reason or reason
        self.governor.cancel()

    @property
    def result(self) -> TeamResult:
        """What came of the run; there once the block was left."""
        if self._result is None:
            raise Misuse("the run has not ended: read its result after the `async with` block")
        return self._result

    @property
    def output(self) -> Artifact | None:
        """What the run gives back instead of the accepted ends of its plan; set a text or an artifact."""
        return self._output

    @output.setter
    def output(self, value: Artifact | str) -> None:
        self._output = Artifact(value) if isinstance(value, str) else value

    def warn(self, text: str) -> None:
        """Put a warning into the result and the log."""
        self._ending.warnings.append(text)
        _logger.warning("run %s: %s", self.request.run_id, text)

    def degrade(self, warning: str) -> None:
        """Go on with less than was asked for: the run ends DEGRADED at best, and says why."""
        self._ending.makeshift = True
        self.warn(warning)

    # ------------------------------------------------------------------ recorded steps

    @overload
    async def step(self, key: str, make: Callable[[], Awaitable[T]], *, returns: Any = None) -> T: ...
    @overload
    async def step(self, key: str, make: Callable[[], T], *, returns: Any = None) -> T: ...
    async def step(self, key: str, make: Callable[[], Any], *, returns: Any = None) -> Any:
        """Return what was recorded under `key`, else make it and record it.

        Whatever a coordinator learns from outside goes through here (attempts and reviews do by themselves), so that
        running its code again on the records decides the same. `returns`: the type the value must have.
        """
        recorded = self._services.journal.get(key, _MISSING)
        if recorded is not _MISSING:
            return recorded
        made: Any = make()
        if inspect.isawaitable(made):
            made = await made
        if returns is not None and not isinstance(made, returns):
            raise ContractBreach(f"step {key!r} made {made!r:.200}, not a {getattr(returns, '__name__', returns)}")
        self._services.journal.put(key, made)
        return made

    async def plan(self, make: Callable[[], Awaitable[TaskGraph] | TaskGraph]) -> TaskGraph:
        """Plan the run and bind every task; raises `PlanRefused` for what cannot start: let it end the run."""
        await checkpoint()
        problems = team_problems(self.team, self.config, self._services.models, self._services.prices)
        problems += evaluator_problems(self.team)
        if self._unfunded or problems:
            raise PlanRefused([*([self._unfunded] if self._unfunded else []), *problems])
        self._carving.set_aside(self.team)
        self._plan_number += 1
        self._graph = graph = await self._make_plan(f"plan:{self._plan_number}", make)
        bound = bind(graph, self.team)
        problems = plan_problems(graph, self.team, bound)
        if problems:
            raise PlanRefused(problems)
        self._set_up(graph, bound)
        self._move(RunState.PLAN_READY)
        self.emit(events.PlanReady, tuple(task.id for task in graph.tasks))
        return graph

    async def _make_plan(self, key: str, make: Callable[[], Awaitable[TaskGraph] | TaskGraph]) -> TaskGraph:
        """Get the plan, and record what it cost: a replay asks nobody and books the same."""
        before = self.governor.usage
        replaying = self._services.journal.get(key, _MISSING) is not _MISSING
        self._recorded = TaskRecords(self._services.journal, self._plan_number, replaying=replaying)
        try:
            graph: TaskGraph = await self.step(key, lambda: self._ask_planner(make), returns=TaskGraph)
        finally:
            self._carving.close_purpose(PLAN)
        spent = difference(self.governor.usage, before, 0.0)
        if spent != Usage():
            self._services.journal.put(f"{key}:usage", spent)
        else:
            recorded = self._services.journal.get(f"{key}:usage", None)
            self.governor.restore(cast("Usage", recorded or Usage()))
        return graph

    async def _ask_planner(self, make: Callable[[], Awaitable[TaskGraph] | TaskGraph]) -> TaskGraph:
        made = make()
        if not inspect.isawaitable(made):
            return made
        graph: TaskGraph = await self._leashes.hold(made, "the planner", lambda: False)
        return graph

    def _set_up(self, graph: TaskGraph, bound: Mapping[str, tuple[str, ...]]) -> None:
        members = self.team.members
        board = TaskBoard(graph, self._recorded.bound(bound), {member.id: member.concurrency for member in members})
        self._workers = {member.id: Worker.of(member) for member in members}
        self._dispatcher = Dispatcher(board, self._carving.members, self.config, self.emit, self._recorded)
        self._records = self._dispatcher.records

    def context(self, purpose: str) -> WorkContext:
        """Return governed models for work that is no attempt: "plan" and "evaluate" have their share of the budget."""
        governor = self._carving.purpose(purpose)
        return WorkContext(self._services, governor, Role(purpose), step=purpose, task_id=None, member=None)

    # ------------------------------------------------------------------ tasks

    def ready(self, graph: TaskGraph) -> AsyncIterator[Task]:
        """Iterate over tasks as their needs, a slot, a member and budget are there, until all have ended."""
        if self._dispatcher is None or graph is not self._graph:
            raise Misuse("plan first: `ready` takes the graph that `plan` returned")
        self._move(RunState.RUNNING)
        return self._dispatcher

    def go(self, body: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run the body of a ready task (one of `args`) beside the others; a body that raises fails its task."""
        for task in args:
            if isinstance(task, Task) and self._runners is not None:
                self._runners.add(partial(self._run_body, self._record(task), body, args))
                return
        raise Misuse("`go` takes a body and its arguments, one of which is the task that `ready` gave")

    async def _run_body(self, record: TaskRecord, body: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await body(*args)
        except Exception as error:
            _logger.exception("the coordinator's body of task %r raised", record.task.id)
            problem = f"the coordinator raised {type(error).__name__}: {error}"
        else:
            if record.ended:
                return
            problem = "the coordinator's body returned without accepting, failing or skipping it"
        if not record.ended:
            self._end(record, FAILED, problem)

    async def attempt(
        self,
        task: Task,
        number: int,
        *,
        artifact_number: int = 1,
        previous: Artifact | None = None,
        findings: Sequence[Finding] = (),
    ) -> Attempt:
        """Let the task's member try; never raises but for cancellation. Recorded.

        `number` counts every try of the task from 1. `artifact_number` is which artifact is asked for; on a revision
        `previous` is the last one and `findings` what a review wants changed.
        """
        record, dispatcher = self._record(task), self._dispatcher
        member, governor = record.member, record.governor
        assert dispatcher is not None
        assert member is not None, "a task has its member from dispatch on"
        assert governor is not None
        record.move(GENERATING)
        record.attempts += 1
        self.emit(events.AttemptStarted, task.id, member, number)
        key = self._recorded.attempt_key(task.id, number)
        attempt: Attempt | Any = self._services.journal.get(key, _MISSING) if self._recorded.replaying else _MISSING
        if attempt is _MISSING:
            assignment = self._assignment(task, artifact_number, previous, findings)
            if record.leased != member:
                await dispatcher.lease(record, member)
            worker = self._workers[member]
            record.context = context = self._attempt_context(record, worker, governor, key)
            timeout = task.timeout if task.timeout is not None else self.config.task_timeout
            try:
                attempt = await run_attempt(worker, assignment, context, number, timeout, self._timeouts, self._leashes)
            finally:
                dispatcher.release_lease(record)
            self._services.journal.put(key, attempt)
        else:
            governor.restore(difference(attempt.usage, record.usage, 0.0))
        self._take_over(record, attempt)
        return attempt

    def _attempt_context(self, record: TaskRecord, worker: Worker, governor: Governor, key: str) -> WorkContext:
        task, member = record.task, worker.member
        # by position: keywords cost as much as all the rest of it
        context = WorkContext(self._services, governor, member.role, key, task.id, member.id, record.usage)
        if task.output_type is not None:
            context.output_type = self.team.output_types[task.output_type]
        return context

    def _take_over(self, record: TaskRecord, attempt: Attempt) -> None:
        """Book what an attempt brought."""
        record.usage, record.warnings = attempt.usage, record.warnings + attempt.warnings
        record.context = None
        record.artifact = attempt.artifact or record.artifact
        record.for_halt = attempt.halt is not None
        if attempt.halt is not None:
            self.emit(events.BudgetHalted, record.task.id, record.member, attempt.halt.value, attempt.origin)
        status = attempt.output.status if attempt.output else "failed"
        self.emit(
            events.AttemptFinished, record.task.id, record.member, attempt.number, status, attempt.usage, attempt.error
        )

    def _assignment(
        self, task: Task, number: int, previous: Artifact | None, findings: Sequence[Finding]
    ) -> Assignment:
        upstream = upstream_of(task, self._records) if task.depends_on else {}
        request = self.request
        return _make_assignment(
            task, request.goal, task.inputs, request.context, upstream, number, previous, tuple(findings)
        )

    async def review(
        self, task: Task, attempt: Attempt, evaluator: Any, *, prior: Sequence[EvaluationVerdict] = ()
    ) -> EvaluationVerdict:
        """Have an attempt's artifact reviewed; never raises but for cancellation, always a verdict. Recorded."""
        record = self._record(task)
        record.move(TaskState.EVALUATING)
        self.emit(events.EvaluationStarted, task.id, record.member, attempt.number)
        key = f"review:{self._plan_number}:{task.id}:{attempt.number}"
        verdict: EvaluationVerdict = await self.step(key, lambda: self._judge(task, attempt, evaluator, prior))
        record.verdict = verdict
        self.emit(events.EvaluationResult, task.id, record.member, attempt.number, verdict)
        return verdict

    async def _judge(
        self, task: Task, attempt: Attempt, evaluator: Any, prior: Sequence[EvaluationVerdict]
    ) -> EvaluationVerdict:
        if attempt.artifact is None:
            raise Misuse(f"attempt {attempt.number} of task {task.id!r} made no artifact: there is nothing to review")
        upstream = upstream_of(task, self._records)
        context = EvaluationContext(
            task, attempt.artifact, len(prior) + 1, tuple(prior), self.request.goal, upstream, self.config
        )
        return await review_artifact(evaluator, context, self.config.review_timeout, self._leashes)

    async def top_up(self, task: Task, attempt: Attempt) -> bool:
        """Set more aside for a task whose attempt ran short; say whether another try makes sense. Recorded.

        Waits while others may give something back. Done at most as often as the budget policy says.
        """
        record, dispatcher, halt = self._record(task), self._dispatcher, attempt.halt
        if dispatcher is None or halt is None or record.top_ups >= self.config.budget_policy.top_ups:
            return False
        record.top_ups += 1
        key = f"top_up:{self._plan_number}:{task.id}:{attempt.number}"
        return await self.step(key, lambda: dispatcher.top_up(record, halt, attempt.origin), returns=bool)

    async def pause(self, seconds: float) -> None:
        """Wait inside a task's body without holding its slot, as between two tries."""
        assert self._dispatcher is not None
        await self._dispatcher.pause(seconds)

    # ------------------------------------------------------------------ ends

    def accept(self, task: Task, attempt: Attempt, verdict: EvaluationVerdict | None = None) -> None:
        """Accept an attempt's artifact; without a PASS that shows in verdict, warning and status."""
        record = self._record(task)
        record.artifact, record.verdict = attempt.artifact, verdict
        if verdict is not None and verdict.outcome is not VerdictOutcome.PASS:
            record.warnings += (f"accepted without a PASS: {verdict.cause or verdict.outcome.value}",)
        outcome = verdict.outcome.value if verdict else None
        self._end(record, COMPLETED, None, verdict=outcome)

    def fail(
        self,
        task: Task,
        error: str,
        *,
        best: Attempt | None = None,
        verdict: EvaluationVerdict | None = None,
    ) -> None:
        """End a task that cannot be accepted; its best artifact so far comes back with it."""
        record = self._record(task)
        record.artifact = best.artifact if best is not None and best.artifact is not None else record.artifact
        record.verdict = verdict or record.verdict
        self._end(record, FAILED, error)

    def skip(self, task: Task, reason: str) -> None:
        """End a task without trying it."""
        self._end(self._record(task), TaskState.SKIPPED, reason)

    def _end(self, record: TaskRecord, to: TaskState, reason: str | None, *, verdict: str | None = None) -> None:
        assert self._dispatcher is not None
        if to is FAILED and self.governor.stopped in _CUT_SHORT:
            to = TaskState.CANCELLED
        self._dispatcher.end(record, to, reason, verdict=verdict)

    def _record(self, task: Task) -> TaskRecord:
        try:
            return self._records[task.id]
        except KeyError:
            raise Misuse(f"task {task.id!r} is not in this run's plan") from None


_CUT_SHORT: Final = frozenset({HaltReason.CANCELLED, HaltReason.TIME_BUDGET_EXCEEDED})
"""Halts of the team that end a task in flight CANCELLED, not FAILED."""
