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


class Lines:
    """A planner whose model writes a line for each task, `member: what to do`: a form without ids and dependencies."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        names = [member.id for member in team.members]
        messages = [kt.Message.user(f"{request.goal}\nMembers: {', '.join(names)}\nWrite lines: `member: what to do`.")]
        for _ in range(2):
            reply = await context.model(self.model).complete(kt.ModelRequest(messages))
            try:
                return self.read(reply.text, names)
            except ValueError as error:
                messages += [kt.Message.assistant(reply.text), kt.Message.user(f"It cannot be run: {error}")]
        raise ValueError("the model wrote no plan that can be run")

    def read(self, text: str, names: list[str]) -> kt.TaskGraph:
        tasks: list[kt.Task] = []
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for number, line in enumerate(lines):
            name, _, what = line.partition(":")
            if name not in names:
                raise ValueError(f"{line!r} names no member; the members are {', '.join(names)}")
            tasks.append(kt.Task(f"task-{number}", what.strip(), member=name))
        return kt.TaskGraph(tasks)


class TestLines(PlannerTCK):
    asks_model = True

    @classmethod
    def make_planner(cls, model: ChatModel) -> Planner:
        return Lines(model)

    @classmethod
    def write_plan(cls, tasks: Sequence[kt.Task]) -> str:
        return "\n".join(f"{task.member}: {task.description}" for task in tasks)
