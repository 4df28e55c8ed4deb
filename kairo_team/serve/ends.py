"""How a run ended: as JSON, in a sentence, and as a reply of OpenAI's interface."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.late_pydantic import to_jsonable_python
from kairo_team.budget import HaltReason
from kairo_team.errors import HaltError, InsufficientBudget, PlanMismatch
from kairo_team.messages import Billing, ModelResponse
from kairo_team.models.address.parts import Refused
from kairo_team.results import TeamStatus

if TYPE_CHECKING:
    from kairo_team.results import TeamResult
    from kairo_team.serve.asked import AskedRun

STOPPED: Final = "the run was stopped with its server"
_SPENT: Final = frozenset(
    {
        HaltReason.TOKEN_BUDGET_EXCEEDED,
        HaltReason.DOLLAR_BUDGET_EXCEEDED,
        HaltReason.LOOP_BUDGET_EXCEEDED,
        HaltReason.TOOL_BUDGET_EXCEEDED,
    }
)
_PAYMENT_REQUIRED: Final = (402, "billing_error")
_STATUS: Final = {
    TeamStatus.SUSPENDED: (409, "waits_for_person"),
    TeamStatus.CANCELLED: (409, "cancelled"),
    TeamStatus.TIMEOUT: (504, "timeout_error"),
}
"""HTTP status and kind of error by a run's end; 500 for others."""


def described(result: TeamResult) -> dict[str, Any]:
    """Return a result as JSON: how the run ended, its output and what it used."""
    found: dict[str, Any] = {
        "run_id": result.run_id,
        "status": result.status.value,
        "output": result.output,
        "tokens": result.usage.tokens,
        "dollars": str(result.usage.dollars),
    }
    if result.partial_output is not None:
        found["partial_output"] = result.partial_output
    if result.artifact is not None and result.artifact.data is not None:
        with suppress(TypeError, ValueError):  # of classes that are not JSON
            found["data"] = json.loads(json.dumps(to_jsonable_python(result.artifact.data)))
    return found | ({} if result.error is None else {"error": result.error})


def why(result: TeamResult) -> str:
    """Return why a run did not complete, and what that means for its text."""
    end = "waits for a person" if result.status is TeamStatus.SUSPENDED else f"ended {result.status.value}"
    partial = "" if result.partial_artifact is None else ". Its text is partial, and perhaps unreviewed"
    return f"the run {result.run_id} {end}: {result.error or 'no reason is known'}{partial}"


def reply_of(run: AskedRun, model: str) -> ModelResponse:
    """Return the output of an ended run as a model's reply, with the usage of the whole run; raises `Refused`."""
    result = run.result
    if result is None:
        raise refusal_of(run.error)
    if result.artifact is None:
        if run.is_short or result.halt in _SPENT:
            raise Refused(why(result), *_PAYMENT_REQUIRED)
        raise Refused(why(result), *_STATUS.get(result.status, (500, "team_failed")))
    spent = result.usage_by_model.values()
    billing = Billing(
        cached_tokens=sum(one.cached_tokens for one in spent),
        reasoning_tokens=sum(one.reasoning_tokens for one in spent),
    )
    return ModelResponse(result.artifact.text, usage=result.usage, model=model, billing=billing)


def refusal_of(error: Exception | None) -> Refused:
    """Return why a run has no result."""
    if error is None:
        return Refused(STOPPED, 503, "stopped")
    if isinstance(error, InsufficientBudget | HaltError):
        return Refused(f"the budget refuses this run: {error}", *_PAYMENT_REQUIRED)
    if isinstance(error, PlanMismatch):
        return Refused(str(error), 409, "team_changed")
    return Refused(str(error), 500, "team_failed")
