"""Constraints in a run: of a team and of a member, for agents of every kind, between calls and in the middle of one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance import (
    ConstraintExit,
    CostLimit,
    MaxIterations,
    ResourceAction,
    ResourceValidation,
    Timeout,
    TokenBudget,
    WarnAt,
)
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.constrained import (
    ALLOW,
    COMPLETED,
    EXIT,
    FAILED,
    STOP,
    WARN,
    Bell,
    Bench,
    Rule,
    ask,
    careless,
    cut,
    good,
    plain,
    stubborn,
    team_of,
    watcher,
)

# ---------------------------------------------------------------- when they are asked, and what they see


async def test_a_constraint_looks_before_the_attempt_before_each_turn_and_after_each_reply() -> None:
    rule, model = watcher(), ScriptedModel([*cut("one ", "two "), "three"])
    member = kt.Member("writer", kt.MiniAgent(model), constraints=[rule])
    result = await Bench(member).run()
    assert result.output == "one two three"
    assert [context.iteration for context in rule.seen] == [0, 0, 0, 1, 1, 2, 2]
    assert [context.agent_state.turns_completed for context in rule.seen] == [0, 0, 1, 1, 2, 2, 3]
    assert [context.tokens_used for context in rule.seen][:4] == [0, 0, 10, 10]
    assert rule.seen[-1].tokens_used == result.usage.tokens
    assert rule.seen[-1].usage.loops == 3
    assert [context.agent_state.last_text for context in rule.seen] == ["", "", "one ", "one ", "two ", "two ", "three"]
    assert [len(context.agent_state.messages) for context in rule.seen] == [0, 2, 2, 4, 4, 6, 6]
    assert {context.member for context in rule.seen} == {"writer"}


class Own:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "text"


def threaded(assignment: kt.Assignment) -> str:
    return "text"


@pytest.mark.real_time
@pytest.mark.parametrize("agent", [plain, Own(), threaded], ids=["async", "class", "thread"])
@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
async def test_an_agent_without_model_calls_is_looked_at_once_per_attempt(agent: Any, of_team: bool) -> None:
    rule = watcher()
    member = kt.Member("a", agent, constraints=() if of_team else [rule])
    result = await Bench(member, team=[rule] if of_team else ()).run(kt.Task("x", "do"), kt.Task("y", "do"))
    assert result.status is kt.TeamStatus.COMPLETED
    assert [context.iteration for context in rule.seen] == [0, 0]


@pytest.mark.parametrize("agent", [plain, Own()], ids=["async", "class"])
async def test_a_graceful_exit_before_the_attempt_calls_nobody(agent: Any) -> None:
    member = kt.Member("a", agent, constraints=[Rule(lambda context: True, EXIT)])
    result = await Bench(member).run()
    assert (result.status, result["t"].status, result["t"].artifact) == (kt.TeamStatus.FAILED, FAILED, None)
    assert result["t"].error == "the constraint 'Rule' ended the attempt: the rule says so"


async def test_kf_b19_constraints_see_the_real_clock() -> None:
    """Elsewhere it stood at 0, so that the timeout never fired."""
    rule = watcher()

    async def slow(request: kt.ModelRequest) -> str:
        await anyio.sleep(20)
        return "text"

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await anyio.sleep(5)
        await ask(context, FunctionModel(slow))
        await ask(context, FunctionModel(slow))
        return "text"

    await Bench(kt.Member("a", agent, constraints=[rule])).run(kt.Task("x", "do"), max_parallel_tasks=1)
    assert [context.elapsed for context in rule.seen] == pytest.approx([0, 5, 25, 25, 45])
    seen, rule.seen = rule.seen, []
    await Bench(kt.Member("a", agent, constraints=[rule])).run()
    assert rule.seen[0].elapsed == pytest.approx(0), "each attempt has its own beginning"
    assert len(rule.seen) == len(seen)


async def test_kf_b19_a_timeout_that_is_only_looked_at_between_calls_fires_too() -> None:
    """`validate` alone, without its watch: as a constraint of somebody else's may have it."""
    late = Rule(lambda context: context.elapsed >= 30, EXIT)

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        while True:
            context.keep(f"{anyio.current_time():.0f}")
            await anyio.sleep(20)
            await ask(context, ScriptedModel(["more"]))

    result = await Bench(kt.Member("a", agent, constraints=[late])).run()
    assert (result["t"].status, result.status) == (COMPLETED, kt.TeamStatus.DEGRADED)
    assert result["t"].artifact == kt.Artifact(result.output or "", partial=True)


async def test_every_try_counts_its_own_tool_calls_and_all_of_the_tasks_spending() -> None:
    rule = watcher()

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=5, tool_calls=1)
        if len(rule.seen) == 1:
            raise OSError("not yet")
        await ask(context, "test:m")
        return "text"

    retry = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=1))
    await Bench(kt.Member("a", agent, constraints=[rule])).run(coordinator=retry)
    assert [context.agent_state.tool_calls_executed for context in rule.seen] == [0, 0, 1, 1]
    assert [context.usage.tool_calls for context in rule.seen] == [0, 1, 2, 2]
    assert [context.tokens_used for context in rule.seen][:3] == [0, 5, 10]


async def test_parallel_calls_of_one_attempt_are_turns_of_their_own() -> None:
    model = FunctionModel(lambda request: "text")

    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        refused: list[str] = []

        async def one() -> None:
            try:
                await ask(context, model)
            except ConstraintExit as refusal:
                refused.append(refusal.constraint)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        return f"{len(refused)} refused"

    result = await Bench(kt.Member("a", agent, constraints=[MaxIterations(3)])).run()
    assert (result.output, len(model.calls)) == ("2 refused", 3)


# ---------------------------------------------------------------- graceful exit


async def test_a_graceful_exit_finishes_the_turn_and_starts_no_paid_call() -> None:
    """MiniAgent ends cleanly with its text so far."""
    model = ScriptedModel(cut("one ", "two ", "three "))
    bench = Bench(kt.Member("a", kt.MiniAgent(model), constraints=[TokenBudget(20)]))
    result = await bench.run()
    model_calls = bench.recorder.of(events.ModelCalled)
    assert (len(model.calls), len(model_calls), result.usage.tokens) == (2, 2, 20)
    assert result["t"].artifact == kt.Artifact("one two ", partial=True)
    assert (result["t"].status, result.status) == (COMPLETED, kt.TeamStatus.DEGRADED)
    assert result["t"].warnings == ("ended early by the constraint 'token-budget': 20 of 20 tokens are used",)
    assert bench.recorder.of(events.AttemptFinished)[0].status == kt.AgentStatus.GRACEFUL_EXIT
    assert result["t"].attempts == 1


async def test_reaching_a_limit_with_a_proper_answer_is_completed() -> None:
    """Nothing was refused, so nothing is missing."""
    model = ScriptedModel(["all of it"])
    constraints: list[Any] = [MaxIterations(1), TokenBudget(1), CostLimit("0.001")]
    priced = ScriptedModel(["all of it"], dollars_per_token="0.01")
    for one in (model, priced):
        result = await Bench(kt.Member("a", kt.MiniAgent(one), constraints=constraints)).run()
        assert (result.status, result["t"].warnings) == (kt.TeamStatus.COMPLETED, ())
        assert result.output == "all of it"


async def test_what_was_decided_stays_decided() -> None:
    """A constraint that changes its mind does not make the agent go on; it is not even asked again."""
    once = watcher(EXIT)
    once.when = lambda context: len(once.seen) == 3
    model = ScriptedModel(cut("one ", "two "))
    result = await Bench(kt.Member("a", kt.MiniAgent(model), constraints=[once])).run()
    assert (len(model.calls), len(once.seen), result.output) == (1, 3, "one ")


async def wrapping(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """One that turns every error of its model into one of its own."""
    try:
        return await careless(assignment, context)
    except kt.KairoError as error:
        raise RuntimeError("my model failed") from error


async def grouping(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """One whose calls are made in a task group."""
    async with anyio.create_task_group() as group:
        group.start_soon(careless, assignment, context)
        group.start_soon(careless, assignment, context)
    raise AssertionError


async def answering(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """One that makes do with what it has."""
    try:
        return await careless(assignment, context)
    except ConstraintExit:
        return "a good answer"


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
@pytest.mark.parametrize(
    ("agent", "text"),
    [(careless, "word word "), (wrapping, "word word "), (grouping, "word "), (answering, "a good answer")],
)
async def test_an_agent_of_any_kind_exits_gracefully(agent: Any, text: str, of_team: bool) -> None:
    bench = team_of(agent, MaxIterations(2), of_team=of_team)
    result = await bench.run()
    assert result["t"].artifact == kt.Artifact(text, partial=True)
    assert (result["t"].status, result.status) == (COMPLETED, kt.TeamStatus.DEGRADED)
    assert bench.recorder.of(events.AttemptFinished)[0].status == kt.AgentStatus.GRACEFUL_EXIT
    assert "ended early by the constraint 'max-iterations'" in result["t"].warnings[0]


async def test_without_any_text_a_graceful_exit_is_a_failed_attempt_with_the_reason() -> None:
    result = await team_of(forgetful, MaxIterations(2)).run()
    assert (result["t"].status, result["t"].artifact) == (FAILED, None)
    assert result["t"].error == "the constraint 'max-iterations' ended the attempt: 2 of 2 iterations are used"


TRY_ALL = FailurePolicy(retries=2, try_others=True)


async def forgetful(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It keeps nothing."""
    while True:
        await ask(context, "test:m")


async def wrapping_forgetful(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It turns what it is refused into an error of its own."""
    try:
        return await forgetful(assignment, context)
    except kt.KairoError as error:
        raise RuntimeError("my model failed") from error


async def silent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It makes nothing of what it is refused."""
    with suppress(ConstraintExit):
        await forgetful(assignment, context)
    return ""


async def failing(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """It fails over the first reply."""
    await ask(context, "test:m")
    raise ValueError("a bug")


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
@pytest.mark.parametrize("agent", [forgetful, silent, wrapping_forgetful], ids=["raises", "returns", "wraps"])
@pytest.mark.parametrize("coordinator", [TaskDispatchCoordinator, ExpertTeamCoordinator])
async def test_audit_g01_a_graceful_exit_is_final(agent: Any, of_team: bool, coordinator: Any) -> None:
    """Nothing was kept: no retry, no other member, no senior, no further paid call."""
    limit = [MaxIterations(2)]
    senior = kt.Member("senior", agent, constraints=[] if of_team else limit)
    members = [kt.Member(name, agent, constraints=[] if of_team else limit, senior=senior) for name in ("a", "b")]
    bench = Bench(*members, team=limit if of_team else [])
    result = await bench.run(coordinator=coordinator(failure_policy=TRY_ALL))
    assert len(bench.recorder.of(events.ModelCalled)) == 2
    assert (result["t"].status, result["t"].attempts, result["t"].artifact) == (FAILED, 1, None)
    assert result["t"].error == "the constraint 'max-iterations' ended the attempt: 2 of 2 iterations are used"


@pytest.mark.parametrize("agent", [careless, failing])
async def test_audit_g01_what_cannot_be_reviewed_after_a_graceful_exit_is_final_too(agent: Any) -> None:
    """What was kept is not of the task's type; or the agent fails after the constraint has decided."""
    members = [kt.Member(name, agent, constraints=[TokenBudget(1)]) for name in ("a", "b")]
    bench = Bench(*members, output_types={"report": Report})
    task = kt.Task("t", "do", output_type="report")
    result = await bench.run(task, coordinator=TaskDispatchCoordinator(failure_policy=TRY_ALL))
    assert len(bench.recorder.of(events.ModelCalled)) == 1
    assert (result["t"].status, result["t"].attempts) == (FAILED, 1)


async def test_a_revision_that_a_constraint_of_the_task_refuses_costs_nothing_and_the_best_comes_back() -> None:
    """A review may ask for a revision of what was kept: that is a new attempt, looked at before it begins."""

    class Never:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.revise("more")

    members = [kt.Member(name, careless, constraints=[TokenBudget(1)]) for name in ("a", "b")]
    bench = Bench(*members)
    result = await bench.run(coordinator=ExpertTeamCoordinator(evaluator=Never(), failure_policy=TRY_ALL))
    assert len(bench.recorder.of(events.ModelCalled)) == 1
    assert (result["t"].status, result["t"].attempts) == (FAILED, 2)
    assert result["t"].artifact == kt.Artifact("word ", partial=True)
    assert result["t"].error == "the constraint 'token-budget' ended the attempt: 3 of 1 tokens are used"


@pytest.mark.real_time
async def test_an_agent_that_ignores_a_graceful_exit_is_refused_and_does_not_hold_up_the_loop() -> None:

    result = await team_of(stubborn, MaxIterations(2)).run(kt.Task("t", "do", timeout=0.5))
    assert result["t"].status is FAILED
    assert result["t"].error == "timed out after 0.5 seconds"
    assert result["t"].artifact == kt.Artifact("kept", partial=True)


class Report(BaseModel):
    rows: list[int]


@pytest.mark.parametrize(("text", "status"), [('{"rows": [1]}', COMPLETED), ('{"rows": [1', FAILED)])
async def test_what_was_kept_is_held_to_the_output_type(text: str, status: kt.TaskStatus) -> None:
    async def agent(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep(text)
        await ask(context, "test:m")
        await ask(context, "test:m")
        raise AssertionError

    bench = Bench(kt.Member("a", agent, constraints=[MaxIterations(1)]), output_types={"report": Report})
    result = await bench.run(kt.Task("t", "do", output_type="report"))
    assert result["t"].status is status


async def test_a_partial_artifact_is_reviewed() -> None:
    class Strict:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            assert context.artifact.partial
            return (
                kt.EvaluationVerdict.passed() if "two" in context.artifact.text else kt.EvaluationVerdict.revise("no")
            )

    model = ScriptedModel(cut("one ", "two ", "three "))
    bench = Bench(kt.Member("a", kt.MiniAgent(model), constraints=[MaxIterations(2)]))
    result = await bench.run(coordinator=ExpertTeamCoordinator(evaluator=Strict()))
    assert (result.status, result["t"].status) == (kt.TeamStatus.DEGRADED, COMPLETED), (
        "its review passed what is partial"
    )
    assert result["t"].verdict is not None


@pytest.mark.parametrize("turns", [1, 2])
async def test_kf_b20_custom_constraints_stand_beside_the_built_in_limit(turns: int) -> None:
    """Elsewhere they replaced it, and the turn limit was gone."""
    mine = watcher()
    model = ScriptedModel(cut("one ", "two ", "three "))
    bench = Bench(kt.Member("a", kt.MiniAgent(model, max_turns=turns), constraints=[mine]), team=[MaxIterations(50)])
    result = await bench.run()
    assert len(model.calls) == turns
    assert bench.recorder.of(events.AttemptFinished)[0].status == kt.AgentStatus.TURN_LIMIT_REACHED
    assert result["t"].artifact is not None
    assert result["t"].artifact.partial
    assert len(mine.seen) == 1 + 2 * turns


async def test_kf_b20_the_teams_constraints_are_asked_before_the_members_and_both_hold() -> None:
    for first, second in ((EXIT, STOP), (STOP, EXIT)):
        of_team, of_member = Rule(lambda context: True, first), Rule(lambda context: True, second)
        bench = Bench(kt.Member("a", good, constraints=[of_member]), team=[of_team])
        result = await bench.run()
        assert result["t"].status is FAILED
        assert [one.action for one in bench.violations] == ([EXIT, STOP] if first is EXIT else [STOP])
        assert len(of_member.seen) == (first is EXIT), "the first emergency stop ends the evaluation"


async def test_kf_b16_every_attempt_counts_its_own_turns() -> None:
    """One constraint object guards many attempts at once; nothing of one reaches another."""
    limit, model = MaxIterations(2), FunctionModel(lambda request: cut("word ")[0])
    members = [kt.Member(name, kt.MiniAgent(model), constraints=[limit]) for name in "ab"]
    result = await Bench(*members).run(
        kt.Task("x", "do", role="a"), kt.Task("y", "do", role="a"), kt.Task("z", "do", role="b")
    )
    assert [outcome.artifact for outcome in result.outcomes] == [kt.Artifact("word word ", partial=True)] * 3
    assert len(model.calls) == 6


# ---------------------------------------------------------------- warnings and events


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
async def test_a_warning_is_on_the_outcome_once_per_constraint_and_task_and_every_violation_is_an_event(
    of_team: bool,
) -> None:
    limits: list[Any] = [WarnAt(MaxIterations(4), share=0.5), WarnAt(TokenBudget(40), share=0.75)]
    model = FunctionModel(lambda request: cut("word ")[0] if len(request.messages) < 8 else "end")
    member = kt.Member("a", kt.MiniAgent(model), constraints=() if of_team else limits)
    bench = Bench(member, team=limits if of_team else ())
    result = await bench.run(kt.Task("x", "do"), kt.Task("y", "do"))
    assert result.status is kt.TeamStatus.COMPLETED, "the work goes on"
    for outcome in result.outcomes:
        assert outcome.warnings == (
            "the constraint 'warn-at 0.5 max-iterations': 50% of the limit of 'max-iterations' is used",
            "the constraint 'warn-at 0.75 token-budget': 75% of the limit of 'token-budget' is used",
        )
    of_x = [one for one in bench.violations if one.task_id == "x"]
    assert [one.metrics for one in of_x if one.constraint == "warn-at 0.5 max-iterations"] == [
        *[{"used": 0.5, "share": 0.5}] * 2,
        *[{"used": 0.75, "share": 0.5}] * 2,
    ]
    assert {(one.member, one.action) for one in of_x} == {("a", "warn_continue")}
    assert all(one.reason for one in bench.violations)
    assert events.event_from_json(of_x[0].to_json()) == of_x[0]


async def test_a_warning_is_not_repeated_by_the_next_try() -> None:
    tries: list[int] = []

    async def flaky(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return "text"

    bench = Bench(kt.Member("a", flaky, constraints=[Rule(lambda context: True, WARN)]))
    result = await bench.run(coordinator=TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=3)))
    assert (result["t"].attempts, len(bench.violations)) == (3, 3)
    assert result["t"].warnings == ("the constraint 'Rule': the rule says so",)


async def test_a_violation_that_is_allowed_is_told_and_nothing_else() -> None:
    bench = Bench(kt.Member("a", good, constraints=[Rule(lambda context: True, ALLOW)]))
    result = await bench.run()
    assert (result.status, result["t"].warnings) == (kt.TeamStatus.COMPLETED, ())
    assert [(one.action, one.reason, one.metrics) for one in bench.violations] == [
        ("allow", "the rule says so", {"iteration": 0})
    ]


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
@pytest.mark.parametrize(
    ("action", "status", "calls"),
    [
        (ALLOW, kt.TeamStatus.COMPLETED, 3),
        (WARN, kt.TeamStatus.COMPLETED, 3),
        (EXIT, kt.TeamStatus.DEGRADED, 2),
        (STOP, kt.TeamStatus.FAILED, 2),
    ],
)
async def test_what_a_watch_finds_is_acted_on_as_it_asks(
    action: ResourceAction, status: kt.TeamStatus, calls: int, of_team: bool
) -> None:
    """It rings in the second of three calls: a graceful exit lets that one finish."""
    replies = [*cut("one ", "two "), kt.ModelResponse("three", usage=kt.Usage(6, 4), model="test:m")]

    async def slow(request: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(3)
        return replies[len(model.calls) - 1]

    model = FunctionModel(slow)
    member = kt.Member("a", kt.MiniAgent(model), constraints=() if of_team else [Bell(action)])
    bench = Bench(member, team=[Bell(action)] if of_team else ())
    result = await bench.run()
    assert (result.status, len(model.calls)) == (status, calls)
    assert len(bench.violations) == 1
    warned = any("'bell': it rang" in warning for warning in result.warnings)
    assert warned is (action is not ALLOW)
    if action is EXIT:
        assert result.output == "one two "


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
async def test_a_watch_that_gives_up_changes_nothing(of_team: bool) -> None:
    class GivesUp(Bell):
        async def watch(self) -> ResourceValidation:
            return ResourceValidation(False)

    async def nap(assignment: kt.Assignment) -> str:
        await anyio.sleep(5)
        return "slept"

    rules = [GivesUp(STOP)]
    member = kt.Member("a", nap, constraints=() if of_team else rules)
    bench = Bench(member, team=rules if of_team else ())
    assert (await bench.run()).output == "slept"
    assert bench.violations == []


# ---------------------------------------------------------------- what is not guarded


async def test_planning_and_reviewing_are_no_attempts() -> None:
    """A team's constraints guard the members' work; its watches guard all of the run."""
    rule = watcher()

    class Planner:
        async def plan(
            self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext
        ) -> kt.TaskGraph:
            await ask(context, FunctionModel(lambda request: "a plan"))
            await anyio.sleep(100)
            raise AssertionError

    bench = Bench(kt.Member("a", good), team=[rule, Timeout(30)])
    request = kt.TeamExecutionRequest("goal")
    result = await ExpertTeamCoordinator(planner=Planner()).execute(request, bench.team)
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.EMERGENCY_STOP)
    assert result.duration == pytest.approx(30)
    assert rule.seen == []


async def test_a_member_without_constraints_costs_nothing_beside_one_that_has_some() -> None:
    contexts: list[Any] = []

    async def look(assignment: kt.Assignment, context: Any) -> str:
        contexts.append(context.constraints)
        return "seen"

    members = [kt.Member("free", look), kt.Member("bound", look, constraints=[watcher()])]
    plan = [kt.Task("x", "do", role="free"), kt.Task("y", "do", role="bound")]
    await Bench(*members).run(*plan)
    await Bench(members[0]).run(plan[0])
    assert [context is None for context in contexts] == [True, False, True]
