"""MCP servers for tests, and the ways to call their tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from kairo_team.governance import Governor
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.pipeline import ToolPipeline
from kairo_team.tools.result import ToolResult
from kairo_team.tools.sources import Connections
from kairo_team.tools.tool import Tool

MCP_MARKS = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.usefixtures("_tidy"),
]

SERVERS = Path(__file__).parent / "mcp_servers"
PATIENCE = 120.0
"""Seconds that nothing here needs, also on a busy machine."""


def listed(name: str, **schema: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object", **schema}}


def raw(*, timeout: float = PATIENCE, name: str = "raw", **plan: Any) -> McpServer:
    """A server that behaves as planned; see mcp_servers/raw.py."""
    options = {option: plan.pop(option) for option in list(plan) if option in McpServer.__dataclass_fields__}
    return McpServer.stdio(
        name, sys.executable, SERVERS / "raw.py", json.dumps(plan), request_timeout=timeout, **options
    )


def by_tool(tools: Any) -> dict[str, Tool]:
    return {tool.server_tool: tool for tool in tools}


async def called(tool: Tool, **arguments: Any) -> Any:
    """Return what a tool gives, of a result with files its text."""
    assert tool.check is not None
    given = await tool.call(tool.check(arguments))
    return given.text if isinstance(given, ToolResult) else given


@asynccontextmanager
async def served() -> AsyncGenerator[Connections]:
    connections = Connections()
    async with anyio.create_task_group() as tasks:
        await tasks.start(connections.serve)
        yield connections
        tasks.cancel_scope.cancel()


def governed(policy: McpPolicy | None) -> ToolPipeline:
    return ToolPipeline(Governor(), permissions=ToolPermissions(mcp=policy))


def started_http(port: int = 0) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, str(SERVERS / "sdk.py"), "http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def stopped(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
