"""A judge that copies its question into its reasons: what the question has of its own never reaches the member."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import kairo_team as kt
from kairo_team.evaluators.canaries import is_canary
from kairo_team.testing import FunctionModel, ScriptedJudge
from kairo_team.testing.scripted_judge import AskedQuestion, read_question

pytestmark = pytest.mark.anyio

PLAIN = kt.Criterion("plain", "a child understands it", by="judge")
TEXTS = ("where", "observed", "expected")
Echo = Callable[[AskedQuestion], str]


def canary(asked: AskedQuestion) -> str:
    return next(one.criterion for one in asked.statements if is_canary(one.criterion))


ECHOES: dict[str, Echo] = {
    "all statements": lambda asked: " | ".join(one.criterion for one in asked.statements),
    "a canary": lambda asked: f"The work is wrong here: {canary(asked)}.",
    "a canary in capitals": lambda asked: canary(asked).upper(),
    "a canary over two lines": lambda asked: canary(asked).replace(" ", "\n"),
    "the label": lambda asked: f"It carries the label {asked.label}.",
    "an id": lambda asked: f"See {asked.statements[0].id}.",
    "a mark": lambda asked: f"The answer is {next(iter(asked.statements[0].levels.values()))}.",
    "the token": lambda asked: asked.token,
}


def echoing(echo: Echo) -> FunctionModel:
    honest = ScriptedJudge({"a child": "not met"})

    def write(request: kt.ModelRequest) -> str:
        reply, said = honest.reply(request), echo(read_question(request))
        for answer in reply["answers"]:
            answer.update(dict.fromkeys(TEXTS, said))
        return json.dumps(reply)

    return FunctionModel(write, name="test:echo")


async def findings(model: FunctionModel) -> list[kt.Finding]:
    """Return what a member is told about its first attempt."""
    told: list[kt.Finding] = []

    def write(assignment: kt.Assignment) -> str:
        told.extend(assignment.findings)
        return f"The tide rises, try {assignment.attempt}."

    experts = kt.ExpertTeamCoordinator(evaluator=kt.Rubric([PLAIN]), judge="test:echo")
    team = kt.Team("desk", [kt.Member("writer", write)], experts, runtime=kt.Runtime(models={"test:echo": model}))
    await kt.run(team, "Explain tides.", config=kt.TeamConfig(max_feedback_rounds=1))
    return told


@pytest.mark.parametrize("name", ECHOES)
async def test_nothing_of_the_question_reaches_the_member(name: str) -> None:
    [found] = await findings(echoing(ECHOES[name]))
    assert (found.locus, found.observed, found.expected) == ("", f"not met: {PLAIN.text}", PLAIN.text)


async def test_the_judges_own_words_do() -> None:
    [found] = await findings(echoing(lambda _asked: "'spring tide' is not explained"))
    assert found.observed == found.locus == "'spring tide' is not explained"
