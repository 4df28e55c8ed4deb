"""Recorded steps: what a coordinator learned is learned once, and a replay calls nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.errors import ContractBreach, Misuse
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, PanelEvaluationStrategy, Rubric
from kairo_team.testing import ScriptedAgent, ScriptedJudge, ScriptedModel


class Replay(kt.Runtime):
    """A runtime whose runs all record into one journal."""

    def __init__(self, journal: MemoryRecords, **fields: Any) -> None:
        super().__init__(**fields)
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
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
    journal = MemoryRecords()
    replies = ["one two bad", *["some words"] * 20]
    request = kt.TeamExecutionRequest("goal", config=kt.TeamConfig(**config), run_id="r")
    policy = FailurePolicy(retries=2, backoff=0.5)
    real = ExpertTeamCoordinator(planner=PlanOnce(), evaluator=Editor(), failure_policy=policy)
    runtime = Replay(journal, models={"test:m": ScriptedModel(replies)})
    first = await real.execute(request, kt.Team("team", [kt.Member("a", flaky)], runtime=runtime))
    records = dict(journal.records)
    broken: Any = Broken()
    again = ExpertTeamCoordinator(planner=broken, evaluator=broken, failure_policy=policy)
    team = kt.Team("team", [kt.Member("a", broken)], runtime=Replay(MemoryRecords(records)))
    second = await again.execute(request, team)
    assert comparable(second) == comparable(first)


def comparable(result: kt.TeamResult) -> kt.TeamResult:
    outcomes = tuple(replace(outcome, usage=replace(outcome.usage, seconds=0.0)) for outcome in result.outcomes)
    return replace(result, outcomes=outcomes, usage=replace(result.usage, seconds=0.0), budget=None)


async def test_the_records_keys_are_those_of_the_design() -> None:
    journal = MemoryRecords()
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
    journal, agent = MemoryRecords(), ScriptedAgent([OSError("busy"), "draft", OSError("busy"), "better"])
    coordinator = ExpertTeamCoordinator(evaluator=Editor(), failure_policy=FailurePolicy(retries=1, backoff=0.0))
    team = kt.Team("t", [kt.Member("a", agent)], runtime=Replay(journal))
    result = await coordinator.execute(kt.TeamExecutionRequest("g"), team)
    assert (result.output, result["a"].attempts) == ("better", 4)
    attempts = [cast("Any", journal.records[f"attempt:1:a:{number}"]) for number in (1, 2, 3, 4)]
    assert [attempt.error is None for attempt in attempts] == [False, True, False, True]
    assert [key for key in journal.records if key.startswith("review")] == ["review:1:a:2", "review:1:a:4"]


# ---------------------------------------------------------------- paid once


async def plan_twice(journal: MemoryRecords, model: ScriptedModel) -> tuple[list[str], list[str]]:
    """Ask a planner for the same plan, in the same words, twice."""
    team = kt.Team("t", [kt.Member("a", flaky)], runtime=Replay(journal, models={"test:m": model}))
    request = kt.TeamExecutionRequest("goal", run_id="r")
    async with TeamRun.open(request, team) as run:
        plans = [await run.plan(lambda: PlanOnce().plan(request, team, run.context("plan"))) for _ in range(2)]
        run.abort("that was all")
    first, second = ([task.id for task in plan.tasks] for plan in plans)
    return first, second


async def test_audit_g05_a_planner_that_is_asked_the_same_again_gets_another_plan() -> None:
    journal, model = MemoryRecords(), ScriptedModel(["one", "two"])
    assert await plan_twice(journal, model) == (["one"], ["two"])
    for lacking in (["plan:2"], ["plan:1", "plan:2"]):  # as where the run was killed while its planner read the reply
        left = {key: value for key, value in journal.records.items() if key not in (*lacking, "end")}
        assert await plan_twice(MemoryRecords(left), ScriptedModel([])) == (["one"], ["two"])
    assert len(model.calls) == 2


async def test_audit_g05_whoever_asks_within_a_step_is_answered_from_that_steps_record() -> None:
    async def ask(run: TeamRun, key: str) -> str:
        async def make() -> str:
            reply = await run.context("evaluate").model("test:m").complete(kt.ModelRequest([kt.Message.user("vote")]))
            return reply.text

        return await run.step(key, make)

    async def vote(journal: MemoryRecords, model: ScriptedModel) -> list[str]:
        team = kt.Team("t", [kt.Member("a", flaky)], runtime=Replay(journal, models={"test:m": model}))
        async with TeamRun.open(kt.TeamExecutionRequest("goal", run_id="r"), team) as run:
            said = [await ask(run, key) for key in ("vote:1", "vote:2", "vote:3")]
            run.abort("that was all")
        return said

    journal, model = MemoryRecords(), ScriptedModel(["yes", "no", "maybe"])
    assert await vote(journal, model) == ["yes", "no", "maybe"]
    for lacking in ("vote:3", "vote:2"):
        left = {key: value for key, value in journal.records.items() if key not in (lacking, "end")}
        assert await vote(MemoryRecords(left), ScriptedModel([])) == ["yes", "no", "maybe"]


class Juror:
    """A judge that finds everything met, and counts what it is asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(1)
        self.asked += 1
        return kt.ModelResponse(ScriptedJudge().write(request), usage=kt.Usage(9, 1))


@pytest.mark.parametrize("panel", [False, True])
async def test_audit_g05_a_review_that_was_cut_short_anywhere_asks_for_no_answer_twice(panel: bool) -> None:
    """A judge's question is the same in every session, so that what was answered is taken from the records."""
    rubric = Rubric([Criterion(f"c{number}", "good", by="judge") for number in range(9)])
    names = ("test:x", "test:y") if panel else ("test:x",)
    evaluator = PanelEvaluationStrategy(names, rubric) if panel else AgentEvaluationStrategy("test:x", rubric)

    async def writes(assignment: kt.Assignment) -> str:
        return "Fine words."

    async def run(journal: MemoryRecords) -> int:
        jurors = [Juror(name) for name in names]
        runtime = Replay(journal, models={one.name: one for one in jurors})
        team = kt.Team("t", [kt.Member("a", writes)], runtime=runtime)
        request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("t", "do")]), run_id="r")
        result = await ExpertTeamCoordinator(evaluator=evaluator).execute(request, team)
        assert result.status is kt.TeamStatus.COMPLETED
        return sum(one.asked for one in jurors)

    journal = MemoryRecords()
    all_calls = await run(journal)
    records = list(journal.records.items())
    assert all_calls == 3 * len(names)
    for cut in range(len(records) + 1):
        kept = MemoryRecords(dict(records[:cut]))
        answered = sum(key.startswith("call:") and value is not None for key, value in kept.records.items())
        assert await run(kept) == all_calls - answered


async def test_a_step_that_is_planning_is_paid_from_its_share_and_a_replay_knows_what_it_cost() -> None:
    class Asking:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            async with TeamRun.open(request, team) as run:
                with pytest.raises(Misuse, match="plan first"):
                    await run.step("early", lambda: 1, planning=True)
                graph = await run.plan(kt.TaskGraph([kt.Task("a", "do")]))
                async for task in run.ready(graph):
                    run.go(self.body, run, task)
                run.output = await run.step("end", lambda: self.ask(run, "end"), returns=str, planning=True)
            return run.result

        async def body(self, run: TeamRun, task: kt.Task) -> None:
            attempt = await run.attempt(task, 1)
            said = await run.step("after", lambda: self.ask(run, "after"), planning=True)
            assert said == "after so"
            run.accept(task, attempt)

        async def ask(self, run: TeamRun, what: str) -> str:
            return (await run.context("plan").model("test:m").complete(kt.ModelRequest([kt.Message.user(what)]))).text

    journal = MemoryRecords()
    request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(budget=kt.Budget(tokens=5_000)), run_id="r")
    model = ScriptedModel(["after so", "end so"])
    team = kt.Team("t", [kt.Member("a", ScriptedAgent(["x"]))], runtime=Replay(journal, models={"test:m": model}))
    first = await Asking().execute(request, team)
    assert (first.status, first.output, first.usage.tokens) == (kt.TeamStatus.COMPLETED, "end so", 6)
    assert {"after:usage", "end:usage"} <= set(journal.records)
    broken: Any = Broken()
    again = kt.Team("t", [kt.Member("a", broken)], runtime=Replay(MemoryRecords(dict(journal.records))))
    assert comparable(await Asking().execute(request, again)) == comparable(first)
