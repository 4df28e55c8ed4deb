"""Judges whose share is used up, and governors of one name."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.gates import CallbackGate
from kairo_team.governance.governor import Governor
from kairo_team.testing import EventRecorder, FunctionModel

PASS = kt.EvaluationVerdict.passed(1.0)


class Judge:
    """Asks a model once a review, and passes everything."""

    models = ("m:judge",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        request = kt.ModelRequest([kt.Message.user("Good?")], max_tokens=10)
        await context.context.model("m:judge").complete(request)
        return PASS


def judged(_: kt.ModelRequest) -> kt.ModelResponse:
    return kt.ModelResponse("yes", (), kt.Usage(50, 10))


async def review_many(risk: kt.RiskProfile, **options: Any) -> kt.TeamResult:
    """Have five tasks reviewed; the judges' share pays for two."""
    agent = "made {}".format

    async def work(assignment: kt.Assignment) -> str:
        return agent(assignment.task.id)

    names = ["a", "b", "c", "d", "e"]
    plan = kt.TaskGraph([kt.Task(name, "Do it.", depends_on=names[:place]) for place, name in enumerate(names)])
    policy = kt.BudgetPolicy(evaluate=0.1)
    config = kt.TeamConfig(kt.Budget(tokens=1_000), risk_profile=risk, budget_policy=policy)
    runtime = kt.Runtime(models={"m:judge": FunctionModel(judged)})
    team = kt.Team("team", [kt.Member("m", work)], runtime=runtime)
    request = kt.TeamExecutionRequest("Do all.", plan=plan, config=config)
    return await ExpertTeamCoordinator(evaluator=Judge(), **options).execute(request, team)


async def test_third_o48_every_review_over_the_judges_share_ends_as_the_first_one() -> None:
    result = await review_many(kt.RiskProfile.LOW)
    causes = [one.verdict.cause for one in result.outcomes if one.verdict is not None]
    assert causes == [None, None, *[kt.Cause.JUDGE_BUDGET] * 3]
    assert [one.status.value for one in result.outcomes] == ["completed"] * 5, result.error


async def test_third_o48_a_person_is_asked_about_each_of_them() -> None:
    asked: list[str | None] = []

    async def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question.task_id)
        return kt.HumanDecision.approve()

    await review_many(kt.RiskProfile.MEDIUM, gate=CallbackGate(decide))
    assert asked == ["c", "d", "e"]


async def test_third_o48_where_the_whole_run_is_used_up_the_risk_decides_too() -> None:
    """The attempt leaves nothing: the review finds a halted run, and nothing was set aside for judges before."""
    runtime = kt.Runtime(models={"m:judge": FunctionModel(judged)})
    team = kt.Team("team", [kt.Member("m", Spendthrift())], runtime=runtime)
    config = kt.TeamConfig(kt.Budget(tokens=1_000), budget_policy=kt.BudgetPolicy(evaluate=0.0, reserve=0.0))
    plan = kt.TaskGraph([kt.Task("a", "Do it.")])
    request = kt.TeamExecutionRequest("Do all.", plan=plan, config=config)
    result = await ExpertTeamCoordinator(evaluator=Judge()).execute(request, team)
    assert "the coordinator raised" not in (result.error or "")
    assert result["a"].verdict is not None
    assert result["a"].verdict.cause is kt.Cause.JUDGE_BUDGET


class Spendthrift:
    """Spends the whole budget to the last token."""

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        left = context.remaining.tokens
        assert left is not None
        with context.governor.reserve(tokens=left) as hold:
            hold.settle(prompt_tokens=left)
        with pytest.raises(kt.HaltError):
            context.governor.can_proceed()
        return "made"


# ---------------------------------------------------------------- names


def test_third_o49_errors_carry_the_path_of_their_node() -> None:
    team = Governor(kt.Budget(tokens=100), name="team")
    member = team.carve("writer", kt.Budget(tokens=40))
    task = member.carve("writer", guarantee=kt.Budget(tokens=10))
    with pytest.raises(kt.InsufficientBudget) as short:
        member.carve("b", kt.Budget(tokens=35))
    assert (short.value.origin, short.value.path) == ("writer", "team/writer")
    task.reserve(tokens=40).settle(prompt_tokens=40)
    with pytest.raises(kt.HaltError) as halt:
        task.can_proceed()
    assert (halt.value.origin, halt.value.path) == ("writer", "team/writer")
    tree = team.tree()
    assert (tree.children[0].origin_path, tree.children[0].children[0].origin_path) == ("team/writer",) * 2


@pytest.mark.parametrize("name", ["other", "writer"])
async def test_third_o49_a_task_of_its_members_name_is_topped_up_like_any_other(name: str) -> None:
    """Its first attempt spends what it has, while a sibling of the same member gives back a lot."""
    recorder = EventRecorder()
    tries: list[int] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "sibling":
            await anyio.sleep(5)
            return "little"
        await anyio.sleep(1)
        tries.append(1)
        for _ in range(6 if len(tries) == 1 else 2):
            with context.governor.reserve(tokens=100) as hold:
                hold.settle(prompt_tokens=100)
        return "much"

    team = kt.Team(
        "team",
        [kt.Member("writer", work, budget=kt.Budget(tokens=1_000), max_concurrency=2)],
        runtime=kt.Runtime(subscribers=[recorder]),
    )
    plan = kt.TaskGraph([kt.Task(name, "Do much."), kt.Task("sibling", "Do little.", budget=kt.Budget(tokens=500))])
    config = kt.TeamConfig(kt.Budget(tokens=1_000), budget_policy=kt.BudgetPolicy(reserve=0.0))
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    result = await coordinator.execute(kt.TeamExecutionRequest("Do all.", plan=plan, config=config), team)
    assert [one.status.value for one in result.outcomes] == ["completed", "completed"], result[name].error
    assert [event.task_id for event in recorder.of(events.BudgetToppedUp)] == [name]
    assert len(tries) == 2
