"""The base of the kit's tests of reviews: a member and an evaluator that keep their input, and one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.contracts import MemberContext
from kairo_team.events import TaskCompleted
from kairo_team.results import TaskOutcome, TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.coordinator_stage import CoordinatorStage
from kairo_team.tck.paid_model import PaidModel
from kairo_team.testing.recorder import EventRecorder
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict, VerdictOutcome

Review = Callable[[EvaluationContext], Awaitable[Any]]
TWO = (Task("first", "Write it."), Task("second", "Go on with it.", depends_on=["first"]))
"""A plan whose second task uses the artifact of the first."""


class Writer:
    """A member that keeps its assignments, and writes a new text for each attempt at a task."""

    reentrant = True

    def __init__(self, write: Callable[[Assignment, int], str] | None = None) -> None:
        """`write` takes the assignment and the number of the attempt at its task, from 1, and returns a text."""
        self.asked: list[Assignment] = []
        self._write = write or _next_version

    async def run(self, assignment: Assignment, context: MemberContext) -> str:
        """Write; the event loop turns once."""
        self.asked.append(assignment)
        await checkpoint()
        return self._write(assignment, len(self.of(assignment.task.id)))

    def of(self, task_id: str) -> list[Assignment]:
        """Return the assignments of one task, in order."""
        return [one for one in self.asked if one.task.id == task_id]


def _next_version(assignment: Assignment, number: int) -> str:
    return f"version {number} of {assignment.task.id}"


class Reviewer:
    """An evaluator with a script for each task: the n-th review gets the n-th answer, later reviews the last.

    If an answer is a function, its result for the context is awaited and returned.
    """

    def __init__(self, *answers: Any) -> None:
        self.asked: list[EvaluationContext] = []
        self.prior: list[tuple[EvaluationVerdict, ...]] = []
        """The `prior_verdicts` of each review at the time of the call."""
        self._answers = answers

    async def evaluate(self, context: EvaluationContext) -> Any:
        """Answer by the script; the event loop turns once."""
        number = len(self.of(context.task.id))
        self.asked.append(context)
        self.prior.append(tuple(context.prior_verdicts))
        await checkpoint()
        answer: Any = self._answers[min(number, len(self._answers) - 1)]
        return await cast("Review", answer)(context) if callable(answer) else answer

    def of(self, task_id: str) -> list[EvaluationContext]:
        """Return the contexts of one task, in order."""
        return [one for one in self.asked if one.task.id == task_id]


def hanging(ended: list[float]) -> Any:
    """Return a review, or a planner's plan, that never ends; `ended` gets the time of its cancellation."""

    async def hang(context: EvaluationContext | MemberContext) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    return hang


class Judge(PaidModel):
    """A model that replies the same every time."""

    def __init__(self, says: str) -> None:
        super().__init__(lambda _: says)


@dataclass(slots=True)
class Reviewed:
    """A run that has ended, with its member and its evaluator."""

    result: TeamResult
    writer: Writer
    reviewer: Reviewer
    seen: EventRecorder

    @property
    def outcomes(self) -> list[TaskOutcome]:
        """The outcomes of the tasks that were reviewed, in plan order."""
        asked = {context.task.id for context in self.reviewer.asked}
        return [outcome for outcome in self.result.outcomes if outcome.task_id in asked]

    def check_refused(self, where: str) -> None:
        """Check that no reviewed artifact is accepted."""
        for outcome in self.outcomes:
            assert not is_accepted(outcome), f"{where}: accepted {outcome.task_id!r} without a PASS"
        assert self.result.status is not TeamStatus.COMPLETED, f"{where}: the run is COMPLETED"

    def check_visible(self, where: str) -> None:
        """Check that acceptance without a PASS shows in the run's status and in the task's last event."""
        without = [one for one in self.outcomes if is_accepted(one) and outcome_of(one) is not VerdictOutcome.PASS]
        if without:
            status = self.result.status
            allowed = {TeamStatus.DEGRADED} if all(map(is_accepted, self.result.outcomes)) else _NOT_COMPLETED
            assert status in allowed, f"{where}: {without[0].task_id!r} had no PASS, and the run is {status}"
        for outcome in without:
            (ended,) = self.seen.of(TaskCompleted, outcome.task_id)
            assert ended.verdict == outcome_of(outcome), f"{where}: task.completed has {ended.verdict!r}"

    def check_handed_on(self, where: str) -> None:
        """Check that only accepted artifacts are handed on, unchanged."""
        for assignment in self.writer.asked:
            for name, artifact in assignment.upstream.items():
                giver = self.result[name]
                assert is_accepted(giver), f"{where}: {assignment.task.id!r} got the unaccepted work of {name!r}"
                assert artifact == giver.artifact, f"{where}: {assignment.task.id!r} got {artifact!r} of {name!r}"


class ReviewStage(CoordinatorStage):
    """Runs with reviews."""

    async def play(
        self, reviewer: Reviewer, writer: Writer | None = None, *, tasks: Sequence[Task] = TWO, **how: Any
    ) -> Reviewed:
        """Run a plan whose artifacts are all reviewed; `how` is as for `stage`."""
        writer = writer or Writer()
        show = self.stage(writer, tasks=tasks, evaluator=reviewer, **how)
        result = await show.play()
        show.seen.assert_lawful()
        assert reviewer.asked, "nothing was reviewed, by a coordinator made with an evaluator"
        return Reviewed(result, writer, reviewer, show.seen)


_NOT_COMPLETED = {TeamStatus.DEGRADED, TeamStatus.FAILED}


def is_accepted(outcome: TaskOutcome) -> bool:
    """Return whether the task's artifact was accepted."""
    return outcome.status is TaskStatus.COMPLETED


def outcome_of(outcome: TaskOutcome) -> VerdictOutcome | None:
    """Return the outcome of a task's review; None without a verdict."""
    return None if outcome.verdict is None else outcome.verdict.outcome


def fixed_parts_of(verdict: EvaluationVerdict | None) -> tuple[Any, ...]:
    """Return the parts of a verdict that must not change; an empty tuple without a verdict."""
    return () if verdict is None else (verdict.outcome.value, verdict.cause, verdict.score)


def count_tasks(things: Iterable[Assignment | EvaluationContext]) -> Counter[str]:
    """Count by task."""
    return Counter(one.task.id for one in things)
