"""A run as its events report it: tasks, attempts, calls, questions and costs, with their times.

`RunStory` takes events one by one, so a view can follow a run under way; `tell` folds the events of a whole run.
All times are seconds since the run's first event. This module uses no terminal and imports no optional package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from kairo_team import events
from kairo_team.budget import NO_USAGE, Usage, to_dollars
from kairo_team.events import Event, PlannedTask
from kairo_team.files import File
from kairo_team.tasks import in_plan_order
from kairo_team.views.progress import END_STATES, RowState
from kairo_team.views.run_notes import describe
from kairo_team.views.set_aside import SetAside

if TYPE_CHECKING:
    from datetime import datetime

    from kairo_team.human import HumanRequest
    from kairo_team.verdicts import EvaluationVerdict

_NOTHING: Final = Decimal(0)


@dataclass(slots=True, eq=False)
class CallStory:
    """One try of a call of a model or a tool."""

    what: Literal["model", "tool"]
    name: str
    call_id: str
    number: int
    """The number of the try, from 1."""
    purpose: str
    """"generate", "plan" or "evaluate"; "tool" for a tool."""
    task_id: str | None
    member: str | None
    attempt: int
    start: float
    end: float | None = None
    """None while no end is known."""
    outcome: str = "open"
    """"open", "ok", "error", "unknown" (a model's usage is charged in full) or "refused" (the call did not happen)."""
    held: int = 0
    """Tokens held for the call."""
    held_dollars: Decimal = _NOTHING
    usage: Usage = NO_USAGE
    cached: int = 0
    """Tokens of the prompt that came from a cache."""
    reasoning: int = 0
    """Tokens of the reply that were reasoning."""
    refused_by: str | None = None
    reason: str | None = None

    @property
    def in_doubt(self) -> int:
        """Tokens that may not have been used: charged for an unknown usage, or held for a call without an end."""
        if self.outcome == "unknown":
            return self.usage.tokens
        return self.held if self.outcome == "open" else 0

    @property
    def dollars_in_doubt(self) -> Decimal:
        """The same in US dollars."""
        if self.outcome == "unknown":
            return self.usage.dollars
        return self.held_dollars if self.outcome == "open" else _NOTHING


@dataclass(slots=True, eq=False)
class AttemptStory:
    """One try of a task, and the review of what it made."""

    number: int
    member: str | None
    start: float
    end: float | None = None
    status: str = "open"
    """The status in the attempt's event; "not_accepted" for the last attempt of a task that failed in its reviews."""
    usage: Usage = NO_USAGE
    error: str | None = None
    halt: str | None = None
    """The limit that stopped the attempt, and whose limit it was."""
    review_start: float | None = None
    review_end: float | None = None
    verdict: EvaluationVerdict | None = None
    followed: bool = False
    """Whether another attempt came after it."""
    calls: list[CallStory] = field(default_factory=list[CallStory])
    """Calls of the attempt and of its review, in the order they were sent."""
    artifact: str | None = None
    """The artifact's text, if it is known: events have content only if the runtime's `content` says so."""
    files: Sequence[File] = ()
    """The artifact's files, where its text is known."""


@dataclass(slots=True, eq=False)
class QuestionStory:
    """A question to a person."""

    question: HumanRequest
    start: float
    end: float | None = None
    action: str | None = None
    """The decision; None before the first one."""
    feedback: str = ""

    @property
    def is_open(self) -> bool:
        """Whether an answer is still awaited."""
        return self.action in (None, "defer")


_NOTED = (
    events.BudgetWarned,
    events.BudgetToppedUp,
    events.ConstraintViolated,
    events.TaskSteered,
    events.CallsDiverged,
)
"""Events that become notes of the run as a whole."""
WaitReason = Literal["dependency", "slot", "member", "budget", "person", "rate", "retry"]
"""Why a task waited. "slot": `max_parallel_tasks`; in files of older versions a member or budget too. "rate": a
model's limit. "retry": the next attempt, or, with `what`, the next try of a call."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which a task waited."""

    why: WaitReason
    what: str
    """The dependency, the member or the model; for a person, the question; for budget, for whom it was set aside when
    the wait began; else empty."""
    start: float
    end: float
    error: str | None = None
    """Why the previous try failed, as in the event `model.waiting`."""


@dataclass(slots=True, eq=False)
class TaskStory:
    """One task."""

    id: str
    planned: PlannedTask
    planned_at: float
    state: RowState = RowState.PENDING
    member: str | None = None
    assigned: list[float] = field(default_factory=list[float])
    """Times at which the task got a member, a slot and budget: one in each session that works on it."""
    attempts: list[AttemptStory] = field(default_factory=list[AttemptStory])
    questions: list[QuestionStory] = field(default_factory=list[QuestionStory])
    end: float | None = None
    reason: str | None = None
    tokens_given: int | None = None
    """Tokens carved for the task, top-ups included; None if no tokens were."""
    dollars_given: Decimal | None = None
    told_waits: list[Wait] = field(default_factory=list["Wait"])
    """Waits that events report; `run_waits.waits` adds the waits that follow from other events."""
    open_waits: dict[str, Wait] = field(default_factory=dict[str, "Wait"])
    """Waits that have not ended, by the id of the call that waits; "" for the task as a whole."""
    top_ups: list[float] = field(default_factory=list[float])
    """Times at which the task got more budget."""
    returned: Usage | None = None
    """Usage of the task when its budget went back; None before that."""

    @property
    def usage(self) -> Usage:
        """Usage of the task's attempts; reviews are paid separately."""
        if self.returned is not None:
            return self.returned
        ended = sum((one.usage for one in self.attempts), NO_USAGE)
        return sum((call.usage for call in self._open_calls()), ended)

    @property
    def review_usage(self) -> Usage:
        """Usage of the reviews of the task's artifacts."""
        calls = (call for attempt in self.attempts for call in attempt.calls if call.purpose == "evaluate")
        return sum((call.usage for call in calls), NO_USAGE)

    @property
    def in_doubt(self) -> int:
        """Tokens of the task's calls that may not have been used."""
        return sum(call.in_doubt for attempt in self.attempts for call in attempt.calls)

    @property
    def verdict(self) -> EvaluationVerdict | None:
        """The verdict of the last review."""
        return next((one.verdict for one in reversed(self.attempts) if one.verdict is not None), None)

    def _open_calls(self) -> Iterator[CallStory]:
        for attempt in self.attempts:
            if attempt.end is None:
                yield from (call for call in attempt.calls if call.purpose == "generate")


@dataclass(slots=True, eq=False)
class MemberStory:
    """The budget carved for a member."""

    id: str
    tokens_given: int | None = None
    dollars_given: Decimal | None = None


class RunStory:
    """Sums up the events of one run, in order."""

    def __init__(self) -> None:
        self.run_id = ""
        self.team = ""
        self.goal = ""
        self.tokens_given: int | None = None
        """The run's limit, top-ups included; None if the run has no limit, or an unknown one."""
        self.dollars_given: Decimal | None = None
        self.within: tuple[str, str] | None = None
        """Run id of the run around this one, and the task of that run; None for a run on its own."""
        self.members: dict[str, MemberStory] = {}
        self.tasks: dict[str, TaskStory] = {}
        """Tasks by id, in plan order; tasks of earlier plans stay."""
        self.calls: list[CallStory] = []
        """All calls, in the order they were sent."""
        self.texts: dict[str, dict[str, object]] = {}
        """Texts of calls, if events contain them: by call id, the bodies of the `content` events by `of`."""
        self.withholds = False
        """Whether only the journal has the texts."""
        self.questions: list[QuestionStory] = []
        self.notes: list[tuple[float, str]] = []
        """Times and descriptions of events of the run as a whole: warnings of limits, directives, resumptions."""
        self.started_at: datetime | None = None
        self.last = 0.0
        """The time of the latest event."""
        self.ended: events.TeamEnded | None = None
        """The end of the last session; None while it is under way, or if its process has died."""
        self.set_aside = SetAside()
        """The amounts that are set aside and not spent."""
        self._open_calls: dict[tuple[str, int], CallStory] = {}

    @property
    def usage(self) -> Usage:
        """Usage of the run: the sum in its last event, else the sum of its calls."""
        if self.ended is not None:
            return self.ended.usage
        return sum((call.usage for call in self.calls), NO_USAGE)

    def take(self, event: Event) -> None:
        """Take in the next event."""
        if self.started_at is None:
            self.started_at, self.run_id = event.at, event.run_id
        # `max`, because the clocks of two processes of one run may differ.
        self.last = at = max((event.at - self.started_at).total_seconds(), self.last)
        self.set_aside.take(event)
        match event:  # the most frequent ones first
            case events.ModelStarted() | events.ToolStarted() | events.ModelCalled() | events.ToolCalled():
                self._take_call(event, at)
            case events.Content():
                self._take_content(event)
            case events.WorkEvent(task_id=str(task_id)):
                self._take_task(task_id, event, at)
            case events.WorkEvent():
                self._take_run(event, at)
            case events.TeamStarted() | events.TeamResumed():
                self._begin(event, at)
            case events.TeamEnded():
                self.ended = event
            case events.PlanReady():
                planned = event.graph or tuple(map(PlannedTask, event.tasks))
                self._take_planned(planned, at)
            case events.PlanGrew():
                self._take_planned(event.added, at)
            case _:
                self.notes += [(at, describe(event))] if isinstance(event, events.TeamGivenUp) else []

    # ---------------------------------------------------------------- the run

    def _begin(self, event: events.TeamStarted | events.TeamResumed, at: float) -> None:
        self.team, self.goal, self.ended = event.team, event.goal, None
        self.tokens_given, self.dollars_given = event.tokens, _dollars(event.picodollars)
        if event.within is not None and event.within_task is not None:
            self.within = (event.within, event.within_task)
        for member in event.members:
            self.members.setdefault(member, MemberStory(member))
        if isinstance(event, events.TeamResumed):
            self.notes.append((at, describe(event)))

    def _take_planned(self, tasks: Sequence[PlannedTask], at: float) -> None:
        for one in tasks:
            self.task(one.id, at).planned = one
        if any(one.part_of is not None for one in tasks):
            self.tasks = {
                one.id: self.tasks[one.id] for one in in_plan_order([one.planned for one in self.tasks.values()])
            }

    def task(self, task_id: str, at: float = 0.0) -> TaskStory:
        """Return a task; add an unknown task as planned at this time."""
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = TaskStory(task_id, PlannedTask(task_id), at)
        return task

    def _take_run(self, event: events.WorkEvent, at: float) -> None:
        match event:
            case events.BudgetCarved(member=str(member)):
                carved = self.members.setdefault(member, MemberStory(member))
                carved.tokens_given, carved.dollars_given = event.tokens, _dollars(event.picodollars)
            case events.HumanRequested():
                self.questions.append(QuestionStory(event.question, at))
            case events.HumanDecided():
                self._decide(event, at)
            case _:
                if isinstance(event, events.BudgetToppedUp):
                    self._raise_limits(event)
                if isinstance(event, _NOTED):
                    self.notes.append((at, describe(event)))

    def _raise_limits(self, event: events.BudgetToppedUp) -> None:
        if self.tokens_given is not None:
            self.tokens_given += event.tokens or 0
        if self.dollars_given is not None:
            self.dollars_given += to_dollars(event.picodollars or 0)

    def _decide(self, event: events.HumanDecided, at: float) -> None:
        for one in reversed(self.questions):
            if one.question.id == event.question_id:
                one.end, one.action, one.feedback = at, event.action, event.feedback
                return

    # ---------------------------------------------------------------- tasks

    def _take_task(self, task_id: str, event: events.WorkEvent, at: float) -> None:
        task = self.task(task_id, at)
        task.member = event.member or task.member
        match event:
            case events.TaskAssigned():
                task.assigned.append(at)
                _end_wait(task, "", at)
                task.state, task.end = RowState.RUNNING, None
            case events.AttemptStarted():
                if task.attempts:
                    task.attempts[-1].followed = True
                task.attempts.append(AttemptStory(event.attempt, event.member, at))
                task.state = RowState.RUNNING
            case events.TaskEnded():
                task.state, task.end, task.reason = END_STATES[type(event)], at, event.reason
                if task.state is RowState.FAILED and task.attempts and task.attempts[-1].status == "completed":
                    task.attempts[-1].status = "not_accepted"
            case events.HumanRequested() | events.HumanDecided() | events.TaskWaiting() | events.ModelWaiting():
                self._take_wait(task, event, at)
            case events.TaskSteered():
                self.notes.append((at, describe(event)))
            case _:
                _take_budget(task, event, at)
                if task.attempts:
                    _take_attempt(task, task.attempts[-1], event, at)

    def _take_wait(
        self,
        task: TaskStory,
        event: events.HumanRequested | events.HumanDecided | events.TaskWaiting | events.ModelWaiting,
        at: float,
    ) -> None:
        match event:
            case events.HumanRequested():
                asked = QuestionStory(event.question, at)
                self.questions.append(asked)
                task.questions.append(asked)
            case events.HumanDecided():
                self._decide(event, at)
            case events.TaskWaiting():
                _end_wait(task, "", at)
                if event.waits_for is not None:
                    task.open_waits[""] = Wait(event.waits_for, self._payer_of_wait(event, ""), at, at)
            case events.ModelWaiting():
                _end_wait(task, event.call_id, at)
                what = self._payer_of_wait(event, event.model)
                task.open_waits[event.call_id] = Wait(event.waits_for, what, at, at, event.error)

    def _payer_of_wait(self, event: events.TaskWaiting | events.ModelWaiting, what: str) -> str:
        """Return for whom the budget is set aside that a task waits for; of any other wait, `what`."""
        return self.set_aside.describe(event.task_id or "") if event.waits_for == "budget" else what

    def _take_content(self, event: events.Content) -> None:
        match event:
            case events.Content(of="piece"):
                pass  # the whole reply follows
            case events.Content(body=None):
                self.withholds = True
            case events.Content(of="artifact", task_id=str(task_id), body=Mapping()):
                attempts = self.task(task_id).attempts
                if attempts:
                    body = cast("Mapping[str, Any]", event.body)
                    attempts[-1].artifact = str(body.get("text", ""))
                    found = map(File.of_shown, body.get("files") or ())
                    attempts[-1].files = [file for file in found if file is not None]
            case _:
                self.texts.setdefault(event.call_id, {})[event.of] = event.body

    # ---------------------------------------------------------------- calls

    def _take_call(
        self, event: events.ModelStarted | events.ToolStarted | events.ModelCalled | events.ToolCalled, at: float
    ) -> None:
        what: Literal["model", "tool"]
        if isinstance(event, events.ModelStarted | events.ModelCalled):
            what, name, purpose, number = "model", event.model, event.purpose, event.number
        else:
            what, name, purpose, number = "tool", event.tool, "tool", 1
        call = self._open_calls.pop((event.call_id, number), None) if event.call_id else None
        if call is None:  # a start, a refusal, or an end in a file that has no starts
            start = at if isinstance(event, events.ModelStarted | events.ToolStarted) else at - event.duration
            call = CallStory(
                what, name, event.call_id, number, purpose, event.task_id, event.member, event.attempt, start
            )
            self._keep(call, at)
        if isinstance(event, events.ModelStarted | events.ToolStarted):
            self._open_calls[event.call_id, number] = call
            if isinstance(event, events.ModelStarted):
                call.held, call.held_dollars = event.held, to_dollars(event.held_picodollars)
            if event.task_id is not None:
                _end_wait(self.task(event.task_id, at), event.call_id, at)
            return
        call.end, call.outcome = at, event.outcome
        if isinstance(event, events.ModelCalled):
            call.held, call.usage = event.held, event.usage
            call.cached, call.reasoning = event.cached_tokens, event.reasoning_tokens
        else:
            call.refused_by, call.reason = event.refused_by, event.reason

    def _keep(self, call: CallStory, at: float) -> None:
        self.calls.append(call)
        if call.task_id is None:
            return
        attempts = self.task(call.task_id, at).attempts
        for attempt in reversed(attempts):
            if call.attempt in (0, attempt.number):  # 0: a file of an older version
                attempt.calls.append(call)
                return


def tell(told: Iterable[Event]) -> RunStory:
    """Fold the events of one run, in order."""
    story = RunStory()
    for event in told:
        story.take(event)
    return story


def _dollars(picodollars: int | None) -> Decimal | None:
    return None if picodollars is None else to_dollars(picodollars)


def _end_wait(task: TaskStory, call_id: str, at: float) -> None:
    """End the wait of a call of a task, or, with "", of the task as a whole."""
    waited = task.open_waits.pop(call_id, None)
    if waited is not None:
        task.told_waits.append(replace(waited, end=at))


def _take_budget(task: TaskStory, event: events.WorkEvent, at: float) -> None:
    match event:
        case events.BudgetCarved():
            task.tokens_given, task.dollars_given = event.tokens, _dollars(event.picodollars)
        case events.BudgetToppedUp():
            task.top_ups.append(at)
            if event.tokens is not None:
                task.tokens_given = (task.tokens_given or 0) + event.tokens
            if event.picodollars is not None:
                task.dollars_given = (task.dollars_given or Decimal(0)) + to_dollars(event.picodollars)
        case events.BudgetReturned():
            task.returned = event.usage
        case _:
            pass


def _take_attempt(task: TaskStory, attempt: AttemptStory, event: events.WorkEvent, at: float) -> None:
    match event:
        case events.AttemptFinished():
            attempt.end, attempt.status, attempt.usage, attempt.error = at, event.status, event.usage, event.error
            for call_id in list(task.open_waits):
                _end_wait(task, call_id, at)
        case events.BudgetHalted():
            attempt.halt = f"{event.reason.replace('_', ' ')} of {event.origin!r}"
        case events.EvaluationStarted():
            attempt.review_start, task.state = at, RowState.REVIEWING
        case events.EvaluationResult():
            attempt.review_end, attempt.verdict = at, event.verdict
            if attempt.review_start is None:
                attempt.review_start = at - event.duration
        case _:
            pass
