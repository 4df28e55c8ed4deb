"""`kt.run(..., resume=True)`: one call begins a run, goes on with it, and returns what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import HumanGate
from kairo_team.errors import Misuse, PlanMismatch
from kairo_team.testing import EventRecorder, FunctionModel

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PLAN = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])


async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    request = kt.ModelRequest([kt.Message.user(assignment.task.description)], max_tokens=20)
    return (await context.model("m:x").complete(request)).text


TEAM = kt.Team("desk", [kt.Member("writer", write)])


class Process:
    """A program that makes the same call each time it is started."""

    def __init__(self, path: Path, *, cut_after: str = "", gate: HumanGate | None = None) -> None:
        self.model = FunctionModel(lambda request: f"made: {request.messages[-1].text}", name="test:m")
        self.journal = kt.SqliteJournal(path)
        self.seen = EventRecorder()
        self.runtime = kt.Runtime(
            models={"m:x": self.model}, journal=self.journal, gate=gate, subscribers=[self.seen, self._cut]
        )
        self._cut_after = cut_after

    def _cut(self, event: kt.events.Event) -> None:
        if isinstance(event, kt.events.TaskCompleted) and event.task_id == self._cut_after:
            self.runtime.runs["r"].interrupt("the process ends")

    async def run(
        self, team: kt.Team = TEAM, *, plan: kt.TaskGraph = PLAN, budget: kt.Budget | None = None
    ) -> kt.TeamResult:
        try:
            return await kt.run(team, "Go.", plan=plan, budget=budget, run_id="r", resume=True, runtime=self.runtime)
        finally:
            self.journal.close()


async def test_it_begins_a_run_that_the_journal_does_not_have(tmp_path: Path) -> None:
    process = Process(tmp_path / "runs.db")
    result = await process.run()
    assert result.output == "made: Do b."
    assert len(process.model.calls) == 2
    assert "team.started" in process.seen.types


async def test_it_goes_on_with_a_run_that_was_cut_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    first = Process(tmp_path / "runs.db", cut_after="a")
    await first.run()
    second = Process(tmp_path / "runs.db")
    result = await second.run()
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "made: Do b.")
    assert (len(first.model.calls), len(second.model.calls)) == (1, 1)


async def test_it_returns_the_result_of_a_run_that_has_ended_and_does_nothing(tmp_path: Path) -> None:
    done = await Process(tmp_path / "runs.db").run()
    again = Process(tmp_path / "runs.db")
    result = await again.run()
    assert (result.output, result.usage, result.outcomes) == (done.output, done.usage, done.outcomes)
    assert again.model.calls == []
    assert again.seen.types == []


async def test_what_was_requested_at_first_counts_but_for_the_budget(tmp_path: Path) -> None:
    await Process(tmp_path / "runs.db", cut_after="a").run(budget=kt.Budget(tokens=1000))
    other = kt.TaskGraph([kt.Task("z", "Do z.")])
    result = await Process(tmp_path / "runs.db").run(plan=other, budget=kt.Budget(tokens=2000))
    assert [one.task_id for one in result.outcomes] == ["a", "b"]
    assert result.budget is not None
    assert result.budget.budget.tokens == 2000


async def test_a_run_that_ended_without_a_result_is_not_begun_anew(tmp_path: Path) -> None:
    await Process(tmp_path / "runs.db", cut_after="a").run()
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    journal.cancel("r")
    assert journal.result("r") is None
    journal.close()
    with pytest.raises(kt.RunFinished, match="it is cancelled"):
        await Process(tmp_path / "runs.db").run()


async def test_what_has_changed_in_the_team_is_said(tmp_path: Path) -> None:
    await Process(tmp_path / "runs.db", cut_after="a").run()
    with pytest.raises(PlanMismatch):
        await Process(tmp_path / "runs.db").run(kt.Team("desk", [kt.Member("another", write)]))


async def test_a_run_that_waits_for_a_person_in_a_runtime_without_a_journal_goes_on() -> None:
    class FourEyes:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person decides")

    team = kt.Team("desk", [kt.Member("writer", lambda assignment: "a draft")], evaluators={"person": FourEyes()})
    request = kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph([kt.Task("a", "Do a.", evaluator="person")]))
    runtime = kt.Runtime(gate=kt.DeferGate())
    assert (await kt.run(team, request, resume=True, runtime=runtime)).status is kt.TeamStatus.SUSPENDED
    assert (await kt.run(team, request, resume=True, runtime=runtime)).status is kt.TeamStatus.SUSPENDED
    runtime.answer(runtime.pending(request.run_id)[0].id, kt.HumanDecision.approve())
    assert (await kt.run(team, request, resume=True, runtime=runtime)).output == "a draft"
    with pytest.raises(kt.RunFinished):  # nothing keeps its result
        await kt.run(team, request, resume=True, runtime=runtime)


async def test_without_a_runtime_there_is_nothing_to_go_on_with() -> None:
    team = kt.Team("desk", [kt.Member("writer", lambda assignment: "a draft")])
    with pytest.raises(Misuse, match=r"give it one with a journal, such as runtime=kt\.Runtime\(journal="):
        await kt.run(team, "Go.", run_id="r", resume=True)


def _sync(**more: Any) -> object:
    return kt.run_sync(TEAM, "Go.", resume=True, **more)


async def _async(**more: Any) -> object:
    return await kt.run(TEAM, "Go.", resume=True, **more)


async def test_a_goal_needs_the_id_of_its_run() -> None:
    with pytest.raises(Misuse, match="resume=True resumes the run of an id: give it one with run_id="):
        await _async()


def test_code_without_an_event_loop_can_use_it_too(tmp_path: Path) -> None:
    models = {"m:x": FunctionModel(lambda request: "made", name="test:m")}
    first, second = (
        _sync(run_id="r", plan=PLAN, runtime=kt.Runtime(journal=kt.SqliteJournal(path), models=models))
        for path in [tmp_path / "runs.db"] * 2
    )
    assert isinstance(first, kt.TeamResult)
    assert isinstance(second, kt.TeamResult)
    assert (first.output, first.usage) == (second.output, second.usage)
    assert len(models["m:x"].calls) == 2
