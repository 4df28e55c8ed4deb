"""What the tests of coordinators share: scripts for evaluators and gates, and a bench that replays every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import EventRecorder
from kairo_team.verdicts import ESCALATION_CAUSES

SAYS_SOMETHING = Rubric([Criterion("words", "it has a word", checks.min_words(1))])
"""A review that HIGH risk takes for one, and that everything made here passes."""


def strict_expert(**fields: Any) -> ExpertTeamCoordinator:
    """An expert team that may work under any risk profile."""
    given: dict[str, Any] = {"evaluator": SAYS_SOMETHING, **fields}
    return ExpertTeamCoordinator(**given)


KINDS: list[Any] = [TaskDispatchCoordinator, strict_expert]
"""What makes the coordinators that most of the rules hold for."""


COMPLETED, FAILED, SKIPPED, CANCELLED = (
    kt.TaskStatus.COMPLETED,
    kt.TaskStatus.FAILED,
    kt.TaskStatus.SKIPPED,
    kt.TaskStatus.CANCELLED,
)
LOW, MEDIUM, HIGH = kt.RiskProfile
ONCE = FailurePolicy(retries=0)
PASS = kt.EvaluationVerdict.passed(1.0)
REVISE = kt.EvaluationVerdict.revise("too short", findings=[kt.Finding("length", expected="two words")])


def task(task_id: str, *needs: str, **fields: Any) -> kt.Task:
    """Return a task that needs others."""
    return kt.Task(task_id, f"do {task_id}", depends_on=needs, **fields)


def left_open(cause: kt.Cause, feedback: str = "look", **fields: Any) -> kt.EvaluationVerdict:
    """Return a verdict that decides nothing, for a cause."""
    if cause in ESCALATION_CAUSES:
        return kt.EvaluationVerdict.escalate(cause, feedback, **fields)
    return kt.EvaluationVerdict.review_exceeded(cause, feedback, **fields)


def statuses(result: kt.TeamResult) -> dict[str, kt.TaskStatus]:
    """Return how each task ended, in plan order."""
    return {outcome.task_id: outcome.status for outcome in result.outcomes}


async def good(assignment: kt.Assignment) -> str:
    """Do it."""
    return f"made {assignment.task.id}"


async def bad(assignment: kt.Assignment) -> str:
    """Fail."""
    raise ValueError(f"cannot do {assignment.task.id}")


async def hang(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Keep a half and never come back."""
    context.keep("half")
    await anyio.sleep_forever()
    raise AssertionError


class Verdicts:
    """An evaluator that gives verdicts, or raises, in the order of a script."""

    def __init__(self, script: Iterable[Any]) -> None:
        self.contexts: list[kt.EvaluationContext] = []
        self._script = iter(script)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.contexts.append(context)
        verdict = next(self._script)
        if isinstance(verdict, Exception):
            raise verdict
        assert isinstance(verdict, kt.EvaluationVerdict)
        return verdict


class Decisions:
    """A gate that decides in the order of a script; None is silence."""

    def __init__(self, *script: kt.HumanDecision | None) -> None:
        self.asked: list[kt.HumanRequest] = []
        self._script = iter(script)

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        self.asked.append(question)
        return next(self._script)


class Mute:
    """A member, evaluator, planner and gate that nobody may ask."""

    reentrant = True

    def __init__(self, original: Any = None) -> None:
        if hasattr(original, "preflight"):
            self.preflight = original.preflight

    async def run(self, *_: Any) -> str:
        raise AssertionError("a member was called in a replay")

    async def evaluate(self, *_: Any) -> kt.EvaluationVerdict:
        raise AssertionError("an evaluator was called in a replay")

    async def plan(self, *_: Any) -> kt.TaskGraph:
        raise AssertionError("a planner was called in a replay")

    async def decide(self, *_: Any) -> kt.HumanDecision:
        raise AssertionError("a gate was called in a replay")


class Recorded(kt.Runtime):
    """A runtime whose runs all record into one journal."""

    def __init__(self, journal: MemoryRecords, **fields: Any) -> None:
        super().__init__(**fields)
        self.journal = journal

    def journal_for(self, run_id: str) -> MemoryRecords:
        return self.journal


class Bench:
    """A team whose events are recorded and lawful, and whose every run is replayed with nobody there to ask."""

    def __init__(self, *members: kt.Member, models: Mapping[str, Any] | None = None, **fields: Any) -> None:
        self.recorder = EventRecorder()
        self.journal = MemoryRecords()
        runtime = Recorded(self.journal, subscribers=[self.recorder], models=models or {})
        self.team = kt.Team("team", members, runtime=runtime, **fields)

    async def run(self, coordinator: Any, *tasks: kt.Task, **config: Any) -> kt.TeamResult:
        """Run tasks, or without any the goal."""
        plan = kt.TaskGraph(tasks) if tasks else None
        request = kt.TeamExecutionRequest("goal", plan=plan, config=kt.TeamConfig(**config), run_id="r")
        result: kt.TeamResult = await coordinator.execute(request, self.team)
        self.recorder.assert_lawful()
        replayed, original = comparable(await self.replay(coordinator, request)), comparable(result)
        assert replayed == original, f"a replay gave {replayed}"
        return result

    async def replay(self, coordinator: Any, request: kt.TeamExecutionRequest) -> kt.TeamResult:
        """Run the same code on what was recorded."""
        again = copy(coordinator)
        for name in ("planner", "evaluator", "gate"):
            if getattr(again, name, None) is not None:
                setattr(again, name, Mute(getattr(again, name)))
        muted: dict[int, kt.Member] = {}
        members = tuple(_muted(member, muted) for member in self.team.members)
        evaluators = {name: Mute(evaluator) for name, evaluator in self.team.evaluators.items()}
        runtime = Recorded(MemoryRecords(dict(self.journal.records)))
        team = replace(self.team, members=members, evaluators=evaluators, runtime=runtime)
        replayed: kt.TeamResult = await again.execute(request, team)
        return replayed


def _muted(member: kt.Member, muted: dict[int, kt.Member]) -> kt.Member:
    """Return the member without its agent; a shared senior stays one."""
    if id(member) not in muted:
        senior = None if member.senior is None else _muted(member.senior, muted)
        muted[id(member)] = replace(member, agent=Mute(), senior=senior)
    return muted[id(member)]


def comparable(result: kt.TeamResult) -> kt.TeamResult:
    """Leave out what a replay need not repeat: durations and how the budget was split."""
    outcomes = tuple(replace(outcome, usage=replace(outcome.usage, seconds=0.0)) for outcome in result.outcomes)
    return replace(result, outcomes=outcomes, usage=replace(result.usage, seconds=0.0), budget=None, duration=0.0)
