"""A group chat and people: an answer that waits for one is suspended, and goes on where it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kairo_team as kt


class Asks:
    """Leaves every answer to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.UNDECIDED, "who knows")


@pytest.mark.parametrize(("closing", "last", "by"), [(None, "turn.0002", "b"), ("c", "closing", "c")])
async def test_an_answer_that_waits_for_a_person_goes_on_without_another_turn(
    closing: str | None, last: str, by: str
) -> None:
    said: list[str] = []

    async def say(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        said.append(assignment.task.id)
        return f"{assignment.task.member} says {assignment.task.id}"

    chat = kt.GroupChatCoordinator(max_turns=2, closing=closing, evaluator=Asks())
    runtime = kt.Runtime(gate=kt.DeferGate())
    team = kt.Team("t", [kt.Member(name, say) for name in "abc"])
    request = kt.TeamExecutionRequest("Settle it.", run_id="r")
    first = await chat.execute(request, replace(team, runtime=runtime))
    assert (first.status, said[-1]) == (kt.TeamStatus.SUSPENDED, last)
    (question,) = runtime.pending("r")
    runtime.answer(question.id, kt.HumanDecision("approve"))
    turns = list(said)
    result = await runtime.resume("r", team, coordinator=chat)
    assert said == turns, "a turn was taken again"
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, f"{by} says {last}")
