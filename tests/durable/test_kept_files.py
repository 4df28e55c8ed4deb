"""Files and long texts in journals: each content once, by its digest, and gone with the last run that refers to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.durable.codec import CorruptRecord, decode, encode, encode_apart, fetching, outline
from kairo_team.durable.memory import MemoryJournal
from kairo_team.engine.records.digests import digests_of
from kairo_team.errors import JournalError
from kairo_team.testing import FunctionModel
from tests.models.test_files import AT_URL, PAPER, PHOTO

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PLAN = kt.TaskGraph(
    [kt.Task("draw", "Draw.", role="drawer"), kt.Task("read", "Read.", role="reader", depends_on=["draw"])]
)


class Desk:
    """A team whose first member makes a file, and whose second is sent it; `meanwhile` is called during that call."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.given: list[list[bytes | None]] = []
        self.drawn = 0

        def draw(assignment: kt.Assignment) -> kt.Artifact:
            self.drawn += 1
            return kt.Artifact("A chart.", files=[PHOTO])

        def read(request: kt.ModelRequest) -> str:
            self.given.append([file.data for file in request.files])
            meanwhile()
            return "It rises."

        reader = kt.MiniAgent(FunctionModel(read))
        self.team = kt.Team("desk", [kt.Member("drawer", draw), kt.Member("reader", reader)])


def request() -> kt.TeamExecutionRequest:
    return kt.TeamExecutionRequest("Chart it.", plan=PLAN, run_id="run-1", files=[PAPER, AT_URL])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def run_with(path: Path, desk: Desk) -> kt.TeamResult:
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        async with kt.Runtime(journal=journal) as runtime:
            return await kt.run(desk.team, request(), runtime=runtime)


# ---------------------------------------------------------------- the codec


def test_a_file_is_written_whole_or_apart_and_read_back_equal() -> None:
    value = [PHOTO, AT_URL, kt.Artifact("x", files=[PAPER])]
    assert decode(encode(value)) == value
    written, files = encode_apart([*value, PHOTO])
    assert files == [PHOTO, PAPER]
    assert "bytes" not in written
    contents = {file.digest: file.data for file in files}
    with fetching(contents.get):
        found = decode(written)
    assert found == [*value, PHOTO]
    assert [file.data for file in found[:2]] == [PHOTO.data, None]
    assert str(outline(written)[0]) == "photo.png, image/png, 71 bytes"
    assert outline(written)[0].data is None


def test_a_record_made_before_there_were_files_is_read_as_it_was() -> None:
    old = '{"~":"Message","v":{"role":"user","text":"Hello."}}'
    assert decode(old) == kt.Message.user("Hello.")
    assert "files" not in encode(kt.Artifact("x"))


def test_a_plan_without_files_keeps_its_digest() -> None:
    """It is part of what a resumed run is compared with."""
    inner = kt.Team("inner", [kt.Member("a", lambda _: "x")])

    def team(*files: kt.File) -> kt.Team:
        plan = kt.TaskGraph([kt.Task("t", "Do.", files=files)])
        return kt.Team("outer", [kt.Member("b", TeamAgent(inner, plan=plan))])

    name = "plan of member 'b'"
    assert digests_of(team(), {})[name] == "b84a0c29a010b30f6c1a1cd6c8c7df139239fbb8841cd1ff08dca05a4f11b7b9"
    assert digests_of(team(PHOTO), {})[name] != digests_of(team(), {})[name]


# ---------------------------------------------------------------- a journal in a file


async def test_each_content_is_kept_once_and_found_by_its_digest(path: Path) -> None:
    result = await run_with(path, Desk())
    assert result.status is kt.TeamStatus.COMPLETED
    assert sorted(rows(path, "SELECT digest FROM file")) == sorted([(PHOTO.digest,), (PAPER.digest,)])
    everything = str(rows(path, "SELECT request, result FROM run") + rows(path, "SELECT value FROM step"))
    assert PHOTO.data is not None
    for spelt in (encode(PHOTO.data)[20:60], PHOTO.data.hex()[:40]):
        assert spelt not in everything
    with closing(kt.SqliteJournal(path)) as journal:
        kept = journal.result("run-1")
        assert kept == result
        assert kept is not None
        artifact = kept["draw"].artifact
        assert artifact is not None
        assert artifact.files[0].data == PHOTO.data
        assert journal.database.file(PAPER.digest) == PAPER.data
        assert journal.database.file("0" * 64) is None


async def test_a_resumed_run_has_its_files_and_does_no_work_again(path: Path) -> None:
    image = path.with_name("image.db")

    def copy() -> None:
        with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(image)) as here:
            there.backup(here)

    first, again = Desk(copy), Desk()
    whole = await run_with(path, first)
    with closing(kt.SqliteJournal(image, sync="normal")) as journal:
        async with kt.Runtime(journal=journal) as runtime:
            result = await runtime.resume("run-1", again.team)
    assert result.status is kt.TeamStatus.COMPLETED
    assert (first.drawn, again.drawn) == (1, 0)
    assert again.given == first.given == [[PAPER.data, None, PHOTO.data]]
    assert [one.artifact for one in result.outcomes] == [one.artifact for one in whole.outcomes]


async def test_forgetting_a_run_deletes_what_no_other_run_refers_to(path: Path) -> None:
    await run_with(path, Desk())
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        fork = journal.fork("run-1", before="read", new_id="fork")
        journal.forget("run-1")
        assert len(rows(path, "SELECT 1 FROM file")) == 2
        async with kt.Runtime(journal=journal) as runtime:
            desk = Desk()
            await runtime.resume(fork, desk.team)
        assert desk.given == [[PAPER.data, None, PHOTO.data]]
        journal.forget("fork")
    assert rows(path, "SELECT * FROM file") == rows(path, "SELECT * FROM run_file") == []


async def test_a_journal_without_the_tables_opens_and_gets_them(path: Path) -> None:
    kt.SqliteJournal(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE file; DROP TABLE run_file; PRAGMA user_version = 1")
    assert (await run_with(path, Desk())).status is kt.TeamStatus.COMPLETED
    assert len(rows(path, "SELECT 1 FROM file")) == 2


# ---------------------------------------------------------------- in memory


async def test_a_journal_in_memory_keeps_them_too() -> None:
    journal = MemoryJournal()
    first, again = Desk(journal.crash), Desk()
    await kt.run(first.team, request(), runtime=kt.Runtime(journal=journal))
    result = await kt.Runtime(journal=journal.elsewhere()).resume("run-1", again.team)
    assert again.given == [[PAPER.data, None, PHOTO.data]]
    assert result.status is kt.TeamStatus.COMPLETED
    assert set(journal.storage.files) == {PHOTO.digest, PAPER.digest}


async def test_a_file_whose_content_is_gone_is_refused_before_work(tmp_path: Path) -> None:
    with closing(kt.SqliteJournal(tmp_path / "runs.db", sync="normal")) as journal:
        drawer = kt.Team("desk", [kt.Member("drawer", lambda _: kt.Artifact("A pier.", files=[PHOTO]))])
        await kt.run(drawer, "Draw.", run_id="r", runtime=kt.Runtime(journal=journal))
        result = journal.result("r")
        journal.forget("r")
    assert result is not None
    assert result.artifact is not None
    [gone] = result.artifact.files
    model = FunctionModel(lambda _: pytest.fail("it was asked"))
    again = await kt.run(kt.Team("desk", [kt.Member("reader", kt.MiniAgent(model))]), "Read.", files=[gone])
    assert again.refused
    assert "photo.png, image/png, 71 bytes: its content is no longer kept" in str(again.error)


# ---------------------------------------------------------------- long texts

LONG = "The tide rises and falls. " * 40
"""A text of 1,040 characters."""


@pytest.mark.parametrize("text", [LONG, "\ud800" * 1_000, "\u6f6e" * 1_000, "~" * 1_000])
def test_a_long_text_is_written_apart_and_read_back_equal(text: str) -> None:
    value = {"said": text, "again": [text, {text: 1}], "short": "x" * 999}
    written, apart = encode_apart(value)
    assert len(written) < 2_500 + len(text) * 6, "a key stays where it is"
    assert len(apart) == 1
    contents = {one.digest: one.data for one in apart}
    with fetching(contents.get):
        assert decode(written) == value
    assert decode(encode(value)) == value
    with pytest.raises(CorruptRecord, match="is not kept here"):
        decode(written)


class Writers:
    """A team whose members answer with a long text; one of them is a team."""

    def __init__(self) -> None:
        self.asked = 0

        def answer(_request: kt.ModelRequest) -> str:
            self.asked += 1
            return f"{self.asked}: {LONG}"

        inner = kt.Team("inner", [kt.Member("hand", kt.MiniAgent(FunctionModel(answer)))])
        members = [kt.Member("a", kt.MiniAgent(FunctionModel(answer))), kt.Member("b", TeamAgent(inner))]
        self.team = kt.Team("writers", members)


async def written_by(journal: Any, writers: Writers, run_id: str = "run-1") -> kt.TeamResult:
    plan = kt.TaskGraph(
        [kt.Task("one", "Write.", member="a"), kt.Task("two", "Write.", member="b", depends_on=["one"])]
    )
    async with kt.Runtime(journal=journal) as runtime:
        return await kt.run(writers.team, "Write.", plan=plan, run_id=run_id, runtime=runtime)


async def test_a_reply_is_in_a_file_once(path: Path) -> None:
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        result = await written_by(journal, Writers())
        assert getattr(result["two"].artifact, "text", None) == f"2: {LONG}"
        assert journal.result("run-1") == result
    assert LONG not in str(rows(path, "SELECT * FROM step") + rows(path, "SELECT * FROM run"))
    kept = [data for (data,) in rows(path, "SELECT data FROM file")]
    assert len(kept) == len(set(kept))
    assert sum(LONG.encode() in data for data in kept) == 3, "two replies, and the task of the team inside"


async def test_a_fork_keeps_texts_that_its_source_forgets(path: Path) -> None:
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        writers = Writers()
        result = await written_by(journal, writers)
        journal.fork("run-1", before="two", new_id="run-2")
        journal.forget("run-1")
        async with kt.Runtime(journal=journal) as runtime:
            again = await runtime.resume("run-2", writers.team)
        assert (again["one"].artifact, writers.asked) == (result["one"].artifact, 3)
        journal.forget("run-2")
    assert rows(path, "SELECT count(*) FROM file") == rows(path, "SELECT count(*) FROM run_file") == [(0,)]


async def test_long_texts_of_two_files_are_read_in_one_another(tmp_path: Path) -> None:
    """Each journal finds its own, also inside a block that reads the other one."""
    with (
        closing(kt.SqliteJournal(tmp_path / "a.db")) as first,
        closing(kt.SqliteJournal(tmp_path / "b.db")) as second,
    ):
        result = await written_by(first, Writers())
        await written_by(second, Writers(), "run-2")
        with second.database.reading():
            assert first.result("run-1") == result


async def test_a_text_that_is_missing_is_said(path: Path) -> None:
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        await written_by(journal, Writers())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM file")
        connection.commit()
    with closing(kt.SqliteJournal(path)) as journal, pytest.raises(JournalError, match="is not kept here"):
        journal.result("run-1")
