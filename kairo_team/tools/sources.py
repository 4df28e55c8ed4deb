"""What a list of tools may hold beside functions: sources, whose tools are known once they are connected."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kairo_team.governance.policies.mcp import McpPolicy
from kairo_team.tools.mcp import McpServer

if TYPE_CHECKING:
    from kairo_team.contracts import ToolSource
    from kairo_team.tools.permissions import ToolPermissions


def as_source(given: Any) -> ToolSource | None:
    """Return a tool source, or a pydantic-ai toolset as one; None for what is no source."""
    if callable(getattr(given, "connect", None)):
        source: ToolSource = given
        return source
    toolsets: Any = sys.modules.get("pydantic_ai.toolsets")  # without it nobody can have made one
    if toolsets is not None and isinstance(given, toolsets.AbstractToolset):
        from kairo_team.tools.pydantic_toolsets import ToolsetSource

        return ToolsetSource(given)
    return None


def blocked_sources(tools: Iterable[Any], permissions: ToolPermissions | None) -> Iterator[str]:
    """Yield a sentence for each MCP server among the tools of which nothing may be used."""
    policy = (permissions.mcp if permissions is not None else None) or McpPolicy()
    for server in tools:
        if isinstance(server, McpServer) and (reason := policy.blocked(server.name)) is not None:
            yield (
                f"{reason}: list what may be used, permissions=kt.ToolPermissions(mcp=McpPolicy(allowed="
                f"['{server.name}/TOOL']))"
            )
