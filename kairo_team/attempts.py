"""One attempt: a member tries a task, under its budget and its deadline, and whatever happens has a value."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.agents.function import FunctionAgent
from kairo_team.borders import failure_of, problem_of
from kairo_team.budget import HaltReason, Usage
from kairo_team.errors import (
    BadOutput,
    ConstraintExit,
    GuardrailDenied,
    HaltError,
    InsufficientBudget,
    InvalidReply,
    KairoError,
    UnpricedModel,
    innermost,
    kinds_of,
)
from kairo_team.frozen import maker, plain_text
from kairo_team.governance.halts import REASONS
from kairo_team.governance.units import DIMENSIONS
from kairo_team.leash import BLOCKING
from kairo_team.output_types import check_output
from kairo_team.results import AgentOutput, AgentStatus, Artifact

if TYPE_CHECKING:
    from kairo_team.governance.scope import GovernorScope
    from kairo_team.human import HumanRequest
    from kairo_team.leash import Leashes
    from kairo_team.tasks import Assignment
    from kairo_team.team import Member
    from kairo_team.timeouts import Timeouts
    from kairo_team.work_context import WorkContext

_logger = logging.getLogger("kairo_team")

_HALT_OF: Final[Mapping[str, HaltReason]] = dict(zip(DIMENSIONS, REASONS, strict=True))


class Attempt(NamedTuple):
    """What came of one try; a recorded step, so everything a coordinator decides from is in it."""

    task_id: str
    number: int
    """Which try of the task, from 1; every try counts."""
    member: str
    output: AgentOutput | None
    """What the member made; None when it made nothing."""
    error: str | None = None
    """Why it failed; None when there is an artifact to review."""
    halt: HaltReason | None = None
    """Set when a budget, the clock or the kill switch ended it."""
    origin: str | None = None
    """Name of the governor whose limit `halt` was."""
    final: bool = False
    """Trying again on the same member is pointless."""
    usage: Usage = Usage()
    """All the task has spent so far, this try included."""
    warnings: tuple[str, ...] = ()
    """What constraints warned of."""
    interrupted: str | HumanRequest | None = None
    """What ended it from outside: why the task was cancelled, or the question whose answer it waits for."""
    kinds: tuple[str, ...] = ()
    """What it failed with: the class of the error and those it comes from, by name (`kairo_team.errors.kinds_of`)."""
    over: bool = False
    """Nobody is to try again: a constraint asked for an orderly end, and there is nothing to review."""

    @property
    def artifact(self) -> Artifact | None:
        """The artifact, partial work included."""
        return self.output.artifact if self.output else None


_make_artifact: Final = maker(Artifact)
"""Makes an artifact of a text that is known to be one."""

_make_output: Final = maker(AgentOutput)

_make_attempt: Final[Callable[[type[Attempt], tuple[Any, ...]], Attempt]] = getattr(tuple, "__new__")  # noqa: B009 - it is generic
"""Makes an attempt of all its fields, at a third of the cost of calling the class."""

_COMPLETED: Final = AgentStatus.COMPLETED

Invoke = Callable[["Assignment", "WorkContext"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Worker:
    """A member made ready to be called."""

    member: Member
    name: str
    invoke: Invoke
    own_loop: bool
    """Its agent counts its loops itself."""

    @classmethod
    def of(cls, member: Member) -> Worker:
        """Prepare a member: a bare function becomes an agent."""
        if not hasattr(member.agent, "run"):
            return cls(member, member.id, FunctionAgent(member.agent).invoke, own_loop=False)
        return cls(member, member.id, member.agent.run, bool(getattr(member.agent, "own_loop", False)))


async def run_attempt(
    worker: Worker,
    assignment: Assignment,
    context: WorkContext,
    number: int,
    timeout: float | None,
    timeouts: Timeouts,
    leashes: Leashes,
) -> Attempt:
    """Call the agent and turn every end but cancellation into an `Attempt`; `timeout` is in seconds."""
    governor, constraints, clock = context.governor, context.constraints, timeouts.clock
    raw: Any = None
    failed: type[BaseException] = InvalidReply
    took = 0.0
    try:
        if not worker.own_loop:
            governor.pre_step()
        with governor.scope() as scope:
            began = clock()
            context.scope = scope
            if constraints is None:
                raw, rest = leashes.begin(worker.invoke(assignment, context), worker.name, scope)
                took = clock() - began
                if took > BLOCKING:
                    leashes.note_blocking(worker.name, took)
            else:
                rest = constraints.around(partial(_hold, worker, assignment, context, leashes, scope))
            if rest is not None:
                if timeout is not None:
                    timeouts.start(scope, timeout, began)
                raw = await rest
                took = clock() - began
        late = timeout is not None and took > timeout  # nothing could cancel it while it blocked the event loop
        if scope.cancelled or late:  # what came of it is late
            ended_by = context.interrupted
            if ended_by is not None:
                kept = context.partial(AgentStatus.HALTED)
                return cancelled_attempt(assignment.task.id, number, worker.name, ended_by, governor.usage, kept)
            raise TimedOut(timeout or 0.0)
        end = _judge_output(context, _as_output(raw, worker.name, context))
    except BaseException as raised:
        error = failure_of(raised)
        if error is None:  # every other end of an attempt has a value
            raise
        cause = _cause(context, timeout, error)
        context.raised = cause
        end, failed = _explain_failure(context, cause), type(cause)
    warnings = () if constraints is None else constraints.warnings
    by = None if end[1] is None else context.interrupted  # it may have failed over its own cancellation
    kinds = () if end[1] is None else kinds_of(failed)
    over = constraints is not None and constraints.exiting and end[1] is not None
    end = (*end[:4], True) if over else end
    made = (assignment.task.id, number, worker.name, *end, governor.usage, warnings, by, kinds, over)
    return _make_attempt(Attempt, made)


def _cause(context: WorkContext, timeout: float | None, error: Exception) -> Exception:
    """Return why the attempt failed: its timeout, also where the agent made another error of its cancellation."""
    cause, scope = innermost(error), context.scope
    late = scope is not None and scope.cancelled and context.interrupted is None
    return TimedOut(timeout or 0.0) if late and not isinstance(cause, HaltError | InsufficientBudget) else cause


def _hold(
    worker: Worker, assignment: Assignment, context: WorkContext, leashes: Leashes, scope: GovernorScope
) -> Awaitable[Any]:
    """Call the agent inside what stands around it."""
    return leashes.hold(worker.invoke(assignment, context), worker.name, scope)


def cancelled_attempt(
    task_id: str,
    number: int,
    member: str,
    by: str | HumanRequest,
    usage: Usage,
    output: AgentOutput | None = None,
) -> Attempt:
    """Describe a try that was ended from outside, or for that reason never begun."""
    error = by if isinstance(by, str) else f"waits for a person: {by.text}"
    return Attempt(task_id, number, member, output, error, final=True, usage=usage, interrupted=by)


class TimedOut(KairoError, TimeoutError):
    """The attempt reached its own deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} seconds")


def _as_output(raw: Any, member: str, context: WorkContext) -> AgentOutput:
    if isinstance(raw, AgentOutput):
        return _plain_output(raw, member)
    if type(raw) is str:
        raw = _make_artifact(raw)
    elif isinstance(raw, str):
        raw = Artifact(raw)
    if isinstance(raw, Artifact):
        raw = _plain_artifact(raw)
        tokens, dollars, _, tool_calls = context.governor.spent
        return context.output(raw) if context.turns or tokens or dollars or tool_calls else _make_output(raw)
    what = "nothing (None)" if raw is None else f"a {type(raw).__name__}"
    raise BadOutput(member, f"returned {what}: an agent returns a string, an Artifact or an AgentOutput")


def _plain_output(given: AgentOutput, member: str) -> AgentOutput:
    """Return an output whose parts are what they must be: nobody after this looks again."""
    artifact, status, error = given.artifact, given.status, given.error
    if not isinstance(artifact, Artifact):
        raise BadOutput(member, f"returned an AgentOutput whose artifact must be a kt.Artifact, not {artifact!r:.100}")
    plain = (type(given), type(artifact), type(status)) == (AgentOutput, Artifact, AgentStatus)
    if plain and (error is None or type(error) is str):
        return given
    try:
        status = AgentStatus(status)
        error = None if error is None else plain_text("AgentOutput.error must be a text or None", error)
    except ValueError as problem:
        raise BadOutput(member, f"returned an AgentOutput that is none: {problem}") from None
    rest = (given.turns_completed, given.max_turns, given.tool_calls_executed, given.usage, given.transcript)
    return AgentOutput(_plain_artifact(artifact), status, *rest, error)


def _plain_artifact(given: Artifact) -> Artifact:
    """Return an artifact that stays as it is, whatever a subclass makes of it."""
    if type(given) is Artifact:
        return given
    return Artifact(given.text, given.data, given.media_type, given.partial)


_End = tuple[AgentOutput | None, str | None, HaltReason | None, str | None, bool]
"""How an attempt ended: the fields of `Attempt` from `output` to `final`."""


def _end(
    output: AgentOutput | None,
    error: str | None = None,
    halt: HaltReason | None = None,
    origin: str | None = None,
    *,
    final: bool = False,
) -> _End:
    return output, error, halt, origin, final


def _failed(
    context: WorkContext,
    error: str,
    halt: HaltReason | None = None,
    origin: str | None = None,
    *,
    status: AgentStatus = AgentStatus.GRACEFUL_EXIT,
    final: bool = False,
) -> _End:
    """Describe a failed try; what the member kept is its partial artifact."""
    status = AgentStatus.HALTED if halt else status
    return _end(context.partial(status, error), error, halt, origin, final=final or halt is not None)


def _explain_failure(context: WorkContext, error: Exception) -> _End:
    """Describe the try that ended with an exception."""
    halt = _halt_of(error)
    if halt is not None:
        reason, origin = halt
        why = _why_halted(context, reason, str(error)) if isinstance(error, HaltError) else str(error)
        return _failed(context, why, reason, origin)
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
    return _failed(context, problem_of(error, None), final=isinstance(error, ConstraintExit))


def _halt_of(error: Exception) -> tuple[HaltReason, str] | None:
    """Return why and whose budget, the clock or a kill ended it; None for what only looks like that."""
    reason: Any = None
    if isinstance(error, HaltError):
        reason = error.reason
    elif isinstance(error, InsufficientBudget) and error.dimension in DIMENSIONS:
        reason = _HALT_OF[error.dimension]
    origin: Any = getattr(error, "origin", None)
    return (reason, origin) if isinstance(reason, HaltReason) and type(origin) is str else None


_NEVER_REVIEWED = {AgentStatus.HALTED: "was halted", AgentStatus.BLOCKED: "was blocked by a guardrail"}


def _judge_output(context: WorkContext, output: AgentOutput) -> _End:
    """Decide whether an output can be reviewed."""
    governor = context.governor
    stopped = governor.stopped
    if stopped is not None:
        why = _why_halted(context, stopped, f"halted: {stopped.value}")
        return _end(_cut(output), why, stopped, governor.name, final=True)
    if output.status is not _COMPLETED and output.status in _NEVER_REVIEWED:
        error = output.error or f"the agent {_NEVER_REVIEWED[output.status]}"
        halt = governor.halted if output.status is AgentStatus.HALTED else None
        return _end(_cut(output), error, halt, governor.name if halt else None, final=True)
    constraints = context.constraints
    if constraints is not None and constraints.refusal is not None and output.status is _COMPLETED:
        output = replace(output, status=AgentStatus.GRACEFUL_EXIT, error=output.error or str(constraints.refusal))
    return _judge_text(context, output)


def _judge_text(context: WorkContext, output: AgentOutput) -> _End:
    """Decide it by what the artifact says."""
    artifact = output.artifact
    if output.status is AgentStatus.TURN_LIMIT_REACHED:
        output = replace(output, error=_say_turns(output))
    if not artifact.text.strip() and artifact.data is None:
        return _end(None, output.error or "the agent returned an empty text")
    if output.status is not _COMPLETED:
        output = _cut(output)
    if context.output_type is None:
        return (output, None, None, None, False)
    try:
        return _end(_typed(output, context.output_type))
    except InvalidReply as error:
        return _end(_cut(output), str(error))


def _say_turns(output: AgentOutput) -> str:
    """Say which limit an agent stopped at, and how far it came."""
    most = "" if output.max_turns is None else f" of {output.max_turns}"
    said = f" ({output.error})" if output.error else ""
    return f"the agent reached its turn limit: {output.turns_completed}{most} turns{said}"


def _why_halted(context: WorkContext, reason: HaltReason, otherwise: str) -> str:
    """Name the constraint, if it was one that stopped the attempt."""
    by = context.constraints.stopped_by if context.constraints is not None else None
    return f"emergency stop by {by}" if by is not None and reason is HaltReason.EMERGENCY_STOP else otherwise


def _cut(output: AgentOutput) -> AgentOutput:
    return output if output.artifact.partial else replace(output, artifact=replace(output.artifact, partial=True))


def _typed(output: AgentOutput, kind: Any) -> AgentOutput:
    """Validate the artifact as the task's output type and keep its data as JSON values."""
    data = check_output(kind, output.artifact)
    return replace(output, artifact=replace(output.artifact, data=data))
