"""What went wrong in a run, and what people did, in a sentence for each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team import events
from kairo_team.budget import to_dollars

if TYPE_CHECKING:
    from kairo_team.events import Event


def describe(event: Event) -> str:
    """Describe an incident of a run, or what a person was asked or did; "" for any other event."""
    match event:
        case events.BudgetWarned():
            return f"{event.share:.0%} of the run's {event.dimension.replace('_', ' ')} are spent"
        case events.BudgetHalted():
            return f"{event.task_id} was stopped: {event.reason.replace('_', ' ')}"
        case events.ConstraintViolated():
            return f"constraint {event.constraint}: {event.reason} ({event.action.replace('_', ' ')})"
        case events.GuardrailDecided():
            return f"guardrail {event.policy}, {event.action}: {event.reason}"
        case events.CallsDiverged():
            return f"{event.calls:,} paid calls were not requested again when the run was resumed"
        case events.TeamEnded():
            # The error of a suspended run repeats its questions.
            why = "" if event.state == "suspended" else event.error
            return f"the run ended: {event.state}" + (f", {why}" if why else "")
        case events.TeamResumed():
            return "the run was resumed"
        case events.TeamGivenUp():
            return f"the run was {event.error}"
        case _:
            return _describe_deed(event)


def _describe_deed(event: Event) -> str:
    match event:
        case events.HumanRequested():
            return f"asked: {event.question.text}"
        case events.HumanDecided():
            return f"answer to {event.question_id}{_by_whom(event.by)}: {event.action} {event.feedback}".rstrip()
        case events.TaskSteered():
            return f"told {event.task_id or 'all members'}{_by_whom(event.by)}: {event.directive}"
        case events.BudgetToppedUp():
            more = f"{event.tokens or 0:,} tokens and ${to_dollars(event.picodollars or 0)} more"
            return f"{event.task_id or 'the run'} got {more}{_by_whom(event.by)}"
        case _:
            return ""


def _by_whom(name: str) -> str:
    return f" by {name}" if name else ""
