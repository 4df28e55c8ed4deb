"""What runs share, and the kill switch: from the loop, from threads and from signal handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import ModelUnavailable
from kairo_team.testing import EventRecorder, ScriptedAgent, ScriptedModel

BOTH = pytest.mark.parametrize(
    "coordinator", [TaskDispatchCoordinator(), ExpertTeamCoordinator()], ids=["board", "expert"]
)


def make_team(agent: Any, **runtime: Any) -> tuple[kt.Team, kt.Runtime]:
    shared = kt.Runtime(**runtime)
    return kt.Team("team", [kt.Member("a", agent)], runtime=shared), shared


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.keep("half of it")
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_run_in_the_background_gets_the_files_that_it_is_given() -> None:
    async def name(assignment: kt.Assignment) -> str:
        return " ".join(file.name for file in assignment.all_files)

    team = kt.Team("team", [kt.Member("a", name)])
    files = [kt.File(data=b"tides", name="tides.txt", media_type="text/plain")]
    async with kt.Runtime() as runtime:
        run = await runtime.start(team, "Read it.", files=files)
        async with runtime.stream(team, "Read it.", files=files) as other:
            results = [await run.result(), await other.result()]
    assert [result.output for result in results] == ["tides.txt", "tides.txt"]


@BOTH
async def test_kf_u04_a_request_is_run_once_per_runtime(coordinator: Any) -> None:
    """The same request again never returns old results: `RunExists`, whether it still runs or has ended."""
    agent = ScriptedAgent(["first", "second"])
    team, runtime = make_team(agent)
    request = kt.TeamExecutionRequest("goal")
    await coordinator.execute(request, team)
    with pytest.raises(kt.RunExists, match=f"run '{request.run_id}' exists already: build a new"):
        await coordinator.execute(request, team)
    assert len(agent.calls) == 1
    assert (await coordinator.execute(kt.TeamExecutionRequest("goal"), team)).output == "second"
    assert list(runtime.runs) == []


@BOTH
async def test_kf_u04_a_request_that_runs_is_refused_too(coordinator: Any) -> None:
    """A second `execute` of a running request raises and leaves the first alone."""
    team, runtime = make_team(hang)
    request = kt.TeamExecutionRequest("goal", run_id="r")
    results: list[kt.TeamResult] = []

    async def run() -> None:
        results.append(await coordinator.execute(request, team))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(kt.RunExists):
            await coordinator.execute(request, team)
        assert list(runtime.runs) == ["r"]
        runtime.runs["r"].cancel("enough")
    assert (results[0].status, results[0].error) == (kt.TeamStatus.CANCELLED, "enough")


async def test_without_a_runtime_each_run_has_a_fresh_one() -> None:
    team = kt.Team("team", [kt.Member("a", ScriptedAgent(["one", "two"]))])
    request = kt.TeamExecutionRequest("goal", run_id="r")
    results = [await TaskDispatchCoordinator().execute(request, team) for _ in range(2)]
    assert [result.output for result in results] == ["one", "two"]


async def test_a_kill_brings_back_what_was_kept_and_what_was_finished() -> None:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return "done" if assignment.task.id == "quick" else await hang(assignment, context)

    recorder = EventRecorder()
    team, runtime = make_team(work, subscribers=[recorder])
    plan = kt.TaskGraph([kt.Task("quick", "do"), kt.Task("slow", "do"), kt.Task("after", "do", depends_on=["slow"])])
    async with anyio.create_task_group() as group:

        async def kill() -> None:
            await anyio.sleep(5)
            runtime.runs["r"].cancel()
            runtime.runs["r"].cancel("too late: the first reason wins")

        group.start_soon(kill)
        request = kt.TeamExecutionRequest("goal", plan=plan, run_id="r")
        result = await TaskDispatchCoordinator().execute(request, team)
        recorder.assert_lawful()
        assert (result.status, result.halt, result.error) == (
            kt.TeamStatus.CANCELLED,
            kt.HaltReason.CANCELLED,
            "the run was cancelled",
        )
        assert [outcome.status.value for outcome in result.outcomes] == ["completed", "cancelled", "skipped"]
        assert result["slow"].artifact == kt.Artifact("half of it", partial=True)
        assert (result.output, result.partial_output) == (None, "quick:\ndone\n\nslow:\nhalf of it")


# ---------------------------------------------------------------- U07


def wait_until_running(runtime: kt.Runtime) -> None:
    while "r" not in runtime.runs:
        time.sleep(0.001)
    time.sleep(0.003)  # the event loop is asleep by now


@pytest.mark.real_time
@BOTH
async def test_kf_u07_a_thread_can_kill_a_run_that_sleeps(coordinator: Any) -> None:
    """Posted to the loop: the sleeper wakes, nobody dead-locks and nothing is raised in the thread."""
    team, runtime = make_team(hang)
    problems: list[BaseException] = []

    def kill() -> None:
        try:
            wait_until_running(runtime)
            runtime.runs["r"].cancel("from a thread")
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            problems.append(error)

    thread = threading.Thread(target=kill)
    thread.start()
    with anyio.fail_after(60):
        result = await coordinator.execute(kt.TeamExecutionRequest("goal", run_id="r"), team)
    thread.join()
    assert problems == []
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "from a thread")


@pytest.mark.real_time
@BOTH
async def test_kf_u07_a_signal_handler_can_kill_a_run_that_sleeps(coordinator: Any) -> None:
    """The handler may run at any place in the main thread, also in the middle of the ledger."""
    team, runtime = make_team(hang)
    before = signal.signal(signal.SIGUSR1, lambda *_: runtime.runs["r"].cancel("by signal"))

    def send() -> None:
        wait_until_running(runtime)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with anyio.fail_after(60):
            result = await coordinator.execute(kt.TeamExecutionRequest("goal", run_id="r"), team)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "by signal")


@pytest.mark.real_time
async def test_kf_u07_many_threads_can_kill_many_runs_at_once() -> None:
    """Each run is ended by whoever comes first; a run that has ended says so."""
    team, runtime = make_team(hang)
    errors: list[BaseException] = []

    def kill(run_id: str) -> None:
        try:
            runtime.runs[run_id].cancel(run_id)
        except kt.RunFinished:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    results: list[kt.TeamResult] = []

    async def run(run_id: str) -> None:
        results.append(await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id=run_id), team))

    ids = [f"r{number}" for number in range(10)]
    threads = [threading.Thread(target=kill, args=(run_id,)) for run_id in ids * 3]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for run_id in ids:
                group.start_soon(run, run_id)
            while len(runtime.runs) < len(ids):
                await anyio.sleep(0.001)
            for thread in threads:
                thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(result.error or "" for result in results) == sorted(ids)


# ---------------------------------------------------------------- U10


@pytest.mark.real_time
@BOTH
async def test_kf_u10_a_thread_that_ignores_its_deadline_does_not_keep_the_team(coordinator: Any) -> None:
    """The run ends at its deadline; the thread's late result is discarded, its late money booked."""
    let_go, ended = threading.Event(), threading.Event()

    def deaf(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("half")
        let_go.wait(120)
        ended.set()
        return "far too late"

    team, _ = make_team(deaf)
    config = kt.TeamConfig(budget=kt.Budget(seconds=0.5), cancel_grace=0.1)
    with anyio.fail_after(60):
        result = await coordinator.execute(kt.TeamExecutionRequest("goal", config=config), team)
    let_go.set()
    assert (result.status, result.output) == (kt.TeamStatus.TIMEOUT, None)
    assert result.outcomes[0].artifact == kt.Artifact("half", partial=True)
    assert result.duration < 60
    assert ended.wait(60)


def test_kf_u10_a_thread_that_never_ends_does_not_keep_the_process_alive() -> None:
    """Daemon threads of our own: `run_sync` returns at the deadline and the interpreter exits."""
    script = """
        import threading, kairo_team as kt
        def deaf(assignment): threading.Event().wait()
        team = kt.Team("t", [kt.Member("a", deaf)])
        request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(budget=kt.Budget(seconds=0.1), cancel_grace=0.1))
        print(kt.run_sync(team, request).status)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.stdout.strip(), ran.returncode) == ("timeout", 0)
    assert "ended timeout" in ran.stderr
    assert ran.stderr.count("\n") == 1


# ---------------------------------------------------------------- handles, subscribers, models


async def test_unknown_and_ended_runs_are_told_apart() -> None:
    team, runtime = make_team(ScriptedAgent(["x"]))
    with pytest.raises(kt.RunNotFound, match="no run 'r' in this runtime, which has: none"):
        _ = runtime.runs["r"]
    handles: list[Any] = []
    runtime.subscribers = (lambda event: handles.append(runtime.runs["r"]),)
    await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id="r"), team)
    with pytest.raises(kt.RunFinished, match="run 'r' has ended already"):
        _ = runtime.runs["r"]
    with pytest.raises(kt.RunFinished):
        handles[0].cancel()
    assert "r" not in runtime.runs
    assert repr(handles[0]) == "<Run 'r' ended>"


async def test_a_runtime_of_very_many_runs_remembers_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.engine.records.run_handle._MOST_ENDED", 3)
    team, runtime = make_team(ScriptedAgent(["x"] * 5))
    for number in range(5):
        await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id=f"r{number}"), team)
    for number in (2, 3, 4):
        with pytest.raises(kt.RunFinished):
            _ = runtime.runs[f"r{number}"]
    for number in (0, 1):
        with pytest.raises(kt.RunNotFound):
            _ = runtime.runs[f"r{number}"]


async def test_every_subscriber_gets_every_event_of_every_run() -> None:
    recorders = [EventRecorder(), EventRecorder()]
    team, _ = make_team(ScriptedAgent(["x", "y"]), subscribers=recorders)
    for run_id in ("r1", "r2"):
        await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g", run_id=run_id), team)
    assert recorders[0].events == recorders[1].events
    assert {event.run_id for event in recorders[0].events} == {"r1", "r2"}
    recorders[0].assert_lawful()


@pytest.mark.parametrize("pattern", ["openai:gpt-5-mini", "openai:*", "*"])
async def test_models_are_replaced_by_name_or_pattern(pattern: str) -> None:
    model = ScriptedModel(["from the double"])
    team, _ = make_team(kt.MiniAgent("openai:gpt-5-mini"), models={pattern: model})
    result = await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("g"), team)
    assert result.output == "from the double"


async def test_a_model_nobody_serves_is_refused_before_anything_starts() -> None:
    recorder = EventRecorder()
    team, _ = make_team(kt.MiniAgent("nowhere:x"), subscribers=[recorder])
    result = await TaskDispatchCoordinator(failure_policy=FailurePolicy()).execute(kt.TeamExecutionRequest("g"), team)
    assert (result.status, result.refused) == (kt.TeamStatus.FAILED, True)
    assert "nowhere:x" in (result.error or "")
    assert recorder.types == ["team.started", "team.failed"]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="is not a chat model"):
        kt.Runtime(models={"openai:*": 5}).models.resolve("openai:x")  # type: ignore[dict-item]  # the mistake is the point
