"""kairo-team: a criterion that a function decides."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import kairo_team as kt
from benchmarks.first_hour.jobs import ORDER, TEST


def run(runtime: Any) -> str:
    """Write code until its tests pass."""

    def passes(artifact: kt.Artifact) -> bool | str:
        code = f"{artifact.text}\n{TEST}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
        return done.returncode == 0 or done.stderr.splitlines()[-1]

    rubric = kt.Rubric([kt.Criterion("tests", "the tests pass", passes)])
    coordinator = kt.ExpertTeamCoordinator(evaluator=rubric)
    team = kt.Team("code", [kt.Member("coder", kt.MiniAgent("openai:gpt-5-mini"))], coordinator=coordinator)
    return str(kt.run_sync(team, ORDER, runtime=runtime, budget=kt.Budget(tokens=50_000)).output)
