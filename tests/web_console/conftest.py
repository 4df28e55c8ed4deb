"""What the browser tests of the console share: a console on the journal of their `book`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt


@pytest.fixture(scope="module")
def console(book: Path) -> Iterator[Any]:
    """The console of the module's journal, which `book` has made."""
    from tests.web_console.running import TOKEN  # needs the extra console, for which the module has looked

    journal = kt.SqliteJournal(book)
    with kt.console(journal, token=TOKEN, person="ada") as made:
        yield made
    journal.close()
