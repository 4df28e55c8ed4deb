"""`ModelAddress`: where a program or another library's client finds a governed model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kairo_team.errors import Misuse

MCP: Final = "/mcp"
"""The path of the tools."""


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """The address of a governed model on this machine, open while its `async with context.address(...)` block runs.

    Every request to it is a governed model call of the attempt. Give a client one of the two base URLs and the key.
    """

    url: str
    """`http://127.0.0.1:<port>`, without a path."""
    key: str = field(repr=False)
    """The API key, made for this address alone."""
    model: str
    """The model's name without its provider. Requests may name any model, and are answered by this one."""
    has_tools: bool = False
    """Whether tools are served here too: `context.address(model, tools=[...])`."""

    @property
    def openai(self) -> str:
        """The base URL for clients of OpenAI's interface: chat completions and Responses."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL for clients of Anthropic's interface."""
        return self.url

    @property
    def mcp(self) -> str:
        """The URL of the tools, for clients of MCP over streamable HTTP, which send `headers`.

        Raises `Misuse` if the address has no tools.
        """
        if not self.has_tools:
            raise Misuse("this address serves no tools: open it with context.address(model, tools=[...])")
        return f"{self.url}{MCP}"

    @property
    def headers(self) -> dict[str, str]:
        """The header with the key, for a client that takes headers."""
        return {"Authorization": f"Bearer {self.key}"}

    def mcp_servers(self) -> dict[str, object]:
        """Return the `mcpServers` configuration by which programs find the tools; it contains the key."""
        return {"mcpServers": {"kairo": {"type": "http", "url": self.mcp, "headers": self.headers}}}

    def env(self) -> dict[str, str]:
        """Return the environment variables by which programs and client libraries find the address.

        With tools also `KAIRO_MCP_URL`; model and tools have one key.
        """
        tools = {"KAIRO_MCP_URL": self.mcp} if self.has_tools else {}
        return tools | {
            "OPENAI_BASE_URL": self.openai,
            "OPENAI_API_BASE": self.openai,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.anthropic,
            "ANTHROPIC_API_KEY": self.key,
            # Without this, a proxy would see the key.
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",  # some programs read only lower case, such as wget
        }
