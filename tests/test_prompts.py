"""Templates of prompts: each set of them is compiled once, and no set reaches into another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.prompts import TEMPLATES, Prompts
from kairo_team.prompts.overrides import VARIABLES
from kairo_team.testing import ScriptedModel


def test_the_same_templates_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs render them: compiling takes longer than all else a run does before it asks a model."""
    again = {"repair": "Once more, {{ problem }}."}
    assert Prompts(again).render("repair", problem="Ann") == "Once more, Ann."
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert Prompts(again).render("repair", problem="Ben") == "Once more, Ben."


def test_templates_of_one_run_are_not_those_of_another() -> None:
    first, second = Prompts({"repair": "First."}), Prompts({"repair": "Second."})
    assert [first.render("repair"), second.render("repair"), first.render("repair")] == ["First.", "Second.", "First."]


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"tusk": "x"}, "templates: unknown templates 'tusk'; there are 'after_tools', 'continue'"),
        ({"task": 5}, "templates: the template 'task' must be a text, not 5"),
        (["task"], r"templates are texts by name, such as {'task': '...'}, not \['task'\]"),
        ({"task": "{{ gaol }}"}, "the template 'task' cannot be used: it asks for 'gaol'; it is given 'assignment', "),
        ({"plan": "{% for one in tasks %}{{ one }}{% endfor %}"}, "'plan' cannot be used: it asks for 'tasks'"),
        ({"task": "a\n{{ assignment.goal | shout }}"}, "'task' cannot be used: line 2: No filter named 'shout'"),
        ({"task": "{% if %}"}, "'task' cannot be used: line 1: Expected an expression"),
        ({"task": "{% include 'head' %}"}, "'task' cannot be used: it takes in 'head'; there are 'after_tools'"),
    ],
)
def test_audit_g15_a_template_that_cannot_be_filled_in_is_refused_when_it_is_given(
    templates: Any, message: str
) -> None:
    builds: tuple[Callable[[Any], object], ...] = (
        Prompts,
        lambda given: ExpertTeamCoordinator(templates=given),
        lambda given: TaskDispatchCoordinator(templates=given),
        lambda given: kt.Runtime(templates=given),
        lambda given: kt.MiniAgent("test:m", templates=given) if "plan" not in given else Prompts(given),
    )
    for build in builds:
        with pytest.raises(ValueError, match=message.replace("templates", "(MiniAgent.)?templates", 1)):
            build(templates)


def test_audit_g15_a_template_may_use_all_it_is_given_and_what_jinja_brings() -> None:
    for name, variables in VARIABLES.items():
        Prompts({name: " ".join(f"{{{{ {one} }}}}" for one in variables)})
    own = (
        "{% set n = namespace(x=1) %}{% for i in range(n.x) %}{{ loop.index }}{{ assignment.goal | upper }}{% endfor %}"
    )
    Prompts({"task": own, "repair": "{% include 'task' %} {{ problem }}"})
    assert set(VARIABLES) <= set(TEMPLATES)


def say(model: ScriptedModel) -> list[list[str]]:
    return [[message.text for message in call.messages] for call in model.calls]


async def test_audit_g15_the_agents_templates_go_before_the_coordinators_and_these_before_the_runtimes() -> None:
    model = ScriptedModel(["one", "two", "three"])
    runtime = kt.Runtime(
        models={"test:m": model},
        templates={"system": "R {{ role.id }}", "task": "R {{ assignment.goal }}", "continue": "R go on"},
    )
    own = kt.MiniAgent("test:m", templates={"task": "A {{ assignment.goal }}{{ limits }}"})
    members = [kt.Member("plain", kt.MiniAgent("test:m")), kt.Member("own", own)]
    team = kt.Team("team", members, runtime=runtime)
    plan = kt.TaskGraph([kt.Task("x", "do", member="plain"), kt.Task("y", "do", member="own", depends_on=["x"])])
    board = TaskDispatchCoordinator(templates={"task": "B {{ assignment.goal }}"})
    await kt.run(team, "swim", plan=plan, coordinator=board)
    assert say(model) == [["R plain", "B swim"], ["R own", "A swimLeft for this task: 10 turns."]]
    alone = ScriptedModel(["four"])
    await kt.MiniAgent(alone, templates=own.templates, max_turns=1).run("swim alone")
    assert say(alone)[0][1] == "A swim alone"


def test_audit_g15_an_agent_takes_no_templates_of_planners_and_judges() -> None:
    with pytest.raises(ValueError, match=r"MiniAgent\.templates: unknown templates 'plan'; there are 'after_tools', "):
        kt.MiniAgent("test:m", templates={"plan": "Plan."})
