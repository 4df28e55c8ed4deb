"""Contract tests of evaluators: verdicts on good, bad and blank artifacts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import count, product
from typing import Any, Final, cast

import anyio
from hypothesis import strategies as st

from kairo_team.artifacts import Artifact, Finding
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.tck.calls import another_moment, said_elsewhere, skip_unless
from kairo_team.tck.evaluation_stage import EvaluationStage, is_about_rounds
from kairo_team.tck.kit import clause, law
from kairo_team.verdicts import Cause, EvaluationVerdict, VerdictOutcome

PASS, REVISE = VerdictOutcome.PASS, VerdictOutcome.REVISE
ESCALATE, EXCEEDED = VerdictOutcome.ESCALATE, VerdictOutcome.REVIEW_EXCEEDED

BLANK: Final = ("", " ", "\n\n\t \r\n", "\u00a0\u2003", "\u200b", "\ufeff \u2060\n\u200d", "\U000e0041\U000e0042")
"""Texts that show nothing: white space, characters of no width, tag characters."""
_AGAIN: Final = 5
_LATER: Final = 30.0
"""Seconds of the event loop between reviews; the wall clock moves by days."""
_OF_A_HUNDRED: Final = r" ?(%|per ?cent|points|of 100 points|/ ?100)"
_LEFT_TO_OTHERS: Final = {Cause.HUMAN_REQUIRED.value, Cause.LOW_CONFIDENCE.value}
"""Why a strategy that passes nothing may leave a good artifact open."""
_BROKEN_BEFORE: Final = "archive-7261 is closed"
"""The feedback of an earlier review that failed."""


class VerdictTests(EvaluationStage):
    """C1 to C6."""

    @clause("C1")
    async def test_c01_a_verdict_does_not_contradict_itself(self) -> None:
        """The verdict on a good, a bad and a blank artifact."""
        for artifact in (*self.good(), *self.bad(), Artifact("")):
            check_verdict((await self.ask(self.make_strategy(), artifact)).verdict)

    @clause("C1")
    async def test_c01_what_passes_scores_no_less_than_what_is_sent_back(self) -> None:
        """Score and outcome are one computation."""
        verdicts = [await self.verdict(self.make_strategy(), one) for one in (*self.good(), *self.bad())]
        passed = [one.score for one in verdicts if one.outcome is PASS and one.score is not None]
        sent_back = [one.score for one in verdicts if one.outcome is REVISE and one.score is not None]
        least, most = min(passed, default=1.0), max(sent_back, default=0.0)
        assert least >= most, f"it passed what it scores {least:g}, and sent back what it scores {most:g}"

    @clause("C2")
    async def test_c02_what_is_blank_to_the_eye_never_passes(self) -> None:
        """Whole or cut off."""
        for text, partial in product(BLANK, (False, True)):
            asked = await self.ask(self.make_strategy(), Artifact(text, partial=partial))
            assert getattr(asked.returned, "outcome", None) is not PASS, (
                f"it passed {text!a}, in which there is nothing"
            )

    @clause("C2")
    async def test_c02_what_was_cut_off_is_reviewed(self) -> None:
        """Artifacts cut at half, cut after one character, and complete but marked as cut off."""
        for whole in self.good():
            for end in (1, len(whole.text) // 2, len(whole.text)):
                cut = Artifact(whole.text[:end], whole.data, whole.media_type, partial=True)
                check_reviewed((await self.ask(self.make_strategy(), cut)).verdict, cut)

    @law("C2", examples=15, text=st.text(max_size=60))
    async def test_c02_any_text_is_reviewed(self, text: str) -> None:
        """Whatever characters it is made of."""
        artifact = Artifact(text)
        check_reviewed((await self.ask(self.make_strategy(), artifact)).verdict, artifact)

    @clause("C3")
    async def test_c03_what_is_good_passes(self) -> None:
        """The outcome is PASS. If the strategy cannot pass anything, it is ESCALATE, and nothing else is missing."""
        for artifact in self.good():
            self.check_good(await self.verdict(self.make_strategy(), artifact), f"{artifact.text!r:.80} is good, so")

    @clause("C3")
    async def test_c03_what_is_bad_is_sent_back_or_left_to_others(self) -> None:
        """A defect of the artifact is not a failure of the review; cutting the artifact off does not make it good."""
        for artifact in (*self.bad(), *(replace(one, partial=True) for one in self.bad())):
            verdict = await self.verdict(self.make_strategy(), artifact)
            good = verdict.outcome in {REVISE, ESCALATE}
            assert good, f"{artifact.text!r:.80} is bad, so REVISE or ESCALATE, not {_shown(verdict)}"
            assert not verdict.awaits_approval, (
                f"{artifact.text!r:.80} is bad, and one approval would make it pass: {_shown(verdict)}"
            )

    @clause("C3")
    async def test_c03_a_good_artifact_of_another_task_makes_none_pass(self) -> None:
        """A bad artifact that was made from a good one is bad."""
        skip_unless(not self.upstream, "its artifacts were made from others: upstream is given")
        skip_unless(not self.asks_a_judge, "the kit's judge finds the artifact by its text, wherever that is")
        for artifact in self.bad():
            asked = await self.ask(self.make_strategy(), artifact, upstream={"before": self.good()[0]})
            assert asked.verdict.outcome is not PASS, (
                f"{artifact.text!r:.80} is bad, and it passed when it was made from {self.good()[0].text!r:.80}"
            )

    @clause("C4")
    async def test_c04_a_blocking_finding_says_something_to_act_on(self) -> None:
        """A finding says what is wrong, or how it should be."""
        for artifact in self.bad():
            for finding in (await self.verdict(self.make_strategy(), artifact)).findings:
                actionable = finding.severity != "blocking" or finding.observed.strip() or finding.expected.strip()
                assert actionable, f"{finding!r} has neither an observation nor an expectation"

    @clause("C4")
    async def test_c04_no_score_stands_as_number(self) -> None:
        """The score is not given as a share, in percent or in points."""
        for artifact in self.bad():
            verdict = await self.verdict(self.make_strategy(), artifact)
            leaks = any(_stands_as_number(form, given_to_member(verdict)) for form in _forms(verdict.score))
            assert not leaks, f"the member would be given the score, {verdict.score}: {given_to_member(verdict)!r:.300}"

    @clause("C4")
    async def test_c04_nothing_of_earlier_failures_stands_as_number(self) -> None:
        """The error of an earlier broken review is in no text for the member."""
        broken = EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, f"LookupError: {_BROKEN_BEFORE}")
        for artifact in (*self.good(), *self.bad()):
            verdict = await self.verdict(self.make_strategy(), artifact, [broken])
            assert _BROKEN_BEFORE not in given_to_member(verdict), (
                f"a member would be given an earlier failure: {given_to_member(verdict)!r:.300}"
            )

    @clause("C5", needs="deterministic")
    async def test_c05_the_same_again_and_later_gets_an_equal_verdict(self) -> None:
        """Days later, and with other random numbers."""
        moments = count(1)
        for artifact in (*self.good()[:2], *self.bad()[:2]):
            strategy, first = self.make_strategy(), await self.verdict(self.make_strategy(), artifact)
            for _ in range(_AGAIN):
                with another_moment(next(moments)):
                    check_equal(await self.verdict(strategy, artifact), first, "asked again")
                await anyio.sleep(_LATER if self.virtual_time else 0)

    @clause("C5", needs="deterministic")
    async def test_c05_what_was_asked_before_changes_nothing(self) -> None:
        """In one order, in the other, and alone."""
        artifacts = [*self.good(), *self.bad(), Artifact("")]
        alone = [await self.verdict(self.make_strategy(), one) for one in artifacts]
        strategy = self.make_strategy()
        there = [await self.verdict(strategy, one) for one in artifacts]
        back = [await self.verdict(strategy, one) for one in reversed(artifacts)]
        for one, first, second in zip(alone, there, reversed(back), strict=True):
            check_equal(first, one, "asked after others")
            check_equal(second, one, "asked in another order")

    @clause("C5", needs="deterministic")
    async def test_c05_an_artifact_of_the_same_letters_changes_nothing(self) -> None:
        """The same text backwards was asked about before: a cache must not take one for the other."""
        for artifact in (*self.good(), *self.bad()):
            alone = await self.verdict(self.make_strategy(), artifact)
            strategy = self.make_strategy()
            await self.ask(strategy, Artifact(artifact.text[::-1], media_type=artifact.media_type))
            after = await self.verdict(strategy, artifact)
            check_equal(after, alone, "asked after the same text backwards")

    @clause("C6")
    async def test_c06_what_is_good_passes_after_any_rounds(self) -> None:
        """An artifact passes although earlier ones failed, and no new requirement comes up."""
        strategy, prior = self.make_strategy(), list[EvaluationVerdict]()
        for number in range(4):
            prior.append(await self.verdict(strategy, self.bad()[number % len(self.bad())], prior))
            for artifact in self.good():
                verdict = await self.verdict(strategy, artifact, prior)
                self.check_good(verdict, f"after {number + 1} rounds {artifact.text!r:.80} is good, so")

    @clause("C6")
    async def test_c06_what_is_bad_does_not_pass_by_being_shown_again(self) -> None:
        """However often."""
        for artifact in self.bad():
            strategy, prior = self.make_strategy(), list[EvaluationVerdict]()
            for number in range(6):
                verdict = await self.verdict(strategy, artifact, prior)
                assert verdict.outcome is not PASS, f"{artifact.text!r:.80} passed when shown {number + 1} times"
                prior.append(verdict)

    @clause("C6")
    async def test_c06_the_digest_of_its_criteria_never_changes(self) -> None:
        """Where it has one."""
        strategy = self.make_strategy()
        before: Any = getattr(strategy, "digest", None)
        for artifact in (*self.bad(), *self.good()):
            await self.verdict(strategy, artifact)
        for after in (getattr(strategy, "digest", None), getattr(self.make_strategy(), "digest", None)):
            assert after == before, f"its digest was {before!r} and is {after!r}"

    @clause("C6")
    async def test_c06_the_digest_of_its_criteria_is_the_same_in_every_process(self) -> None:
        """If it has a digest and another process can make the strategy, where a run may be resumed."""
        here = criteria_digest(self.make_strategy())
        if here is not None:
            there = said_elsewhere(
                type(self).__module__,
                type(self).__qualname__,
                "from kairo_team.engine.records.digests import criteria_digest; "
                "print(repr(criteria_digest(kit.make_strategy())))",
            )
            assert there == repr(here), (
                f"its digest is {here!r} here and {there} in another process: is it made by "
                "hash(), id(), an order of a set, or what is read when the process starts?"
            )

    def check_good(self, verdict: EvaluationVerdict, about: str) -> None:
        """Fail unless a good artifact passes, or lacks only what the strategy leaves to others."""
        if self.can_pass:
            assert verdict.outcome is PASS, f"{about} PASS, not {_shown(verdict)}"
            return
        assert verdict.outcome is ESCALATE, f"{about} ESCALATE, since can_pass is False, not {_shown(verdict)}"
        open_for = {cause.value for cause in (verdict.cause, *verdict.other_causes) if cause is not None}
        assert open_for <= _LEFT_TO_OTHERS, (
            f"{about} can_pass = False leaves only an approval or the judge's confidence open, and its review is open "
            f"for {', '.join(sorted(open_for - _LEFT_TO_OTHERS))}: {_shown(verdict)}"
        )
        blocking = [finding for finding in verdict.findings if finding.severity == "blocking"]
        assert not blocking, f"{about} nothing blocks it, although can_pass is False; this does: {blocking!r:.300}"


def check_verdict(verdict: EvaluationVerdict) -> None:
    """Raise `AssertionError` for a verdict that contradicts itself, even if it bypassed the constructor."""
    values = {field.name: getattr(verdict, field.name) for field in fields(cast("Any", EvaluationVerdict))}
    EvaluationVerdict(**values)  # raises for a verdict that was changed, or made without its constructor
    shown, results = _shown(verdict), [result.passed for result in verdict.criteria]
    assert not is_about_rounds(verdict), f"{shown}: only the run can know"
    if verdict.outcome is PASS:
        assert verdict.score != 0, f"{shown} with a score of 0"
        assert not results or any(results), f"{shown}, and no criterion is met: {results}"
    if verdict.outcome is REVISE:
        assert verdict.score != 1, f"{shown} with a score of 1"
        assert not results or not all(results), f"{shown}, and every criterion is met"
    if verdict.outcome is EXCEEDED:
        assert verdict.score is None, f"{shown} with a score of {verdict.score}: there is no review"


def check_reviewed(verdict: EvaluationVerdict, artifact: Artifact) -> None:
    """Raise `AssertionError` unless a verdict is about the artifact."""
    check_verdict(verdict)
    assert verdict.outcome is not EXCEEDED, f"{artifact.text!r:.80} broke the review: {_shown(verdict)}"


def check_equal(verdict: EvaluationVerdict, wanted: EvaluationVerdict, when: str) -> None:
    """Raise `AssertionError` unless two verdicts are equal, but for what they cost."""
    one, other = replace(verdict, usage=wanted.usage), wanted
    assert one == other, f"{when}, the verdict is another: {one!r:.300} instead of {other!r:.300}"


def given_to_member(verdict: EvaluationVerdict) -> str:
    """Return the text of a verdict that a member gets."""
    feedback = [verdict.feedback, *verdict.suggestions] if verdict.outcome is REVISE else []
    return "\n".join([*feedback, *(part for finding in verdict.findings for part in _parts(finding))])


def _parts(finding: Finding) -> Iterable[str]:
    return (finding.id, finding.locus, finding.observed, finding.expected, finding.recheck)


def _shown(verdict: EvaluationVerdict) -> str:
    return verdict.outcome.name + (f"({verdict.cause.value}: {verdict.feedback:.80})" if verdict.cause else "")


def _forms(score: float | None) -> list[str]:
    """Return patterns for a score in text; none for 0 and 1, which could be any number."""
    if score is None or not 0 < score < 1:
        return []
    shares = {f"{score:.{places}f}" for places in (2, 3, 4)} | {f"{score:g}", repr(score)}
    percent = {f"{math.floor(score * 100)}", f"{score * 100:.0f}", f"{score * 100:.1f}"}
    of_ten = re.escape(f"{score * 10:.1f}") + " ?/ ?10"
    return [*map(re.escape, shares), *(re.escape(one) + _OF_A_HUNDRED for one in percent), of_ten]


def _stands_as_number(form: str, text: str) -> bool:
    """Return whether a text contains a number of that form that is not part of another number."""
    return re.search(rf"(?<![\d.]){form}(?!\d)", text) is not None
