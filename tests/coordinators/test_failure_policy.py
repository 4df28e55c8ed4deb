"""The failure policy: how often, how long apart, and when one failure ends all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.errors import InvalidReply
from kairo_team.testing import ScriptedAgent
from tests.coordinators.bench import (
    CANCELLED,
    COMPLETED,
    FAILED,
    KINDS,
    LOW,
    PASS,
    REVISE,
    SKIPPED,
    Bench,
    Verdicts,
    bad,
    good,
    hang,
    statuses,
    task,
)

BUSY = ConnectionError("busy")


@pytest.fixture(params=KINDS, ids=["board", "expert"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


# ---------------------------------------------------------------- retries


async def test_every_artifact_asked_for_has_its_own_retries() -> None:
    """Two retries, three artifacts, each made at the third try: nine tries, and the next failure is the last."""
    script: list[Any] = [BUSY, BUSY, "one", BUSY, BUSY, "two", BUSY, BUSY, "three"]
    agent, policy = ScriptedAgent(script), FailurePolicy(retries=2, backoff=0.0)
    bench = Bench(kt.Member("a", agent))
    evaluator = Verdicts([REVISE, REVISE, PASS])
    result = await bench.run(ExpertTeamCoordinator(evaluator=evaluator, failure_policy=policy), task("t"))
    agent.assert_complete()
    assert (result.output, result["t"].attempts) == ("three", 9)
    used_up = Bench(kt.Member("a", ScriptedAgent([*script[:3], BUSY, BUSY, BUSY])))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts([REVISE]), failure_policy=policy)
    failed = (await used_up.run(coordinator, task("t")))["t"]
    assert (failed.status, failed.attempts, failed.artifact) == (FAILED, 6, kt.Artifact("one"))


class Throttled(ConnectionError):
    """An error of somebody else's library."""


@pytest.mark.parametrize(
    ("policy", "error", "tries"),
    [
        ({}, BUSY, 3),
        ({"retry_on": ConnectionError}, BUSY, 3),
        ({"retry_on": OSError}, Throttled("slow"), 3),
        ({"retry_on": (TimeoutError, ConnectionError)}, Throttled("slow"), 3),
        ({"retry_on": Throttled}, BUSY, 1),
        ({"retry_on": ()}, BUSY, 1),
        ({"never_on": ConnectionError}, Throttled("slow"), 1),
        ({"never_on": (ValueError, Throttled)}, BUSY, 3),
        ({"retry_on": OSError, "never_on": Throttled}, Throttled("slow"), 1),
        ({"retry_on": OSError}, "", 1),
        ({"retry_on": InvalidReply}, "", 3),
        ({"never_on": InvalidReply}, "", 1),
    ],
    ids=str,
)
async def test_audit_g15_what_is_tried_again_depends_on_the_kind_of_error(
    kind: Any, policy: dict[str, Any], error: Any, tries: int
) -> None:
    agent = ScriptedAgent([error] * 3)
    result = await Bench(kt.Member("a", agent)).run(
        kind(failure_policy=FailurePolicy(retries=2, backoff=0.0, **policy)), task("t")
    )
    assert (result["t"].status, result["t"].attempts) == (FAILED, tries)


async def test_audit_g15_a_late_attempt_is_a_timeout_error_and_others_are_asked_all_the_same(kind: Any) -> None:
    cases: list[tuple[Any, int]] = [((), 4), (TimeoutError, 2)]
    for never_on, tries in cases:
        members = kt.Member("a", hang), kt.Member("b", hang)
        policy = FailurePolicy(retries=1, backoff=0.0, never_on=never_on)
        result = await Bench(*members).run(kind(failure_policy=policy), task("t", role=None, timeout=1.0))
        assert (result["t"].attempts, result["t"].member) == (tries, "b")


async def test_audit_g15_a_tasks_own_retries_go_before_the_policys(kind: Any) -> None:
    tasks = [task("a", retries=0), task("b"), task("c", retries=3)]
    plan = TypeAdapter(kt.TaskGraph).validate_json(TypeAdapter(kt.TaskGraph).dump_json(kt.TaskGraph(tasks)))
    assert [one.retries for one in plan.tasks] == [0, None, 3]
    result = await Bench(kt.Member("m", bad)).run(
        kind(failure_policy=FailurePolicy(retries=1, backoff=0.0)), *plan.tasks
    )
    assert [outcome.attempts for outcome in result.outcomes] == [1, 2, 4]


@pytest.mark.parametrize("retries", [-1, True, 1.5, "2"])
def test_audit_g15_retries_of_a_task_are_a_whole_number(retries: Any) -> None:
    with pytest.raises(ValueError, match="retries"):
        kt.Task("t", "do", retries=retries)


@pytest.mark.parametrize(
    "errors", ["ConnectionError", [ConnectionError], ConnectionError("busy"), int, (ValueError, 5)]
)
def test_audit_g15_kinds_of_error_are_exception_classes(errors: Any) -> None:
    for name in ("retry_on", "never_on"):
        with pytest.raises(ValueError, match=f"FailurePolicy.{name} must be an exception class or a tuple of them"):
            FailurePolicy(**{name: errors})


async def test_the_wait_begins_anew_with_every_artifact_and_with_every_member() -> None:
    times: list[float] = []
    script: list[Any] = [BUSY, BUSY, "one", BUSY, BUSY, BUSY]
    agents = [ScriptedAgent(script), ScriptedAgent([BUSY, "two"])]

    class Clocked:
        reentrant = True

        def __init__(self, agent: ScriptedAgent) -> None:
            self.agent = agent

        async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
            times.append(anyio.current_time())
            return await self.agent.run(assignment, context)

    bench = Bench(*(kt.Member("a", Clocked(agent)) for agent in agents))
    policy = FailurePolicy(retries=2, backoff=8.0, backoff_max=20.0)
    await bench.run(ExpertTeamCoordinator(evaluator=Verdicts([REVISE, PASS]), failure_policy=policy), task("t"))
    waits = [after - before for before, after in pairwise(times)]
    longest = [8.0, 16.0, 0.0, 8.0, 16.0, 0.0, 8.0]
    assert len(waits) == len(longest)
    assert all(full / 2 <= wait <= full for wait, full in zip(waits, longest, strict=True))


async def test_jitter_differs_between_runs_tasks_and_tries_but_not_in_a_replay() -> None:
    policy = FailurePolicy(retries=3, backoff=10.0, backoff_max=10.0)
    delays = {policy.delay(retry, f"{run}:{name}:1") for run in "rs" for name in "ab" for retry in (1, 2, 3)}
    assert len(delays) == 12
    assert all(5.0 <= delay <= 10.0 for delay in delays)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"try_others": 1}, "FailurePolicy.try_others must be True or False, not 1"),
        ({"abort_team": "yes"}, "FailurePolicy.abort_team must be True or False, not 'yes'"),
        ({"retries": "2"}, "FailurePolicy.retries must be a whole number >= 0, not '2'"),
        ({"backoff": "1"}, "FailurePolicy.backoff must be a finite number of seconds >= 0, not '1'"),
        ({"backoff_max": None}, "FailurePolicy.backoff_max must be a finite number of seconds >= 0, not None"),
        ({"backoff": True}, "FailurePolicy.backoff must be a finite number of seconds >= 0, not True"),
    ],
)
def test_wrong_values_are_refused_with_the_field_and_the_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FailurePolicy(**fields)


# ---------------------------------------------------------------- abort_team

ABORT = FailurePolicy(retries=0, abort_team=True)


async def slowly_bad(assignment: kt.Assignment) -> str:
    await anyio.sleep(5)
    raise ValueError("cannot")


PLAN = [
    task("done", member="good"),
    task("flying", member="hangs"),
    task("bad", member="bad"),
    task("behind", "flying", member="good"),
    task("after", "bad", member="good"),
]


def team() -> Bench:
    return Bench(kt.Member("good", good), kt.Member("hangs", hang), kt.Member("bad", slowly_bad))


@pytest.mark.parametrize("risk", kt.RiskProfile)
async def test_abort_team_ends_the_run_failed_and_keeps_what_was_done(kind: Any, risk: kt.RiskProfile) -> None:
    """In flight is CANCELLED with its partial work, never started SKIPPED, finished kept - at any risk."""
    bench = team()
    result = await bench.run(kind(failure_policy=ABORT), *PLAN, risk_profile=risk, cancel_grace=0.5)
    assert result.status is kt.TeamStatus.FAILED
    assert list(statuses(result).values()) == [COMPLETED, CANCELLED, FAILED, SKIPPED, SKIPPED]
    assert (result["done"].artifact, result.output) == (kt.Artifact("made done"), None)
    assert str(result.partial_output).startswith("done:\nmade done\n\nflying:\nhalf")
    assert result["flying"].artifact == kt.Artifact("half", partial=True)
    assert result.error == "task 'bad' failed: ValueError: cannot"
    assert result.duration == pytest.approx(5.0)
    assert result.halt is None
    assert bench.recorder.types[-1] == "team.failed"


async def test_without_abort_team_the_others_go_on(kind: Any) -> None:
    result = await team().run(kind(failure_policy=FailurePolicy(retries=0)), *PLAN, task_timeout=20.0)
    assert result.duration == pytest.approx(20.0)
    assert statuses(result)["flying"] is FAILED


async def test_a_task_that_was_cancelled_or_skipped_aborts_nothing(kind: Any) -> None:
    bench = Bench(kt.Member("good", good), kt.Member("hangs", hang))
    results: list[kt.TeamResult] = []

    async def run() -> None:
        plan = [task("t", member="hangs"), task("behind", "t", member="good"), task("fine", member="good")]
        results.append(await bench.run(kind(failure_policy=ABORT), *plan, risk_profile=LOW))

    async def cancel() -> None:
        await anyio.sleep(1)
        bench.team.runtime.runs["r"].cancel_task("t")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(cancel)
    assert list(statuses(results[0]).values()) == [CANCELLED, SKIPPED, COMPLETED]
    assert results[0].status is kt.TeamStatus.DEGRADED


async def test_abort_team_waits_for_retries_and_others(kind: Any) -> None:
    bench = Bench(kt.Member("a", bad), kt.Member("a", ScriptedAgent([BUSY, "mended"])))
    policy = FailurePolicy(retries=1, backoff=0.0, abort_team=True)
    result = await bench.run(kind(failure_policy=policy), task("t"))
    assert (result.status, result.output, result["t"].attempts) == (kt.TeamStatus.COMPLETED, "mended", 4)


async def test_a_rejected_artifact_aborts_too() -> None:
    bench = Bench(kt.Member("a", good), kt.Member("hangs", hang))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts([REVISE]), failure_policy=ABORT)
    plan = [task("t", member="a"), task("flying", member="hangs")]
    result = await bench.run(coordinator, *plan, max_feedback_rounds=0)
    assert (result.status, list(statuses(result).values())) == (kt.TeamStatus.FAILED, [FAILED, CANCELLED])


async def test_two_failures_in_one_breath_abort_once(kind: Any) -> None:
    bench = Bench(kt.Member("bad", bad), kt.Member("hangs", hang))
    plan = [task("one", member="bad"), task("two", member="bad"), task("flying", member="hangs")]
    result = await bench.run(kind(failure_policy=ABORT), *plan)
    assert (result.status, statuses(result)["flying"]) == (kt.TeamStatus.FAILED, CANCELLED)
    assert "task 'one' failed" in (result.error or "")
    assert len(bench.recorder.of(events.TeamEnded)) == 1


async def test_a_budget_that_failed_calls_have_used_up_does_not_hide_why_they_failed() -> None:
    """A call without an answer is charged in full: the second one has taken what the third would need."""

    class Silent:
        name = "mine:silent"

        async def complete(self, request: kt.ModelRequest) -> Any:
            return None

    team = kt.Team("t", [kt.Member("a", kt.MiniAgent(Silent()))])
    result = await kt.run(team, "go", budget=kt.Budget(tokens=5_000))
    assert result.halt is kt.HaltReason.TOKEN_BUDGET_EXCEEDED
    assert "token_budget_exceeded" in str(result.error)
    assert "; the attempt before failed: TypeError: model 'mine:silent' must answer with a" in str(result.error)
