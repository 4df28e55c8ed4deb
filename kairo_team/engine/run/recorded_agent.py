"""An agent without a team whose work is recorded, which the same call resumes, or reviewed: a run of one task."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.budget import HaltReason
from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import GuardrailDenied, HaltError, InsufficientBudget, RunFinished, RunNotFound, TeamAborted
from kairo_team.events import AttemptFinished, BudgetHalted
from kairo_team.results import AgentOutput, AgentStatus, Artifact
from kairo_team.tasks import Assignment, TaskGraph, TaskStatus
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kairo_team.budget import Budget
    from kairo_team.contracts import EvaluationStrategy, Journal
    from kairo_team.events import Event
    from kairo_team.results import TaskOutcome, TeamResult
    from kairo_team.team import Role
    from kairo_team.tools.permissions import ToolPermissions

_End = AttemptFinished | BudgetHalted
"""The events at the end of an attempt; the halt comes first."""
_ANSWER: Final = "answer"
"""The name of the output type, and of the evaluator."""
_ENDS: Final = (HaltError, InsufficientBudget, GuardrailDenied, TeamAborted)
"""The ends that an output can report; anything else is raised."""


async def run_as_team(
    agent: Any,
    assignment: Assignment,
    *,
    budget: Budget,
    role: Role,
    output_type: Any,
    evaluator: EvaluationStrategy | None,
    rules: Mapping[str, Any],
    permissions: ToolPermissions | None,
    journal: Journal | None,
    run_id: str | None,
) -> AgentOutput:
    """Run an agent as a team of one member, with the `rules` of a `Member`.

    With a journal, begin the recorded run of that id, resume it, or return how it ended.
    """
    ends: list[_End] = []
    runtime = Runtime(journal=journal, subscribers=[lambda event: _keep_end(event, ends)])
    kinds = {} if output_type is None else {_ANSWER: output_type}
    reviews = {} if evaluator is None else {_ANSWER: evaluator}
    member = Member(role, agent, **rules)
    team = Team(role.id, [member], output_types=kinds, evaluators=reviews, permissions=permissions)
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
        ends = [event for event in journal.events_after(run_id) if isinstance(event, _End)]
    [outcome] = result.outcomes
    if outcome.exception is not None and not isinstance(outcome.exception, _ENDS):
        raise outcome.exception
    usage, artifact = result.usage, outcome.artifact or Artifact("", partial=True)
    turns = getattr(agent, "max_turns", None)
    status, counts = _status(ends, outcome), (usage.loops, turns, usage.tool_calls)
    halt = None if status is AgentStatus.COMPLETED else _halt(ends)
    return AgentOutput(artifact, status, *counts, usage, error=outcome.error, output_type=output_type, halt=halt)


def _keep_end(event: Event, ends: list[_End]) -> None:
    if isinstance(event, _End):
        ends.append(event)


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
