"""Coordinators that bind, schedule, fail or report tasks in a wrong way; the kit must reject each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.budget import HaltReason
from kairo_team.results import AgentOutput, Attempt
from kairo_team.verdicts import EvaluationVerdict
from tests.mutants.honest import Arming, Honest, HonestTCK, change_config
from tests.mutants.kit_mutant import registry_of

MUTANTS, mutant = registry_of(HonestTCK)


# ---------------------------------------------------------------- results


@mutant("T22", clause="C7")
class OrdersOutcomesByTheirEnd(Honest):
    """The outcomes come in the order in which tasks ended."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        tasks = {task.id: task for task in result.plan.tasks} if result.plan else {}
        ended = sorted(result.outcomes, key=lambda one: len(tasks[one.task_id].depends_on))
        return replace(result, outcomes=tuple(ended))


@mutant("T22", clause="C10")
class LosesTheOrderOnTimeout(Honest):
    """On timeout what was finished comes first."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        if result.status is kt.TeamStatus.TIMEOUT:
            done = sorted(result.outcomes, key=lambda one: one.status is not kt.TaskStatus.COMPLETED)
            result = replace(result, outcomes=tuple(done))
        return result


@mutant("T01", clause="C7")
class CannotSkip(Honest):
    """The outcome of a task that never started is refused by its own constructor."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        if result.plan is not None and any(not one.attempts and not result.refused for one in result.outcomes):
            raise ValueError("attempts must be at least 1, not 0")
        return result


@mutant(clause="C7")
class LostTasksDoNotCount(Honest):
    """A run with a lost task is completed."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        some = any(one.status is kt.TaskStatus.COMPLETED for one in result.outcomes)
        return replace(result, status=kt.TeamStatus.COMPLETED) if some else result


@mutant("T10", clause="C17")
class BindsRoundRobin(Honest):
    """Tasks go to whoever is next, whatever they require."""

    def plan(self, run: kt.TeamRun) -> Any:
        graph = super().plan(run)
        return kt.TaskGraph([replace(task, role=None, member=None, requires=()) for task in graph.tasks])


@mutant(clause="C17")
class DropsWhatNobodyCanDo(Honest):
    """Tasks that nobody can do are left out of the plan."""

    def plan(self, run: kt.TeamRun) -> Any:
        graph = super().plan(run)
        return kt.TaskGraph([task for task in graph.tasks if not (task.requires or task.role or task.member)])


@mutant(clause="C20")
class GivesTheLastArtifact(Honest):
    """The output is what the last accepted task made."""

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is not None:
            run.fail(task, attempt.error)
            return
        run.accept(task, attempt)
        if attempt.artifact is not None:
            run.output = attempt.artifact


# ---------------------------------------------------------------- scheduling


class _Layer:
    """How many tasks of the present layer are at work."""

    at_work = 0


@mutant("T13", clause="C8")
class WaitsForTheWholeLayer(Honest):
    """The next tasks start when all that run have ended."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        layer = _Layer()
        async with self.opens.open(request, team) as run:
            graph = await run.plan(lambda: self.plan(run))
            async for task in run.ready(graph):
                layer.at_work += 1
                run.go(self.layered, run, task, layer)
        return run.result

    async def layered(self, run: kt.TeamRun, task: kt.Task, layer: _Layer) -> None:
        attempt = await run.attempt(task, 1)
        layer.at_work -= 1
        while layer.at_work:
            await anyio.sleep(0.01)
        if attempt.error is not None:
            run.fail(task, attempt.error)
        else:
            run.accept(task, attempt)


@mutant(clause="C8")
class OneAfterTheOther(Honest):
    """Never more than one task at once."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, max_parallel_tasks=1), team)


@mutant(clause="C8")
class ForgetsDependencies(Honest):
    """Everything starts at once."""

    def plan(self, run: kt.TeamRun) -> Any:
        return kt.TaskGraph([replace(task, depends_on=(), needs="all") for task in super().plan(run).tasks])


@mutant("T24", clause="C8")
class HandsNothingOn(Arming):
    """What earlier tasks made never reaches later ones."""

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return replace(assignment, upstream={}), context


@mutant("T12", clause="C9")
class SharesAgents(Arming):
    """Tasks side by side share an agent that keeps state."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        members = tuple(replace(member, max_concurrency=None) for member in team.members)
        return await super().execute(request, replace(team, members=members))


@mutant("B23", clause="C9")
class NeverReadsParallelTasks(Honest):
    """`max_parallel_tasks` is a setting that nobody reads."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, max_parallel_tasks=None), team)


# ---------------------------------------------------------------- failed attempts


class _OnFailure(Honest):
    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is None:
            run.accept(task, attempt)
        else:
            await self.failed(run, task, attempt, attempt.error)

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        raise NotImplementedError


@mutant("T02", clause="C13")
class TimeoutsPass(_OnFailure):
    """A task that timed out is booked as passed, with half the score."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        if "timed out" in error:
            run.accept(task, attempt, EvaluationVerdict.passed(0.5))
        else:
            run.fail(task, error)


@mutant("T04", clause="C13")
class ATimeoutErrorEndsTheRun(_OnFailure):
    """A TimeoutError of any tool ends the team as out of time."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        if "TimeoutError" in error:
            run.governor.cancel(HaltReason.TIME_BUDGET_EXCEEDED)
        run.fail(task, error)


@mutant("T19", clause="C13")
class PollsForAnAnswer(_OnFailure):
    """An agent that returned nothing is asked again until it does."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        number = 1
        while attempt.error is not None and attempt.final and number < 50:
            number += 1
            await run.pause(task, 0.005)
            attempt = await run.attempt(task, number)
        run.fail(task, error)


@mutant("T20", clause="C13")
class AFailureEndsTheRun(_OnFailure):
    """An agent that raises kills the run."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        run.cancel(error)


@mutant("T21", clause="C13")
class AFailureEndsOtherBranches(_OnFailure):
    """A branch that fails takes the others with it."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        run.fail(task, error)
        run.abort(error)


@mutant("T27", clause="C13")
class PassesErrorsOn(_OnFailure):
    """The error of a failed member is its answer."""

    async def failed(self, run: kt.TeamRun, task: kt.Task, attempt: Attempt, error: str) -> None:
        run.accept(task, attempt._replace(output=AgentOutput(kt.Artifact(error)), error=None))


@mutant("B23", clause="C13")
class NeverReadsTheTasksTimeout(Honest):
    """`task_timeout` is a setting that nobody reads."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, task_timeout=None), team)


@mutant("B10", "T04", clause="C13")
class TakesAHaltForAnEnd(Honest):
    """What an attempt kept that its budget ended is accepted."""

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is None or ("halted" in attempt.error and attempt.artifact is not None):
            run.accept(task, attempt)
        else:
            run.fail(task, attempt.error)
