"""Emergency stops: of a team's constraint and of a member's, in the middle of calls, threads and waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.work.constraints import RunConstraints
from kairo_team.governance import (
    ExternalSignal,
    MaxIterations,
    ResourceContext,
    ResourceValidation,
    Timeout,
    Violation,
)
from kairo_team.testing import FunctionModel
from tests.constrained import (
    CANCELLED,
    COMPLETED,
    FAILED,
    STOP,
    Bench,
    Hanging,
    Rule,
    ask,
    careless,
    good,
    hang,
    plain,
    stubborn,
    team_of,
    watcher,
)


async def test_kf_b21_emergency_stop_aborts_work_in_flight() -> None:
    """Elsewhere it differed from a graceful exit in its text only. A team's constraint stops the run."""
    model = Hanging()
    bench = Bench(
        kt.Member("slow", kt.MiniAgent(model)),
        kt.Member("calm", hang),
        kt.Member("late", plain),
        team=[Rule(lambda context: context.member == "late", STOP)],
    )

    async def wait(assignment: kt.Assignment) -> str:
        await anyio.sleep(10)
        return "waited"

    bench.team = kt.Team(
        "team",
        [*bench.team.members, kt.Member("first", wait)],
        constraints=bench.team.constraints,
        runtime=bench.team.runtime,
    )
    result = await bench.run(
        kt.Task("in-a-call", "do", role="slow"),
        kt.Task("at-work", "do", role="calm"),
        kt.Task("first", "do", role="first"),
        kt.Task("trips", "do", role="late", depends_on=["first"]),
        kt.Task("never", "do", role="late", depends_on=["trips"]),
    )
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.EMERGENCY_STOP)
    assert result.error == "emergency stop by the constraint 'Rule': the rule says so"
    assert result.duration == pytest.approx(10)
    assert model.aborted == 1
    assert {outcome.task_id: outcome.status.value for outcome in result.outcomes} == {
        "in-a-call": "cancelled", "at-work": "cancelled", "first": "completed", "trips": "failed", "never": "skipped",
    }  # fmt: skip
    assert result["at-work"].artifact == kt.Artifact("half of it", partial=True)
    assert result["first"].artifact == kt.Artifact("waited"), "what was finished is not lost"


async def test_a_members_emergency_stop_ends_its_attempt_alone_and_without_retries() -> None:
    bench = Bench(kt.Member("a", kt.MiniAgent(Hanging(1)), constraints=[Timeout(30)]), kt.Member("b", good))
    policy = FailurePolicy(retries=5)
    result = await bench.run(
        kt.Task("x", "do", role="a"),
        kt.Task("y", "do", role="b"),
        coordinator=TaskDispatchCoordinator(failure_policy=policy),
    )
    assert result["x"].status is FAILED
    assert result["x"].error == "emergency stop by the constraint 'timeout': 30 of 30 seconds are used"
    assert result["x"].artifact == kt.Artifact("so far, ", partial=True)
    assert (result["x"].attempts, result["y"].status, result.status) == (1, COMPLETED, kt.TeamStatus.DEGRADED)
    assert result.halt is None
    assert bench.recorder.of(events.BudgetHalted)[0].reason == kt.HaltReason.EMERGENCY_STOP


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
async def test_kf_b15_a_timeout_ends_a_call_that_hangs(of_team: bool) -> None:
    """It is a deadline, not a question between calls."""
    model = Hanging()
    limit = [Timeout(1)]
    member = kt.Member("a", kt.MiniAgent(model), constraints=() if of_team else limit)
    bench = Bench(member, team=limit if of_team else ())
    result = await bench.run()
    assert result.duration == pytest.approx(1)
    assert (result.status, model.aborted) == (kt.TeamStatus.FAILED, 1)
    assert "emergency stop by the constraint 'timeout'" in (result.error or "")
    assert [(one.constraint, one.action, one.metrics) for one in bench.violations] == [
        ("timeout", "emergency_stop", {"used": 1.0, "limit": 1, "unit": "seconds"})
    ]
    assert (bench.violations[0].task_id, bench.violations[0].member) == ((None, None) if of_team else ("t", "a"))


async def test_a_teams_timeout_counts_from_the_start_of_the_run() -> None:
    async def nap(assignment: kt.Assignment) -> str:
        await anyio.sleep(4)
        return "slept"

    result = await Bench(kt.Member("a", nap, max_concurrency=1), team=[Timeout(10)]).run(
        *(kt.Task(f"t{n}", "do") for n in range(4))
    )
    assert result.duration == pytest.approx(10)
    assert [outcome.status for outcome in result.outcomes][:2] == [COMPLETED, COMPLETED]
    assert result.status is kt.TeamStatus.FAILED


async def test_a_members_timeout_counts_for_each_attempt() -> None:
    async def nap(assignment: kt.Assignment) -> str:
        await anyio.sleep(4)
        return "slept"

    result = await Bench(kt.Member("a", nap, max_concurrency=1, constraints=[Timeout(10)])).run(
        *(kt.Task(f"t{n}", "do") for n in range(4))
    )
    assert result.status is kt.TeamStatus.COMPLETED
    assert result.duration == pytest.approx(16)


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "member"])
@pytest.mark.parametrize("kind", ["file", "function"])
async def test_an_external_signal_interrupts_a_call_in_flight(tmp_path: Path, kind: str, of_team: bool) -> None:
    flag, file, model = threading.Event(), tmp_path / "stop", Hanging(1)
    signal = [ExternalSignal(file if kind == "file" else flag.is_set, every=0.1)]
    member = kt.Member("a", kt.MiniAgent(model), constraints=() if of_team else signal)
    bench = Bench(member, team=signal if of_team else ())

    async def raise_it() -> None:
        await anyio.sleep(7)
        flag.set()
        file.touch()

    results: list[kt.TeamResult] = []
    async with anyio.create_task_group() as group:
        group.start_soon(raise_it)
        results.append(await bench.run())
    result = results[0]
    assert result.duration == pytest.approx(7, abs=0.2)
    assert (result.status, model.aborted) == (kt.TeamStatus.FAILED, 1)
    assert "emergency stop by the constraint 'external-signal'" in (result.error or "")
    assert result["t"].status is (CANCELLED if of_team else FAILED)
    assert result["t"].artifact == kt.Artifact("so far, ", partial=True)


async def test_a_signal_that_was_raised_before_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    model = FunctionModel(lambda request: "text")
    member = kt.Member("a", kt.MiniAgent(model), constraints=[ExternalSignal(tmp_path / "stop")])
    result = await Bench(member).run()
    assert (result["t"].status, model.calls) == (FAILED, [])


@pytest.mark.real_time
async def test_an_emergency_stop_ends_the_wait_for_a_thread() -> None:
    began, release = threading.Event(), threading.Event()

    def blocking(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("from the thread")
        began.set()
        release.wait(120)
        return "too late"

    try:
        stop = ExternalSignal(began.is_set, every=0.01)
        result = await Bench(kt.Member("a", blocking, constraints=[stop])).run()
    finally:
        release.set()
    assert result.duration < 60
    assert result["t"].artifact == kt.Artifact("from the thread", partial=True)
    assert result["t"].status is FAILED


@pytest.mark.real_time
async def test_a_signal_from_another_thread_stops_the_run() -> None:
    flag = threading.Event()
    bench = Bench(kt.Member("a", hang), team=[ExternalSignal(flag.is_set, every=0.01)])

    async def later() -> None:
        await anyio.sleep(0.05)
        await to_thread.run_sync(flag.set)

    results: list[kt.TeamResult] = []
    async with anyio.create_task_group() as group:
        group.start_soon(later)
        results.append(await bench.run())
    assert results[0].halt is kt.HaltReason.EMERGENCY_STOP


async def test_an_agent_that_swallows_an_emergency_stop_is_halted_whatever_it_returns() -> None:
    async def deaf(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        for _ in range(3):
            with suppress(kt.HaltError):
                await ask(context, "test:m")
        return "never mind"

    result = await team_of(deaf, Rule(lambda context: context.iteration == 1, STOP)).run()
    assert result["t"].status is FAILED
    assert result["t"].error == "emergency stop by the constraint 'Rule': the rule says so"


async def test_kf_b22_a_broken_constraint_stops_its_attempt_and_is_named() -> None:
    class Broken(Rule):
        async def validate(self, context: ResourceContext) -> ResourceValidation:
            raise LookupError("no table of limits")

    bench = Bench(kt.Member("a", good, constraints=[Broken(lambda context: False)]), kt.Member("b", good))
    result = await bench.run(kt.Task("x", "do", role="a"), kt.Task("y", "do", role="b"))
    assert result["x"].status is FAILED
    assert result["x"].error == (
        "emergency stop by the constraint 'Broken': it failed with LookupError: no table of limits"
    )
    assert result["y"].status is COMPLETED
    assert bench.violations[0].action == "emergency_stop"


async def raises(assignment: kt.Assignment) -> str:
    raise ValueError("no table")


async def makes_nothing(assignment: kt.Assignment) -> Any:
    return None


async def spends(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.governor.reserve(tokens=100)
    raise AssertionError


@pytest.mark.parametrize(
    ("agent", "error"),
    [
        (raises, "ValueError: no table"),
        (spends, "has 10 tokens left, 100 asked"),
        (hang, "timed out after 7 seconds"),
        (makes_nothing, "returned nothing (None)"),
        (careless, None),
    ],
)
async def test_what_is_watched_beside_an_attempt_changes_none_of_its_ends(agent: Any, error: str | None) -> None:
    watched: list[Any] = [Timeout(500), ExternalSignal(lambda: False, every=50), MaxIterations(2)]
    bench = Bench(kt.Member("a", agent, constraints=watched))
    result = await bench.run(kt.Task("t", "do", timeout=7.0), budget=kt.Budget(tokens=10))
    assert (error or "") in (result["t"].error or "")
    assert (result["t"].error is None) is (error is None)


async def test_the_callers_cancellation_passes_through_what_is_watched() -> None:
    bench = Bench(kt.Member("a", hang, constraints=[Timeout(500)]), team=[Timeout(500)])
    with anyio.move_on_after(3) as scope:
        await bench.run()
    assert scope.cancelled_caught
    assert bench.recorder.types[-1] == "team.cancelled"
    assert bench.violations == []


async def test_an_agent_that_ignores_an_emergency_stop_is_interrupted() -> None:
    result = await team_of(stubborn, Rule(lambda context: context.iteration == 2, STOP)).run()
    assert result["t"].status is FAILED
    assert result["t"].artifact == kt.Artifact("kept", partial=True)


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (kt.HaltReason.CANCELLED, kt.TeamStatus.CANCELLED),
        (kt.HaltReason.TIME_BUDGET_EXCEEDED, kt.TeamStatus.TIMEOUT),
        (kt.HaltReason.EMERGENCY_STOP, kt.TeamStatus.FAILED),
    ],
)
async def test_a_stop_that_comes_after_another_end_of_the_run_does_not_rename_it(
    first: kt.HaltReason, status: kt.TeamStatus
) -> None:
    """The first reason wins, in status and words."""
    bench = Bench(kt.Member("a", hang), team=[watcher()])
    async with kt.TeamRun.open(kt.TeamExecutionRequest("goal"), bench.team) as run:
        run.governor.cancel(first)
        of_run = RunConstraints(run.governor, run.clock, (), {}, run.emit, run.cancel, run.warn)
        of_run.stop(Violation("bell", 0, STOP, ResourceValidation(True, "it rang")))
        await anyio.sleep_forever()
    assert run.result.status is status
    assert ("it rang" in (run.result.error or "")) is (first is kt.HaltReason.EMERGENCY_STOP)
