"""Two libraries in environments of their own; `make interop` runs the example with both libraries."""

from __future__ import annotations

from pathlib import Path

import kairo_team as kt
from kairo_team.agents import Program
from kairo_team.examples import two_libraries


def test_an_environment_that_is_missing_is_refused_before_the_run(tmp_path: Path) -> None:
    team = two_libraries.make_team(two_libraries.python_of(tmp_path / "crew-env"), tmp_path / "writer")
    found = kt.check(team, kt.TeamExecutionRequest("Put up a notice.", plan=two_libraries.PLAN))
    crew, writer = found.problems
    assert str(Path("crew-env", "bin", "python")) in crew
    assert "there is no command" in writer


def test_each_agent_is_a_script_that_knows_nothing_of_this_library(tmp_path: Path) -> None:
    for member in two_libraries.make_team(tmp_path, tmp_path).members:
        assert isinstance(member.agent, Program)
        assert "import kairo_team" not in Path(member.agent.argv[1]).read_text(encoding="utf-8")
