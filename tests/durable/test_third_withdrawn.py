"""A question of work that has ended is withdrawn with it, and a late answer is refused with why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.errors import NoQuestion
from kairo_team.gates import JournalGate
from kairo_team.testing import EventRecorder, MemoryJournal
from tests.human import AsksFirst, LeavesOpen

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

RUN = "r"
APPROVE = kt.HumanDecision.approve()


@kt.tool(side_effect="write")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def buy(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.tool(pay).call({"amount": 5})).text


async def write(assignment: kt.Assignment) -> str:
    return "a letter"


def buyers() -> kt.Team:
    return kt.Team("till", [kt.Member("clerk", buy)], permissions=kt.ToolPermissions(guard=AsksFirst("pay")))


def group() -> kt.Team:
    plan = kt.TaskGraph([kt.Task("b", "Buy it.")])
    return kt.Team("outer", [kt.Member("group", TeamAgent(buyers(), plan=plan))])


def in_memory(_folder: Path) -> Any:
    return MemoryJournal()


def on_disk(folder: Path) -> Any:
    return kt.SqliteJournal(folder / "runs.db")


JOURNALS = pytest.mark.parametrize("make", [in_memory, on_disk])


async def asked(journal: Any) -> kt.HumanRequest:
    """Wait until a person is asked."""
    found: tuple[kt.HumanRequest, ...] = ()
    with anyio.fail_after(60):
        while not found:
            await anyio.sleep(0.01)
            found = journal.pending()
    return found[0]


def close(journal: Any) -> None:
    if isinstance(journal, kt.SqliteJournal):
        journal.close()


@JOURNALS
@pytest.mark.parametrize("team", [buyers, group])
async def test_third_o13_a_question_of_an_attempt_that_timed_out_is_withdrawn(
    team: Callable[[], kt.Team], make: Any, tmp_path: Path
) -> None:
    journal, seen, recorder = make(tmp_path), list[kt.HumanRequest](), EventRecorder()
    runtime = kt.Runtime(journal=journal, gate=JournalGate(journal), subscribers=[recorder])
    plan = kt.TaskGraph([kt.Task("a", "do", timeout=0.5, retries=0), kt.Task("other", "do")])
    desk = team()
    desk = kt.Team(desk.name, [*desk.members, kt.Member("slow", never)], permissions=desk.permissions)
    plan = kt.TaskGraph([kt.Task("a", "do", member=desk.members[0].id, timeout=0.5, retries=0),
                         kt.Task("other", "do", member="slow")])  # fmt: skip
    async with runtime:
        run = await runtime.start(desk, "Go.", plan=plan, run_id=RUN)
        seen.append(await asked(journal))
        async for event in run.events():
            if isinstance(event, events.TaskFailed):
                break
        with anyio.fail_after(60):
            while journal.pending(RUN):
                await anyio.sleep(0.01)
        with pytest.raises(NoQuestion, match=r"takes no answer any more: .*has ended"):
            journal.answer(seen[0].id, APPROVE)
        run.cancel()
    decided = [one for one in recorder.events if isinstance(one, events.HumanDecided)]
    assert [(one.question_id, one.action) for one in decided] == [(seen[0].id, "withdrawn")]
    close(journal)


async def never(assignment: kt.Assignment) -> str:
    await anyio.sleep_forever()
    raise AssertionError


@JOURNALS
@pytest.mark.parametrize("end", ["the task", "the run", "a deadline"])
async def test_third_o13_a_question_about_an_artifact_is_withdrawn_with_its_task(
    end: str, make: Any, tmp_path: Path
) -> None:
    journal = make(tmp_path)
    team = kt.Team("desk", [kt.Member("clerk", write)], evaluators={"boss": LeavesOpen("a")})
    plan = kt.TaskGraph([kt.Task("a", "do", evaluator="boss")])
    config = kt.TeamConfig(budget=kt.Budget(seconds=1.0 if end == "a deadline" else None))
    async with kt.Runtime(journal=journal, gate=JournalGate(journal)) as runtime:
        run = await runtime.start(team, "Go.", plan=plan, config=config, run_id=RUN)
        question = await asked(journal)
        if end == "the task":
            run.cancel_task("a", "enough of it")
        elif end == "the run":
            run.cancel("enough of it")
        await run.result()
    assert journal.pending() == ()
    why = "the team's time budget|time_budget|deadline|timeout" if end == "a deadline" else "enough of it"
    with pytest.raises(NoQuestion, match=f"takes no answer any more: .*({why})"):
        journal.answer(question.id, APPROVE)
    close(journal)


@JOURNALS
async def test_third_o13_a_run_that_ends_while_it_waits_leaves_no_question(make: Any, tmp_path: Path) -> None:
    """Nor does the run inside it, which asked."""
    journal = make(tmp_path)
    runtime = kt.Runtime(journal=journal, gate=kt.DeferGate())
    result = await kt.run(group(), "Go.", plan=kt.TaskGraph([kt.Task("a", "do")]), run_id=RUN, runtime=runtime)
    assert result.status == "suspended"
    [question] = journal.pending(RUN)
    assert question.run_id != RUN
    journal.cancel(RUN)
    assert journal.pending() == ()
    with pytest.raises(NoQuestion):
        journal.answer(question.id, APPROVE)
    close(journal)


@JOURNALS
@pytest.mark.parametrize("team", [buyers, group])
async def test_third_o13_an_interrupted_run_still_needs_its_answers(
    team: Callable[[], kt.Team], make: Any, tmp_path: Path
) -> None:
    journal = make(tmp_path)
    plan = kt.TaskGraph([kt.Task("a", "do")])
    async with kt.Runtime(journal=journal, gate=JournalGate(journal)) as runtime:
        run = await runtime.start(team(), "Go.", plan=plan, run_id=RUN)
        question = await asked(journal)
        run.interrupt()
    assert journal.pending(RUN) == (question,)
    runtime = kt.Runtime(journal=journal, gate=JournalGate(journal))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.resume, RUN, team())
        await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()
    assert journal.pending(RUN) == (question,)
    journal.answer(question.id, APPROVE)
    result = await kt.Runtime(journal=journal, gate=kt.DeferGate()).resume(RUN, team())
    assert (result.status, result.output) == ("completed", "paid 5")
    assert journal.pending() == ()
    with pytest.raises(NoQuestion, match="answered"):
        journal.answer(question.id, APPROVE)
    close(journal)
