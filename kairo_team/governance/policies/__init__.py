"""The guardrail policies that come with the library, one file each."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.governance.policies.content_filter import ContentFilter
    from kairo_team.governance.policies.injection_screen import InjectionScreen
    from kairo_team.governance.policies.mcp_policy import McpPolicy, McpSecurityPolicy
    from kairo_team.governance.policies.output_validator import OutputValidator
    from kairo_team.governance.policies.pii_redactor import PiiRedactor
    from kairo_team.governance.policies.tool_audit import ToolAudit
    from kairo_team.governance.policies.tool_loop import ToolLoop

__all__ = [
    "ContentFilter",
    "InjectionScreen",
    "McpPolicy",
    "McpSecurityPolicy",
    "OutputValidator",
    "PiiRedactor",
    "ToolAudit",
    "ToolLoop",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "content_filter": "ContentFilter",
        "injection_screen": "InjectionScreen",
        "mcp_policy": "McpPolicy McpSecurityPolicy",
        "output_validator": "OutputValidator",
        "pii_redactor": "PiiRedactor",
        "tool_audit": "ToolAudit",
        "tool_loop": "ToolLoop",
    }
    """Names by module. Each is imported on first use: compiling the patterns takes a while."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
