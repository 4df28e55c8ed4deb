"""Prompts in a journal: each message is written once, and read as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.durable.event_pages import read_pages, written_page
from kairo_team.events import Content, Event
from kairo_team.testing import EventRecorder, FunctionModel
from tests.cluster import stage

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

TURNS = 40
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAID = "the tide turns " * 600


@kt.tool(side_effect="read")
def look(number: int) -> str:
    """Look."""
    return f"{number}: {SAID}"


def answer(request: kt.ModelRequest) -> kt.ModelResponse | str:
    seen = sum(one.role == "tool" for one in request.messages)
    return "done" if seen == TURNS else kt.ModelResponse("", [kt.ToolCall(f"c{seen}", "look", {"number": seen})])


async def talk(journal: Any) -> EventRecorder:
    recorder = EventRecorder()
    agent = kt.MiniAgent("m:x", tools=[look], max_turns=TURNS + 1)
    models = {"m:x": FunctionModel(answer)}
    async with kt.Runtime(journal=journal, models=models, content="events", subscribers=[recorder]) as runtime:
        result = await kt.run(kt.Team("desk", [kt.Member("clerk", agent)]), "Go.", runtime=runtime, run_id="r")
    assert result.output == "done"
    return recorder


def bytes_of_events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT sum(length(body)) FROM event").fetchone()[0])


async def test_third_o43_a_message_is_written_once_and_every_prompt_is_read_whole(tmp_path: Path) -> None:
    with closing(kt.SqliteJournal(tmp_path / "runs.db")) as journal:
        recorder = await talk(journal)
        assert list(journal.events_after("r")) == recorder.events
        for seq in (0, 7, recorder.events[-20].seq):
            assert [one.seq for one in journal.events_after("r", seq)] == [
                one.seq for one in recorder.events if one.seq > seq
            ]
        last = [one for one in recorder.of(Content) if one.of == "prompt"][-1]
        assert journal.events_after("r", last.seq - 1)[0] == last, "what it stands for is in earlier pages"
    said_once = TURNS * len(SAID)
    prompts = sum(len(one.to_json()) for one in recorder.of(Content))
    assert prompts > 15 * said_once
    assert bytes_of_events(tmp_path / "runs.db") < 2.5 * said_once, "each result is in an event of its own too"


async def test_third_o43_in_postgresql_too() -> None:
    url = stage.new_database("procrastinate")
    with closing(kt.PostgresJournal(url)) as journal:
        recorder = await talk(journal)
        assert list(journal.events_after("r")) == recorder.events


def prompt(seq: int, *messages: dict[str, str], **others: Any) -> Content:
    body: dict[str, Any] = {"messages": messages, "tools": [], **others}
    return Content(run_id="r", seq=seq, at=NOW, task_id="t", member="m", of="prompt", call_id="c", attempt=1, body=body)


class Pages:
    """A connection to the pages of one run."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def put(self, page: Sequence[Event], said: Any) -> None:
        self.rows.append((page[-1].seq, written_page(page, said)))

    def execute(self, _sql: str, values: Sequence[Any]) -> Any:
        found = next({"body": body} for last, body in self.rows if last >= values[1])
        one: Callable[[], Any] = lambda: found  # noqa: E731 - it stands for a cursor
        return type("Cursor", (), {"fetchone": staticmethod(one)})


def test_third_o43_a_page_that_is_written_again_stands_for_itself() -> None:
    """A transaction may fail after its page was made."""
    pages, said = Pages(), dict[bytes, tuple[int, int]]()
    long, other = {"role": "user", "text": SAID}, {"role": "assistant", "text": SAID[1:]}
    first, second = prompt(1, long, long), prompt(2, long, other, {"role": "user", "text": "short"})
    written_page([first], said)
    pages.put([first], said)
    pages.put([second, prompt(3, other, long)], said)
    assert SAID not in pages.rows[1][1]
    found = list(read_pages(pages, "r", [page for _, page in pages.rows]))  # type: ignore[arg-type]  # it does less
    assert found == [first, second, prompt(3, other, long)]


def test_third_o43_tools_and_the_schema_of_a_reply_are_written_once_too() -> None:
    pages, said = Pages(), dict[bytes, tuple[int, int]]()
    tools = [{"name": f"tool{number}", "description": SAID, "parameters": {"type": "object"}} for number in range(3)]
    schema = {"type": "object", "description": SAID, "properties": {"kept": {"type": "array"}}}
    asked = {"role": "user", "text": "Go."}
    prompts = [
        prompt(1, asked, tools=tools),
        prompt(2, asked, tools=tools[:2], output_schema=schema),
        prompt(3, asked, asked, tools=[*tools, *tools], output_schema=schema, settings={"kept": [1, 0]}),
        prompt(4, asked, output_schema=None),
    ]
    for one in prompts:
        pages.put([one], said)
    assert sum(page.count(SAID) for _, page in pages.rows) == len(tools) + 1
    assert list(read_pages(pages, "r", [page for _, page in pages.rows])) == prompts  # type: ignore[arg-type]  # it does less
