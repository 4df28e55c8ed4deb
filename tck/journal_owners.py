"""The owner of a run: the process that began it, one process at a time, and after a take-over only the new one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kairo_team.contracts import RunJournal
from kairo_team.errors import JournalError, Misuse, RunExists, RunFinished, RunNotFound
from kairo_team.recorded import Place
from kairo_team.results import TeamStatus
from kairo_team.tck.calls import at_once, result_or_error
from kairo_team.tck.journal_stage import (
    DIGESTS,
    STEP,
    USED,
    JournalStage,
    Process,
    Served,
    check_same,
    question_of,
    request_of,
    result_of,
    send,
)
from kairo_team.tck.kit import clause

ENDS = (TeamStatus.COMPLETED, TeamStatus.DEGRADED, TeamStatus.FAILED, TeamStatus.TIMEOUT, TeamStatus.CANCELLED)


class OwnerTests(JournalStage):
    """C1, C7 to C9."""

    @clause("C1")
    async def test_c01_a_run_is_there_when_begin_returns(self) -> None:
        async with self.store() as store:
            process, place = await store.process(), Place("outer", STEP, "group")
            await process.begin("outer")
            await process.begin("r", place)
            await process.die()
            other = await store.process()
            check_same("the digests", dict(await other.do("digests", "r")), DIGESTS)
            found = await other.recover("outer")
            check_same("the runs", {*found}, {"outer", "r"})
            run = found["r"]
            check_same("the request", run.request, request_of("r"))
            check_same("where it is made", run.place, place)
            check_same("its steps and calls, and its last event", (len(run.steps), len(run.calls), run.seq), (0, 0, 0))

    @clause("C1")
    async def test_c01_an_id_is_used_once(self) -> None:
        """An id is refused in this and other processes, also after the run has ended or its process has died."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.put("plan:1", "a plan")
            for one in (process, other):
                with pytest.raises(RunExists):
                    await one.begin()
            await session.written()
            await process.die()
            with pytest.raises(RunExists):
                await other.begin()
            run = (await other.recover())["r"]
            assert run.steps == {"plan:1": "a plan"}, (
                "a second run of that id was refused, and the first one has changed"
            )
            run.journal.end(result_of("r", TeamStatus.COMPLETED))
            await run.journal.written()
            with pytest.raises(RunExists):
                await other.begin()

    @clause("C1")
    async def test_c01_of_several_that_begin_at_once_one_gets_the_run(self) -> None:
        async with self.store() as store:
            processes = [await store.process() for _ in range(3)]
            found = await at_once([partial(result_or_error, one.begin) for one in processes * 2])
            refused = [one for one in found if isinstance(one, RunExists)]
            assert len(refused) == len(found) - 1, (
                f"{len(found)} began one run at once, and {len(refused)} were refused"
            )

    # ------------------------------------------------------------------ one owner

    @clause("C7")
    async def test_c07_a_run_of_a_living_process_is_not_given_to_another(self) -> None:
        """Not even to the same process; the attempt does not harm the run."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            await send(session)
            for one in (other, process):
                with pytest.raises(Misuse):
                    await one.recover()
            session.put("plan:1", "a plan")
            await send(session)
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"plan:1": "a plan"})
            check_same("the calls", len(run.calls), 2)

    @clause("C7")
    async def test_c07_a_run_of_a_dead_process_is_free_at_once(self) -> None:
        """While other processes live; a recovered run has one owner again."""
        async with self.store() as store:
            process, other, third = [await store.process() for _ in range(3)]
            await process.begin()
            await other.begin("other")
            await process.die()
            await other.recover()
            with pytest.raises(Misuse):
                await third.recover()
            await other.die()
            check_same("the runs", set(await third.recover()), {"r"})

    @clause("C7")
    async def test_c07_a_run_that_is_unknown_or_has_ended_cannot_go_on(self) -> None:
        """Whether its process is alive or dead, and also with `take_over`."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            for name in ("recover", "digests"):
                with pytest.raises(RunNotFound):
                    await other.do(name, "unknown")
            for status in ENDS:
                session = await process.begin(status)
                session.end(result_of(status, status))
                await session.written()
                await _check_finished(other, status)
            await process.die()
            for status in ENDS:
                await _check_finished(other, status)

    @clause("C7")
    async def test_c07_a_suspended_run_is_nobodys(self) -> None:
        """Another process may resume it, although its process is alive."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.put("plan:1", "a plan")
            session.end(result_of("r", TeamStatus.SUSPENDED))
            await session.written()
            run = (await other.recover())["r"]
            check_same("the steps", run.steps, {"plan:1": "a plan"})
            with pytest.raises(Misuse):
                await process.recover()

    # ------------------------------------------------------------------ after a take-over

    @clause("C8")
    async def test_c08_after_a_take_over_the_earlier_session_is_over(self) -> None:
        """The earlier session records nothing more, and every method raises."""
        async with self.store() as store:
            session = await (await store.process()).begin()
            session.put("plan:1", "a plan")
            number = await send(session)
            taken = (await store.taken())["r"].journal
            _try_all(session, number)
            await check_over(session)
            taken.put("plan:2", "another plan")
            await send(taken)
            _try_all(session, number)
            await check_over(session)
            run = (await store.taken())["r"]
            assert run.steps == {"plan:1": "a plan", "plan:2": "another plan"}, f"recorded is {run.steps}"
            assert [one.state for one in run.calls] == ["sent", "sent"], f"recorded are {run.calls}"
            check_same("`interrupted`", session.interrupted, False)
            check_same("the questions, with their answers", list(run.questions), [])

    @clause("C8")
    async def test_c08_what_it_was_recording_then_is_there_whole_or_not_at_all(self) -> None:
        """No record of the earlier session comes later, between the records of the next one."""
        async with self.store() as store:
            session = await (await store.process()).begin()
            for number in range(200):
                session.put(f"step:{number}", number)
            other = await store.process()
            found = (await other.recover(take_over=True))["r"]
            session.put("late", True)
            await check_over(session)
            found.journal.put("mine", True)
            await found.journal.written()
            now = (await store.after(other))["r"].steps
            assert list(now) == [*found.steps, "mine"], f"recovered were {len(found.steps)} steps, and now {len(now)}"

    @clause("C8")
    async def test_c08_who_has_lost_a_run_is_told(self) -> None:
        """Even if it records nothing for a while; sessions of other runs are not called."""
        async with self.store() as store:
            process = await store.process()
            lost, other = Served(await process.begin()), Served(await process.begin("other"), "other")
            await store.taken()
            told = await lost.told(lost.lost, self.patience)
            assert told, f"the run was taken over, and `on_lost` was not called in {self.patience:g} s"
            assert all(isinstance(error, JournalError) for error in told), f"`on_lost` was called with {told}"
            check_same("what `on_lost` was called with", other.lost, [])

    @clause("C8")
    async def test_c08_sessions_of_runs_inside_are_over_too(self) -> None:
        async with self.store() as store:
            process = await store.process()
            await process.begin()
            inner = await process.begin("r.1", Place("r", STEP, "group"))
            await send(inner)
            await store.taken()
            inner.put("late", True)
            await check_over(inner)
            check_same("the steps", (await store.taken())["r.1"].steps, {})

    @clause("C8")
    async def test_c08_no_run_begins_inside_it(self) -> None:
        """The new owner would not know of the inner run and its spending."""
        async with self.store() as store:
            process = await store.process()
            await process.begin()
            await store.taken()
            with pytest.raises(JournalError):
                await process.begin("r.1", Place("r", STEP, "group"))
            check_same("the runs", [*await store.taken()], ["r"])

    @clause("C8")
    async def test_c08_a_process_that_takes_its_run_back_does_not_revive_its_session(self) -> None:
        async with self.store() as store:
            process = await store.process()
            first = await process.begin()
            await store.taken()
            second = (await process.recover(take_over=True))["r"].journal
            first.put("late", True)
            await check_over(first)
            second.put("new", True)
            await second.written()
            check_same("the steps", (await store.after(process))["r"].steps, {"new": True})

    @clause("C8")
    async def test_c08_other_runs_of_the_process_go_on(self) -> None:
        async with self.store() as store:
            process = await store.process()
            lost, kept = await process.begin(), await process.begin("kept")
            await store.taken()
            await check_over(lost)
            kept.put("plan:1", "a plan")
            await send(kept)
            run = (await store.after(process, "kept"))["kept"]
            check_same("the steps", run.steps, {"plan:1": "a plan"})
            check_same("the calls", len(run.calls), 1)

    # ------------------------------------------------------------------ failures

    @clause("C9", needs="can_fail")
    async def test_c09_a_journal_that_fails_says_so_and_records_nothing_more(self) -> None:
        """Every method raises, every time; earlier records are still there."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            session.put("plan:1", "a plan")
            number = await send(session)
            await process.lose_its_disk()
            _try_all(session, number)
            await check_over(session)
            await check_over(session)
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"plan:1": "a plan"})
            check_same("the calls", [one.state for one in run.calls], ["sent"])

    @clause("C9", needs="can_fail")
    async def test_c09_every_session_of_it_is_told(self) -> None:
        async with self.store() as store:
            process = await store.process()
            sessions = [await process.begin(), await process.begin("second")]
            await process.lose_its_disk()
            for session in sessions:
                await check_over(session)

    @clause("C9", needs="can_fail")
    async def test_c09_other_processes_are_well(self) -> None:
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await process.begin()
            session = await other.begin("other")
            await process.lose_its_disk()
            await send(session)
            check_same("the calls", len((await store.after(other, "other"))["other"].calls), 1)


async def _check_finished(process: Process, run_id: str) -> None:
    for take_over in (False, True):
        with pytest.raises(RunFinished):
            await process.recover(run_id, take_over=take_over)


def _try_all(session: RunJournal, number: int) -> None:
    """Make one record of each kind that does not wait."""
    session.put("late", True)
    session.put("plan:1", "a late plan")
    session.put_answer("late:answer", "an answer", number, USED)
    session.ended(number, "failed", USED)
    session.keep_open(replace(question_of("r"), text="May it, so late?"))
    session.end(result_of("r", TeamStatus.COMPLETED))


async def check_over(session: RunJournal) -> None:
    """Fail unless `sent` and `written` of a session raise a `JournalError`."""
    for name, call in (("sent", lambda: send(session)), ("written", session.written)):
        try:
            await call()
        except JournalError:
            continue
        pytest.fail(f"nothing more can be recorded, and `{name}` returned as if it were")
