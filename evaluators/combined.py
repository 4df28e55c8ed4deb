"""Combine strategies: `CascadeEvaluationStrategy`, `all_of` and `any_of`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import Usage, difference
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.evaluators.fingerprint import digest_of
from kairo_team.plugin_calls import failure_of, log_error, problem_of
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy

_PASS, _REVISE = VerdictOutcome.PASS, VerdictOutcome.REVISE
_ESCALATE, _EXCEEDED = VerdictOutcome.ESCALATE, VerdictOutcome.REVIEW_EXCEEDED

_GRAVEST: Final = (
    *(Cause.INJECTION_SUSPECTED, Cause.HUMAN_REQUIRED, Cause.CONTRADICTION, Cause.UNACTIONABLE),
    *(Cause.JUDGE_DISAGREEMENT, Cause.LOW_CONFIDENCE, Cause.UNDECIDED),
    *(Cause.EVALUATOR_ERROR, Cause.EVALUATOR_TIMEOUT, Cause.JUDGE_BUDGET),
)
"""Causes for where several strategies leave something open, the gravest first."""
# The last three of `_GRAVEST` say that a stage could not judge, so the next one is asked.
_GOES_ON: Final = frozenset({Cause.UNDECIDED, Cause.LOW_CONFIDENCE, Cause.JUDGE_DISAGREEMENT, *_GRAVEST[-3:]})
"""Causes after which a cascade asks its next stage."""


class _Combined:
    """What combined strategies share."""

    def __init__(self, name: str, strategies: Iterable[Any]) -> None:
        """`name` begins the error for anything but strategies."""
        self.strategies = given = tuple(strategies)
        if not given:
            raise ValueError(f"{name} needs at least one strategy: without any nothing could ever fail it")
        strangers = [one for one in given if isinstance(one, type) or not callable(getattr(one, "evaluate", None))]
        if strangers:
            raise ValueError(
                f"{name} is made of strategies, which have an async evaluate(context), not {strangers[0]!r}"
            )

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that no check, judge or person could decide."""
        asked = (getattr(strategy, "preflight", None) for strategy in self.strategies)
        return _distinct(problem for ask in asked if ask is not None for problem in ask(judge=judge, gate=gate))

    @property
    def models(self) -> tuple[Any, ...] | None:
        """The judges of the strategies; None where no judge is known and one does not say that it asks none."""
        asked = [getattr(strategy, "models", None) for strategy in self.strategies]
        judges = tuple(judge for some in asked for judge in some or ())
        return judges or (None if None in asked else ())

    @property
    def reads_transcript(self) -> bool:
        """Whether a strategy reads the member's conversation."""
        return any(getattr(strategy, "reads_transcript", False) for strategy in self.strategies)

    def _digests(self) -> list[str] | None:
        """Return the digests of criteria, "" for a strategy without criteria; None where one cannot be computed."""
        digests: list[str] = []
        for strategy in self.strategies:
            source: Any = getattr(strategy, "rubric", None) or strategy
            digest = criteria_digest(strategy)
            if digest is None and hasattr(source, "digest"):
                return None
            digests.append(digest or "")
        return digests


@known_arguments
class CascadeEvaluationStrategy(_Combined):
    """Ask one strategy after the other, each only about what the one before left undecided.

    A PASS, a REVISE and what only a person may decide are final: no later stage overrules them. A stage that raises
    decides nothing. Put cheap and certain stages first.
    """

    def __init__(self, stages: Sequence[EvaluationStrategy]) -> None:
        super().__init__("CascadeEvaluationStrategy", stages)
        self.stages = self.strategies

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        usage, verdict = Usage(), None
        for stage in self.stages:
            verdict = await _ask(stage, context)
            usage += verdict.usage
            if verdict.cause not in _GOES_ON:
                break
        assert verdict is not None, "there is at least one stage"
        return replace(verdict, usage=usage)  # all stages were paid, also those that decided nothing

    @property
    def digest(self) -> str | None:
        """Digest of the stages' criteria, in their order; None where one stage has no digest."""
        digests = self._digests()
        return None if digests is None else digest_of(digests)

    @property
    def vacuous(self) -> bool:
        """Whether only a blank artifact can fail."""
        return all(getattr(stage, "vacuous", False) for stage in self.stages)

    def __repr__(self) -> str:
        return f"CascadeEvaluationStrategy({list(self.stages)!r})"


def all_of(*strategies: EvaluationStrategy) -> EvaluationStrategy:
    """Combine strategies: a PASS needs all of them, and any one can send back.

    The strategies run concurrently, and their order never matters. Where one leaves a decision open and none sends
    back, it stays open.
    """
    return _Together("all_of", strategies, every=True)


def any_of(*strategies: EvaluationStrategy) -> EvaluationStrategy:
    """Combine strategies: a PASS needs one of them, and only all together can send back.

    The strategies run concurrently, and their order never matters. Where none passes and one leaves a decision open, it
    stays open.
    """
    return _Together("any_of", strategies, every=False)


class _Together(_Combined):
    """Several strategies on one artifact, joined by three-valued logic: pass, revise or open."""

    def __init__(self, name: str, strategies: Iterable[EvaluationStrategy], *, every: bool) -> None:
        super().__init__(name, strategies)
        self._name = name
        self._every = every

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Ask all of them and join their verdicts."""
        account = None if context.context is None else context.context.governor
        before = Usage() if account is None else account.usage  # measured once for all: they run at the same time
        verdicts: list[EvaluationVerdict | None] = [None] * len(self.strategies)

        async def ask(place: int) -> None:
            verdicts[place] = await _ask(self.strategies[place], context)

        async with anyio.create_task_group() as group:
            for place in range(len(self.strategies)):
                group.start_soon(ask, place)
        joined = self._join([verdict for verdict in verdicts if verdict is not None])
        return joined if account is None else replace(joined, usage=difference(account.usage, before, 0.0))

    def _join(self, verdicts: Sequence[EvaluationVerdict]) -> EvaluationVerdict:
        outcomes = {verdict.outcome for verdict in verdicts}
        decisive, other = (_REVISE, _PASS) if self._every else (_PASS, _REVISE)
        if decisive in outcomes:
            outcome = decisive
        elif outcomes == {other}:
            outcome = other
        else:
            outcome = _ESCALATE if _ESCALATE in outcomes else _EXCEEDED
        # Findings of a strategy that failed would contradict a PASS of `any_of`.
        reported = verdicts if outcome is not _PASS else [one for one in verdicts if one.outcome is _PASS]
        return _joined(outcome, reported, lowest=self._every)

    @property
    def digest(self) -> str | None:
        """Digest of the strategies' criteria, independent of the order; None where one strategy has no digest."""
        digests = self._digests()
        return None if digests is None else digest_of(sorted(digests))

    @property
    def vacuous(self) -> bool:
        """Whether only a blank artifact can fail: in all strategies, or in any where one that passes is enough."""
        vacuous = [bool(getattr(strategy, "vacuous", False)) for strategy in self.strategies]
        return all(vacuous) if self._every else any(vacuous)

    def __repr__(self) -> str:
        return f"{self._name}{self.strategies!r}"


def _joined(outcome: VerdictOutcome, verdicts: Sequence[EvaluationVerdict], *, lowest: bool) -> EvaluationVerdict:
    """Join several verdicts into one that does not depend on their order."""
    # Without the time, which would bring back the order in which they ended.
    ordered = sorted(verdicts, key=lambda one: repr(replace(one, evaluated_at=verdicts[0].evaluated_at)))
    # The score and the words come from the verdicts with this outcome: others may have passed it, or failed.
    deciding = [verdict for verdict in ordered if verdict.outcome is outcome or outcome not in (_PASS, _REVISE)]
    # "not blank" explains nothing where another decided.
    deciding = [verdict for verdict in deciding if not verdict.vacuous] or deciding
    scores = [verdict.score for verdict in deciding if verdict.score is not None]
    sure = [verdict.confidence for verdict in ordered if verdict.confidence is not None]
    findings = _distinct(finding for verdict in ordered for finding in verdict.findings)
    if outcome is not _REVISE:
        findings = [replace(finding, severity="info") for finding in findings]
    open_causes = {cause for verdict in ordered for cause in (verdict.cause, *verdict.other_causes)}
    causes = {verdict.cause for verdict in ordered if verdict.outcome is outcome}  # none for PASS and REVISE
    cause = next((cause for cause in _GRAVEST if cause in causes), None)
    return EvaluationVerdict(
        outcome,
        (min(scores) if lowest else max(scores)) if scores and outcome in (_PASS, _REVISE) else None,
        "; ".join(_distinct(verdict.feedback for verdict in deciding if verdict.feedback)),
        findings=findings,
        criteria=_distinct(result for verdict in ordered for result in verdict.criteria),
        cause=cause,
        other_causes=[one for one in _GRAVEST if one in open_causes and one is not cause] if cause else (),
        confidence=min(sure, default=None),
        usage=sum((verdict.usage for verdict in ordered), Usage()),
    )


def _distinct(things: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for thing in things:
        if thing not in found:
            found.append(thing)
    return found


async def _ask(strategy: EvaluationStrategy, context: EvaluationContext) -> EvaluationVerdict:
    """Ask a strategy; one that raises decides nothing."""
    name = type(strategy).__name__
    try:
        verdict: Any = await strategy.evaluate(context)
    except (HaltError, InsufficientBudget) as short:
        return EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short))
    except BaseException as raised:
        error = failure_of(raised)
        if error is None:  # a cancellation, not a failure of the strategy
            raise
        log_error(f"the evaluator {name}", f"on task {context.task.id!r}", error)
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name}: {problem_of(error, None)}")
    if isinstance(verdict, EvaluationVerdict):
        return verdict
    return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"{name} returned {verdict!r:.100}")
