"""Files of artifacts in the console: images are shown, others are saved, and nothing in them runs."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("uvicorn", reason="the console needs the extra console")
httpx = pytest.importorskip("httpx", reason="the tests of the console need httpx")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team.human import subject_of  # noqa: E402
from kairo_team.web_console import made_files  # noqa: E402
from kairo_team.web_console.open_questions import open_questions  # noqa: E402
from kairo_team.web_console.runtime_source import RuntimeSource  # noqa: E402
from kairo_team.web_console.sources import JournalSource  # noqa: E402
from tests.models.test_files import AT_URL, PAPER, PHOTO, png  # noqa: E402
from tests.web_console.running import HOSTILE, TOKEN, Browser, words  # noqa: E402
from tests.web_console.test_server import visit  # noqa: E402

pytestmark = pytest.mark.real_time

SCRIPT = b"<script>alert(1)</script>"
PAGE = kt.File(data=SCRIPT, media_type="text/html", name=f'../../{HOSTILE.partition(" ")[0]}"; x=".html')
DRAWING = kt.File(data=b"<svg onload='alert(1)'/>", media_type="image/svg+xml", name="drawing.svg")
LIAR = kt.File(data=SCRIPT, media_type="image/png", name="liar.png")
NAME = "a name that nobody is told"
SECRET = kt.File(data=png(7, 7), name=f"{NAME}.png")
FILES = (PHOTO, PAPER, PAGE, DRAWING, LIAR, AT_URL, SECRET)


class Escalates:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")


async def draw_in(runtime: kt.Runtime, *files: kt.File, text: str = "Drawn.") -> kt.TeamResult:
    """Make a run whose artifact has files and waits for a person."""

    def draw(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact(text, files=files)

    coordinator = kt.ExpertTeamCoordinator(evaluator=Escalates())
    team = kt.Team("desk", [kt.Member("drawer", draw)], coordinator=coordinator)
    return await kt.run(team, "Draw.", plan=kt.TaskGraph([kt.Task("draw", "Draw.")]), run_id="run-1", runtime=runtime)


@pytest.mark.usefixtures("swept")
def test_images_are_shown_and_others_are_saved_and_none_can_do_harm(tmp_path: Path) -> None:
    async def record() -> None:
        journal = kt.SqliteJournal(tmp_path / "runs.db")
        result = await draw_in(kt.Runtime(journal=journal, gate=kt.DeferGate(), secrets=[NAME]), *FILES)
        assert result.status is kt.TeamStatus.SUSPENDED
        journal.close()

    anyio.run(record)
    gc.collect()  # from here on nobody knows the secret
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    with kt.console(journal, token=TOKEN) as console, visit(console) as browser:
        address = console.link
        for page in ("/run?id=run-1", "/questions"):
            html = browser.get(page).text
            assert html.count("<img ") == (6 if page.startswith("/run") else 3), html
            assert "photo.png, image/png, 71 bytes" in html
            assert AT_URL.url in html
            assert "<script>alert" not in html
            assert NAME not in html
        for file in FILES:
            got = browser.get("/run/file", params={"id": "run-1", "digest": file.digest, "type": file.media_type})
            if file is AT_URL:
                assert got.status_code == 404
                continue
            shown = file in (PHOTO, LIAR, SECRET)
            assert got.content == file.data
            assert got.headers["content-type"] == ("image/png" if shown else "application/octet-stream")
            how, _, name = got.headers["content-disposition"].partition("; ")
            assert how == ("inline" if shown else "attachment")
            assert not set('"<>/\\') & set(name.removeprefix("filename*=UTF-8''"))
            assert got.headers["x-content-type-options"] == "nosniff"
            assert got.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
            assert ("%5Bsecret%5D" in name) == (file is SECRET)
        for wrong in (
            {"id": "run-1", "digest": "0" * 64, "type": "image/png"},
            {"id": "run-2", "digest": PHOTO.digest, "type": "image/png"},
            {},
        ):
            assert browser.get("/run/file", params=wrong).status_code == 404
    journal.close()
    with httpx.Client() as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(address)


async def test_a_stranger_gets_no_file(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    await draw_in(kt.Runtime(journal=journal, gate=kt.DeferGate()), PHOTO)
    async with Browser(journal, enter=False) as stranger:
        got = await stranger.client.get(
            "/run/file", params={"id": "run-1", "digest": PHOTO.digest, "type": "image/png"}
        )
        assert got.status_code == 401
    journal.close()


async def test_without_a_journal_files_of_recorded_texts_are_shown_and_large_ones_named(tmp_path: Path) -> None:
    large = kt.File(data=png(8, 8) + bytes(400_000), name="large.png")
    async with kt.Runtime(content="events", gate=kt.DeferGate()) as runtime, Browser(RuntimeSource(runtime)) as browser:
        await draw_in(runtime, PHOTO, large)
        html = await browser.read("/run", id="run-1")
        assert html.count("<img ") == 2
        assert "large.png, image/png, 400 kB" in words(html)
        got = await browser.client.get("/run/file", params={"id": "run-1", "digest": PHOTO.digest, "type": "image/png"})
        assert got.content == PHOTO.data
        got = await browser.client.get("/run/file", params={"id": "run-1", "digest": large.digest, "type": "image/png"})
        assert got.status_code == 404


async def test_of_many_files_only_so_many_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_files, "MOST_FILES", 3)
    many = [kt.File(data=png(9, 1 + number), name=f"{number}.png") for number in range(5)]
    journal: Any = kt.SqliteJournal(tmp_path / "runs.db")
    await draw_in(kt.Runtime(journal=journal, gate=kt.DeferGate()), *many, *many)
    async with Browser(journal) as browser:
        html = await browser.read("/run", id="run-1")
        assert html.partition("<h2>Files")[2].count("<img ") == 3
        assert "2 more files are not shown." in html
    journal.close()


async def test_the_files_of_a_run_are_looked_for_once_for_all_its_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    plan = kt.TaskGraph([kt.Task(name, "Draw.") for name in ("draw", "paint", "print")])
    member = kt.Member("drawer", lambda _: kt.Artifact("Drawn.", files=[PHOTO]))
    team = kt.Team("desk", [member], coordinator=kt.ExpertTeamCoordinator(evaluator=Escalates()))
    async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
        await kt.run(team, "Draw.", plan=plan, run_id="run-1", runtime=runtime)
    source, looked = JournalSource(journal), list[str]()
    files = source.files

    def found(run_id: str) -> Any:
        looked.append(run_id)
        return files(run_id)

    monkeypatch.setattr(source, "files", found)
    asked = open_questions(source)
    assert [[file.task_id for file in one.files] for one in asked] == [[one.asked.task_id] for one in asked]
    assert looked == ["run-1"]
    journal.close()


async def test_a_value_of_a_class_that_is_not_imported_hides_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pens_of_a_member.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Pen:\n    color: str\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    pen: Any = importlib.import_module("pens_of_a_member").Pen("red")
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    team = kt.Team("desk", [kt.Member("drawer", lambda _: kt.Artifact("Drawn.", data=pen, files=[PHOTO]))])
    plan = kt.TaskGraph([kt.Task("draw", "Draw.")])
    await kt.run(team, "Draw.", plan=plan, run_id="run-1", runtime=kt.Runtime(journal=journal))
    monkeypatch.delitem(sys.modules, "pens_of_a_member")
    async with Browser(journal) as browser:
        for path in ("/run?id=run-1", "/run/task?id=run-1&task=draw"):
            assert "photo.png" in await browser.read(path)
    journal.close()


def test_an_approval_is_for_the_files_that_were_shown() -> None:
    subjects = [subject_of(kt.Artifact("Drawn.", files=files)) for files in ((), (PHOTO,), (SECRET,), (PHOTO, SECRET))]
    asked = [kt.HumanRequest("review", "Good?", subject, "draw") for subject in subjects]
    assert subjects[0] == "Drawn."
    assert len({one.digest for one in asked}) == 4
