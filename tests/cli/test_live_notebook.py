"""A run is seen while it goes on, in a real notebook kernel."""

from __future__ import annotations

import sys
import threading

import anyio
import anyio.to_thread
import pytest

import kairo_team as kt
from kairo_team.errors import Misuse
from kairo_team.views import NotebookView
from tests.notebooks import output_of

CELL = """
import kairo_team as kt
from kairo_team.views import NotebookView

async def work(assignment):
    return f"{assignment.task.id} is done"

view = NotebookView(kt.Budget(tokens=1_000))
plan = kt.TaskGraph([kt.Task("draft", "do"), kt.Task("mend", "do", depends_on=["draft"])])
team = kt.Team("<b>news</b>", [kt.Member("writer", work)], runtime=kt.Runtime(subscribers=[view]))
result = await kt.run(team, kt.TeamExecutionRequest("go", plan=plan))
"""


@pytest.mark.real_time
def test_a_cell_shows_a_run_in_one_output_that_is_drawn_anew() -> None:
    output = output_of(CELL)
    lines = output["data"]["text/plain"].splitlines()
    assert lines[0].split()[:5] == ["<b>news</b>", "2", "of", "2", "done"]
    assert lines[1].endswith("0 of 1,000, 0 held, 1,000 free")
    assert [line.split()[:2] for line in lines[4:6]] == [["draft", "done"], ["mend", "done"]]
    page = output["data"]["text/html"]
    assert page.startswith("<pre")
    assert "&lt;b&gt;news" in page
    assert "<b>news" not in page


class Screen:
    """Stands for IPython's display: keeps what it is shown, and tells when a text is seen."""

    def __init__(self, awaited: str) -> None:
        self.shown: list[str] = []
        self.seen = threading.Event()
        self._awaited = awaited

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Screen:
        assert display_id
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])
        if self._awaited in data["text/plain"]:
            self.seen.set()


@pytest.mark.real_time
def test_what_begins_is_shown_while_nothing_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen("writer at work")
    monkeypatch.setattr("kairo_team.views.live_notebook.import_module", lambda _: screen)

    async def wait_for_the_screen(_: kt.Assignment) -> str:
        return str(await anyio.to_thread.run_sync(screen.seen.wait, 60))

    runtime = kt.Runtime(subscribers=[NotebookView(rate=50)])
    team = kt.Team("newsroom", [kt.Member("writer", wait_for_the_screen)], runtime=runtime)
    assert kt.run_sync(team, "go").status == "completed"
    assert screen.seen.is_set()
    assert "1 of 1 done" in screen.shown[-1]


def test_a_rate_is_above_0() -> None:
    with pytest.raises(ValueError, match="rate must be a number of drawings per second above 0, not 0"):
        NotebookView(rate=0)


def test_outside_a_notebook_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(Misuse, match="NotebookView needs IPython: use it in a notebook"):
        NotebookView()
