"""Another process asks a run at work to end one task, or raises its budget: the run does it once, or says why not."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
import anyio.to_thread
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.errors import JournalError, Misuse, RunFinished, RunNotFound

pytestmark = pytest.mark.real_time


class Desk:
    """A run of two chapters, which wait until `go`, and the journal of another process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go = anyio.Event()
        self.journal, self.other = kt.SqliteJournal(path), kt.SqliteJournal(path)

    @asynccontextmanager
    async def at_work(self, **config: Any) -> AsyncGenerator[kt.Run]:
        async def wait(assignment: kt.Assignment) -> str:
            await self.go.wait()
            return assignment.task.id

        plan = kt.TaskGraph([kt.Task("one", "x"), kt.Task("two", "x"), kt.Task("last", "x", depends_on=["two"])])
        request = kt.TeamExecutionRequest("g", plan=plan, run_id="live", config=kt.TeamConfig(**config))
        async with kt.Runtime(journal=self.journal) as runtime:
            run = await runtime.start(kt.Team("t", [kt.Member("m", wait)]), request)
            try:
                yield run
            finally:
                self.go.set()

    async def resume(self) -> kt.TeamResult:
        team = kt.Team("t", [kt.Member("m", lambda assignment: assignment.task.id)])
        async with kt.Runtime(journal=self.journal) as runtime:
            return await runtime.resume("live", team, allow_changes=["member:m"])

    async def ask(self, method: str, *arguments: Any, **given: Any) -> None:
        call: Callable[[], None] = partial(getattr(self.other, method), "live", *arguments, **given)
        await anyio.to_thread.run_sync(call)

    def rows(self) -> int:
        with self.other.database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM request").fetchone()[0])


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    made = Desk(tmp_path / "runs.db")
    yield made
    made.journal.close()
    made.other.close()


async def begun(run: kt.Run, task_id: str) -> None:
    async for event in run.events():
        if isinstance(event, events.AttemptStarted) and event.task_id == task_id:
            return


async def test_one_task_is_ended_and_the_others_go_on(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        await desk.ask("cancel_task", "two", "it takes too long")
        desk.go.set()
        result = await run.result()
    assert {one.task_id: str(one.status) for one in result.outcomes} == {
        "one": "completed",
        "two": "cancelled",
        "last": "skipped",
    }
    assert "it takes too long" in str(result.error)
    assert desk.rows() == 0


async def test_a_raised_budget_is_the_runs_from_then_on_also_when_it_is_resumed(desk: Desk) -> None:
    async with desk.at_work(budget=kt.Budget(tokens=150)) as run:
        await begun(run, "two")
        await desk.ask("top_up", kt.Budget(tokens=50), by="ada")
        run.interrupt("later")
        await run.result()
    raised = [one for one in desk.other.events_after("live") if isinstance(one, events.BudgetToppedUp)]
    assert [(one.tokens, one.by) for one in raised] == [(50, "ada")]
    assert limit_of(await desk.resume()) == 200


def limit_of(result: kt.TeamResult) -> int | None:
    assert result.budget is not None
    return result.budget.budget.tokens


async def test_what_the_run_refuses_is_said_with_its_words(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        with pytest.raises(Misuse, match=r"no task 'tow' in this run's plan; it has .*two"):
            await desk.ask("cancel_task", "tow")
        with pytest.raises(RunNotFound):
            await anyio.to_thread.run_sync(desk.other.cancel_task, "alive", "two")
        desk.go.set()
        await run.result()
    with pytest.raises(RunFinished):
        await desk.ask("top_up", kt.Budget(tokens=50))
    assert desk.rows() == 0


async def test_many_who_raise_a_budget_at_once_raise_it_by_the_sum(desk: Desk) -> None:
    async with desk.at_work(budget=kt.Budget(tokens=1_000)) as run:
        await begun(run, "two")
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(desk.ask, "top_up", kt.Budget(tokens=10))
        desk.go.set()
        assert limit_of(await run.result()) == 1_080


async def test_a_run_that_nobody_has_at_work_is_not_asked(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        run.interrupt("later")
        await run.result()
    with pytest.raises(Misuse, match="run 'live' is interrupted, and no process has it: resume it first"):
        await desk.ask("cancel_task", "two")
    assert desk.rows() == 0


async def test_a_request_without_an_answer_is_taken_back(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        desk.journal.database._sessions[0].on_request = None  # like a program of an earlier version
        with pytest.raises(Misuse, match=r"its process did not answer within 0\.3 s, and nothing was changed"):
            await desk.ask("cancel_task", "two", patience=0.3)
        assert desk.rows() == 0
        desk.go.set()
        assert (await run.result()).status is kt.TeamStatus.COMPLETED


@pytest.mark.parametrize("raised", [KeyboardInterrupt, JournalError("runs", "it cannot be reached")])
def test_what_ended_the_wait_for_an_answer_is_not_hidden_by_the_withdrawal(raised: Any, tmp_path: Path) -> None:
    """Ctrl-C, or a database that has gone: the request cannot be taken back then."""

    class Gone(kt.SqliteJournal):
        withdrawn = 0

        def put_request(self, request_id: str, run_id: str, body: str) -> None:
            """Do nothing."""

        def request_answer(self, request_id: str, run_id: str) -> tuple[str, str | None]:
            raise raised

        def withdraw_request(self, request_id: str) -> tuple[bool, str | None]:
            self.withdrawn += 1
            raise JournalError("runs", "it cannot be reached, so nothing is taken back")

    gone = Gone(tmp_path / "runs.db")
    with pytest.raises(raised if isinstance(raised, type) else JournalError) as found:
        gone.steer("r", "x")
    assert "taken back" not in str(found.value)
    assert gone.withdrawn == 1


async def test_a_request_to_an_earlier_session_is_not_taken(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        with desk.other.database.writing() as connection:
            sql = "INSERT INTO request (id, run_id, epoch, body, asked_at) VALUES ('r', 'live', 0, '?', 0)"
            connection.execute(sql)
        await desk.ask("top_up", kt.Budget(loops=5))
        desk.go.set()
        await run.result()
    assert desk.rows() == 1
    desk.other.forget("live")
    assert desk.rows() == 0


async def test_what_cannot_be_read_is_refused_and_the_run_goes_on(desk: Desk) -> None:
    bodies = ("{", '"interrupt"', "[1, 2]")
    async with desk.at_work() as run:
        await begun(run, "two")
        for body in bodies:
            desk.other.put_request(body, "live", body)
        found: list[str | None] = [None]
        with anyio.fail_after(60):
            while None in found:
                await anyio.sleep(0.05)
                found = [desk.other.request_answer(body, "live")[1] for body in bodies]
        desk.go.set()
        assert (await run.result()).status is kt.TeamStatus.COMPLETED
    assert all(found)


# ---------------------------------------------------------------- in a terminal


async def kairo(*words: object) -> tuple[int, str]:
    """Call the command in a process of its own; return its exit code and what it printed."""
    program = [sys.executable, "-m", "kairo_team", *map(str, words)]
    said = await anyio.run_process(program, check=False, stderr=STDOUT)
    return said.returncode, said.stdout.decode()


async def test_a_terminal_ends_one_task_and_raises_the_budget_of_a_run_elsewhere(desk: Desk) -> None:
    there = ("--journal", desk.path)
    async with desk.at_work(budget=kt.Budget(tokens=1_000)) as run:
        await begun(run, "two")
        code, said = await kairo("cancel", "live", "--task", "one", *there)
        assert (code, "task one of run live is cancelled; the run continues\n" in said) == (0, True), said
        code, said = await kairo("cancel", "live", "--task", "three", *there)
        assert (code, "no task 'three' in this run's plan" in said) == (2, True), said
        code, said = await kairo("top-up", "live", "--add", "tokens=5,000", *there)
        assert (code, said) == (0, "the budget of run live is raised: tokens=5,000 more\n")
        code, said = await kairo("top-up", "live", "--add", "tokens=none", *there)
        assert (code, "--add says how much more" in said) == (2, True), said
        code, said = await kairo("steer", "live", "mind the wind", "--task", "last", *there)
        assert (code, said) == (0, "run live has the directive for task last\n")
        code, said = await kairo("steer", "live", " ", *there)
        assert (code, "a directive is a text that is not blank" in said) == (2, True), said
        desk.go.set()
        result = await run.result()
    assert limit_of(result) == 6_000
    given = [one for one in desk.other.events_after("live") if isinstance(one, events.TaskSteered)]
    assert [(one.task_id, one.directive, one.by) for one in given] == [("last", "mind the wind", "kairo steer")]
    assert "cancelled by kairo cancel" in str(result.error)
    for words in (["cancel", "live", "--task", "two"], ["top-up", "live", "--add", "tokens=5"]):
        code, said = await kairo(*words, *there)
        assert (code, "run live has ended: degraded" in said) == (2, True), said


async def test_a_run_that_nobody_has_at_work_is_resumed_with_its_new_limits(desk: Desk) -> None:
    async with desk.at_work() as run:
        await begun(run, "two")
        run.interrupt("later")
        await run.result()
    code, said = await kairo("top-up", "live", "--add", "tokens=5", "--journal", desk.path)
    assert code == 2
    assert "run live is interrupted, and no process has it: kairo resume live --budget LIMITS --journal" in said
