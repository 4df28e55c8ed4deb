"""Tools: the functions agents may call, and the pipeline around every call."""

from kairo_team._util.child_processes import supervised as supervised
from kairo_team.permissions import PermissionDecision as PermissionDecision
from kairo_team.permissions import SideEffect as SideEffect
from kairo_team.tools.circuit import CircuitBreaker as CircuitBreaker
from kairo_team.tools.circuit import CircuitBreakers as CircuitBreakers
from kairo_team.tools.guards import Rule as Rule
from kairo_team.tools.guards import RuleGuard as RuleGuard
from kairo_team.tools.mcp import McpServer as McpServer
from kairo_team.tools.permissions import SideEffectGuard as SideEffectGuard
from kairo_team.tools.permissions import ToolPermissions as ToolPermissions
from kairo_team.tools.pipeline import GovernedTool as GovernedTool
from kairo_team.tools.pipeline import Toolbox as Toolbox
from kairo_team.tools.pipeline import ToolPipeline as ToolPipeline
from kairo_team.tools.pipeline import ToolResult as ToolResult
from kairo_team.tools.tool import Tool as Tool
from kairo_team.tools.tool import as_tool as as_tool
