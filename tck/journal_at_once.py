"""Many sessions at once, in one process and in several, and the effect of a cancellation."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import anyio

from kairo_team.budget import Usage
from kairo_team.contracts import RunJournal
from kairo_team.tck.calls import at_once
from kairo_team.tck.journal_stage import USED, JournalStage, Served, check_same, question_of, send
from kairo_team.tck.kit import clause

RUNS: Final = 4
TASKS: Final = 6
CALLS: Final = 4
"""Calls of each task, in sequence."""
LIKE_IT: Final = ("r", "R", "r.", "r.1", "r-", "r_", "rr", *(f"{'r' * 600}{end}" for end in ("", "1", "2")))
"""Ids of runs that only a careless comparison takes for each other."""


class AtOnceTests(JournalStage):
    """C12, C13."""

    @clause("C12")
    async def test_c12_runs_do_not_share_what_has_one_name(self) -> None:
        """Keys, call numbers, answers to questions and progress are separate."""
        async with self.store() as store:
            process = await store.process()
            one, two = await process.begin("one"), await process.begin("two")
            for tokens, name, session in ((1, "one", one), (2, "two", two)):
                Served(session, name, seconds=float(tokens)).emit(tokens)
                session.put("plan:1", tokens)
                session.ended(await send(session), "failed", Usage(tokens))
                await session.written()
            check_same("what the session has", (one.get("plan:1", None), two.get("plan:1", None)), (1, 2))
            await process.die()
            other = await store.process()
            for tokens, name in ((1, "one"), (2, "two")):
                run = (await other.recover(name))[name]
                check_same("the steps", run.steps, {"plan:1": tokens})
                check_same("the calls", [call.usage.tokens for call in run.calls], [tokens])
                check_same("its seconds and its last event", (run.seconds, run.seq), (float(tokens), tokens))

    @clause("C12")
    async def test_c12_runs_with_ids_that_are_alike_are_kept_apart(self) -> None:
        async with self.store() as store:
            process = await store.process()
            for number, run_id in enumerate(LIKE_IT):
                served = Served(await process.begin(run_id), run_id)
                served.emit(number)
                served.session.put("plan:1", number)
                await send(served.session, key=f"call:{number}")
                served.session.keep_open(question_of(run_id))
                await served.session.written()
            await process.die()
            other = await store.process()
            for number, run_id in enumerate(LIKE_IT):
                name = f"{run_id!r:.20}"
                waiting = [one.id for one in await other.do("pending", run_id)]
                check_same(f"the questions of {name}", waiting, [question_of(run_id).id])
                found = await other.recover(run_id)
                check_same(f"the runs inside {name}", [*found], [run_id])
                run = found[run_id]
                check_same(f"the steps of {name}", dict(run.steps), {"plan:1": number})
                check_same(f"the calls of {name}", [one.key for one in run.calls], [f"call:{number}"])
                check_same(f"the last event of {name}", run.seq, number)

    @clause("C12")
    async def test_c12_many_sessions_at_once(self) -> None:
        """With two processes, every call of every task is recorded once, with its own end."""
        async with self.store() as store:
            processes = [await store.process(), await store.process()]
            sessions = {f"r{n}": await processes[n % 2].begin(f"r{n}") for n in range(RUNS)}
            work = [partial(_work, session, task) for session in sessions.values() for task in range(TASKS)]
            numbers = await at_once(work)
            for run in range(RUNS):
                of_run = [number for task in numbers[run * TASKS : (run + 1) * TASKS] for number in task]
                assert len({*of_run}) == TASKS * CALLS, f"two calls of a session have one number: {sorted(of_run)}"
            for process in processes:
                await process.die()
            other = await store.process()
            for run_id in sessions:
                found = (await other.recover(run_id))[run_id]
                wanted = {f"call:{task}:{call}": [task, call] for task in range(TASKS) for call in range(CALLS)}
                assert found.steps == wanted, f"{len(found.steps)} of {len(wanted)} answers are there"
                ends = sorted((call.step, call.usage.tokens) for call in found.calls)
                check_same(
                    "the ends of the calls",
                    ends,
                    sorted((f"attempt:{t}", 100 * t + c) for t in range(TASKS) for c in range(CALLS)),
                )
                check_same("the calls", {call.state for call in found.calls}, {"answered"})

    @clause("C13")
    async def test_c13_a_call_that_is_cancelled_is_not_in_doubt(self) -> None:
        """The cancellation passes through, and nothing before or after it is lost."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            session.put("before", True)
            cancelled = await _cancelled(lambda: send(session, step="cancelled"))
            session.put("after", True)
            number = await send(session, step="next")
            session.ended(number, "failed", USED)
            await session.written()
            run = (await store.after(process))["r"]
            check_same("the steps", run.steps, {"before": True, "after": True})
            states = {call.step: call.state for call in run.calls}
            check_same("the state of the next call", states.pop("next"), "failed")
            fine = {"unsent"} if cancelled else {"sent"}
            assert set(states.values()) <= fine, f"a call was cancelled before it was sent, and is {states}"

    @clause("C13")
    async def test_c13_who_does_not_wait_for_it_loses_nothing(self) -> None:
        """If a caller that waits for a record is cancelled, the record is written, and other callers keep waiting."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for number in range(20):
                session.put(f"step:{number}", number)
                await _cancelled(session.written)
            async with anyio.create_task_group() as group:
                group.start_soon(session.written)
                await _cancelled(session.written)
            await session.written()
            check_same("the steps", len((await store.after(process))["r"].steps), 20)


async def _work(session: RunJournal, task: int) -> list[int]:
    """Make the calls of a task; return their numbers."""
    numbers: list[int] = []
    for call in range(CALLS):
        numbers.append(await send(session, step=f"attempt:{task}"))
        session.put_answer(f"call:{task}:{call}", [task, call], numbers[-1], Usage(100 * task + call))
        await session.written()
    return numbers


async def _cancelled(call: Any) -> bool:
    """Make a call in a cancelled scope; return whether the cancellation ended it."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call()
    return scope.cancelled_caught
