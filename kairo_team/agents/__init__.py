"""Agents: what fills a role."""

from kairo_team.agents.function import FunctionAgent as FunctionAgent
from kairo_team.agents.mini import MiniAgent as MiniAgent
