"""What a list of tools may hold beside functions: sources, whose tools are known once they are connected."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kairo_team.contracts import ToolSource


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
