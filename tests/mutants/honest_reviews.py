"""Two right evaluators, one of code and one that asks a judge in words of its own, and the kits of both."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

import anyio

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.tck import EvaluationStrategyTCK

Verdict = kt.EvaluationVerdict


class Words:
    """A right evaluator of code: the artifact names the moon and the sea."""

    wanted: ClassVar[tuple[str, ...]] = ("moon", "sea")

    async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
        text = context.artifact.text
        lacking = [word for word in self.wanted if word not in text]
        await anyio.lowlevel.checkpoint()
        if not lacking:
            return Verdict.passed(1.0)
        findings = [kt.Finding(word, expected=f"it names the {word}") for word in lacking]
        return Verdict.revise("Something is missing.", findings=findings, score=1 - len(lacking) / len(self.wanted))


class WordsTCK(EvaluationStrategyTCK):
    """The kit of `Words`; the mutants put another class in its place."""

    deterministic = True
    cannot_crash = True
    good_artifacts: ClassVar[Sequence[str | kt.Artifact]] = (
        "The moon pulls the sea.",
        "What the sea does, the moon did.",
    )
    bad_artifacts: ClassVar[Sequence[str | kt.Artifact]] = ("The sea rises.", "It is so.", "The moon rises.")
    Review: ClassVar[Any] = Words

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        strategy: EvaluationStrategy = cls.Review()
        return strategy


class Asks:
    """A right evaluator with a judge: one question, a nonce for each, one more try, and code that decides."""

    tries = 2

    def __init__(self, judge: ChatModel) -> None:
        self.judge = judge
        self.models: tuple[Any, ...] = (judge,)

    async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
        if context.artifact.partial or not any(map(str.isalnum, context.artifact.text)):
            return Verdict.revise("It is not finished.")
        if context.context is None:
            return self.unwired(context)
        try:
            with anyio.fail_after(20):
                return self.decide(await self.ask(context), context)
        except (HaltError, InsufficientBudget):
            return self.broke()
        except TimeoutError:
            return Verdict.review_exceeded("evaluator_timeout")
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no review
            return self.failed(error, context)

    async def ask(self, context: kt.EvaluationContext) -> dict[str, Any]:
        """Ask until there is an answer; `ValueError` when there is none."""
        model = self.model(context)
        for _ in range(self.tries):
            token = secrets.token_hex(8)
            reply = await model.complete(kt.ModelRequest([kt.Message.user(self.prompt(context, token))]))
            found = self.read(reply.text, token)
            if len(found) == 1:
                return found[0]
        raise ValueError("the judge made no sense")

    def model(self, context: kt.EvaluationContext) -> Any:
        assert context.context is not None
        return context.context.model(self.judge)

    def prompt(self, context: kt.EvaluationContext, token: str) -> str:
        form = json.dumps({"token": token, "passed": "true, false or null"})
        return f"Is this true? {json.dumps(context.artifact.text)}\nAnswer with {form}."

    def read(self, reply: str, token: str) -> list[dict[str, Any]]:
        """Return the answers to this very question."""
        said = [one for one in objects(reply) if one.get("token") == token]
        return [one for one in said if "passed" in one and one["passed"] in (True, False, None)]

    def decide(self, said: dict[str, Any], context: kt.EvaluationContext) -> Verdict:
        if said["passed"] is None:
            return Verdict.escalate("undecided", "The judge cannot tell.")
        return Verdict.passed() if said["passed"] else self.revise(context)

    def revise(self, context: kt.EvaluationContext) -> Verdict:
        return Verdict.revise("It is not true.", findings=[kt.Finding("true", expected="what is true")])

    def unwired(self, context: kt.EvaluationContext) -> Verdict:
        return Verdict.review_exceeded("evaluator_error", "there is nobody to ask")

    def broke(self) -> Verdict:
        return Verdict.review_exceeded("judge_budget")

    def failed(self, error: Exception, context: kt.EvaluationContext) -> Verdict:
        return Verdict.review_exceeded("evaluator_error", repr(error))


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that stand in a text."""
    found: list[dict[str, Any]] = []
    place = text.find("{")
    while place >= 0:
        try:
            made, end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            end = place + 1
        else:
            found.append(made)
        place = text.find("{", end)
    return found


class AsksTCK(EvaluationStrategyTCK):
    """The kit of `Asks`; the mutants put another class in its place."""

    deterministic = True
    asks_a_judge = True
    suspects_injections = False
    good_artifacts = ("The moon pulls the sea.", "The sea follows the moon.")
    bad_artifacts = ("The sea breathes.", "Fish push the water.")
    Review: ClassVar[Any] = Asks

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        strategy: EvaluationStrategy = cls.Review(judge)
        return strategy

    @classmethod
    def write_judgement(cls, request: kt.ModelRequest, *, met: bool | None, quote: str) -> str:
        said: Any = objects(request.messages[-1].text)[-1]
        return json.dumps({"token": said["token"], "passed": met})
