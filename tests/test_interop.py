"""The table of libraries at a governed address, and what measures it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("scripts.interop", reason="the scripts are no part of the wheel")
pytest.importorskip("h11")
pytest.importorskip("openai")

from interop.server import Served
from scripts import interop, room


def rows(page: Path, begin: str, end: str) -> list[list[str]]:
    """Return the cells of the rows between two markers, without the head."""
    table = page.read_text(encoding="utf-8").split(begin)[1].split(end)[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


@pytest.mark.parametrize("library", interop.LIBRARIES.values(), ids=lambda one: one.title)
def test_the_page_has_each_library_and_every_claim_held(library: interop.Library) -> None:
    (row,) = [row for row in rows(interop.PAGE, interop.BEGIN, interop.END) if row[0] == library.title]
    shares = re.findall(r"(\d+) of (\d+)", " ".join(row[4:]))
    assert len(shares) == 4
    assert all(held == of for held, of in shares)


def test_the_page_of_room_has_each_library_and_says_why_it_is_not_the_newest() -> None:
    found = rows(room.PAGE, room.BEGIN, room.END)
    assert [row[0] for row in found] == list(room.OTHERS)
    for name, _, *cells, why in found:
        assert bool(why) == (set(cells) != {"newest"}), name


RUN = {"limit": 100, "tokens": 90, "answered": 60, "doubtful": 1, "silence": [10.0, 11.0], "left": 0, "diverged": False}
CALLS = [Served("r", 0, "one", 30, 9.0), Served("r", 0, "two", 30, 9.5), Served("r", 1, "two", 30, 12.0)]


@pytest.mark.parametrize(
    ("changes", "calls", "broken"),
    [
        ({}, CALLS, None),
        ({"limit": 80}, CALLS, "limit kept"),
        ({"tokens": 80}, CALLS, "count equal"),
        ({"doubtful": 0, "tokens": 95}, CALLS, "count equal"),
        ({"left": 1}, CALLS, "stopped on kill"),
        ({}, [*CALLS[:2], Served("r", 1, "two", 30, 10.5)], "stopped on kill"),
        ({}, [*CALLS, Served("r", 1, "one", 0, 12.5)], "resumed free"),
        ({"diverged": True}, CALLS, "resumed free"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_found(changes: dict[str, object], calls: list[Served], broken: str | None) -> None:
    claims = interop.judged({**RUN, "status": "completed", "error": None, **changes}, calls)
    assert [claim for claim, holds in claims.items() if not holds and claim != "exact"] == ([broken] if broken else [])


@pytest.mark.exhaustive
def test_the_client_of_openai_passes_with_kills(tmp_path: Path) -> None:
    library = interop.Library("the client of OpenAI", "chat completions", ("openai",))
    row = interop.prove("openai_client", library, interop.Place(sys.executable, None, "3", 0.0), 12, tmp_path / "runs")
    assert "| 12 |" in row
    assert "by SIGKILL" in row
    assert all(held == of for held, of in re.findall(r"(\d+) of (\d+)", row))
