"""The task board: a plan or one task, no review unless a task asks for it, and the failure policy."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder, ScriptedAgent

COMPLETED, FAILED, SKIPPED = kt.TaskStatus.COMPLETED, kt.TaskStatus.FAILED, kt.TaskStatus.SKIPPED


async def good(assignment: kt.Assignment) -> str:
    return f"made {assignment.task.id}"


async def bad(assignment: kt.Assignment) -> str:
    raise ValueError("cannot")


async def run(
    members: list[kt.Member],
    tasks: list[kt.Task] | None = None,
    policy: FailurePolicy | None = None,
    recorder: EventRecorder | None = None,
    **config: Any,
) -> kt.TeamResult:
    team = kt.Team("team", members, runtime=kt.Runtime(subscribers=[recorder] if recorder else []))
    plan = kt.TaskGraph(tasks) if tasks else None
    request = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config))
    result = await TaskDispatchCoordinator(failure_policy=policy or FailurePolicy()).execute(request, team)
    if recorder is not None:
        recorder.assert_lawful()
    return result


async def test_without_a_plan_the_goal_is_the_one_task() -> None:
    agent = ScriptedAgent(["done"])
    result = await run([kt.Member("a", agent)])
    assert result.plan == kt.TaskGraph([kt.Task("task", "goal")])
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "done")
    assert agent.calls[0].task.description == "goal"


async def test_nothing_is_reviewed_unless_the_task_names_an_evaluator() -> None:
    recorder = EventRecorder()

    class Editor:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.passed()

    team = kt.Team("t", [kt.Member("a", good)], evaluators={"ed": Editor()}, runtime=kt.Runtime(subscribers=[recorder]))
    plan = kt.TaskGraph([kt.Task("plain", "do"), kt.Task("seen", "do", evaluator="ed")])
    result = await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", plan=plan), team)
    assert [event.task_id for event in recorder.of(events.EvaluationStarted)] == ["seen"]
    assert (result["plain"].verdict, result.status) == (None, kt.TeamStatus.COMPLETED)


@pytest.mark.parametrize("risk", kt.RiskProfile)
async def test_a_failed_task_makes_the_board_degraded_at_any_risk(risk: kt.RiskProfile) -> None:
    result = await run(
        [kt.Member("good", good), kt.Member("bad", bad)],
        [
            kt.Task("a", "do", role="good"),
            kt.Task("b", "do", role="bad"),
            kt.Task("c", "do", role="good", depends_on=["b"]),
        ],
        FailurePolicy(retries=0),
        risk_profile=risk,
    )
    assert result.status is kt.TeamStatus.DEGRADED
    assert [outcome.status for outcome in result.outcomes] == [COMPLETED, FAILED, SKIPPED]
    assert result.error == result.warnings[0] == "task 'b' failed: ValueError: cannot"


async def test_nothing_accepted_is_a_failure_at_any_tolerance() -> None:
    result = await run([kt.Member("bad", bad)], policy=FailurePolicy(retries=0), risk_profile=kt.RiskProfile.LOW)
    assert (result.status, result.output) == (kt.TeamStatus.FAILED, None)
    assert result.error == result.warnings[0] == "task 'task' failed: ValueError: cannot"


# ---------------------------------------------------------------- the failure policy


@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_a_failed_attempt_is_retried_as_often_as_the_policy_says(retries: int) -> None:
    agent = ScriptedAgent([ConnectionError("busy")] * (retries + 1))
    result = await run([kt.Member("a", agent)], policy=FailurePolicy(retries=retries, backoff=0.1))
    agent.assert_complete()
    assert result["task"].attempts == retries + 1


@pytest.mark.parametrize(
    "output",
    [
        None,
        kt.AgentOutput(kt.Artifact("half"), kt.AgentStatus.HALTED),
        kt.AgentOutput(kt.Artifact("half"), kt.AgentStatus.BLOCKED, error="a guardrail said no"),
    ],
    ids=["wrong type", "halted", "blocked"],
)
async def test_halts_blocks_and_wrong_types_are_not_retried(output: Any) -> None:
    agent = ScriptedAgent([output])
    result = await run([kt.Member("a", agent)], policy=FailurePolicy(retries=5))
    agent.assert_complete()
    assert (result["task"].status, result["task"].attempts) == (FAILED, 1)
    if output is not None:
        assert result["task"].artifact == kt.Artifact("half", partial=True)


@pytest.mark.parametrize("output", ["", "  \n", kt.AgentOutput(kt.Artifact(""))])
async def test_no_text_is_a_failed_attempt(output: Any) -> None:
    result = await run([kt.Member("a", ScriptedAgent([output, "text"]))], policy=FailurePolicy(backoff=0.0))
    assert (result["task"].attempts, result.output) == (2, "text")


@pytest.mark.parametrize("status", [kt.AgentStatus.TURN_LIMIT_REACHED, kt.AgentStatus.GRACEFUL_EXIT])
async def test_an_unfinished_text_is_partial_and_accepted_unreviewed_makes_the_run_degraded(
    status: kt.AgentStatus,
) -> None:
    output = kt.AgentOutput(kt.Artifact("so far"), status)
    result = await run([kt.Member("a", ScriptedAgent([output]))])
    assert (result.status, result["task"].status) == (kt.TeamStatus.DEGRADED, COMPLETED)
    assert result.artifact == kt.Artifact("so far", partial=True)


async def test_a_task_in_backoff_gives_its_slot_to_others() -> None:
    """The slot is held from dispatch to verdict, given back in backoff, and had again before a new task gets it."""
    log: list[tuple[str, float]] = []

    async def work(assignment: kt.Assignment) -> str:
        log.append((assignment.task.id, anyio.current_time()))
        if assignment.task.id == "a" and sum(name == "a" for name, _ in log) == 1:
            raise ConnectionError("busy")
        await anyio.sleep(1)
        return "done"

    result = await run(
        [kt.Member("w", work)],
        [kt.Task(name, "do") for name in "abcd"],
        FailurePolicy(retries=1, backoff=2.0),  # 1 to 2 seconds
        max_parallel_tasks=1,
    )
    assert result.status is kt.TeamStatus.COMPLETED
    assert [name for name, _ in log] == ["a", "b", "c", "a", "d"]
    assert result.duration == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retries": -1}, "FailurePolicy.retries must be a whole number >= 0, not -1"),
        ({"retries": 1.5}, "not 1.5"),
        ({"retries": True}, "not True"),
        ({"backoff": -0.1}, "FailurePolicy.backoff must be"),
        ({"backoff": float("nan")}, "FailurePolicy.backoff must be"),
        ({"backoff_max": float("inf")}, "FailurePolicy.backoff_max must be"),
    ],
)
def test_a_policy_refuses_nonsense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FailurePolicy(**fields)


def test_delays_double_up_to_the_most_and_follow_from_the_seed() -> None:
    policy = FailurePolicy(backoff=1.0, backoff_max=5.0)
    for retry, full in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (1000, 5.0)]:
        delay = policy.delay(retry, "run:task")
        assert full / 2 <= delay <= full
        assert delay == policy.delay(retry, "run:task")
        assert delay != policy.delay(retry, "run:other")
    assert FailurePolicy(backoff=0.0).delay(1, "x") == 0.0


@pytest.mark.parametrize(
    ("made", "attempts"),
    [
        (None, 1),
        (("high",), 1),
        (kt.Artifact("high"), 3),
        ("high", 3),
        (kt.Artifact("", {"tide": "low"}), 3),
        (" ", 3),
    ],
    ids=["nothing", "no output", "artifact", "text", "data", "blank"],
)
async def test_no_output_is_not_retried_and_an_output_of_another_type_than_the_tasks_is(
    made: Any, attempts: int
) -> None:
    agent = ScriptedAgent([made] * attempts)
    team = kt.Team("t", [kt.Member("a", agent)], output_types={"metres": float})
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("t", "do", output_type="metres")]))
    policy = FailurePolicy(retries=2, backoff=0.1)
    result = await TaskDispatchCoordinator(failure_policy=policy).execute(request, team)
    agent.assert_complete()
    assert (result["t"].status, result["t"].attempts) == (FAILED, attempts)


# ---------------------------------------------------------------- needs, and what is dispensable


@pytest.mark.parametrize("coordinator", [TaskDispatchCoordinator, ExpertTeamCoordinator])
@pytest.mark.parametrize(("needs", "starts"), [(0, True), (2, True), (3, False), ("all", False)])
async def test_needs_starts_a_task_once_enough_are_accepted_and_the_rest_have_ended(
    coordinator: Any, needs: Any, starts: bool
) -> None:
    """What it did without is dispensable: DEGRADED, not FAILED."""

    async def slowly_bad(assignment: kt.Assignment) -> str:
        await anyio.sleep(5)
        raise ValueError("cannot")

    seen: list[float] = []

    async def last(assignment: kt.Assignment) -> str:
        seen.append(anyio.current_time())
        assert list(assignment.upstream) == ["g1", "g2"]
        return "end"

    began = anyio.current_time()
    members = [kt.Member("good", good), kt.Member("bad", slowly_bad), kt.Member("last", last)]
    plan = [
        kt.Task("g1", "do", role="good"), kt.Task("b", "do", role="bad"), kt.Task("g2", "do", role="good"),
        kt.Task("end", "do", role="last", depends_on=["g1", "b", "g2"], needs=needs),
    ]  # fmt: skip
    request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph(plan))
    result = await coordinator(failure_policy=FailurePolicy(retries=0)).execute(request, kt.Team("t", members))
    if starts:
        assert seen == [pytest.approx(began + 5)]
        assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "end")
    else:
        assert result["end"].status is SKIPPED
        assert "'b'" in (result["end"].error or "")
        assert result.status is (
            kt.TeamStatus.DEGRADED if coordinator is TaskDispatchCoordinator else kt.TeamStatus.FAILED
        )


SIX = ["b1", "b2", "b3", "b4", "b5", "g"]


@pytest.mark.parametrize(
    ("depends_on", "needs", "reason"),
    [
        (["b1", "g"], "all", "it needs 'b1', which was not accepted"),
        (["b1", "g"], 2, "it needs 'b1', which was not accepted"),
        (["b1"], 1, "it needs 'b1', which was not accepted"),
        (["b1", "b2"], 1, "it needs 1 of its 2 dependencies, and none can be accepted: 'b1', 'b2' were not"),
        (["b2", "g", "b1"], 2, "it needs 2 of its 3 dependencies, and only 1 can be accepted: 'b2', 'b1' were not"),
        (SIX, 4, "it needs 4 of its 6 dependencies, and only 3 can be accepted: 'b1', 'b2', 'b3' were not"),
        (
            [*SIX, "b6", "last"],
            2,
            "it needs 2 of its 8 dependencies, and only 1 can be accepted: 'b1', 'b2', 'b3' and 4 more were not",
        ),
    ],
)
async def test_a_skipped_task_says_how_many_it_needs_and_how_many_it_could_get(
    depends_on: list[str], needs: Any, reason: str
) -> None:
    """Named are those that were not accepted when it became hopeless, not the last of them alone."""
    members = [kt.Member("good", good), kt.Member("bad", bad)]
    plan = [kt.Task(f"b{number}", "do", role="bad") for number in range(1, 7)]
    plan += [kt.Task("g", "do", role="good", depends_on=["b6"], needs=0), kt.Task("last", "do", depends_on=["b6"])]
    plan += [kt.Task("end", "do", depends_on=depends_on, needs=needs)]
    result = await run(members, plan, FailurePolicy(retries=0), EventRecorder(), max_parallel_tasks=1)
    assert (result["end"].status, result["end"].error) == (SKIPPED, reason)
