"""`mcp-policy`: decides by names alone which tools of MCP servers may be used."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from kairo_team._util.narrowing import is_several
from kairo_team.errors import known
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase


class McpSecurityPolicy(StrEnum):
    """Decision about a tool that is on no list."""

    ALLOW_ALL = "allow_all"
    """Allow the tool."""
    DENY_SAFE = "deny_safe"
    """Deny the tool: only listed tools may be used."""
    DENY_ALL = "deny_all"
    """Deny every tool of a server, listed or not."""


@dataclass(frozen=True, slots=True)
class McpPolicy:
    """Allow or deny tools of MCP servers, before all other policies. A tool of no server is always allowed.

    It checks in this order: a server that is not among `servers`, `DENY_ALL`, the `denied` list (also under
    `ALLOW_ALL`), the `allowed` list. Entries are names, not patterns: `tool`, the server's own name, for every server
    that has such a tool, or `server/tool`. A tool with a slash in its own name can be allowed only as `server/tool`.
    """

    name: ClassVar[str] = "mcp-policy"
    # First of all: no other policy sees the arguments of a call that is not allowed.
    order: ClassVar[float] = -math.inf
    phases: ClassVar[frozenset[GuardrailPhase]] = frozenset({GuardrailPhase.PRE_TOOL})
    policy: McpSecurityPolicy = McpSecurityPolicy.DENY_SAFE
    servers: Iterable[str] | None = field(default=None, kw_only=True)
    """Names of the servers whose tools may be used at all; None means every server."""
    allowed: Iterable[str] = field(default=(), kw_only=True)
    denied: Iterable[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "policy", McpSecurityPolicy(self.policy))
        except ValueError:
            raise ValueError(
                f"McpPolicy.policy must be one of {known(one.value for one in McpSecurityPolicy)}, not {self.policy!r}"
            ) from None
        for what in ("servers", "allowed", "denied"):
            names = getattr(self, what)
            if names is not None or what != "servers":
                object.__setattr__(self, what, _names(f"McpPolicy.{what}", names))
        for server in self.servers or ():
            if "/" in server:
                raise ValueError(f"McpPolicy.servers: the name of a server has no slash, {server!r} has one")

    def refusal(self, server: str | None, tool: str) -> str | None:
        """Return why a tool may not be used, else None; `tool` is the server's name for the tool."""
        if server is None:
            return None
        full = f"{server}/{tool}"
        if self.servers is not None and server not in self.servers:
            return f"the MCP server {server!r} is not among those that may be used: {known(self.servers)}"
        if self.policy is McpSecurityPolicy.DENY_ALL:
            return "no tool of an MCP server may be used"
        if full in self.denied or tool in self.denied:
            return f"the tool {tool!r} of the MCP server {server!r} is on the denied list"
        # Else a server could name a tool `other/read` and be taken for the server `other`.
        listed = full in self.allowed or (tool in self.allowed and "/" not in tool)
        if self.policy is McpSecurityPolicy.DENY_SAFE and not listed:
            return f"the tool {tool!r} of the MCP server {server!r} is not on the allowed list"
        return None

    def blocked(self, server: str) -> str | None:
        """Return why no tool of a server may be used, else None."""
        if self.policy is McpSecurityPolicy.DENY_SAFE and not any(
            "/" not in entry or entry.startswith(f"{server}/") for entry in self.allowed
        ):
            return f"no tool of the MCP server {server!r} is on the allowed list"
        if self.policy is McpSecurityPolicy.DENY_ALL or (self.servers is not None and server not in self.servers):
            return self.refusal(server, "")
        return None

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Decide by `server` and `tool` in the metadata."""
        server, tool = context.metadata.get("server"), context.metadata.get("tool")
        if server is None:
            return GuardrailDecision.allow()
        # A pipeline of another's making may leave them out.
        if not isinstance(server, str) or not isinstance(tool, str):
            return GuardrailDecision.deny(f"{context.target!r} is a tool of a server, and its name there is not known")
        reason = self.refusal(server, tool)
        return GuardrailDecision.allow() if reason is None else GuardrailDecision.deny(reason)


def _names(field_name: str, names: Any) -> frozenset[str]:
    """Return a list of names as a set; `ValueError` for anything else, also for patterns."""
    if not is_several(names):
        raise ValueError(f"{field_name} must be a list of names, not {names!r}")
    given = tuple(names)
    for name in given:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{field_name} must be a list of names, and {name!r} is none")
        if "*" in name or "?" in name:
            raise ValueError(f"{field_name}: {name!r} is a pattern, and entries are names: 'tool' or 'server/tool'")
    return frozenset(given)
