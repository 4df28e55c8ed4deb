"""Attempts at tasks and reviews of their artifacts, under budget and deadline; every end of them has a value."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import anyio

from kairo_team import events
from kairo_team._util.counts import in_seconds
from kairo_team._util.frozen import maker, trusted
from kairo_team.artifacts import Artifact, Finding, artifact_of, artifact_of_returned
from kairo_team.budget import NO_USAGE, HaltReason, Usage, difference
from kairo_team.conditions import Unreadable
from kairo_team.engine.live.enforced_end import BLOCKING, CallSupervisor, ScopeStopper
from kairo_team.engine.live.function_agent import FunctionAgent
from kairo_team.engine.plan.growth import upstream_of
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.engine.records.plan_records import MISSING, Cancellation, CutShort
from kairo_team.engine.tasks.member_budgets import EVALUATE, BudgetSplit
from kairo_team.engine.tasks.task_run import GENERATING, TaskRun, TaskState
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import (
    BadOutput,
    ConstraintExit,
    GuardrailDenied,
    HaltError,
    InsufficientBudget,
    Interrupted,
    InvalidReply,
    KairoError,
    Misuse,
    TurnEnded,
    UnpricedModel,
    innermost,
    is_met_again,
    kinds_of,
)
from kairo_team.files import File, unique
from kairo_team.governance.halts import DIMENSION_OF, reason_of
from kairo_team.human import HumanRequest
from kairo_team.output_types import check_output
from kairo_team.plugin_calls import Tracebacks, failure_of, problem_of, shown
from kairo_team.results import AgentOutput, AgentStatus, Attempt, RepeatWrites, plain_output
from kairo_team.tasks import Assignment, Task
from kairo_team.team import Member, Role, output_type_of
from kairo_team.tools.made_calls import MadeCall
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.engine.live.event_bus import Around
    from kairo_team.engine.plan.planning import RunPlan
    from kairo_team.engine.records.run_scope import RunScope
    from kairo_team.engine.records.suspension import EarlierSessions
    from kairo_team.engine.tasks.dispatcher import Dispatcher
    from kairo_team.engine.work.run_services import RunServices
    from kairo_team.engine.work.steering import Steering
    from kairo_team.governance.governor import Governor
    from kairo_team.tools.tool import Tool

_logger = logging.getLogger("kairo_team")

_make_assignment: Final = maker(Assignment)
"""Makes an assignment from values that were checked before."""

_make_context: Final = maker(EvaluationContext)

_NOTHING: Final = ()

_REVIEWER: Final = trusted(Role)(EVALUATE)


class Asked(NamedTuple):
    """What a coordinator requests of an attempt; see `TeamRun.attempt`."""

    artifact_number: int
    previous: Artifact | None
    findings: Sequence[Finding]
    tools: tuple[Tool, ...]
    repeat_writes: RepeatWrites


class AttemptRunner:
    """Makes the attempts and reviews of one run."""

    def __init__(
        self,
        scope: RunScope,
        services: RunServices,
        dispatcher: Dispatcher,
        steering: Steering,
        budgets: BudgetSplit,
        earlier: EarlierSessions,
        plan: RunPlan,
    ) -> None:
        self._plan = plan
        self._request = scope.request
        self._config = scope.config
        self._team = scope.team
        self._services = services
        self._emit = scope.emit
        self._begin = scope.begin
        self._dispatcher = dispatcher
        self._steering = steering
        self._budgets = budgets
        self._earlier = earlier
        self._clock = scope.clock
        self._supervisor = scope.supervisor
        dispatcher.on_cut_attempt = self._emit_cut_attempt
        budgets.on_return = partial(dispatcher.changed, budget=True)
        self._workers = {member.id: Worker.of(member) for member in scope.team.everyone}

    async def attempt(self, task_run: TaskRun, number: int, asked: Asked) -> Attempt:
        """Have the task's member make an attempt; see `TeamRun.attempt`."""
        task, member, records = task_run.task, task_run.member, task_run.records
        assert member is not None, "a task has its member from dispatch on"
        key = records.key("attempt", task.id, number)
        attempt: Any = records.recall(key)
        # The recorded run ended before this attempt, so this one stops here too.
        if attempt is MISSING and records.early_end is not None:
            await self._dispatcher.wait_for_end(task_run)
        task_run.move(GENERATING)
        task_run.ask_for(asked.artifact_number)
        task_run.attempts += 1
        # The first attempt needs no start: the whole usage of the task is its own.
        task_run.open_attempt = (number, self._clock() if task_run.attempts > 1 else None)
        around = self._begin(events.AttemptStarted, task.id, member, number)
        if attempt is not MISSING:
            attempt = await self._take_recorded(task_run, key, attempt)
        if attempt is MISSING:
            try:
                if task_run.interrupted is None and task_run.leased != member:
                    await self._dispatcher.lease(task_run, member)
                if task_run.interrupted is None:
                    attempt = await self._run(task_run, key, number, asked, around)
                    if task_run.before is not None:
                        attempt = attempt._replace(usage=task_run.before + attempt.usage)
                else:
                    spent = task_run.cut_short().usage
                    attempt = cancelled_attempt(task.id, number, member, task_run.interrupted, spent)
            except Exception:
                raise
            except BaseException:
                # Only a cancellation comes here: a resumed run books what the attempt had spent by then.
                records.put(key, task_run.cut_short())
                raise
            finally:
                # Reviews and pauses come next, and other tasks may use the member meanwhile.
                self._dispatcher.release_lease(task_run)
            # The masked attempt, as a resumed run will read it.
            attempt = records.put(key, attempt)
            if task_run.governor is not None and (inside := task_run.governor.inside):
                # The accounts below the task cannot be derived from the attempt, and a resumed run shows them.
                records.put(f"below:{key}", inside)
        else:
            self._dispatcher.release_lease(task_run)
        made: Attempt = attempt
        self._take_over(task_run, made)
        return made

    def _run(
        self, task_run: TaskRun, key: str, number: int, asked: Asked, around: Around
    ) -> Coroutine[Any, Any, Attempt]:
        task, worker, governor = task_run.task, self._workers[task_run.member or ""], task_run.account
        seen = self._directives_in_prompt(task_run, key) if self._steering.directives else 0
        assignment = self._assignment(task_run, asked, seen)
        spent = task_run.usage if task_run.before is None else difference(task_run.usage, task_run.before, 0.0)
        # Passed by position, because keywords are slow.
        context = WorkContext(self._services, governor, worker.member.role, key, task.id, worker.member.id, spent)
        task_run.context, context.readers = context, task_run.entry.readers
        if task.output_type is not None:
            context.output_type = output_type_of(self._team, task)
        context.directives_seen, context.around, context.offered = seen, around, asked.tools
        context.done = assignment.done
        context.foreign = context.foreign or task.id in self._plan.foreign
        timeout = task.timeout if task.timeout is not None else self._config.task_timeout
        if self._services.engine is not None:
            return self._services.engine.attempt(self._team, assignment, context, number, timeout)
        return run_attempt(worker, assignment, context, number, timeout, self._supervisor)

    def _directives_in_prompt(self, task_run: TaskRun, key: str) -> int:
        """Return how many directives the prompt has: in a repeated attempt, as many as at first."""
        records, seen = task_run.records, len(self._steering.directives)
        if records.recall(key) is not MISSING:
            before: int = 0 if (found := records.recall(f"told:{key}")) is MISSING else found
            return before
        records.put(f"told:{key}", seen)
        return seen

    def _assignment(self, task_run: TaskRun, asked: Asked, seen: int) -> Assignment:
        task, request = task_run.task, self._request
        upstream = upstream_of(task_run, self._dispatcher.tasks)
        directives = self._steering.directives_for(task.id, until=seen) if seen else _NOTHING
        given = task if task.reference is None else replace(task, reference=None)  # the reference is for reviews alone
        number, previous, findings, done = asked.artifact_number, asked.previous, tuple(asked.findings), task_run.done
        if done and asked.repeat_writes == "allow":
            done = tuple(replace(call, asks=False) for call in done)
        about = (given, request.goal, task.inputs, request.context, upstream)
        met = tuple(one.expected or one.criterion or one.id for one in findings if one.status == "met")
        findings = tuple(one for one in findings if one.status != "met") if met else findings
        return _make_assignment(*about, number, previous, findings, directives, done, met, self._files(task))

    def _files(self, task: Task) -> tuple[File, ...]:
        """Return the files of the request and of a task."""
        given = self._request.files
        return unique([*given, *task.files]) if given or task.files else ()

    async def _take_recorded(self, task_run: TaskRun, key: str, recorded: Attempt | CutShort) -> Any:
        """Book a recorded attempt and return it; `MISSING` if it can be repeated now, after an interruption."""
        governor, over = task_run.governor, task_run.records.early_end is not None
        assert governor is not None
        spent = difference(recorded.usage, task_run.usage, 0.0)
        repeats = not over and self._can_repeat(task_run, recorded)
        if not repeats and recorded.member != task_run.member:
            text = (
                f"{recorded.member!r} made this attempt before the run was interrupted, and the coordinator gives it "
                f"to {task_run.member!r} now; the recorded one counts. Decide from what is recorded (TeamRun.step), "
                "not hash()"
            )
            task_run.warnings += (text,)
            _logger.warning("run %s: %s", self._request.run_id, text)
        if repeats and task_run.interrupted is None:
            if isinstance(recorded, Attempt):
                self._services.begin_again(key, recorded, spent)
            self._earlier.book_again(governor, spent, task_run.member, task_run.entry.shared)
        else:
            self._earlier.book(governor, spent, task_run.member, task_run.entry.shared)
        if not repeats and (inside := task_run.records.recall(f"below:{key}")) is not MISSING:
            governor.graft(inside)
        outer = self._services.outer_attempt
        if outer is not None and not repeats and isinstance(recorded, Attempt) and recorded.calls:
            outer.made_calls.add(map(MadeCall, recorded.calls))
        if isinstance(recorded, CutShort) and over:  # the task stays as it was when the recorded run ended
            task_run.artifact = task_run.artifact or recorded.artifact
            await self._dispatcher.wait_for_end(task_run)
        return MISSING if repeats else recorded

    def _can_repeat(self, task_run: TaskRun, recorded: Attempt | CutShort) -> bool:
        """Return whether an interrupted attempt can be repeated: its question is answered, or its run continues."""
        if isinstance(recorded, CutShort):
            return True
        question = recorded.interrupted
        if not isinstance(question, HumanRequest) or task_run.interrupted is not None:
            return False
        return task_run.records.cancelled(task_run.task.id) is None and self._services.is_answered(question)

    def _take_over(self, task_run: TaskRun, attempt: Attempt) -> None:
        """Book the results of an attempt."""
        own, output = self._own_usage(task_run, attempt.usage), attempt.output
        task_run.open_attempt = None
        task_run.usage, task_run.warnings = attempt.usage, task_run.warnings + attempt.warnings
        task_run.done += attempt.calls
        task_run.exception = None if task_run.context is None or attempt.error is None else task_run.context.raised
        task_run.context = None
        task_run.artifact = task_run.artifact if output is None else output.artifact
        task_run.for_halt = attempt.halt is not None
        task_run.interrupted = task_run.interrupted or attempt.interrupted
        if attempt.halt is not None:
            self._emit(events.BudgetHalted, task_run.task.id, task_run.member, attempt.halt.value, attempt.origin)
        self._services.withdraw_questions(attempt)
        number, status = attempt.number, "failed" if output is None else output.status
        if isinstance(attempt.interrupted, HumanRequest):
            status = "suspended"
        if output is not None and self._services.content is not None:
            self._services.report_content(
                "artifact", "", number, output.artifact, task_id=task_run.task.id, member=task_run.member
            )
        self._emit(events.AttemptFinished, task_run.task.id, task_run.member, number, status, own, attempt.error)

    def _emit_cut_attempt(self, task_run: TaskRun, number: int, reason: str | None) -> None:
        """Emit the end of an attempt that the end of its task cuts short."""
        own, status = self._own_usage(task_run, task_run.cut_short().usage), AgentStatus.HALTED.value
        self._emit(events.AttemptFinished, task_run.task.id, task_run.member, number, status, own, reason)

    def _own_usage(self, task_run: TaskRun, spent: Usage) -> Usage:
        """Return this attempt's part of `spent`: all for the first, for a later one what was spent since it began."""
        began = None if task_run.open_attempt is None else task_run.open_attempt[1]
        return spent if began is None else difference(spent, task_run.usage, self._clock() - began)

    # ------------------------------------------------------------------ reviews

    async def review(
        self, task_run: TaskRun, attempt: Attempt, evaluator: Any, prior: Sequence[EvaluationVerdict]
    ) -> EvaluationVerdict:
        """Have an attempt's artifact reviewed; see `TeamRun.review`."""
        task, records = task_run.task, task_run.records
        task_run.move(TaskState.EVALUATING)
        began = self._clock()
        around = self._begin(events.EvaluationStarted, task.id, task_run.member, attempt.number)
        key = records.key("review", task.id, attempt.number)
        verdict: Any = records.recall(key)
        if verdict is MISSING or isinstance(verdict, CutShort):
            if records.early_end is not None:
                await self._dispatcher.wait_for_end(task_run)
            account = self._review_account(task_run, evaluator)
            work = None if account is None else WorkContext(self._services, account, _REVIEWER, key, task.id, None)
            if account is not None and isinstance(verdict, CutShort):
                self._earlier.book(account, verdict.usage)
            try:
                with around:
                    verdict = await self._judge(task_run, attempt, evaluator, prior, work)
            except Exception:
                raise
            except BaseException:
                # A resumed run repeats the review, and counts its loops and seconds then.
                spent = NO_USAGE if account is None else replace(account.usage, seconds=0.0, loops=0)
                records.put(key, CutShort(task_run.member or "", spent, None))
                raise
            verdict = records.put(key, verdict)
        elif isinstance(verdict, EvaluationVerdict):  # booked on the same account as when it was made
            account = self._review_account(task_run, evaluator)
            if account is not None:
                self._earlier.book(account, verdict.usage)
                account.close()
        if isinstance(verdict, Cancellation):
            task_run.interrupted = verdict.reason
            raise Interrupted(verdict.reason)
        task_run.verdict = verdict
        duration = self._clock() - began
        self._emit(events.EvaluationResult, task.id, task_run.member, attempt.number, verdict, duration)
        made: EvaluationVerdict = verdict
        return made

    async def _judge(
        self,
        task_run: TaskRun,
        attempt: Attempt,
        evaluator: Any,
        prior: Sequence[EvaluationVerdict],
        work: WorkContext | None,
    ) -> EvaluationVerdict | Cancellation:
        """Call the evaluator, and close the account of a review that has one of its own."""
        task, account = task_run.task, None if work is None else work.governor
        if attempt.output is None:
            raise Misuse(f"attempt {attempt.number} of task {task.id!r} made no artifact: there is nothing to review")
        given = upstream_of(task_run, self._dispatcher.tasks), self._config, work
        about = (attempt.output.artifact, len(prior) + 1, tuple(prior), self._request.goal, *given)
        context = _make_context(task, *about, attempt.output.transcript, self._files(task), attempt.usage)
        try:
            if task_run.interrupted is None:
                timeout, tracebacks = self._config.review_timeout, self._services.tracebacks
                verdict = await review_artifact(evaluator, context, timeout, self._supervisor, task_run, tracebacks)
                task_run.wait = None
                if task_run.interrupted is None:
                    if verdict.outcome is not VerdictOutcome.REVIEW_EXCEEDED:
                        key = task_run.records.key("review", task.id, attempt.number)
                        self._services.check_repeated(key, task.id, None)
                    return verdict if account is None else replace(verdict, usage=replace(account.usage, seconds=0.0))
        finally:
            if account is not None:
                account.close()
        return Cancellation(str(task_run.interrupted))

    def _review_account(self, task_run: TaskRun, evaluator: Any) -> Governor | None:
        """Return a new account for a review; None for an evaluator that is known to call no model."""
        models = getattr(evaluator, "models", None)
        if models is not None and not models:
            return None
        # An evaluator may not report what it spent, and others spend from the share at the same time.
        share = self._budgets.purpose(EVALUATE, set_aside=bool(models))
        # Even of a used-up share: the first call finds out.
        return share.carve_share(task_run.task.id, None, 0.0, 0.0)[0]


Invoke = Callable[["Assignment", "WorkContext"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Worker:
    """A member made ready to be called."""

    member: Member
    invoke: Invoke
    own_loop: bool
    """Whether the agent counts its loops itself."""

    @classmethod
    def of(cls, member: Member) -> Worker:
        """Prepare a member: a bare function becomes an agent."""
        if not hasattr(member.agent, "run"):
            return cls(member, FunctionAgent(member.agent).invoke, own_loop=False)
        return cls(member, member.agent.run, bool(getattr(member.agent, "own_loop", False)))


_make_artifact: Final = maker(Artifact)
"""Makes an artifact from a text that is known to be one."""

_make_output: Final = maker(AgentOutput)


async def run_attempt(
    worker: Worker,
    assignment: Assignment,
    context: WorkContext,
    number: int,
    timeout: float | None,
    supervisor: CallSupervisor,
) -> Attempt:
    """Call the agent and turn every end except cancellation into an `Attempt`; `timeout` is in seconds."""
    governor, constraints, name = context.governor, context.constraints, worker.member.id
    timeouts, clock = supervisor.timeouts, supervisor.timeouts.clock
    raw: Any = None
    failed: type[BaseException] = InvalidReply
    took = 0.0
    try:
        if not worker.own_loop:
            governor.pre_step()
        with context.around, governor.scope() as scope:
            began = clock()
            context.scope = scope
            if constraints is None:
                raw, rest = supervisor.begin(worker.invoke(assignment, context), name, scope)
                took = clock() - began
                if took > BLOCKING:
                    supervisor.note_blocking(name, took)
            else:
                rest = constraints.around(
                    lambda: supervisor.run(worker.invoke(assignment, context), name, scope), supervisor
                )
            if rest is not None:
                if timeout is not None:
                    timeouts.start(scope, timeout, began)
                raw = await rest
                took = clock() - began
        late = timeout is not None and took > timeout  # it could not be cancelled while it blocked the event loop
        if scope.cancelled or late:  # its result is late
            if context.interrupted is not None:
                return interrupted_attempt(context, number)
            raise TimedOut(timeout or 0.0)
        end = _judge_output(context, _as_output(raw, name, context))
        context.services.check_repeated(context.step, context.task_id, context.member)
    except BaseException as raised:
        error = failure_of(raised)
        if error is None:  # every other end of an attempt has a value
            raise
        cause = _cause(context, timeout, error)
        context.raised = None if isinstance(cause, TurnEnded) else cause
        end, failed = _explain_failure(context, cause), type(cause)
    return _attempt_of(context, number, end, failed)


def _attempt_of(context: WorkContext, number: int, end: _End, failed: type[BaseException]) -> Attempt:
    constraints = context.constraints
    warnings = () if constraints is None else constraints.warnings
    output, error, halt, (origin, path), final = end
    by = None if error is None else context.interrupted  # the agent may have failed during its own cancellation
    kinds = () if error is None else kinds_of(failed)
    over = constraints is not None and constraints.exiting and error is not None
    last = None if context.turn_ended is None or error is not None else context.turn_ended.call
    task_id, member = cast("str", context.task_id), cast("str", context.member)  # an attempt has both
    usage, final = context.governor.usage, final or over
    made = (task_id, number, member, output, error, halt, origin, final, usage)
    return Attempt(*made, warnings, by, kinds, over, last, context.calls_made, path)


def failed_attempt(context: WorkContext, number: int, error: Exception) -> Attempt:
    """Describe an attempt that ended with an error; what the member kept is its partial artifact."""
    cause = innermost(error)
    return _attempt_of(context, number, _explain_failure(context, cause), type(cause))


def interrupted_attempt(context: WorkContext, number: int) -> Attempt:
    """Describe an attempt whose work was interrupted from outside; see `WorkContext.interrupt`."""
    by = context.interrupted
    assert by is not None
    assert context.task_id is not None
    kept, usage = context.partial(AgentStatus.HALTED), context.governor.usage
    return cancelled_attempt(context.task_id, number, context.member or "", by, usage, kept)


def read_again(context: WorkContext, attempt: Attempt) -> Attempt:
    """Let the plan read the artifact of an attempt that was made elsewhere; fail the attempt if it cannot."""
    output = attempt.output
    if output is None or attempt.error is not None:
        return attempt
    try:
        for read in context.readers if attempt.ended_by is None else ():
            read(output.artifact)
    except Unreadable as error:
        origin, final = (attempt.origin, attempt.origin_path), attempt.halt is not None
        end = _End(_as_partial(output), output.error or str(error), attempt.halt, origin, final)
        return _attempt_of(context, attempt.number, end, InvalidReply)
    return attempt


def _cause(context: WorkContext, timeout: float | None, error: Exception) -> Exception:
    """Return why the attempt failed: its timeout, even if the agent turned its cancellation into another error."""
    cause, scope = innermost(error), context.scope
    late = scope is not None and scope.cancelled and context.interrupted is None
    return TimedOut(timeout or 0.0) if late and not isinstance(cause, HaltError | InsufficientBudget) else cause


def cancelled_attempt(
    task_id: str,
    number: int,
    member: str,
    by: str | HumanRequest,
    usage: Usage,
    output: AgentOutput | None = None,
) -> Attempt:
    """Describe an attempt that was ended from outside, or never begun for that reason."""
    error = by if isinstance(by, str) else f"waits for a person: {by.text}"
    return Attempt(task_id, number, member, output, error, final=True, usage=usage, interrupted=by)


class TimedOut(KairoError, TimeoutError):
    """The attempt reached its own deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {in_seconds(seconds)}")


def _as_output(raw: Any, member: str, context: WorkContext) -> AgentOutput:
    if type(raw) is str:
        raw = _make_artifact(raw)
    if type(raw) is Artifact:
        if context.turns:
            return context.output(raw)
        tokens, dollars, _, tool_calls = context.governor.spent
        return context.output(raw) if tokens or dollars or tool_calls else _make_output(raw)
    if isinstance(raw, AgentOutput):
        return plain_output(cast("AgentOutput", raw), member)  # type: ignore[redundant-cast]  # pyright needs it
    return _as_output(artifact_of_returned(raw, member), member, context)


_Origin = tuple[str | None, str | None]
"""Name and path of the governor that halted."""

_NOBODY: Final[_Origin] = (None, None)


class _End(NamedTuple):
    """How an attempt ended: the fields of `Attempt` from `output` to `final`, with the origin's path."""

    output: AgentOutput | None
    error: str | None = None
    halt: HaltReason | None = None
    origin: _Origin = _NOBODY
    final: bool = False


def _failed(
    context: WorkContext,
    error: str,
    halt: HaltReason | None = None,
    origin: _Origin = _NOBODY,
    *,
    status: AgentStatus = AgentStatus.GRACEFUL_EXIT,
    final: bool = False,
) -> _End:
    """Describe a failed attempt; what the member kept is its partial artifact."""
    status = AgentStatus.HALTED if halt else status
    return _End(context.partial(status, error), error, halt, origin, final or halt is not None)


def _explain_failure(context: WorkContext, error: Exception) -> _End:
    """Describe an attempt that ended with an exception."""
    if isinstance(error, TurnEnded) and context.interrupted is None:
        usage = context.usage
        kept = _make_artifact(context.kept)
        output = _make_output(kept, AgentStatus.COMPLETED, context.turns, None, usage.tool_calls, usage)
        end = _judge_output(context, output)
        context.services.check_repeated(context.step, context.task_id, context.member)
        return end
    reason, origin, path = reason_of(error), getattr(error, "origin", None), getattr(error, "path", "")
    if reason is not None and type(origin) is str and type(path) is str:  # else it only looks like a halt
        governor = context.governor
        path = path or (governor.path if origin == governor.name else "")  # made by hand: no path
        why = _why_halted(context, reason, str(error)) if isinstance(error, HaltError) else str(error)
        return _failed(context, why, reason, (origin, path))
    if isinstance(error, TimedOut | InvalidReply | BadOutput | UnpricedModel):
        return _failed(context, str(error), final=isinstance(error, BadOutput | UnpricedModel))
    denied = error if isinstance(error, GuardrailDenied) else context.denied
    if denied is not None:  # however the agent passed it on
        return _failed(context, str(denied), status=AgentStatus.BLOCKED, final=True)
    constraints = context.constraints
    if constraints is not None and constraints.refusal is not None:  # however the agent passed it on
        kept = Artifact(context.kept, partial=True)
        return _judge_text(context, context.output(kept, AgentStatus.GRACEFUL_EXIT, str(constraints.refusal)))
    if isinstance(error, KairoError):
        _logger.debug("an attempt at task %r failed", context.task_id, exc_info=error)
    else:
        context.services.tracebacks.log(f"member {context.member!r}", f"on task {context.task_id!r}", error)
    last = context.unanswered
    why = f"{type(error).__name__}: {last}" if last is not None and error is last.__cause__ else problem_of(error, None)
    return _failed(context, why, final=isinstance(error, ConstraintExit) or is_met_again(error, last))


def _in_force(governor: Governor) -> _Origin:
    """Return which halt stops a governor: its own, or one of a governor above."""
    try:
        governor.can_proceed()
    except HaltError as halt:
        return halt.origin, halt.path
    return governor.name, governor.path


_COMPLETED: Final = AgentStatus.COMPLETED

_NEVER_REVIEWED = {AgentStatus.HALTED: "was halted", AgentStatus.BLOCKED: "was blocked by a guardrail"}


def _judge_output(context: WorkContext, output: AgentOutput) -> _End:
    """Decide whether an output can be reviewed."""
    governor = context.governor
    stopped = governor.stopped
    if stopped is not None:
        why = _why_halted(context, stopped, f"halted: {stopped.value}")
        return _End(_as_partial(output), why, stopped, _in_force(governor), final=True)
    if output.status is not _COMPLETED and output.status in _NEVER_REVIEWED:
        error = output.error or f"the agent {_NEVER_REVIEWED[output.status]}"
        halt = governor.halted if output.status is AgentStatus.HALTED else None
        return _End(_as_partial(output), error, halt, _in_force(governor) if halt else _NOBODY, final=True)
    constraints = context.constraints
    if constraints is not None and constraints.refusal is not None and output.status is _COMPLETED:
        output = replace(output, status=AgentStatus.GRACEFUL_EXIT, error=output.error or str(constraints.refusal))
    return _judge_text(context, output)


def _judge_text(context: WorkContext, output: AgentOutput) -> _End:
    """Decide whether an output can be reviewed, by its artifact."""
    turn_ended = context.turn_ended
    if turn_ended is not None:  # however the agent passed it on; its traceback would keep the frames alive
        output = _ended_turn(output, turn_ended.with_traceback(None))
    artifact = output.artifact
    if output.status is AgentStatus.TURN_LIMIT_REACHED:
        most = "" if output.max_turns is None else f" of {output.max_turns}"
        why = f" ({output.error})" if output.error else ""
        turns = "turn" if output.max_turns is None and output.turns_completed == 1 else "turns"
        reached = f"the agent reached its turn limit: {output.turns_completed}{most} {turns}{why}"
        output = replace(output, error=reached)
    if not artifact.text.strip() and artifact.data is None and not artifact.files:
        return _End(None, output.error or "the agent returned an empty text")
    output = _with_text(output)
    if output.status is not _COMPLETED:
        output = _as_partial(output)
    halt, origin = _halt_of_partial(context.governor, output)
    not_answered = turn_ended is not None and not turn_ended.answers
    if not_answered or (context.output_type is None and not context.readers):
        return _End(output, None, halt, origin)
    try:
        if context.output_type is not None:
            data = check_output(context.output_type, output.artifact)
            if context.output_type is not str:  # a text stays text; other types are kept as JSON values
                output = replace(output, artifact=replace(output.artifact, data=data))
        for read in context.readers:
            read(output.artifact)
    except (InvalidReply, Unreadable) as error:
        return _End(_as_partial(output), output.error or str(error), halt, origin, halt is not None)
    return _End(output, None, halt, origin)


def _halt_of_partial(governor: Governor, output: AgentOutput) -> tuple[HaltReason | None, _Origin]:
    """Return which budget ended an agent that returned what it had so far, and the governor with that limit."""
    halt = output.halt if output.status is AgentStatus.GRACEFUL_EXIT else None
    if halt is None:
        return None, _NOBODY
    dimension = DIMENSION_OF.get(halt)
    known = dimension is not None and getattr(governor.remaining, dimension) is not None
    return halt, governor.scarcest(dimension) if dimension is not None and known else _in_force(governor)


def _ended_turn(output: AgentOutput, ended: TurnEnded) -> AgentOutput:
    """Return the output of an attempt that a tool ended."""
    written = output.artifact
    text = ended.written(written.text)
    if text == written.text and output.status is _COMPLETED and not written.partial:
        return output
    artifact = _make_artifact(text) if text != written.text or written.partial else written
    counts = (output.turns_completed, output.max_turns, output.tool_calls_executed)
    return _make_output(artifact, _COMPLETED, *counts, output.usage, output.transcript)


def _why_halted(context: WorkContext, reason: HaltReason, otherwise: str) -> str:
    """Name the constraint, if one stopped the attempt."""
    by = context.constraints.stopped_by if context.constraints is not None else None
    return f"emergency stop by {by}" if by is not None and reason is HaltReason.EMERGENCY_STOP else otherwise


def _as_partial(output: AgentOutput) -> AgentOutput:
    return output if output.artifact.partial else replace(output, artifact=replace(output.artifact, partial=True))


def _with_text(output: AgentOutput) -> AgentOutput:
    """Give an artifact of data alone its JSON as text: evaluators and members after it read the text."""
    artifact = output.artifact
    if artifact.data is None or artifact.text.strip():
        return output
    written = artifact_of(artifact.data, fallback=shown)
    return replace(output, artifact=replace(artifact, text=written.text, media_type=written.media_type))


async def review_artifact(
    evaluator: Any,
    context: EvaluationContext,
    timeout: float | None,
    supervisor: CallSupervisor,
    task_run: TaskRun,
    tracebacks: Tracebacks,
) -> EvaluationVerdict:
    """Call the evaluator; map a crash, a hang, an exhausted budget or nonsense to REVIEW_EXCEEDED with its cause.

    `timeout` is in seconds. Raises nothing except cancellation. Cancelling `task_run.wait` ends the review early.
    Criteria are frozen at the task's first review: an evaluator whose criteria have changed is an `evaluator_error`,
    and is not called.
    """
    name = type(evaluator).__name__
    verdict: object = None
    late = False
    try:
        if (changed := _changed_criteria(evaluator, task_run)) is not None:
            return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {changed}")
        with anyio.move_on_after(timeout) as scope:
            task_run.wait = within = ScopeStopper(scope)
            verdict = await supervisor.run(evaluator.evaluate(context), name, within)
            late = anyio.current_time() > scope.deadline  # it could not be cancelled while it blocked the event loop
    except (HaltError, InsufficientBudget) as short:
        return EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short))
    except BaseException as raised:
        error = failure_of(raised)
        if error is None:
            raise
        task_run.exception = error
        tracebacks.log(f"the evaluator {name}", f"on task {context.task.id!r}", error)
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {problem_of(error, None)}")
    if scope.cancel_called or late:  # a verdict is late even if one was returned
        return EvaluationVerdict.review_exceeded(
            Cause.EVALUATOR_TIMEOUT, f"{name} took longer than {in_seconds(timeout or 0)}"
        )
    if not isinstance(verdict, EvaluationVerdict):
        problem = f"{name} returned {shown(verdict)} instead of an EvaluationVerdict"
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, problem)
    return verdict


def _changed_criteria(evaluator: Any, task_run: TaskRun) -> str | None:
    """Return a warning if an evaluator's criteria have changed since the task's first review, else None."""
    now = criteria_digest(evaluator)
    first = task_run.criteria = task_run.criteria or now
    if now is None or now == first:
        return None
    return (
        f"its criteria changed since the first review of task {task_run.task.id!r}, from digest {first:.8} to "
        f"{now:.8}; they are frozen when a task starts, so give the new ones to another task"
    )
