"""Arguments that people expect from other libraries: the answer says where the same thing is given here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import evals
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse

kairo: Any = kt
"""`Any` here and below, because a type checker would find the mistakes."""
expert: Any = ExpertTeamCoordinator
case: Any = evals.Case
run_eval: Any = evals.run_eval
WRITER = kt.Member("writer", lambda assignment: assignment.goal)
TEAM = kt.Team("desk", [WRITER])
RUNTIME: Any = kt.Runtime()
TAKES = "team, request, plan, config, budget, run_id, files, resume, coordinator and runtime"
NAMED = "team=, request=, plan=, config=, budget=, run_id=, files=, resume=, coordinator= and runtime="
EXPERT = "kt.ExpertTeamCoordinator(evaluator=rubric, judge='openai:gpt-5-mini')"

EXPECTED: dict[str, tuple[Callable[[], object], str]] = {
    "a model": (
        lambda: kairo.run_sync(TEAM, "Explain.", model="openai:gpt-5-mini"),
        "run_sync takes no 'model': an agent has one: kt.Member('writer', kt.MiniAgent('openai:gpt-5-mini'))",
    ),
    "a goal": (
        lambda: kairo.run_sync(TEAM, goal="Explain."),
        "run_sync takes no 'goal': it is the second argument: kt.run_sync(team, 'Explain tides.')",
    ),
    "a time": (
        lambda: kairo.run_sync(TEAM, "Explain.", timeout=5),
        "run_sync takes no 'timeout': it is a limit of the budget: budget=kt.Budget(seconds=60)",
    ),
    "a judge": (
        lambda: kairo.check(TEAM, "Explain.", judge="openai:gpt-5"),
        f"check takes no 'judge': the coordinator has one: coordinator={EXPERT}",
    ),
    "a journal": (
        lambda: kairo.run_sync(TEAM, "Explain.", journal="runs.db"),
        "run_sync takes no 'journal': the runtime has it: runtime=kt.Runtime(journal=...)",
    ),
    "values": (
        lambda: kairo.run_sync(TEAM, "Explain.", inputs={}),
        "run_sync takes no 'inputs': a request has them: kt.TeamExecutionRequest('Explain tides.', {'age': 10})",
    ),
    "a slip": (
        lambda: kairo.run_sync(TEAM, "Explain.", buget=5),
        "run_sync takes no 'buget'; did you mean 'budget'? It takes " + TAKES,
    ),
    "nothing to do": (
        lambda: kairo.run_sync(TEAM),
        "run_sync needs 'request', which is the goal: kt.run_sync(team, 'Explain tides.')",
    ),
    "a third without its name": (
        lambda: kairo.run_sync(TEAM, "Explain.", kt.Budget(tokens=5)),
        f"run_sync takes at most team and request without their names; it takes {NAMED}",
    ),
    "a model of a run that is watched": (
        lambda: RUNTIME.stream(TEAM, "Explain.", model="openai:gpt-5-mini"),
        "Runtime.stream takes no 'model': an agent has one: kt.Member('writer', kt.MiniAgent('openai:gpt-5-mini'))",
    ),
    "a team twice": (
        lambda: kairo.Team("desk", [WRITER], name="desk"),
        "Team takes 'name' once, and this call gives it without its name and as name=",
    ),
    "a goal twice": (
        lambda: kairo.run_sync(TEAM, "Explain.", request="Explain."),
        "run_sync takes 'request' once, and this call gives it without its name and as request=",
    ),
    "an id twice": (
        lambda: kairo.Task("t", "Do.", id="t"),
        "Task takes 'id' once, and this call gives it without its name and as id=",
    ),
    "a map without its list": (
        lambda: kairo.Task.map("t", "Do."),
        "Task.map needs 'over' and 'max_items'; it takes id, description, over and max_items",
    ),
    "a tool": (
        lambda: kairo.tool(sideeffect="read"),
        (
            "tool takes no 'sideeffect'; did you mean 'side_effect'? It takes function, side_effect, name, "
            "description, timeout, idempotent and ends"
        ),
    ),
    "instructions": (
        lambda: kairo.Member("writer", print, instructions="Be brief."),
        "Member takes no 'instructions': a role has them: kt.Role('writer', instructions='...')",
    ),
    "a team's budget": (
        lambda: kairo.Team("desk", [], budget=kt.Budget(tokens=5)),
        "Team takes no 'budget': a run has one, kt.run(team, goal, budget=...), and so has a member",
    ),
    "a team's config": (
        lambda: kairo.Team("desk", [], config=kt.TeamConfig()),
        (
            "Team takes no 'config': a run has one, kt.run(team, goal, config=...), or in a file request = "
            "kt.TeamExecutionRequest(goal, config=...)"
        ),
    ),
    "a team's tools": (
        lambda: kairo.Team("desk", [], tools=[print]),
        "Team takes no 'tools': an agent has them: kt.MiniAgent('openai:gpt-5-mini', tools=[...])",
    ),
    "a team's rubric": (
        lambda: kairo.Team("desk", [], rubric=None),
        "Team takes no 'rubric': the coordinator has one: coordinator=kt.ExpertTeamCoordinator(evaluator=rubric)",
    ),
    "a member's model": (
        lambda: kairo.Member("writer", print, model="openai:gpt-5-mini"),
        "Member takes no 'model': its agent has it: kt.Member('writer', kt.MiniAgent('openai:gpt-5-mini'))",
    ),
    "how much at once": (
        lambda: kairo.run_sync(TEAM, "Explain.", max_parallel_tasks=8),
        "run_sync takes no 'max_parallel_tasks': the config has it: config=kt.TeamConfig(max_parallel_tasks=...)",
    ),
    "an agent of a task": (
        lambda: kairo.Task("t", "Do.", agent="writer"),
        "Task takes no 'agent': name a role or a member of the team: role='writer' or member='writer'",
    ),
    "a rubric": (
        lambda: expert(rubric=None),
        "ExpertTeamCoordinator takes no 'rubric': it is an evaluator: evaluator=rubric",
    ),
    "requests a minute": (
        lambda: kairo.ModelLimit(requests_per_minute=60),
        "ModelLimit takes no 'requests_per_minute': write per_minute=60",
    ),
    "an expected output": (
        lambda: case("a", "Explain.", expected="It rises."),
        "Case takes no 'expected': a good answer is its reference: reference='...'",
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_argument_that_is_elsewhere_is_answered_with_the_place(name: str) -> None:
    make, sentence = EXPECTED[name]
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == sentence


@pytest.mark.anyio
async def test_the_same_is_answered_to_a_call_that_is_awaited() -> None:
    with pytest.raises(TypeError, match="run takes no 'judge': the coordinator has one"):
        await kairo.run(TEAM, "Explain.", judge="openai:gpt-5-mini")
    with pytest.raises(TypeError, match=r"start takes no 'journal': the runtime has it: kt.Runtime"):
        await RUNTIME.start(TEAM, "Explain.", journal="runs.db")
    with pytest.raises(TypeError, match=r"start takes no 'resume': write await runtime.resume\(run_id, team\)"):
        await RUNTIME.start(TEAM, "Explain.", resume=True)
    with pytest.raises(TypeError, match=r"start needs 'request', which is the goal: runtime.start\(team, 'Explain"):
        await RUNTIME.start(TEAM)
    with pytest.raises(TypeError, match="start takes at most team and request without their names; it takes team="):
        await RUNTIME.start(TEAM, "Explain.", kt.Budget(tokens=5))
    with pytest.raises(TypeError, match=r"Runtime.resume needs 'team'; it takes run_id, team, coordinator, budget"):
        await RUNTIME.resume("r")
    with pytest.raises(TypeError, match=r"run_eval takes no 'repeats'; did you mean 'repeat'\? It takes team, dataset"):
        await run_eval(TEAM, None, repeats=3)


def _takes_arguments(name: str) -> bool:
    """Return whether a public name is a class that programs make, or a function, with arguments of its own."""
    found = getattr(kt, name)
    if isinstance(found, type):
        return not issubclass(found, BaseException | Enum) and bool(inspect.signature(found).parameters)
    return inspect.isfunction(found)


OTHERS = {"MemberContext", "Run", "TeamRun", "load_mcp", "run"}
"""Classes that only the library makes, a function that passes arguments on, and one that is tested above."""


@pytest.mark.parametrize("name", sorted({*filter(_takes_arguments, kt.__all__)} - OTHERS))
def test_every_public_name_says_which_arguments_it_takes(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} takes no 'nonsense';.* takes "):
        getattr(kairo, name)(nonsense=1)


def test_functions_stay_what_they_are() -> None:
    assert inspect.iscoroutinefunction(kt.run)
    assert inspect.iscoroutinefunction(evals.run_eval)
    assert not inspect.iscoroutinefunction(kt.run_sync)
    assert "request" in inspect.signature(kt.run).parameters


@pytest.mark.anyio
async def test_an_error_of_a_function_that_was_called_correctly_is_raised_as_it_is() -> None:
    request: Any = kt.TeamExecutionRequest("Explain.")
    with pytest.raises(Misuse, match="plan= goes with a goal"):
        await kt.run(TEAM, request, plan=kt.TaskGraph([kt.Task("t", "Do.")]))
