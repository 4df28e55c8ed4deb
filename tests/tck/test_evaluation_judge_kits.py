"""Every evaluator of ours that asks a judge keeps the contract of evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    Answer,
    CalibratedEvaluationStrategy,
    CascadeEvaluationStrategy,
    Criterion,
    PairwiseStrategy,
    PanelEvaluationStrategy,
    Rubric,
    SimpleEvaluationStrategy,
    all_of,
    any_of,
    checks,
)
from kairo_team.tck import EvaluationStrategyTCK
from kairo_team.testing import ScriptedPairJudge
from tests.mutants.honest_reviews import AsksTCK
from tests.tck.certified import certified
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")

TIDES = "The moon pulls the sea, so the tide rises twice a day."
MORE_TIDES = "Twice a day the sea rises and falls.\nThe moon does it."


def judged(*, evidence: Any = "none") -> Rubric:
    return Rubric(
        [
            Criterion("there", "it says something", checks.not_blank),
            Criterion("true", "what it says is true", by="judge", evidence=evidence),
            Criterion("clear", "it can be understood", by="judge", kind="graded", levels=("no", "partly", "yes")),
        ],
        0.9,
    )


class OfAJudge(EvaluationStrategyTCK):
    deterministic = True
    asks_a_judge = True
    guards_its_judge = True
    good_artifacts = (TIDES, MORE_TIDES)
    bad_artifacts = ("The sea rises since the fish breathe in.", "Tides are a rumour.")


class TestAgent(OfAJudge):
    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return AgentEvaluationStrategy(judge, judged(evidence="quote"))


@variant("asyncio")
class TestVotes(OfAJudge):
    judge_calls = 6

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return AgentEvaluationStrategy(judge, judged(evidence="quote"), votes=3)


class OfJudges(OfAJudge):
    """What asks several judges: the guards of each (C13) are those of `TestAgent`."""

    @classmethod
    def mark(cls, name: str) -> str | None:
        return "exhaustive" if name.startswith("test_c13_") else None


class TestPanel(OfJudges):
    judge_calls = 6
    has_parts = True

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return PanelEvaluationStrategy([judge] * 3, judged())

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        """Two honest judges and one that is against everything."""
        one, other = cls.honest_judge(), cls.honest_judge()
        against = cls.always(met=False, about=kt.Artifact(""))
        orders = ([one, other, against], [against, one, other], [one, against, other])
        return [PanelEvaluationStrategy(judges, judged()) for judges in orders]


async def no_rumour(artifact: kt.Artifact) -> Answer:
    """Code that knows what is wrong, and not what is right."""
    return Answer(level=False if "rumour" in artifact.text else None, reason="it may be a rumour")


class TestCascade(OfJudges):
    """A check that can only send back, a judge, and another for what the first cannot tell."""

    judge_calls = 4

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        code = Rubric([Criterion("known", "it is no rumour", no_rumour)])
        return CascadeEvaluationStrategy([code, *(AgentEvaluationStrategy(judge, judged()) for _ in range(2))])


@variant("asyncio")
class TestAllOfJudged(OfAJudge):
    has_parts = True

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return all_of(SimpleEvaluationStrategy(), AgentEvaluationStrategy(judge, judged()))

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        return [all_of(AgentEvaluationStrategy(cls.honest_judge(), judged()), SimpleEvaluationStrategy())]


@variant("trio")
class TestAnyOfJudged(OfAJudge):
    judge_calls = 4

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return any_of(*(AgentEvaluationStrategy(judge, judged(evidence=e)) for e in ("none", "quote")))


# ---------------------------------------------------------------- calibrated


@variant("asyncio")
class TestCalibrated(OfAJudge):
    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return certified(AgentEvaluationStrategy(judge, judged()))


@variant("trio")
class TestNotCalibrated(OfAJudge):
    """Without certificates a person has the last word on all that a judge says."""

    can_pass = False

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return CalibratedEvaluationStrategy(AgentEvaluationStrategy(judge, judged()), [])


# ---------------------------------------------------------------- conversations and pairs


@variant("trio")
class TestOfConversations(OfAJudge):
    """Half of its criteria are about the conversation that the artifact came from."""

    judge_calls = 4

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        looked = Criterion("looked", "it looks things up", checks.calls_tool("search"), on="transcript")
        said = Criterion("said", "what the member says is true", by="judge", on="transcript")
        return AgentEvaluationStrategy(judge, Rubric([*judged().criteria, looked, said], 0.9))

    @classmethod
    def transcript_of(cls, artifact: kt.Artifact) -> Sequence[kt.Message]:
        asked = kt.Message.assistant("", [kt.ToolCall("1", "search", {"query": "tides"})])
        found = kt.Message.tool("1", "See page 3.")
        return [kt.Message.user("Explain tides."), asked, found, kt.Message.assistant(artifact.text)]


class TestPairwise(OfAJudge):
    """Two calls, one in each order; they are of another form, whose guards have their tests in test_pairwise.py."""

    guards_its_judge = False
    judge_calls = 4
    task = kt.Task("kit", "Explain tides.", reference="The sea rises since the moon pulls it.")

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return PairwiseStrategy(judge, "it is true")

    @classmethod
    def write_judgement(cls, request: kt.ModelRequest, *, met: bool | None, quote: str) -> str:
        """Prefer the artifact where all is met, else the reference."""

        def prefers(first: str, second: str) -> str:
            if met is None:
                return "cannot tell"
            return "second" if (first == cls.task.reference) == met else "first"

        return ScriptedPairJudge(prefers, confidence=1.0).write(request)


@variant("asyncio")
class TestOfAnotherForm(AsksTCK):
    """Somebody else's, whose judge answers in another form."""
