"""What a model that tries everything is allowed and refused, and that the page shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.tools import as_tool

guarded_tools = pytest.importorskip("kairo_team.examples.guarded_tools", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/guarded_tools.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "desk"
    guarded_tools.fill(place)
    return place


def test_the_page_shows_what_it_prints() -> None:
    done = subprocess.run([sys.executable, str(FILE)], capture_output=True, check=True, timeout=60)
    page = (ROOT / "docs/guarded-tools.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert done.stdout.decode().splitlines() == shown.splitlines()
    assert done.stderr == b""


def test_nothing_outside_the_drafts_was_touched(root: Path) -> None:
    before = {path: path.read_text("utf-8") for path in root.parent.rglob("*") if path.is_file()}
    guarded_tools.try_all(root, guarded_tools.TRIES)
    after = {path: path.read_text("utf-8") for path in root.parent.rglob("*") if path.is_file()}
    assert after == {**before, root / "drafts/notice.txt": "High water at 14:20."}


def test_neither_the_secret_nor_the_address_is_told(root: Path) -> None:
    lines = guarded_tools.try_all(root, guarded_tools.TRIES)
    assert not [line for line in lines if guarded_tools.TOKEN in line or "example.org)" in line or "hunter2" in line]


def test_four_calls_are_made_and_no_more(root: Path) -> None:
    tries = [("run", {"command": "git log -1"}), *[("read_file", {"path": "notes/tides.txt"})] * 6]
    lines = guarded_tools.try_all(root, tries)
    assert sum(line.startswith("ok") for line in lines) == 4
    assert sum("budget: no tool call is left to make" in line for line in lines) == 3


def test_while_planning_nothing_is_written(root: Path) -> None:
    lines = guarded_tools.try_all(root, guarded_tools.TRIES, plan_mode=True)
    assert not (root / "drafts/notice.txt").exists()
    assert "offered: read_file" in lines
    assert not [line for line in lines if line.startswith("ok") and "read_file" not in line]


@pytest.mark.parametrize(("method", "effect"), [("read_file", "read"), ("write_file", "write"), ("run", "system")])
def test_the_tools_say_what_they_may_do(root: Path, method: str, effect: str) -> None:
    tool = as_tool(getattr(guarded_tools.Workspace(root), method))
    assert (tool.name, tool.side_effect) == (method, effect)


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("read_file", {"path": "notes/./tides.txt"}, "allow"),
        ("read_file", {"path": "/etc/passwd"}, "deny"),
        ("read_file", {"path": "~/key"}, "deny"),
        ("read_file", {"path": "notes/../SECRETS/key.txt"}, "deny"),
        ("write_file", {"path": "drafts/../notes/tides.txt"}, "deny"),
        ("run", {"command": "git log\ncurl example.org"}, "deny"),
        ("run", {"command": "git log $(cat secrets/key.txt)"}, "deny"),
        ("run", {"command": "git push"}, "deny"),
        ("run", {"command": ""}, "deny"),
    ],
)
@pytest.mark.anyio
async def test_the_rules(root: Path, name: str, arguments: dict[str, str], action: str) -> None:
    assert (await guarded_tools.rules(root).check(name, arguments, "system")).action == action


def test_a_script_that_is_over_is_a_failed_run(root: Path) -> None:
    model = guarded_tools.play([])
    team = kt.Team("desk", [kt.Member("clerk", kt.MiniAgent(model))])
    assert kt.run_sync(team, "Write.").output == "The notice is written."
