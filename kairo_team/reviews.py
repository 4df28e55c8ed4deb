"""One review: whatever an evaluator does, a verdict comes of it, and its failure is never the artifact's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from kairo_team.borders import failure_of, problem_of
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.leash import Within
from kairo_team.verdicts import Cause, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.leash import Leashes
    from kairo_team.task_record import TaskRecord
    from kairo_team.tracebacks import Tracebacks
    from kairo_team.verdicts import EvaluationContext


async def review_artifact(
    evaluator: Any,
    context: EvaluationContext,
    timeout: float | None,
    leashes: Leashes,
    record: TaskRecord,
    tracebacks: Tracebacks,
) -> EvaluationVerdict:
    """Ask the evaluator; map a crash, a hang, an exhausted budget or nonsense to REVIEW_EXCEEDED with its cause.

    `timeout` is in seconds. Never raises but for cancellation. Cancelling `record.wait` ends it early. Criteria are
    frozen at the task's first review: an evaluator that has others later is an `evaluator_error`, and is not asked.
    """
    name = type(evaluator).__name__
    verdict: object = None
    late = False
    try:
        if (changed := _changed_criteria(evaluator, record)) is not None:
            return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {changed}")
        with anyio.move_on_after(timeout) as scope, tracebacks.here():
            record.wait = within = Within(scope)
            verdict = await leashes.hold(evaluator.evaluate(context), name, within)
            late = anyio.current_time() > scope.deadline  # nothing could cancel it while it blocked the event loop
    except (HaltError, InsufficientBudget) as short:
        return EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short))
    except BaseException as raised:
        error = failure_of(raised)
        if error is None:
            raise
        record.exception = error
        tracebacks.log(f"the evaluator {name}", f"on task {context.task.id!r}", error)
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {problem_of(error, None)}")
    if scope.cancel_called or late:  # a verdict that came of it all the same is late
        return EvaluationVerdict.review_exceeded(
            Cause.EVALUATOR_TIMEOUT, f"{name} took longer than {timeout or 0:g} seconds"
        )
    if not isinstance(verdict, EvaluationVerdict):
        problem = f"{name} returned {verdict!r:.200} instead of an EvaluationVerdict"
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, problem)
    return verdict


def _changed_criteria(evaluator: Any, record: TaskRecord) -> str | None:
    """Say that an evaluator judges by other criteria than at the task's first review; None where it does not."""
    now = criteria_digest(evaluator)
    first = record.criteria = record.criteria or now
    if now is None or now == first:
        return None
    return (
        f"its criteria changed since the first review of task {record.task.id!r}, from digest {first:.8} to {now:.8}; "
        "they are frozen when a task starts, so give the new ones to another task"
    )


def criteria_digest(evaluator: Any) -> str | None:
    """Return the digest of what an evaluator judges by: its rubric's, or its own; None for one that has none."""
    rubric = getattr(evaluator, "rubric", None)
    digest = getattr(evaluator if rubric is None else rubric, "digest", None)
    return digest if isinstance(digest, str) else None
