"""The kit of `Agent`: one member at work, observed from outside, with a scripted model."""

from __future__ import annotations

from kairo_team.tck.agent_ends import EndTests
from kairo_team.tck.agent_spending import SpendingTests
from kairo_team.tck.agent_work import WorkTests


class AgentTCK(EndTests, SpendingTests, WorkTests):
    """The contract kit of agents: override `make_agent` and declare the agent's capabilities."""
