"""The guardrail policies that come with the library, one file each."""

from kairo_team.governance.policies.content_filter import ContentFilter as ContentFilter
from kairo_team.governance.policies.injection_screen import InjectionScreen as InjectionScreen
from kairo_team.governance.policies.mcp_policy import McpPolicy as McpPolicy
from kairo_team.governance.policies.mcp_policy import McpSecurityPolicy as McpSecurityPolicy
from kairo_team.governance.policies.output_validator import OutputValidator as OutputValidator
from kairo_team.governance.policies.pii_redactor import PiiRedactor as PiiRedactor
from kairo_team.governance.policies.tool_audit import ToolAudit as ToolAudit
from kairo_team.governance.policies.tool_loop import ToolLoop as ToolLoop
