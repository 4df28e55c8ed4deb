"""`Review`: one artifact against one rubric, as far as it has come, and the verdict that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from kairo_team._util.frozen import EMPTY, trusted
from kairo_team.errors import known
from kairo_team.evaluators import score_range
from kairo_team.evaluators.check_calls import cut, cut_finding
from kairo_team.evaluators.criterion import Answer, By, Criterion
from kairo_team.evaluators.quotes import quote_problem, stands_in
from kairo_team.evaluators.score_range import Decision, Item, Number
from kairo_team.verdicts import (
    NOT_APPLICABLE,
    UNKNOWN,
    Cause,
    CriterionResult,
    EvaluationVerdict,
    Finding,
    VerdictOutcome,
)

if TYPE_CHECKING:
    from kairo_team.results import Artifact


@dataclass(frozen=True, slots=True)
class Decided:
    """How a criterion was decided in one review."""

    met: bool
    place: str
    """What it was decided on, in the artifact's own words or by where it is; "" is the artifact as a whole."""

    def flips_on(self, place: str, text: str) -> bool:
        """Return whether the opposite, decided now of `place` in `text`, is about words that have not changed since.

        The words that were decided on still stand there, and those of now are among them; or they were quoted for
        "met", and "not met" shows no others. Something added elsewhere can make right what was wrong, so "met" without
        a quote is no flip. A decision about the artifact as a whole never is: an unchanged one is not judged again.
        """
        if not stands_in(self.place, text):
            return False
        return stands_in(place, self.place) or (self.met and not place)


@dataclass(frozen=True, slots=True)
class History:
    """What earlier reviews decided, by criterion id."""

    last: Mapping[str, Decided] = EMPTY
    """How each was decided when it last was; what has always been unknown is not in it."""
    met: AbstractSet[str] = frozenset()
    """Criteria that were met once."""
    wanting: AbstractSet[str] = frozenset()
    """Criteria that were found wanting once."""

    def status(self, criterion_id: str) -> Literal["open", "regressed"]:
        """Return what a criterion is that is not met now: worse than it was, or open, still or for the first time."""
        return "regressed" if criterion_id in self.met else "open"


NOTHING_YET: Final = History()
"""Of an artifact that is the first."""


def history_of(prior: Sequence[EvaluationVerdict]) -> History:
    """Return what earlier verdicts, oldest first, decided."""
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
    """Return what one verdict decided; of results that disagree, as joined strategies can, the worse counts."""
    loci = {finding.criterion: finding.locus for finding in verdict.findings if not finding.is_right}
    decided: dict[str, Decided] = {}
    for result in verdict.criteria:
        if result.passed is None:
            continue
        here = Decided(result.passed, _place(result, loci))
        other = decided.get(result.id, here)
        decided[result.id] = here if other.met == here.met else Decided(met=False, place="")
    return decided


def _place(result: CriterionResult, loci: Mapping[str | None, str]) -> str:
    return result.quote or ("" if result.passed else loci.get(result.id, ""))


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is known of one criterion."""

    level: int | None
    """How many levels above the worst; None: asked, and still unknown."""
    reason: str = ""
    quote: str | None = None
    finding: Finding | None = None
    """What is wrong; None at the best level."""
    applies: bool = True
    flipped: bool = False
    """It is unknown because a judge decided the opposite before, of the same words."""


MET: Final = Ruling(1)
"""The best of two levels, without a remark."""
_plain_result: Final = trusted(CriterionResult)
_passed: Final = trusted(EvaluationVerdict)
NO_TRANSCRIPT: Final = Ruling(None, "the member kept no transcript")
NO_REFERENCE: Final = Ruling(None, "the task has no reference to compare with")
NOT_FOR_THIS: Final = Ruling(None, "it does not apply to this artifact", applies=False)


def rule(criterion: Criterion, answer: Answer, artifact: Artifact) -> Ruling:
    """Return the ruling of an answer. An answer that is not on the menu, or lacks a required quote, is unknown."""
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
    finding = None if place == criterion.top else _finding(criterion, answer, place)
    return Ruling(place, cut(answer.reason), quote, finding)


def _finding(criterion: Criterion, answer: Answer, place: int) -> Finding:
    finding = answer.finding
    if finding is None:
        reason = answer.reason if criterion.by == "check" else ""
        stands = criterion.levels[place]
        finding = Finding(criterion.id, observed=cut(reason) or f"{stands}: {criterion.text}")
    finding = cut_finding(finding)
    return replace(finding, criterion=criterion.id, expected=finding.expected or criterion.text)


@dataclass(frozen=True)
class Review:
    """One artifact against one rubric, as far as it has come: a value, `answered` makes the next.

    Made by `Rubric.review`, which has run the checks. Whoever can decide more criteria takes those of `open`, answers
    them, and goes on while there are any; then `verdict` returns what follows. The outcome is that of having asked for
    everything, whatever was left out.

    A later round asks for nothing new. What blocks is a criterion of the same rubric that was found wanting before
    (`open`), was met before (`regressed`), or is decided for the first time (`open`): unknown never passes. What was
    found wanting and is met now is reported as `closed`. Each criterion has one finding at a time, even if a judge
    words it anew or sees it elsewhere. A judge that contradicts its earlier answer about words that have not changed
    (`Decided.flips_on`) has decided nothing: the criterion is unknown, and where the outcome depends on it that is
    ESCALATE(contradiction). A check is believed.
    """

    criteria: Sequence[Criterion]
    items: Sequence[Item]
    """What the arithmetic needs of the criteria, in their order."""
    threshold: Fraction
    artifact: Artifact
    rulings: Mapping[str, Ruling] = EMPTY
    """By criterion id; what is not in it has not been asked."""
    history: History = NOTHING_YET
    """What earlier reviews of the task decided."""
    transcript: Artifact | None = None
    """The member's conversation as a text; None: nothing is asked about it, or the member kept none."""

    def answered(self, criterion_id: str, answer: Answer) -> Review:
        """Return the review with one more answer.

        Raises `ValueError` for a criterion that the rubric does not have, or that has a ruling: a ruling is final, and
        no judge is asked twice.
        """
        found = [criterion for criterion in self.criteria if criterion.id == criterion_id]
        if not found:
            ids = known(criterion.id for criterion in self.criteria)
            raise ValueError(f"the rubric has no criterion {criterion_id!r}; it has {ids}")
        if criterion_id in self.rulings:
            raise ValueError(f"criterion {criterion_id!r} has been ruled on: a ruling stands")
        ruling = self._unless_it_flips(found[0], rule(found[0], answer, self.subject(found[0])))
        return replace(self, rulings={**self.rulings, criterion_id: ruling})

    def subject(self, criterion: Criterion) -> Artifact:
        """Return what a criterion is about."""
        return self.transcript if self.transcript is not None and criterion.on == "transcript" else self.artifact

    def _unless_it_flips(self, criterion: Criterion, ruling: Ruling) -> Ruling:
        """Make a judge's ruling unknown where it is the opposite of an earlier one on the same unchanged words."""
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
        """Return the criteria of `by` not asked yet on which the outcome still depends, the one to ask first in front.

        First comes what can move the score furthest for its cost: `costs` are numbers > 0 by criterion id, else 1.
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
        """The score if the unknown turn out as bad as they can, from 0 to 1; gates are not in it."""
        return self._share(self._standing.lower)

    @property
    def upper(self) -> Fraction:
        """The score if the unknown turn out as well as they can, from 0 to 1; gates are not in it."""
        return self._share(self._standing.upper)

    def verdict(self) -> EvaluationVerdict:
        """Return what follows: PASS, REVISE, or ESCALATE with `human_required`, `contradiction` or `undecided`."""
        decision = self.decision
        if decision is Decision.OPEN:
            return self._escalated()
        results, score = self._results(), score_range.score(self._standing, self.threshold)
        if decision is Decision.PASS:
            return _passed(VerdictOutcome.PASS, score, findings=tuple(self._findings()), criteria=tuple(results))
        findings = self._findings()
        feedback = "; ".join(finding.observed for finding in findings if finding.severity == "blocking")
        return EvaluationVerdict.revise(feedback, findings=findings, score=score, criteria=results)

    def defective(self, observed: str) -> EvaluationVerdict:
        """Send it back for what no judge needs to see, before one is asked."""
        sound_before = any(criterion.by == "judge" and criterion.id in self.history.last for criterion in self.criteria)
        finding = Finding("artifact", observed=observed, status="regressed" if sound_before else "open")
        return EvaluationVerdict.revise(observed, findings=[finding, *self._findings()], criteria=self._results())

    def undecided(self, why: str) -> EvaluationVerdict:
        """Leave it to a higher authority, with all that is known: ESCALATE(undecided)."""
        return self._escalate([Cause.UNDECIDED], why)

    def _escalated(self) -> EvaluationVerdict:
        left = [self._asked_about[place] for place in self._relevant()]
        why = "; ".join(f"{criterion.id}: {self._why(criterion)}" for criterion in left)
        why = f"not decided: {why}" if left else "no criterion that decides applies to it"
        return self._escalate(self._causes(left), why)

    def _causes(self, left: Sequence[Criterion]) -> list[Cause]:
        """Return why criteria are not decided, first what forbids most."""
        found = {self._cause(criterion) for criterion in left} or {Cause.UNDECIDED}
        if Cause.HUMAN_REQUIRED in found and self._with_people_content().decision is Decision.PASS:
            return [Cause.HUMAN_REQUIRED]
        return [cause for cause in (Cause.HUMAN_REQUIRED, Cause.CONTRADICTION, Cause.UNDECIDED) if cause in found]

    def _with_people_content(self) -> Review:
        """Return the review as it would be with every criterion met that is left to a person."""
        left = [c for c in self.criteria if c.by == "human" and c.id not in self.rulings]
        return replace(self, rulings={**self.rulings, **{c.id: Ruling(c.top) for c in left}})

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
        """Where the criteria that apply are."""
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
        return Fraction(min(max(points, 0), total), total) if total else Fraction(1)

    def _findings(self) -> list[Finding]:
        """Return what is wrong, in front what moves the outcome most, and behind it what is wrong no more.

        Equals are in the rubric's order.
        """
        wrong: list[tuple[Finding, float]] = []
        closed: list[Finding] = []
        for criterion, item in zip(self.criteria, self.items, strict=True):
            ruling = self.rulings.get(criterion.id)
            if ruling is None:
                continue
            if ruling.finding is not None:
                short = score_range.below(self._standing.upper, self._standing, self.threshold)
                wrong.append((self._told(criterion, ruling, ruling.finding, short=short), _lost(item, ruling)))
            elif ruling.level is not None and criterion.id in self.history.wanting:
                closed.append(Finding(criterion.id, criterion.id, "info", expected=criterion.text, status="closed"))
        wrong.sort(key=lambda pair: (pair[0].severity != "blocking", -pair[1]))
        return [finding for finding, _ in wrong] + closed

    def _told(self, criterion: Criterion, ruling: Ruling, finding: Finding, *, short: bool) -> Finding:
        """Return a finding with what it is in this round; it blocks where the outcome hangs on it."""
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
            why = self._why(criterion)
            return CriterionResult(criterion.id, level, None, why, text=criterion.text, by=criterion.by)
        passed = ruling.level == item.top
        reason = ruling.reason if ruling.finding is None else ruling.finding.observed
        level = criterion.levels[ruling.level]
        make = CriterionResult if reason or ruling.quote else _plain_result
        return make(criterion.id, level, passed, reason, ruling.quote, criterion.text, criterion.by)

    def _why(self, criterion: Criterion) -> str:
        """Return why a criterion is unknown."""
        ruling = self.rulings.get(criterion.id)
        if ruling is not None:
            return ruling.reason
        if criterion.by == "human":
            return f"{criterion.text} (a person decides it)"
        return f"{criterion.text} (a {criterion.by} decides it, who was not asked)"


def _lost(item: Item, ruling: Ruling) -> float:
    """Return the points that a criterion costs; a gate costs everything."""
    return math.inf if item.kind == "gate" else item.step * (item.top - (ruling.level or 0))
