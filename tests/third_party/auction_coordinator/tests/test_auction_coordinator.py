"""The auction, and the contract kit on it."""

from __future__ import annotations

import pytest

pytest.importorskip("auction_coordinator", reason="tests/third_party/auction_coordinator is not installed")

from auction_coordinator import AuctionCoordinator

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.tck import TeamCoordinatorTCK
from kairo_team.testing import ScriptedJudge


class TestAuctionCoordinator(TeamCoordinatorTCK):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return AuctionCoordinator(evaluator=evaluator)


class Lengths:
    """Passes a text of three words."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if len(context.artifact.text.split()) > 2:
            return kt.EvaluationVerdict.passed(1.0)
        return kt.EvaluationVerdict.revise("too short")


def refuse(assignment: kt.Assignment) -> str:
    raise AssertionError("its bid was higher")


async def write(assignment: kt.Assignment) -> str:
    return "The moon pulls the sea."


async def test_the_lowest_bid_gets_the_task_and_the_senior_what_it_could_not_do() -> None:
    """Revisions, the senior and the risk profile come with the review loop."""

    async def short(assignment: kt.Assignment) -> str:
        return " ".join(["word"] * min(assignment.attempt, 2))

    async def long(assignment: kt.Assignment) -> str:
        assert assignment.previous is not None, "a senior revises what there is"
        return "a longer text"

    members = [kt.Member("expensive", refuse), kt.Member("cheap", short, senior=kt.Member("senior", long))]
    config = kt.TeamConfig(max_feedback_rounds=1, risk_profile=kt.RiskProfile.HIGH)
    auction = AuctionCoordinator(evaluator=Lengths(), prices={"expensive": 5})
    result = await kt.run(kt.Team("auction", members), "Write.", coordinator=auction, config=config)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert (result.output, result.outcomes[0].member) == ("a longer text", "senior")


async def test_each_sale_makes_a_member_more_expensive() -> None:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "Write it.") for number in range(4)])
    team = kt.Team("auction", [kt.Member("a", write), kt.Member("b", write)])
    config = kt.TeamConfig(max_parallel_tasks=1)
    result = await kt.run(team, "Write.", plan=plan, coordinator=AuctionCoordinator(), config=config)
    assert [one.member for one in result.outcomes] == ["a", "b", "a", "b"]


async def test_a_bidder_that_cannot_pay_is_passed_over() -> None:
    members = [
        kt.Member("rich", write),
        kt.Member("poor", refuse, budget=kt.Budget(tokens=1)),
    ]
    task = kt.Task("t", "Write it.", budget=kt.Budget(tokens=500), member="rich")
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_000))
    auction = AuctionCoordinator(prices={"rich": 9})
    result = await kt.run(
        kt.Team("auction", members), "Write.", plan=kt.TaskGraph([task]), coordinator=auction, config=config
    )
    assert (result.status, result.outcomes[0].member) == (kt.TeamStatus.COMPLETED, "rich"), result.error


async def test_a_judge_answers_and_its_share_is_set_aside() -> None:
    rubric = kt.Rubric([kt.Criterion("moon", "it names the moon", by="judge")])
    team = kt.Team("auction", [kt.Member("a", write)], evaluators={"moon": rubric})
    plan = kt.TaskGraph([kt.Task("t", "Write it.", evaluator="moon")])
    auction = AuctionCoordinator(judge=ScriptedJudge())
    result = await kt.run(team, "Write.", plan=plan, coordinator=auction)
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert result.usage.tokens > 0, "the judge was not called"


async def test_a_review_without_its_judge_is_refused_before_work_starts() -> None:
    rubric = kt.Rubric([kt.Criterion("moon", "it names the moon", by="judge")])
    team = kt.Team("auction", [kt.Member("a", refuse)])
    checked = kt.check(team, "Write.", coordinator=AuctionCoordinator(evaluator=rubric))
    assert [problem for problem in checked.problems if "no" in problem and "'moon'" in problem], checked.problems
    result = await kt.run(team, "Write.", coordinator=AuctionCoordinator(evaluator=rubric))
    assert result.error is not None
    assert checked.problems[0] in result.error


def test_a_name_that_the_team_does_not_have_is_refused() -> None:
    checked = kt.check(
        kt.Team("auction", [kt.Member("a", write)]), "Write.", coordinator=AuctionCoordinator(evaluator="x")
    )
    assert checked.problems[0].startswith("the evaluator 'x' is unknown; the team has none")
