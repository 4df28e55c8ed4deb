"""Constraints and recorded steps: what an attempt decided is in its record, and a replay asks nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.governance import MaxIterations, ResourceAction, WarnAt
from kairo_team.results import Attempt
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.constrained import COMPLETED, EXIT, FAILED, ONCE, STOP, Rule, careless, cut, watcher


class Recording(kt.Runtime):
    """A runtime whose runs all record into one journal."""

    def __init__(self, journal: MemoryRecords) -> None:
        super().__init__(models={"test:m": FunctionModel(lambda request: cut("word ")[0])})
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
        return self.journal


async def run(journal: MemoryRecords, agent: Any, *constraints: Any) -> kt.TeamResult:
    team = kt.Team("team", [kt.Member("a", agent, constraints=constraints)], runtime=Recording(journal))
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("t", "do")]), run_id="r")
    return await TaskDispatchCoordinator(failure_policy=ONCE).execute(request, team)


@pytest.mark.parametrize(("action", "status"), [(EXIT, COMPLETED), (STOP, FAILED)])
async def test_a_replay_asks_no_constraint_and_decides_the_same(action: ResourceAction, status: kt.TaskStatus) -> None:
    journal = MemoryRecords()
    rule = Rule(lambda context: context.agent_state.turns_completed >= 2, action)
    results: list[kt.TeamResult] = []
    asked: list[int] = []
    for model in (ScriptedModel(cut("one ", "two ")), ScriptedModel([])):
        results.append(await run(journal, kt.MiniAgent(model), WarnAt(MaxIterations(2), 0.5), rule))
        asked.append(len(rule.seen))
        model.assert_complete()
    assert asked[0] == asked[1], "the second run is a replay"
    assert results[0].outcomes == results[1].outcomes
    assert results[0].status is results[1].status
    assert results[1]["t"].status is status
    assert "warn-at" in results[1]["t"].warnings[0]


async def test_a_call_that_was_recorded_counts_as_a_turn_and_is_not_judged_again() -> None:
    """An attempt that is begun again on the records of its calls: the first is recorded, the second was cut off."""

    class WithoutAttempts(MemoryRecords):
        def put(self, key: str, value: object) -> None:
            if not key.startswith("attempt:"):
                super().put(key, value)

    journal = WithoutAttempts()
    seen: list[list[tuple[int, int, str]]] = []
    outputs: list[str | None] = []
    for model in (ScriptedModel([*cut("one "), OSError("cut off")]), ScriptedModel(["two"])):
        rule = watcher()
        outputs.append((await run(journal, kt.MiniAgent(model), rule)).output)
        seen.append([(c.iteration, c.agent_state.turns_completed, c.agent_state.last_text) for c in rule.seen])
        model.assert_complete()
    assert outputs == [None, "one two"]
    assert seen[1] == [(0, 0, ""), (1, 1, "one "), (1, 2, "two")]
    assert seen[0] == [(0, 0, ""), (0, 0, ""), (0, 1, "one "), (1, 1, "one ")]


@pytest.mark.parametrize(
    ("agent", "max_turns", "usage"),
    [(kt.MiniAgent("test:m", max_turns=7), 7, kt.Usage(12, 8, loops=3)), (careless, None, kt.Usage(12, 8, loops=1))],
    ids=["mini", "foreign"],
)
async def test_the_record_says_how_the_attempt_ended(agent: Any, max_turns: int | None, usage: kt.Usage) -> None:
    journal = MemoryRecords()
    await run(journal, agent, MaxIterations(2))
    attempt: Any = journal.get("attempt:1:t:1", None)
    assert isinstance(attempt, Attempt)
    assert attempt.output is not None
    assert replace(attempt.output, transcript=()) == kt.AgentOutput(
        kt.Artifact("word word ", partial=True),
        kt.AgentStatus.GRACEFUL_EXIT,
        2,
        max_turns,
        usage=usage,
        error="the constraint 'max-iterations' ended the attempt: 2 of 2 iterations are used",
    )
    assert (attempt.error, attempt.halt) == (None, None)
    assert attempt.usage.tokens == 20
    assert attempt.warnings == ("ended early by the constraint 'max-iterations': 2 of 2 iterations are used",)
