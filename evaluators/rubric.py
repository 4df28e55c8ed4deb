"""`Rubric`: named criteria, each decided by code; all must be met."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kairo_team.errors import known
from kairo_team.tasks import check_id
from kairo_team.verdicts import Cause, CriterionResult, EvaluationVerdict, Finding

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationContext

Check = Callable[..., "bool | str | Finding | Awaitable[bool | str | Finding]"]
"""A function `(artifact)` or `(artifact, context)`, sync or async.

It returns True when the artifact meets the criterion; False, a sentence or a `Finding` on what is wrong when not.
Anything else, None included, and an exception mean that it is unknown: a broken check never passes.
"""

_logger = logging.getLogger("kairo_team")


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing an artifact must fulfil."""

    id: str
    text: str
    """What is asked for, in a sentence a member can act on."""
    check: Check

    def __post_init__(self) -> None:
        check_id(self.id)
        if not self.text.strip():
            raise ValueError(f"criterion {self.id!r}: the text must not be blank")
        if not callable(self.check):
            raise ValueError(f"criterion {self.id!r}: the check must be a function, not {self.check!r}")

    @property
    def wants_context(self) -> bool:
        """The check takes the evaluation context as its second parameter."""
        parameters = inspect.signature(self.check).parameters.values()
        needed = [
            p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        return len(needed) > 1


class Rubric:
    """Criteria an artifact must all meet. A rubric is itself an evaluation strategy.

    Deterministic: the same artifact gets an equal verdict; every criterion is run, so that a revision knows all that
    is wrong. A known failure is REVISE with one finding each; nothing failed but something unknown is
    ESCALATE(undecided).
    """

    def __init__(self, criteria: Sequence[Criterion]) -> None:
        self.criteria = tuple(criteria)
        ids = [criterion.id for criterion in self.criteria]
        if not ids:
            raise ValueError("a rubric needs at least one criterion: without one nothing could ever fail it")
        if len(set(ids)) != len(ids):
            raise ValueError(
                f"criterion ids must be unique; given twice: {known({i for i in ids if ids.count(i) > 1})}"
            )

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Run every check and decide."""
        judged = [await _judge(criterion, context) for criterion in self.criteria]
        results = [result for result, _ in judged]
        findings = [finding for _, finding in judged if finding is not None]
        if findings:
            feedback = "; ".join(finding.observed for finding in findings)
            score = sum(result.passed is True for result in results) / len(results)
            return EvaluationVerdict.revise(feedback, findings=findings, score=score, criteria=results)
        unknown = [result for result in results if result.passed is None]
        if unknown:
            why = "; ".join(f"{result.id}: {result.reason}" for result in unknown)
            return EvaluationVerdict.escalate(Cause.UNDECIDED, f"not decided: {why}", criteria=results)
        return EvaluationVerdict.passed(score=1.0, criteria=results)

    def __repr__(self) -> str:
        return f"Rubric({[criterion.id for criterion in self.criteria]})"


async def _judge(criterion: Criterion, context: EvaluationContext) -> tuple[CriterionResult, Finding | None]:
    try:
        answer = await _ask(criterion, context)
    except Exception as error:
        _logger.warning("the check of criterion %r raised", criterion.id, exc_info=True)
        return _unknown(criterion, f"the check raised {type(error).__name__}: {error}")
    if answer is True:
        return CriterionResult(criterion.id, "met", passed=True), None
    if answer is False:
        finding = Finding(criterion.id, observed=f"not met: {criterion.text}")
    elif isinstance(answer, str) and answer.strip():
        finding = Finding(criterion.id, observed=answer)
    elif isinstance(answer, Finding):
        finding = answer
    else:
        return _unknown(
            criterion, f"the check returned {answer!r:.100} instead of True, False, a sentence or a Finding"
        )
    finding = replace(finding, criterion=criterion.id, severity="blocking", expected=finding.expected or criterion.text)
    return CriterionResult(criterion.id, "not met", passed=False, reason=finding.observed), finding


def _unknown(criterion: Criterion, reason: str) -> tuple[CriterionResult, None]:
    return CriterionResult(criterion.id, "unknown", passed=None, reason=reason), None


async def _ask(criterion: Criterion, context: EvaluationContext) -> Any:
    arguments = (context.artifact, context) if criterion.wants_context else (context.artifact,)
    answer: Any = criterion.check(*arguments)
    return await answer if inspect.isawaitable(answer) else answer
