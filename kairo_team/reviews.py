"""One review: whatever an evaluator does, a verdict comes of it, and its failure is never the artifact's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio

from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.verdicts import Cause, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.leash import Leashes
    from kairo_team.task_record import TaskRecord
    from kairo_team.verdicts import EvaluationContext

_logger = logging.getLogger("kairo_team")


async def review_artifact(
    evaluator: Any, context: EvaluationContext, timeout: float | None, leashes: Leashes, record: TaskRecord
) -> EvaluationVerdict:
    """Ask the evaluator; map a crash, a hang, an exhausted budget or nonsense to REVIEW_EXCEEDED with its cause.

    `timeout` is in seconds. Never raises but for cancellation. Cancelling `record.wait` ends it early.
    """
    name = type(evaluator).__name__
    verdict: object = None
    try:
        with anyio.move_on_after(timeout) as scope:
            record.wait = scope
            verdict = await leashes.hold(evaluator.evaluate(context), name, lambda: scope.cancel_called)
    except (HaltError, InsufficientBudget) as short:
        return EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short))
    except Exception as error:
        _logger.warning("the evaluator %s failed on task %r", name, context.task.id, exc_info=True)
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {type(error).__name__}: {error}")
    if scope.cancelled_caught:
        return EvaluationVerdict.review_exceeded(
            Cause.EVALUATOR_TIMEOUT, f"{name} took longer than {timeout or 0:g} seconds"
        )
    if not isinstance(verdict, EvaluationVerdict):
        problem = f"{name} returned {verdict!r:.200} instead of an EvaluationVerdict"
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, problem)
    return verdict
