"""What the mistakes of a first hour have in common: a small team, and the sentence that a user reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import evaluators
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric, checks

Mistakes = dict[str, tuple[Callable[[], Any], list[str]]]

ANY: Any = kt  # a new user's editor need not check types
REVIEWS: Any = evaluators


def write(assignment: kt.Assignment) -> str:
    return "The moon pulls the sea."


MEMBER = kt.Member("writer", write)
TEAM = kt.Team("desk", [MEMBER])
MOON = Rubric([Criterion("moon", "it names the moon", check=checks.contains("moon"))])
PLAIN = Rubric([Criterion("plain", "a ten-year-old understands it", by="judge")])
EDITED = Rubric([Criterion("ok", "an editor likes it", by="human")])


def reviewed(evaluator: Any, **more: Any) -> kt.Team:
    return kt.Team("desk", [MEMBER], coordinator=ExpertTeamCoordinator(evaluator=evaluator, **more))


def run(team: Any = TEAM, goal: Any = "Explain tides.", **more: Any) -> kt.TeamResult:
    return ANY.run_sync(team, goal, **more)  # type: ignore[no-any-return]  # it is of no type here


def planned(*tasks: kt.Task) -> kt.TeamResult:
    return run(plan=kt.TaskGraph(tasks))


def with_agent(agent: Any, **more: Any) -> kt.TeamResult:
    first = kt.Member("outline", lambda assignment: "1. the moon")
    return run(ANY.Team("desk", [first, ANY.Member("writer", agent)]), **more)


def with_model(model: str, **models: Any) -> kt.TeamResult:
    return with_agent(kt.MiniAgent(model), runtime=ANY.Runtime(models=models))


def told(mistake: Callable[[], Any]) -> str:
    """Return the sentence a user reads: that of the exception, or of a run that was refused or failed."""
    try:
        made = mistake()
    except (ValueError, TypeError, LookupError, OSError, kt.KairoError) as error:
        return str(error)
    assert isinstance(made, kt.TeamResult)
    assert made.status == "failed"
    assert made.error is not None
    return made.error


def params(jobs: Mapping[str, Mistakes]) -> list[Any]:
    """Return one parameter set for each mistake of each job, which has five."""
    assert {job: len(mistakes) for job, mistakes in jobs.items()} == dict.fromkeys(jobs, 5)
    return [
        pytest.param(*mistake, id=f"{job}-{name}")
        for job, mistakes in jobs.items()
        for name, mistake in mistakes.items()
    ]
