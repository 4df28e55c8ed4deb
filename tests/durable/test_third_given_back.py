"""What a runtime has of a journal's runs is given back before it is left: others may go on with them at once."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.durable.database import Database
from kairo_team.errors import InsufficientBudget
from kairo_team.testing import MemoryJournal
from tests.human import LeavesOpen

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

RUN = "r"
ONE = kt.TaskGraph([kt.Task("a", "do")])


async def never(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def done(assignment: kt.Assignment) -> str:
    return "done"


def outer(hand: Any) -> kt.Team:
    """A team with a team inside."""
    return kt.Team("outer", [kt.Member("group", TeamAgent(kt.Team("inner", [kt.Member("hand", hand)]), plan=ONE))])


@pytest.fixture
def slow_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit take so long that whoever does not wait for it is gone before."""
    write = Database._write

    def slowly(database: Database, connection: Any, entries: Any) -> None:
        if any(entry.session is not None for entry in entries):
            time.sleep(0.05)
        write(database, connection, entries)

    monkeypatch.setattr(Database, "_write", slowly)


class LeftError(Exception):
    """What ends the block."""


async def leave_by_cancellation(team: kt.Team, journal: kt.SqliteJournal, begun: Callable[[], bool]) -> None:
    async with kt.Runtime(journal=journal) as runtime, anyio.create_task_group() as group:
        group.start_soon(partial(kt.run, team, "Go.", plan=ONE, run_id=RUN, runtime=runtime))
        await until(begun)
        group.cancel_scope.cancel()


async def leave_by_an_error(team: kt.Team, journal: kt.SqliteJournal, begun: Callable[[], bool]) -> None:
    with suppress(LeftError):
        async with kt.Runtime(journal=journal) as runtime:
            await runtime.start(team, "Go.", plan=ONE, run_id=RUN)
            await until(begun)
            raise LeftError


async def leave_by_interruption(team: kt.Team, journal: kt.SqliteJournal, begun: Callable[[], bool]) -> None:
    async with kt.Runtime(journal=journal) as runtime:
        run = await runtime.start(team, "Go.", plan=ONE, run_id=RUN)
        await until(begun)
        run.interrupt()


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():
            await anyio.sleep(0.01)


@pytest.mark.parametrize("leave", [leave_by_cancellation, leave_by_an_error, leave_by_interruption])
@pytest.mark.usefixtures("slow_writer")
async def test_third_o45_a_run_that_was_left_is_nobodys_once_its_runtime_is_left(leave: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal, other = kt.SqliteJournal(path), kt.SqliteJournal(path)
    begun = threading.Event()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        begun.set()
        return await never(assignment, context)

    await leave(outer(work), journal, begun.is_set)
    inside = inner_run(path)
    assert (other.show(RUN).state, other.show(inside).state) == ("interrupted", "interrupted")
    result = await kt.Runtime(journal=other).resume(RUN, outer(done))
    assert (result.status, other.show(inside).state) == ("completed", "completed")
    journal.close()
    other.close()


def inner_run(path: Path) -> str:
    with kt.SqliteJournal(path).database.reading() as connection:
        [row] = connection.execute("SELECT run_id FROM run WHERE parent IS NOT NULL").fetchall()
    return str(row["run_id"])


@pytest.mark.parametrize("call", ["begin", "recover"])
async def test_third_o45_a_run_that_comes_too_late_is_nobodys_once_its_runtime_is_left(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller was cancelled while a thread still took it; whoever leaves the runtime waits for that thread."""
    path = tmp_path / "runs.db"
    journal, other = kt.SqliteJournal(path), kt.SqliteJournal(path)
    if call == "recover":
        await leave_by_interruption(outer(never), journal, lambda: True)
    entered, method = threading.Event(), getattr(journal, call)

    def slowly(*args: Any, **given: Any) -> Any:
        taken = method(*args, **given)
        entered.set()
        time.sleep(0.05)
        return taken

    monkeypatch.setattr(journal, call, slowly)
    async with kt.Runtime(journal=journal) as runtime, anyio.create_task_group() as group:
        begin = partial(kt.run, outer(never), "Go.", plan=ONE, run_id=RUN, runtime=runtime)
        group.start_soon(begin if call == "begin" else partial(runtime.resume, RUN, outer(never)))
        await to_thread.run_sync(entered.wait)
        group.cancel_scope.cancel()
    assert other.show(RUN).state == "interrupted"
    assert (await kt.Runtime(journal=other).resume(RUN, outer(done))).output == "done"
    journal.close()
    other.close()


# ---------------------------------------------------------------- what was taken, and does not go on


def two_in_memory(_path: Path) -> tuple[Any, Any]:
    journal = MemoryJournal()
    return journal, journal.elsewhere()


def two_on_disk(path: Path) -> tuple[Any, Any]:
    return kt.SqliteJournal(path / "runs.db"), kt.SqliteJournal(path / "runs.db")


JOURNALS = pytest.mark.parametrize("make", [two_in_memory, two_on_disk])


class Broken:
    """A coordinator that does not begin."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        raise OSError("no coordinator")


@asynccontextmanager
async def waiting(journals: tuple[Any, Any]) -> AsyncGenerator[kt.Team]:
    """Let a run wait for a person, and one inside it; close the journals at the end."""
    inner = kt.Team("inner", [kt.Member("hand", done)], evaluators={"boss": LeavesOpen("b")})
    plan = kt.TaskGraph([kt.Task("b", "do", evaluator="boss")])
    team = kt.Team("outer", [kt.Member("group", TeamAgent(inner, plan=plan))])
    runtime = kt.Runtime(journal=journals[0], gate=kt.DeferGate())
    result = await kt.run(team, "Go.", plan=ONE, run_id=RUN, runtime=runtime, budget=kt.Budget(tokens=1_000))
    assert result.status == "suspended"
    yield team
    for journal in journals:
        if isinstance(journal, kt.SqliteJournal):
            journal.close()


def state_of(journal: Any, run_id: str = RUN) -> str:
    return journal.storage.run(run_id).stands if isinstance(journal, MemoryJournal) else journal.show(run_id).state


@JOURNALS
async def test_third_o45_a_run_that_waits_and_was_refused_waits_as_before(make: Any, tmp_path: Path) -> None:
    journal, other = make(tmp_path)
    async with waiting((journal, other)) as team:
        [question] = other.pending(RUN)
        journal.answer(question.id, kt.HumanDecision.approve())
        small = kt.Runtime(journal=journal, budget=kt.Budget(tokens=10))
        with pytest.raises(InsufficientBudget):
            await small.resume(RUN, team)
        states = {state_of(other, one) for one in (RUN, question.run_id)}
        assert states == {"suspended"}
        with pytest.raises(OSError, match="no coordinator"):
            await kt.Runtime(journal=other).resume(RUN, team, coordinator=Broken())
        assert state_of(journal) == "suspended"
        result = await kt.Runtime(journal=journal).resume(RUN, team)
        assert (result.status, result.output) == ("completed", "done")


@JOURNALS
async def test_third_o45_a_run_that_was_interrupted_and_refused_stays_so(make: Any, tmp_path: Path) -> None:
    journal, other = make(tmp_path)
    team = kt.Team("team", [kt.Member("clerk", never)])
    async with kt.Runtime(journal=journal) as runtime:
        run = await runtime.start(team, "Go.", plan=ONE, run_id=RUN)
        run.interrupt()
    with pytest.raises(OSError, match="no coordinator"):
        await kt.Runtime(journal=other).resume(RUN, team, coordinator=Broken())
    assert state_of(journal) == "interrupted"
    team = kt.Team("team", [kt.Member("clerk", done)])
    assert (await kt.Runtime(journal=journal).resume(RUN, team)).output == "done"
    for one in (journal, other):
        if isinstance(one, kt.SqliteJournal):
            one.close()


@JOURNALS
@pytest.mark.parametrize("call", ["begin", "recover"])
async def test_third_o45_who_is_cancelled_while_a_run_is_taken_has_it_no_longer(
    call: str, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, other = make(tmp_path)
    team = kt.Team("team", [kt.Member("clerk", never)])
    if call == "recover":
        async with kt.Runtime(journal=journal) as runtime:
            (await runtime.start(team, "Go.", plan=ONE, run_id=RUN)).interrupt()
    entered, may_go_on, taken = threading.Event(), threading.Event(), threading.Event()
    method = getattr(journal, call)

    def slowly(*args: Any, **given: Any) -> Any:
        entered.set()
        may_go_on.wait()
        try:
            return method(*args, **given)
        finally:
            taken.set()

    monkeypatch.setattr(journal, call, slowly)
    runtime = kt.Runtime(journal=journal)
    async with anyio.create_task_group() as group:
        if call == "begin":
            group.start_soon(partial(kt.run, team, "Go.", plan=ONE, run_id=RUN, runtime=runtime))
        else:
            group.start_soon(runtime.resume, RUN, team)
        await to_thread.run_sync(entered.wait)
        group.cancel_scope.cancel()
    may_go_on.set()
    await to_thread.run_sync(taken.wait)

    def is_nobodys() -> bool:
        with suppress(kt.RunNotFound):
            return state_of(other) == "interrupted"
        return False

    await until(is_nobodys)
    team = kt.Team("team", [kt.Member("clerk", done)])
    assert (await kt.Runtime(journal=other).resume(RUN, team)).output == "done"
    for one in (journal, other):
        if isinstance(one, kt.SqliteJournal):
            one.close()
