"""A coordinator for kairo-team: everyone drafts, everyone objects to the drafts, everyone votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import kairo_team as kt

__all__ = ["DebateCoordinator"]


class DebateCoordinator:
    """Let a team debate a goal; its output is the draft with the most votes.

    Each member drafts; each reads all drafts and says what is wrong with them; each reads that and names, in the first
    line of its answer, the member whose draft is to stand. On a tie the member earlier in the team wins. A member that
    breaks has no draft and no vote: the debate goes on with the others and the run is DEGRADED. It makes its own plan;
    that of a request is refused.
    """

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        """Run the debate to its end."""
        members = [member.id for member in team.members]
        stood: dict[str, kt.Artifact] = {}
        async with kt.TeamRun.open(request, team, tolerate_failures=True) as run:
            if request.plan is not None:
                raise ValueError("a debate makes its own plan: leave the plan out of the request")
            graph = await run.plan(lambda: debate(request.goal, members))
            async for task in run.ready(graph):
                run.go(self.one, run, task, stood)
            winner = elect(members, {task_id: artifact.text for task_id, artifact in stood.items()})
            if winner is not None:
                run.output = stood[f"draft.{winner}"]
        return run.result

    async def one(self, run: kt.TeamRun, task: kt.Task, stood: dict[str, kt.Artifact]) -> None:
        """Let a member draft, object or vote: what it says stands, a debate has no reviewer."""
        attempt = await run.attempt(task, 1)
        if attempt.artifact is None or attempt.error is not None:
            run.fail(task, attempt.error or "it said nothing")
            return
        stood[task.id] = attempt.artifact
        run.accept(task, attempt)


def debate(goal: str, members: Sequence[str]) -> kt.TaskGraph:
    """Return the plan: drafts, then objections to them, then votes."""
    drafts = [kt.Task(f"draft.{name}", goal, member=name) for name in members]
    of_drafts = [task.id for task in drafts]
    objections = [
        kt.Task(f"object.{name}", "Say what is wrong with each draft.", member=name, depends_on=of_drafts, needs=1)
        for name in members
    ]
    heard = [*of_drafts, *(task.id for task in objections)]
    question = f"Name, in the first line, the member whose draft is to stand: {', '.join(members)}."
    votes = [kt.Task(f"vote.{name}", question, member=name, depends_on=heard, needs=1) for name in members]
    return kt.TaskGraph([*drafts, *objections, *votes])


def elect(members: Sequence[str], said: Mapping[str, str]) -> str | None:
    """Return who won; None when there is no draft. A vote for nobody, or for who has no draft, does not count."""
    running = [name for name in members if f"draft.{name}" in said]
    ballots = [said.get(f"vote.{name}", "").strip().splitlines() for name in members]
    votes = Counter(ballot[0].strip() for ballot in ballots if ballot)
    return max(running, key=lambda name: votes[name], default=None)
