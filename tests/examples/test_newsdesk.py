"""The team of examples/newsdesk is data: it runs, on scripted replies and on the embedded model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import kairo_team as kt
from kairo_team.cli.app import run_command
from kairo_team.data.teams import team_schema
from kairo_team.testing import ScriptedModel

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/newsdesk"
FILE = FOLDER / "team.yaml"


def test_the_page_shows_the_files_as_they_are() -> None:
    text = (ROOT / "docs/teams-from-data.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown == [(FOLDER / name).read_text(encoding="utf-8") for name in ("team.yaml", "rubric.yaml")]


@pytest.mark.parametrize(
    ("name", "schema"), [("team.yaml", team_schema), ("rubric.yaml", lambda: _rubric().json_schema())]
)
def test_the_files_fit_their_schemas(name: str, schema: Callable[[], Any]) -> None:
    data = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema()).validate(data)


def _rubric() -> Any:
    return type(kt.load_rubric(FOLDER / "rubric.yaml"))


async def test_it_needs_no_trust_and_is_reviewed_by_its_rubric() -> None:
    job = kt.load_job(FILE)
    assert kt.check(job.team, job.request()).ok
    model = ScriptedModel(["The moon.", "The sea goes up and down.", "The moon pulls the sea."])
    runtime = kt.Runtime(models={"*": model})
    result = await kt.run(_unbound(job.team), job.request(), runtime=runtime)
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "The moon pulls the sea.")
    verdict = result["text"].verdict
    assert verdict is not None
    assert verdict.outcome is kt.VerdictOutcome.PASS
    model.assert_complete()


def _unbound(team: kt.Team) -> kt.Team:
    """The team without the runtime of its file, so that its models can be replaced."""
    return kt.Team(
        team.name,
        team.members,
        team.coordinator,
        team.evaluators,
        constraints=team.constraints,
        guardrails=team.guardrails,
    )


@pytest.mark.local_model
@pytest.mark.real_time
def test_it_runs_on_the_embedded_model(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", str(FILE)]) in (0, 3)
    said = capfd.readouterr().out
    assert re.search(r"cause: done after 1 attempt", said)
    assert re.search(r"text: (pass|revise)", said)
