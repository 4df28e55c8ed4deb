"""What other processes see of a run, and what they may do to it: its events, its cancellation, its questions."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team._util.threads import run_in_thread
from kairo_team.engine.live.event_bus import discard_event
from kairo_team.engine.tasks import member_budgets as budget_split
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, FunctionModel
from tests.durable.desk import RUN, Images, Provider, begin, desk, go_on

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PLAN = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])


def request(**config: object) -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id="r", config=kt.TeamConfig(**config))  # type: ignore[arg-type]  # by name


async def quick(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(assignment.task.id)]))).text


class Slow:
    """Does its first task at once, and waits for ever in the second."""

    def __init__(self) -> None:
        self.waits = anyio.Event()

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        said = await quick(assignment, context)
        if assignment.task.id == "two":
            self.waits.set()
            await anyio.sleep_forever()
        return said


def runtime_of(journal: kt.SqliteJournal, **fields: object) -> tuple[kt.Runtime, list[str]]:
    """Return a runtime whose model notes what it is asked."""
    asked: list[str] = []

    def answer(request: kt.ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return "done"

    return kt.Runtime(journal=journal, models={"m:x": FunctionModel(answer)}, **fields), asked  # type: ignore[arg-type]  # by name


async def test_the_journal_has_every_event_in_order(tmp_path: Path) -> None:
    journal, recorder = kt.SqliteJournal(tmp_path / "runs.db"), EventRecorder()
    runtime, _ = runtime_of(journal, subscribers=[recorder])
    await kt.run(kt.Team("desk", [kt.Member("clerk", quick)]), request(), runtime=runtime)
    assert journal.events_after("r") == tuple(recorder.events)
    assert journal.events_after("r", 7) == tuple(recorder.events[7:])
    with pytest.raises(kt.RunNotFound):
        journal.events_after("another")
    journal.close()


async def test_an_event_that_has_its_number_and_is_told_later_is_written_later(tmp_path: Path) -> None:
    """A subscriber that emits, and a beat in another thread, see a number before its event was told."""
    journal, number = kt.SqliteJournal(tmp_path / "runs.db"), 0
    kept = journal.begin(request(), kt.Team("desk", [kt.Member("clerk", quick)]), {}, None)
    tell = kept.serve(lambda: (0.0, number), discard_event, discard_event)
    assert tell is not None
    for told in ([1], [2, 3], []):
        for seq in told:
            tell(kt.events.AttemptProgress("r", seq, datetime.now(UTC), "one", "clerk", "at work", {}))
        number = 3
        kept.put(f"step {told}", told)
        await kept.written()
    assert [event.seq for event in journal.events_after("r")] == [1, 2, 3]
    assert journal.recover("r", take_over=True)[0].seq == number
    journal.close()


async def test_events_of_a_cut_run_are_those_on_disk_and_go_on_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(tmp_path, monkeypatch)
    await begin(tmp_path / "runs.db", Provider())
    monkeypatch.undo()
    for path in images.paths[:: max(1, len(images.paths) // 6)]:
        journal = kt.SqliteJournal(path)
        if journal.show(RUN).state != "interrupted":
            continue
        before = journal.events_after(RUN)
        await go_on(path, Provider())
        events = journal.events_after(RUN)
        assert events[: len(before)] == before
        assert [one.seq for one in events] == list(range(1, len(events) + 1))
        ends = [one.task_id for one in events if isinstance(one, kt.events.TaskCompleted)]
        assert sorted(ends) == ["four", "one", "three", "two"]


async def test_no_events_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db", events=False)
    runtime, _ = runtime_of(journal)
    assert (
        await kt.run(kt.Team("desk", [kt.Member("clerk", quick)]), request(), runtime=runtime)
    ).status == "completed"
    assert journal.events_after("r") == ()
    journal.close()


async def test_an_interrupted_run_goes_on_and_a_cancelled_one_does_not(tmp_path: Path) -> None:
    journal, slow = kt.SqliteJournal(tmp_path / "runs.db"), Slow()
    runtime, asked = runtime_of(journal)
    async with runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request())
        await slow.waits.wait()
        run.interrupt()
        result = await run.result()
    assert result.status == "cancelled"
    assert journal.show("r").state == "interrupted"
    result = await runtime.resume("r", kt.Team("desk", [kt.Member("clerk", quick)]))
    assert (result.status, asked) == ("completed", ["one", "two"])
    with pytest.raises(kt.RunFinished):
        journal.cancel("r")
    journal.close()


@pytest.mark.parametrize("inner", [False, True])
async def test_a_run_whose_caller_was_cancelled_goes_on(tmp_path: Path, *, inner: bool) -> None:
    from kairo_team.agents import TeamAgent

    journal, slow = kt.SqliteJournal(tmp_path / "runs.db"), Slow()
    runtime, asked = runtime_of(journal)

    def team(agent: object) -> kt.Team:
        hands = kt.Team("desk", [kt.Member("clerk", agent)])  # type: ignore[arg-type]  # an agent
        return kt.Team("outer", [kt.Member("group", TeamAgent(hands, plan=PLAN))]) if inner else hands

    plan = kt.TaskGraph([kt.Task("all", "Do all.")]) if inner else PLAN
    job = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(partial(kt.run, team(slow), job, runtime=runtime))
        await slow.waits.wait()
        group.cancel_scope.cancel()
    assert journal.show("r").state == "interrupted"
    result = await runtime.resume("r", team(quick))
    assert (result.status, asked) == ("completed", ["one", "two"])
    journal.close()


async def test_a_run_without_a_journal_on_disk_cannot_be_interrupted() -> None:
    slow = Slow()
    async with kt.Runtime(models={"m:x": FunctionModel(lambda _: "done")}) as runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request())
        await slow.waits.wait()
        with pytest.raises(Misuse, match="no journal on disk"):
            run.interrupt()
        run.cancel()


CANCEL = """
import sys
import kairo_team as kt
kt.SqliteJournal(sys.argv[1]).cancel("r", "not needed")
"""


async def test_another_process_cancels_a_run_that_lives(tmp_path: Path) -> None:
    path, slow = tmp_path / "runs.db", Slow()
    journal = kt.SqliteJournal(path)
    runtime, _ = runtime_of(journal)
    async with runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request())
        await slow.waits.wait()
        await anyio.run_process([sys.executable, "-c", CANCEL, str(path)])
        result = await run.result()
    assert (result.status, result.error) == ("cancelled", "not needed")
    assert journal.show("r").state == "cancelled"
    with pytest.raises(kt.RunFinished):
        await runtime.resume("r", kt.Team("desk", [kt.Member("clerk", quick)]))
    journal.close()


async def test_a_run_that_nobody_runs_is_cancelled_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images(tmp_path, monkeypatch)
    await begin(tmp_path / "runs.db", Provider())
    monkeypatch.undo()
    journal = kt.SqliteJournal(images.paths[len(images.paths) // 2])
    journal.cancel(RUN)
    assert journal.show(RUN).state == "cancelled"
    with pytest.raises(kt.RunFinished):
        await kt.Runtime(journal=journal).resume(RUN, desk(Provider()))
    journal.close()


async def test_a_process_that_has_lost_its_run_hears_of_it_while_it_waits(tmp_path: Path) -> None:
    slow = Slow()
    journal, other = kt.SqliteJournal(tmp_path / "runs.db"), kt.SqliteJournal(tmp_path / "runs.db")
    runtime, _ = runtime_of(journal)
    async with runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request())
        await slow.waits.wait()
        other.recover("r", take_over=True)
        result = await run.result()
    assert result.status == "failed"
    assert "another process has taken the run over" in (result.error or "")
    journal.close()
    other.close()


async def test_a_process_that_lost_its_run_as_it_ended_says_so(tmp_path: Path) -> None:
    journal, other = kt.SqliteJournal(tmp_path / "runs.db"), kt.SqliteJournal(tmp_path / "runs.db")

    async def last(assignment: kt.Assignment) -> str:
        if assignment.task.id == "two":
            other.recover("r", take_over=True)
        return "done"

    runtime, _ = runtime_of(journal)
    result = await kt.run(kt.Team("desk", [kt.Member("clerk", last)]), request(), runtime=runtime)
    told = [*result.warnings, result.error or ""]
    assert any("another process has taken the run over" in one for one in told)
    assert other.show("r").state == "running"
    journal.close()
    other.close()


async def test_seconds_count_while_a_run_only_waits(tmp_path: Path) -> None:
    journal, slow = kt.SqliteJournal(tmp_path / "runs.db"), Slow()
    runtime, _ = runtime_of(journal)
    async with runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request())
        await slow.waits.wait()
        first = journal.show("r").seconds
        while journal.show("r").seconds == first:  # a beat writes it
            await anyio.sleep(0.1)
        run.interrupt()
    journal.close()


ASKED = kt.TeamExecutionRequest("Do it.", plan=kt.TaskGraph([kt.Task("one", "Do one.", evaluator="boss")]), run_id="r")


class Boss:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


async def test_a_gate_waits_for_an_answer_that_another_process_gives(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal, other = kt.SqliteJournal(path), kt.SqliteJournal(path)
    runtime, _ = runtime_of(journal, gate=kt.JournalGate(journal))
    team = kt.Team("desk", [kt.Member("clerk", quick)], evaluators={"boss": Boss()})
    async with runtime:
        run = await runtime.start(team, ASKED)
        while not other.pending("r"):
            await anyio.sleep(0.05)
        assert other.show("r").state == "running"
        [question] = other.pending("r")
        await run_in_thread(other.answer, question.id, kt.HumanDecision.approve())
        result = await run.result()
    assert result.status == "completed"
    assert other.pending() == ()
    journal.close()


async def test_a_gate_whose_question_is_deferred_waits_no_longer(tmp_path: Path) -> None:
    """The run does what does not depend on it, and ends suspended; when it is resumed it asks anew."""
    path = tmp_path / "runs.db"
    journal, other = kt.SqliteJournal(path), kt.SqliteJournal(path)
    runtime, asked = runtime_of(journal, gate=kt.JournalGate(journal))
    team = kt.Team("desk", [kt.Member("clerk", quick)], evaluators={"boss": Boss()})
    async with runtime:
        run = await runtime.start(team, ASKED)
        while not other.pending("r"):
            await anyio.sleep(0.05)
        [question] = other.pending("r")
        await run_in_thread(partial(other.answer, question.id, kt.HumanDecision.defer(), by="ada"))
        assert (await run.result()).status == "suspended"
        assert other.pending() == (question,)
        [decided] = [one for one in other.events_after("r") if isinstance(one, events.HumanDecided)]
        assert (decided.action, decided.by) == ("defer", "ada")
        async with anyio.create_task_group() as group:
            group.start_soon(answer_when_asked, other, question)
            assert (await runtime.resume("r", team)).status == "completed"
    assert asked == ["one"]
    journal.close()


async def answer_when_asked(journal: kt.SqliteJournal, question: kt.HumanRequest) -> None:
    """Approve once the run has asked anew."""
    while journal.answer_to(question) is not None:
        await anyio.sleep(0.05)
    assert journal.show("r").state == "running"
    await run_in_thread(journal.answer, question.id, kt.HumanDecision.approve())


async def test_a_gate_that_waited_too_long_is_silent_and_its_question_is_gone(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime, _ = runtime_of(journal, gate=kt.JournalGate(journal, timeout=0.05))
    team = kt.Team("desk", [kt.Member("clerk", quick)], evaluators={"boss": Boss()})
    result = await kt.run(team, ASKED, runtime=runtime)
    assert "human_required" in (result.error or "")
    assert journal.pending() == ()
    journal.close()


async def test_an_answer_given_after_the_gates_process_died_is_used(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime, asked = runtime_of(journal, gate=kt.JournalGate(journal))
    team = kt.Team("desk", [kt.Member("clerk", quick)], evaluators={"boss": Boss()})
    async with runtime:
        run = await runtime.start(team, ASKED)
        while not journal.pending("r"):
            await anyio.sleep(0.05)
        run.interrupt()
    [question] = journal.pending("r")
    journal.answer(question.id, kt.HumanDecision.approve())
    again, _ = runtime_of(journal)  # without any gate
    result = await again.resume("r", team)
    assert (result.status, asked) == ("completed", ["one"])
    journal.close()


async def test_a_gate_without_its_run_in_the_journal_says_so(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    question = kt.HumanRequest("plan", "may it?", "x", id="q", run_id="nowhere")
    with pytest.raises(kt.RunNotFound):
        await kt.JournalGate(journal).decide(question)
    with pytest.raises(ValueError, match="JournalGate takes a journal"):
        kt.JournalGate("runs.db")  # type: ignore[arg-type]  # a wrong value


async def test_downtime_counts_for_a_deadline_by_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, slow = kt.SqliteJournal(tmp_path / "runs.db"), Slow()
    runtime, asked = runtime_of(journal)
    at = datetime.now(UTC) + timedelta(hours=1)
    async with runtime:
        run = await runtime.start(kt.Team("desk", [kt.Member("clerk", slow)]), request(deadline_at=at))
        await slow.waits.wait()
        run.interrupt()

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one will do
            return at + timedelta(seconds=1)

    monkeypatch.setattr(budget_split, "datetime", Later)
    result = await runtime.resume("r", kt.Team("desk", [kt.Member("clerk", quick)]))
    assert (result.status, asked) == ("timeout", ["one", "two"])
    assert result["one"].status == "completed"
    journal.close()
