"""One stream of events over all sessions of a run: an interrupted one ends with an event of its own."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.testing import EventRecorder, FunctionModel, MemoryJournal
from kairo_team.views.progress import RowState, RunProgress
from tests.durable.desk import ask_briefly

# pyright: reportPrivateUsage=false
# A signal has to come at one step of the journal's own.

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

RUN = "r"
PLAN = kt.TaskGraph([kt.Task(f"t{number}", "do", depends_on=[f"t{number - 2}"] * (number > 1)) for number in range(10)])
AT_WORK = ("t6", "t7")
"""What is under way when the session is interrupted: six tasks have ended, and two wait."""


class Shift:
    """Workers that hang on some tasks."""

    def __init__(self, *hangs_on: str) -> None:
        self.hangs = anyio.Event()
        self._left = set(hangs_on)
        self._hangs_on = hangs_on

    async def work(self, assignment: kt.Assignment) -> str:
        if assignment.task.id in self._hangs_on:
            self._left.discard(assignment.task.id)
            if not self._left:
                self.hangs.set()
            await anyio.sleep_forever()
        return "done"

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("hand", self.work)])


def journal_in_memory(_folder: Path) -> Any:
    return MemoryJournal()


def journal_on_disk(folder: Path) -> Any:
    return kt.SqliteJournal(folder / "runs.db")


JOURNALS = pytest.mark.parametrize("make", [journal_in_memory, journal_on_disk])


async def by_handle(team: kt.Team, runtime: kt.Runtime, hangs: anyio.Event, plan: kt.TaskGraph = PLAN) -> None:
    async with runtime:
        run = await runtime.start(team, "Go.", plan=plan, run_id=RUN)
        await hangs.wait()
        run.interrupt("enough for today")


async def by_cancellation(team: kt.Team, runtime: kt.Runtime, hangs: anyio.Event, plan: kt.TaskGraph = PLAN) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(kt.run, team, "Go.", plan=plan, run_id=RUN, runtime=runtime))
        await hangs.wait()
        group.cancel_scope.cancel()


LEAVING = pytest.mark.parametrize("leave", [by_handle, by_cancellation])


def numbers(found: Any) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in found]


@JOURNALS
@LEAVING
async def test_third_o10_what_watchers_are_told_is_what_the_journal_has(
    leave: Callable[..., Any], make: Any, tmp_path: Path
) -> None:
    journal, first, second = make(tmp_path), EventRecorder(), EventRecorder()
    shift = Shift(*AT_WORK)
    lines = tmp_path / "events.jsonl"
    with kt.JsonLines(lines) as writing:
        await leave(shift.team(), kt.Runtime(journal=journal, subscribers=[first, writing]), shift.hangs)
        told = journal.events_after(RUN)
        assert numbers(told) == numbers(first.events)
        last = told[-1]
        assert isinstance(last, events.TeamInterrupted)
        assert (last.type, last.state) == ("team.interrupted", "interrupted")
        assert not [one for one in told if isinstance(one, events.TaskCancelled | events.TaskSkipped)]
        runtime = kt.Runtime(journal=journal, subscribers=[second, writing])
        result = await runtime.resume(RUN, Shift().team())
    assert result.status == "completed"
    whole = journal.events_after(RUN)
    assert numbers(whole) == numbers([*first.events, *second.events])
    assert [one.seq for one in whole] == list(range(1, len(whole) + 1))
    ends = Counter(one.task_id for one in whole if isinstance(one, events.TaskEnded))
    assert ends == {task.id: 1 for task in PLAN.tasks}
    both = EventRecorder()
    both.events += whole
    both.assert_lawful()
    written = lines.read_text(encoding="utf-8").splitlines()
    assert numbers(map(events.event_from_json, written)) == numbers(whole)
    if isinstance(journal, kt.SqliteJournal):
        journal.close()


@JOURNALS
@LEAVING
async def test_third_o10_a_progress_bar_counts_what_has_ended_in_each_session(
    leave: Callable[..., Any], make: Any, tmp_path: Path
) -> None:
    journal, first, second = make(tmp_path), RunProgress(), RunProgress()
    shift, again = Shift(*AT_WORK), Shift("t9")
    await leave(shift.team(), kt.Runtime(journal=journal, subscribers=[first.take]), shift.hangs)
    assert (first.count(RowState.DONE), first.count(RowState.RUNNING), first.count(RowState.PENDING)) == (6, 2, 2)
    async with kt.Runtime(journal=journal, subscribers=[second.take]) as runtime, anyio.create_task_group() as group:
        group.start_soon(runtime.resume, RUN, again.team())
        await again.hangs.wait()
        assert second.count(RowState.DONE) >= 8
        group.cancel_scope.cancel()
    third = RunProgress()
    await kt.Runtime(journal=journal, subscribers=[third.take]).resume(RUN, Shift().team())
    assert third.count(RowState.DONE) == 10
    if isinstance(journal, kt.SqliteJournal):
        journal.close()


@JOURNALS
@LEAVING
async def test_third_o10_so_does_the_run_inside(leave: Callable[..., Any], make: Any, tmp_path: Path) -> None:
    journal, first, second = make(tmp_path), EventRecorder(), EventRecorder()
    shift, one = Shift(*AT_WORK), kt.TaskGraph([kt.Task("a", "do")])

    def team(hands: Shift) -> kt.Team:
        return kt.Team("outer", [kt.Member("group", TeamAgent(hands.team(), plan=PLAN))])

    await leave(team(shift), kt.Runtime(journal=journal, subscribers=[first]), shift.hangs, one)
    ends = {event.run_id: event.type for event in first.events if isinstance(event, events.TeamEnded)}
    [inside] = set(ends) - {RUN}
    assert ends == {RUN: "team.interrupted", inside: "team.interrupted"}
    await kt.Runtime(journal=journal, subscribers=[second]).resume(RUN, team(Shift()))
    for name in (RUN, inside):
        told = [event for event in (*first.events, *second.events) if event.run_id == name]
        assert numbers(journal.events_after(name)) == numbers(told)
        assert [event.seq for event in told] == list(range(1, len(told) + 1))
    if isinstance(journal, kt.SqliteJournal):
        journal.close()


async def test_third_o10_a_watcher_of_a_handle_sees_the_last_event() -> None:
    journal, shift = MemoryJournal(), Shift(*AT_WORK)
    async with kt.Runtime(journal=journal) as runtime:
        run = await runtime.start(shift.team(), "Go.", plan=PLAN, run_id=RUN)
        await shift.hangs.wait()
        run.interrupt()
        seen = [event async for event in run.events()]
    assert numbers(seen) == numbers(journal.events_after(RUN))
    assert seen[-1].type == "team.interrupted"


async def test_third_o10_a_run_inside_an_attempt_that_timed_out_is_cancelled() -> None:
    """It never goes on: that is told."""
    recorder, shift = EventRecorder(), Shift(*AT_WORK)
    team = kt.Team("outer", [kt.Member("group", TeamAgent(shift.team(), plan=PLAN))])
    plan = kt.TaskGraph([kt.Task("a", "do", timeout=0.5, retries=0)])
    runtime = kt.Runtime(journal=MemoryJournal(), subscribers=[recorder])
    await kt.run(team, "Go.", plan=plan, run_id=RUN, runtime=runtime)
    ends = [event.type for event in recorder.events if isinstance(event, events.TeamEnded) and event.run_id != RUN]
    assert ends == ["team.cancelled"]
    recorder.assert_lawful()


# ---------------------------------------------------------------- interrupted at any event


async def ask_twice(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    for text in ("first", "second"):
        await context.model("m:x").complete(ask_briefly(f"{assignment.task.id} {text}"))
    return "done"


def office() -> kt.Team:
    inner = kt.Team("inner", [kt.Member("hand", ask_twice)])
    plan = kt.TaskGraph([kt.Task("x", "do"), kt.Task("y", "do", depends_on=["x"])])
    return kt.Team("outer", [kt.Member("hand", ask_twice), kt.Member("group", TeamAgent(inner, plan=plan))])


async def answer(request: kt.ModelRequest) -> str:
    await checkpoint()
    return "answer"


async def interrupted_at(number: int, journal: Any) -> tuple[kt.TeamResult, list[events.Event]]:
    """Interrupt a run while its subscriber is told the event of that number, of the run or of the one inside."""
    told: list[events.Event] = []

    def take(event: events.Event) -> None:
        told.append(event)
        if len(told) == number:
            runtime.runs[RUN].interrupt("enough")

    model, plan = FunctionModel(answer, name="test:m"), kt.TaskGraph([kt.Task("a", "do", member="hand"), GROUP])
    async with kt.Runtime(models={"m:x": model}, journal=journal, subscribers=[take]) as runtime:
        run = await runtime.start(office(), "Go.", plan=plan, run_id=RUN)
        return await run.result(), told


GROUP = kt.Task("g", "do", member="group")


@JOURNALS
async def test_third_o10_a_run_interrupted_at_any_event_tells_no_end_but_its_own(make: Any, tmp_path: Path) -> None:
    """A run inside may begin after that: it ends as the one around it. What was sent by then is told once (o11)."""
    number, step = 2, 2 if make is journal_in_memory else 5
    while True:
        (tmp_path / f"{number}").mkdir()
        journal = make(tmp_path / f"{number}")
        result, told = await interrupted_at(number, journal)
        if result.status is kt.TeamStatus.COMPLETED:
            break
        for name in {event.run_id for event in told}:
            own = [event for event in told if event.run_id == name]
            assert numbers(journal.events_after(name)) == numbers(own)
            ends = [one for one in own if isinstance(one, events.TeamEnded)]
            assert ends == own[-1:]
            assert ends[0].type in ("team.interrupted", "team.completed")[: 1 + (name != RUN)]
        assert not [one for one in told if isinstance(one, events.TaskCancelled | events.TaskSkipped)]
        if isinstance(journal, kt.SqliteJournal):
            doubts = [one.split(maxsplit=1)[0] for one in result.warnings if "under way" in one]
            assert sum(map(int, doubts)) == len(journal.in_doubt(RUN))
            journal.close()
        number += step
    assert number > 30


async def test_third_o10_a_task_ends_once_in_both_sessions_wherever_a_subscriber_interrupts() -> None:
    """Also while it is told that very end, of the run or of the one inside."""
    number = 2
    while True:
        journal, again = MemoryJournal(), EventRecorder()
        result, told = await interrupted_at(number, journal)
        if result.status is kt.TeamStatus.COMPLETED:
            break
        model = FunctionModel(answer, name="test:m")
        async with kt.Runtime(models={"m:x": model}, journal=journal, subscribers=[again]) as runtime:
            assert (await runtime.resume(RUN, office())).status == "completed"
        whole = [*told, *again.events]
        for name in {event.run_id for event in whole}:
            own = [event for event in whole if event.run_id == name]
            assert numbers(journal.events_after(name)) == numbers(own)
            ends = Counter(one.task_id for one in own if isinstance(one, events.TaskEnded))
            assert set(ends.values()) == {1}, (number, name, ends)
        number += 1
    assert number > 30


class Signalling:
    """A journal's queue for whose third entry a signal comes, while the entry is put."""

    def __init__(self, journal: kt.SqliteJournal) -> None:
        self._database, self._left = journal.database, 3
        self._queue = self._database._entries

    def put(self, entry: Any) -> None:
        self._left -= 1
        if not self._left:
            assert not self._database._starting.locked(), "the handler would wait for its own thread"
            signal.raise_signal(signal.SIGUSR1)
        self._queue.put(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
async def test_third_o10_a_signal_that_comes_while_a_step_is_recorded_interrupts_the_run(tmp_path: Path) -> None:
    journal, shift = kt.SqliteJournal(tmp_path / "runs.db"), Shift()

    def handle(_number: int, _frame: object) -> None:
        runtime.runs[RUN].interrupt("Ctrl-C")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        async with kt.Runtime(journal=journal) as runtime:
            run = await runtime.start(shift.team(), "Go.", plan=PLAN, run_id=RUN)
            journal.database._entries = Signalling(journal)  # type: ignore[assignment]  # a double
            result = await run.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (result.status, journal.show(RUN).state) == ("cancelled", "interrupted")
    assert (await kt.Runtime(journal=journal).resume(RUN, shift.team())).status == "completed"
    journal.close()
