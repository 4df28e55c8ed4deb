"""Agents that fill the roles of a team: the library's own, and wrappers for agents of other libraries."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.agents.langgraph import LangGraphAgent
    from kairo_team.agents.mini import MiniAgent
    from kairo_team.agents.openai_agents import OpenAIAgent
    from kairo_team.agents.program import Program
    from kairo_team.agents.pydantic_ai import PydanticAIAgent
    from kairo_team.agents.team_agent import TeamAgent
    from kairo_team.engine.live.function_agent import FunctionAgent

__all__ = ["FunctionAgent", "LangGraphAgent", "MiniAgent", "OpenAIAgent", "Program", "PydanticAIAgent", "TeamAgent"]

if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name
    _HOMES = {
        "langgraph": "LangGraphAgent",
        "mini": "MiniAgent",
        "openai_agents": "OpenAIAgent",
        "program": "Program",
        "pydantic_ai": "PydanticAIAgent",
        "team_agent": "TeamAgent",
        "kairo_team.engine.live.function_agent": "FunctionAgent",
    }
    """Where the names live. Each is imported when it is first used: most teams have one or two kinds of agents."""
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
