"""Calls that were under way when a session was interrupted: listed and warned of as after a kill."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.testing import FunctionModel, MemoryJournal
from tests.durable.desk import ask_briefly

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

RUN = "r"
ONE = kt.TaskGraph([kt.Task("a", "do")])


class Line:
    """A model that answers some calls at once, and nobody's else before it is told to."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[str] = []
        self.hangs = anyio.Event()
        self._answers = answers
        self.model = FunctionModel(self.answer, name="test:m")

    async def answer(self, request: kt.ModelRequest) -> str:
        self.asked.append(request.messages[-1].text)
        if self.asked[-1] not in self._answers:
            if self.asked[-1] == "second":
                self.hangs.set()
            await anyio.sleep_forever()
        return f"answer to {self.asked[-1]}"


async def ask(context: kt.MemberContext, text: str) -> str:
    return (await context.model("m:x").complete(ask_briefly(text))).text


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await ask(context, "first")
    return await ask(context, "second")


class Judge:
    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        await context.context.model("m:x").complete(ask_briefly("second"))
        return kt.EvaluationVerdict.passed(1.0)


async def first_alone(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return await ask(context, "first")


def in_a_member() -> kt.Team:
    return kt.Team("team", [kt.Member("clerk", work)])


def in_a_team() -> kt.Team:
    return kt.Team("team", [kt.Member("group", TeamAgent(in_a_member(), plan=ONE))])


def in_a_review() -> kt.Team:
    return kt.Team("team", [kt.Member("clerk", first_alone)], coordinator=ExpertTeamCoordinator(evaluator=Judge()))


async def cancelled(team: kt.Team, runtime: kt.Runtime, line: Line, plan: kt.TaskGraph = ONE) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(kt.run, team, "Go.", plan=plan, run_id=RUN, runtime=runtime))
        await line.hangs.wait()
        group.cancel_scope.cancel()


async def interrupted(team: kt.Team, runtime: kt.Runtime, line: Line, plan: kt.TaskGraph = ONE) -> tuple[str, ...]:
    async with runtime:
        run = await runtime.start(team, "Go.", plan=plan, run_id=RUN)
        await line.hangs.wait()
        run.interrupt()
        return tuple((await run.result()).warnings)


WAS_CUT = "1 call was under way when the run was interrupted, and nobody saw the answer: model 'test:m', charged"
CUT_BEFORE = "1 call was under way when an earlier session of the run ended, and nobody saw the answer: model 'test:m'"


@pytest.mark.parametrize("end", [cancelled, interrupted])
@pytest.mark.parametrize("make", [in_a_member, in_a_team, in_a_review])
async def test_third_o11_a_call_that_an_interrupt_cut_is_in_doubt(make: Any, end: Any, tmp_path: Path) -> None:
    line, journal = Line("first"), kt.SqliteJournal(tmp_path / "runs.db")
    runtime = kt.Runtime(models={"m:x": line.model}, journal=journal)
    said = await end(make(), runtime, line)
    assert said is None or any(one.startswith(WAS_CUT) for one in said)
    [doubt] = journal.in_doubt(RUN)
    assert (doubt.state, doubt.usage.tokens > 0) == ("sent", True)
    again = Line("first", "second")
    result = await kt.Runtime(models={"m:x": again.model}, journal=journal).resume(RUN, make())
    assert result.status == "completed"
    assert again.asked == ["second"]
    assert [one for one in result.warnings if one.startswith(CUT_BEFORE)]
    answered = [one for one in journal.calls(RUN) if one.state == "answered"]
    assert result.usage.tokens == doubt.usage.tokens + sum(one.usage.tokens for one in answered)
    journal.close()


@pytest.mark.parametrize("end", [cancelled, interrupted])
async def test_third_o11_in_memory_too(end: Any) -> None:
    line, journal = Line("first"), MemoryJournal()
    await end(in_a_member(), kt.Runtime(models={"m:x": line.model}, journal=journal), line)
    states = [one.state for one in journal.storage.runs[RUN].calls.values()]
    assert states == ["answered", "sent"]
    again = Line("first", "second")
    result = await kt.Runtime(models={"m:x": again.model}, journal=journal).resume(RUN, in_a_member())
    assert [one for one in result.warnings if one.startswith(CUT_BEFORE)]


@pytest.mark.parametrize("end", [cancelled, interrupted])
async def test_third_o11_a_call_that_its_member_gave_up_is_not_in_doubt(end: Any, tmp_path: Path) -> None:
    """Nor is one of an attempt that reached its own timeout: both are charged in full, and the work went on."""
    tried: list[int] = []

    async def impatient(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        tried.append(1)
        if len(tried) == 1:
            await ask(context, "until the timeout")
        with anyio.move_on_after(0.05):
            await ask(context, "given up")
        await ask(context, "first")
        return await ask(context, "second")

    team, line = kt.Team("team", [kt.Member("clerk", impatient)]), Line("first")
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    plan = kt.TaskGraph([kt.Task("a", "do", timeout=0.5, retries=1)])
    await end(team, kt.Runtime(models={"m:x": line.model}, journal=journal), line, plan)
    assert [one.state for one in journal.calls(RUN)] == ["unknown", "unknown", "answered", "sent"]
    journal.close()
