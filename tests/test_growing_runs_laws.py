"""Whatever a coordinator adds, and whenever it ends a run: events are lawful, and a replay gives the same result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import anyio
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends
from tests.test_recorded_steps import Broken, Replay, comparable

COUNTS: Final = (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep still: many attempts fail here, and say so."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@dataclass
class Job:
    """One task, and what its body does."""

    task: kt.Task
    tries: int
    """Attempts that fail before one is made; 9 is all of them."""
    pause: float
    """Seconds between two attempts."""
    adds: list[Job]
    first: bool
    """It adds before its attempt, not after it."""
    concludes: str
    """`before` or `after` its end, or not at all."""


@dataclass
class Growing:
    jobs: list[Job]
    later: list[Job]
    """What the block adds, once all has ended."""
    config: kt.TeamConfig
    kill: float | None

    def __post_init__(self) -> None:
        self.by_id: dict[str, Job] = {}
        todo = [*self.jobs, *self.later]
        for job in todo:  # grows while it is walked
            self.by_id[job.task.id] = job
            todo += job.adds


@st.composite
def jobs(draw: st.DrawFn, prefix: str, known: list[str], depth: int) -> list[Job]:
    made: list[Job] = []
    for number in range(draw(st.integers(1 if depth == 0 else 0, 3))):
        ids = [*known, *(job.task.id for job in made)]
        before = draw(st.lists(st.sampled_from(ids), unique=True, max_size=2)) if ids else []
        task = kt.Task(
            f"{prefix}{number}",
            "do",
            depends_on=before,
            needs=draw(st.sampled_from(["all", "all", len(before) // 2])),
            inputs={"seconds": draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))},
        )
        adds = draw(jobs(f"{task.id}.", [*ids, task.id], depth + 1)) if depth < 2 else []
        made.append(
            Job(
                task,
                tries=draw(st.sampled_from([0, 0, 0, 1, 9])),
                pause=draw(st.sampled_from([0.0, 2.0])),
                adds=adds,
                first=draw(st.booleans()),
                concludes=draw(st.sampled_from(["", "", "", "", "before", "after"])),
            )
        )
    return made


@st.composite
def growing(draw: st.DrawFn) -> Growing:
    first = draw(jobs("t", [], 0))
    return Growing(
        first,
        draw(jobs("z", [job.task.id for job in first], 1)),
        kt.TeamConfig(
            max_parallel_tasks=draw(st.sampled_from([None, 1, 2])),
            risk_profile=draw(st.sampled_from(kt.RiskProfile)),
            cancel_grace=0.5,
        ),
        draw(st.sampled_from([None, None, None, 0.5, 1.2, 4.0])),
    )


class Coordinator:
    """Does what the jobs say."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        growing = self.growing
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(lambda: kt.TaskGraph([job.task for job in growing.jobs]))
            async for task in run.ready(graph):
                run.go(self.body, run, task)
            if growing.later:
                graph = await run.add(lambda: [job.task for job in growing.later])
                async for task in run.ready(graph):
                    run.go(self.body, run, task)
        return run.result

    async def body(self, run: kt.TeamRun, task: kt.Task) -> None:
        job = self.growing.by_id[task.id]
        if job.first and job.adds:
            await run.add(lambda: [one.task for one in job.adds])
        attempt = await run.attempt(task, 1)
        for number in range(2, 4):
            if attempt.error is not None and attempt.interrupted is None and attempt.halt is None:
                await run.pause(task, job.pause)
                attempt = await run.attempt(task, number)
        if not job.first and job.adds:
            await run.add(lambda: [one.task for one in job.adds])
        if job.concludes == "before":
            await run.conclude(f"{task.id} decided it")
        if attempt.error is None:
            run.accept(task, attempt)
        else:
            run.fail(task, attempt.error)
        if job.concludes == "after":
            await run.conclude(f"{task.id} decided it")


class Worker:
    """Fails as often as the job says."""

    reentrant = True

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self.tries: dict[str, int] = {}

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        name = assignment.task.id
        self.tries[name] = number = self.tries.get(name, 0) + 1
        context.keep("half")
        await anyio.sleep(assignment.inputs["seconds"])
        if number <= self.growing.by_id[name].tries:
            raise ConnectionError("busy")
        return f"made {name}"


async def play(growing: Growing, records: dict[str, object] | None = None) -> tuple[kt.TeamResult, dict[str, object]]:
    """Run it, or replay its records, where nobody may be called; return the result and what is recorded."""
    journal, recorder, broken = MemoryRecords(records or {}), EventRecorder(), Broken()
    worker: Any = Worker(growing) if records is None else broken
    broken.reentrant = True  # type: ignore[attr-defined]  # it is never called
    runtime = Replay(journal, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("a", worker)], runtime=runtime)
    found: list[kt.TeamResult] = []

    async def execute() -> None:
        request = kt.TeamExecutionRequest("g", config=growing.config, run_id="r")
        found.append(await Coordinator(growing).execute(request, team))
        group.cancel_scope.cancel()

    with anyio.fail_after(100_000):  # a run that hangs fails, in no time
        async with anyio.create_task_group() as group:
            group.start_soon(execute)
            if growing.kill is not None and records is None:
                await anyio.sleep(growing.kill)
                runtime.runs["r"].cancel("killed")
    recorder.assert_lawful()
    (result,) = found
    assert result.plan is not None
    assert [outcome.task_id for outcome in result.outcomes] == [task.id for task in result.plan.tasks]
    return result, dict(journal.records)


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=settings().max_examples * 3 // 2)
@given(growing=growing())
def test_audit_g14_a_replay_of_a_run_that_grew_and_was_concluded_gives_the_same(backend: str, growing: Growing) -> None:
    result, records = run_in_virtual_time(play, growing, backend=backend)
    end: Any = records.get("end")
    concluded, reason = (False, None) if end is None else (end.concluded, end.reason)
    event(f"{result.status}, concluded: {concluded}, grew: {any(key.startswith('add:') for key in records)}")
    if concluded:
        accepted = [outcome for outcome in result.outcomes if outcome.status is kt.TaskStatus.COMPLETED]
        lost = [
            outcome
            for outcome in result.outcomes
            if outcome.status is not kt.TaskStatus.COMPLETED and outcome.error != reason
        ]
        assert result.status in COUNTS or not accepted or lost
        assert result.status is kt.TeamStatus.COMPLETED or lost or not accepted
    again, after = run_in_virtual_time(play, growing, records, backend=backend)
    assert comparable(again) == comparable(result)
    assert {key: after[key] for key in records} == records


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_replay_of_an_addition_that_was_refused_at_the_moment_of_a_kill_gives_the_same(backend: str) -> None:
    def job(name: str, seconds: float, *adds: Job, tries: int = 0, needs: tuple[str, ...] = ()) -> Job:
        task = kt.Task(name, "do", inputs={"seconds": seconds}, depends_on=needs)
        return Job(task, tries, 0.0, list(adds), first=False, concludes="")

    refused = job("t2", 3.0, job("t3", 0.0, needs=("t0",)))
    jobs = [job("t0", 0.0, tries=9), job("t1", 0.0, job("t1.0", 1.0), refused)]
    config = kt.TeamConfig(max_parallel_tasks=1, risk_profile=kt.RiskProfile.LOW)
    growing = Growing(jobs, [], config, kill=4.0)
    result, records = run_in_virtual_time(play, growing, backend=backend)
    assert "PlanRefused" in (result.outcomes[-1].error or "")
    again, _ = run_in_virtual_time(play, growing, records, backend=backend)
    assert comparable(again) == comparable(result)


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_replay_names_the_dependency_that_was_lost_first_in_the_run(backend: str) -> None:
    late, early = (
        Job(kt.Task(name, "do", inputs={"seconds": seconds}), tries=9, pause=0.0, adds=[], first=False, concludes="")
        for name, seconds in (("late", 0.5), ("early", 0.0))
    )
    both = kt.Task("both", "do", depends_on=["late", "early"], inputs={"seconds": 0.0})
    last = Job(both, tries=0, pause=0.0, adds=[], first=False, concludes="")
    growing = Growing([late, early, last], [], kt.TeamConfig(), None)
    result, records = run_in_virtual_time(play, growing, backend=backend)
    assert result["both"].error == "it needs 'early', which was not accepted"
    again, _ = run_in_virtual_time(play, growing, records, backend=backend)
    assert comparable(again) == comparable(result)


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_replay_of_a_body_that_was_refused_before_its_first_attempt_gives_the_same(backend: str) -> None:
    """The run is killed at the moment in which its tasks grow."""

    def job(name: str, *adds: Job, seconds: float = 0.0, first: bool = False, needs: tuple[str, ...] = ()) -> Job:
        task = kt.Task(name, "do", inputs={"seconds": seconds}, depends_on=needs)
        return Job(task, tries=0, pause=0.0, adds=list(adds), first=first, concludes="")

    refused = job("t0.0", job("t0.0.0", needs=("t0",)), job("t0.0.1"), first=True)
    config = kt.TeamConfig(risk_profile=kt.RiskProfile.LOW, cancel_grace=0.5)
    growing = Growing([job("t0", refused, job("t0.1"), seconds=0.5)], [], config, kill=0.5)
    result, records = run_in_virtual_time(play, growing, backend=backend)
    again, _ = run_in_virtual_time(play, growing, records, backend=backend)
    assert comparable(again) == comparable(result)
