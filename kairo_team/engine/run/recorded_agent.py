"""Recorded work of an agent without a team: a run of one task, which the same call resumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import GuardrailDenied, HaltError, InsufficientBudget, RunFinished, RunNotFound, TeamAborted
from kairo_team.events import AttemptFinished
from kairo_team.results import AgentOutput, AgentStatus, Artifact
from kairo_team.tasks import Assignment, TaskGraph, TaskStatus
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kairo_team.budget import Budget
    from kairo_team.contracts import Journal
    from kairo_team.results import TaskOutcome, TeamResult
    from kairo_team.team import Role
    from kairo_team.tools.permissions import ToolPermissions

_ANSWER: Final = "answer"
"""The name of the output type."""
_ENDS: Final = (HaltError, InsufficientBudget, GuardrailDenied, TeamAborted)
"""The ends that an output can report; anything else is raised."""


async def run_recorded(
    agent: Any,
    assignment: Assignment,
    journal: Journal,
    run_id: str,
    *,
    budget: Budget,
    role: Role,
    output_type: Any,
    rules: Mapping[str, Any],
    permissions: ToolPermissions | None,
) -> AgentOutput:
    """Begin the recorded run of that id, resume it, or return how it ended; `rules` are those of a `Member`."""
    runtime = Runtime(journal=journal)
    kinds = {} if output_type is None else {_ANSWER: output_type}
    team = Team(role.id, [Member(role, agent, **rules)], output_types=kinds, permissions=permissions)
    try:
        result = await runtime.resume(run_id, team)
    except RunNotFound:
        result = await _begin(assignment, team, runtime, TeamConfig(budget, task_timeout=None), run_id)
    except RunFinished:
        recorded = journal.result(run_id)
        if recorded is None:
            raise
        result = recorded
    [outcome] = result.outcomes
    if outcome.exception is not None and not isinstance(outcome.exception, _ENDS):
        raise outcome.exception
    usage, artifact = result.usage, outcome.artifact or Artifact("", partial=True)
    status = _status(journal, run_id, outcome)
    turns = getattr(agent, "max_turns", None)
    return AgentOutput(artifact, status, usage.loops, turns, usage.tool_calls, usage, error=outcome.error)


def _status(journal: Journal, run_id: str, outcome: TaskOutcome) -> AgentStatus:
    """Return how the agent ended, by the last event of its attempts; without events, by its task's status."""
    ends = [event.status for event in journal.events_after(run_id) if isinstance(event, AttemptFinished)]
    done = AgentStatus.COMPLETED if outcome.status is TaskStatus.COMPLETED else AgentStatus.HALTED
    return next((one for one in AgentStatus if ends and one.value == ends[-1]), done)


async def _begin(assignment: Assignment, team: Team, runtime: Runtime, config: TeamConfig, run_id: str) -> TeamResult:
    kind = _ANSWER if team.output_types else None
    task = replace(assignment.task, member=None, role=None, depends_on=(), retries=0, output_type=kind)
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
