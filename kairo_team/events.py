"""The events that a run emits to its subscribers: one frozen class per event, all JSON.

Every event carries `run_id`, `seq` (1, 2, 3 ... without gaps in one run) and `at` (UTC), and where they apply
`task_id` and `member`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, cast

from kairo_team._util.frozen import freeze, known_arguments
from kairo_team._util.late_pydantic import adapter, read, read_json
from kairo_team.budget import Usage
from kairo_team.errors import known
from kairo_team.human import HumanRequest
from kairo_team.results import TeamStatus
from kairo_team.verdicts import Cause, EvaluationVerdict


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    type: ClassVar[str] = ""
    run_id: str
    seq: int
    at: datetime
    """When the event was emitted: UTC, to the millisecond."""

    def to_json(self) -> str:
        """Write the event as one line of JSON, its `type` first."""
        try:
            body = adapter(type(self)).dump_json(self).decode()
        except ValueError:  # half of a surrogate pair, in a text that came from elsewhere
            return json.dumps({"type": self.type, **adapter(type(self)).dump_python(self, mode="json")})
        return f'{{"type":"{self.type}",{body[1:]}'  # every event has fields, so the comma is right


@dataclass(frozen=True, slots=True)
class Lagged(Event):
    """An async subscriber fell behind, and did not get the `missed` events before this one.

    A subscriber that is cut off at the end of a run gets this event instead of the events it missed.
    """

    type: ClassVar[str] = "lagged"
    missed: int


# ---------------------------------------------------------------- the team


@dataclass(frozen=True, slots=True)
class TeamBegun(Event):
    """Base of the first event of a session."""

    team: str
    goal: str
    members: tuple[str, ...]
    tokens: int | None = None
    """The run's limit; None: unlimited."""
    picodollars: int | None = None
    """The run's limit, in millionths of a millionth of a US dollar; None: unlimited."""
    within: str | None = None
    """Id of the run around this one, whose task this team does; None without such a run."""
    within_task: str | None = None
    """Id of the task of the run around this one."""


@dataclass(frozen=True, slots=True)
class TeamStarted(TeamBegun):
    """First event of a run."""

    type: ClassVar[str] = "team.started"


@dataclass(frozen=True, slots=True)
class TeamResumed(TeamBegun):
    """First event of a session that resumes a run, after `team.suspended`, `team.interrupted` or a crash."""

    type: ClassVar[str] = "team.resumed"
    traceparent: str | None = None
    """If a subscriber makes traces: the W3C trace context of the first session it saw, in any process."""
    ended: tuple[tuple[str, str], ...] = ()
    """The tasks that ended in earlier sessions, each with its status: this session does not emit their ends."""


@dataclass(frozen=True, slots=True)
class TeamEnded(Event):
    """Base of the last event of a session; exactly one is emitted."""

    status: TeamStatus
    duration: float
    """Seconds since the run's first event."""
    usage: Usage
    """The usage of the run, earlier sessions included."""
    error: str | None = None
    """Why the run is not COMPLETED."""

    @property
    def state(self) -> str:
        """The run's state afterwards, in a word: its status, except for an interrupted run."""
        return self.status.value


@dataclass(frozen=True, slots=True)
class TeamCompleted(TeamEnded):
    """The run ended COMPLETED or DEGRADED."""

    type: ClassVar[str] = "team.completed"


@dataclass(frozen=True, slots=True)
class TeamRunFailed(TeamEnded):
    """The run ended FAILED."""

    type: ClassVar[str] = "team.failed"


@dataclass(frozen=True, slots=True)
class TeamTimedOut(TeamEnded):
    """The run reached its deadline."""

    type: ClassVar[str] = "team.timed_out"


@dataclass(frozen=True, slots=True)
class TeamCancelled(TeamEnded):
    """The run was killed, or its caller was cancelled."""

    type: ClassVar[str] = "team.cancelled"


@dataclass(frozen=True, slots=True)
class TeamSuspended(TeamEnded):
    """The run waits for a person and can be resumed; `error` is the reason."""

    type: ClassVar[str] = "team.suspended"


@dataclass(frozen=True, slots=True)
class TeamInterrupted(TeamEnded):
    """The session was left, and the run stays in its journal as it is: `resume` continues it.

    Tasks that had not ended have no end in this session. `status` is the status of the session's result.
    """

    type: ClassVar[str] = "team.interrupted"

    @property
    def state(self) -> str:
        """`interrupted`."""
        return "interrupted"


@dataclass(frozen=True, slots=True)
class TeamGivenUp(Event):
    """The workers of a cluster take the run no more, because one after another died while they coordinated it.

    Written to the journal when no session is left: subscribers do not get it. A resumed run begins the next session.
    """

    type: ClassVar[str] = "team.given_up"
    deaths: int
    """How many workers died or failed, with nothing recorded in between."""
    error: str
    """Why it was given up, and what to do."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task of a plan."""

    id: str
    depends_on: tuple[str, ...] = ()
    needs: int = 0
    """How many of the task's dependencies must be accepted."""
    members: tuple[str, ...] = ()
    """The members that can do the task."""
    evaluator: str | None = None
    """Name of its evaluator; None takes the coordinator's, if it has one."""
    weight: float = 1.0
    grows: Literal["map", "loop"] | None = None
    """Expands into tasks; not assigned to a member."""
    part_of: str | None = None
    """The map or loop that the task grew from."""
    when: str | None = None
    """The condition on which the task is taken, in words."""
    description: str = ""
    """What the task asks for: its first 2,000 characters."""
    until: str | None = None
    """The condition that ends a loop, in words."""


@dataclass(frozen=True, slots=True)
class PlanReady(Event):
    """The plan is complete and every task is bound; emitted again, as a whole, when a part of it is replaced."""

    type: ClassVar[str] = "plan.ready"
    tasks: tuple[str, ...]
    """Task ids in plan order."""
    graph: tuple[PlannedTask, ...] = ()
    """The same tasks with their dependencies and members."""


@dataclass(frozen=True, slots=True)
class PlanGrew(Event):
    """Tasks were added to the plan, after those it has. A resumed run emits this event again."""

    type: ClassVar[str] = "plan.grew"
    by: str | None
    """The task in whose body, or by whose end, the plan grew; null without such a task."""
    added: tuple[PlannedTask, ...]
    """The new tasks, in plan order."""


# ---------------------------------------------------------------- tasks and attempts


@dataclass(frozen=True, slots=True)
class WorkEvent(Event):
    """Base of the events of paid work: an attempt at a task, or work without a task or member, such as planning."""

    task_id: str | None
    member: str | None


@dataclass(frozen=True, slots=True)
class TaskEvent(WorkEvent):
    """Base of everything that happens to one task."""

    task_id: str


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskAssigned(TaskEvent):
    """A task got its member, slot and budget."""

    type: ClassVar[str] = "task.assigned"


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskWaiting(TaskEvent):
    """A task has all it depends on, and waits for something else.

    A task that has not started waits until its `task.assigned`; a task in flight until its `task.waiting` with null.
    Waits for people are `human.requested` to `human.decided`, waits for other tasks are in the plan.
    """

    type: ClassVar[str] = "task.waiting"
    waits_for: Literal["slot", "member", "budget", "retry"] | None
    """`max_parallel_tasks`, a free member, budget that others may give back, or the next attempt; null: it continues.
    """
    seconds: float | None = None
    """Seconds until the next attempt; null: until something happens."""


@dataclass(frozen=True, slots=True)
class TaskEscalated(TaskEvent):
    """A review left the decision to a higher authority."""

    type: ClassVar[str] = "task.escalated"
    cause: Cause


@dataclass(frozen=True, slots=True)
class TaskSteered(WorkEvent):
    """A directive was given from outside, to one task or, without `task_id`, to all."""

    type: ClassVar[str] = "task.steered"
    directive: str
    by: str = ""
    """Who gave the directive, if known."""


@dataclass(frozen=True, slots=True)
class TaskEnded(TaskEvent):
    """Base of a task's terminal event."""

    attempts: int = 0
    """How many attempts there were, by all members."""
    reason: str | None = None
    """Why the task is not completed."""


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskCompleted(TaskEnded):
    """The task's artifact was accepted; `verdict` is the verdict of its review (None: not reviewed)."""

    type: ClassVar[str] = "task.completed"
    verdict: str | None = None
    """The outcome of the last review, such as "pass"."""


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskFailed(TaskEnded):
    """The task could not be accepted."""

    type: ClassVar[str] = "task.failed"


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskSkipped(TaskEnded):
    """The task never started."""

    type: ClassVar[str] = "task.skipped"


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskCancelled(TaskEnded):
    """The task was in flight when it, or the run, was cancelled, or when the run reached its deadline."""

    type: ClassVar[str] = "task.cancelled"


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskSuspended(TaskEnded):
    """The task waits for a person, and its run with it; its last event in this session."""

    type: ClassVar[str] = "task.suspended"


@known_arguments
@dataclass(frozen=True, slots=True)
class AttemptStarted(TaskEvent):
    """A member starts on a task; `attempt` counts every try from 1."""

    type: ClassVar[str] = "attempt.started"
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptProgress(WorkEvent):
    """A report by the member itself (`MemberContext.emit`)."""

    type: ClassVar[str] = "attempt.progress"
    text: str
    data: Mapping[str, Any]
    """JSON values by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", freeze(self.data))


@known_arguments
@dataclass(frozen=True, slots=True)
class AttemptFinished(TaskEvent):
    """An attempt ended; `error` is None for a whole artifact, else why the attempt failed or was cut short."""

    type: ClassVar[str] = "attempt.finished"
    attempt: int
    status: str
    """What its agent reported; "failed" without an artifact; "suspended": the attempt waits for a person and is
    repeated."""
    usage: Usage
    """What this attempt spent; the sum of a task's attempts is in `budget.returned` and in its outcome."""
    error: str | None = None


@known_arguments
@dataclass(frozen=True, slots=True)
class EvaluationStarted(TaskEvent):
    """An artifact is being reviewed."""

    type: ClassVar[str] = "evaluation.started"
    attempt: int


@known_arguments
@dataclass(frozen=True, slots=True)
class EvaluationResult(TaskEvent):
    """A review was decided."""

    type: ClassVar[str] = "evaluation.result"
    attempt: int
    verdict: EvaluationVerdict
    duration: float = 0.0
    """Seconds since the review began."""


# ---------------------------------------------------------------- money and models


@known_arguments
@dataclass(frozen=True, slots=True)
class BudgetCarved(WorkEvent):
    """Budget was set aside for a member (no `task_id`) or a task; None: nothing is guaranteed."""

    type: ClassVar[str] = "budget.carved"
    tokens: int | None
    picodollars: int | None
    """Millionths of a millionth of a US dollar."""


@dataclass(frozen=True, slots=True)
class BudgetToppedUp(WorkEvent):
    """A task that ran out, or, without `task_id`, the run, got more budget; None: nothing of that dimension."""

    type: ClassVar[str] = "budget.topped_up"
    tokens: int | None
    picodollars: int | None
    """Millionths of a millionth of a US dollar."""
    by: str = ""
    """Who raised the limit, if known."""


@known_arguments
@dataclass(frozen=True, slots=True)
class BudgetReturned(TaskEvent):
    """A task's governor was closed; what it did not use was returned."""

    type: ClassVar[str] = "budget.returned"
    usage: Usage


@dataclass(frozen=True, slots=True)
class BudgetWarned(WorkEvent):
    """The run has used most of one of its limits; emitted once for each dimension."""

    type: ClassVar[str] = "budget.warned"
    dimension: str
    """Which limit: tokens, dollars, loops or tool_calls."""
    share: float
    """How much of it is spent, from 0 to 1 (above 1: a late booking of actual usage passed it)."""


@dataclass(frozen=True, slots=True)
class BudgetHalted(TaskEvent):
    """A governor stopped an attempt."""

    type: ClassVar[str] = "budget.halted"
    reason: str
    """A `kt.HaltReason`, such as "token_budget_exceeded"."""
    origin: str
    """Name of the governor that reached its limit."""


@dataclass(frozen=True, slots=True)
class ConstraintViolated(WorkEvent):
    """A constraint was violated in an attempt, or, without `task_id`, in the run as a whole."""

    type: ClassVar[str] = "constraint.violated"
    constraint: str
    """The constraint's name."""
    action: Literal["allow", "warn_continue", "graceful_exit", "emergency_stop"]
    """The action that the constraint requested."""
    reason: str
    metrics: Mapping[str, Any]
    """The measured JSON values by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", freeze(self.metrics))


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelWaiting(WorkEvent):
    """A try of a governed model call cannot be sent yet; it waits until the `model.started` of the same try."""

    type: ClassVar[str] = "model.waiting"
    model: str
    call_id: str
    number: int
    """Number of the try of the call, from 1."""
    purpose: str
    """The purpose of the call: "generate" by a member, "plan" or "evaluate"."""
    attempt: int
    """The attempt, or the attempt that is reviewed; 0 without a task."""
    waits_for: Literal["rate", "budget", "retry"]
    """The model's limit (`Runtime(model_limits=...)`), budget that other calls hold, or a pause after a failed try."""
    seconds: float | None = None
    """Seconds to wait after a failed try; null: until something happens."""
    error: str | None = None
    """Why the try before failed: "rate_limited", "overloaded", "timeout" or "connection"."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelStarted(WorkEvent):
    """A try of a governed model call is sent; its end is the `model.called` with the same `call_id` and `number`."""

    type: ClassVar[str] = "model.started"
    model: str
    call_id: str
    """Names the call in its run, as in the run's journal; the same for all tries of the call."""
    number: int
    """Number of the try of the call, from 1."""
    purpose: str
    """The purpose of the call: "generate" by a member, "plan" or "evaluate"."""
    attempt: int
    """The attempt, or the attempt that is reviewed; 0 without a task."""
    held: int
    """Tokens set aside for the try."""
    held_picodollars: int = 0
    """Dollars set aside for the try; 0 if the model's price is unknown."""
    max_tokens: int | None = None
    """The most tokens that the reply may have; null: as many as the model writes."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelCalled(WorkEvent):
    """A try of a governed model call ended; `held` tokens and dollars were set aside for it before it was sent.

    The outcome "unknown" means that its usage is unknown, because it was cut short or the reply has no usage; the held
    amount is charged.
    """

    type: ClassVar[str] = "model.called"
    model: str
    outcome: Literal["ok", "error", "unknown"]
    held: int
    usage: Usage
    """What the try is charged."""
    call_id: str = ""
    """The same as in the `model.started` of the try, and so are `number`, `purpose` and `attempt`."""
    number: int = 1
    purpose: str = "generate"
    attempt: int = 0
    duration: float = 0.0
    """Seconds since the try was sent."""
    held_picodollars: int = 0
    cached_tokens: int = 0
    """Tokens of the prompt that came from the provider's cache; `usage` has them too."""
    reasoning_tokens: int = 0
    """Tokens of the reply that were reasoning; `usage` has them too."""
    finish_reason: str = ""
    """Why the reply ended: "stop", "tool_call", "length" or "content_filter"; empty without a reply."""
    response_model: str = ""
    """The model that answered, in the provider's words; empty if it does not say."""


@dataclass(frozen=True, slots=True)
class CallsDiverged(WorkEvent):
    """Resumed work made other calls than before: these `calls` are charged in addition to as many recorded ones.

    Emitted when the work has ended. The run's result has a warning too.
    """

    type: ClassVar[str] = "calls.diverged"
    calls: int


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelDelta(WorkEvent):
    """A piece of a streamed reply."""

    type: ClassVar[str] = "model.delta"
    model: str
    text: str


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelThinking(WorkEvent):
    """A piece of the reasoning of a streamed reply, where the provider shows it; the reply's text does not contain it.

    After a try that failed, the next one emits its reasoning from the start.
    """

    type: ClassVar[str] = "model.thinking"
    model: str
    text: str


@known_arguments
@dataclass(frozen=True, slots=True)
class ToolStarted(WorkEvent):
    """A tool call is made: all checks before it allowed it. Its end is the `tool.called` with the same `call_id`."""

    type: ClassVar[str] = "tool.started"
    tool: str
    call_id: str
    """Names the call in its run, as in the run's journal."""
    attempt: int
    """The attempt; 0 without a task."""
    side_effect: Literal["read", "write", "system"]
    """What the tool may do."""
    reply_call_id: str = ""
    """The id of the call in the model's reply; empty without a reply."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ToolCalled(WorkEvent):
    """A tool call ended; `refused` calls did not happen, and have no `tool.started`."""

    type: ClassVar[str] = "tool.called"
    tool: str
    outcome: Literal["ok", "error", "refused"]
    refused_by: str | None = None
    """The stage of the pipeline, or the policy, that refused the call."""
    reason: str | None = None
    """Why the call was refused or failed."""
    call_id: str = ""
    """The same as in the `tool.started` of the call."""
    attempt: int = 0
    duration: float = 0.0
    """Seconds since the call was made; 0 for a refused call."""


@known_arguments
@dataclass(frozen=True, slots=True)
class GuardrailDecided(WorkEvent):
    """A guardrail policy made another decision than a plain ALLOW."""

    type: ClassVar[str] = "guardrail.decided"
    policy: str
    phase: Literal["pre_model", "post_model", "pre_tool", "post_tool"]
    action: Literal["allow", "deny", "modify", "warn"]
    reason: str
    target: str
    """Name of the model or tool."""


@dataclass(frozen=True, slots=True)
class Content(WorkEvent):
    """A text of the work, if `Runtime(content=...)` asks for texts; secrets are masked, as in every event."""

    type: ClassVar[str] = "content"
    of: Literal["prompt", "piece", "reply", "arguments", "result", "artifact"]
    """Prompts and replies are as the guardrails passed them, results as the member reads them.

    A piece is what a model has added to the reply that it is writing, at most every half second; a retry starts from
    the beginning. Models that cannot stream have no pieces, and neither has a run whose guardrails inspect replies."""
    call_id: str
    """The call of a model or tool that the text belongs to; empty for an artifact."""
    attempt: int
    """The attempt, or the attempt that is reviewed; 0 without a task."""
    body: Any = None
    """JSON: a request, a reply or an artifact by their fields, arguments by name, the text of a piece or a result.

    None: the text is in the journal alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", freeze(self.body))


# ---------------------------------------------------------------- people


@dataclass(frozen=True, slots=True)
class HumanRequested(WorkEvent):
    """A person is asked to decide."""

    type: ClassVar[str] = "human.requested"
    question: HumanRequest


@dataclass(frozen=True, slots=True)
class HumanDecided(WorkEvent):
    """A person decided; `silent`: no answer came, or the gate failed, which decides nothing.

    `withdrawn`: the answer is no longer needed, because what it was asked for has ended; `feedback` says why.
    """

    type: ClassVar[str] = "human.decided"
    question_id: str
    action: Literal["approve", "revise", "reject", "defer", "silent", "withdrawn"]
    feedback: str
    """The person's words."""
    by: str = ""
    """Who decided, if known."""


EVENT_TYPES: dict[str, type[Event]] = {
    kind.type: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind.type
}
"""Every event class by its `type`."""


_WRITTEN: Final = re.compile(rb'\{"type":"([a-z._]+)",')
"""How `Event.to_json` begins a line."""


def event_from_json(text: str | bytes) -> Event:
    """Read what `Event.to_json` wrote; `ValueError` for an unknown type or a broken body."""
    line = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    written = _WRITTEN.match(line)
    kind = EVENT_TYPES.get(written[1].decode()) if written else None
    if kind is not None:
        try:  # twice as quick as below
            return read_json(kind, line)
        except ValueError:  # half a surrogate pair, which only Python's parser reads, or a broken body
            pass
    body: Any = json.loads(text)
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    kind = EVENT_TYPES.get(str(fields.pop("type", "")))
    if kind is None:
        raise ValueError(f"not an event: {text!r:.200}; the types are {known(EVENT_TYPES)}")
    return read(kind, fields)
