"""Wrong evaluators that ask a judge, or whose judge breaks, each rejected by the kit at one clause."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import anyio

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.evaluators import AgentEvaluationStrategy, Answer, Criterion, Rubric
from kairo_team.evaluators.artifact_view import as_data
from kairo_team.evaluators.judge_question import Question
from kairo_team.evaluators.judge_reply import Judgement
from kairo_team.evaluators.judge_texts import JudgeTexts
from kairo_team.evaluators.judging import AskingOptions, Judge
from kairo_team.tck import EvaluationStrategyTCK
from tests.mutants.honest_reviews import Asks, AsksTCK, Verdict, objects
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()


# ---------------------------------------------------------------- failures


@mutant("E01", clause="C7")
class FailsOpen(AsksTCK):
    """What it cannot review passes."""

    class Review(Asks):
        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return Verdict.passed(0.8)


@mutant("E01", clause="C7")
class ScoresItsCrash(AsksTCK):
    """What it cannot review is sent back with the least score there is."""

    class Review(Asks):
        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return Verdict.revise("It could not be reviewed.", score=0.0)


@mutant("E02", clause="C7")
class BlamesTheArtifact(AsksTCK):
    """The judge's error is what the member is told."""

    class Review(Asks):
        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return Verdict.revise(f"The review says: {error}")


@mutant("E01", clause="C7")
class GivesInToFailures(AsksTCK):
    """After three failures it takes the artifact as it is."""

    class Review(Asks):
        failures = 0

        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            self.failures += 1
            return Verdict.passed() if self.failures > 3 else super().failed(error, context)


@mutant("E04", clause="C7")
class CrashIsATimeout(AsksTCK):
    """Whatever breaks is called a timeout."""

    class Review(Asks):
        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return Verdict.review_exceeded("evaluator_timeout")


@mutant("E20", clause="C8")
class WaitsForEver(AsksTCK):
    """It waits for its judge whoever wants it to end."""

    class Review(Asks):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1000):
                return self.decide(await self.ask(context), context)
            return Verdict.review_exceeded("evaluator_timeout")


@mutant("E20", clause="C8")
class TakesCancellationForAVerdict(AsksTCK):
    """Cancelled, it returns a verdict."""

    class Review(Asks):
        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            try:
                return await super().evaluate(context)
            except BaseException:  # noqa: BLE001 - that is the mistake
                return Verdict.review_exceeded("evaluator_timeout")


@mutant("E02", clause="C7")
class BlamesInLaterRounds(AsksTCK):
    """What it cannot review is sent back, once something was sent back before."""

    class Review(Asks):
        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return Verdict.revise("Not yet.") if context.prior_verdicts else super().failed(error, context)


@mutant("E04", clause="C5")
class KeepsItsFailure(AsksTCK):
    """Its judge failed about an artifact, and is never asked about that one again."""

    class Review(Asks):
        def __init__(self, judge: ChatModel) -> None:
            super().__init__(judge)
            self.failures: dict[str, Verdict] = {}

        async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
            return self.failures.get(context.artifact.text) or await super().evaluate(context)

        def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
            return self.failures.setdefault(context.artifact.text, super().failed(error, context))


# ---------------------------------------------------------------- judges


@mutant("E13", clause="C11")
class AsksTheWriter(AsksTCK):
    """It asks the model that wrote the artifact."""

    class Review(Asks):
        def model(self, context: kt.EvaluationContext) -> Any:
            assert context.context is not None
            return context.context.model("openai:writer")


@mutant("E19", clause="C11")
class PaysNothing(AsksTCK):
    """It calls its judge past the run, which pays for nothing."""

    class Review(Asks):
        def model(self, context: kt.EvaluationContext) -> Any:
            return self.judge


@mutant("E03", clause="C11")
class WeakerWithoutAJudge(AsksTCK):
    """Without a judge it takes a look at the length."""

    class Review(Asks):
        def unwired(self, context: kt.EvaluationContext) -> Verdict:
            return Verdict.passed() if len(context.artifact.text) > 10 else super().unwired(context)


@mutant("E04", clause="C11")
class BrokeIsACrash(AsksTCK):
    """Without money it says that its judge broke."""

    class Review(Asks):
        def broke(self) -> Verdict:
            return Verdict.review_exceeded("evaluator_error")


@mutant("E18", clause="C12")
class AsksForEver(AsksTCK):
    """It asks until its judge makes sense."""

    class Review(Asks):
        tries = 1000


@mutant("E05", clause="C12")
class MissingIsTrue(AsksTCK):
    """An object without an answer is a yes."""

    class Review(Asks):
        def read(self, reply: str, token: str) -> list[dict[str, Any]]:
            return [{"passed": one.get("passed", True)} for one in objects(reply)]


@mutant("E05", clause="C12")
class NoneIsTrue(AsksTCK):
    """A judge that cannot tell has not said no."""

    class Review(Asks):
        def decide(self, said: dict[str, Any], context: kt.EvaluationContext) -> Verdict:
            return Verdict.passed() if said["passed"] is not False else self.revise(context)


@mutant("E05", clause="C12")
class ApprovesByTheWord(AsksTCK):
    """A reply in which "pass" stands is a yes."""

    class Review(Asks):
        def read(self, reply: str, token: str) -> list[dict[str, Any]]:
            return super().read(reply, token) or [{"passed": "pass" in reply.lower()}]


@mutant("E11", clause="C12")
class LastObjectWins(AsksTCK):
    """Of two answers it takes the last."""

    class Review(Asks):
        def read(self, reply: str, token: str) -> list[dict[str, Any]]:
            return super().read(reply, token)[-1:]


@mutant("E11", clause="C13")
class FirstObjectWins(AsksTCK):
    """It takes the first object with an answer, whoever wrote it."""

    class Review(Asks):
        def read(self, reply: str, token: str) -> list[dict[str, Any]]:
            return [one for one in objects(reply) if one.get("passed") in (True, False)][:1]


@mutant("E12", clause="C13")
class FillsInTwice(AsksTCK):
    """What stands in the artifact is filled in like its template."""

    class Review(Asks):
        def prompt(self, context: kt.EvaluationContext, token: str) -> str:
            told = super().prompt(context, token)
            return told.replace("{goal}", context.goal).replace("{{ goal }}", context.goal)


@mutant("E11", clause="C13")
class FollowsItsJudge(AsksTCK):
    """Its judge does what the artifact says, and it does what its judge says."""

    suspects_injections = True


# ---------------------------------------------------------------- judges' questions


class Guards(EvaluationStrategyTCK):
    """The kit of `AgentEvaluationStrategy`; the mutants ask in another way."""

    asks_a_judge = True
    guards_its_judge = True
    good_artifacts = ("The moon pulls the sea.", "The sea follows the moon.")
    bad_artifacts = ("The sea breathes.", "Fish push the water.")
    Asking: ClassVar[type[Judge]] = Judge

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        class Mutant(AgentEvaluationStrategy):
            asks = cls.Asking

        return Mutant(judge, Rubric([Criterion("true", "what it says is true", by="judge")]))


@mutant("E11", clause="C13", by="data_too")
class QuotesUpstreamRaw(Guards):
    """What the work was made from stands in the prompt as it is."""

    class Asking(Judge):
        def _shown(self, question: Question, texts: JudgeTexts) -> dict[str, Any]:
            upstream = {name: given.text for name, given in self._context.upstream.items()}
            return {**super()._shown(question, texts), "upstream": upstream}


@mutant("E06", clause="C13", by="not_shown_of_the_sources")
class CutsItsSources(Guards):
    """What the work was made from is cut, and the verdict rests on it all the same."""

    class Asking(Judge):
        def _texts(self, criteria: Sequence[Criterion]) -> JudgeTexts:
            texts = super()._texts(criteria)
            upstream = {name: as_data(json.loads(text)[:6_000]) for name, text in texts.upstream.items()}
            return replace(texts, upstream=upstream, cut={})


@mutant("E11", clause="C13", by="contradicts_itself")
class AsksOneWay(Guards):
    """Each criterion is asked about one way round."""

    class Asking(Judge):
        async def _question(self, criteria: Sequence[Criterion], given: JudgeTexts) -> Question:
            asked = await super()._question(criteria, given)
            return replace(asked, statements=[one for one in asked.statements if not one.turned])


@mutant("E11", clause="C13", by="blindly")
class BelievesWhoeverAnswers(Guards):
    """Wrong answers to controls are passed over."""

    class Asking(Judge):
        def _read(self, reply: kt.ModelResponse, question: Question, texts: JudgeTexts, *, last: bool) -> Judgement:
            asked = [replace(one, right=None) for one in question.statements]
            return super()._read(reply, replace(question, statements=asked), texts, last=last)


@mutant("E11", clause="C13", by="knows_the_controls")
class AsksWithoutCanaries(Guards):
    """All its controls are on labels, words and lengths."""

    class Asking(Judge):
        async def _question(self, criteria: Sequence[Criterion], given: JudgeTexts) -> Question:
            asked = await super()._question(criteria, given)
            return replace(asked, statements=[one for one in asked.statements if not one.canary])


@mutant("E18", clause="C12", by="one_slip")
class ForgivesNothing(Guards):
    """A slip of the judge costs the work."""

    class Asking(Judge):
        def _read(self, reply: kt.ModelResponse, question: Question, texts: JudgeTexts, *, last: bool) -> Judgement:
            return super()._read(reply, question, texts, last=True)

        async def ask_about_work(self, criteria: Sequence[Criterion]) -> Judgement:
            return await self._asked(criteria)


@mutant("E11", clause="C13", by="contradicts_itself")
class TakesTheBetterAnswer(Guards):
    """Where the judge contradicts itself again, the answer for the work counts."""

    class Asking(Judge):
        def _read(self, reply: kt.ModelResponse, question: Question, texts: JudgeTexts, *, last: bool) -> Judgement:
            read = super()._read(reply, question, texts, last=last)
            best = {name: Answer(True) for name in read.contradicted} if self._again else {}
            return replace(read, answers={**read.answers, **best})


@mutant("E11", clause="C13", by="before_its_question")
class MarksByTheText(Guards):
    """Ids and marks follow from the texts alone."""

    class Asking(Judge):
        def __init__(self, judge: Any, context: kt.EvaluationContext, options: AskingOptions) -> None:
            super().__init__(judge, context, replace(options, seed=1))


@mutant("E05", clause="C12", by="cut_off")
class ReadsWhatWasCutOff(Guards):
    """Whatever can be read counts, however the reply ended."""

    class Asking(Judge):
        def _read(self, reply: kt.ModelResponse, question: Question, texts: JudgeTexts, *, last: bool) -> Judgement:
            return super()._read(replace(reply, finish_reason="stop"), question, texts, last=last)
