"""Events in a file of JSON lines."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.contracts import Subscriber
from kairo_team.testing import EventRecorder
from kairo_team.views.json_lines import read_events

OLD = """\
{"type": "team.started", "run_id": "r", "seq": 1, "at": "2026-08-01T06:00:00Z", "team": "t", "goal": "g", "members": []}
{"type": "plan.ready", "run_id": "r", "seq": 2, "at": "2026-08-01T06:00:00.001Z", "tasks": ["watch", "write"]}
"""


async def good(assignment: kt.Assignment) -> str:
    return "ma\ud83dde\u2028 in\nlines"


async def run(run_id: str, *subscribers: Subscriber) -> None:
    plan = kt.TaskGraph([kt.Task("one", "Do."), kt.Task("two", "Do.", depends_on=["one"], evaluator=None)])
    request = kt.TeamExecutionRequest("Go.", plan=plan, run_id=run_id)
    await kt.run(kt.Team("t", [kt.Member("m", good)]), request, runtime=kt.Runtime(subscribers=subscribers))


async def test_every_event_is_a_line_and_comes_back(tmp_path: Path) -> None:
    path, recorder = tmp_path / "events.jsonl", EventRecorder()
    with kt.JsonLines(path) as lines:
        await run("r1", lines, recorder)
    with kt.JsonLines(path) as lines:
        await run("r2", lines, recorder)
    assert list(read_events(path)) == recorder.events
    assert path.read_bytes().count(b"\n") == len(recorder.events)


async def test_the_plan_has_its_edges_and_members(tmp_path: Path) -> None:
    with kt.JsonLines(tmp_path / "e") as lines:
        await run("r1", lines)
    [ready] = [one for one in read_events(tmp_path / "e") if isinstance(one, kt.events.PlanReady)]
    assert ready.graph == (
        kt.events.PlannedTask("one", (), 0, ("m",), description="Do."),
        kt.events.PlannedTask("two", ("one",), 1, ("m",), description="Do."),
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    kt.JsonLines(tmp_path / "e").close()
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o600


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(OLD)
    started, ready = read_events(path)
    assert isinstance(started, kt.events.TeamStarted)
    assert isinstance(ready, kt.events.PlanReady)
    assert (ready.tasks, ready.graph) == (("watch", "write"), ())


def test_a_line_without_an_end_is_left_out_and_any_other_defect_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(OLD + '{"type": "team.comp')
    assert len(list(read_events(path))) == 2
    path.write_text(OLD + "what?\n" + OLD)
    with pytest.raises(ValueError, match=r"events\.jsonl, line 3"):
        list(read_events(path))
    with pytest.raises(FileNotFoundError):
        list(read_events(tmp_path / "none"))


@pytest.mark.parametrize("wrong", ["", 3, None])
def test_a_path_is_a_path(wrong: object) -> None:
    with pytest.raises(ValueError, match="JsonLines takes the path of a file"):
        kt.JsonLines(wrong)  # type: ignore[arg-type]  # a wrong value
