"""docs/states.md is what the code says, and every row of docs/what-happens-when.md has a test that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kairo_team.engine.tasks.task_run import RUN_MOVES, TASK_MOVES, RunState, TaskState
from kairo_team.results import TeamStatus
from tests.states_page import diagram, page, status_rows

DOCS = Path(__file__).resolve().parent.parent / "docs"
STATES = DOCS / "states.md"
FAILURES = DOCS / "what-happens-when.md"
LINK = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)")
ARROW = re.compile(r"^    (\S+) --> (\S+)$")


def test_the_page_of_states_shows_the_code() -> None:
    """Written by `python -m tests.states_page > docs/states.md`."""
    assert STATES.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(("states", "moves"), [(RunState, RUN_MOVES), (TaskState, TASK_MOVES)], ids=["run", "task"])
def test_a_diagram_has_each_move_once_and_no_other(
    states: type[RunState | TaskState], moves: Mapping[str, frozenset[RunState | TaskState]]
) -> None:
    found = [match.groups() for line in diagram(states, moves) if (match := ARROW.match(line))]
    drawn = [(start, end) for start, end in found if "[*]" not in (start, end)]
    assert sorted(drawn) == sorted((str(start), str(end)) for start, ends in moves.items() for end in ends)
    assert {start for start, end in found if end == "[*]"} >= {str(state) for state in states} - set(map(str, moves))


def test_the_status_table_has_every_status() -> None:
    told = {cell.strip() for row in status_rows() for cell in row.split("|")}
    assert {status.name for status in TeamStatus} <= told


def rows() -> list[str]:
    lines = FAILURES.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and not line.startswith(("|---", "| when"))]


def test_every_row_says_what_happens_and_links_its_test() -> None:
    assert len(rows()) >= 50
    for row in rows():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 5, row
        assert all(cells), row
        assert LINK.fullmatch(cells[4]), row


@pytest.mark.parametrize("row", [*(f"t{number:02}" for number in range(1, 31)), "g11", "g13", "u02", "u04", "u09"])
def test_every_known_failure_of_teams_has_a_test_that_is_named_by_it(row: str) -> None:
    tests = Path(__file__).resolve().parent
    found = [file for file in tests.rglob("test_*.py") if f"def test_kf_{row}_" in file.read_text(encoding="utf-8")]
    assert found, f"no test_kf_{row}_..."


def test_every_linked_test_is_there() -> None:
    links = LINK.findall(FAILURES.read_text(encoding="utf-8"))
    files = {file: (DOCS.parent / file).read_text(encoding="utf-8") for _, file in links}
    missing = [
        f"{file}: {name}"
        for name, file in links
        if not re.search(rf"^(async )?def {name}\(", files[file], re.MULTILINE)
    ]
    assert missing == []
