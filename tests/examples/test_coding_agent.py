"""A program works in a folder, and the project's own tests review it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Rubric
from kairo_team.examples import coding_agent
from kairo_team.testing import FunctionModel
from tests.agents.loops import asyncio_alone
from tests.examples.running import ROOT

anyio_backend = asyncio_alone
pytestmark = pytest.mark.real_time


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(coding_agent.PROJECT, tmp_path / "copy")


def test_the_example_goes_on_until_the_tests_pass(capsys: pytest.CaptureFixture[str]) -> None:
    before = (coding_agent.PROJECT / "slugs.py").read_text()
    assert coding_agent.main([]) == 0
    said = capsys.readouterr().out
    assert "COMPLETED after 2 attempts" in said
    assert "-    raise NotImplementedError" in said
    assert (coding_agent.PROJECT / "slugs.py").read_text() == before
    page = ROOT / "docs/coding-agent.md"
    if page.exists():  # not in a wheel
        changing = r"\d+ tokens|\S+/coding-agent-\S+"  # a traceback has other words in another Python
        shown = page.read_text(encoding="utf-8").partition("```text\n")[2].partition("```\n")[0]
        assert re.sub(changing, "", said) == re.sub(changing, "", shown)


async def test_work_that_fails_the_tests_is_never_accepted(copy: Path) -> None:
    model = FunctionModel(lambda request: f"# try {len(model.calls)}\n{coding_agent.FIRST_TRY}")
    result = await coding_agent.work(coding_agent.make_team(coding_agent.PROJECT, copy, model=model), "Do it.", 9_000)
    assert result.status is kt.TeamStatus.FAILED
    assert "FAIL: test_no_dash_at_the_ends" in (result.error or "")
    assert all("FAIL: test_several_signs" in call.messages[-1].text for call in model.calls[1:])


async def test_an_agent_that_changes_the_tests_gains_nothing(copy: Path) -> None:
    cheat = "import pathlib, sys; sys.stdin.read(); pathlib.Path('test_slugs.py').write_text(''); print('done')"
    agent = coding_agent.Coder(
        [sys.executable, "-c", cheat], model=coding_agent.scripted(), project=coding_agent.PROJECT, copy=copy
    )
    review = Rubric([coding_agent.tests_pass(coding_agent.PROJECT, copy)])
    team = kt.Team("t", [kt.Member("m", agent)], coordinator=ExpertTeamCoordinator(evaluator=review))
    result = await coding_agent.work(team, coding_agent.GOAL, 9_000)
    assert result.status is kt.TeamStatus.FAILED
    assert "NotImplementedError" in (result.error or "")


async def test_the_agents_calls_are_inside_the_budget(copy: Path) -> None:
    team = coding_agent.make_team(coding_agent.PROJECT, copy, model=coding_agent.scripted())
    result = await coding_agent.work(team, coding_agent.GOAL, 250)
    assert result.status is kt.TeamStatus.FAILED
    assert 0 < result.usage.tokens <= 250


def test_a_patch_has_new_changed_and_deleted_files_of_text(tmp_path: Path) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    for folder, files in (
        (before, {"old.py": b"1\n", "same.py": b"2\n"}),
        (after, {"new.py": b"3\n", "same.py": b"4\n"}),
    ):
        folder.mkdir()
        for name, data in {**files, "picture": b"\xff", "__pycache__": b"5\n"}.items():
            (folder / name).write_bytes(data)
    names = [line[4:] for line in coding_agent.patch(before, after).splitlines() if line.startswith("+++ ")]
    assert names == ["b/new.py", "b/old.py", "b/same.py"]
