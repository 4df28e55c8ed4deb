"""Constraints and guardrails of a runtime: in force in every run of it, by default, and from a configuration."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.governance import ConstraintChain, GuardrailChain, MaxIterations
from kairo_team.governance.policies import ContentFilter, ToolLoop
from kairo_team.testing import EventRecorder, FunctionModel
from tests.constrained import EXIT, STOP, Rule, cut, hang, watcher

CONFIG = """
[[kairo.constraint.constraints]]
name = "max-iterations"
n = 2

[[kairo.guardrail.policies]]
name = "content-filter"
id = "projects"
mask = ["falcon"]
phase = "POST_MODEL"
"""


def bench(agent: Any = None, *, team: dict[str, Any] | None = None, **fields: Any) -> tuple[kt.Team, EventRecorder]:
    recorder = EventRecorder()
    models = {"test:m": FunctionModel(lambda _: cut("falcon ")[0])}
    runtime = kt.Runtime(subscribers=[recorder], models=models, **fields)
    member = kt.Member("a", agent or kt.MiniAgent("test:m", max_turns=9))
    board = TaskDispatchCoordinator()
    return kt.Team("team", [member], runtime=runtime, coordinator=board, **(team or {})), recorder


async def test_audit_g15_constraints_and_guardrails_are_in_force_by_default_from_a_configuration() -> None:
    config = tomllib.loads(CONFIG)
    guards: dict[str, Any] = {
        "constraints": ConstraintChain.from_config(config),
        "guardrails": GuardrailChain.from_config(config),
    }
    team, recorder = bench(**guards)
    for _ in range(2):
        result = await kt.run(team, "Name the project.")
        assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "[FILTERED] [FILTERED] ")
    assert [event.policy for event in recorder.of(events.GuardrailDecided)] == ["projects"] * 4
    assert {event.constraint for event in recorder.of(events.ConstraintViolated)} == {"max-iterations"}


async def test_audit_g15_the_runtimes_go_first_and_the_teams_stay() -> None:
    """A violated constraint of the runtime stops the run, as a team's does."""
    first, second = watcher(), watcher()
    team, _ = bench(constraints=[first, MaxIterations(1)], team={"constraints": [second]})
    await kt.run(team, "g")
    assert len(first.seen) == len(second.seen) > 1
    team, recorder = bench(hang, constraints=[Rule(lambda context: True, STOP)], team={"constraints": [second]})
    result = await kt.run(team, "g")
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.EMERGENCY_STOP)
    recorder.assert_lawful()
    filters: dict[str, Any] = {"guardrails": [ContentFilter(mask=["falcon"])], "constraints": [MaxIterations(1)]}
    team, recorder = bench(team={"guardrails": [ContentFilter(["falcon"])]}, **filters)
    assert (await kt.run(team, "g")).output == "[FILTERED] ", "the team's saw what the runtime's had left"


async def test_audit_g15_inside_a_team_that_is_a_member_they_are_asked_once() -> None:
    rule = Rule(lambda context: context.iteration >= 1, EXIT)
    inner = kt.Team("inner", [kt.Member("b", kt.MiniAgent("test:m", max_turns=9))])
    team, recorder = bench(TeamAgent(inner), constraints=[rule], guardrails=[ContentFilter(mask=["falcon"])])
    result = await kt.run(team, "g")
    assert result.output is not None
    assert result.output.strip() == "[FILTERED]"
    calls = len(recorder.of(events.ModelCalled))
    assert calls == 1
    assert len(recorder.of(events.GuardrailDecided)) == calls


async def test_audit_g15_what_a_guardrail_of_the_runtime_learns_belongs_to_one_run() -> None:
    @kt.tool(side_effect="read")
    async def look() -> str:
        return "found"

    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "; ".join([(await context.tool(look)()).text for _ in range(2)])

    team, _ = bench(ask, guardrails=[ToolLoop(2, 2)])
    first, second = await kt.run(team, "g"), await kt.run(team, "g")
    assert first.output == second.output
    assert "found" in str(first.output)
    assert str(first.output).count("found;") == 1


@pytest.mark.parametrize("given", [{"constraints": MaxIterations}, {"guardrails": [ContentFilter]}])
def test_audit_g15_what_is_none_is_refused_when_the_runtime_is_built(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Runtime.{next(iter(given))}"):
        kt.Runtime(**given)
