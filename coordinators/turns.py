"""Turns: tasks that a run gets one after the other, for coordinators whose members converse."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.coordinators.task_work import TaskWork
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.coordinators.failure_policy import FailurePolicy
    from kairo_team.coordinators.reviewers import Reviewers
    from kairo_team.coordinators.task_work import Progress
    from kairo_team.engine.team_run import TeamRun
    from kairo_team.results import Attempt
    from kairo_team.team import Member
    from kairo_team.verdicts import Finding

MOST_SHOWN: Final = 6_000
"""Characters of a conversation that a member is shown."""
_MOST_OF_A_ROLE: Final = 200
"""Characters of a member's instructions in a description of it."""


def turn_id(number: int) -> str:
    """Return the id of a turn, by its number from 1."""
    return f"turn.{number:04d}"


def longest(first: Task, turns: int) -> TaskGraph:
    """Return the plan of a conversation that takes all its turns: what a budget is checked against."""
    chain = [first]
    for number in range(2, turns + 1):
        chain.append(replace(first, id=turn_id(number), depends_on=[chain[-1].id]))
    return TaskGraph(chain)


def described(member: Member) -> str:
    """Describe a member in one line, for a model that chooses among members."""
    role = member.role
    text = " ".join((role.instructions or ", ".join(sorted(role.capabilities))).split())
    return f"{member.id}: {text[:_MOST_OF_A_ROLE]}" if text else member.id


class Said(NamedTuple):
    """What one turn added to a conversation."""

    member: str
    text: str
    note: str = ""
    """What followed from it, such as who got the turn."""

    def __str__(self) -> str:
        parts = [f"{self.member}:", *filter(None, (self.text, self.note and f"[{self.note}]"))]
        return "\n".join(parts)


class Transcript:
    """The conversation of one run, as its members are shown it: at most so many characters, the newest turns first.

    A turn is shown whole or not at all; one that is longer than all that is shown is cut. A notice says what is left
    out.
    """

    def __init__(self, limit: int = MOST_SHOWN) -> None:
        self._limit = limit
        self._said: list[Said] = []
        self._shown: list[str] = []
        """The newest turns that fit, oldest first."""
        self._size = 0

    def __len__(self) -> int:
        return len(self._said)

    @property
    def last(self) -> Said | None:
        """The newest turn."""
        return self._said[-1] if self._said else None

    def add(self, said: Said) -> None:
        """Take a turn in."""
        self._said.append(said)
        text = str(said)[: self._limit]
        self._shown.append(text)
        self._size += len(text)
        while self._size > self._limit:
            self._size -= len(self._shown.pop(0))

    def __str__(self) -> str:
        left_out = len(self._said) - len(self._shown)
        notice = [f"[{left_out} earlier turns are left out]"] if left_out else []
        return "\n\n".join([*notice, *self._shown])


class TurnWork(TaskWork):
    """The body of every turn of one run. A coordinator overrides what it offers, and what it reviews."""

    def __init__(self, run: TeamRun, policy: FailurePolicy, reviewers: Reviewers) -> None:
        super().__init__(run, policy, reviewers)
        self.unreviewed: dict[str, Attempt] = {}
        """By task id, the attempt that ended a turn without being reviewed: its member passed the turn on."""

    def problem(self, task: Task, attempt: Attempt) -> str | None:
        """Return why an attempt cannot stand, such as that it names nobody; it has failed then."""
        return None

    def is_answer(self, task: Task, attempt: Attempt) -> bool:
        """Return whether an attempt is an answer, which is reviewed; else the turn was passed on."""
        return attempt.ended_by is None

    def is_reviewed(self, task: Task, attempt: Attempt) -> bool:
        """Keep the attempt of a turn that was passed on; only an answer is reviewed."""
        if self.is_answer(task, attempt):
            return True
        self.unreviewed[task.id] = attempt
        return False

    async def _try_once(self, task: Task, made: Awaitable[Attempt]) -> Attempt:
        attempt = await made
        problem = None if attempt.error is not None else self.problem(task, attempt)
        return attempt if problem is None else attempt._replace(error=problem)

    def try_once(
        self,
        task: Task,
        progress: Progress,
        previous: Attempt | None,
        findings: Sequence[Finding],
        *,
        offer: bool = True,
    ) -> Awaitable[Attempt]:
        """Let the task's member try once."""
        return self._try_once(task, super().try_once(task, progress, previous, findings, offer=offer))


class Turns:
    """The turns of one run, each a task that is added when the one before it has ended."""

    def __init__(self, run: TeamRun, work: TurnWork, reviewers: Reviewers) -> None:
        self._run = run
        self._work = work
        self._reviewers = reviewers
        self._graph: TaskGraph | None = None
        self.taken = 0
        """How many there were."""

    async def take(self, member: str | None, description: str, inputs: Mapping[str, Any] = {}, **fields: Any) -> Task:
        """Have one turn done to its end, whatever that is, and return its task; it depends on the turn before it.

        `fields` are further fields of the task. Recorded.
        """
        self.taken += 1
        before = [turn_id(self.taken - 1)] if self.taken > 1 else []
        fields = {"depends_on": before, **fields}
        task = Task(turn_id(self.taken), description, member=member, inputs=inputs, **fields)
        run = self._run
        if self._graph is None:
            self._graph = await run.plan(TaskGraph([task]))
            self._reviewers.check(run, self._graph)
        else:
            self._graph = await run.add(lambda: [task])
        async for ready in run.ready(self._graph):
            run.go(self._work.do, ready)
        return task
