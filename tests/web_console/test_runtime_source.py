"""The console of a runtime without a journal: it shows the runs that live, and keeps what has ended for a while."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import anyio
import pytest

pytest.importorskip("starlette", reason="the console needs the extra console")
pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.engine.records.run_handle import Runs
from kairo_team.engine.work import member_model
from kairo_team.errors import RunFinished, RunNotFound
from kairo_team.testing import FunctionModel, MemoryJournal
from kairo_team.web_console import runtime_source
from kairo_team.web_console.runtime_source import RuntimeSource
from kairo_team.web_console.sources import JournalSource
from tests.web_console.running import Browser, letter, office, words

pytestmark = pytest.mark.real_time

PLAN = kt.TaskGraph([kt.Task("first", "x"), kt.Task("next", "x", depends_on=["first"])])


def team(work: Callable[[kt.Assignment], Awaitable[str]] | None = None, name: str = "t") -> kt.Team:
    async def done(assignment: kt.Assignment) -> str:
        return assignment.task.id

    return kt.Team(name, [kt.Member("m", work or done)])


def asked(run_id: str, tokens: int = 100) -> kt.TeamExecutionRequest:
    config = kt.TeamConfig(budget=kt.Budget(tokens=tokens))
    return kt.TeamExecutionRequest("the goal", plan=PLAN, run_id=run_id, config=config)


async def test_a_run_is_shown_while_it_lives_and_after() -> None:
    go = anyio.Event()

    async def wait(assignment: kt.Assignment) -> str:
        await go.wait()
        return " ".join(["heard:", *assignment.directives])

    async with kt.Runtime() as runtime, Browser(RuntimeSource(runtime)) as browser:
        run = await runtime.start(team(wait), asked("live-1"))
        while "running" not in words(await browser.read("/run", id="live-1")).partition("Tasks")[2]:
            await anyio.sleep(0.01)
        assert "live-1 running t the goal" in words(await browser.read("/"))
        shown = words(await browser.read("/run", id="live-1"))
        assert "Tokens 0 of 100 spent" in shown
        assert "next after first pending" in shown
        for path, fields in (
            ("/run/steer", {"text": "mind the wind", "task": "next"}),
            ("/run/top-up", {"tokens": "50"}),
        ):
            sent = await browser.send(path, run="live-1", back="/", **fields)
            assert sent.status_code == 303, sent.text
        assert "Tokens 0 of 150 spent" in words(await browser.read("/run", id="live-1"))
        go.set()
        result = await run.result()
        assert result.outcomes[1].artifact
        assert result.outcomes[1].artifact.text == "heard: mind the wind"
        shown = words(await browser.read("/run", id="live-1"))
        assert "completed team t" in shown
        assert "Tokens 0 of 150 spent" in shown
        assert "told next by ada: mind the wind" in shown
        assert "Raise the budget" not in shown


class Writer:
    """Writes a word whenever it is let."""

    name = "test:writer"

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[str](10)

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: kt.ModelRequest, on_text: Callable[[str], object]) -> kt.ModelResponse:
        words: list[str] = []
        async with self.receive:
            async for word in self.receive:
                words.append(word)
                on_text(word)
        return kt.ModelResponse("".join(words), usage=kt.Usage(1, 1))


@pytest.mark.parametrize("content", ["events", "none"])
async def test_what_a_model_writes_is_shown_while_it_writes(
    content: Literal["events", "none"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_model, "_EVERY", 0)
    model = Writer()

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(model).complete(kt.ModelRequest([kt.Message.user("write")]))).text

    async with (
        model.send,
        kt.Runtime(content=content, secrets=["harbour"]) as runtime,
        Browser(RuntimeSource(runtime)) as browser,
    ):
        plan = kt.TaskGraph([kt.Task("first", "x")])
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), "the goal", plan=plan, run_id="live-1")
        for word in ("The tide comes in twice ", "a day in the harb", "our, because of the moon."):
            await model.send.send(word)
        while model.receive.statistics().current_buffer_used:
            await anyio.sleep(0.01)
        shown = words(await browser.read("/run", id="live-1"))
        if content == "events":
            assert (
                "Task first , m with test:writer : writing The tide comes in twice a day in the [secret], bec" in shown
            )
        else:
            assert "tide" not in shown
            assert 'Runtime(content="events") or' in shown
        model.send.close()
        await run.result()
        assert "What models write" not in await browser.read("/run", id="live-1")


@pytest.mark.parametrize("kept", [True, False], ids=["journal", "memory"])
async def test_what_a_call_may_use_is_held_and_not_spent(kept: bool, tmp_path: Path) -> None:
    begun = anyio.Event()

    async def answer(_: kt.ModelRequest) -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        model = FunctionModel(answer)
        return (await context.model(model).complete(kt.ModelRequest([kt.Message.user("?")], max_tokens=40))).text

    journal = kt.SqliteJournal(tmp_path / "runs.db") if kept else None
    async with kt.Runtime(journal=journal) as runtime:
        source = RuntimeSource(runtime) if journal is None else JournalSource(journal)
        run = await runtime.start(kt.Team("t", [kt.Member("m", work)]), asked("live-1", tokens=9_000))
        await begun.wait()
        async with Browser(source) as browser:
            page = words(await browser.read("/run", id="live-1"))
        held = source.standing("live-1").held
        assert held > 40
        assert f"Tokens 0 of 9,000 spent, {held} held" in page
        run.cancel()
        await run.result()
        assert source.standing("live-1").held == 0
        assert source.standing("live-1").run.usage.tokens == held, "it may have been used"
    if journal is not None:
        journal.close()


async def test_a_run_is_cancelled() -> None:
    async def wait(_: kt.Assignment) -> str:
        await anyio.sleep_forever()
        return ""

    async with kt.Runtime() as runtime, Browser(RuntimeSource(runtime)) as browser:
        run = await runtime.start(team(wait), asked("live-1"))
        assert (await browser.send("/run/cancel", run="live-1", text="too dear")).status_code == 303
        assert (await run.result()).status is kt.TeamStatus.CANCELLED
        shown = words(await browser.read("/run", id="live-1"))
        assert "cancelled by ada in the console: too dear" in shown
        assert (await browser.send("/run/cancel", run="live-1")).status_code in (404, 409)


async def test_a_question_is_answered_and_the_run_goes_on() -> None:
    async with kt.Runtime(gate=kt.DeferGate(), content="events") as runtime, Browser(RuntimeSource(runtime)) as browser:
        assert (await kt.run(office(), letter("run-1"), runtime=runtime)).status is kt.TeamStatus.SUSPENDED
        assert "run-1 suspended office" in words(await browser.read("/"))
        shown = await browser.read("/questions")
        for part in ("Is the work of &#39;clerk&#39;", "asked 20", "too cold", "removed: 2 + added: be welcome."):
            assert part in words(shown)
        assert "Open questions" in await browser.read("/run", id="run-1")
        question = re.search(r'name="question" value="([^"]+)"', shown)
        assert question
        sent = await browser.send("/questions/answer", question=question[1], action="approve")
        assert sent.status_code == 303
        assert "No question is open" in await browser.read("/questions")
        assert (await runtime.resume("run-1", office())).status is kt.TeamStatus.DEGRADED
        shown = words(await browser.read("/run", id="run-1"))
        assert "degraded team office" in shown
        assert "by ada: approve" in shown
        assert "test:provider model 3 0 6 0" in shown


async def test_a_suspended_run_that_is_given_up_is_cancelled() -> None:
    async with kt.Runtime(gate=kt.DeferGate()) as runtime:
        source = RuntimeSource(runtime)
        await kt.run(office(), letter("run-1"), runtime=runtime)
        source.cancel("run-1", "no longer wanted")
        assert source.standing("run-1").run.state == "cancelled"
        assert source.pending() == source.pending("run-1") == []
        with pytest.raises(RunFinished):
            source.cancel("run-1", "again")


@pytest.mark.parametrize("kept", [True, False], ids=["started", "run"])
async def test_runs_that_live_when_it_is_opened_are_taken_in(kept: bool) -> None:
    """One that keeps its events is shown from its first event on, another with its goal and what comes."""
    at_work, go = anyio.Event(), anyio.Event()

    async def wait(_: kt.Assignment) -> str:
        at_work.set()
        await go.wait()
        return "done"

    async with kt.Runtime() as runtime, anyio.create_task_group() as group:
        if kept:
            await runtime.start(team(wait), asked("live-1"))
        else:
            group.start_soon(lambda: kt.run(team(wait), asked("live-1"), runtime=runtime))
        await at_work.wait()
        source = RuntimeSource(runtime)
        [run] = source.runs()
        assert (run.run_id, run.state, run.goal, run.team) == ("live-1", "running", "the goal", "t")
        numbers = [one.seq for one in source.events_after("live-1", 0, 1_000)]
        assert numbers == (list(range(1, len(numbers) + 1)) if kept else [])
        assert bool(numbers) is kept
        go.set()
        while source.standing("live-1").run.state == "running":
            await anyio.sleep(0.01)
        told = [one.seq for one in source.events_after("live-1", 0, 1_000)]
        assert told == list(range(told[0], told[-1] + 1))


async def test_a_run_that_waits_when_it_is_opened_can_be_answered() -> None:
    async with kt.Runtime(gate=kt.DeferGate()) as runtime:
        await kt.run(office(), letter("run-1"), runtime=runtime)
        async with Browser(RuntimeSource(runtime)) as browser:
            assert "run-1 suspended Write a letter." in words(await browser.read("/"))
            assert "Tokens 4 of 9,000 spent" in words(await browser.read("/run", id="run-1"))
            question = runtime.pending()[0].id
            assert (await browser.send("/questions/answer", question=question, action="defer")).status_code == 303
            shown = words(await browser.read("/questions"))
            assert "Deferred by ada" in shown
            assert "await runtime.resume(&#39;run-1&#39;, team)" in shown
            assert (await browser.send("/questions/answer", question=question, action="approve")).status_code == 303
            assert (await runtime.resume("run-1", office())).status is kt.TeamStatus.DEGRADED
            assert "degraded team office" in words(await browser.read("/run", id="run-1"))


async def test_a_run_that_waits_goes_on_with_the_answer_where_the_gate_waits_in_memory() -> None:
    journal = MemoryJournal()
    runtime = kt.Runtime(journal=journal, gate=kt.JournalGate(journal))
    async with runtime, Browser(RuntimeSource(runtime)) as browser:
        run = await runtime.start(office(), letter("run-1"))
        while not runtime.pending():
            await anyio.sleep(0.01)
        assert "run run-1 (running)" in words(await browser.read("/questions"))
        question = runtime.pending()[0].id
        assert (await browser.send("/questions/answer", question=question, action="approve")).status_code == 303
        assert (await run.result()).status is kt.TeamStatus.DEGRADED


async def test_ended_runs_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_source, "MOST_ENDED", 3)
    async with kt.Runtime(gate=kt.DeferGate()) as runtime:
        source = RuntimeSource(runtime)
        await kt.run(office(), letter("waits"), runtime=runtime)
        for number in range(6):
            await kt.run(team(), asked(f"run-{number}"), runtime=runtime)
        assert [one.run_id for one in source.runs()] == ["run-5", "run-4", "run-3", "waits"]
        with pytest.raises(RunNotFound):
            source.standing("run-2")
        monkeypatch.setattr(runtime_source, "MOST_EVENTS", 1)
        await kt.run(team(), asked("run-6"), runtime=runtime)
        assert [one.run_id for one in source.runs()] == ["run-6", "waits"]


async def test_after_its_end_it_takes_nothing() -> None:
    async with kt.Runtime() as runtime:
        source, other = RuntimeSource(runtime), RuntimeSource(runtime)
        source.close()
        await kt.run(team(), asked("run-1"), runtime=runtime)
        assert source.runs() == []
        assert [one.run_id for one in other.runs()] == ["run-1"]
        other.close()
        assert runtime.subscribers == ()


async def test_events_come_in_pieces_and_of_one_state() -> None:
    async with kt.Runtime() as runtime:
        source = RuntimeSource(runtime)
        await kt.run(team(), asked("run-1"), runtime=runtime)
        whole = source.events_after("run-1", 0, 1_000)
        first = source.events_after("run-1", 0, 4)
        assert [one.seq for one in first] == [1, 2, 3, 4]
        assert [*first, *source.events_after("run-1", 4, 1_000)] == list(whole)
        assert [one.run_id for one in source.runs("completed")] == ["run-1"]
        assert source.runs("running") == []


class Looked(Runs):
    """The runs of a runtime: something happens in another thread when somebody looks whether a run is there."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self._then = then

    def __contains__(self, run_id: object) -> bool:
        found = super().__contains__(run_id)
        self._then()
        return found


def test_a_run_goes_on_while_its_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, at = kt.Runtime(), datetime.now(UTC)
    source = RuntimeSource(runtime)
    source._take(events.TeamSuspended("r", 1, at, kt.TeamStatus.SUSPENDED, 1.0, kt.Usage()))
    resumed = events.TeamResumed("r", 2, at, "t", "the goal", ())
    monkeypatch.setattr(runtime, "runs", runs := Looked(lambda: source._take(resumed)))
    runs.enter("r")
    assert source.show("r").state == "suspended"


def test_a_run_ends_while_its_questions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = kt.Runtime()
    source = RuntimeSource(runtime)
    monkeypatch.setattr(runtime, "runs", runs := Looked(lambda: runs.leave(run)))
    run = runs.enter("r")
    assert source.pending("r") == []


async def test_runs_inside_others_are_shown_apart() -> None:
    inner = team(name="inner")
    async with kt.Runtime() as runtime:
        source = RuntimeSource(runtime)
        outer = kt.Team("outer", [kt.Member("group", TeamAgent(inner))])
        await kt.run(outer, asked("run-1"), runtime=runtime)
        assert [one.run_id for one in source.runs()] == ["run-1"]
        inside = {name for name in source._kept if name != "run-1"}
        assert inside
        assert {source.standing(name).run.parent for name in inside} == {"run-1"}
