"""Mistakes with calibrated judges and with teams inside teams: five each, and the sentence says what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import agents
from kairo_team.evaluators import AgentEvaluationStrategy
from kairo_team.testing import FunctionModel, ScriptedJudge
from tests.first_hour.mistakes import ANY, MEMBER, PLAIN, REVIEWS, TEAM, Mistakes, params, run, told, with_agent

TEAMS: Any = agents

# ------------------------------------------------------------------ a judge that is calibrated

STRATEGY = AgentEvaluationStrategy(ScriptedJudge(), PLAIN)
LABELS = [REVIEWS.LabelledArtifact("The moon.", "Explain tides.", passed=True)]


def calibrated(strategy: Any = STRATEGY, labelled: Any = LABELS, **more: Any) -> Any:
    return anyio.run(partial(REVIEWS.calibrate, strategy, labelled, **more))


JUDGE: Mistakes = {
    "the rubric alone": (
        lambda: calibrated(PLAIN),
        ["calibrate a rubric together with its judge", "AgentEvaluationStrategy('openai:gpt-5-mini', rubric)"],
    ),
    "a file's name for the labels": (
        lambda: calibrated(labelled="labels.jsonl"),
        ["a list of LabelledArtifact objects, at least one, not 'labels.jsonl'", "read_labelled(text)"],
    ),
    "a label in words": (
        lambda: REVIEWS.LabelledArtifact("The moon.", "Explain tides.", "yes"),
        ["LabelledArtifact.passed must be True or False, not 'yes'"],
    ),
    "a share in words": (
        lambda: calibrated(alpha="10%"),
        ["alpha must be a number above 0 and below 1, such as 0.1, not '10%'"],
    ),
    "all that was found, for the certificates": (
        lambda: REVIEWS.CalibratedEvaluationStrategy(STRATEGY, calibrated()),
        ["a list of Certificate objects", "(await calibrate(...)).certificates", "not Calibration("],
    ),
}

# ------------------------------------------------------------------ a team in a team


def nested(inner: Any, **more: Any) -> kt.TeamResult:
    return with_agent(TEAMS.TeamAgent(inner), **more)


def bound_to_a_runtime() -> kt.TeamResult:
    models = {"m": FunctionModel(lambda request: "The moon.")}
    return nested(kt.Team("readers", [kt.Member("gauge", kt.MiniAgent("m"))], runtime=kt.Runtime(models=models)))


def misspelt_role() -> kt.TeamResult:
    plan = kt.TaskGraph([kt.Task("read", "Read it.", role="writr")])
    return with_agent(TEAMS.TeamAgent(TEAM, plan=plan))


def inner_task() -> str:
    outer = kt.Team("outer", [kt.Member("research", TEAMS.TeamAgent(TEAM))])
    return str(run(outer)["writer"])


NESTED: Mistakes = {
    "its members": (
        lambda: TEAMS.TeamAgent([MEMBER]),
        ["TeamAgent takes a Team, such as kt.Team('readers', [kt.Member(...)]), not [Member("],
    ),
    "a runtime of its own": (
        bound_to_a_runtime,
        ["team 'readers' uses the runtime of the team around it: build it without runtime="],
    ),
    "a plan for another team": (
        misspelt_role,
        ["in team 'desk': task 'read' needs the role 'writr', which no member offers; the team has 'writer'"],
    ),
    "a coordinator by a misspelt name": (
        lambda: TEAMS.TeamAgent(TEAM, coordinator="bord"),
        ["TeamAgent: coordinator: there is no coordinator 'bord'; did you mean 'board'?"],
    ),
    "a task inside it": (inner_task, ["no task 'writer' in this result; it has 'research'"]),
}


@pytest.mark.parametrize(("mistake", "parts"), params({"judge": JUDGE, "nested": NESTED}))
def test_a_mistake_gets_a_sentence_that_says_what_to_do(mistake: Callable[[], Any], parts: list[str]) -> None:
    said = told(mistake)
    assert [part for part in parts if part not in said] == [], said


def test_a_team_that_cannot_start_is_refused_with_the_team_around_it() -> None:
    inner = kt.Team("readers", [kt.Member("gauge", kt.MiniAgent("no-such-model"))])
    found = kt.check(ANY.Team("outer", [ANY.Member("research", TEAMS.TeamAgent(inner))]), "Explain tides.")
    assert "member 'research': in team 'readers': member 'gauge': model 'no-such-model'" in str(found.problems[0])
