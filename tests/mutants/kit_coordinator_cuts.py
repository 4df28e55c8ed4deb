"""Coordinators whose runs are cut short in a wrong way; the kit must reject each."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

import kairo_team as kt
from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.events import Event
from tests.mutants.honest import Armed, Arming, Honest, HonestTCK, Telling, change_config
from tests.mutants.kit_mutant import KitMutant, registry_of

MUTANTS, mutant = registry_of(HonestTCK)


@mutant("T03", clause="C10")
class GathersOutsideTheDeadline(Honest):
    """What is gathered before the work is outside the deadline."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        await anyio.sleep(20)
        return await super().execute(request, team)


@mutant("T29", clause="C10")
class TakesItsTimeToEnd(Honest):
    """The grace is longer than was allowed."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, cancel_grace=30.0), team)


class _Deaf(Armed):
    async def run(self, assignment: kt.Assignment, context: Any) -> Any:
        with anyio.move_on_after(32, shield=True):
            return await super().run(assignment, context)
        raise TimeoutError


@mutant("B15", clause="C10")
class WaitsForTheCallInFlight(Arming):
    """A call that hangs at the deadline is waited for."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, cancel_grace=60.0), team)

    def arm(self, member: kt.Member) -> Any:
        return _Deaf(member.agent, self)


@mutant("B06", clause="C10")
class LosesWhatWasFinished(Honest):
    """At a deadline or a kill the result is empty."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        cut = result.status in {kt.TeamStatus.TIMEOUT, kt.TeamStatus.CANCELLED}
        return replace(result, outcomes=()) if cut else result


class _LastReason(kt.TeamRun):
    def cancel(self, reason: str = "the run was cancelled") -> None:
        self._ending.reason = None
        super().cancel(reason)


@mutant("B09", clause="C10")
class KeepsTheLastReason(Honest):
    """A second kill overwrites the reason of the first."""

    opens = _LastReason


class _NoReason(kt.TeamRun):
    def cancel(self, reason: str = "the run was cancelled") -> None:
        self._ending.reason = reason
        self.governor.cancel(HaltReason.EMERGENCY_STOP)


@mutant(clause="C10")
class KillsAsAFailure(Honest):
    """A killed run is a failed one."""

    opens = _NoReason


@mutant("T06", clause="C11")
class SwallowsItsCallersCancellation(Honest):
    """Its caller is cancelled, and gets a result."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        try:
            return await super().execute(request, team)
        except anyio.get_cancelled_exc_class():
            return kt.TeamResult(request.run_id, kt.TeamStatus.CANCELLED)


class _Unheard(Telling):
    def tell(self, event: Event) -> Sequence[Event]:
        return [] if isinstance(event, events.TeamCancelled) else [event]


@mutant("T06", clause="C11")
class EndsUnheard(Honest):
    """A run whose caller is cancelled has no last event."""

    opens = _Unheard


class _Wandering(Armed):
    async def run(self, assignment: kt.Assignment, context: Any) -> Any:
        with anyio.move_on_after(30, shield=True):
            return await super().run(assignment, context)
        raise TimeoutError


@mutant("T06", clause="C11")
class LetsAgentsRunOn(Arming):
    """Agents work on for a while after the run's caller was cancelled."""

    def arm(self, member: kt.Member) -> Any:
        return _Wandering(member.agent, self)


@mutant("U05", clause="C11")
class HaltsWinOverItsCaller(Honest):
    """A halt in the same moment swallows the caller's cancellation."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        run: list[kt.TeamRun] = []
        try:
            return await self.watched(request, team, run)
        except anyio.get_cancelled_exc_class():
            if run and run[0].result.halt is not None:
                return run[0].result
            raise

    async def watched(self, request: kt.TeamExecutionRequest, team: kt.Team, run: list[kt.TeamRun]) -> kt.TeamResult:
        async with self.opens.open(request, team) as opened:
            run.append(opened)
            graph = await opened.plan(lambda: self.plan(opened))
            async for task in opened.ready(graph):
                opened.go(self.one, opened, task)
        return opened.result


@mutant("B06", clause="C10")
class KeepsTheFirstPartOnly(Honest):
    """Of several that were cut short, what the first one kept comes back."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        cut = [one.task_id for one in result.outcomes if one.status is kt.TaskStatus.CANCELLED]
        outcomes = [replace(one, artifact=None) if one.task_id in cut[1:] else one for one in result.outcomes]
        return replace(result, outcomes=tuple(outcomes))


class _GivesBy(Honest):
    """Gives each task to the member that its decision names."""

    def choose(self, run: kt.TeamRun, task: kt.Task) -> str:
        raise NotImplementedError

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        wanted = self.choose(run, task)
        if wanted != run.member(task):
            await run.hand_over(task, wanted)
        await super().one(run, task)


def _everybody(run: kt.TeamRun, task: kt.Task) -> list[str]:
    return sorted([run.member(task) or "", *run.others(task)])


class DecidesByHash(_GivesBy):
    """Which member gets a task depends on the hash of its name, another one in each process."""

    def choose(self, run: kt.TeamRun, task: kt.Task) -> str:
        members = _everybody(run, task)
        return members[hash(f"a longer name of {task.id}") % len(members)]


class DecidesByHashTCK(HonestTCK):
    """Which member gets a task depends on the hash of its name, another one in each process."""

    kind = DecidesByHash


MUTANTS.append(KitMutant((), "C21", DecidesByHashTCK))  # by its place in this module, another process finds the kit


@mutant(clause="C21")
class DecidesByTheClock(_GivesBy):
    """A finished task is another member's a day later."""

    def choose(self, run: kt.TeamRun, task: kt.Task) -> str:
        members = _everybody(run, task)
        return members[int(time.time() // 86_400) % len(members)]


@mutant(clause="C21")
class DecidesByLot(_GivesBy):
    """Members are drawn, and the lot is not recorded."""

    def choose(self, run: kt.TeamRun, task: kt.Task) -> str:
        return random.SystemRandom().choice(_everybody(run, task))


@mutant(clause="C22")
class TriesWhateverIsLeft(Honest):
    """It never asks whether the run is over."""

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        for number in range(1, 9):
            attempt = await run.attempt(task, number)
            if attempt.error is None:
                return run.accept(task, attempt)
        return run.fail(task, "it failed eight times")


@mutant(clause="C22")
class WaitsForWhoCannotPay(Honest):
    """Another member is asked for ever, although it cannot pay for the task."""

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        for number in range(1, 40):
            attempt = await run.attempt(task, number)
            if attempt.error is None:
                return run.accept(task, attempt)
            if await run.is_over(task):
                break
            for other in run.others(task):
                await run.hand_over(task, other)
        return run.fail(task, "it failed")
