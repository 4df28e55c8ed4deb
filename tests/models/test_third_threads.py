"""One model object, one runtime, many threads: a client and connections of its own in each event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team.errors import Misuse, RunExists
from kairo_team.models import OpenAICompatible
from kairo_team.models.limits import Gate
from kairo_team.models.providers import provider_model
from kairo_team.testing import run_in_virtual_time
from tests.models.wires import MODELS, PROMPT_TOKENS, REPLY_TOKENS, Wires

pytestmark = pytest.mark.real_time

THREADS = 8
COMPATIBLE = "house:m"


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import everything in one thread: pytest's import hook is not made for several."""
    with pytest.MonkeyPatch.context() as patch:
        wires = Wires()
        for name, value in wires.environment.items():
            patch.setenv(name, value)
        for model in MODELS:
            assert ask(model).error is None
        wires.stop()


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wires]:
    wires = Wires()
    for name, value in wires.environment.items():
        monkeypatch.setenv(name, value)
    yield wires
    wires.stop()


def runtime_of(wires: Wires, **given: Any) -> kt.Runtime:
    return kt.Runtime(models={COMPATIBLE: OpenAICompatible("m", f"{wires.url}/v1", name=COMPATIBLE)}, **given)


def ask(model: Any, runtime: kt.Runtime | None = None, tasks: int = 1, **budget: Any) -> kt.TeamResult:
    """Let a team do some tasks, one after the other, with one call each."""
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(model, max_turns=1))])
    plan = [kt.Task(f"t{n}", "Say it.", depends_on=[f"t{n - 1}"] if n else []) for n in range(tasks)]
    limits = kt.Budget(**{"tokens": 200_000, **budget})
    return kt.run_sync(team, "Say it.", plan=kt.TaskGraph(plan), budget=limits, runtime=runtime)


def in_threads(*work: Callable[[], kt.TeamResult]) -> list[kt.TeamResult]:
    """Do each in a thread of its own, all at once; whoever does not come back within minutes has hung."""
    done: list[kt.TeamResult] = []
    failed: list[BaseException] = []

    def do(one: Callable[[], kt.TeamResult]) -> None:
        try:
            done.append(one())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    threads = [threading.Thread(target=do, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    for error in failed:
        raise error
    assert not any(thread.is_alive() for thread in threads)
    return done


# ---------------------------------------------------------------- eight threads


@pytest.mark.parametrize("model", [*MODELS, COMPATIBLE])
def test_third_o33_one_runtime_serves_eight_threads_at_once(wires: Wires, model: str) -> None:
    """No call is answered before all eight are in flight: each event loop has connections of its own."""
    wires.together(THREADS)
    runtime = runtime_of(wires)
    results = in_threads(*[partial(ask, model, runtime)] * THREADS)
    assert [(result.error, result.output) for result in results] == [(None, "Fine.")] * THREADS
    assert {result.usage.tokens for result in results} == {PROMPT_TOKENS + REPLY_TOKENS}
    assert wires.all_closed()


def test_third_o33_one_model_object_serves_eight_threads_again_and_again(wires: Wires) -> None:
    model = OpenAICompatible("m", f"{wires.url}/v1")
    for _ in range(3):
        results = in_threads(*[partial(ask, model)] * THREADS)
        assert [result.error for result in results] == [None] * THREADS
    assert len(wires.asked) == 3 * THREADS


def test_third_o33_all_wires_share_one_runtime_its_budget_and_its_journal(wires: Wires, tmp_path: Path) -> None:
    """Usage in the shared budget is the sum of what the threads used, and the journal has every run."""
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime = runtime_of(wires, budget=kt.Budget(tokens=2_000_000), journal=journal)
    results = in_threads(*(partial(ask, model, runtime, 2) for model in (*MODELS, COMPATIBLE)))
    assert [result.error for result in results] == [None] * 5
    assert runtime.governor is not None
    assert runtime.governor.usage.tokens == sum(result.usage.tokens for result in results) == 5 * 2 * 10
    assert {run.run_id for run in journal.runs()} == {result.run_id for result in results}


@pytest.mark.parametrize("model", [MODELS[0], COMPATIBLE])
def test_third_o33_deadlines_hold_in_every_thread(wires: Wires, model: str) -> None:
    """The server answers nobody; nobody's deadline depends on another thread's."""
    wires.together(THREADS + 1)
    runtime = runtime_of(wires)
    results = in_threads(*[partial(ask, model, runtime, seconds=2)] * THREADS)
    assert [result.status for result in results] == [kt.TeamStatus.TIMEOUT] * THREADS
    wires.together(0)
    assert wires.all_closed()


def test_third_o33_a_limit_counts_the_calls_of_all_event_loops(wires: Wires) -> None:
    """Two in flight, never more; who waits in one loop is woken by who ends in another."""
    wires.pause = 0.01
    runtime = runtime_of(wires, model_limits={COMPATIBLE: kt.ModelLimit(concurrency=2)})
    results = in_threads(*[partial(ask, COMPATIBLE, runtime, 3)] * THREADS)
    assert [result.error for result in results] == [None] * THREADS
    assert (len(wires.asked), wires.most_in_flight) == (3 * THREADS, 2)


def test_third_o33_a_minute_is_one_minute_for_all_event_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may be stopped between the readings of two clocks: its call counts none the less."""
    gate, clock = Gate(kt.ModelLimit(per_minute=1)), time.monotonic

    async def call() -> float:
        began = anyio.current_time()
        async with gate.turn():
            return anyio.current_time() - began

    with monkeypatch.context() as stopped:
        stopped.setattr(time, "monotonic", lambda: clock() + 0.3)
        assert run_in_virtual_time(call) == 0
    assert run_in_virtual_time(call) == pytest.approx(60, abs=1)


@pytest.mark.local_model
def test_third_o33_the_embedded_model_serves_eight_threads() -> None:
    """One engine, one call at a time, and each thread's deadline is its own."""
    runtime = kt.Runtime()
    agent = kt.MiniAgent("local:smollm2", max_turns=1, settings={"max_tokens": 4, "temperature": 0})

    def work() -> kt.TeamResult:
        return kt.run_sync(kt.Team("desk", [kt.Member("writer", agent)]), "Say hello.", runtime=runtime)

    results = in_threads(*[work] * THREADS)
    assert all(result.output and "was cut short" in str(result.error) for result in results)


# ---------------------------------------------------------------- what else threads share


def test_third_o33_of_two_threads_with_one_run_id_one_is_refused() -> None:
    runtime, refused = kt.Runtime(), list[str]()
    team = kt.Team("desk", [kt.Member("writer", lambda assignment: "done")])

    def work() -> Any:
        try:
            return kt.run_sync(team, "Say it.", run_id="one", runtime=runtime)
        except RunExists as error:
            refused.append(error.run_id)
            return None

    results = in_threads(*[work] * THREADS)
    assert len([result for result in results if result is not None]) == 1
    assert refused == ["one"] * (THREADS - 1)


@pytest.mark.anyio
async def test_third_o33_a_runtime_starts_runs_in_the_event_loop_that_entered_it() -> None:
    """Another loop would hand its task to a task group that is not its own."""
    team = kt.Team("desk", [kt.Member("writer", lambda assignment: "done")])
    async with kt.Runtime() as runtime:
        with pytest.raises(Misuse, match="entered in another event loop"):
            await anyio.to_thread.run_sync(lambda: anyio.run(runtime.start, team, "Say it."))
        result = await anyio.to_thread.run_sync(lambda: kt.run_sync(team, "Say it.", runtime=runtime))
        assert result.output == "done"
        assert (await (await runtime.start(team, "Say it.")).result()).output == "done"


# ---------------------------------------------------------------- connections


@pytest.mark.parametrize("model", [*MODELS, COMPATIBLE])
def test_third_o59_calls_of_a_run_share_a_connection_that_ends_with_it(wires: Wires, model: str) -> None:
    runtime = runtime_of(wires)
    for number in (1, 2):
        result = ask(model, runtime, 5)
        assert (result.error, result.output) == (None, "Fine.")
        assert (wires.opened, len(wires.asked)) == (number, 5 * number)
        assert wires.all_closed()


async def one_after_another(model: Any, calls: int) -> None:
    for _ in range(calls):
        await model.complete(kt.ModelRequest([kt.Message.user("Say it.")], max_tokens=40))


def test_third_o59_outside_a_run_a_call_closes_what_it_opened(wires: Wires) -> None:
    for number, model in enumerate(MODELS, 1):
        anyio.run(one_after_another, provider_model(model), 1)
        assert wires.opened == number
        assert wires.all_closed()


@pytest.mark.anyio
async def test_third_o59_runs_at_once_in_one_loop_share_connections_and_the_last_closes_them(wires: Wires) -> None:
    model = OpenAICompatible("m", f"{wires.url}/v1")
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(model, max_turns=1))])
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(partial(kt.run, team, "Say it.", budget=kt.Budget(tokens=20_000)))
    assert wires.opened <= 4
    assert wires.all_closed()


@pytest.mark.anyio
async def test_third_o59_a_run_that_is_cut_off_closes_its_connections_too(wires: Wires) -> None:
    wires.together(2)
    model = OpenAICompatible("m", f"{wires.url}/v1")
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(model, max_turns=1))])
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(kt.run, team, "Say it.", budget=kt.Budget(tokens=20_000)))
            while not wires.in_flight:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    wires.together(0)
    assert wires.all_closed()


def test_third_o59_a_client_that_cannot_be_made_is_the_calls_error(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was taken away: the first event loop has its client, the next one is told what to set."""
    model = provider_model(MODELS[0])
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    results = [ask(model), ask(model)]
    assert results[0].error is None
    assert "OPENAI_API_KEY" in str(results[1].error)
    assert results[1].usage.tokens == 0
