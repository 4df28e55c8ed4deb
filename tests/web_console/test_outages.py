"""The console while its database cannot be reached: pages say so, and open ones go on afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

pytest.importorskip("starlette", reason="the console needs the extra console")
pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt
from kairo_team.errors import JournalError
from kairo_team.web_console.sources import JournalSource
from kairo_team.web_console.streams import messages
from tests.web_console.running import Browser, begin, words

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
AWAY = JournalError("database 'kairo'", "it cannot be reached")


class Breakable:
    """A source whose database goes away and comes back."""

    name = "runs.db"

    def __init__(self, source: JournalSource) -> None:
        self._source = source
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if self.is_away:
                raise AWAY
            return getattr(self._source, name)(*arguments)

        return call


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(tmp_path / "runs.db")
    yield made
    made.close()


async def test_a_page_says_that_the_database_is_away_and_is_there_again_afterwards(
    journal: kt.SqliteJournal, tmp_path: Path
) -> None:
    await begin(tmp_path / "runs.db")
    source = Breakable(JournalSource(journal))
    async with Browser(cast("Any", source)) as browser:
        source.is_away = True
        for path in ("/", "/questions", "/run?id=run-1", "/run/task?id=run-1&task=letter"):
            shown = await browser.client.get(path)
            assert shown.status_code == 503
            assert "it cannot be reached" in words(shown.text)
        sent = await browser.send("/questions/answer", question="x", action="approve", back="/questions")
        assert (sent.status_code, "it cannot be reached" in words(sent.text)) == (503, True)
        for path in ("/stream", "/questions/stream", "/run/stream?id=run-1"):
            stream = await browser.client.get(path)  # a browser connects again only after such an answer
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
        source.is_away = False
        assert "letter" in words(await browser.read("/run", id="run-1"))


async def test_an_open_page_is_let_go_when_the_database_goes_away_so_that_its_browser_connects_again() -> None:
    def look() -> object:
        if len(sent) > 1:
            raise AWAY
        return len(sent)

    sent: list[str] = []
    with anyio.fail_after(60):
        async for message in messages("", look, lambda state: {"part": str(state)}, lambda: False):
            sent.append(message)  # noqa: PERF401 - `look` counts them meanwhile
    assert len(sent) == 2
