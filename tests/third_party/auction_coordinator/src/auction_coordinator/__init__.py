"""A coordinator for kairo-team: each task goes to the member that asks least for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import kairo_team as kt
from kairo_team.coordinators import Reviewers, ReviewRounds

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel, EvaluationStrategy

__all__ = ["AuctionCoordinator"]


class AuctionCoordinator:
    """Sell each task to the lowest bidder, and have it reviewed, revised and escalated.

    A member asks its price, plus one for each task that it was sold before. `evaluator` reviews tasks that name none:
    a strategy, or the name of one of the team's. `judge` answers the criteria for a judge.
    """

    def __init__(
        self,
        *,
        prices: Mapping[str, int] | None = None,
        evaluator: EvaluationStrategy | str | None = None,
        judge: str | ChatModel | Agent | None = None,
    ) -> None:
        self.prices = dict(prices or {})
        self.evaluator = evaluator
        self.judge = judge

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        """Return the plan of a run."""
        self._reviewers(team)
        return request.plan or kt.TaskGraph([kt.Task("task", request.goal)])

    def preflight(self, request: kt.TeamExecutionRequest, team: kt.Team) -> list[str]:
        """Return what keeps a task from being reviewed."""
        return self._reviewers(team).problems(self.preview(request, team), request.config)

    def judges(self, plan: kt.TaskGraph | None, team: kt.Team) -> tuple[Any, ...]:
        """Return the models and agents that reviews call."""
        return self._reviewers(team).models(plan)

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        """Run the request to its end."""
        sold = Counter[str]()
        async with kt.TeamRun.open(request, team) as run:
            reviewers = self._reviewers(run.team)
            graph = await run.plan(self.preview(request, run.team))
            reviewers.check(run, graph)
            async for task in run.ready(graph):
                run.go(self.sell, run, task, reviewers.of(task), sold)
        return run.result

    async def sell(
        self, run: kt.TeamRun, task: kt.Task, evaluator: EvaluationStrategy | None, sold: Counter[str]
    ) -> None:
        """Give the task to the first bidder that can pay for it, and carry it to its end."""
        owner = run.member(task) or ""
        bids = {name: self.prices.get(name, 0) + sold[name] for name in (owner, *run.others(task))}
        order = await run.step(f"bids:{task.id}", lambda: sorted(bids, key=bids.__getitem__))
        for name in order:
            if name == owner or await run.hand_over(task, name):
                sold[name] += 1
                break
        await ReviewRounds(run, task, evaluator).finish()

    def _reviewers(self, team: kt.Team) -> Reviewers:
        return Reviewers(team, self.evaluator, self.judge)
