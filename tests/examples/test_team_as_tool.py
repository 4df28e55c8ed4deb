"""A team as a tool of an MCP client: the example plays the client, with the SDK's own."""

from __future__ import annotations

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")

import kairo_team as kt
from kairo_team.examples import team_as_tool
from tests.examples.running import ROOT


def test_the_reader_gets_an_answer() -> None:
    request = kt.TeamExecutionRequest("Uploads can be resumed.", plan=team_as_tool.plan)  # as the client asks
    result = anyio.run(kt.run, team_as_tool.team, request)
    assert result.output == team_as_tool.NOTE
    page = ROOT / "docs/team-as-tool.md"
    if page.exists():  # not in a wheel
        assert f"release-notes: completed, {result.usage.tokens} tokens\n" in page.read_text(encoding="utf-8")


@pytest.mark.exhaustive
@pytest.mark.real_time
def test_a_client_starts_the_team_from_the_printed_configuration(capfd: pytest.CaptureFixture[str]) -> None:
    anyio.run(team_as_tool.main)
    said = capfd.readouterr()
    assert "note: done after 1 attempt" in said.out
    assert f'"output": "{team_as_tool.NOTE}"' in said.out
    assert "this belongs in .mcp.json" in said.err
