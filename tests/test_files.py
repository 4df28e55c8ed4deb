"""`File`, and its way from the goal to the artifact: who gets it, who is refused it, and in which order."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import files as module
from kairo_team._util.late_pydantic import adapter, read
from kairo_team.agents import TeamAgent
from kairo_team.errors import PlanRefused
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.models.test_files import AT_URL, PAPER, PHOTO, png

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- the value


def test_a_path_is_read_at_once_and_its_type_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "photo.dat"
    path.write_bytes(png())
    file = kt.File(path=path)
    path.unlink()
    assert (file.data, file.media_type, file.name, file.size) == (png(), "image/png", "photo.dat", 71)
    assert str(file) == "photo.dat, image/png, 71 bytes"


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("notes.md", b"# Tides", "text/markdown"),
        ("table.csv", b"a,b", "text/csv"),
        ("photo.jpeg", b"\xff\xd8\xff", "image/jpeg"),
        ("report.docx", b"PK\x03\x04", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("all.zip", b"PK\x03\x04", "application/zip"),
        ("sound", b"RIFF\0\0\0\0WAVE", "audio/wav"),
    ],
)
def test_the_first_bytes_tell_the_type_before_the_ending_does(name: str, data: bytes, kind: str) -> None:
    assert kt.File(data=data, name=name).media_type == kind


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "a File takes one of data=, path= and url=, not none of them"),
        ({"data": b"x", "url": "https://h/x.png"}, "not data and url"),
        ({"data": b"words"}, "the media type of these bytes is unknown"),
        ({"data": b"words", "name": "words"}, "the media type of the file 'words' is unknown"),
        ({"data": b""}, "must not be empty"),
        ({"data": "photo.png"}, r"must be bytes, not 'photo.png'; for a file on disk write File\(path=...\)"),
        ({"data": b"x", "media_type": "png"}, "must be one such as 'image/png', not 'png'"),
        ({"data": b"x", "media_type": "text/plain", "name": "two\nlines"}, "must be one line of at most 200"),
        ({"path": "no/such.png"}, "cannot be read: there is no such file"),
        ({"path": "."}, "is a directory: give the path of one file"),
        ({"url": "file:///etc/passwd"}, "a file on disk is path="),
        ({"url": "https://h/a b.png"}, "must be an address such as"),
    ],
)
def test_what_is_no_file_is_refused_in_one_sentence(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kt.File(**given)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 70)
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(ValueError, match=r"photo.png' has 71 bytes, a File at most"):
        kt.File(path=path)


def test_files_are_equal_by_content_and_cannot_be_changed() -> None:
    other = kt.File(data=png(), name="other.png")
    assert other == PHOTO
    assert hash(other) == hash(PHOTO)
    assert kt.File(data=png(), media_type="image/gif") != PHOTO
    assert kt.File(url="https://h/a.png") != kt.File(url="https://h/b.png")
    with pytest.raises(AttributeError, match="a File is frozen"):
        PHOTO.name = "mine.png"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert pickle.loads(pickle.dumps(PHOTO)) == copy.deepcopy(PHOTO) == PHOTO  # noqa: S301 - its own
    assert PHOTO.digest in {PHOTO.digest, other.digest}


def test_a_value_with_files_goes_through_json_and_one_without_looks_as_it_always_did() -> None:
    for value in (kt.Task("a", "Do.", files=[PHOTO, AT_URL]), kt.Message.user("See.", [PHOTO]), kt.Artifact("x")):
        written = adapter(type(value)).dump_python(value, mode="json")
        assert read(type(value), written) == value
    for value in (kt.Task("a", "Do."), kt.Message.user("See."), kt.Artifact("x")):
        assert "files" not in adapter(type(value)).dump_python(value, mode="json")


def test_data_that_becomes_a_file_names_no_path() -> None:
    with pytest.raises(ValueError, match="not 'path'"):
        read(kt.Task, {"id": "a", "description": "Do.", "files": [{"path": "/etc/passwd"}]})


def test_only_messages_of_callers_and_tools_hold_files() -> None:
    with pytest.raises(ValueError, match="not to one of the role 'assistant'"):
        kt.Message("assistant", "Here.", files=[PHOTO])


# ---------------------------------------------------------------- from the goal to the artifact


def vision(*replies: str, **options: Any) -> ScriptedModel:
    return ScriptedModel(replies, **options)


async def test_every_member_gets_the_files_of_the_request_and_of_its_task() -> None:
    model = vision("A pier.", "Two pages.")
    team = kt.Team("desk", [kt.Member("reader", kt.MiniAgent(model))])
    plan = kt.TaskGraph([kt.Task("look", "Describe the photo."), kt.Task("read", "Sum up.", files=[PAPER, PHOTO])])
    result = await kt.run(team, "Describe all.", plan=plan, files=[PHOTO], budget=kt.Budget(tokens=9_000))
    assert result.check().output is not None
    given = {len(call.files): [file.name for file in call.files] for call in model.calls}
    assert given == {1: ["photo.png"], 2: ["photo.png", "paper.pdf"]}
    assert "- photo.png, image/png, 71 bytes" in model.calls[0].messages[-1].text


async def test_upstream_passes_on_the_files_of_an_artifact() -> None:
    def draw(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact("A chart.", files=[PHOTO])

    model = vision("It rises.")
    team = kt.Team("desk", [kt.Member("drawer", draw), kt.Member("reader", kt.MiniAgent(model))])
    tasks = [kt.Task("draw", "Draw.", role="drawer"), kt.Task("read", "Read.", role="reader", depends_on=["draw"])]
    result = await kt.run(team, "Chart it.", plan=kt.TaskGraph(tasks))
    assert list(model.calls[0].files) == [PHOTO]
    assert result["draw"].artifact == kt.Artifact("A chart.", files=[PHOTO])
    assert kt.Artifact("A chart.").digest != kt.Artifact("A chart.", files=[PHOTO]).digest


async def test_several_last_tasks_join_their_files() -> None:
    def make(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact(assignment.task.id, files=[PHOTO, PAPER] if assignment.task.id == "b" else [PHOTO])

    plan = kt.TaskGraph([kt.Task("a", "Do."), kt.Task("b", "Do.")])
    result = await kt.run(kt.Team("desk", [kt.Member("maker", make)]), "Go.", plan=plan)
    assert result.artifact is not None
    assert list(result.artifact.files) == [PHOTO, PAPER]


async def test_files_come_with_the_first_message_only() -> None:
    call = kt.ModelResponse("", [kt.ToolCall("1", "now", {})], usage=kt.Usage(5, 5))
    model = ScriptedModel([call, "Noon."])

    @kt.tool(side_effect="read")
    def now() -> str:
        """Tell the time."""
        return "12:00"

    output = await kt.MiniAgent(model, tools=[now]).run("When was it taken?", files=[PHOTO])
    assert output.text == "Noon."
    assert [(message.role, len(message.files)) for message in model.calls[1].messages if message.files] == [("user", 1)]
    assert model.calls[1].messages[1].files == (PHOTO,)


async def test_a_team_inside_a_team_gets_the_files_too() -> None:
    model = vision("Seen.")
    inner = kt.Team("inner", [kt.Member("reader", kt.MiniAgent(model))])
    team = kt.Team("outer", [kt.Member("inner", TeamAgent(inner, plan=kt.TaskGraph([kt.Task("t", "Look.")])))])
    await kt.run(team, "Go.", plan=kt.TaskGraph([kt.Task("a", "Do.", files=[PHOTO])]))
    assert list(model.calls[0].files) == [PHOTO]


# ---------------------------------------------------------------- refused before work starts


BLIND = FunctionModel(lambda _: pytest.fail("it was asked"), name="test:blind", files=())


def blind_team(agent: Any = None) -> kt.Team:
    seeing = kt.Member("seer", kt.MiniAgent(vision("Seen.")))
    return kt.Team("desk", [seeing, kt.Member("writer", agent or kt.MiniAgent(BLIND))])


TASK = kt.Task("write", "Write.", role="writer")


@pytest.mark.parametrize(
    ("plan", "files"),
    [
        (kt.TaskGraph([TASK]), [PHOTO]),
        (kt.TaskGraph([kt.Task("write", "Write.", role="writer", files=[PHOTO])]), []),
        (kt.TaskGraph([kt.Task("loop", "Go.", loop=kt.Loop([TASK], max_rounds=2))]), [PHOTO]),
        (None, [PHOTO]),
    ],
)
async def test_a_member_on_a_model_that_cannot_see_them_is_refused_before_work(
    plan: kt.TaskGraph | None, files: list[kt.File]
) -> None:
    why = "member 'writer': model 'test:blind' cannot be given photo.png, image/png, 71 bytes: it takes no files"
    check = kt.check(blind_team(), "Go.", plan=plan, files=files)
    assert any(why in problem for problem in check.problems), check
    result = await kt.run(blind_team(), "Go.", plan=plan, files=files)
    assert result.refused
    assert why in str(result.error)


async def test_so_is_one_inside_a_team_and_a_senior() -> None:
    inner = TeamAgent(kt.Team("inner", [kt.Member("blind", kt.MiniAgent(BLIND))]))
    junior = kt.Member("writer", kt.MiniAgent(vision()), senior=kt.Member("boss", kt.MiniAgent(BLIND)))
    plan = kt.TaskGraph([TASK])
    assert "in team 'inner'" in str(kt.check(blind_team(inner), "Go.", plan=plan, files=[PHOTO]))
    check = kt.check(kt.Team("desk", [junior]), "Go.", plan=plan, files=[PHOTO])
    assert "member 'boss'" in str(check)


async def test_a_member_that_gets_no_file_may_be_blind() -> None:
    writer = FunctionModel(lambda _: "Written.", files=())
    plan = kt.TaskGraph([kt.Task("look", "Look.", role="seer", files=[PHOTO]), TASK])
    result = await kt.run(blind_team(kt.MiniAgent(writer)), "Go.", plan=plan)
    assert result.status is kt.TeamStatus.COMPLETED


async def test_a_file_that_first_appears_upstream_is_refused_at_the_call_and_never_dropped() -> None:
    def draw(assignment: kt.Assignment) -> kt.Artifact:
        return kt.Artifact("A chart.", files=[PHOTO])

    team = kt.Team("desk", [kt.Member("drawer", draw), kt.Member("writer", kt.MiniAgent(BLIND))])
    tasks = [kt.Task("draw", "Draw.", role="drawer"), kt.Task("read", "Read.", role="writer", depends_on=["draw"])]
    result = await kt.run(team, "Chart it.", plan=kt.TaskGraph(tasks))
    assert "cannot be given photo.png" in str(result["read"].error)
    assert result["read"].attempts == 1


async def test_added_tasks_are_checked_too() -> None:
    team = blind_team()
    plan = kt.TaskGraph([kt.Task("look", "Look.", role="seer")])
    async with kt.TeamRun.open(kt.TeamExecutionRequest("Go."), team) as run:
        await run.plan(plan)
        with pytest.raises(PlanRefused, match="it takes no files"):
            await run.add(lambda: [kt.Task("write", "Write.", role="writer", files=[PHOTO])])
