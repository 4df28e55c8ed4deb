"""What other systems got wrong about runs that survive their process: rows D of the known failures."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.errors import JournalError, Misuse, PlanMismatch
from kairo_team.recorded import RecordedCall
from kairo_team.testing import FunctionModel
from kairo_team.tools import SideEffectGuard
from tests.durable.desk import RUN, Images, Provider, begin, go_on

pytestmark = pytest.mark.real_time

Ask = Callable[[str], Coroutine[Any, Any, str]]
Work = Callable[[kt.Assignment, Ask, kt.MemberContext], Awaitable[str | kt.Artifact]]
Calls = Sequence[RecordedCall]


class Office:
    """One team on one journal: its model, its tools and its agent write down what they do."""

    def __init__(self, work: Work, *tasks: kt.Task) -> None:
        self.plan = kt.TaskGraph(tasks or [kt.Task("one", "Do one.")])
        self.asked: list[str] = []
        self.started: list[str] = []
        self.instructions = ""
        self.config = kt.TeamConfig()
        self.options: dict[str, Any] = {}
        self.permissions = kt.ToolPermissions()
        self._work = work

    def team(self) -> kt.Team:
        return kt.Team("desk", [kt.Member(kt.Role("clerk", self.instructions), self)], permissions=self.permissions)

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str | kt.Artifact:
        async def ask(text: str) -> str:
            request = kt.ModelRequest([kt.Message.user(text)], max_tokens=10)
            return (await context.model("m:x").complete(request)).text

        self.started.append(assignment.task.id)
        return await self._work(assignment, ask, context)

    def _answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        return f"answer {len(self.asked)}"

    async def on(self, path: Path, *, resume: bool = False) -> kt.TeamResult:
        """Begin the run, or go on with it, as a new process would: with a journal and a runtime of its own."""
        journal = kt.SqliteJournal(path, sync="normal")
        runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(self._answer)}, **self.options)
        request = kt.TeamExecutionRequest("Do it.", plan=self.plan, config=self.config, run_id="r")
        self.asked.clear()
        self.started.clear()
        try:
            async with runtime:
                return await (
                    runtime.resume("r", self.team()) if resume else kt.run(self.team(), request, runtime=runtime)
                )
        finally:
            journal.close()


async def cut(
    start: Callable[[Path], Any], folder: Path, when: Callable[[Calls, Calls], bool], run_id: str = "r"
) -> Path:
    """Run to the end; return the file as a crash left it, at the first commit `when(answered, sent)` holds of calls."""
    with pytest.MonkeyPatch.context() as patch:
        images = Images(folder, patch)
        await start(folder / "whole.db")
    for path in images.paths:
        calls = kt.SqliteJournal(path).calls(run_id)
        if when(*([call for call in calls if call.state == state] for state in ("answered", "sent"))):
            return path
    raise AssertionError("the run was never in that state")


async def three_turns(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
    said = [await ask(f"{assignment.task.id} {turn}") for turn in ("first", "second", "third")]
    return " ".join(said)


async def test_kf_d01_an_attempt_that_was_cut_makes_its_finished_calls_no_second_time(tmp_path: Path) -> None:
    office = Office(three_turns)
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 2 and len(sent) == 1)
    assert (await office.on(path, resume=True)).status == "completed"
    assert office.started == ["one"]
    assert office.asked == ["one third"], "the call in doubt, and no other"


async def test_kf_d02_what_came_before_a_question_is_not_done_again_after_its_answer(tmp_path: Path) -> None:
    done: list[str] = []

    @kt.tool(side_effect="read")
    def look() -> str:
        """Look something up."""
        done.append("look")
        return "found"

    @kt.tool(side_effect="write")
    def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        await ask("before")
        await context.tool(look).call({})
        await context.tool(pay).call({})
        return await ask("after")

    office, path = Office(work), tmp_path / "runs.db"
    office.permissions, office.options = kt.ToolPermissions(guard=SideEffectGuard("strict")), {"gate": kt.DeferGate()}
    assert (await office.on(path)).status == "suspended"
    assert (office.asked, done) == (["before"], ["look"])
    journal = kt.SqliteJournal(path)
    journal.answer(journal.pending("r")[0].id, kt.HumanDecision.approve())
    assert (await office.on(path, resume=True)).status == "completed"
    assert (office.asked, done) == (["after"], ["look", "pay"])


async def test_kf_d03_a_task_that_ended_is_not_started_again(tmp_path: Path) -> None:
    office = Office(three_turns, kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"]))
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 3 and len(sent) == 1)
    result = await office.on(path, resume=True)
    assert result.status == "completed"
    assert office.started == ["two"]
    assert result["one"].artifact is not None


async def test_kf_d04_finished_siblings_of_work_that_was_cut_are_kept(tmp_path: Path) -> None:
    done = anyio.Semaphore(0)

    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        if assignment.task.id == "last":
            await done.acquire()
            await done.acquire()
        said = await ask(assignment.task.id)
        done.release()
        return said

    office = Office(work, *(kt.Task(name, "Do it.") for name in ("a", "b", "last")))
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 2 and sent != [])
    done = anyio.Semaphore(2)
    assert (await office.on(path, resume=True)).status == "completed"
    assert office.asked == ["last"], "the two that were done were not asked for again"


async def test_kf_d05_a_finished_tool_call_is_not_made_again_however_often_the_run_goes_on(tmp_path: Path) -> None:
    def after_the_mail(answered: Calls, sent: Calls) -> bool:
        return any(call.what == "tool" for call in answered)

    first = Provider()
    path = await cut(partial(begin, provider=first), tmp_path, after_the_mail, RUN)
    assert len(first.mailed) == 1
    again, second = tmp_path / "again", Provider()
    again.mkdir()
    kt.SqliteJournal(path).close()

    async def resume(_: Path) -> kt.TeamResult:
        return await go_on(path, second)

    path_2 = await cut(resume, again, lambda answered, sent: len(sent) == 1, RUN)
    third = Provider()
    assert (await go_on(path_2, third)).status == "completed"
    assert (second.mailed, third.mailed) == ([], [])


async def test_kf_d06_a_call_that_was_cut_is_charged_and_listed_and_a_tool_that_writes_not_repeated(
    tmp_path: Path,
) -> None:
    start = partial(begin, provider=Provider(), idempotent=False)
    path = await cut(start, tmp_path, lambda answered, sent: any(call.what == "tool" for call in sent), RUN)
    journal, provider = kt.SqliteJournal(path), Provider()
    assert [call.name for call in journal.in_doubt(RUN) if call.what == "tool"] == ["mail"]
    result = await go_on(path, provider, idempotent=False)
    assert provider.mailed == []
    assert [call.name for call in journal.in_doubt(RUN) if call.what == "tool"] == ["mail"], "it stays listed"
    calls = journal.calls(RUN)
    assert result.usage.tokens == sum(call.usage.tokens for call in calls)
    assert all(call.usage.tokens > 0 for call in journal.in_doubt(RUN) if call.what == "model")


async def test_kf_d07_data_that_cannot_be_written_costs_neither_the_run_nor_the_calls_it_was_made_from(
    tmp_path: Path,
) -> None:
    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> kt.Artifact:
        return kt.Artifact(await ask(assignment.task.id), data=iter(()))

    office = Office(work, kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"]))
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 1 and len(sent) == 1)
    result = await office.on(path, resume=True)
    assert result.status == "completed"
    assert office.started == ["one", "two"], "the first attempt is made again"
    assert office.asked == ["two"], "and from its recorded call"


async def test_kf_d08_a_recorded_value_that_cannot_be_read_is_an_error_and_never_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("lent_classes")
    module.Point = make_dataclass("Point", ["x"])
    module.Point.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    seen: list[object] = []

    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        seen.append(await context.recorded("point", lambda: module.Point(1)))
        return await ask("go")

    office = Office(work)
    path = await cut(office.on, tmp_path, lambda answered, sent: len(sent) == 1)
    del module.Point
    seen.clear()
    with pytest.raises(JournalError, match=r"step '.*point.*' of run 'r' cannot be read"):
        await office.on(path, resume=True)
    assert seen == []


async def test_kf_d09_of_two_that_resume_a_run_one_is_refused(tmp_path: Path) -> None:
    refused: list[list[str]] = []

    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        said = await ask("go")
        if path is not None:
            other = Office(three_turns)
            with pytest.raises(Misuse, match="is running"):
                await other.on(path, resume=True)
            refused.append(other.asked)
        return said

    office, path = Office(work), None
    path = await cut(office.on, tmp_path, lambda answered, sent: len(sent) == 1)
    assert (await office.on(path, resume=True)).status == "completed"
    assert (refused, office.asked) == ([[]], ["go"])


class Boss:
    """Leaves every decision to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")


class Reviewed(Office):
    """An office whose work a person has to accept."""

    def team(self) -> kt.Team:
        return kt.Team("desk", super().team().members, evaluators={"boss": Boss()})


def reviewed() -> Reviewed:
    office = Reviewed(three_turns, kt.Task("one", "Do one.", evaluator="boss"))
    office.options = {"gate": kt.DeferGate()}
    return office


async def test_kf_d10_wherever_a_run_waits_its_question_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office, images = reviewed(), Images(tmp_path, monkeypatch)
    assert (await office.on(tmp_path / "runs.db")).status == "suspended"
    monkeypatch.undo()
    waiting = [path for path in images.paths if kt.SqliteJournal(path).show("r").state == "suspended"]
    assert waiting
    for path in waiting:
        journal = kt.SqliteJournal(path)
        (question,) = journal.pending("r")
        journal.answer(question.id, kt.HumanDecision.approve())
        assert (await office.on(path, resume=True)).status == "completed"
        assert office.asked == []


async def test_kf_d11_what_was_spent_before_a_crash_counts_against_the_same_budget(tmp_path: Path) -> None:
    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        for turn in range(20):
            await ask(f"turn {turn}")
        return "never"

    office = Office(work)
    office.config = kt.TeamConfig(budget=kt.Budget(tokens=60))
    whole = await office.on(tmp_path / "first.db")
    asked = len(office.asked)
    assert whole.status == "failed"
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 4 and not sent)
    result = await office.on(path, resume=True)
    assert result.status == "failed"
    assert len(office.asked) == asked - 4
    assert result.usage.tokens == whole.usage.tokens <= 60


async def test_kf_d12_what_has_changed_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    office = Office(three_turns)
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 1 and len(sent) == 1)
    office.instructions = "Be brief."
    with pytest.raises(PlanMismatch, match="instructions of role 'clerk'"):
        await office.on(path, resume=True)
    assert (office.asked, office.started) == ([], [])


async def test_kf_d14_a_reply_from_the_journal_is_not_paid_a_second_time(tmp_path: Path) -> None:
    office = Office(three_turns)
    whole = await office.on(tmp_path / "first.db")
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 2 and not sent)
    spent = kt.SqliteJournal(path).show("r").usage
    result = await office.on(path, resume=True)
    assert 0 < spent.tokens < whole.usage.tokens
    assert result.usage.tokens == whole.usage.tokens


async def test_kf_d15_a_cancelled_run_does_not_come_back(tmp_path: Path) -> None:
    office = Office(three_turns)
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 1)
    journal = kt.SqliteJournal(path)
    journal.cancel("r", "nobody wants it")
    assert journal.runs(state="interrupted") == ()
    with pytest.raises(kt.RunFinished):
        await office.on(path, resume=True)
    assert office.asked == []


async def test_kf_d16_the_same_request_again_is_another_run_and_the_same_id_is_refused(tmp_path: Path) -> None:
    office, path = Office(three_turns), tmp_path / "runs.db"
    await office.on(path)
    with pytest.raises(kt.RunExists):
        await office.on(path)
    journal = kt.SqliteJournal(path)
    runtime = kt.Runtime(journal=journal, models={"m:x": FunctionModel(office._answer)})
    for times in (1, 2):
        await kt.run(office.team(), kt.TeamExecutionRequest("Do it.", plan=office.plan), runtime=runtime)
        assert len(office.asked) == 3 * times
    assert len(journal.runs()) == 3
    journal.close()


async def test_kf_d17_an_answer_holds_also_when_the_run_could_not_go_on_at_first(tmp_path: Path) -> None:
    office, path = reviewed(), tmp_path / "runs.db"
    await office.on(path)
    journal = kt.SqliteJournal(path)
    journal.answer(journal.pending("r")[0].id, kt.HumanDecision.approve())
    office.instructions = "Be brief."
    with pytest.raises(PlanMismatch):
        await office.on(path, resume=True)
    office.instructions = ""
    assert (await office.on(path, resume=True)).status == "completed", "nobody is asked again"


async def test_kf_d18_calls_made_side_by_side_are_found_in_whatever_order_they_are_made_again(tmp_path: Path) -> None:
    order = ["a", "b", "c"]

    async def work(assignment: kt.Assignment, ask: Ask, context: kt.MemberContext) -> str:
        async with anyio.create_task_group() as group:
            for name in order:
                group.start_soon(ask, name)
        return await ask("last")

    office = Office(work)
    path = await cut(office.on, tmp_path, lambda answered, sent: len(answered) == 3 and len(sent) == 1)
    order.reverse()
    assert (await office.on(path, resume=True)).status == "completed"
    assert office.asked == ["last"]
