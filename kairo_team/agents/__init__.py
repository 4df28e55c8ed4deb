"""Agents: what fills a role - our own, and those people wrote with another library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kairo_team.agents.function import FunctionAgent as FunctionAgent
from kairo_team.agents.mini import MiniAgent as MiniAgent
from kairo_team.agents.team_agent import TeamAgent as TeamAgent

if TYPE_CHECKING:
    from kairo_team.agents.langgraph import LangGraphAgent as LangGraphAgent
    from kairo_team.agents.openai_agents import OpenAIAgent as OpenAIAgent
    from kairo_team.agents.pydantic_ai import PydanticAIAgent as PydanticAIAgent

__all__ = ["FunctionAgent", "LangGraphAgent", "MiniAgent", "OpenAIAgent", "PydanticAIAgent", "TeamAgent"]

_HOME = {
    "LangGraphAgent": "kairo_team.agents.langgraph",
    "OpenAIAgent": "kairo_team.agents.openai_agents",
    "PydanticAIAgent": "kairo_team.agents.pydantic_ai",
}
"""Wrappers of other libraries are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
