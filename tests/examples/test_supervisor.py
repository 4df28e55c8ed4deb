"""The supervisor's example: what it prints, and that its mistakes are mended."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.examples.running import start

supervisor = pytest.importorskip("kairo_team.examples.supervisor", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/supervisor.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


def transcripts() -> list[str]:
    """What the page shows: offline, then on the embedded model."""
    page = (ROOT / "docs/supervisor.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in page.split("```text\n")[1:]]


def notice(*subjects: str) -> str:
    """What the notice on these subjects must say."""
    told = {name: said for known in supervisor.KNOWN.values() for name, said in known.items() if said}
    return "\n".join(f"{name}: {told[name]}" for name in subjects)


def run_with(choices: list[str], goal: str = supervisor.GOAL) -> kt.TeamResult:
    """Run it with a model that makes these choices, as JSON."""
    model = FunctionModel(lambda _: choices.pop(0), name="test:chooser")
    team, request = supervisor.build()
    runtime = kt.Runtime(models={supervisor.MODEL: model})
    return kt.run_sync(team, replace(request, goal=goal), runtime=runtime)


def test_the_page_shows_what_it_prints_offline() -> None:
    done = start(str(FILE), "--offline")
    assert done.stdout.splitlines() == transcripts()[0].splitlines()
    assert (done.returncode, done.stderr) == (0, "")


def test_whoever_cannot_say_it_is_followed_by_somebody_else() -> None:
    result = run_with(['{"fog": "radio", "waves": "harbour"}', '{"fog": "lighthouse", "waves": "buoy"}'], "fog, waves")
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, notice("fog", "waves"))
    asked = [(one.task_id, one.member) for one in result.outcomes if one.member != "lead"]
    assert asked == [("fog.1", "radio"), ("waves.1", "harbour"), ("fog.2", "lighthouse"), ("waves.2", "buoy")]


def test_what_nobody_could_say_is_said() -> None:
    wrong = ['{"fog": "harbour"}', '{"fog": "airfield"}', '{"fog": "radio"}', '{"fog": "buoy"}']
    result = run_with(wrong, "the tide and the fog"[-3:])
    assert (result.status, result.output) == (kt.TeamStatus.DEGRADED, "fog: nobody could say")


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_the_embedded_model_supervises() -> None:
    """Its choices are those of one machine: what holds anywhere is that wrong ones are mended, or told."""
    team, request = supervisor.build()
    good = 0
    goals = [some for number in (2, 3, 4) for some in combinations(supervisor.SUBJECTS, number)]
    for subjects in goals:
        result = kt.run_sync(team, replace(request, goal=f"Put up a notice on {', '.join(subjects)}."))
        assert result.status in {kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED}
        lines = (result.output or "").splitlines()
        assert all(line in notice(*subjects) or line.endswith("nobody could say") for line in lines)
        good += result.output == notice(*subjects)
    assert good >= len(goals) // 2
