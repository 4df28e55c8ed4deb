"""A run as its page shows it: folded from its events, a few at a time."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kairo_team import events

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from kairo_team.events import Event

_CALLS: Final = 100
"""The last calls that are shown."""
_POINTS: Final = 400
"""Most points of a curve."""
_WIDTH: Final = 1_000
"""Of a picture, in its own units."""
_SECOND: Final = 0.001


@dataclass(slots=True)
class Try:
    """One attempt at a task."""

    number: int
    began: datetime
    ended: datetime | None = None
    status: str = "running"
    error: str | None = None


@dataclass(slots=True)
class TaskView:
    """What is known of a task."""

    task_id: str
    state: str = "waits"
    member: str | None = None
    depends_on: tuple[str, ...] = ()
    tries: list[Try] = field(default_factory=list[Try])
    verdict: str | None = None
    reason: str | None = None
    tokens: int = 0


@dataclass(slots=True)
class CallView:
    """One try of a call of a model or a tool."""

    at: datetime
    what: str
    name: str
    task_id: str | None
    outcome: str = "under way"
    seconds: float | None = None
    tokens: int = 0
    held: int = 0
    """The tokens that are set aside for it."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a timeline: `x` and `width` of 1,000."""

    x: float
    width: float
    status: str


class RunView:
    """Takes the events of a run in their order."""

    def __init__(self) -> None:
        self.seq = 0
        """The number of the last event."""
        self.tasks: dict[str, TaskView] = {}
        self.calls: deque[CallView] = deque(maxlen=_CALLS)
        self.notes: deque[tuple[datetime, str]] = deque(maxlen=_CALLS)
        """What people did, and warnings: when, and the sentence."""
        self.began: datetime | None = None
        self.latest: datetime | None = None
        self.spent: list[tuple[datetime, int]] = []
        """Tokens so far, by time."""
        self._open: dict[tuple[str, int], CallView] = {}

    def take(self, new: Iterable[Event]) -> None:
        """Take the events that follow."""
        for event in new:
            self.seq = event.seq
            self.began = self.began or event.at
            self.latest = event.at
            self._take_work(event)
            self._take_call(event)
            self._take_note(event)

    def _task(self, task_id: str) -> TaskView:
        return self.tasks.setdefault(task_id, TaskView(task_id))

    def _take_work(self, event: Event) -> None:
        match event:
            case events.PlanReady():
                self._take_plan(event)
            case events.AttemptStarted():
                task = self._task(event.task_id)
                task.state, task.member = "running", event.member
                task.tries.append(Try(event.attempt, event.at))
            case events.AttemptFinished():
                self._end_try(self._task(event.task_id), event)
            case events.EvaluationStarted():
                self._task(event.task_id).state = "in review"
            case events.EvaluationResult():
                self._task(event.task_id).verdict = event.verdict.outcome.value
            case events.TaskEnded():
                task = self._task(event.task_id)
                task.state, task.reason = event.type.removeprefix("task."), event.reason
            case events.TeamResumed():
                self._open.clear()
                for task in self.tasks.values():
                    _cut(task, event.at)
            case _:
                pass

    def _take_plan(self, plan: events.PlanReady) -> None:
        links = {one.id: one for one in plan.graph}
        for task_id in plan.tasks:
            task = self._task(task_id)
            if task_id in links:
                task.depends_on = links[task_id].depends_on

    def _end_try(self, task: TaskView, event: events.AttemptFinished) -> None:
        task.tokens += event.usage.tokens
        task.state = "between attempts"
        for one in task.tries:
            if one.number == event.attempt and one.ended is None:
                one.ended, one.status, one.error = event.at, event.status, event.error

    def _take_call(self, event: Event) -> None:
        match event:
            case events.ModelStarted() | events.ToolStarted():
                model = isinstance(event, events.ModelStarted)
                name, what = (event.model, event.purpose) if model else (event.tool, "tool")  # type: ignore[union-attr]  # one of both
                number = event.number if model else 1  # type: ignore[union-attr]  # one of both
                call = CallView(event.at, what, name, event.task_id)
                call.held = event.held if model else 0  # type: ignore[union-attr]  # one of both
                self._open[event.call_id, number] = call
                self.calls.append(call)
            case events.ModelCalled():
                call = self._ended(event.call_id, event.number, event, event.purpose, event.model)
                call.outcome, call.seconds, call.tokens = event.outcome, event.duration, event.usage.tokens
                so_far = self.spent[-1][1] if self.spent else 0
                self.spent.append((event.at, so_far + event.usage.tokens))
            case events.ToolCalled():
                call = self._ended(event.call_id, 1, event, "tool", event.tool)
                call.outcome, call.seconds = event.outcome, event.duration
                call.note = " ".join(filter(None, (event.refused_by, event.reason)))
            case _:
                pass

    def _ended(self, call_id: str, number: int, event: events.WorkEvent, what: str, name: str) -> CallView:
        call = self._open.pop((call_id, number), None)
        if call is None:  # it was refused, or its start is not known
            call = CallView(event.at, what, name, event.task_id)
            self.calls.append(call)
        return call

    def _take_note(self, event: Event) -> None:
        sentence = _sentence(event)
        if sentence:
            self.notes.append((event.at, sentence))

    # ------------------------------------------------------------------ what is drawn

    @property
    def states(self) -> list[tuple[str, int]]:
        """How many tasks are in each state, the most frequent first."""
        return Counter(task.state for task in self.tasks.values()).most_common()

    @property
    def held(self) -> int:
        """Tokens that are set aside for calls under way."""
        return sum(call.held for call in self._open.values())

    def bars(self, task: TaskView) -> list[Bar]:
        """Return the attempts of a task as pieces of the run's time."""
        if self.began is None or self.latest is None:
            return []
        whole = max((self.latest - self.began).total_seconds(), _SECOND)

        def place(moment: datetime) -> float:
            assert self.began is not None
            return (moment - self.began).total_seconds() / whole * _WIDTH

        found: list[Bar] = []
        for one in task.tries:
            x = place(one.began)
            found.append(Bar(round(x, 1), round(max(place(one.ended or self.latest) - x, 3), 1), one.status))
        return found

    def curve(self, limit: int) -> str:
        """Return the points of the tokens that are left over the run's time, for a picture of 1,000 by 100."""
        if self.began is None or self.latest is None or not limit:
            return ""
        whole = max((self.latest - self.began).total_seconds(), _SECOND)
        step = max(len(self.spent) // _POINTS, 1)
        points = [(0.0, 0)]
        for at, used in [*self.spent[::step], (self.latest, self.spent[-1][1] if self.spent else 0)]:
            seconds = (at - self.began).total_seconds()
            points += [(seconds, points[-1][1]), (seconds, used)]  # it is spent at once, when the call has ended
        return " ".join(f"{seconds / whole * _WIDTH:.1f},{min(used / limit, 1) * 100:.1f}" for seconds, used in points)


def _cut(task: TaskView, at: datetime) -> None:
    """End the attempts that an earlier session left under way."""
    for one in task.tries:
        if one.ended is None:
            one.ended, one.status = at, "interrupted"


def _sentence(event: Event) -> str:
    """Describe what went wrong, or what a person did; "" for anything else."""
    match event:
        case events.BudgetWarned():
            return f"{event.share:.0%} of the {event.dimension} are spent"
        case events.BudgetHalted():
            return f"{event.task_id} was stopped: {event.reason}"
        case events.ConstraintViolated():
            return f"constraint {event.constraint}: {event.reason}"
        case events.GuardrailDecided():
            return f"guardrail {event.policy}, {event.action}: {event.reason}"
        case events.TeamEnded():
            return f"the run ended: {event.status.value}" + (f", {event.error}" if event.error else "")
        case _:
            return _deed(event)


def _deed(event: Event) -> str:
    """Describe what a person was asked or did; "" for anything else."""
    match event:
        case events.HumanRequested():
            return f"asked: {event.question.text}"
        case events.HumanDecided():
            return f"answer to {event.question_id}{_by(event.by)}: {event.action} {event.feedback}".rstrip()
        case events.TaskSteered():
            return f"told {event.task_id or 'all members'}{_by(event.by)}: {event.directive}"
        case events.BudgetToppedUp():
            return f"budget raised for {event.task_id or 'the run'}{_by(event.by)}"
        case events.TeamResumed():
            return "the run was resumed"
        case _:
            return ""


def _by(name: str) -> str:
    return f" by {name}" if name else ""
