"""`TeamRun`: one execution of a request, from planning to its result. Every coordinator uses it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, overload

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from kairo_team import events
from kairo_team._util.clock import LoopClock
from kairo_team._util.frozen import EMPTY, check_kind
from kairo_team._util.threads import poster
from kairo_team.artifacts import Artifact, Finding
from kairo_team.budget import Budget, to_picodollars
from kairo_team.engine.live.enforced_end import CallSupervisor
from kairo_team.engine.live.event_bus import Around, Bus, ModelTally
from kairo_team.engine.live.task_pool import TaskPool, background, in_turn
from kairo_team.engine.plan.growth import Growth
from kairo_team.engine.plan.planning import RunPlan, make_step, planned_task
from kairo_team.engine.plan.preflight import able_members
from kairo_team.engine.records.digests import digests_of, executed
from kairo_team.engine.records.earlier_calls import EarlierCalls, SentCall, describe_doubts
from kairo_team.engine.records.journal import Places, Served, enter_body, within
from kairo_team.engine.records.plan_records import MISSING, TRACE, recorded_budget, recorded_end, without_secrets
from kairo_team.engine.records.questions import Inbox, Questions
from kairo_team.engine.records.run_scope import RunScope
from kairo_team.engine.records.suspension import EarlierSessions, Suspension
from kairo_team.engine.run.attempts import Asked, AttemptRunner
from kairo_team.engine.run.ending import LAST_EVENT, RunEnd, finish, log_end, record_end
from kairo_team.engine.tasks.dispatcher import Dispatcher
from kairo_team.engine.tasks.member_budgets import BudgetSplit, open_run_governor, until
from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks
from kairo_team.engine.tasks.task_run import COMPLETED, FAILED, RunState, TaskRun, TaskState, check_move, task_run_here
from kairo_team.engine.work.constraints import ENDED_EARLY
from kairo_team.engine.work.run_services import interruptible, open_services
from kairo_team.engine.work.runtime import ContentMode, Runtime, bind_runtime, runtime_of
from kairo_team.engine.work.steering import Steering
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import Interrupted, JournalError, Misuse, TeamAborted, known
from kairo_team.human import HumanDecision, HumanRequest
from kairo_team.plugin_calls import failure_of, problem_of, tidy_block
from kairo_team.prompts import Prompts
from kairo_team.results import Attempt, RepeatWrites, TaskOutcome, TeamResult, TeamStatus
from kairo_team.tasks import Task, TaskGraph
from kairo_team.team import Team, TeamExecutionRequest, role_of, root_budget
from kairo_team.tools.tool import Tool, as_tool
from kairo_team.verdicts import EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import HumanGate, Records, RunJournal
    from kairo_team.engine.records.run_handle import Run

_logger = logging.getLogger("kairo_team")
T = TypeVar("T")


class TeamRun:
    """One execution of a request, for authors of coordinators.

    Open it with `TeamRun.open`, which makes it. In the block make a plan, take the ready tasks, and start a body for
    each with `go`: it makes an attempt, has it reviewed, and accepts, fails or skips the task. However the block ends,
    `result` can be read afterwards; before, it raises `Misuse`. Here `work(run, task)` is such a body:

    >>> async with kt.TeamRun.open(request, team) as run:
    ...     async for task in run.ready(await run.plan(request.plan)): run.go(work, run, task)
    """

    def __init__(
        self,
        request: TeamExecutionRequest,
        team: Team,
        runtime: Runtime,
        handle: Run,
        journal: Records,
        *,
        tolerate_failures: bool,
        prompts: Prompts,
        gate: HumanGate | None,
    ) -> None:
        earlier = handle.suspension
        self.request = request
        self.team = team
        self.config = request.config
        self.clock = LoopClock()
        self._templates = runtime.templates
        self.journal = journal
        spent = None if earlier is None else earlier.usage
        budget = recorded_budget(self.journal, root_budget(self.config), None if earlier is None else earlier.budget)
        budget = until(self.config.deadline_at, budget, spent)
        self.governor, refused = open_run_governor(runtime.governor, team.name, budget, self.clock, spent)
        outer = runtime.outer_attempt
        self._within = (None, None) if outer is None else (runtime.within, outer.task_id)
        """Ids of the run around this one, and of its task that contains this run."""
        self._kept = cast("RunJournal", journal) if journal.durable else None
        """The journal, if it outlives the process."""
        tally = ModelTally(earlier.by_model if earlier else EMPTY, None if outer is None else outer.note_calls)
        self.bus = handle.open_bus(runtime.subscribers, runtime.masker if runtime.secrets else None, tally)
        self._runs = runtime.runs
        content = self._be_kept(runtime.content) or self.bus.for_readers()
        self._masker = runtime.masker
        self.emit: Callable[..., object] = self.bus.emit
        """Emit an event: takes its class and its own fields in order; run id, number and time are filled in."""
        self._supervisor = CallSupervisor(self.clock.read, min(self.config.cancel_grace, runtime.grace))
        self._scope = scope = self._open_scope()
        self._handle = handle
        self._earlier = EarlierSessions(self.governor, earlier)
        self._questions = Questions(scope, gate, earlier.inbox if earlier else Inbox())
        self._steering = Steering(scope, refused)
        self._services = open_services(
            scope, runtime, prompts, self._questions, self._steering, kill=self.cancel, warn=self.warn
        )
        self._services.on_journal_error = self.stop_unrecorded
        self._services.earlier_calls = earlier.calls if earlier else None
        self._services.content = content
        self._budgets = BudgetSplit(self.governor, self.config.budget_policy, self.emit, self._earlier, self.journal)
        self._history: list[str] = [RunState.SUSPENDED if earlier else RunState.IDLE]
        self._ending, self.tolerate_failures = RunEnd(tolerate_failures=tolerate_failures), tolerate_failures
        self._plan = RunPlan(
            scope,
            self._budgets,
            self._services,
            self._earlier,
            refused=refused,
            end_early=self._end_early,
            warn=self.warn,
            on_new_plan=self.bus.forget_earlier_ends,
            on_growth=self._emit_growth,
        )
        self._dispatcher: Dispatcher | None = None
        self._attempts: AttemptRunner | None = None
        self._task_runs: Mapping[str, TaskRun] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._pool: TaskPool | None = None
        self._places = Places()
        self._in_doubt: Sequence[SentCall] = ()
        """The calls that were under way when the session was interrupted."""
        self._result: TeamResult | None = None

    def _open_scope(self) -> RunScope:
        return RunScope(
            self.request,
            self.team,
            self.config,
            self.governor,
            self.journal,
            self._kept,
            self.clock.read,
            self.clock.read(),
            recorded_end(self.journal),
            self.emit,
            self.bus.begin,
            self.bus.tally,
            self._supervisor,
        )

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
        gate: HumanGate | None = None,
    ) -> AsyncGenerator[TeamRun]:
        """Open a run: its governor, deadline and first event; on leaving the block, its result and last event.

        Whatever the block raises becomes a FAILED result, except the caller's own cancellation, which is raised again
        once everything in flight has ended. With `tolerate_failures` a task that was not accepted makes the run
        DEGRADED instead of FAILED. `templates` replace prompt templates by name, before the runtime's. `gate` asks
        people; None takes the runtime's, if it has one. Raises `RunExists` for a run id that was used before.
        """
        check_kind("TeamRun.open: the request", request, TeamExecutionRequest)
        team = bind_runtime(team)
        runtime = runtime_of(team)
        handle = runtime.enter(request.run_id)
        run: TeamRun | None = None
        try:
            earlier = handle.suspension
            journal = await runtime.open_journal(request, team) if earlier is None else earlier.journal
            run = cls(
                request,
                team,
                runtime,
                handle,
                journal,
                tolerate_failures=tolerate_failures,
                prompts=Prompts({**runtime.templates, **templates}) if templates else runtime.prompts,
                gate=gate or runtime.gate,
            )
            handle.begin(run)
            async with run.bus.pumping(min(run.config.cancel_grace, runtime.grace)):
                try:
                    with run._ending.watching():
                        around = run._begin()
                        if run._kept is not None and run._services.is_left:
                            run.interrupt("the run around it was left before this one began")
                        async with (
                            interruptible(run.governor),
                            background(run._supervisor.watch, *run._services.watches) as run._services.start_soon,
                            anyio.create_task_group() as group,
                            tidy_block(),  # the task group would take a stray cancellation for its own
                        ):
                            run._group, run._pool = group, TaskPool(group, run._run_body)
                            with around, run._services.tracebacks.here():
                                yield run
                            await checkpoint_if_cancelled()  # a halt in the block may have hidden it
                finally:
                    run._finish()
                    if run._kept is not None and run._result is not None:
                        run._result = await record_end(run._kept, run._result)
                        run._served.end()
        finally:
            handle.end(None if run is None else run._result)
            runtime.forget(handle, None if run is None else run.governor)

    def _be_kept(self, content: ContentMode) -> Bus | None:
        """Serve this session from a journal that outlives the process; return the bus if it takes content."""
        everybody = self.bus if content == "events" else None
        if self._kept is None:
            return everybody
        post = self._post = poster()

        def lose(error: JournalError) -> None:
            with suppress(RuntimeError):  # the event loop is gone, and the run with it
                post(lambda: self.stop_unrecorded(error))

        served = self._served = Served(lambda: (self.governor.elapsed, self.bus.seq), self.cancel, lose, self, post)
        # A journal of a package may have no requests.
        take_requests: Callable[..., object] | None = getattr(self._kept, "take_requests", None)
        if take_requests is not None:
            take_requests(served.obey)
        taker = self._kept.serve(served.progress, served.cancel, served.lose)
        if taker is not None and content == "journal":
            self.bus.keep_content(taker)
            return self.bus
        if taker is not None:
            self.bus.keep(taker)
        return everybody

    def _begin(self) -> Around:
        recorded = self.bus.seq > 0 or bool(self.journal.records)  # else it was recorded in order to begin here
        resumed = self._history[0] == RunState.SUSPENDED and recorded
        self._move(RunState.PLANNING)
        limits = self.governor.budget
        paid = None if limits.dollars is None else to_picodollars(limits.dollars)
        members = tuple(member.id for member in self.team.members)
        about = (self.team.name, self.request.goal, members, limits.tokens, paid, *self._within)
        trace = self.journal.get(TRACE, None)
        first = (events.TeamResumed, *about, trace, self._earlier.ended) if resumed else (events.TeamStarted, *about)
        around = self._scope.begin(*first)
        if trace is None and (trace := self.bus.traceparent()) is not None:
            self.journal.put(TRACE, trace)
        return around

    def _finish(self) -> None:
        """End every task, decide the status and emit it. Nothing is awaited, so nothing happens in between."""
        if self._kept is not None and self._ending.caller_cancelled:  # by Ctrl-C or a timeout: the run can resume
            if self._services.is_over:
                self._questions.withdraw("the attempt around its run has ended")
            self._services.under_way.leave_in_doubt(self._kept)
            self._leave(self._kept, "the caller was cancelled")
        calls = self._services.earlier_calls
        # Steps of the coordinator, such as planning, may have made other calls than before the run was cut.
        if calls is not None and self.governor.stopped is None and self._ending.error is None:
            for step in calls.open_steps():
                self._services.check_repeated(step, None, None)
        doubts = describe_doubts([*self._in_doubt, *self._services.cut_calls], "the run was interrupted")
        noticed = (*self._supervisor.warnings, *self._services.warnings, *doubts)
        reached = (None, None) if self._plan.is_outdated else (self._dispatcher, self._plan.graph)
        result = finish(self._scope, self._ending, *reached, noticed, self._earlier)
        if result.status is not TeamStatus.SUSPENDED:
            self._questions.withdraw(f"its run has ended: {result.status}")
        self._handle.suspension = self._suspension(result) if result.status is TeamStatus.SUSPENDED else None
        self._result = result = self._masker.value(result)
        log_end(result, self.team.name)
        self._move(RunState(result.status))
        kind = events.TeamInterrupted if self.bus.closed else LAST_EVENT[result.status]
        self.bus.closed = False
        self.emit(kind, result.status, result.duration, result.usage, result.error)
        self.bus.closed = True

    def stop_unrecorded(self, error: JournalError) -> None:
        """End the run as FAILED, because its next steps could not be recorded."""
        self._ending.error = self._ending.error or error
        self._ending.aborted = True
        if self._group is not None:
            self._group.cancel_scope.cancel()

    def _record_end(self, task_run: TaskRun) -> None:
        self.journal.put(f"outcome:{task_run.task.id}", without_secrets(task_run.outcome()))

    def _suspension(self, result: TeamResult) -> Suspension:
        """Return everything that the run resumes from."""
        return Suspension(
            request=self.request,
            digests=digests_of(self.team, self._templates, executed()),
            journal=self.journal,
            usage=self.governor.usage,
            budget=self.governor.budget,
            seq=self.bus.seq + 1,
            inbox=self._questions.inbox,
            outcomes={outcome.task_id: outcome for outcome in result.outcomes},
            plan=result.plan,
            spent_by=self._budgets.spent_by,
            spent_on={outcome.task_id: outcome.usage for outcome in result.outcomes},
            by_model=dict(self.bus.tally.used),
            calls=EarlierCalls(self.request.run_id, self.journal.records),
        )

    def _end_early(self) -> None:
        """End the run where the recorded one was cut short, if it was."""
        early = self._scope.early_end
        if early is None:
            return
        self._ending.recall(early)
        if early.halt is not None:
            self.governor.cancel(early.halt)
        elif self._group is not None:
            self._group.cancel_scope.cancel()

    def _end_loop(self) -> None:
        """End the loop where the recorded run ended, once no task can start, unless that run added tasks later."""
        if self._scope.early_end is not None and not self._plan.grows_further:
            self._end_early()

    def _move(self, to: RunState) -> None:
        check_move(self.request.run_id, self._history, to)

    def cancel(self, reason: str = "the run was cancelled") -> None:
        """Kill the run: interrupt work in flight and keep its partial output. From any thread."""
        self._ending.reason = self._ending.reason or reason
        self.governor.cancel()

    def interrupt(self, reason: str) -> None:
        """End this session and leave the run as it is in its journal, to be resumed. From any thread."""
        if self._kept is None:
            raise Misuse(f"run {self.request.run_id!r} has no journal on disk to resume from: cancel it")
        # Where a subscriber asks, what its event says is recorded right after the event.
        if self.bus.is_delivering or self._runs.is_telling_in(self.request.run_id):
            self._post(partial(self.interrupt, reason))
            return
        for inside in self._runs.sessions_in(self.request.run_id):
            inside.interrupt(reason)
        self._leave(self._kept, reason)
        self.cancel(reason)

    def _leave(self, kept: RunJournal, reason: str) -> None:
        """Record and emit nothing more: the next session continues from the journal. From any thread."""
        if not self.bus.closed:
            self._in_doubt = self._services.under_way.in_doubt()
            # If an attempt around this run has ended, no session follows, so the end is emitted.
            self.bus.closed = not self._services.is_over
            kept.interrupt(reason)

    def abort(self, reason: str, failed: Task | None = None) -> None:
        """End the run as FAILED, interrupting work in flight; not if `failed` was cancelled meanwhile."""
        if failed is not None and self._task_run(failed).state is not FAILED:
            return
        ended = self._ending.aborted or self._ending.concluded is not None
        if ended or self._scope.early_end is not None:  # the run reaches that end by itself
            return
        self._ending.error = self._ending.error or TeamAborted(reason)
        self._ending.aborted = True
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def conclude(self, reason: str) -> NoReturn:
        """End the run here, for a coordinator that needs nothing more, such as a decided debate. Recorded.

        Tasks that have not started are SKIPPED with the reason, tasks in flight are cancelled, and neither counts
        against the run: it is COMPLETED or DEGRADED by what was accepted, and FAILED only if nothing was, or a task had
        failed before. Code after this call in the block or body does not run: accept the task, and set `output`,
        before.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"conclude takes a reason in words, not {reason!r}")
        if self._scope.early_end is not None:  # tasks that had ended by then end first
            dispatcher, task_run = self._dispatcher, task_run_here()
            if dispatcher is None:
                self._end_early()
            else:
                if task_run is not None and task_run.in_flight:
                    dispatcher.park(task_run)
                dispatcher.conclude()
        elif not self._ending.aborted:
            self._ending.concluded = self._ending.concluded or reason
            if self._dispatcher is not None:
                self._dispatcher.stop()
            if self._group is not None:
                self._group.cancel_scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError("the end interrupts it")

    @property
    def result(self) -> TeamResult:
        """The result of the run, available once the block was left."""
        if self._result is None:
            raise Misuse("the run has not ended: read its result after the `async with` block")
        return self._result

    @property
    def output(self) -> Artifact | None:
        """The output that replaces what the plan's last tasks made; set a text or an artifact."""
        return self._ending.output

    @output.setter
    def output(self, value: Artifact | str) -> None:
        made = Artifact(value) if isinstance(value, str) else value
        check_kind("TeamRun.output", made, Artifact)
        self._ending.output = made

    @property
    def graph(self) -> TaskGraph | None:
        """The current plan; None before there is one."""
        return self._plan.graph

    @property
    def gated(self) -> bool:
        """Whether a person can be asked, or has answered."""
        return self._questions.can_ask

    def warn(self, text: str) -> None:
        """Put a warning into the result and the log."""
        self._ending.warnings.append(text)
        _logger.warning("run %s: %s", self.request.run_id, text)

    def degrade(self, warning: str, *, partial: Artifact | None = None) -> None:
        """Continue with less than was requested: the run ends DEGRADED at best, with this warning.

        With `partial` the run has no output, and this artifact as its partial output.
        """
        self._ending.degraded = self._ending.degraded or warning
        self._ending.partial = self._ending.partial or partial
        self.warn(warning)

    # ------------------------------------------------------------------ from outside

    def cancel_task(self, task_id: str, reason: str = "the task was cancelled") -> None:
        """End one task; see `Run.cancel_task`."""
        self._services.call(self._steering.cancel_task, task_id, reason)

    def steer(self, directive: str, task_id: str | None = None, by: str = "") -> None:
        """Give a directive to one task or to all; see `Run.steer`."""
        self._services.call(self._steering.steer, directive, task_id, by)

    def top_up_run(self, budget: Budget, by: str = "") -> None:
        """Raise the run's limits; see `Run.top_up`."""
        self._services.call(self._steering.top_up, budget, by)

    # ------------------------------------------------------------------ recorded steps

    @overload
    async def step(
        self, key: str, make: Callable[[], Awaitable[T]], *, returns: Any = ..., planning: bool = ...
    ) -> T: ...
    @overload
    async def step(self, key: str, make: Callable[[], T], *, returns: Any = None, planning: bool = False) -> T: ...
    async def step(self, key: str, make: Callable[[], Any], *, returns: Any = None, planning: bool = False) -> Any:
        """Return what was recorded under `key`, else make it and record it.

        Call this for whatever a coordinator learns from outside (attempts and reviews are recorded anyway), so that
        running its code again on the records decides the same. `returns`: the type the value must have. With
        `planning`, usage of `context("plan")` is recorded with the value, as it is by `add`.
        """
        if planning:
            return await self._plan.decide(
                key, task_run_here(), self._dispatcher, partial(make_step, key, make, returns)
            )
        recorded = self.journal.get(key, MISSING)
        if recorded is not MISSING:
            return recorded
        task_run = None if self._scope.early_end is None else task_run_here()
        if task_run is not None and task_run.in_flight and self._dispatcher is not None:
            await self._dispatcher.wait_for_end(task_run)  # the recorded run ended before that, or in it
        with within(key):
            made = await make_step(key, make, returns)
        self.journal.put(key, made)
        return made

    async def ask(self, question: HumanRequest) -> HumanDecision | None:
        """Ask the run's human gate; None without a gate, or without an answer. Recorded.

        The task gives its slot back meanwhile. A deferred question ends the task's body, or for a plan the whole block,
        by `Interrupted`, which must not be caught: the run ends SUSPENDED when all other work is done.
        """
        if question.task_id is None:
            key = f"human:{self._plan.number}:plan"
            await self._plan.reach(key)
            decision = await self._questions.ask(key, question)
            if decision is not None and decision.action == "defer":
                self._ending.question = question
                raise Interrupted("the plan waits for a person")
            return decision
        if self._plan.graph is None:
            raise Misuse(f"there is no task {question.task_id!r}: plan first")
        task_run = self._task_run(self._plan.graph[question.task_id])
        key = task_run.records.key("human", question.task_id, question.attempt) + f":{question.kind}"
        assert self._dispatcher is not None
        task_run.recall_cancel(key)
        if task_run.interrupted is None:
            decision = await self._dispatcher.wait_for(task_run, key, self._questions.ask, key, question)
            if task_run.interrupted is None and (decision is None or decision.action != "defer"):
                return decision
            if isinstance(task_run.interrupted, str):  # the decision may be recorded nevertheless
                task_run.records.put_cancelled_in(key, task_run.interrupted)
            task_run.interrupted = task_run.interrupted or question
        raise Interrupted(str(task_run.interrupted))

    # ------------------------------------------------------------------ planning

    async def plan(self, make: Callable[[], Awaitable[TaskGraph] | TaskGraph] | TaskGraph) -> TaskGraph:
        """Take or make the plan, check it and bind it. Recorded.

        `make` is the plan, or a function that makes it. Raises `PlanRefused`, with every problem, before any work. May
        be called again until the first task is taken: then the new plan counts.
        """
        await checkpoint()
        if self._history[-1] != RunState.PLANNING:
            self._move(RunState.PLANNING)
        graph, bound = await self._plan.make(make)
        steps = self._plan.recorded
        bound = bound if steps.is_new else steps.bound(bound)
        board = ReadyTasks(graph, bound, {one.id: one.concurrency for one in self.team.everyone})
        self._dispatcher = Dispatcher(board, self._budgets.members, self.config, self.emit, steps, self._earlier)
        self._task_runs = self._dispatcher.tasks
        self._dispatcher.on_ending = self._questions.withdraw_of_task
        if self._kept is not None:
            self._dispatcher.on_ended = self._record_end
        self._steering.dispatcher = self._dispatcher
        Growth(self.team, self.governor, self._plan, self._dispatcher)
        self._attempts = AttemptRunner(
            self._scope,
            self._services,
            self._dispatcher,
            self._steering,
            self._budgets,
            self._earlier,
            self._plan,
        )
        self._move(RunState.PLAN_READY)
        self._emit_plan(graph, board)
        return graph

    async def replan(
        self, failing: Task, make: Callable[[TaskGraph], Awaitable[TaskGraph] | TaskGraph]
    ) -> TaskGraph | None:
        """Replace the tasks that have not started by a new plan, once per run, because a task is about to fail.

        `make` gets the part of the plan that stays and returns it with new tasks, under ids of their own. The new plan
        is checked and bound like the first, and recorded. Returns the whole plan. Returns None if there was a new plan
        already, or the new one cannot be run: then everything stays as it is, and the result has a warning.
        """
        assert self._dispatcher is not None
        graph = await self._plan.replan(self._task_run(failing), self._dispatcher, make)
        if graph is not None:
            self._emit_plan(graph, self._dispatcher.board)
        return graph

    async def add(self, make: Callable[[], Awaitable[Sequence[Task]] | Sequence[Task]]) -> TaskGraph:
        """Add tasks to the plan during the run, after those it has, and return the whole plan. Recorded.

        `make` returns new tasks, under ids of their own, which may depend on any task of the plan. They are checked and
        bound like a plan: `PlanRefused` lists the problems, and nothing is added. In the body of a task, call it before
        that task ends; in the block itself, between two loops over `ready`.
        """
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise Misuse("plan first: `add` adds tasks to a plan")
        task_run = task_run_here()
        if task_run is not None and not task_run.in_flight:
            raise Misuse(f"task {task_run.task.id!r} is {task_run.state}: add tasks before it ends")
        return await self._plan.add(task_run, dispatcher, make)

    def _emit_plan(self, graph: TaskGraph, board: ReadyTasks) -> None:
        """Emit the current plan."""
        if self.bus.heard:
            planned = tuple(map(planned_task, graph.tasks, (board.entries[task.id].candidates for task in graph.tasks)))
            self.emit(events.PlanReady, tuple(task.id for task in graph.tasks), planned)
        else:
            self.emit(events.PlanReady, ())

    def _emit_growth(self, by: str | None, added: Sequence[Entry]) -> None:
        """Emit the tasks that were added to the plan."""
        planned = (planned_task(entry.task, entry.candidates) for entry in added) if self.bus.heard else ()
        self.emit(events.PlanGrew, by, tuple(planned))

    def context(self, purpose: str) -> WorkContext:
        """Return governed models for work outside attempts: "plan" and "evaluate" have their share of the budget."""
        governor, step = self._budgets.purpose(purpose), self._places.name(purpose)
        return WorkContext(self._services, governor, role_of(purpose), step=step, task_id=None, member=None)

    # ------------------------------------------------------------------ tasks

    def ready(self, graph: TaskGraph) -> AsyncIterator[Task]:
        """Iterate over tasks as their needs, a slot, a member and budget become available, until all have ended.

        Tasks that `add` adds meanwhile are included; after the end, iterate again over the plan that it returns.
        """
        if self._dispatcher is None or graph is not self._plan.graph:
            raise Misuse("plan first: `ready` takes the graph that `plan`, or `add`, returned last")
        if self._history[-1] != RunState.RUNNING:
            self._move(RunState.RUNNING)
            if not self._plan.recorded.is_new:
                self._plan.hold_back(self._dispatcher)
            self._dispatcher.on_end = self._end_loop
        return self._dispatcher

    def go(self, body: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run the body of a ready task (one of `args`) in the background; a body that raises fails its task."""
        for task in args:
            if isinstance(task, Task) and self._pool is not None:
                given = cast("Task", task)  # type: ignore[redundant-cast]  # pyright needs it
                self._pool.add(self._task_run(given), body, args)
                return
        raise Misuse("`go` takes a body and its arguments, one of which is the task that `ready` gave")

    async def _run_body(self, task_run: TaskRun, body: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        enter_body(task_run)
        try:
            work = body(*args)
            if not isawaitable(work):
                raise Misuse(f"`go` takes an async function: write async def {getattr(body, '__name__', 'work')}(...)")
            await work
        except Interrupted as interrupted:
            problem = str(interrupted)
        except BaseException as raised:
            error = failure_of(raised)
            if error is None:
                raise
            _logger.exception("the coordinator's body of task %r raised", task_run.task.id)
            problem, task_run.exception = f"the coordinator raised {problem_of(error, None)}", error
        else:
            if task_run.ended:
                return
            problem = "the coordinator's body returned without accepting, failing or skipping it"
        if task_run.in_flight:
            self._end(task_run, FAILED, problem)

    def attempt(
        self,
        task: Task,
        number: int,
        *,
        artifact_number: int = 1,
        previous: Artifact | None = None,
        findings: Sequence[Finding] = (),
        tools: Sequence[Tool | Callable[..., Any]] = (),
        repeat_writes: RepeatWrites = "ask",
    ) -> Coroutine[Any, Any, Attempt]:
        """Let the task's member make an attempt; raises nothing but cancellation. Recorded.

        `number` counts every attempt at the task from 1. `artifact_number` says which artifact is requested; on a
        revision `previous` is the last one and `findings` are what a review wants changed. `tools` are offered to the
        member for this attempt, besides its own: typed functions, or a `Tool`, which may end the attempt (`Tool.ends`).
        The role's `allowed_tools` do not apply to them. A tool must be a function of its arguments alone: a recorded
        attempt does not call it again, and a coordinator reads `Attempt.ended_by`. `repeat_writes` is that of
        `FailurePolicy`, for attempts at the same artifact. Raises `ValueError` for anything that is not a tool.
        """
        assert self._attempts is not None, "a task comes from `ready`"
        asked = Asked(artifact_number, previous, findings, tuple(map(as_tool, tools)), repeat_writes)
        task_run = self._task_run(task)
        make = partial(self._attempts.attempt, task_run, number, asked)
        return in_turn(make) if task_run.attempts else make()

    def review(
        self, task: Task, attempt: Attempt, evaluator: Any, *, prior: Sequence[EvaluationVerdict] = ()
    ) -> Coroutine[Any, Any, EvaluationVerdict]:
        """Have an attempt's artifact reviewed; always returns a verdict. Recorded.

        Raises only cancellation, and `Interrupted`, which must not be caught, if the task was cancelled meanwhile.
        """
        assert self._attempts is not None, "a task comes from `ready`"
        return self._attempts.review(self._task_run(task), attempt, evaluator, prior)

    async def top_up(self, task: Task, attempt: Attempt) -> bool:
        """Set more budget aside for a task whose attempt ran short; return whether another try makes sense. Recorded.

        Waits while other tasks may give budget back. The budget policy limits how often this is done.
        """
        task_run, dispatcher, halt = self._task_run(task), self._dispatcher, attempt.halt
        if dispatcher is None or halt is None or task_run.top_ups >= self.config.budget_policy.top_ups:
            return False
        task_run.top_ups += 1
        key = task_run.records.key("top_up", task.id, attempt.number)
        if task_run.records.ended_before(key):
            await dispatcher.wait_for_end(task_run)
        return await self.step(key, lambda: dispatcher.top_up(task_run, halt, attempt.origin_path), returns=bool)

    async def is_over(self, task: Task) -> bool:
        """Return whether the team has no budget for another try, or a constraint forbids one. Recorded."""
        key = self._task_run(task).records.key("over", task.id, self._task_run(task).attempts)
        constraints = self._services.constraints
        exiting = constraints is not None and constraints.exit is not None
        return await self.step(key, lambda: exiting or self.governor.halted is not None)

    def member(self, task: Task) -> str | None:
        """Return the id of the member that has a task now; None before it started."""
        return self._task_run(task).member

    def others(self, task: Task) -> tuple[str, ...]:
        """Return the other members that may do a task, in the team's order."""
        return tuple(name for name in able_members(task, self.team) if name != self.member(task))

    async def hand_over(self, task: Task, member: str) -> bool:
        """Give a task to another member; False if that member cannot pay for the task. Recorded."""
        assert self._dispatcher is not None
        if member not in (able := [one.id for one in self.team.everyone]):
            raise Misuse(f"task {task.id!r} cannot be handed over to {member!r}: the team has {known(able)}")
        return self._dispatcher.hand_over(self._task_run(task), member)

    def give_back(self, task: Task) -> None:
        """Give back what a task that will not be attempted again has not spent; its end would give it back too."""
        assert self._dispatcher is not None
        self._dispatcher.give_back(self._task_run(task))

    async def pause(self, task: Task, seconds: float) -> None:
        """Wait inside a task's body without its slot, as between two tries; not if the next one is recorded."""
        task_run = self._task_run(task)
        assert self._dispatcher is not None
        following = task_run.records.key("attempt", task.id, task_run.attempts + 1)
        if task_run.interrupted is None and task_run.records.recall(following) is MISSING:
            if task_run.records.early_end is not None:
                await self._dispatcher.wait_for_end(task_run)
            await self._dispatcher.pause(task_run, seconds)

    # ------------------------------------------------------------------ ends

    def accept(
        self, task: Task, attempt: Attempt, verdict: EvaluationVerdict | None = None, *, by: str | None = None
    ) -> None:
        """Accept an attempt's artifact; a missing PASS shows in verdict, warning and status. `by`: who accepted it."""
        check_kind("accept: the attempt", attempt, Attempt)
        check_kind("accept: the verdict", verdict, EvaluationVerdict, or_none=True)
        task_run, output = self._task_run(task), attempt.output
        task_run.artifact, task_run.verdict = None if output is None else output.artifact, verdict
        told = any(warning.startswith(ENDED_EARLY) for warning in attempt.warnings)
        if output is not None and output.artifact.partial and not told:
            why = f": {output.error}" if output.error else ""
            task_run.warnings += (f"the accepted work was cut short{why}",)
        if verdict is not None and verdict.outcome is not VerdictOutcome.PASS:
            reviewer = f" by {by}" if by else ""
            task_run.warnings += (f"accepted{reviewer} without a PASS: {verdict.cause or verdict.outcome.value}",)
        self._end(task_run, COMPLETED, None, verdict=verdict.outcome.value if verdict else None)

    def fail(
        self, task: Task, error: str, *, best: Attempt | None = None, verdict: EvaluationVerdict | None = None
    ) -> None:
        """End a task that cannot be accepted; its best artifact so far comes back with it."""
        task_run = self._task_run(task)
        task_run.artifact = best.artifact if best is not None and best.artifact is not None else task_run.artifact
        task_run.verdict = verdict or task_run.verdict
        self._end(task_run, FAILED, error)

    def skip(self, task: Task, reason: str) -> None:
        """End a task without trying it."""
        self._end(self._task_run(task), TaskState.SKIPPED, reason)

    def outcome(self, task: Task) -> TaskOutcome | None:
        """Return how a task ended; None if it has not, or waits for a person."""
        task_run = self._task_run(task)
        return task_run.outcome() if task_run.ended else None

    def _end(self, task_run: TaskRun, to: TaskState, reason: str | None, *, verdict: str | None = None) -> None:
        """End a task as `to`, or as the person wants who interrupted it."""
        dispatcher = self._dispatcher
        assert dispatcher is not None
        if not task_run.records.is_new:
            if task_run.records.is_called_off(task_run.task.id):  # the recorded run was concluded before that
                dispatcher.park(task_run)
                return
            task_run.recall_cancel()
        if isinstance(task_run.interrupted, HumanRequest):
            dispatcher.suspend(task_run, self._questions.inbox.waits_for(task_run.interrupted))
            return
        if to is not COMPLETED or task_run.interrupted is not None:
            to, reason = task_run.real_end(to, reason, self.governor.final)
        if not task_run.attempts:
            task_run.records.put_untried(task_run.task.id)
        dispatcher.end(task_run, to, reason, verdict=verdict)
        if self._steering.watches:
            self._steering.warn_of_budget()

    def _task_run(self, task: Task) -> TaskRun:
        try:
            return self._task_runs[task.id]
        except (AttributeError, KeyError):
            check_kind("the task", task, Task)
            raise Misuse(f"task {task.id!r} is not in this run's plan") from None
