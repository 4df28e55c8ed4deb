"""Recorded steps: what a coordinator learned is learned once, and a replay calls nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.errors import ContractBreach
from kairo_team.journal import MemoryJournal
from kairo_team.testing import ScriptedAgent, ScriptedModel


class Replay(kt.Runtime):
    """A runtime whose runs all record into one journal."""

    def __init__(self, journal: MemoryJournal, **fields: Any) -> None:
        super().__init__(**fields)
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryJournal:
        return self.journal


class Editor:
    """Sends the first artifact of every task back."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed(0.9)


class Broken:
    async def run(self, *_: Any) -> str:
        raise AssertionError("a member was called")

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        raise AssertionError("an evaluator was called")

    async def plan(self, *_: Any) -> kt.TaskGraph:
        raise AssertionError("a planner was called")


class PlanOnce:
    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        reply = await context.model("test:m").complete(kt.ModelRequest([kt.Message.user("plan it")]))
        return kt.TaskGraph([kt.Task(name, "do", role="a") for name in reply.text.split()])


async def flaky(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    if assignment.attempt == 2 and not assignment.findings:
        raise AssertionError
    if assignment.task.id == "bad":
        raise OSError("no way")
    reply = await context.model("test:m").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))
    return f"{reply.text} {assignment.attempt}"


CONFIGS: list[dict[str, Any]] = [
    {},
    {"risk_profile": kt.RiskProfile.LOW},
    {"budget": kt.Budget(tokens=100, loops=40, dollars="1")},
    {"max_feedback_rounds": 0},
    {"budget": kt.Budget(tokens=12)},
    {"max_parallel_tasks": 1},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
async def test_replaying_a_runs_records_gives_the_same_result_and_calls_nobody(config: dict[str, Any]) -> None:
    """The law of recorded steps; duration and budget split aside."""
    journal = MemoryJournal()
    replies = ["one two bad", *["some words"] * 20]
    request = kt.TeamExecutionRequest("goal", config=kt.TeamConfig(**config), run_id="r")
    policy = FailurePolicy(retries=2, backoff=0.5)
    real = ExpertTeamCoordinator(planner=PlanOnce(), evaluator=Editor(), failure_policy=policy)
    runtime = Replay(journal, models={"test:m": ScriptedModel(replies)})
    first = await real.execute(request, kt.Team("team", [kt.Member("a", flaky)], runtime=runtime))
    records = dict(journal.records)
    broken: Any = Broken()
    again = ExpertTeamCoordinator(planner=broken, evaluator=broken, failure_policy=policy)
    team = kt.Team("team", [kt.Member("a", broken)], runtime=Replay(MemoryJournal(records)))
    second = await again.execute(request, team)
    assert comparable(second) == comparable(first)


def comparable(result: kt.TeamResult) -> kt.TeamResult:
    outcomes = tuple(replace(outcome, usage=replace(outcome.usage, seconds=0.0)) for outcome in result.outcomes)
    return replace(result, outcomes=outcomes, usage=replace(result.usage, seconds=0.0), budget=None)


async def test_the_records_keys_are_those_of_the_design() -> None:
    journal = MemoryJournal()
    runtime = Replay(journal, models={"test:m": ScriptedModel(["one bad", *["words"] * 4])})
    coordinator = ExpertTeamCoordinator(
        planner=PlanOnce(), evaluator=Editor(), failure_policy=FailurePolicy(retries=1, backoff=0.0)
    )
    await coordinator.execute(kt.TeamExecutionRequest("g"), kt.Team("t", [kt.Member("a", flaky)], runtime=runtime))
    keys = [key for key in journal.records if not key.startswith("call:")]
    assert sorted(keys) == [
        "attempt:1:bad:1", "attempt:1:bad:2", "attempt:1:one:1", "attempt:1:one:2",
        "over:1:bad:2", "plan:1", "plan:1:usage", "review:1:one:1", "review:1:one:2",
    ]  # fmt: skip
    calls = [key for key in journal.records if key.startswith("call:")]
    assert calls[0].startswith("call:plan")
    assert all(len(key.rsplit(":", 2)[1]) == 16 for key in calls)


async def test_a_step_is_made_once_and_checked() -> None:
    made: list[str] = []

    async def slow() -> str:
        await anyio.sleep(1)
        made.append("slow")
        return "value"

    team = kt.Team("team", [kt.Member("a", flaky)])
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), team) as run:
        assert await run.step("k", slow, returns=str) == await run.step("k", slow) == "value"
        assert await run.step("plain", lambda: 5) == 5
        with pytest.raises(ContractBreach, match="step 'n' made 5, not a str"):
            await run.step("n", lambda: 5, returns=str)
    assert made == ["slow"]


async def test_kf_u09_a_failed_try_is_recorded_and_the_next_one_has_a_number_of_its_own() -> None:
    """A failure is never replayed in the place of a later try: N counts every try and never restarts."""
    journal, agent = MemoryJournal(), ScriptedAgent([OSError("busy"), "draft", OSError("busy"), "better"])
    coordinator = ExpertTeamCoordinator(evaluator=Editor(), failure_policy=FailurePolicy(retries=1, backoff=0.0))
    team = kt.Team("t", [kt.Member("a", agent)], runtime=Replay(journal))
    result = await coordinator.execute(kt.TeamExecutionRequest("g"), team)
    assert (result.output, result["a"].attempts) == ("better", 4)
    attempts = [cast("Any", journal.records[f"attempt:1:a:{number}"]) for number in (1, 2, 3, 4)]
    assert [attempt.error is None for attempt in attempts] == [False, True, False, True]
    assert [key for key in journal.records if key.startswith("review")] == ["review:1:a:2", "review:1:a:4"]
