"""A coordinator of a stranger, made of public names: members bid for tasks, and `ReviewRounds` does the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import ReviewRounds
from kairo_team.evaluators import SimpleEvaluationStrategy
from kairo_team.tck import TeamCoordinatorTCK

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.sampled("anyio_backend")


class Auction:
    """Each task goes to the member that asks least for it; its work is reviewed, revised and escalated."""

    def __init__(self, evaluator: EvaluationStrategy | None = None, prices: Mapping[str, int] | None = None) -> None:
        self.evaluator = evaluator or SimpleEvaluationStrategy()
        self.prices = prices or {}

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        sold = Counter[str]()
        async with kt.TeamRun.open(request, team) as run:
            plan = request.plan or kt.TaskGraph([kt.Task("task", request.goal)])
            async for task in run.ready(await run.plan(plan)):
                run.go(self.sell, run, task, sold)
        return run.result

    async def sell(self, run: kt.TeamRun, task: kt.Task, sold: Counter[str]) -> None:
        bidders = [run.member(task) or "", *run.others(task)]
        bids = {one: self.prices.get(one, 0) + sold[one] for one in bidders}
        winner = await run.step(f"sold:{task.id}", lambda: min(bidders, key=bids.__getitem__))
        sold[winner] += 1
        if winner != bidders[0]:
            await run.hand_over(task, winner)
        await ReviewRounds(run, task, self.evaluator).finish()


class TestAuction(TeamCoordinatorTCK):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return Auction(evaluator)


async def test_the_lowest_bid_gets_the_task_and_the_senior_what_it_could_not_do() -> None:
    """Revisions, the senior and the risk profile come with `ReviewRounds`."""

    class Lengths:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            if len(context.artifact.text.split()) > 2:
                return kt.EvaluationVerdict.passed(1.0)
            return kt.EvaluationVerdict.revise("too short")

    async def short(assignment: kt.Assignment) -> str:
        return " ".join(["word"] * min(assignment.attempt, 2))

    async def long(assignment: kt.Assignment) -> str:
        assert assignment.previous is not None, "a senior revises what there is"
        return "a longer text"

    def refuse(assignment: kt.Assignment) -> str:
        raise AssertionError("its bid was higher")

    team = kt.Team(
        "auction",
        [kt.Member("expensive", refuse), kt.Member("cheap", short, senior=kt.Member("senior", long))],
    )
    config = kt.TeamConfig(max_feedback_rounds=1, risk_profile=kt.RiskProfile.HIGH)
    result = await kt.run(team, "Write.", coordinator=Auction(Lengths(), {"expensive": 5}), config=config)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert (result.output, result.outcomes[0].member) == ("a longer text", "senior")
