"""What a journal may offer beyond its runs: lists of runs and calls, runs that are forgotten, and forks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from kairo_team.budget import Usage
from kairo_team.errors import JournalError, Misuse, RunExists, RunNotFound
from kairo_team.human import HumanDecision
from kairo_team.recorded import Place, RecordedCall, RecordedRun
from kairo_team.results import TeamStatus
from kairo_team.tck.calls import result_or_error, skip_unless
from kairo_team.tck.journal_at_once import LIKE_IT
from kairo_team.tck.journal_owners import check_over
from kairo_team.tck.journal_stage import (
    HELD,
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
    team_of,
)
from kairo_team.tck.kit import clause


class ViewTests(JournalStage):
    """C20 to C23."""

    # ------------------------------------------------------------------ runs

    @clause("C20")
    async def test_c20_every_process_lists_the_runs_the_newest_first(self) -> None:
        """Runs inside others are not in the list, and `show` shows them too."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await process.begin("old")
            await other.begin("new")
            await process.begin("inside", Place("old", STEP, "group"))
            for seen_by in (process, other):
                runs: Sequence[RecordedRun] = await seen_by.do("runs")
                check_same("the runs", [one.run_id for one in runs], ["new", "old"])
                for one in runs:
                    goal = request_of(one.run_id).goal
                    wanted = (team_of().name, goal, "running", None)
                    check_same("a run", (one.team, one.goal, one.state, one.parent), wanted)
                    check_same("what `show` shows", (await seen_by.do("show", one.run_id)).run_id, one.run_id)
                check_same("the run around it", (await seen_by.do("show", "inside")).parent, "old")
                with pytest.raises(RunNotFound):
                    await seen_by.do("show", "unknown")

    @clause("C20")
    async def test_c20_a_run_is_shown_in_the_state_that_it_has_now(self) -> None:
        """Also by a process that has read an earlier one; the process of an interrupted run is dead."""
        async with self.store() as store:
            process, other, reader = [await store.process() for _ in range(3)]
            await process.begin("dead")
            sessions = {name: await other.begin(name) for name in ("suspended", "completed", "stopped", "cancelled")}
            check_same("the states", {one.state for one in await reader.do("runs")}, {"running"})
            for status in (TeamStatus.SUSPENDED, TeamStatus.COMPLETED):
                sessions[status].end(result_of(status, status))
                await sessions[status].written()
            sessions["stopped"].interrupt("somebody pressed Ctrl-C")
            await check_over(sessions["stopped"])
            sessions["cancelled"].interrupt("somebody pressed Ctrl-C")
            await check_over(sessions["cancelled"])
            await reader.do("cancel", "cancelled")
            await process.die()
            wanted = {name: name for name in ("suspended", "completed", "cancelled")}
            wanted |= {"dead": "interrupted", "stopped": "interrupted"}
            check_same("the states", {one.run_id: one.state for one in await reader.do("runs")}, wanted)
            for name, state in wanted.items():
                check_same(f"the state of {name!r}", (await reader.do("show", name)).state, state)
                chosen = {one.run_id for one in await reader.do("runs", state=state)}
                check_same(f"the runs that are {state}", chosen, {one for one in wanted if wanted[one] == state})
            check_same("the runs of its team", len(await reader.do("runs", team=team_of().name)), len(wanted))
            check_same("the runs of another team", list(await reader.do("runs", team="nobody")), [])

    @clause("C20", "C21")
    async def test_c20_what_a_run_has_used_is_what_its_calls_have(self) -> None:
        """A call that is under way is held, and it is used in full once its process is dead."""
        async with self.store() as store:
            process, reader = await store.process(), await store.process()
            session = await process.begin()
            session.ended(await send(session), "failed", USED)
            await session.written()
            check_same("the tokens used", (await reader.do("show", "r")).usage.tokens, USED.tokens)
            await send(session)
            now: RecordedRun = await reader.do("show", "r")
            check_same("the tokens used and held", now.usage.tokens + now.held.tokens, USED.tokens + HELD.tokens)
            await process.die()
            now = await reader.do("show", "r")
            check_same("the tokens used", now.usage.tokens, USED.tokens + HELD.tokens)
            charged = sum(one.usage.tokens for one in await reader.do("calls", "r"))
            check_same("the tokens of its calls", charged, now.usage.tokens)

    # ------------------------------------------------------------------ calls

    @clause("C21")
    async def test_c21_calls_are_listed_as_they_are_recovered(self) -> None:
        """With the calls of runs inside, in one order; a reader sees each call sent since."""
        async with self.store() as store:
            process, reader = await store.process(), await store.process()
            outer = await process.begin()
            inner = await process.begin("r.1", Place("r", STEP, "group"))
            alien = await process.begin("rr")
            check_same("the calls", list(await reader.do("calls", "r")), [])
            for number, session in enumerate((outer, inner, alien, outer, inner)):
                sent = await send(session, key=f"call:{number}")
                if number == 1:
                    session.put_answer("call:1", "an answer", sent, USED)
                    await session.written()
            await process.die()
            found: Sequence[RecordedCall] = await reader.do("calls", "r")
            keys = [(one.run_id, one.key) for one in found]
            check_same("the calls", keys, [("r", "call:0"), ("r.1", "call:1"), ("r", "call:3"), ("r.1", "call:4")])
            again = await store.process()
            runs = await again.recover()
            for run_id, run in runs.items():
                mine = [_told(one) for one in found if one.run_id == run_id]
                check_same("the calls", mine, [_told(one) for one in run.calls])
            check_same("the calls", [one.key for one in await reader.do("calls", "r.1")], ["call:1", "call:4"])
            with pytest.raises(RunNotFound):
                await reader.do("calls", "unknown")

    # ------------------------------------------------------------------ forget

    @clause("C22")
    async def test_c22_nothing_of_a_forgotten_run_is_left(self) -> None:
        """Nor of a run inside it: a new run of its id begins with nothing, and its questions do not wait."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            for run_id, place in (("r", None), ("r.1", Place("r", STEP, "group"))):
                await _fill(process, run_id, place)
            await process.die()
            await other.do("forget", "r")
            check_same("the questions that wait", list(await other.do("pending")), [])
            for name in ("digests", "recover", "result", "events_after", "pending", "cancel", "forget"):
                for run_id in ("r", "r.1"):
                    with pytest.raises(RunNotFound):
                        await other.do(name, run_id)
            for run_id in ("r", "r.1"):
                session = await other.begin(run_id)
                session.keep_open(question_of(run_id))
                await session.written()
                check_same("its answer", await other.do("answer_to", question_of(run_id)), None)
                check_same("the events", list(await other.do("events_after", run_id)), [])
            await other.die()
            for run_id in ("r", "r.1"):
                run = (await (await store.process()).recover(run_id))[run_id]
                left = (len(run.steps), len(run.calls), run.seq, [one.decision for one in run.questions])
                check_same("the steps, calls, events and answers of a new run", left, (0, 0, 0, [None]))

    @clause("C22")
    async def test_c22_other_runs_keep_what_is_theirs(self) -> None:
        """However like their ids are; their living sessions record more."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await _fill(process, "r")
            await process.die()
            alike = [run_id for run_id in LIKE_IT if run_id != "r"]
            sessions = {run_id: await _fill(other, run_id) for run_id in alike}
            check_same("the number of forgotten runs", await other.do("forget", "r"), 1)
            for run_id, session in sessions.items():
                await send(session.session, key="call:after")
                waiting = [one.id for one in await other.do("pending", run_id)]
                check_same("the questions that wait", waiting, [f"{run_id}:human:2"])
            third = await store.process()
            await other.die()
            for run_id in alike:
                run = (await third.recover(run_id))[run_id]
                check_same(f"the steps of {run_id!r:.20}", dict(run.steps), {"plan:1": run_id, "call:1": "an answer"})
                check_same("the calls", [one.key for one in run.calls], ["call:1", "call:after"])

    @clause("C22")
    async def test_c22_a_run_of_a_living_process_is_not_forgotten(self) -> None:
        """And of the old ones, those that have ended."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            ended, waits = await process.begin("ended"), await process.begin("waits")
            for one, status in ((ended, TeamStatus.FAILED), (waits, TeamStatus.SUSPENDED)):
                one.end(result_of(str(status), status))
                await one.written()
            with pytest.raises(Misuse):
                await other.do("forget", "r")
            check_same("the number of forgotten runs", await other.do("forget", older_than=3600.0), 0)
            check_same("the number of forgotten runs", await other.do("forget", older_than=-1.0), 1)
            with pytest.raises(RunNotFound):
                await process.do("digests", "ended")
            session.put("plan:1", "a plan")
            await send(session)
            check_same("the steps", (await store.after(process))["r"].steps, {"plan:1": "a plan"})
            await (await store.process()).recover("waits")

    @clause("C8", "C22")
    async def test_c22_a_session_of_a_forgotten_run_records_nothing(self) -> None:
        """The run was interrupted, and a new run has its id."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.interrupt("somebody pressed Ctrl-C")
            await check_over(session)
            await other.do("forget", "r")
            again = await other.begin()
            session.put("late", True)
            with pytest.raises(JournalError):
                await session.written()
            again.put("new", True)
            await again.written()
            check_same("the steps", (await store.after(other))["r"].steps, {"new": True})

    # ------------------------------------------------------------------ fork

    @clause("C23")
    async def test_c23_a_fork_has_all_up_to_an_event_and_then_its_own(self) -> None:
        """The earlier run stays as it is."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await _in_three_steps(process)
            with pytest.raises(Misuse):
                await other.do("fork", "r", before=4)
            await process.die()
            made = await other.do("fork", "r", before=4, new_id="made")
            check_same("the id of the fork", made, "made")
            for name in ("made", "r"):
                with pytest.raises(RunExists):
                    await other.do("fork", "r", before=4, new_id=name)
            forked, first = (await other.recover("made"))["made"], (await other.recover("r"))["r"]
            check_same("the id in its request", forked.request.run_id, "made")
            check_same("the steps of the fork", dict(forked.steps), {"step:1": 1, "step:2": 2})
            check_same("the steps of the run", dict(first.steps), {"step:1": 1, "step:2": 2, "step:3": 3})
            forked.journal.put("step:2", "of the fork")
            first.journal.put("step:1", "of the run")
            await send(forked.journal, key="call:of the fork")
            await first.journal.written()
            await other.die()
            third = await store.process()
            forked, first = (await third.recover("made"))["made"], (await third.recover("r"))["r"]
            check_same("the steps of the fork", dict(forked.steps), {"step:1": 1, "step:2": "of the fork"})
            steps = {"step:1": "of the run", "step:2": 2, "step:3": 3}
            check_same("the steps of the run", dict(first.steps), steps)
            check_same("the calls of the run", [one.key for one in first.calls], ["call:1", "call:2", "call:3"])
            check_same(
                "the calls of the fork", [one.key for one in forked.calls], ["call:1", "call:2", "call:of the fork"]
            )

    @clause("C23")
    async def test_c23_two_forks_share_nothing(self) -> None:
        """Each has an id of its own, unless one is given; one is forgotten, and the other is there."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await _in_three_steps(process)
            await process.die()
            with pytest.raises(RunNotFound):
                await other.do("fork", "unknown", before=0)
            refused = await result_or_error(partial(other.do, "fork", "r", before=99))
            assert isinstance(refused, ValueError), f"the run has six events, and for event 99 `fork` said {refused!r}"
            one, two = [await other.do("fork", "r", before=6) for _ in range(2)]
            assert len({"r", one, two}) == 3, f"two forks of 'r' have the ids {one!r} and {two!r}"
            skip_unless(hasattr(other.journal, "forget"), "the journal has no `forget`")
            await other.do("forget", one)
            for left in ("r", two):
                run = (await other.recover(left))[left]
                check_same("the steps", dict(run.steps), {"step:1": 1, "step:2": 2, "step:3": 3})
                check_same("the calls", [call.key for call in run.calls], ["call:1", "call:2", "call:3"])


async def _fill(process: Process, run_id: str, place: Place | None = None) -> Served:
    """Begin a run, and make a record of each kind."""
    served = Served(await process.begin(run_id, place), run_id)
    session = served.session
    served.emit(2)
    session.put("plan:1", run_id)
    session.put_answer("call:1", "an answer", await send(session, key="call:1"), Usage(3))
    for number in (1, 2):
        session.keep_open(question_of(run_id, number))
    await session.written()
    await process.do("answer", f"{run_id}:human:1", HumanDecision.approve("well done"))
    return served


async def _in_three_steps(process: Process) -> None:
    """Begin a run: each step and each call is recorded before its event."""
    served = Served(await process.begin())
    for number in (1, 2, 3):
        served.session.put(f"step:{number}", number)
        served.emit(1)
        sent = await send(served.session, key=f"call:{number}")
        served.emit(1)
        served.session.ended(sent, "failed", USED)
        await served.session.written()


def _told(call: RecordedCall) -> tuple[Any, ...]:
    return call.what, call.name, call.task_id, call.member, call.state, call.usage, call.step, call.key, call.loops
