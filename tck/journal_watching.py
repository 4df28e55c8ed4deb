"""Interrupted runs, runs cancelled from another process, and events."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kairo_team.errors import RunFinished, RunNotFound
from kairo_team.events import AttemptProgress
from kairo_team.recorded import Place
from kairo_team.results import TeamStatus
from kairo_team.tck.journal_owners import check_over
from kairo_team.tck.journal_stage import (
    STEP,
    JournalStage,
    Served,
    Store,
    check_same,
    event_of,
    question_of,
    result_of,
    send,
)
from kairo_team.tck.kit import clause


class WatchTests(JournalStage):
    """C17 to C19."""

    @clause("C17")
    async def test_c17_an_interrupted_run_records_nothing_more_and_can_go_on(self) -> None:
        """The earlier records are there, and the process lives."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            for number in range(20):
                session.put(f"step:{number}", number)
            check_same("`interrupted`", session.interrupted, False)
            session.interrupt("somebody pressed Ctrl-C")
            check_same("`interrupted`", session.interrupted, True)
            session.put("late", True)
            await check_over(session)
            run = (await other.recover())["r"]
            check_same("the steps", run.steps, {f"step:{number}": number for number in range(20)})
            session.put("later", True)
            run.journal.put("new", True)
            await run.journal.written()
            steps = (await store.after(other))["r"].steps
            assert "later" not in steps, "what an interrupted session recorded is there, among the next one's"

    @clause("C17", needs="keeps_events")
    async def test_c17_an_interrupted_run_records_the_last_it_told(self) -> None:
        """Events after the interruption count too, up to its end, until another process has the run."""
        async with self.store() as store:
            process, other, third = [await store.process() for _ in range(3)]
            served = Served(await process.begin())
            served.emit(2)
            served.session.interrupt("somebody pressed Ctrl-C")
            served.emit(1)
            served.session.end(result_of("r", TeamStatus.CANCELLED))
            await check_over(served.session)
            run = (await other.recover())["r"]
            check_same("the number of its last event", run.seq, 3)
            check_same("the events", [one.seq for one in await other.do("events_after", "r")], [1, 2, 3])
            again = Served(run.journal, seq=run.seq)
            again.session.interrupt("once more")
            await check_over(again.session)  # waits: another process sees only what is written
            await third.recover()
            again.emit(1)
            again.session.end(result_of("r", TeamStatus.CANCELLED))
            await check_over(again.session)
            check_same("the events", [one.seq for one in await third.do("events_after", "r")], [1, 2, 3])

    @clause("C17")
    async def test_c17_its_own_process_may_go_on_with_it(self) -> None:
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            await send(session)
            session.interrupt("somebody pressed Ctrl-C")
            again = (await process.recover())["r"]
            check_same("the calls", [one.state for one in again.calls], ["sent"])
            check_same("`interrupted`", again.journal.interrupted, False)
            await send(again.journal)

    @clause("C17")
    async def test_c17_runs_inside_are_interrupted_with_it(self) -> None:
        """And no others."""
        async with self.store() as store:
            process = await store.process()
            outer = Served(await process.begin())
            session = await process.begin("r.1", Place("r", STEP, "group"))
            inner = Served(session, "r.1")
            kept = await process.begin("other")
            outer.session.interrupt("somebody pressed Ctrl-C")
            check_same("`interrupted`", session.interrupted, True)
            await check_over(session)
            await send(kept)
            assert (outer.lost, inner.lost) == ([], []), "`on_lost` was called for an interrupted run"

    # ------------------------------------------------------------------ cancelled from elsewhere

    @clause("C18")
    async def test_c18_a_run_that_nobody_has_ends_at_once(self) -> None:
        """A suspended run, an interrupted one, and one whose process has died; their questions are gone."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            sessions = {run_id: await process.begin(run_id) for run_id in ("suspended", "interrupted", "dead")}
            for run_id, session in sessions.items():
                session.keep_open(question_of(run_id))
                await session.written()
            sessions["suspended"].end(result_of("suspended", TeamStatus.SUSPENDED))
            await sessions["suspended"].written()
            sessions["interrupted"].interrupt("somebody pressed Ctrl-C")
            await check_over(sessions["interrupted"])
            for run_id in sessions:
                if run_id == "dead":
                    await process.die()
                await other.do("cancel", run_id, "it costs too much")
                await self._check_cancelled(store, run_id)
            check_same("the questions that wait", list(await other.do("pending")), [])

    @clause("C18")
    async def test_c18_a_living_run_is_told(self) -> None:
        """Once, with the reason. The run then ends by itself."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session, kept = await process.begin(), Served(await process.begin("kept"), "kept")
            served = Served(session)
            await other.do("cancel", "r", "it costs too much")
            told = await served.told(served.cancelled, self.patience)
            assert told == ["it costs too much"], f"`on_cancel` was called with {told} in {self.patience:g} s"
            check_same("what `on_cancel` was called with", kept.cancelled, [])
            check_same("what `on_lost` was called with", served.lost, [])
            session.put("last", True)
            session.end(result_of("r", TeamStatus.CANCELLED))
            await session.written()
            check_same("what `on_cancel` was called with", served.cancelled, ["it costs too much"])
            check_same("the result", await other.do("result", "r"), result_of("r", TeamStatus.CANCELLED))
            await self._check_cancelled(store, "r")

    @clause("C18")
    async def test_c18_a_run_is_told_that_was_cancelled_before_it_was_served(self) -> None:
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            await other.do("cancel", "r", "it costs too much")
            served = Served(session)
            told = await served.told(served.cancelled, self.patience)
            check_same("what `on_cancel` was called with", told, ["it costs too much"])

    @clause("C18")
    async def test_c18_a_cancelled_run_does_not_go_on_when_its_process_dies(self) -> None:
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            Served(await process.begin())
            await other.do("cancel", "r", "it costs too much")
            await process.die()
            await self._check_cancelled(store, "r")

    @clause("C18")
    async def test_c18_what_is_unknown_or_has_ended_cannot_be_cancelled(self) -> None:
        """And its result stays."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.end(result_of("r", TeamStatus.COMPLETED))
            await session.written()
            with pytest.raises(RunFinished):
                await other.do("cancel", "r")
            with pytest.raises(RunNotFound):
                await other.do("cancel", "unknown")
            check_same("the result", await other.do("result", "r"), result_of("r", TeamStatus.COMPLETED))

    # ------------------------------------------------------------------ events

    @clause("C19", needs="keeps_events")
    async def test_c19_every_event_is_there_once_in_order(self) -> None:
        """Events of several sessions; each record comes with the events up to the run's progress."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            served = Served(session)
            for number in range(5):
                served.emit(7)
                session.put(f"step:{number}", number)
            await send(session)
            await process.die()
            process = await store.process()
            run = (await process.recover())["r"]
            assert run.seq == 35, f"35 events were recorded, and the run resumes after number {run.seq}"
            served = Served(run.journal, seq=run.seq)
            served.emit(10)
            run.journal.end(result_of("r", TeamStatus.COMPLETED))
            await run.journal.written()
            other = await store.process()
            wanted = tuple(event_of("r", seq) for seq in range(1, 46))
            for after in (0, 1, 34, 35, 40, 45, 99):
                found = await other.do("events_after", "r", after)
                assert tuple(found) == wanted[after:], f"after {after} there are {[one.seq for one in found]}"
            with pytest.raises(RunNotFound):
                await other.do("events_after", "unknown")

    @clause("C19", needs="keeps_events")
    async def test_c19_events_are_in_the_order_of_their_numbers_and_whole(self) -> None:
        """Although the clock went back, and one is longer than a page of any store; also for who read before."""
        async with self.store() as store:
            process, reader = await store.process(), await store.process()
            served = Served(await process.begin())
            check_same("the events", tuple(await reader.do("events_after", "r")), ())
            texts = ("\u00e9 e\u0301", "\u6f6e\U0001f319" * 60_000, "", "a\r\nb\u2028c\0\x1e", "last")
            written = [_dated(number, text) for number, text in enumerate(texts, 1)]
            for number, event in enumerate(written, 1):
                served.give(event)
                served.session.put(f"step:{number}", number)
                await served.session.written()
                found = tuple(await reader.do("events_after", "r"))
                check_same("the events", [one.seq for one in found], list(range(1, number + 1)))
            served.session.end(result_of("r", TeamStatus.COMPLETED))
            await served.session.written()
            await process.die()
            found = tuple(await reader.do("events_after", "r"))
            for event, there in zip(written, found, strict=True):
                assert there == event, f"event {event.seq} is {_told(there)}, and it was {_told(event)}"

    @clause("C19", needs="keeps_events")
    async def test_c19_a_death_leaves_the_first_events_without_a_gap(self) -> None:
        """The recovered run continues with the next number; each run has its own numbers."""
        async with self.store() as store:
            process = await store.process()
            served = {run_id: Served(await process.begin(run_id), run_id) for run_id in ("r", "other")}
            with _threads_in_turns():
                for number in range(300):
                    for one in served.values():
                        one.emit(3)
                    for one in served.values():
                        one.session.put(f"step:{number}", number)
                    await anyio.lowlevel.checkpoint()
            await process.die()
            other = await store.process()
            for run_id in served:
                run = (await other.recover(run_id))[run_id]
                found = tuple(await other.do("events_after", run_id))
                check_same("what was found", found, tuple(event_of(run_id, seq) for seq in range(1, run.seq + 1)))
                ahead = run.seq - 3 * len(run.steps)
                assert ahead in (0, 3), f"{len(run.steps)} steps are there, each with 3 events, and {run.seq} events"

    @clause("C8", "C19", needs="keeps_events")
    async def test_c19_events_of_a_session_that_is_over_are_not_there(self) -> None:
        """Nor are they between the events of the next session."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            first = Served(session)
            first.emit(2)
            await send(session)
            run = (await store.taken())["r"]
            first.emit(3)
            session.put("late", True)
            second = Served(run.journal, seq=run.seq)
            second.emit(1)
            await send(run.journal)
            found = await process.do("events_after", "r")
            assert [one.seq for one in found] == [1, 2, 3], f"there are events {[one.seq for one in found]}"

    # ------------------------------------------------------------------ shared

    async def _check_cancelled(self, store: Store, run_id: str) -> None:
        process = await store.process()
        for take_over in (False, True):
            with pytest.raises(RunFinished):
                await process.recover(run_id, take_over=take_over)
        with pytest.raises(RunFinished):
            await process.do("cancel", run_id)


@contextmanager
def _threads_in_turns() -> Generator[None]:
    """Let threads run in turns of a microsecond: else a journal's thread seldom writes while the run goes on."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _dated(number: int, text: str) -> AttemptProgress:
    """Make an event of an hour before the event before it."""
    event = event_of("r", number)
    assert isinstance(event, AttemptProgress)
    return replace(event, text=text, at=event.at - timedelta(hours=number))


def _told(event: Any) -> str:
    return f"{len(event.text)} characters {event.text!r:.60} of {event.at:%H:%M}"
