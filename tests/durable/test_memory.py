"""`MemoryJournal`: what a team does after its process has died, tested without a disk or a process."""

from __future__ import annotations

import ast
from pathlib import Path

import anyio
import pytest

import kairo_team as kt
from kairo_team.durable import memory
from kairo_team.testing import FunctionModel, MemoryJournal
from tests.durable.desk import PLAN, RUN, Provider, desk

pytestmark = pytest.mark.real_time

PUBLIC = {"kairo_team.durable", "kairo_team.recorded", "kairo_team.budget", "kairo_team.errors", "kairo_team.events",
          "kairo_team.files",
          "kairo_team.human", "kairo_team.results", "kairo_team.team"}  # fmt: skip
TWO = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])


class Killed(Provider):
    """Lets the process die while it answers one of its calls."""

    def __init__(self, journal: MemoryJournal, call: int) -> None:
        super().__init__()
        self.journal = journal
        self.left = call

    def answer(self, request: kt.ModelRequest) -> str | kt.ModelResponse:
        self.left -= 1
        if self.left == 0:
            self.journal.crash()
        return super().answer(request)


async def run_desk(provider: Provider, journal: MemoryJournal) -> kt.TeamResult:
    async with kt.Runtime(models={"m:x": provider.model}, journal=journal) as runtime:
        request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=RUN)
        return await kt.run(desk(provider), request, runtime=runtime)


async def test_a_run_whose_process_died_at_any_call_goes_on_and_repeats_only_calls_in_doubt() -> None:
    """With a judge, revisions, tools and a team inside the team."""
    whole = Provider()
    wanted = await run_desk(whole, MemoryJournal())
    calls = sum(whole.asked.values())
    for call in range(1, calls + 1):
        journal = MemoryJournal()
        first = Killed(journal, call)
        cut = await run_desk(first, journal)
        assert cut.status == "failed"
        assert "its process has died" in (cut.error or "")
        recorded = [one for run in journal.storage.runs.values() for one in run.calls.values()]
        in_doubt = sum(one.state == "sent" and one.what == "model" for one in recorded)
        again, second = journal.elsewhere(), Provider()
        async with kt.Runtime(models={"m:x": second.model}, journal=again) as runtime:
            result = await runtime.resume(RUN, desk(second))
        assert (result.status, [one.task_id for one in result.outcomes]) == (
            "completed", [one.task_id for one in wanted.outcomes],
        )  # fmt: skip
        extra = sum(first.asked.values()) + sum(second.asked.values()) - calls
        assert 0 <= extra <= in_doubt, f"killed at call {call}: {in_doubt} calls in doubt, and {extra} made again"
        assert again.result(RUN) == result
        seen = again.events_after(RUN)
        assert [one.seq for one in seen] == list(range(1, len(seen) + 1))


async def test_a_disk_that_fails_ends_the_run_and_another_process_goes_on() -> None:
    journal, asked = MemoryJournal(), list[str]()

    async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "two" and len(asked) == 1:
            journal.fail("the disk is full")
        request = kt.ModelRequest([kt.Message.user(assignment.task.id)])
        return (await context.model("m:x").complete(request)).text

    def reply(request: kt.ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return "done"

    team, models = kt.Team("desk", [kt.Member("clerk", write)]), {"m:x": FunctionModel(reply)}
    request = kt.TeamExecutionRequest("Do it.", plan=TWO, run_id="r")
    result = await kt.run(team, request, runtime=kt.Runtime(models=models, journal=journal))
    assert (result.status, asked) == ("failed", ["one"])
    assert "the disk is full" in (result.error or "")
    asked.append("elsewhere")
    journal.crash()
    result = await kt.Runtime(models=models, journal=journal.elsewhere()).resume("r", team)
    assert (result.status, asked) == ("completed", ["one", "elsewhere", "two"])


async def test_a_run_is_cancelled_from_another_process() -> None:
    journal, waits = MemoryJournal(), anyio.Event()

    async def wait(assignment: kt.Assignment) -> str:
        waits.set()
        await anyio.sleep_forever()
        return "never"

    team, request = kt.Team("desk", [kt.Member("clerk", wait)]), kt.TeamExecutionRequest("Do it.", plan=TWO, run_id="r")
    async with kt.Runtime(journal=journal) as runtime:
        run = await runtime.start(team, request)
        await waits.wait()
        journal.elsewhere().cancel("r", "it costs too much")
        result = await run.result()
    assert result.status == "cancelled"
    assert "it costs too much" in (result.error or "")
    with pytest.raises(kt.RunFinished):
        await kt.Runtime(journal=journal.elsewhere()).resume("r", team)


async def test_a_question_is_answered_in_another_process() -> None:
    journal = MemoryJournal()

    async def write(assignment: kt.Assignment) -> str:
        return "a text"

    class Boss:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "ask")

    team = kt.Team("desk", [kt.Member("clerk", write)], evaluators={"boss": Boss()})
    plan = kt.TaskGraph([kt.Task("one", "Do one.", evaluator="boss")])
    request = kt.TeamExecutionRequest("Do it.", plan=plan, run_id="r")
    result = await kt.run(team, request, runtime=kt.Runtime(journal=journal, gate=kt.DeferGate()))
    assert result.status == "suspended"
    other = journal.elsewhere()
    [question] = other.pending("r")
    other.answer(question.id, kt.HumanDecision.approve())
    result = await kt.Runtime(journal=journal.elsewhere(), gate=kt.DeferGate()).resume("r", team)
    assert (result.status, journal.pending()) == ("completed", ())


def test_a_journal_is_written_from_public_names_alone() -> None:
    """It is the example for a journal from elsewhere."""
    tree = ast.parse(Path(memory.__file__).read_text(encoding="utf-8"))
    used = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {one for one in used if one.startswith("kairo_team")} <= PUBLIC


def test_an_interruption_does_not_reach_the_session_of_a_process_that_took_the_run_over() -> None:
    journal = MemoryJournal()
    team = kt.Team("t", [kt.Member("m", lambda assignment: "x")])
    first = journal.begin(kt.TeamExecutionRequest("Explain tides.", run_id="r"), team, {}, None)
    taken_over, *_ = journal.elsewhere().recover("r", take_over=True)
    first.interrupt("the first process stops")
    taken_over.journal.put("key", "value")
    taken_over.journal.interrupt("the second process stops")
    (again,) = journal.elsewhere().recover("r")
    assert again.journal.get("key", None) == "value"
