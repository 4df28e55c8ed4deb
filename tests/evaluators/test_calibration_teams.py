"""A team's evaluator is calibrated as the team has it: its judge, its prompts, its models, and what its judge sees."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    Rubric,
    calibrate,
    read_labelled,
    score_judge,
)
from kairo_team.testing import ScriptedAgent
from tests.evaluators.calibration_doubles import Told, labels
from tests.evaluators.judge_rig import Judging

pytestmark = pytest.mark.anyio

RUBRIC = Rubric([Criterion("plain", "a child understands it", by="judge")])
PROSE = [LabelledArtifact(f"The moon pulls the sea, {number} times.", "Explain tides.", True) for number in range(40)]


def team(coordinator: Any, judging: Judging | None = None, **fields: Any) -> kt.Team:
    judge = judging or Judging({"plain": "met"})
    runtime = kt.Runtime(models={"test:judge": judge.model}, templates=fields.pop("templates", None))
    return kt.Team("desk", [kt.Member("w", ScriptedAgent(["The moon."]))], coordinator, runtime=runtime, **fields)


def expert(evaluator: Any = RUBRIC, judge: Any = "test:judge") -> ExpertTeamCoordinator:
    return ExpertTeamCoordinator(evaluator=evaluator, judge=judge)


async def test_of_a_team_its_coordinators_evaluator_is_calibrated_with_its_judge_and_models() -> None:
    found = await calibrate(team(expert()), PROSE, {"pass": 0.1})
    (one,) = found.certificates
    assert (one.n, one.subject.judge, one.subject.rubric) == (40, "test:judge", RUBRIC.digest)
    alone = await calibrate(
        AgentEvaluationStrategy("test:judge", RUBRIC), PROSE, {"pass": 0.1},
        models={"test:judge": Judging({"plain": "met"}).model},
    )  # fmt: skip
    assert alone.certificates == found.certificates


async def test_certificates_of_a_team_hold_in_its_runs_and_not_with_other_templates() -> None:
    (one,) = (await calibrate(team(expert()), PROSE, {"pass": 0.1})).certificates
    careful = expert(CalibratedEvaluationStrategy(RUBRIC, [one]))
    result = await kt.run(team(careful), "Explain tides.")
    assert result.status is kt.TeamStatus.COMPLETED
    values = "{{ question.statements | length }} {{ hidden }} {{ whole }} {{ cannot_tell }}"
    changed = {"judge_ask": f"Be kind. {{{{ token }}}} {{{{ shown.task }}}} {values}"}
    for templates, other in ((None, team(careful, templates=changed)), (changed, team(careful))):
        scored = await score_judge(other, PROSE[:3], [one], templates=templates)
        assert scored.why_not == ["no certificate for pass or revise on attempt 1: it was made for another prompt"]
    again = await calibrate(team(careful), PROSE, {"pass": 0.1})
    assert again.certificates == [one]


async def test_an_evaluator_is_named_as_tasks_name_it() -> None:
    named = {"plain": RUBRIC, "told": Told()}
    there = team(TaskDispatchCoordinator(), evaluators=named)
    said = labels((30, "pass 0.9", True))
    assert (await calibrate(there, said, {"pass": 0.1}, evaluator="told")).certificates
    by_name = team(expert("told", judge=None), evaluators=named)
    assert (await calibrate(by_name, said, {"pass": 0.1})).certificates


async def test_what_cannot_be_asked_is_refused_before_a_judge_is() -> None:
    plain = {"plain": RUBRIC}
    for strategy, name, complaint in (
        (team(TaskDispatchCoordinator(), evaluators=plain), None, "has no evaluator of its own: name one .* 'plain'"),
        (team(expert(), evaluators=plain), "prose", "the evaluator 'prose' is unknown; the team has 'plain'"),
        (team(expert("prose"), evaluators=plain), None, "the evaluator 'prose' is unknown; the team has 'plain'"),
        (team(TaskDispatchCoordinator(), evaluators=plain), "plain", "criterion 'plain': a judge decides it, and none"),
        (RUBRIC, None, "calibrate a rubric together with its judge"),
        (Told(), "told", "names one of a team's: give the team in place of"),
    ):
        for ask in (calibrate, score_judge):
            with pytest.raises(ValueError, match=complaint):
                await ask(strategy, PROSE, evaluator=name)


# ---------------------------------------------------------------- what the judge sees


async def test_the_judge_sees_the_goal_the_reference_and_what_a_text_was_made_from() -> None:
    judging = Judging({"plain": "met"})
    given: dict[str, Any] = {"goal": "A book.", "upstream": {"facts": "The moon pulls."}, "reference": "It is gravity."}
    compared = Rubric([Criterion("plain", "it says the same", by="judge", reference=True)])
    await calibrate(team(expert(compared), judging), [LabelledArtifact("The moon.", "Explain tides.", True, **given)])
    said = "\n".join(message.text for message in judging.asked[0].messages)
    assert all(
        re.search(text, said) for text in ("A book", "facts", "The moon pulls", "Explain tides", "It is gravity")
    )


def test_goal_and_upstream_are_read_from_lines_and_frozen() -> None:
    (one,) = read_labelled(
        '{"artifact": "a", "task": "t", "passed": true, "goal": "g", "upstream": {"facts": "The moon pulls."}}'
    )
    assert (one.goal, one.upstream) == ("g", {"facts": "The moon pulls."})
    assert hash(one) == hash(replace(one))
    with pytest.raises(TypeError):
        one.upstream["facts"] = "other"  # type: ignore[index]  # what is refused
    with pytest.raises(ValueError, match=r"line 1: LabelledArtifact\.upstream\['facts'\] must be a string, not 7"):
        read_labelled('{"artifact": "a", "task": "t", "passed": true, "upstream": {"facts": 7}}')


OTHER: list[dict[str, Any]] = [{"upstream": {"facts": "a"}}, {"goal": "g"}, {"reference": "r"}, {"attempt": 2}]


async def test_what_a_text_was_made_from_makes_it_another_example_and_a_later_attempt_does_not() -> None:
    one = labels((1, "pass 0.9", True))[0]
    others = [replace(one, **field) for field in OTHER]
    assert (await score_judge(Told(), [one, *others, one])).report.examples == 5
    third = replace(one, attempt=3)
    assert (await score_judge(Told(), [third, replace(one, attempt=4)])).report.examples == 1
    with pytest.raises(ValueError, match="labelled both ways"):
        await calibrate(Told(), [third, replace(one, attempt=4, passed=False)])
    lines = [f'{{"artifact": "a", "task": "t", "passed": true, "attempt": {number}}}' for number in (3, 4)]
    with pytest.raises(ValueError, match="line 2: it is the same artifact as line 1"):
        read_labelled("\n".join(lines))
