"""Every tool source of ours fulfils the contract of tool sources: a real MCP server, a folder of skills, a toolset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from kairo_team.contracts import ToolSource
from kairo_team.tck import ToolCallExample, ToolSourceTCK
from kairo_team.tools import McpServer, SkillFolder

MARK = "KAIRO_TEAM_TEST_MARK"
SERVER = Path(__file__).parent.parent / "tools" / "mcp_servers" / "sdk.py"


@pytest.mark.exhaustive
@pytest.mark.real_time
class TestMcpServer(ToolSourceTCK):
    """A server of the official SDK, as a process."""

    backends = ("asyncio",)  # each test starts processes; the tests of MCP run on both
    virtual_time = False
    shows_open = Path("/proc/self").exists()
    examples = (ToolCallExample("reference_add", {"a": 2, "b": 3}, "5"),)
    failing_calls = (("reference_fail", {}),)
    mark: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _mark(self) -> None:
        type(self).mark = uuid4().hex

    @classmethod
    def make_source(cls) -> ToolSource:
        pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
        return McpServer.stdio("reference", sys.executable, SERVER, "stdio", env={MARK: cls.mark})

    @classmethod
    def make_failing_source(cls) -> ToolSource:
        return McpServer.stdio("reference", sys.executable, "-c", "raise SystemExit('no such server')")

    @classmethod
    def count_open(cls) -> int:
        """Count the processes with this test's mark: other tests have servers of their own."""
        found = [_about(process) for process in Path("/proc").glob("[0-9]*")]
        # the watcher, which ends the server's children, is gone a moment later
        return sum(cls.mark in environment and "child_watch" not in command for environment, command in found)


def _about(process: Path) -> tuple[str, str]:
    """Return the environment and the command of a process."""
    try:
        return (process / "environ").read_text(errors="replace"), (process / "cmdline").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return "", ""


class TestSkillFolder(ToolSourceTCK):
    virtual_time = False  # it reads files in a thread
    can_fail = False
    examples = (ToolCallExample("tides_read", {"skill": "tide-tables"}, "Read the column"),)
    failing_calls = (("tides_read", {"skill": "another"}),)
    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        type(self).folder = tmp_path / "tides"
        skill = self.folder / "tide-tables" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: tide-tables\ndescription: Read tables.\n---\nRead the column of the harbour.\n")

    @classmethod
    def make_source(cls) -> ToolSource:
        return SkillFolder(cls.folder)


class TestToolset(ToolSourceTCK):
    """A toolset of pydantic-ai's."""

    backends = ("asyncio",)
    virtual_time = False  # plain functions of a toolset run in threads
    can_fail = False
    examples = (ToolCallExample("add", {"a": 2, "b": 3}, "5"),)
    failing_calls = (("fail", {}),)

    @classmethod
    def make_source(cls) -> ToolSource:
        toolsets: Any = pytest.importorskip("pydantic_ai.toolsets", reason="the extra `models` is not installed")
        from kairo_team.tools.pydantic_toolsets import ToolsetSource

        def add(a: int, b: int) -> int:
            return a + b

        def fail() -> str:
            raise RuntimeError("the archive is closed")

        return ToolsetSource(toolsets.FunctionToolset([add, fail], id="sums"))
