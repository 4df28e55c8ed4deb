"""What comes from a database imports nothing, and what a database is reached with shows nowhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.durable.codec import CorruptRecord, decode_loaded, encode
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.errors import JournalError
from kairo_team.tck.journal_stage import request_of, result_of, team_of
from tests.cluster.stage import execute

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PLANTED = "planted_by_the_database"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported and was not; a text that names a class of it."""
    source = "import dataclasses\n@dataclasses.dataclass\nclass Letter:\n    text: str = ''\n"
    (tmp_path / f"{PLANTED}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, PLANTED, raising=False)
    return f'{{"~":"{PLANTED}:Letter","v":{{}}}}'


def test_a_text_names_only_classes_that_are_imported_already(planted: str) -> None:
    with pytest.raises(CorruptRecord, match="only classes of modules that are imported are read"):
        decode_loaded(planted)
    assert PLANTED not in sys.modules
    __import__(PLANTED)
    assert decode_loaded(planted).text == ""
    assert decode_loaded(encode(kt.Budget(tokens=1))) == kt.Budget(tokens=1)


def test_a_url_with_a_mistake_is_refused_without_its_password() -> None:
    with pytest.raises(ValueError, match="this is not a database URL") as caught:
        PostgresJournal("postgresql://kairo:pass-w0rd@host/kairo?no-option=1")
    assert "pass-w0rd" not in str(caught.value)


async def test_a_database_decides_nothing_about_what_is_imported(planted: str, database: str) -> None:
    """Whatever table the text stands in: steps, results, requests, questions, units."""
    journal = PostgresJournal(database, beat=0.5)
    try:
        session = journal.begin(request_of("r"), team_of(), {}, None)
        session.put("step", 1)
        session.end(result_of("r", kt.TeamStatus.SUSPENDED))
        await session.written()
        reads: dict[str, Any] = {
            "UPDATE step SET value = %s": lambda: journal.recover("r"),
            "UPDATE run SET request = %s": lambda: journal.recover("r"),
            "UPDATE run SET result = %s": lambda: journal.result("r"),
            "UPDATE run SET usage = %s": lambda: journal.show("r"),
        }
        for change, read in reads.items():
            execute(database, change, planted)
            with suppress(JournalError, CorruptRecord, AttributeError, TypeError):
                read()
            assert PLANTED not in sys.modules, change
    finally:
        journal.close()
