"""Laws: a team as data is the same team in Python, and what the schema allows is what loads."""

from __future__ import annotations

import json
from typing import Any, cast

import jsonschema_rs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.data.teams import team_schema
from kairo_team.engine.records.digests import digests_of
from kairo_team.evaluators import Criterion, Rubric, checks

IDS = st.text("abcxyz", min_size=1, max_size=4)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
SEEN = WORDS.filter(lambda text: bool(text.strip()))
BUDGETS = st.fixed_dictionaries(
    {}, optional={"tokens": st.integers(0, 10**9), "loops": st.integers(0, 99), "seconds": st.floats(0, 1e6)}
)
ROLES = st.fixed_dictionaries(
    {"id": IDS},
    optional={
        "instructions": WORDS,
        "capabilities": st.lists(IDS, max_size=3),
        "allowed_tools": st.none() | st.lists(IDS, max_size=3),
    },
)
AGENTS = st.fixed_dictionaries({"model": SEEN}, optional={"max_turns": st.integers(1, 20), "stream": st.booleans()})
MEMBERS = st.fixed_dictionaries(
    {"role": ROLES, "agent": AGENTS},
    optional={"budget": st.none() | BUDGETS, "max_concurrency": st.none() | st.integers(1, 9)},
)
LIMITS = st.dictionaries(IDS, st.integers(1, 500), max_size=2)
TYPES = st.dictionaries(IDS, st.sampled_from([{"type": "array"}, {"type": "object", "required": ["a"]}]), max_size=2)
SETTINGS = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Tasks as data, each with some of those before it as dependencies."""
    ids = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    made: list[dict[str, Any]] = []
    for place, name in enumerate(ids):
        before = draw(st.lists(st.sampled_from(ids[:place]), unique=True)) if place else []
        more = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "weight": st.floats(0.5, 9),
                    "timeout": st.none() | st.floats(1, 9),
                    "inputs": st.dictionaries(IDS, st.none() | st.booleans() | st.integers() | WORDS, max_size=2),
                    "budget": BUDGETS,
                    "needs": st.just("all") | st.integers(0, len(before)),
                },
            )
        )
        made.append({"id": name, "description": draw(SEEN), "depends_on": before, **more})
    return made


def rubric(most: int) -> Rubric:
    return Rubric([Criterion("short", "it is short", checks.max_words(most))])


def budget_of(task: Any) -> kt.Budget | None:
    return kt.Budget(**task["budget"]) if "budget" in task else None


def in_python(members: list[Any], limits: dict[str, int], types: dict[str, Any]) -> kt.Team:
    """The same team, built as Python builds it."""
    made = list[kt.Member]()
    for one in members:
        budget = None if one.get("budget") is None else kt.Budget(**one["budget"])
        agent = kt.MiniAgent(**one["agent"])
        most = one.get("max_concurrency")
        made.append(kt.Member(kt.Role(**one["role"]), agent, budget=budget, max_concurrency=most))
    return kt.Team("t", made, evaluators={name: rubric(most) for name, most in limits.items()}, output_types=types)


@SETTINGS
@given(st.lists(MEMBERS, min_size=1, max_size=3), LIMITS, TYPES, plans(), BUDGETS)
def test_a_team_as_data_is_the_same_team_in_python(
    members: list[Any], limits: dict[str, int], types: dict[str, Any], tasks: list[Any], budget: dict[str, Any]
) -> None:
    data = {
        "name": "t",
        "members": [{**one, "agent": {"mini": one["agent"]}} for one in members],
        "evaluators": {
            name: {"criteria": [{"id": "short", "text": "it is short", "check": {"max_words": most}}]}
            for name, most in limits.items()
        },
        "output_types": types,
        "request": {"plan": {"tasks": tasks}, "config": {"budget": budget}},
    }
    assert SCHEMA.is_valid(data)
    job, team = kt.load_job(json.loads(json.dumps(data))), in_python(members, limits, types)
    assert digests_of(job.team, {}) == digests_of(team, {})
    for ours, theirs in zip(job.team.members, team.members, strict=True):
        assert (ours.name, ours.role, ours.budget, ours.concurrency) == (
            theirs.name,
            theirs.role,
            theirs.budget,
            theirs.concurrency,
        )
        assert (ours.agent.model, ours.agent.max_turns) == (theirs.agent.model, theirs.agent.max_turns)
    plan = [kt.Task(**cast("Any", {**one, "budget": budget_of(one)})) for one in tasks]
    assert job.plan == kt.TaskGraph(plan)
    assert job.config == kt.TeamConfig(budget=kt.Budget(**budget))


SCHEMA = jsonschema_rs.validator_for(team_schema())
JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["mini", "board", "a", "", "x:y", "house.yaml"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "members", "role", "agent", "mini", "model", "criteria", "request", "plan", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(SETTINGS, max_examples=80)
@given(st.dictionaries(st.sampled_from([*team_schema()["properties"]]), JUNK, max_size=6))
def test_data_of_any_kind_is_a_team_or_a_list_of_sentences(data: Any) -> None:
    said = ""
    try:
        kt.load_team(data)
    except ValueError as error:
        said = str(error)
    else:
        assert SCHEMA.is_valid(data)
    assert all(line.startswith("the team: ") for line in said.split("\n") if said)
