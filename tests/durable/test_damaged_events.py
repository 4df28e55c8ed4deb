"""A damaged page of events: a sentence names it and what to do, and everything else of the run can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cli.app import run_command
from kairo_team.durable.event_pages import read_rows
from kairo_team.durable.value_classes import CorruptRecord
from kairo_team.errors import JournalError
from tests.cluster import stage
from tests.durable.test_third_prompts import Pages, prompt

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
TEAM = kt.Team("desk", [kt.Member("clerk", lambda _: "done")])
PLAN = kt.TaskGraph([kt.Task("a", "Do it."), kt.Task("b", "Do it.", depends_on=["a"])])


async def recorded(journal: Any) -> list[int]:
    """Record a run; return the last number of each page of its events."""
    await kt.run(TEAM, "Go.", plan=PLAN, run_id="sea-1", runtime=kt.Runtime(journal=journal))
    with journal.database.reading() as connection:
        return [row["last"] for row in connection.execute("SELECT last FROM event ORDER BY last").fetchall()]


def damage(journal: Any, page: int, body: str) -> None:
    with journal.database.writing() as connection:
        connection.execute("UPDATE event SET body = ? WHERE last = ?", (body, page))


@pytest.mark.parametrize("body", ["", "{", "[]", "7", '{"type": "nothing"}', '{"type": "team.started"}'])
@pytest.mark.parametrize("kind", ["file", "database"])
async def test_a_damaged_page_is_named_and_the_rest_can_be_read(kind: str, body: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = kt.SqliteJournal(path) if kind == "file" else kt.PostgresJournal(stage.new_database("procrastinate"))
    pages = await recorded(journal)
    damage(journal, pages[0], body)
    with pytest.raises(JournalError, match=f"ends with number {pages[0]} is damaged .* --after {pages[0]} prints"):
        journal.events_after("sea-1")
    assert [one.seq for one in journal.events_after("sea-1", pages[0])] == [*range(pages[0] + 1, pages[-1] + 1)]
    assert journal.show("sea-1").state == "completed"
    journal.close()


async def test_the_command_says_what_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.db"
    journal = kt.SqliteJournal(path)
    pages = await recorded(journal)
    damage(journal, pages[0], "{")
    journal.close()
    assert run_command(["events", "sea-1", "--journal", str(path)]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert f"kairo events sea-1 --after {pages[0]} prints the events after it" in " ".join(said.err.split())


def test_a_prompt_whose_earlier_page_is_damaged_is_a_damaged_page_too() -> None:
    pages, said = Pages(), dict[bytes, tuple[int, int]]()
    long = {"role": "user", "text": "x" * 100}
    pages.put([prompt(1, long)], said)
    pages.put([prompt(2, long)], said)
    pages.rows[0] = (1, '{"type": "team.started"}')
    with pytest.raises(CorruptRecord, match="ends with number 2 is damaged"):
        list(read_rows(pages, "r", [{"last": 2, "body": pages.rows[1][1]}]))  # type: ignore[arg-type]  # it does less
