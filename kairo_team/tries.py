"""Tries and reviews of tasks: on a lease, under the task's budget, recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team import events
from kairo_team.attempts import Attempt, Worker, cancelled_attempt, run_attempt
from kairo_team.budget import Usage, difference
from kairo_team.carving import EVALUATE
from kairo_team.errors import Interrupted, Misuse
from kairo_team.frozen import EMPTY, maker
from kairo_team.human import HumanRequest
from kairo_team.recorded import MISSING, CutShort, TaskCancelled
from kairo_team.results import AgentStatus
from kairo_team.reviews import review_artifact
from kairo_team.states import GENERATING, TaskState
from kairo_team.task_record import upstream_of
from kairo_team.tasks import Assignment
from kairo_team.team import Role
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict
from kairo_team.work_context import WorkContext

if TYPE_CHECKING:
    from kairo_team.carving import Carving, Earlier
    from kairo_team.dispatch import Dispatcher
    from kairo_team.governance.governor import Governor
    from kairo_team.leash import Leashes
    from kairo_team.planning import Planning
    from kairo_team.results import Artifact
    from kairo_team.services import Services
    from kairo_team.steering import Steering
    from kairo_team.task_record import TaskRecord
    from kairo_team.team import Team, TeamExecutionRequest
    from kairo_team.timeouts import Timeouts
    from kairo_team.verdicts import Finding

_make_assignment: Final = maker(Assignment)
"""Makes an assignment of values that were checked before."""

_make_context: Final = maker(EvaluationContext)

_NOTHING: Final = ()

_REVIEWER: Final = Role(EVALUATE)


class Tries:
    """Makes the attempts and reviews of one run."""

    def __init__(
        self,
        request: TeamExecutionRequest,
        team: Team,
        services: Services,
        dispatcher: Dispatcher,
        steering: Steering,
        carving: Carving,
        earlier: Earlier,
        emit: Callable[..., None],
        timeouts: Timeouts,
        leashes: Leashes,
        planning: Planning,
    ) -> None:
        self._planning = planning
        self._request = request
        self._config = request.config
        self._team = team
        self._services = services
        self._emit = emit
        self._dispatcher = dispatcher
        self._steering = steering
        self._carving = carving
        self._earlier = earlier
        self._timeouts = timeouts
        self._leashes = leashes
        dispatcher.on_cut = self._tell_cut
        self._workers = {member.id: Worker.of(member) for member in team.everyone}

    async def attempt(
        self,
        record: TaskRecord,
        number: int,
        artifact_number: int,
        previous: Artifact | None,
        findings: Sequence[Finding],
    ) -> Attempt:
        """Let the task's member try; see `TeamRun.attempt`."""
        task, member, steps = record.task, record.member, record.steps
        assert member is not None, "a task has its member from dispatch on"
        key = steps.key("attempt", task.id, number)
        if steps.early_end is not None:
            await self._dispatcher.reach(record, key)
        record.move(GENERATING)
        record.attempts += 1
        record.trying = (number, self._timeouts.clock() if record.attempts > 1 else None)
        self._emit(events.AttemptStarted, task.id, member, number)
        attempt: Any = await self._replay(record, key) if steps.replaying else MISSING
        if attempt is MISSING:
            attempt = await self._make(record, key, number, artifact_number, previous, findings)
            steps.put(key, attempt)
        else:
            self._dispatcher.release_lease(record)
        made: Attempt = attempt
        self._take_over(record, made)
        return made

    async def _make(
        self,
        record: TaskRecord,
        key: str,
        number: int,
        artifact_number: int,
        previous: Artifact | None,
        findings: Sequence[Finding],
    ) -> Attempt:
        """Make a new attempt; one that the end of the run cuts short is recorded as that."""
        member = record.member or ""
        try:
            if record.interrupted is None and record.leased != member:
                await self._wait_for_lease(record, member)
            if record.interrupted is not None:
                return cancelled_attempt(record.task.id, number, member, record.interrupted, record.cut_short().usage)
            attempt = await self._run(record, key, number, artifact_number, previous, findings)
            if record.before is not None:
                attempt = attempt._replace(usage=record.before + attempt.usage)
        except Exception:
            raise
        except BaseException:
            record.steps.put(key, record.cut_short())
            raise
        finally:
            self._dispatcher.release_lease(record)
        return attempt

    async def _wait_for_lease(self, record: TaskRecord, member: str) -> None:
        with anyio.CancelScope() as record.wait:
            await self._dispatcher.lease(record, member)
        record.wait = None

    def _run(
        self,
        record: TaskRecord,
        key: str,
        number: int,
        artifact_number: int,
        previous: Artifact | None,
        findings: Sequence[Finding],
    ) -> Coroutine[Any, Any, Attempt]:
        task, worker, governor = record.task, self._workers[record.member or ""], record.governor
        assert governor is not None
        told = self._told(record, key) if self._steering.directives else 0
        assignment = self._assignment(record, artifact_number, previous, findings, told)
        record.context = context = self._context(record, worker, governor, key)
        context.told = told
        context.foreign = context.foreign or task.id in self._planning.foreign
        timeout = task.timeout if task.timeout is not None else self._config.task_timeout
        return run_attempt(worker, assignment, context, number, timeout, self._timeouts, self._leashes)

    def _context(self, record: TaskRecord, worker: Worker, governor: Governor, key: str) -> WorkContext:
        task, member = record.task, worker.member
        spent = record.usage if record.before is None else difference(record.usage, record.before, 0.0)
        # by position: keywords cost as much as all the rest of it
        context = WorkContext(self._services, governor, member.role, key, task.id, member.id, spent)
        if task.output_type is not None:
            context.output_type = self._team.output_types[task.output_type]
        return context

    def _told(self, record: TaskRecord, key: str) -> int:
        """Return how many directives the prompt has: as many as at first, where an attempt is made anew."""
        steps, told = record.steps, len(self._steering.directives)
        if steps.recall(key) is not MISSING:
            before: int = 0 if (found := steps.recall(f"told:{key}")) is MISSING else found
            return before
        steps.put(f"told:{key}", told)
        return told

    def _assignment(
        self, record: TaskRecord, number: int, previous: Artifact | None, findings: Sequence[Finding], told: int
    ) -> Assignment:
        task, request = record.task, self._request
        upstream = upstream_of(task, self._dispatcher.records) if task.depends_on else EMPTY
        directives = self._steering.directives_for(task.id, until=told) if told else _NOTHING
        return _make_assignment(
            task, request.goal, task.inputs, request.context, upstream, number, previous, tuple(findings), directives
        )

    async def _replay(self, record: TaskRecord, key: str) -> Any:
        """Take a recorded attempt; `MISSING` when it is to be made, or made anew: what it waited for is there.

        Where the recorded run came to an early end, the task stays as it was then.
        """
        recorded, governor, over = record.steps.recall(key), record.governor, record.steps.early_end is not None
        if recorded is MISSING:
            return MISSING
        assert governor is not None
        spent = difference(recorded.usage, record.usage, 0.0)
        anew = not over and self._is_to_be_made_anew(record, recorded)
        if anew and record.interrupted is None:
            self._earlier.book_again(governor, spent, record.member)
        else:
            self._earlier.book(governor, spent, record.member)
        if isinstance(recorded, CutShort) and over:
            record.artifact = record.artifact or recorded.artifact
            await self._dispatcher.stay(record)
        return MISSING if anew else recorded

    def _is_to_be_made_anew(self, record: TaskRecord, recorded: Attempt | CutShort) -> bool:
        """Say whether what interrupted an attempt is over: its question is answered, or its run goes on."""
        if isinstance(recorded, CutShort):
            return True
        question = recorded.interrupted
        if not isinstance(question, HumanRequest) or record.interrupted is not None:
            return False
        return record.steps.cancelled(record.task.id) is None and self._services.is_answered(question)

    def _take_over(self, record: TaskRecord, attempt: Attempt) -> None:
        """Book what an attempt brought."""
        own = self._own_usage(record, attempt.usage)
        record.trying = None
        record.usage, record.warnings = attempt.usage, record.warnings + attempt.warnings
        record.exception = None if record.context is None or attempt.error is None else record.context.raised
        record.context = None
        record.artifact = attempt.artifact or record.artifact
        record.for_halt = attempt.halt is not None
        record.interrupted = record.interrupted or attempt.interrupted
        if attempt.halt is not None:
            self._emit(events.BudgetHalted, record.task.id, record.member, attempt.halt.value, attempt.origin)
        status = attempt.output.status if attempt.output else "failed"
        self._emit(events.AttemptFinished, record.task.id, record.member, attempt.number, status, own, attempt.error)

    def _tell_cut(self, record: TaskRecord, number: int, reason: str | None) -> None:
        """Emit the end of an attempt that the end of its task cuts short."""
        own, status = self._own_usage(record, record.cut_short().usage), AgentStatus.HALTED.value
        self._emit(events.AttemptFinished, record.task.id, record.member, number, status, own, reason)

    def _own_usage(self, record: TaskRecord, spent: Usage) -> Usage:
        """Return what of `spent` is this try's: all of the first, and of a later one what came since it began."""
        began = None if record.trying is None else record.trying[1]
        return spent if began is None else difference(spent, record.usage, self._timeouts.clock() - began)

    # ------------------------------------------------------------------ reviews

    async def review(
        self, record: TaskRecord, attempt: Attempt, evaluator: Any, prior: Sequence[EvaluationVerdict]
    ) -> EvaluationVerdict:
        """Have an attempt's artifact reviewed; see `TeamRun.review`."""
        task, steps = record.task, record.steps
        record.move(TaskState.EVALUATING)
        self._emit(events.EvaluationStarted, task.id, record.member, attempt.number)
        key = steps.key("review", task.id, attempt.number)
        verdict: Any = steps.recall(key)
        if steps.early_end is not None and (verdict is MISSING or isinstance(verdict, CutShort)):
            await self._dispatcher.stay(record)
        if verdict is MISSING or isinstance(verdict, CutShort):
            try:
                verdict = await self._judge(record, attempt, evaluator, prior, key)
            except Exception:
                raise
            except BaseException:
                steps.put(key, record.cut_short())
                raise
            steps.put(key, verdict)
        elif isinstance(verdict, EvaluationVerdict) and verdict.usage.tokens:
            self._earlier.book(self._carving.purpose(EVALUATE), verdict.usage)
        if isinstance(verdict, TaskCancelled):
            record.interrupted = verdict.reason
            raise Interrupted(verdict.reason)
        record.verdict = verdict
        self._emit(events.EvaluationResult, task.id, record.member, attempt.number, verdict)
        made: EvaluationVerdict = verdict
        return made

    async def _judge(
        self, record: TaskRecord, attempt: Attempt, evaluator: Any, prior: Sequence[EvaluationVerdict], key: str
    ) -> EvaluationVerdict | TaskCancelled:
        task, work = record.task, self._review_context(record, evaluator, key)
        account = None if work is None or not getattr(evaluator, "models", None) else work.governor
        if attempt.artifact is None:
            raise Misuse(f"attempt {attempt.number} of task {task.id!r} made no artifact: there is nothing to review")
        context = _make_context(
            task,
            attempt.artifact,
            len(prior) + 1,
            tuple(prior),
            self._request.goal,
            upstream_of(task, self._dispatcher.records),
            self._config,
            work,
        )
        try:
            if record.interrupted is None:
                timeout, tracebacks = self._config.review_timeout, self._services.tracebacks
                verdict = await review_artifact(evaluator, context, timeout, self._leashes, record, tracebacks)
                record.wait = None
                if record.interrupted is None:
                    return verdict if account is None else replace(verdict, usage=replace(account.usage, seconds=0.0))
        finally:
            if account is not None:
                account.close()
        return TaskCancelled(str(record.interrupted))

    def _review_context(self, record: TaskRecord, evaluator: Any, key: str) -> WorkContext | None:
        """Return governed models for a review; None for an evaluator that is known to ask none.

        One that is known to ask some has an account of its own for each review.
        """
        models = getattr(evaluator, "models", None)
        if models is not None and not models:
            return None
        governor = self._carving.purpose(EVALUATE, set_aside=bool(models))
        governor = governor.carve(record.task.id) if models else governor
        return WorkContext(self._services, governor, _REVIEWER, key, record.task.id, None)
