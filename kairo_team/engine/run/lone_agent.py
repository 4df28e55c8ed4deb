"""An agent without a team: the same governor, guardrails and tools; every end becomes an `AgentOutput`.

Work that is recorded or reviewed is a run of one task by a team of one member.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypedDict, cast

from kairo_team._util.clock import LoopClock
from kairo_team._util.frozen import replaced, trusted
from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, HaltReason
from kairo_team.contracts import (
    ChatModel,
    EvaluationStrategy,
    GuardrailPolicy,
    Journal,
    MemberContext,
    ResourceConstraint,
    check_constraints,
    check_guardrails,
)
from kairo_team.engine.live.enforced_end import CallSupervisor
from kairo_team.engine.live.event_bus import discard_event
from kairo_team.engine.live.task_pool import background
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.work.constraints import RunConstraints
from kairo_team.engine.work.run_services import RunServices
from kairo_team.engine.work.runtime import Runtime
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.errors import (
    ConstraintExit,
    GuardrailDenied,
    HaltError,
    InsufficientBudget,
    PlanRefused,
    RunFinished,
    RunNotFound,
    TeamAborted,
    innermost,
)
from kairo_team.events import AttemptFinished, BudgetHalted, Event
from kairo_team.files import File, as_files, unique
from kairo_team.governance.governor import Governor
from kairo_team.governance.halts import reason_of
from kairo_team.governance.pricing import PriceBook
from kairo_team.models.resolver import ModelResolver
from kairo_team.output_types import output_type_problem
from kairo_team.prompts import Prompts
from kairo_team.results import AgentOutput, AgentStatus, TaskOutcome, TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph, TaskStatus
from kairo_team.team import Member, Role, Team, TeamConfig, TeamExecutionRequest, role_of
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.sources import blocked_sources

_logger = logging.getLogger("kairo_team")
_ENDS: Final = {GuardrailDenied: AgentStatus.BLOCKED, ConstraintExit: AgentStatus.GRACEFUL_EXIT}
_plain_task: Final = trusted(Task)
_ANSWER: Final = "answer"
"""The name of the output type, and of the evaluator."""
_REPORTED: Final = (HaltError, InsufficientBudget, GuardrailDenied, TeamAborted)
"""The ends of a run that an output can report; anything else is raised."""
_End = AttemptFinished | BudgetHalted
"""The events at the end of an attempt; the halt comes first."""


class Alone(TypedDict, total=False):
    """How an agent works alone; see `run_alone`."""

    budget: Budget | None
    evaluator: EvaluationStrategy | None
    role: Role | str
    constraints: Iterable[ResourceConstraint]
    guardrails: Iterable[GuardrailPolicy]
    permissions: ToolPermissions | None
    journal: Journal | None
    run_id: str | None
    files: Sequence[File]


class Runnable(Protocol):
    """An agent that returns an `AgentOutput`."""

    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        """Do the task."""
        ...


async def run_alone(
    agent: Runnable,
    task: Assignment | str,
    *,
    budget: Budget | None = None,
    role: Role | str = "agent",
    output_type: Any = None,
    evaluator: EvaluationStrategy | None = None,
    constraints: Iterable[ResourceConstraint] = (),
    guardrails: Iterable[GuardrailPolicy] = (),
    permissions: ToolPermissions | None = None,
    journal: Journal | None = None,
    run_id: str | None = None,
    files: Sequence[File] = (),
) -> AgentOutput:
    """Run an agent by itself and return how it ended, with the text so far and the usage.

    `budget` is all it may spend (None: no limit). `files` come with the task. `output_type` is the type of its answer,
    and of `AgentOutput.data`: a type pydantic can validate, or a JSON Schema. With an `evaluator`, such as a rubric,
    the answer is reviewed, and revised as in a team; one that is not accepted comes back as GRACEFUL_EXIT with the
    reason. `constraints` guard the work like a member's: a graceful exit comes back as GRACEFUL_EXIT, an emergency stop
    as HALTED, and a warning goes to the logger `kairo_team`. A halt comes back as HALTED, a guardrail's refusal as
    BLOCKED; exceptions of a model or a tool source are raised. With a `journal` the work is recorded under `run_id`:
    the same call in another process resumes interrupted work, and returns the output of ended work. Ended work without
    an answer is then HALTED, and `error` says why. Raises `PlanRefused` for an MCP server none of whose tools may be
    used.
    """
    role = role_of(role)
    assignment = Assignment(_task_of(task), task, {}, {}, {}) if isinstance(task, str) else task
    if files:
        assignment = replace(assignment, files=unique([*assignment.files, *as_files("files", files)]))
    _check(assignment, role, output_type, permissions)
    if problems := list(blocked_sources(getattr(agent, "tools", ()), permissions)):
        raise PlanRefused(problems)
    guards, rails = check_constraints("run_alone", constraints), check_guardrails("run_alone", guardrails)
    if (journal is None) != (run_id is None):
        raise ValueError("journal= and run_id= go together: the work is recorded under that id, such as 'tides-1'")
    if journal is not None or evaluator is not None:
        member = Member(role, agent, constraints=guards, guardrails=rails)
        kinds = {} if output_type is None else {_ANSWER: output_type}
        reviews = {} if evaluator is None else {_ANSWER: evaluator}
        team = Team(role.id, [member], output_types=kinds, evaluators=reviews, permissions=permissions)
        return await _run_as_team(team, assignment, budget or Budget(), journal, run_id)
    services = _services(LoopClock(), permissions=permissions, guardrails=rails)
    governor = Governor(budget or Budget(), name=role.id, clock=services.clock)
    if guards:
        services.constraints = RunConstraints(
            governor, services.clock, (), {role.id: guards}, emit=discard_event, kill=discard_event, warn=discard_event
        )
    context = WorkContext(services, governor, role, step="alone", task_id=assignment.task.id, member=role.id)
    context.output_type = output_type
    supervisor = CallSupervisor(services.clock, services.grace)  # a watch that does not end would hold the agent up
    try:
        async with background(*([supervisor.watch] if guards else [])) as services.start_soon:
            output = await _run_in_scope(agent, assignment, context, supervisor)
            return output if output_type is None else replaced(output, output_type=output_type)
    except Exception as error:  # noqa: BLE001 - raised again, unless an output can report it
        cause = innermost(error)
        if not isinstance(cause, HaltError | InsufficientBudget | GuardrailDenied | ConstraintExit):
            raise cause from None
        return _cut_short(context, cause, getattr(agent, "max_turns", None))
    except BaseExceptionGroup as group:  # the task group's: `SystemExit` ends the program as usual
        raise _only_one(group) from None
    finally:
        governor.close()
        for warning in () if context.constraints is None else context.constraints.warnings:
            _logger.warning("%s: %s", role.id, warning)


@asynccontextmanager
async def work_alone(
    role: Role | str,
    *,
    budget: Budget | None = None,
    models: Mapping[str, str | ChatModel] | None = None,
    templates: Mapping[str, str] | None = None,
    runtime: Runtime | None = None,
) -> AsyncGenerator[WorkContext]:
    """Return the context of work outside a team: governed models and tools, all paid from `budget` (None: no limit).

    `models` and `templates` replace models and prompts by name, as a runtime's do. If they are not given, those of
    `runtime` are used, like its prices. The work ends with the block; what stops it there, such as `HaltError` when
    time is up, is raised.
    """
    role = role_of(role)
    services = _services(LoopClock())
    if runtime is not None:
        services.models, services.prices, services.prompts = runtime.models, runtime.prices, runtime.prompts
    if models is not None:
        services.models = ModelResolver(models)
    if templates is not None:
        services.prompts = Prompts(templates)
    governor = Governor(budget or Budget(), name=role.id, clock=services.clock)
    try:
        async with background(*services.watches) as services.start_soon, governor.scope():
            yield WorkContext(services, governor, role, step=role.id, task_id=None, member=None)
    except Exception as error:  # noqa: BLE001 - raised again, without the task group's wrapping
        raise innermost(error) from None
    except BaseExceptionGroup as group:
        raise _only_one(group) from None
    finally:
        governor.close()


@contextmanager
def part_of(work: WorkContext, name: str) -> Generator[WorkContext]:
    """Return the context of a part of such work: it pays from the same budget, and its usage is counted separately.

    Each part needs its own name: the results of its calls are recorded under it, and no call is made twice.
    """
    governor = work.governor.carve(name)
    try:
        yield WorkContext(work.services, governor, work.role, step=name, task_id=None, member=None)
    finally:
        governor.close()


def _task_of(text: str) -> Task:
    """Return the only task: its text is all that needs a check, and `__post_init__` makes it."""
    return (_plain_task if type(text) is str else Task)("task", text)


def _services(
    clock: LoopClock,
    *,
    permissions: ToolPermissions | None = None,
    guardrails: Sequence[GuardrailPolicy] = (),
) -> RunServices:
    """Make the services of a run for work without one."""
    return RunServices(
        uuid.uuid4().hex,
        models=ModelResolver(),
        prices=PriceBook(),
        prompts=Prompts(),
        journal=MemoryRecords(),
        clock=clock,
        emit=discard_event,
        permissions=permissions,
        guardrails=(guardrails,),
    )


async def _run_in_scope(
    agent: Runnable, assignment: Assignment, context: WorkContext, supervisor: CallSupervisor
) -> AgentOutput:
    output: AgentOutput | None = None
    constraints = context.constraints
    async with context.governor.scope():
        work = partial(agent.run, assignment, context)
        output = await (work() if constraints is None else constraints.around(work, supervisor))
    assert output is not None, "a scope that was halted raises"
    if constraints is None or constraints.refusal is None or output.status is not AgentStatus.COMPLETED:
        return output
    artifact = replace(output.artifact, partial=True)  # the agent took the refusal for the end of its work
    return replace(output, artifact=artifact, status=AgentStatus.GRACEFUL_EXIT, error=str(constraints.refusal))


def _check(task: Any, role: Any, output_type: Any, permissions: Any) -> None:
    """Raise `ValueError` for anything a team's check would refuse, before anything is spent."""
    if not isinstance(task, Assignment):
        raise ValueError(f"a task is a text or a kt.Assignment, not {task!r:.200}")
    if not isinstance(role, Role):
        raise ValueError(f"role must be a kt.Role or a role's id, not {role!r:.200}")
    if permissions is not None and not isinstance(permissions, ToolPermissions):
        raise ValueError(f"permissions must be a kt.ToolPermissions, not {permissions!r:.200}")
    problem = None if output_type is None else output_type_problem("the output type", output_type)
    if problem is not None:
        raise ValueError(problem)


def _only_one(error: Any) -> BaseException:
    """Return the exception inside nested groups of one."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[Any]", error).exceptions  # type: ignore[redundant-cast]  # pyright needs it
        if len(inner) != 1:
            break
        error = inner[0]
    return cast("BaseException", error)


def _cut_short(context: WorkContext, cause: Exception, max_turns: int | None) -> AgentOutput:
    kept, usage, constraints = Artifact(context.kept, partial=True), context.usage, context.constraints
    status = next((status for kind, status in _ENDS.items() if isinstance(cause, kind)), AgentStatus.HALTED)
    stopped_by = None if constraints is None or not isinstance(cause, HaltError) else constraints.stopped_by
    error = str(cause) if stopped_by is None else f"emergency stop by {stopped_by}"
    halt = reason_of(cause) if status is AgentStatus.HALTED else None
    return AgentOutput(kept, status, context.turns, max_turns, usage.tool_calls, usage, error=error, halt=halt)


async def _run_as_team(
    team: Team, assignment: Assignment, budget: Budget, journal: Journal | None, run_id: str | None
) -> AgentOutput:
    """Run a team of one member; with a journal, begin the run of that id, resume it, or return how it ended."""
    heard: list[Event] = []
    runtime = Runtime(journal=journal, subscribers=[heard.append])
    # Alone, only the budget limits the time.
    config = TeamConfig(budget, task_timeout=None)
    if journal is None or run_id is None:
        result = await _begin(assignment, team, runtime, config, uuid.uuid4().hex)
    else:
        try:
            result = await runtime.resume(run_id, team)
        except RunNotFound:
            result = await _begin(assignment, team, runtime, config, run_id)
        except RunFinished:
            recorded = journal.result(run_id)
            if recorded is None:
                raise
            result = recorded
        heard = list(journal.events_after(run_id))
    ends = [event for event in heard if isinstance(event, _End)]
    [outcome] = result.outcomes
    if outcome.exception is not None and not isinstance(outcome.exception, _REPORTED):
        raise outcome.exception
    usage, artifact = result.usage, outcome.artifact or Artifact("", partial=True)
    turns = getattr(team.members[0].agent, "max_turns", None)
    status, counts = _status(ends, outcome), (usage.loops, turns, usage.tool_calls)
    halt = None if status is AgentStatus.COMPLETED else _halt(ends)
    kind = team.output_types.get(_ANSWER)
    return AgentOutput(artifact, status, *counts, usage, error=outcome.error, output_type=kind, halt=halt)


def _status(ends: Sequence[_End], outcome: TaskOutcome) -> AgentStatus:
    """Return how the agent ended, by the last event of its attempts; without events, by its task's status."""
    accepted = outcome.status is TaskStatus.COMPLETED
    done = AgentStatus.COMPLETED if accepted else AgentStatus.HALTED
    last = ends[-1] if ends else None
    made = last.status if isinstance(last, AttemptFinished) else None
    status = next((one for one in AgentStatus if one.value == made), done)
    # A review left open what the agent had completed.
    return AgentStatus.GRACEFUL_EXIT if status is AgentStatus.COMPLETED and not accepted else status


def _halt(ends: Sequence[_End]) -> HaltReason | None:
    """Return which budget ended the last attempt: the event before its end says so."""
    halted = ends[-2] if len(ends) > 1 else None
    return HaltReason(halted.reason) if isinstance(halted, BudgetHalted) else None


async def _begin(assignment: Assignment, team: Team, runtime: Runtime, config: TeamConfig, run_id: str) -> TeamResult:
    kind, review = (_ANSWER if named else None for named in (team.output_types, team.evaluators))
    # Alone, it cannot name other members and tasks.
    alone: dict[str, Any] = {"member": None, "role": None, "depends_on": (), "retries": 0}
    task = replace(assignment.task, **alone, output_type=kind, evaluator=review)
    request = TeamExecutionRequest(
        assignment.goal,
        context=assignment.context,
        plan=TaskGraph([task]),
        config=config,
        run_id=run_id,
        files=assignment.files,
    )
    async with runtime:
        run = await runtime.start(team, request)
        return await run.result()
