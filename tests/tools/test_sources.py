"""Where tools come from: an MCP server of which nothing may be used is refused, before anybody waits for it."""

from __future__ import annotations

import pytest

import kairo_team as kt
from kairo_team.governance.policies import McpPolicy, McpSecurityPolicy
from kairo_team.testing import ScriptedModel
from kairo_team.tools import McpServer

pytestmark = pytest.mark.anyio

FILES = McpServer.stdio("files", "there-is-no-such-command")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (None, "no tool of the MCP server 'files' is on the allowed list"),
        (McpPolicy(allowed=["mail/read"]), "no tool of the MCP server 'files' is on the allowed list"),
        (McpPolicy(McpSecurityPolicy.DENY_ALL), "no tool of an MCP server may be used"),
        (McpPolicy(McpSecurityPolicy.ALLOW_ALL, servers=["mail"]), "'files' is not among those that may be used"),
        (McpPolicy(allowed=["files/read"]), None),
        (McpPolicy(allowed=["read"]), None),
        (McpPolicy(McpSecurityPolicy.ALLOW_ALL), None),
    ],
)
async def test_a_server_of_which_nothing_may_be_used_is_refused_before_work_starts(
    policy: McpPolicy | None, problem: str | None
) -> None:
    model = ScriptedModel([])
    permissions = kt.ToolPermissions(mcp=policy)
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(model, tools=[FILES]))], permissions=permissions)
    check = kt.check(team, "goal")
    assert check.ok is (problem is None)
    if problem is not None:
        assert problem in check.problems[0]
        advice = "allow=['TOOL']" if policy is None else "McpPolicy(allowed=['files/TOOL'])"
        assert advice in check.problems[0]
        assert (await kt.run(team, "goal")).refused
        with pytest.raises(kt.KairoError, match="files"):
            await kt.MiniAgent(model, tools=[FILES]).run("goal", permissions=permissions)


@pytest.mark.parametrize("permissions", [3, McpPolicy()])
async def test_permissions_that_are_none_are_refused_before_work_starts(permissions: object) -> None:
    team = kt.Team("t", [kt.Member("m", lambda _: "made")], permissions=permissions)  # type: ignore[arg-type]
    check = kt.check(team, "goal")
    assert "Team.permissions must be a ToolPermissions" in check.problems[0]
