"""What somebody writes wrongly when a review is set up, and the sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    CascadeEvaluationStrategy,
    PairwiseStrategy,
    PanelEvaluationStrategy,
)
from kairo_team.testing import FunctionModel, ScriptedJudge

pytestmark = pytest.mark.anyio

MODEL = "openai:gpt-5-mini"
PLAIN: Any = kt.Criterion("plain", "a child understands it", by="judge")
"""`Any` here and below, because a type checker would find the mistakes."""
RUBRIC = kt.Rubric([PLAIN])
WEIGHTS = {MODEL: 1, "google:gemini-2.5-pro": 2}
agent: Any = AgentEvaluationStrategy
panel: Any = PanelEvaluationStrategy
criterion: Any = kt.Criterion


class Runs:
    async def __call__(self, artifact: kt.Artifact) -> bool:
        return True


def three(artifact: kt.Artifact, context: kt.EvaluationContext, more: int) -> bool:
    return True


def nothing() -> bool:
    return True


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "one criterion": (
        lambda: kt.Rubric(PLAIN),
        "a rubric is made of a list of Criterion objects, not one: write Rubric([criterion])",
    ),
    "settings": (
        lambda: agent(MODEL, RUBRIC, settings=5),
        "settings are sampling settings by name, such as {'temperature': 0}, not 5",
    ),
    "settings of a panel": (
        lambda: panel([MODEL, MODEL], RUBRIC, settings=["temperature"]),
        "settings are sampling settings by name, such as {'temperature': 0}, not ['temperature']",
    ),
    "canary without a pattern": (
        lambda: agent(MODEL, RUBRIC, canaries={"it names a price": None}),
        "canaries: 'it names a price' needs a regular expression, as a text or compiled, not None",
    ),
    "sign without a pattern": (
        lambda: agent(MODEL, RUBRIC, signs={"greets": 5}),
        "signs: 'greets' needs a regular expression, as a text or compiled, not 5",
    ),
    "sign in bytes": (
        lambda: agent(MODEL, RUBRIC, signs={"greets": b"hello"}),
        "signs: 'greets' needs a regular expression, as a text or compiled, not b'hello'",
    ),
    "a judge's class": (
        lambda: agent(ScriptedJudge, RUBRIC),
        "the judge: ScriptedJudge is a class, not a judge: make one, ScriptedJudge(...)",
    ),
    "a class in a pair": (
        lambda: PairwiseStrategy(ScriptedJudge),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "the judge: ScriptedJudge is a class, not a judge: make one, ScriptedJudge(...)",
    ),
    "no judges": (lambda: panel(5, RUBRIC), "a panel takes a list of at least two judges, not 5"),
    "no judge in a panel": (
        lambda: panel([MODEL, None], RUBRIC),
        "the judge must be a model's name, a chat model or an agent, not None",
    ),
    "weights by name": (
        lambda: panel([MODEL, "google:gemini-2.5-pro"], RUBRIC, weights=WEIGHTS),
        f"a panel takes a weight for each of its 2 judges, in a list in their order, not {WEIGHTS!r}",
    ),
    "a check's class": (
        lambda: criterion("runs", "it runs", check=Runs),
        "criterion 'runs': check: Runs is a class, not a check: make one, Runs(...)",
    ),
    "a check of nothing": (
        lambda: criterion("runs", "it runs", check=nothing),
        "criterion 'runs': check: nothing takes (), and is called as (artifact)",
    ),
    "a check of three": (
        lambda: criterion("runs", "it runs", check=three),
        "criterion 'runs': check: three takes (artifact, context, more), and is called as (artifact, context)",
    ),
    "a scope of nothing": (
        lambda: criterion("runs", "it runs", by="judge", applies=nothing),
        "criterion 'runs': applies: nothing takes (), and is called as (artifact)",
    ),
    "dollars as a text": (
        lambda: kt.checks.max_dollars_used("0.05"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "max_dollars_used takes a number >= 0, not '0.05': write a float such as 0.05",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_answered_with_what_is_allowed(name: str) -> None:
    make, sentence = MISTAKES[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        make()
    assert str(caught.value) == sentence


ARGUMENTS: dict[str, tuple[Callable[[], object], str]] = {
    "panel": (
        lambda: panel([MODEL, MODEL], RUBRIC, quorom=2),
        "PanelEvaluationStrategy takes no 'quorom'; did you mean 'quorum'? It takes judges, rubric, quorum, weights, ",
    ),
    "cascade": (
        lambda: CascadeEvaluationStrategy([RUBRIC], timeout=3),  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        "CascadeEvaluationStrategy takes no 'timeout'; it takes stages",
    ),
    "calibrated": (
        lambda: CalibratedEvaluationStrategy(alpha=0.1),  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        "CalibratedEvaluationStrategy takes no 'alpha'; it takes strategy and certificates",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_an_unknown_argument_is_answered_with_those_that_there_are(name: str) -> None:
    make, sentence = ARGUMENTS[name]
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).startswith(sentence)


async def test_texts_to_try_a_rubric_on_are_checked() -> None:
    given: Any = RUBRIC
    with pytest.raises(ValueError, match=r"try_on: upstream must be texts by name, .* not \['a'\]"):
        await given.try_on("It rises.", upstream=["a"])
    with pytest.raises(ValueError, match=r"try_on: upstream must be texts by name, .* not \{'log': Artifact"):
        await given.try_on("It rises.", upstream={"log": kt.Artifact("It rose.")})
    with pytest.raises(ValueError, match=r"try_on: the text must be a string or an Artifact, not 5"):
        await given.try_on(5)


async def test_a_judge_is_called_by_its_name_wherever_a_sentence_names_it() -> None:
    """What its object shows, such as an address or a number of calls, differs between two reviews of the same kind."""
    judge = FunctionModel(lambda _request: "passt schon", name="test:sloppy")
    first, second = [(await RUBRIC.try_on("It rises.", judge=judge)).verdict.feedback for _ in range(2)]
    assert first == second
    assert first.startswith("the judge 'test:sloppy': ")
