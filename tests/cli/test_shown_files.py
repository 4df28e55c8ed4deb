"""Files where people look: in events and the report under the content policy, in the terminal, in teams as data."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.data.teams import TeamJob
from kairo_team.events import Content
from kairo_team.files import MOST_SHOWN
from kairo_team.testing import EventRecorder
from kairo_team.views.run_story import RunStory
from tests.models.test_files import AT_URL, PAPER, PHOTO, png
from tests.test_report import unpacked

pytestmark = pytest.mark.anyio

BIG = kt.File(data=png() + b"\0" * MOST_SHOWN, name="big.png")


async def draw(assignment: kt.Assignment) -> kt.Artifact:
    return kt.Artifact("A chart.", files=[PHOTO, PAPER, BIG, AT_URL])


def encoded(file: kt.File) -> str:
    return base64.b64encode(file.data or b"").decode()


def desk() -> kt.Team:
    return kt.Team("desk", [kt.Member("drawer", draw)])


async def test_events_hold_small_files_whole_and_name_the_others() -> None:
    recorder = EventRecorder()
    await kt.run(desk(), "Draw.", plan=PLAN, runtime=kt.Runtime(subscribers=[recorder], content="events"))
    [made] = [one for one in recorder.of(Content) if one.of == "artifact"]
    photo, _, big, _ = made.body["files"]
    assert photo["data"] == encoded(PHOTO)
    assert "data" not in big
    assert big["size"] == BIG.size
    json.loads(made.to_json())
    story = RunStory()
    for event in recorder.events:
        story.take(event)
    assert list(story.tasks["t"].attempts[-1].files) == [PHOTO, PAPER, BIG, AT_URL]


async def test_without_content_no_event_names_a_file() -> None:
    recorder = EventRecorder()
    await kt.run(desk(), "Draw.", plan=PLAN, runtime=kt.Runtime(subscribers=[recorder]))
    assert "photo.png" not in "".join(event.to_json() for event in recorder.events)


PLAN = kt.TaskGraph([kt.Task("t", "Draw it.")])


def check_report(page: str) -> None:
    page += "".join(str(html) for rows in unpacked(page).values() for html, *_ in rows)
    assert f'<img alt="photo.png" src="data:image/png;base64,{encoded(PHOTO)}">' in page
    assert f'<a download="paper.pdf" href="data:application/octet-stream;base64,{encoded(PAPER)}">' in page
    assert encoded(BIG)[:200] not in page
    assert "big.png, image/png, 300 kB" in page
    assert "photo.png, image/png, by its URL" in page
    assert "img-src data:" in page


async def test_the_report_shows_images_and_offers_the_rest(tmp_path: Path) -> None:
    result = await kt.run(desk(), "Draw.", plan=PLAN)
    result.report(tmp_path / "report.html")
    check_report((tmp_path / "report.html").read_text(encoding="utf-8"))


async def test_the_report_shows_an_artifact_that_is_an_image_alone(tmp_path: Path) -> None:
    team = kt.Team("desk", [kt.Member("drawer", lambda _: kt.Artifact("", files=[PHOTO]))])
    result = await kt.run(team, "Draw.", plan=PLAN)
    result.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    page += "".join(str(html) for rows in unpacked(page).values() for html, *_ in rows)
    assert encoded(PHOTO) in page


@pytest.mark.real_time
async def test_so_does_the_report_of_a_journal(tmp_path: Path, kairo: Any) -> None:
    path = tmp_path / "runs.db"
    with closing(kt.SqliteJournal(path, sync="normal")) as journal:
        async with kt.Runtime(journal=journal) as runtime:
            await kt.run(desk(), "Draw.", plan=PLAN, run_id="run-1", runtime=runtime)
    said = kairo("report", "run-1", "--journal", path, "--output", tmp_path / "report.html")
    assert said.code == 0, said.err
    check_report((tmp_path / "report.html").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- the command and teams as data


TEAM = """
import kairo_team as kt
def echo(assignment):
    return kt.Artifact(" and ".join(map(str, assignment.files)), files=assignment.files)
team = kt.Team("desk", [kt.Member("a", echo)])
plan = kt.TaskGraph([kt.Task("t", "Look.")])
"""


def test_the_command_takes_files_and_names_those_that_came_out(kairo: Any, tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM, encoding="utf-8")
    (tmp_path / "photo.png").write_bytes(png())
    (tmp_path / "notes.md").write_text("Hello.", encoding="utf-8")
    said = kairo("run", tmp_path / "team.py", "--file", tmp_path / "photo.png", "--file", tmp_path / "notes.md")
    assert said.code == 0, said.err
    assert "photo.png, image/png, 71 bytes and notes.md, text/markdown, 6 bytes" in said.out
    assert "\n  photo.png, image/png, 71 bytes\n  notes.md" in said.out
    said = kairo("run", tmp_path / "team.py", "--file", tmp_path / "none.png")
    assert said.code == 2
    assert "none.png') cannot be read: there is no such file" in said.err


def team_with(files: Any) -> dict[str, Any]:
    plan = {"tasks": [{"id": "t", "description": "Look.", "files": files}]}
    agent = {"mini": {"model": "local:smollm2"}}
    return {"name": "desk", "members": [{"role": "a", "agent": agent}], "request": {"goal": "Go.", "plan": plan}}


def load(folder: Path, files: Any, **options: Any) -> TeamJob:
    file = folder / "team.json"
    file.write_text(json.dumps(team_with(files)), encoding="utf-8")
    return kt.load_job(file, **options)


def test_a_team_as_data_names_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(png())
    again = {"path": "photo.png", "name": "again.png", "media_type": "image/gif"}
    job = load(tmp_path, ["photo.png", again, {"url": AT_URL.url}])
    assert job.plan is not None
    first, second, third = job.plan["t"].files
    assert (first, third) == (PHOTO, AT_URL)
    assert (second.name, second.media_type) == ("again.png", "image/gif")
    check = kt.check(job.team, job.request())
    assert "model 'local:smollm2' cannot be given photo.png" in str(check)


@pytest.mark.parametrize("named", ["../secret.png", {"path": "../secret.png"}])
def test_it_names_none_outside_its_folder_unless_it_is_trusted(tmp_path: Path, named: Any) -> None:
    (tmp_path / "secret.png").write_bytes(png())
    (tmp_path / "inside").mkdir()
    with pytest.raises(ValueError, match="leads out of the file's folder"):
        load(tmp_path / "inside", [named])
    assert load(tmp_path / "inside", [named], trusted=True).plan is not None


def test_a_file_that_is_not_there_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"files\[0\].*there is no such file"):
        load(tmp_path, ["none.png"])
