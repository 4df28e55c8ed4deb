"""Constraints of an agent that works alone."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.governance import MaxIterations, Timeout, TokenBudget, WarnAt
from kairo_team.testing import FunctionModel
from tests.constrained import EXIT, STOP, Rule, cut

pytestmark = pytest.mark.anyio


def endless(seconds: float = 0.0) -> kt.MiniAgent:
    async def reply(_: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(seconds)
        return cut("word ")[0]

    return kt.MiniAgent(FunctionModel(reply), max_turns=9)


async def end(agent: Any, *constraints: Any) -> kt.AgentOutput:
    output: kt.AgentOutput = await agent.run("Tell.", constraints=constraints)
    return output


async def test_audit_g15_a_lone_agent_ends_gracefully_by_a_constraint() -> None:
    output = await end(endless(), MaxIterations(2))
    assert (output.status, output.text, output.turns_completed) == (kt.AgentStatus.GRACEFUL_EXIT, "word word ", 2)
    assert output.artifact.partial
    assert output.error == "the constraint 'max-iterations' ended the attempt: 2 of 2 iterations are used"
    tokens = await end(endless(), TokenBudget(25))
    assert (tokens.status, tokens.usage.tokens) == (kt.AgentStatus.GRACEFUL_EXIT, 30)
    never = await end(endless(), Rule(lambda context: True, EXIT))
    assert (never.status, never.text, never.usage) == (kt.AgentStatus.GRACEFUL_EXIT, "", kt.Usage())


async def test_audit_g15_a_lone_agent_is_stopped_by_a_constraint_in_the_middle_of_a_call() -> None:
    with anyio.fail_after(100):
        output = await end(endless(60), Timeout(90))
    assert (output.status, output.text) == (kt.AgentStatus.HALTED, "word ")
    assert output.error == "emergency stop by the constraint 'timeout': 90 of 90 seconds are used"
    stopped = await end(endless(), Rule(lambda context: context.iteration >= 1, STOP))
    assert (stopped.status, stopped.text) == (kt.AgentStatus.HALTED, "word ")


async def test_audit_g15_what_a_constraint_warns_a_lone_agent_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kairo_team"):
        output = await end(endless(), WarnAt(MaxIterations(4), share=0.5), MaxIterations(3))
    assert output.status is kt.AgentStatus.GRACEFUL_EXIT
    assert [record.getMessage() for record in caplog.records] == [
        "agent: the constraint 'warn-at 0.5 max-iterations': 50% of the limit of 'max-iterations' is used",
        "agent: ended early by the constraint 'max-iterations': 3 of 3 iterations are used",
    ]


async def test_audit_g15_a_lone_agent_that_takes_the_refusal_for_its_end_is_not_complete() -> None:
    class Stubborn:
        async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> kt.AgentOutput:
            with pytest.raises(kt.KairoError):
                await context.model(FunctionModel(lambda _: "x")).complete(kt.ModelRequest([kt.Message.user("go")]))
            return kt.AgentOutput(kt.Artifact("all of it"))

    from kairo_team.engine.run.lone_agent import run_alone

    output = await run_alone(
        Stubborn(), "Tell.", constraints=[Rule(lambda context: bool(context.agent_state.messages), EXIT)]
    )
    assert (output.status, output.artifact.partial) == (kt.AgentStatus.GRACEFUL_EXIT, True)


async def test_audit_g15_a_constraint_of_a_lone_agent_is_a_constraint() -> None:
    with pytest.raises(ValueError, match="run_alone: MaxIterations is a class, not a constraint: make one"):
        await end(endless(), MaxIterations)
