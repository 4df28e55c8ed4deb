"""Tools: the functions agents may call, and the pipeline around every call."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team._util.child_processes import supervised
    from kairo_team.permissions import PermissionDecision, SideEffect
    from kairo_team.tools.circuit import CircuitBreaker, CircuitBreakers
    from kairo_team.tools.guards import Rule, RuleGuard
    from kairo_team.tools.mcp import McpServer
    from kairo_team.tools.permissions import SideEffectGuard, ToolPermissions
    from kairo_team.tools.pipeline import GovernedTool, Toolbox, ToolPipeline, ToolResult
    from kairo_team.tools.skills import SkillFolder
    from kairo_team.tools.tool import Tool, as_tool

__all__ = [
    "CircuitBreaker",
    "CircuitBreakers",
    "GovernedTool",
    "McpServer",
    "PermissionDecision",
    "Rule",
    "RuleGuard",
    "SideEffect",
    "SideEffectGuard",
    "SkillFolder",
    "Tool",
    "ToolPermissions",
    "ToolPipeline",
    "ToolResult",
    "Toolbox",
    "as_tool",
    "supervised",
]

if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name
    _HOMES = {
        "kairo_team._util.child_processes": "supervised",
        "kairo_team.permissions": "PermissionDecision SideEffect",
        "circuit": "CircuitBreaker CircuitBreakers",
        "guards": "Rule RuleGuard",
        "mcp": "McpServer",
        "permissions": "SideEffectGuard ToolPermissions",
        "pipeline": "GovernedTool Toolbox ToolPipeline ToolResult",
        "skills": "SkillFolder",
        "tool": "Tool as_tool",
    }
    """Where the names live. Each is imported when it is first used: a team of functions has no tools."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
