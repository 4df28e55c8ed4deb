"""Turns: tasks added to a run one after the other, for coordinators whose members converse."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from kairo_team.coordinators.review_rounds import ReviewRounds
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.artifacts import Finding
    from kairo_team.coordinators.reviewers import Reviewers
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.results import Attempt
    from kairo_team.team import Member

_MOST_OF_A_ROLE: Final = 200
"""How many characters of its instructions a member's description has."""
_BETWEEN: Final = "\n\n"
_CUT: Final = "\n[cut here]"


def turn_id(number: int) -> str:
    """Return the id of a turn, by its number from 1."""
    return f"turn.{number:04d}"  # padded: ids sort as numbers do


def described(member: Member) -> str:
    """Describe a member in one line, for a model that chooses among members."""
    role = member.role
    # Sorted: prompts of a replay are equal.
    text = " ".join((role.instructions or ", ".join(sorted(role.capabilities))).split())
    return f"{member.id}: {text[:_MOST_OF_A_ROLE]}" if text else member.id


class Said(NamedTuple):
    """What one turn added to a conversation."""

    member: str
    text: str
    note: str = ""
    """What followed from the turn, such as who got the next one."""

    def __str__(self) -> str:
        """Return the turn for a transcript; its lines are indented, so that none looks like a member's name."""
        lines = [*self.text.splitlines(), *([f"[{self.note}]"] if self.note else [])]
        return "\n".join([f"{self.member}:", *(f"  {line}" for line in lines)])


def written(said: Sequence[Said], most: int) -> str:
    """Write the newest turns of a conversation in at most `most` characters, oldest first.

    Turns are included whole or left out, except the newest, whose end may be cut off. A line says how many are left
    out.
    """
    texts: deque[str] = deque()
    size = -len(_BETWEEN)  # no separator before the first
    for one in reversed(said):
        size += len(_BETWEEN) + len(text := str(one))
        if size > most:
            break
        texts.appendleft(text)
    else:
        return _BETWEEN.join(texts)
    # The notice takes room too, and more when one more turn is left out.
    while texts:
        shown = _notice(len(said) - len(texts)) + _BETWEEN.join(texts)
        if len(shown) <= most:
            return shown
        texts.popleft()
    text, kept = _notice(len(said) - 1) + str(said[-1]), most - len(_CUT)
    return text[:kept] + _CUT if kept > 0 else text[:most]


def _notice(left_out: int) -> str:
    turns = "1 earlier turn is" if left_out == 1 else f"{left_out:,} earlier turns are"
    return f"[{turns} left out]{_BETWEEN}" if left_out else ""


class TurnRounds(ReviewRounds):
    """The rounds of one turn. Subclasses say which tools are offered, and what is an answer."""

    passed_on: Attempt | None = None
    """The attempt that ended the turn without a review: its member passed the turn on."""

    def problem(self, attempt: Attempt) -> str | None:
        """Return why an attempt is invalid and so has failed, such as that it names no member."""
        return None

    def is_answer(self, attempt: Attempt) -> bool:
        """Return whether an attempt is an answer, which is reviewed; else the turn was passed on."""
        return attempt.ended_by is None

    def is_reviewed(self, attempt: Attempt) -> bool:
        """Keep the attempt of a turn that was passed on; only an answer is reviewed."""
        if self.is_answer(attempt):
            return super().is_reviewed(attempt)
        self.passed_on = attempt  # kept here, since a passed-on turn has no verdict
        return False

    async def try_once(self, previous: Attempt | None, findings: Sequence[Finding], *, offer: bool = True) -> Attempt:
        """Let the task's member try once."""
        attempt = await super().try_once(previous, findings, offer=offer)
        problem = None if attempt.error is not None else self.problem(attempt)
        return attempt if problem is None else attempt._replace(error=problem)


T = TypeVar("T", bound=TurnRounds)


class Turns(Generic[T]):
    """The turns of one run, each a task that is added when the one before it has ended."""

    def __init__(self, run: TeamRun, make: Callable[[Task], T], reviewers: Reviewers) -> None:
        """Take a function that makes the rounds of a turn."""
        self._run = run
        self._make = make
        self.rounds: dict[str, T] = {}
        """The rounds of every turn, by task id."""
        self._reviewers = reviewers
        self._graph: TaskGraph | None = None
        self.taken = 0
        """How many turns there were."""

    async def plan(self, make: Callable[[], Awaitable[Task]]) -> None:
        """Plan the first turn; `make` returns its task, and is paid like a plan. Then call `begin`. Recorded."""

        async def plan() -> TaskGraph:
            return TaskGraph([await make()])

        await self._plan(plan)

    async def begin(self) -> Task:
        """Run the planned first turn to its end, and return its task."""
        assert self._graph is not None, "plan first"
        await self._work_off(self._graph)
        return self._graph.tasks[0]

    async def take(self, member: str | None, description: str, inputs: Mapping[str, Any] = {}, **fields: Any) -> Task:
        """Run one turn to its end, however it ends, and return its task, which depends on the turn before it.

        `fields` are further fields of the task. Recorded.
        """
        number = self.taken + 1
        fields = {"id": turn_id(number), "depends_on": [turn_id(number - 1)] if self.taken else [], **fields}
        task = Task(description=description, member=member, inputs=inputs, **fields)
        if self._graph is None:
            await self._plan(TaskGraph([task]))
            return await self.begin()
        self.taken += 1
        self._graph = await self._run.add(lambda: [task])
        await self._work_off(self._graph)
        return task

    async def _plan(self, plan: TaskGraph | Callable[[], Awaitable[TaskGraph]]) -> None:
        self.taken = 1
        self._graph = await self._run.plan(plan)
        self._reviewers.check(self._run, self._graph)

    async def _work_off(self, graph: TaskGraph) -> None:
        async for ready in self._run.ready(graph):
            self._run.go(self._do_rounds, ready)

    def _do_rounds(self, task: Task) -> Awaitable[None]:
        self.rounds[task.id] = rounds = self._make(task)
        return rounds.finish()
