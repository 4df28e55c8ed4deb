"""Planners: from a goal to tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.team import Team, TeamExecutionRequest


class RolePlanner:
    """One task per role, in the team's order, each after the one before; the goal is every task's description."""

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Plan without asking anybody."""
        return self.preview(request, team)

    def preview(self, request: TeamExecutionRequest, team: Team) -> TaskGraph:
        """Return the plan that `plan` will give."""
        roles = dict.fromkeys(member.role.id for member in team.members)
        tasks: list[Task] = []
        for role in roles:
            before = [tasks[-1].id] if tasks else []
            tasks.append(Task(role, request.goal, role=role, depends_on=before))
        return TaskGraph(tasks)
