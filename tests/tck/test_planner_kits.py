"""Every planner of ours fulfils the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel, Planner
from kairo_team.coordinators import AgentPlanner, RolePlanner
from kairo_team.tck import PlannerTCK

pytestmark = pytest.mark.sampled("anyio_backend")


class TestRolePlanner(PlannerTCK):
    supports_preview = True

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        return RolePlanner()


class TestAgentPlanner(PlannerTCK):
    asks_model = True
    supports_replan = True

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        return AgentPlanner(model)

    @classmethod
    def write_plan(cls, tasks: Sequence[kt.Task]) -> str:
        return json.dumps({"tasks": [_written(task) for task in tasks]})


def _written(task: kt.Task) -> dict[str, object]:
    needs = list(task.depends_on)
    return {"id": task.id, "description": task.description, "member": task.member, "depends_on": needs}
