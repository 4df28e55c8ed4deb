"""The same job by each of the five coordinators: what the page shows, and what holds on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.examples.running import start

which = pytest.importorskip("kairo_team.examples.which_coordinator", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/which_coordinator.py"
NAMES = ("task board", "expert team", "hand-off", "group chat", "supervisor")

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


def tables() -> list[list[str]]:
    """What the page shows: on the embedded model, then offline."""
    page = (ROOT / "docs/coordinators.md").read_text(encoding="utf-8")
    return [block.partition("```")[0].splitlines() for block in page.split("```text\n")[1:]]


def test_the_page_shows_what_it_prints_offline() -> None:
    done = start(str(FILE), "--offline")
    assert done.stdout.splitlines() == tables()[1]
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_the_embedded_model_has_the_calls_of_the_script() -> None:
    """A model that follows the examples is asked as often as the script."""
    counted = [[line[:12], line[12:18], line[18:25]] for table in tables() for line in table[1:]]
    assert counted[:5] == counted[5:]
    assert [name.strip() for name, *_ in counted[:5]] == list(which.coordinators("local:smollm2")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_figure_is_not_counted_as_right(name: str) -> None:
    def wrong(request: kt.ModelRequest) -> str:
        return str(which.scripted(request)).replace("5 knots", "15 knots")

    result, calls = which.play(name, FunctionModel(wrong))
    line = which.row(name, result, calls, timed=False)
    assert line.endswith(("1 of 2 lines right", "0 of 2 lines right"))
    if name == "expert team":
        assert calls > len(which.RECORD), "the review sent nothing back"


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_each_does_the_job_on_the_embedded_model() -> None:
    """Whom it chooses and what it writes are its own: what holds anywhere is that each ends, with an account."""
    for name in NAMES:
        result, calls = which.play(name, which.MODEL)
        assert result.status is not kt.TeamStatus.TIMEOUT
        assert calls >= 1
        assert 0 < result.usage.tokens <= 20_000
