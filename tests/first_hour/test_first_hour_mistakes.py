"""Mistakes with teams, models, budgets, plans and reviews: five each, and the sentence says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks
from tests.first_hour.mistakes import (
    ANY,
    MEMBER,
    MOON,
    PLAIN,
    REVIEWS,
    Mistakes,
    params,
    planned,
    reviewed,
    run,
    told,
    with_agent,
    with_model,
    write,
)

# ------------------------------------------------------------------ a team of functions


def misspelt(assignment: kt.Assignment) -> str:
    return assignment.upstream["outlin"].text


FIRST_TEAM: Mistakes = {
    "nobody": (lambda: ANY.Team("desk", []), ["team 'desk' has no members", "kt.Member('writer', agent)"]),
    "a function as a member": (
        lambda: ANY.Team("desk", [write]),
        ["Team.members must be Member objects", "kt.Member('writer', agent)", "<function write"],
    ),
    "nothing returned": (
        lambda: with_agent(lambda assignment: None),
        ["member 'writer' returned nothing (None)", "a string, data", "an Artifact or an AgentOutput"],
    ),
    "a misspelt upstream": (
        lambda: with_agent(misspelt),
        ["task 'writer' failed", "no 'outlin' here; there is 'outline'"],
    ),
    "a misspelt task of the result": (lambda: run()["writr"], ["no task 'writr' in this result; it has 'writer'"]),
}

# ------------------------------------------------------------------ a team with a model


MODEL: Mistakes = {
    "no provider": (
        lambda: with_model("gpt-5-mini"),
        ["member 'writer'", "model 'gpt-5-mini' cannot be used", "'provider:name'", "Runtime(models={name: model})"],
    ),
    "a misspelt provider": (
        lambda: with_model("opnai:gpt-5-mini"),
        ["the provider 'opnai' is unknown", "did you mean 'openai'?", "there are 'alibaba', 'anthropic'"],
    ),
    "no turn": (lambda: kt.MiniAgent("m", max_turns=0), ["MiniAgent.max_turns must be at least 1, not 0"]),
    "a misspelt argument": (
        lambda: ANY.MiniAgent("m", max_turn=3),
        ["MiniAgent takes no 'max_turn'; did you mean 'max_turns'?", "model, tools, max_turns"],
    ),
    "a function as a model": (
        lambda: with_model("my-model", **{"my-model": write}),
        ["model 'my-model' cannot be used", "<function write", "it needs `name` and `async complete`"],
    ),
}

# ------------------------------------------------------------------ budgets


BUDGET: Mistakes = {
    "below nothing": (lambda: kt.Budget(tokens=-5), ["Budget.tokens must be a whole number >= 0, not -5"]),
    "a number": (lambda: run(budget=1_000), ["must be a Budget, such as kt.Budget(tokens=20_000), not 1000"]),
    "words for money": (lambda: ANY.Budget(dollars="five"), ["Budget.dollars", "such as '0.05', not 'five'"]),
    "members above the team": (
        lambda: run(
            kt.Team("desk", [kt.Member(name, write, budget=kt.Budget(tokens=4_000)) for name in ("a", "b")]),
            budget=kt.Budget(tokens=5_000),
        ),
        ["the members' budgets add up to 8000 tokens, the team has 5000"],
    ),
    "no loop": (
        lambda: run(budget=kt.Budget(loops=0)),
        ["the budget allows 0 loops, and every attempt is one: allow at least 1 (None is unlimited)"],
    ),
}

# ------------------------------------------------------------------ a plan as a graph


PLAN: Mistakes = {
    "an unknown dependency": (
        lambda: planned(kt.Task("a", "Do.", depends_on=["b"])),
        ["task 'a' depends on unknown tasks 'b'; the plan has 'a'"],
    ),
    "a cycle": (
        lambda: planned(kt.Task("a", "Do.", depends_on=["b"]), kt.Task("b", "Do.", depends_on=["a"])),
        ["the tasks form a cycle: a -> b -> a"],
    ),
    "a misspelt role": (
        lambda: planned(kt.Task("a", "Do.", role="writr")),
        ["task 'a' needs the role 'writr', which no member offers; the team has 'writer'"],
    ),
    "an output type that the team lacks": (
        lambda: planned(kt.Task("a", "Do.", output_type="report")),
        ["task 'a' names the output type 'report'; the team has none", "or add it to Team.output_types"],
    ),
    "a list": (
        lambda: run(plan=[kt.Task("a", "Do.")]),
        ["plan must be a TaskGraph", 'kt.TaskGraph([kt.Task("write", "Write it.")])', "not [Task(id='a'"],
    ),
}

# ------------------------------------------------------------------ a review by a rubric


RUBRIC: Mistakes = {
    "a criterion that nothing decides": (
        lambda: Criterion("short", "at most 12 words"),
        ["criterion 'short': the check must be a function, not None", "by='judge' or by='human'"],
    ),
    "a check by name": (
        lambda: REVIEWS.Criterion("short", "short", check="max_words"),
        ["criterion 'short': the check must be a function, not 'max_words'"],
    ),
    "a threshold in percent": (
        lambda: Rubric([Criterion("s", "short", checks.max_words(12))], threshold=80),
        ["Rubric.threshold must be above 0 and at most 1, not 80"],
    ),
    "checks without criteria": (
        lambda: REVIEWS.Rubric([checks.max_words(12)]),
        ["a rubric is made of Criterion objects, not max_words(12)"],
    ),
    "an evaluator that the team lacks": (
        lambda: run(
            kt.Team("desk", [MEMBER], evaluators={"house": MOON}),
            plan=kt.TaskGraph([kt.Task("a", "Do.", evaluator="hose")]),
        ),
        ["task 'a' names the evaluator 'hose'; the team has 'house'", "or add it to Team.evaluators"],
    ),
}

# ------------------------------------------------------------------ a model judges


JUDGE: Mistakes = {
    "nobody judges": (
        lambda: run(reviewed(PLAIN)),
        ["criterion 'plain': a judge decides it, and none is wired", "judge='openai:gpt-5-mini'"],
    ),
    "a misspelt provider": (
        lambda: run(reviewed(PLAIN, judge="antropic:claude-haiku-4-5")),
        ["the judge: model 'antropic:claude-haiku-4-5' cannot be used", "did you mean 'anthropic'?"],
    ),
    "by a model": (
        lambda: REVIEWS.Criterion("plain", "plain", by="model"),
        ["criterion 'plain': by must be one of 'check', 'human', 'judge', not 'model'"],
    ),
    "a judge and a check": (
        lambda: Criterion("plain", "plain", by="judge", check=checks.max_words(3)),
        ["criterion 'plain': a judge decides it, so it takes no check: make that a criterion of its own"],
    ),
    "a judge of the team": (
        lambda: ANY.Team("desk", [MEMBER], judge="openai:gpt-5-mini"),
        ["Team takes no 'judge': the coordinator has one: coordinator=kt.ExpertTeamCoordinator("],
    ),
}

JOBS = {
    "first team": FIRST_TEAM,
    "model": MODEL,
    "budget": BUDGET,
    "plan": PLAN,
    "rubric": RUBRIC,
    "judge": JUDGE,
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("mistake", "parts"), params(JOBS))
def test_a_mistake_gets_a_sentence_that_says_what_to_do(mistake: Callable[[], Any], parts: list[str]) -> None:
    said = told(mistake)
    assert [part for part in parts if part not in said] == [], said


def test_the_log_names_the_line_that_asked_for_a_misspelt_key(caplog: pytest.LogCaptureFixture) -> None:
    with_agent(misspelt)
    line = misspelt.__code__.co_firstlineno + 1
    assert f"raised on task 'writer' (test_first_hour_mistakes.py, line {line})" in caplog.text
