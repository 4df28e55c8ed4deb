"""A run is seen while it goes on, in a real notebook kernel."""

from __future__ import annotations

import sys

import pytest

from kairo_team.errors import Misuse
from kairo_team.views import NotebookView

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
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook is run")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook is run")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook is run")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    lines = output["data"]["text/plain"].splitlines()
    assert lines[0].split()[:5] == ["<b>news</b>", "2", "of", "2", "done"]
    assert lines[1].endswith("0 of 1,000, 0 held, 1,000 free")
    assert [line.split()[:2] for line in lines[4:6]] == [["draft", "done"], ["mend", "done"]]
    page = output["data"]["text/html"]
    assert page.startswith("<pre")
    assert "&lt;b&gt;news" in page
    assert "<b>news" not in page


def test_outside_a_notebook_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(Misuse, match="NotebookView needs IPython: use it in a notebook"):
        NotebookView()
