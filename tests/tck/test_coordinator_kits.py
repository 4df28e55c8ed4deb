"""Every coordinator of ours, those of the documentation, and coordinators around coordinators fulfil the contract."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, Planner, TeamCoordinator
from kairo_team.coordinators import (
    ExpertTeamCoordinator,
    FailurePolicy,
    HandoffCoordinator,
    TaskDispatchCoordinator,
)
from kairo_team.tck import TeamCoordinatorTCK
from tests.debate import Debate
from tests.mutants.honest import HonestTCK
from tests.mutants.kit_coordinator_before import UsingTCK
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


class TestTaskBoard(TeamCoordinatorTCK):
    reviews_named_tasks = True
    tolerates_failures = True

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return TaskDispatchCoordinator()


@variant("trio")
class TestTaskBoardThatNeverTriesAgain(TestTaskBoard):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0, try_others=False))


class TestExpertTeam(TeamCoordinatorTCK):
    supports_planner = True

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return ExpertTeamCoordinator(evaluator=evaluator)

    @classmethod
    def make_planning_coordinator(cls, planner: Planner, *, fallback: bool = False) -> TeamCoordinator:
        mode = kt.PlannerFailureMode.SINGLE_TASK_FALLBACK if fallback else kt.PlannerFailureMode.FAIL_FAST
        return ExpertTeamCoordinator(planner=planner, planner_failure_mode=mode)


@variant("asyncio")
class TestExpertTeamThatNeverTriesAgain(TestExpertTeam):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        policy = FailurePolicy(retries=0, try_others=False)
        return ExpertTeamCoordinator(evaluator=evaluator, failure_policy=policy)


@variant("trio")
class TestWhatMutantsAreMadeOf(HonestTCK):
    """What the wrong coordinators change one thing of."""


@variant("asyncio")
class TestWhatMutantsOfTheLoopAreMadeOf(UsingTCK):
    """What the coordinators that use the review loop in a wrong way change one thing of."""


class TestHandoff(TeamCoordinatorTCK):
    """Nobody hands over: the first member's answer is all."""

    supports_plan = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return HandoffCoordinator(evaluator=evaluator)


class HandsOn:
    """Does what the kit's agent does, and hands over what it made, while somebody else is left."""

    reentrant = True

    def __init__(self, agent: Any) -> None:
        self._run = getattr(agent, "run", agent)

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        made: Any = self._run(assignment, context)
        made = await made if inspect.isawaitable(made) else made
        if not isinstance(made, str) or not made.strip() or not context.offered:
            return made
        return kt.Artifact(made, {"hand_over": {"to": "two", "message": "go on"}})


@variant("asyncio")
class TestHandoffOfWhoHandsOn(TestHandoff):
    """The first member hands over whatever it makes: every run grows. What is handed over is not reviewed."""

    supports_review = False
    supports_revision = False
    supports_gate = False

    @classmethod
    def make_team(cls, agent: Any, **fields: Any) -> kt.Team:
        last = [kt.Member(name, agent) for name in ("two", "three")]
        return kt.Team("kit", [kt.Member("one", HandsOn(agent)), *last], **fields)


class TestDebate(TeamCoordinatorTCK):
    supports_plan = False
    supports_review = False
    supports_revision = False
    supports_gate = False
    supports_resume = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return Debate()

    @classmethod
    def make_team(cls, agent: Any, **fields: Any) -> kt.Team:
        return kt.Team("debate", [kt.Member(name, agent) for name in "abc"], **fields)


class OneAfterAnother(Debate):
    """The same debate, whose bodies are awaited in the loop itself."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            async for task in run.ready(await run.plan(lambda: self.plan(team))):
                await self.one(run, task)
        return run.result

    def plan(self, team: kt.Team) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task(f"say-{member.id}", "Speak.", member=member.id) for member in team.members])


@variant("trio")
class TestOneAfterAnother(TestDebate):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return OneAfterAnother()


class TwoWorkers(OneAfterAnother):
    """What is ready waits in a queue of its own, from which two take it."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(lambda: self.plan(team))
            give, take = anyio.create_memory_object_stream[kt.Task](len(graph.tasks))
            async with anyio.create_task_group() as group, give:
                for _ in range(2):
                    group.start_soon(self.work, run, take.clone())
                take.close()
                async for task in run.ready(graph):
                    await give.send(task)
                give.close()
        return run.result

    async def work(self, run: kt.TeamRun, take: MemoryObjectReceiveStream[kt.Task]) -> None:
        with take:
            async for task in take:
                await self.one(run, task)


@variant("asyncio")
class TestTwoWorkers(TestDebate):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return TwoWorkers()


class Verdict(Debate):
    """The same debate, whose output is its own."""

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        await super().one(run, task)
        run.output = "The motion is carried."


@variant("trio")
class TestDebateWithAnOutputOfItsOwn(TestDebate):
    joins_output = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return Verdict()


class Logged:
    """Delegates to another coordinator."""

    def __init__(self, inner: TeamCoordinator) -> None:
        self.inner = inner
        self.begun: list[str] = []

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        self.begun.append(request.run_id)
        return await self.inner.execute(request, team)


@variant("asyncio")
class TestCoordinatorInsideAnother(TestExpertTeam):
    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return Logged(Logged(super().make_coordinator(evaluator=evaluator)))

    @classmethod
    def make_planning_coordinator(cls, planner: Planner, *, fallback: bool = False) -> TeamCoordinator:
        return Logged(super().make_planning_coordinator(planner, fallback=fallback))


class Choosing:
    """Takes the task board for a plan, and the expert team for a goal."""

    def __init__(self, evaluator: EvaluationStrategy | None) -> None:
        self.board = TaskDispatchCoordinator()
        self.experts = ExpertTeamCoordinator(evaluator=evaluator)

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        chosen: TeamCoordinator = self.board if request.plan is not None else self.experts
        return await chosen.execute(request, team)


@variant("trio")
class TestCoordinatorThatChooses(TeamCoordinatorTCK):
    reviews_named_tasks = True
    tolerates_failures = True

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return Choosing(evaluator)
