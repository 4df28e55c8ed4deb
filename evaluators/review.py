"""`Review`: the state of reviewing one artifact by one rubric, and the verdict that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from kairo_team._util.frozen import EMPTY, trusted
from kairo_team.artifacts import Artifact, Finding
from kairo_team.errors import known
from kairo_team.evaluators import score_range
from kairo_team.evaluators.check_calls import cut, cut_finding
from kairo_team.evaluators.criterion import Answer, By, Criterion
from kairo_team.evaluators.quotes import quote_problem, stands_in
from kairo_team.evaluators.score_range import Decision, Item, Number
from kairo_team.verdicts import NOT_APPLICABLE, UNKNOWN, Cause, CriterionResult, EvaluationVerdict, VerdictOutcome


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on a criterion in one review."""

    met: bool
    place: str
    """The place it was decided on, as a quote or a location; "" is the artifact as a whole."""

    def flips_on(self, place: str, text: str) -> bool:
        """Return whether the opposite decision, taken now on `place` in `text`, is about unchanged words.

        The earlier words must still be in the text. The new words must be among them; or the earlier ones were quoted
        for "met" and "not met" now names no words. "met" without a quote is not a flip, because an addition elsewhere
        can make right what was wrong. A decision on the artifact as a whole is never a flip, because an unchanged
        artifact is not judged again.
        """
        if not stands_in(self.place, text):
            return False
        return stands_in(place, self.place) or (self.met and not place)


@dataclass(frozen=True, slots=True)
class History:
    """The decisions of earlier reviews, by criterion id."""

    last: Mapping[str, Decided] = EMPTY
    """The last decision on each criterion; criteria that were always unknown are left out."""
    met: AbstractSet[str] = frozenset()
    """Criteria that were ever met."""
    wanting: AbstractSet[str] = frozenset()
    """Criteria that were ever not met."""

    def status(self, criterion_id: str) -> Literal["open", "regressed"]:
        """Return the status of a criterion that is not met now: "regressed" if it was met before, else "open"."""
        return "regressed" if criterion_id in self.met else "open"


NOTHING_YET: Final = History()
"""The history of a first attempt."""


def history_of(prior: Sequence[EvaluationVerdict]) -> History:
    """Return the decisions of earlier verdicts, given oldest first."""
    if not prior:
        return NOTHING_YET
    last: dict[str, Decided] = {}
    met: set[str] = set()
    wanting: set[str] = set()
    for verdict in prior:
        decided = _decided(verdict)
        last |= decided
        met |= {name for name, one in decided.items() if one.met}
        wanting |= {name for name, one in decided.items() if not one.met}
    return History(last, met, wanting)


def _decided(verdict: EvaluationVerdict) -> dict[str, Decided]:
    """Return one verdict's decisions; of results that disagree, as in joined strategies, the worse counts."""
    loci = {finding.criterion: finding.locus for finding in verdict.findings if not finding.is_right}
    decided: dict[str, Decided] = {}
    for result in verdict.criteria:
        if result.passed is None:
            continue
        place = result.quote or ("" if result.passed else loci.get(result.id, ""))
        here = Decided(result.passed, place)
        other = decided.get(result.id, here)
        decided[result.id] = here if other.met == here.met else Decided(met=False, place="")  # no common place
    return decided


@dataclass(frozen=True, slots=True)
class Ruling:
    """The state of knowledge about one criterion."""

    level: int | None
    """How many levels above the worst; None: asked about, and still unknown."""
    reason: str = ""
    quote: str | None = None
    finding: Finding | None = None
    """The defect; None at the best level."""
    others: Sequence[Finding] = ()
    """Further findings, where several places of the artifact are wrong."""
    applies: bool = True
    flipped: bool = False
    """Whether it is unknown because a judge decided the opposite before, about the same words."""


MET: Final = Ruling(1)
"""The better of two levels, without a remark."""
_plain_result: Final = trusted(CriterionResult)
_passed: Final = trusted(EvaluationVerdict)
NO_TRANSCRIPT: Final = Ruling(None, "the member kept no transcript")
NO_REFERENCE: Final = Ruling(None, "the task has no reference to compare with")
NOT_FOR_THIS: Final = Ruling(None, "it does not apply to this artifact", applies=False)


def rule(criterion: Criterion, answer: Answer, artifact: Artifact) -> Ruling:
    """Return the ruling on an answer; unknown if its level does not exist or a required quote is missing."""
    level = answer.level
    if level is None:
        return Ruling(None, cut(answer.reason) or "it could not be told")
    if isinstance(level, bool):
        place = criterion.top if level else 0
    elif level in criterion.levels:
        place = criterion.levels.index(level)
    else:
        return Ruling(None, f"the answer was {cut(repr(level))}; the levels are {known(criterion.levels)}")
    wrong = quote_problem(answer.quote, artifact.text) if place and criterion.evidence == "quote" else None
    if wrong is not None:
        return Ruling(None, f"the answer was {criterion.levels[place]!r}, but {wrong}")
    quote = None if answer.quote is None else cut(answer.quote)
    if place == criterion.top:
        return Ruling(place, cut(answer.reason), quote)
    others = [_complete(criterion, one) for one in answer.others]
    return Ruling(place, cut(answer.reason), quote, _finding(criterion, answer, place), others=others)


def _finding(criterion: Criterion, answer: Answer, place: int) -> Finding:
    finding = answer.finding
    if finding is None:
        reason = answer.reason if criterion.by == "check" else ""
        stands = criterion.levels[place]
        finding = Finding(criterion.id, observed=cut(reason) or f"{stands}: {criterion.text}")
    return _complete(criterion, finding)


def _complete(criterion: Criterion, finding: Finding) -> Finding:
    finding = cut_finding(finding)
    return replace(finding, criterion=criterion.id, expected=finding.expected or criterion.text)


@dataclass(frozen=True)
class Review:
    """The state of reviewing one artifact by one rubric. A value: `answered` returns the next state.

    Made by `Rubric.review`, which has run the checks. A strategy that can decide more criteria answers those that
    `open` returns until there are none; then `verdict` returns what follows. Criteria left out by then could not change
    the outcome.

    A later round demands nothing new. A criterion that is not met now is `regressed` if it was met before, else `open`:
    unknown never passes. One that was not met before and is met now is reported as `closed`. Each criterion has one
    finding at a time, even if a judge words it differently or sees it elsewhere. If a judge contradicts its earlier
    answer about unchanged words (`Decided.flips_on`), the criterion is unknown; where the outcome depends on it, the
    verdict is ESCALATE(contradiction). A check may contradict its earlier answer.
    """

    criteria: Sequence[Criterion]
    items: Sequence[Item]
    """The criteria's kinds, levels and points for the arithmetic, in their order."""
    threshold: Fraction
    artifact: Artifact
    rulings: Mapping[str, Ruling] = EMPTY
    """Rulings by criterion id; a criterion without one has not been asked about."""
    history: History = NOTHING_YET
    """The decisions of earlier reviews of the task."""
    transcript: Artifact | None = None
    """The member's conversation as a text; None if no criterion is about it or the transcript is empty."""

    def answered(self, criterion_id: str, answer: Answer) -> Review:
        """Return the review with one more answer.

        Raises `ValueError` for a criterion that the rubric does not have, or that has a ruling: rulings are final.
        """
        found = [criterion for criterion in self.criteria if criterion.id == criterion_id]
        if not found:
            ids = known(criterion.id for criterion in self.criteria)
            raise ValueError(f"the rubric has no criterion {criterion_id!r}; it has {ids}")
        if criterion_id in self.rulings:
            raise ValueError(f"criterion {criterion_id!r} has a ruling already: rulings are final")
        ruling = self._unless_it_flips(found[0], rule(found[0], answer, self.subject(found[0])))
        return replace(self, rulings={**self.rulings, criterion_id: ruling})

    def subject(self, criterion: Criterion) -> Artifact:
        """Return the text that a criterion is about."""
        return self.transcript if self.transcript is not None and criterion.on == "transcript" else self.artifact

    def _unless_it_flips(self, criterion: Criterion, ruling: Ruling) -> Ruling:
        """Make a judge's ruling unknown if it is the opposite of an earlier one about the same unchanged words."""
        before = self.history.last.get(criterion.id)
        met = ruling.level == criterion.top
        if before is None or ruling.level is None or criterion.by != "judge" or before.met == met:
            return ruling
        place = ruling.quote or (ruling.finding.locus if ruling.finding else "")
        if not before.flips_on(place, self.subject(criterion).text):
            return ruling
        then, now = ("met", "not met") if before.met else ("not met", "met")
        why = f"{place!r} has not changed: it was {then}, and is {now}"
        return replace(ruling, level=None, flipped=True, reason=why)

    def open(self, by: By, costs: Mapping[str, Number] = EMPTY) -> list[Criterion]:
        """Return the undecided criteria of `by` that can still change the outcome, in the order to ask them.

        First comes the criterion that can move the score furthest for its cost. `costs` are numbers > 0 by criterion
        id; without one a criterion costs 1.
        """
        relevant = self._relevant()
        prices = [costs.get(criterion.id, 1) for criterion in self._asked_about]
        places = score_range.in_order(self._items, relevant, prices)
        return [c for c in map(self._asked_about.__getitem__, places) if c.by == by and c.id not in self.rulings]

    @property
    def decision(self) -> Decision:
        """The outcome that no unknown criterion can change any more."""
        return score_range.decide(self._standing, self.threshold)

    @property
    def lower(self) -> Fraction:
        """The score if all unknown criteria get their worst level, from 0 to 1; gates do not count."""
        return self._share(self._standing.lower)

    @property
    def upper(self) -> Fraction:
        """The score if all unknown criteria get their best level, from 0 to 1; gates do not count."""
        return self._share(self._standing.upper)

    def verdict(self) -> EvaluationVerdict:
        """Return the verdict: PASS, REVISE, or ESCALATE with `human_required`, `contradiction` or `undecided`."""
        decision = self.decision
        if decision is Decision.OPEN:
            left = [self._asked_about[place] for place in self._relevant()]
            why = "; ".join(f"{criterion.id}: {self._why_unknown(criterion)}" for criterion in left)
            why = f"not decided: {why}" if left else "no criterion that decides applies to it"
            return self._escalate(self._causes_of_unknown(left), why)
        results, score = self._results(), score_range.score(self._standing, self.threshold)
        if decision is Decision.PASS:
            # Nothing is checked again, because its parts are made here.
            return _passed(VerdictOutcome.PASS, score, findings=tuple(self._findings()), criteria=tuple(results))
        findings = self._findings()
        feedback = "; ".join(finding.observed for finding in findings if finding.severity == "blocking")
        return EvaluationVerdict.revise(feedback, findings=findings, score=score, criteria=results)

    def defective(self, observed: str) -> EvaluationVerdict:
        """Return a REVISE for a defect that needs no judge."""
        sound_before = any(criterion.by == "judge" and criterion.id in self.history.last for criterion in self.criteria)
        finding = Finding("artifact", observed=observed, status="regressed" if sound_before else "open")
        return EvaluationVerdict.revise(observed, findings=[finding, *self._findings()], criteria=self._results())

    def undecided(self, why: str) -> EvaluationVerdict:
        """Return ESCALATE(undecided) with all findings and results."""
        return self._escalate([Cause.UNDECIDED], why)

    def _causes_of_unknown(self, left: Sequence[Criterion]) -> list[Cause]:
        """Return why criteria are not decided, the gravest cause first."""
        found = {self._cause(criterion) for criterion in left} or {Cause.UNDECIDED}
        if Cause.HUMAN_REQUIRED in found:
            approved = {c.id: Ruling(c.top) for c in self.criteria if c.by == "human" and c.id not in self.rulings}
            if replace(self, rulings={**self.rulings, **approved}).decision is Decision.PASS:
                # Where a person's approval alone would make it a PASS, the verdict must not name other causes.
                return [Cause.HUMAN_REQUIRED]
        return [cause for cause in (Cause.HUMAN_REQUIRED, Cause.CONTRADICTION, Cause.UNDECIDED) if cause in found]

    def _cause(self, criterion: Criterion) -> Cause:
        ruling = self.rulings.get(criterion.id)
        if ruling is None and criterion.by == "human":
            return Cause.HUMAN_REQUIRED
        return Cause.CONTRADICTION if ruling is not None and ruling.flipped else Cause.UNDECIDED

    def _escalate(self, causes: Sequence[Cause], why: str) -> EvaluationVerdict:
        found, results = self._findings(), self._results()
        return EvaluationVerdict.escalate(causes[0], why, findings=found, criteria=results, other_causes=causes[1:])

    @cached_property
    def _places(self) -> list[int]:
        """Indices of the criteria that apply."""
        rulings = self.rulings
        return [n for n, c in enumerate(self.criteria) if (found := rulings.get(c.id)) is None or found.applies]

    @cached_property
    def _asked_about(self) -> list[Criterion]:
        return [self.criteria[place] for place in self._places]

    @cached_property
    def _items(self) -> list[Item]:
        return [self.items[place] for place in self._places]

    @cached_property
    def _levels(self) -> list[int | None]:
        rulings = self.rulings
        return [None if (found := rulings.get(c.id)) is None else found.level for c in self._asked_about]

    @cached_property
    def _standing(self) -> score_range.Standing:
        return score_range.stand(self._items, self._levels)

    def _relevant(self) -> list[int]:
        return score_range.relevant(self._items, self._levels, self.threshold)

    def _share(self, points: int) -> Fraction:
        total = self._standing.total
        # Penalties may take more points than there are.
        return Fraction(min(max(points, 0), total), total) if total else Fraction(1)  # no points: gates alone decide

    def _findings(self) -> list[Finding]:
        """Return the findings: blocking ones first, by the points they cost; then those that are closed.

        Equal findings stay in the rubric's order.
        """
        wrong: list[tuple[Finding, float]] = []
        closed: list[Finding] = []
        for criterion, item in zip(self.criteria, self.items, strict=True):
            ruling = self.rulings.get(criterion.id)
            if ruling is None:
                continue
            if ruling.finding is not None:
                # Too low even if all that is unknown turns out best.
                short = score_range.below(self._standing.upper, self._standing, self.threshold)
                lost = _lost(item, ruling)
                places = (ruling.finding, *ruling.others)
                wrong += [(self._finding_of_round(criterion, ruling, one, short=short), lost) for one in places]
            elif ruling.level is not None and criterion.id in self.history.wanting:
                closed.append(Finding(criterion.id, criterion.id, "info", expected=criterion.text, status="closed"))
        wrong.sort(key=lambda pair: (pair[0].severity != "blocking", -pair[1]))
        return [finding for finding, _ in wrong] + closed

    def _finding_of_round(self, criterion: Criterion, ruling: Ruling, finding: Finding, *, short: bool) -> Finding:
        """Return a finding with its severity and status in this round; it blocks where the outcome depends on it."""
        decides = criterion.kind == "gate" or (criterion.kind != "info" and short)
        blocks = decides and ruling.level is not None
        status = self.history.status(criterion.id)
        return replace(finding, severity="blocking" if blocks else "info", status=status)

    def _results(self) -> list[CriterionResult]:
        return [self._result(criterion, item) for criterion, item in zip(self.criteria, self.items, strict=True)]

    def _result(self, criterion: Criterion, item: Item) -> CriterionResult:
        ruling = self.rulings.get(criterion.id)
        if ruling is None or ruling.level is None:
            level = UNKNOWN if ruling is None or ruling.applies else NOT_APPLICABLE
            why = self._why_unknown(criterion)
            return CriterionResult(criterion.id, level, None, why, text=criterion.text, by=criterion.by)
        passed = ruling.level == item.top
        reason = ruling.reason if ruling.finding is None else ruling.finding.observed
        level = criterion.levels[ruling.level]
        # Without texts there is nothing to validate.
        make = CriterionResult if reason or ruling.quote else _plain_result
        return make(criterion.id, level, passed, reason, ruling.quote, criterion.text, criterion.by)

    def _why_unknown(self, criterion: Criterion) -> str:
        """Return why a criterion is unknown."""
        ruling = self.rulings.get(criterion.id)
        if ruling is not None:
            return ruling.reason
        if criterion.by == "human":
            return f"{criterion.text} (a person decides it)"
        return f"{criterion.text} (a {criterion.by} decides it and was not asked)"


def _lost(item: Item, ruling: Ruling) -> float:
    """Return the points that a ruling loses; a gate loses everything."""
    return math.inf if item.kind == "gate" else item.step * (item.top - (ruling.level or 0))
