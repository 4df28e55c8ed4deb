"""A run goes on with what it was begun with: each difference has a name, and is accepted by that name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.errors import PlanMismatch
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.real_time


@kt.tool(name="look", side_effect="read")
def look(text: str) -> str:
    """Look a word up."""
    return text


@kt.tool(name="look", side_effect="read")
def look_twice(text: str, times: int = 2) -> str:
    """Look a word up."""
    return text * times


class Boss:
    """Leaves everything to a person; what it counts is no criterion."""

    def __init__(self) -> None:
        self.asked = 0

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.asked += 1
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


SKILLS = frozenset({"x", "y"})


async def hand(assignment: kt.Assignment) -> str:
    return "done"


MODELS = {"m:x": FunctionModel(lambda request: "yes")}


def rubric(text: str) -> Rubric:
    return Rubric([Criterion("plain", text, by="human")])


@dataclass(frozen=True)
class Desk:
    """What a team is made of."""

    roles: tuple[kt.Role, ...] = (kt.Role("clerk", allowed_tools=frozenset({"look"})), kt.Role("group"))
    tools: tuple[Any, ...] = (look,)
    inner: kt.Role = kt.Role("hand", "Be quick.", capabilities=SKILLS)
    plan: kt.TaskGraph = kt.TaskGraph([kt.Task("a", "Do a.", requires=SKILLS)])
    config: kt.TeamConfig = kt.TeamConfig()
    rubrics: Mapping[str, Any] = field(default_factory=lambda: {"style": rubric("It is plain.")})
    types: Mapping[str, Any] = field(default_factory=lambda: {"number": int})
    templates: Mapping[str, str] = field(default_factory=lambda: {"continue": "Go on."})

    @property
    def team(self) -> kt.Team:
        inner = kt.Team("inner", [kt.Member(self.inner, hand)])
        agents: list[Any] = [
            hand,
            TeamAgent(inner, plan=self.plan, config=self.config),
            kt.MiniAgent("m:x", tools=self.tools),
        ]
        members = [kt.Member(role, agents[number]) for number, role in enumerate((*self.roles, kt.Role("mini")))]
        evaluators = {"boss": Boss(), **self.rubrics}
        return kt.Team("desk", members, evaluators=evaluators, output_types=self.types)


BEGUN = Desk()
CLERK, GROUP = BEGUN.roles
CHANGES: list[tuple[str, Desk]] = [
    ("set of members", replace(BEGUN, roles=(CLERK, replace(GROUP, id="crowd")))),
    ("instructions of role 'clerk'", replace(BEGUN, roles=(replace(CLERK, instructions="Be brief."), GROUP))),
    ("allowed tools of role 'clerk'", replace(BEGUN, roles=(replace(CLERK, allowed_tools=frozenset()), GROUP))),
    ("tool 'look' of member 'mini'", replace(BEGUN, tools=(look_twice,))),
    ("tool 'look' of member 'mini'", replace(BEGUN, tools=())),
    (
        "instructions of role 'hand' of team 'inner'",
        replace(BEGUN, inner=kt.Role("hand", "Be slow.", capabilities=SKILLS)),
    ),
    ("set of members of team 'inner'", replace(BEGUN, inner=kt.Role("fist", "Be quick.", capabilities=SKILLS))),
    ("plan of member 'group'", replace(BEGUN, plan=kt.TaskGraph([kt.Task("a", "Do b.")]))),
    ("configuration of member 'group'", replace(BEGUN, config=kt.TeamConfig(task_timeout=1.0))),
    ("criteria of evaluator 'style'", replace(BEGUN, rubrics={"style": rubric("It is short.")})),
    ("output type 'number'", replace(BEGUN, types={"number": float})),
    ("template 'continue'", replace(BEGUN, templates={"continue": "Go on, please."})),
]


IN_MEMORY = [(name, changed, False) for name, changed in CHANGES if changed.templates == BEGUN.templates]
"""A run in memory stays in its runtime, whose templates are fixed."""


@pytest.mark.parametrize(("name", "changed", "durable"), [*((*one, True) for one in CHANGES), *IN_MEMORY])
async def test_what_has_changed_is_named_and_accepted_by_that_name(
    tmp_path: Path, name: str, changed: Desk, *, durable: bool
) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db") if durable else None

    def runtime(desk: Desk) -> kt.Runtime:
        return kt.Runtime(journal=journal, gate=kt.DeferGate(), templates=desk.templates, models=MODELS)

    plan = kt.TaskGraph([kt.Task("one", "Do one.", member=CLERK.id, evaluator="boss")])
    first = runtime(BEGUN)
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    assert (await kt.run(BEGUN.team, request, runtime=first)).status == "suspended"
    again = runtime(changed) if durable else first
    with pytest.raises(PlanMismatch) as raised:
        await again.resume("r", changed.team)
    assert raised.value.field == name
    assert f"allow_changes=[{name!r}]" in str(raised.value)
    with pytest.raises(PlanMismatch):
        await again.resume("r", changed.team, allow_changes=["something else"])
    again.answer(again.pending("r")[0].id, kt.HumanDecision.approve())
    assert (await again.resume("r", changed.team, allow_changes=[name])).status == "completed"
    if journal is not None:
        journal.close()


async def test_what_has_no_digest_and_what_is_the_same_never_prevents_a_resume(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime = kt.Runtime(journal=journal, gate=kt.DeferGate(), templates=BEGUN.templates, models=MODELS)
    team = replace(BEGUN, rubrics={"odd": Boss()}).team
    request = kt.TeamExecutionRequest(
        "Do it.", plan=kt.TaskGraph([kt.Task("one", "1", member="clerk", evaluator="boss")]), run_id="r"
    )
    assert (await kt.run(team, request, runtime=runtime)).status == "suspended"
    runtime.answer(runtime.pending("r")[0].id, kt.HumanDecision.approve())
    assert (await runtime.resume("r", replace(BEGUN, rubrics={"odd": Boss()}).team)).status == "completed"
    journal.close()
