"""What is only held for calls under way is not shown as used: by the journal, the commands and the console."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.cli.run_table import record_document, runs_document, show_record, show_runs
from kairo_team.cli.streams import Screen
from kairo_team.testing import FunctionModel
from kairo_team.views.run_record import read_record
from kairo_team.web_console.sources import JournalSource
from tests.durable.desk import ask_briefly

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

RUN = "r"
ONE = kt.TaskGraph([kt.Task("a", "do")])


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    model = context.model("m:x")
    return (await model.complete(ask_briefly("first"))).text + (await model.complete(ask_briefly("second"))).text


def alone() -> kt.Team:
    return kt.Team("team", [kt.Member("clerk", work)])


def inside() -> kt.Team:
    return kt.Team("outer", [kt.Member("group", TeamAgent(alone(), plan=ONE))])


@asynccontextmanager
async def under_way(team: kt.Team, journal: kt.SqliteJournal) -> AsyncGenerator[kt.Usage]:
    """Let the second call of a run be under way for the block; yields what the first one used."""
    hangs = anyio.Event()

    async def answer(request: kt.ModelRequest) -> str:
        if request.messages[-1].text == "second":
            hangs.set()
            await anyio.sleep_forever()
        return "answer"

    runtime = kt.Runtime(
        models={"m:x": FunctionModel(answer, name="test:m")}, prices={"test:*": kt.Price(1, 2)}, journal=journal
    )
    async with runtime:
        run = await runtime.start(team, "Go.", plan=ONE, run_id=RUN, budget=kt.Budget(tokens=1_000, dollars=1))
        await hangs.wait()
        yield next(one.usage for one in journal.calls(RUN) if one.state == "answered")
        run.interrupt()


@pytest.mark.parametrize("make", [alone, inside])
async def test_third_o12_what_is_held_is_not_used(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, other = kt.SqliteJournal(tmp_path / "runs.db"), kt.SqliteJournal(tmp_path / "runs.db")
    async with under_way(make(), journal) as used:
        [listed], shown = other.runs(), other.show(RUN)
        assert (shown.usage.tokens, shown.usage.dollars) == (used.tokens, used.dollars)
        assert shown.held.tokens > 30
        assert shown.held.dollars > 0
        assert (listed.usage.tokens, listed.held) == (shown.usage.tokens, shown.held)
        first, second = other.calls(RUN)
        assert (first.held, second.usage, second.held) == (kt.Usage(), kt.Usage(), shown.held)
        assert other.in_doubt(RUN) == ()
        record = read_record(other, shown)
        [sums] = record.calls
        assert (sums.calls, sums.in_doubt, sums.under_way) == (2, 0, 1)
        assert sums.usage.tokens == used.tokens
        show_record(record, [], Screen())
        assert f"  used {shown.usage}; held for calls under way: {shown.held}; limits: " in capsys.readouterr().out
        for found in (runs_document([listed], {})["runs"][0], record_document(record, [])):
            assert found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"] == used.tokens
            assert found["held"]["prompt_tokens"] == shown.held.tokens
        standing = JournalSource(other).standing(RUN)
        assert (standing.run.usage.tokens, standing.held) == (used.tokens, shown.held.tokens)
        assert standing.calls is not None
        assert standing.calls[0].usage.tokens == used.tokens
        show_runs([listed], {}, Screen())
        assert f"  {used.tokens:,}, ${used.dollars} + {listed.held.tokens:,} held  " in capsys.readouterr().out
    left = other.show(RUN)
    assert (left.usage.tokens, left.held) == (used.tokens + shown.held.tokens, kt.Usage()), "it is in doubt now"
    [doubt] = other.in_doubt(RUN)
    assert (doubt.usage, doubt.held) == (shown.held, kt.Usage())
    journal.close()
    other.close()


async def test_a_run_under_way_says_for_whom_its_budget_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, other = kt.SqliteJournal(tmp_path / "runs.db"), kt.SqliteJournal(tmp_path / "runs.db")
    async with under_way(alone(), journal) as used:
        with anyio.fail_after(60):  # events are written within a second
            while not (record := read_record(other, other.show(RUN))).set_aside:
                await anyio.sleep(0.05)
        show_record(record, [], Screen())
        assert f"\n  {900 - used.tokens} are set aside for a\n" in capsys.readouterr().out
        assert record_document(record, [])["set_aside"] == record.set_aside
    assert not read_record(other, other.show(RUN)).set_aside, "it went back with the end of the session"
    journal.close()
    other.close()
