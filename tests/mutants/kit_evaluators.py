"""Wrong evaluators, each rejected by the kit at one clause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.evaluators import CriterionResult
from tests.mutants.honest_reviews import Asks, AsksTCK, Verdict, Words, WordsTCK
from tests.mutants.kit_evaluator_judges import MUTANTS as OF_JUDGES
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()


# ---------------------------------------------------------------- verdicts


@mutant("E08", clause="C1")
class AnotherObject(WordsTCK):
    """It returns an object of its own, with a score that is no number."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Any:
            return SimpleNamespace(outcome="pass", score=float("nan"), findings=(), usage=kt.Usage())


@mutant("E08", clause="C1")
class ScoreOutOfRange(WordsTCK):
    """It gives its verdict a score of 80, past the check of its class."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            object.__setattr__(verdict, "score", 80.0)
            return verdict


@mutant("E07", clause="C1")
class TwoComputations(WordsTCK):
    """It sends back by what is missing, and scores by the length."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            score = 0.2 if verdict.outcome is kt.VerdictOutcome.PASS else 0.9
            findings = verdict.findings
            return Verdict(verdict.outcome, score, verdict.feedback, findings=findings)


@mutant("E07", clause="C1")
class PassOfNothingMet(WordsTCK):
    """It passes with a criterion that is not met."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            results = [CriterionResult("sea", "not met", passed=False)]
            return Verdict(verdict.outcome, verdict.score, findings=verdict.findings, criteria=results)


@mutant("E04", clause="C1")
class OneCauseForAll(WordsTCK):
    """What it cannot decide it calls used-up rounds, which is the run's to say."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            good = verdict.outcome is kt.VerdictOutcome.PASS
            return verdict if good else Verdict.review_exceeded("rounds_exhausted")


@mutant("E06", clause="C2")
class EmptyRubric(WordsTCK):
    """It has no criteria, and all of none are met."""

    class Review(Words):
        wanted = ()


@mutant(clause="C2")
class SeesNoWidth(WordsTCK):
    """Characters that nobody sees are text to it."""

    good_artifacts = ("The moon.",)
    bad_artifacts = ("",)

    class Review:
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            return Verdict.passed(1.0) if context.artifact.text.strip() else Verdict.revise("It is blank.")


@mutant(clause="C2")
class BreaksOnShortTexts(WordsTCK):
    """It reads the eighth letter of every artifact."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            if context.artifact.text and context.artifact.text[7] == "!":
                return Verdict.revise("Nobody shouts.")
            return await super().evaluate(context)


class SignedTCK(WordsTCK):
    """A person signs what code let through."""

    can_pass = False
    checked: ClassVar[Any] = kt.checks.contains("moon", "sea")

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        signed = kt.Criterion("signed", "a person signs it", by="human")
        return kt.Rubric([kt.Criterion("names", "it names the moon and the sea", cls.checked), signed])


def _no_archive(artifact: kt.Artifact) -> bool:
    raise LookupError("the archive is closed")


@mutant(clause="C3", by="what_is_good_passes")
class SignsWhatNobodyRead(SignedTCK):
    """The check of a signed rubric always raises, and a person is asked about everything."""

    checked = _no_archive


@mutant(clause="C7", by="cannot_crash")
class CrashesAllTheSame(SignedTCK):
    """It says that nothing in it can fail, and its check does."""

    checked = _no_archive


@mutant(clause="C3", by="what_is_bad")
class LetsThePersonFindIt(SignedTCK):
    """The person who signs is not told what is missing."""

    checked = kt.checks.contains("sea")


@mutant(clause="C7", by="cannot_crash")
class JudgeThatCannotFail(AsksTCK):
    """It says that nothing in it can fail, and asks a judge."""

    cannot_crash = True


@mutant("E17", clause="C3")
class StrictestThreshold(AsksTCK):
    """No certificate holds, and it takes the strictest threshold instead of leaving all to others."""

    can_pass = False

    class Review(Asks):
        certified: ClassVar[tuple[float, ...]] = ()

        def decide(self, said: dict[str, Any], context: kt.EvaluationContext) -> Verdict:
            sure: float = said.get("confidence", 1.0)
            if sure < min(self.certified, default=1.0):
                return Verdict.escalate("low_confidence")
            return super().decide(said, context)


@mutant(clause="C3")
class FindsNothing(WordsTCK):
    """It looks for one of two words."""

    class Review(Words):
        wanted = ("moon",)


@mutant(clause="C4")
class TellsTheScore(WordsTCK):
    """It tells the member its score."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            if verdict.score in (None, 0, 1):
                return verdict
            return Verdict.revise(f"{verdict.score:.0%} is too little", findings=verdict.findings, score=verdict.score)


@mutant(clause="C4")
class HandsOnTheTranscript(AsksTCK):
    """It tells the member all that the judge said."""

    class Review(Asks):
        def read(self, reply: str, token: str) -> list[dict[str, Any]]:
            return [{**one, "reply": reply} for one in super().read(reply, token)]

        def decide(self, said: dict[str, Any], context: kt.EvaluationContext) -> Verdict:
            return Verdict.revise(said["reply"]) if said["passed"] is False else super().decide(said, context)


@mutant("E02", clause="C4")
class TellsOfEarlierFailures(WordsTCK):
    """It adds what went wrong in earlier reviews to its feedback."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            said = "; ".join([verdict.feedback, *(prior.feedback for prior in context.prior_verdicts)])
            return Verdict(verdict.outcome, verdict.score, said, findings=verdict.findings)


# ---------------------------------------------------------------- the same again


@mutant("E09", clause="C5")
class TellsTheTime(WordsTCK):
    """The time stands in its verdicts."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            said = f"{verdict.feedback} ({datetime.now().isoformat()})"  # noqa: DTZ005 - any clock will do
            return Verdict(verdict.outcome, verdict.score, said, findings=verdict.findings)


@mutant("E14", clause="C5")
class GradesOnACurve(WordsTCK):
    """It holds an artifact against the one before."""

    class Review(Words):
        last = 0

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            longer, self.last = len(context.artifact.text) > self.last, len(context.artifact.text)
            verdict = await super().evaluate(context)
            if verdict.outcome is kt.VerdictOutcome.PASS:
                return verdict
            findings = [*verdict.findings, kt.Finding("length", severity="info", observed="longer")]
            return Verdict.revise(verdict.feedback, findings=findings[: 2 + longer])


@mutant("E15", clause="C6")
class CriteriaDrift(WordsTCK):
    """The digest of its criteria is another after every review."""

    class Review(Words):
        reviews = 0

        @property
        def digest(self) -> str:
            return f"criteria of review {self.reviews}"

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            self.reviews += 1
            return await super().evaluate(context)


@mutant("E15", clause="C6")
class DigestOfThisProcess(WordsTCK):
    """The digest of its criteria is another in each process."""

    class Review(Words):
        digest = f"criteria {hash('tide and wind')}"


@mutant("E15", clause="C6")
class MovesTheGoal(WordsTCK):
    """Each round it wants one thing more."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            more = ("tide", "wind", "sun")[: len(context.prior_verdicts)]
            missing = [word for word in more if word not in context.artifact.text]
            return Verdict.revise(f"It lacks the {missing[0]}.") if missing else await super().evaluate(context)


@mutant("E16", clause="C6")
class WearsDown(WordsTCK):
    """What is shown a fourth time passes."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            worn = len(context.prior_verdicts) > 2 and context.artifact.text.strip()
            return Verdict.passed(1.0) if worn else await super().evaluate(context)


# ---------------------------------------------------------------- sharing


@mutant("E10", clause="C9")
class OneListForAll(WordsTCK):
    """Reviews at once write into one list."""

    class Review(Words):
        def __init__(self) -> None:
            self.lacking: list[str] = []

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            self.lacking.clear()
            for word in self.wanted:
                await anyio.lowlevel.checkpoint()
                if word not in context.artifact.text:
                    self.lacking.append(word)
            return Verdict.revise(f"It lacks {self.lacking}.") if self.lacking else Verdict.passed(1.0)


@mutant(clause="C10")
class CorrectsForAll(WordsTCK):
    """It writes into the artifact that it was given."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            object.__setattr__(context.artifact, "text", context.artifact.text.strip() + ".")
            return verdict


class Sum:
    """Asks for words, each of which counts more than the one before."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = wanted

    async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
        score = 0.0
        for word in self.wanted:
            score = (score + (word in context.artifact.text)) / 2
        return Verdict.passed(score) if score > 0.7 else Verdict.revise("Something is missing.", score=score)


@mutant("E14", clause="C14")
class LastCountsMost(WordsTCK):
    """The order of its words makes the score."""

    has_parts = True

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return Sum(["moon", "sea"])

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        return [Sum(["sea", "moon"])]


@mutant(clause="C15")
class NamesNoJudge(AsksTCK):
    """It asks a judge, and says that it asks none."""

    class Review(Asks):
        def __init__(self, judge: ChatModel) -> None:
            super().__init__(judge)
            self.models = ()


@mutant("E06", clause="C15")
class CallsItselfVacuous(WordsTCK):
    """It finds more than blanks, and says that it does not: HIGH risk would refuse it."""

    class Review(Words):
        vacuous = True


@mutant(clause="C15")
class LacksInOneWord(WordsTCK):
    """It says what it lacks as a text, of which a run would read the letters."""

    class Review(Words):
        def preflight(self, *, judge: bool = False, gate: bool = False) -> str:
            return "" if judge or gate else "nobody decides"


@mutant("E02", clause="C7")
class TellsBesideADefect(WordsTCK):
    """One part finds a defect, another breaks, and the member is told of both."""

    cannot_crash = False

    class Review(Words):
        error: Exception | None = None

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            if self.error is None:
                return verdict
            if verdict.outcome is kt.VerdictOutcome.PASS:
                raise self.error
            return Verdict.revise(f"{verdict.feedback} {self.error}", findings=verdict.findings)

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        strategy = cls.Review()
        strategy.error = error
        return strategy


@mutant(clause="C13")
class ObeysTheArtifact(WordsTCK):
    """A note to it in the artifact makes it pass."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            told = "approved" in context.artifact.text
            return Verdict.passed(1.0) if told else await super().evaluate(context)


@mutant(clause="C4")
class TellsPoints(WordsTCK):
    """It tells the member how many points of a hundred it gave."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            verdict = await super().evaluate(context)
            if verdict.score in (None, 0, 1):
                return verdict
            said = f"You reached {100 * verdict.score:.0f} of 100 points."
            return Verdict.revise(said, findings=verdict.findings, score=verdict.score)


@mutant(clause="C3")
class TrustsABeginning(WordsTCK):
    """What was cut off passes when it begins well."""

    class Review(Words):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            begun = context.artifact.partial and context.artifact.text.startswith("The moon")
            return Verdict.passed(1.0) if begun else await super().evaluate(context)


MUTANTS.extend(OF_JUDGES)
