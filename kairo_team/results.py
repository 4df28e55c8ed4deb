"""Results: `Artifact`, `AgentOutput`, `TaskOutcome`, `TeamResult`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, cast, overload

from kairo_team._util.drawn import drawing
from kairo_team._util.frozen import EMPTY, checked, freeze, known_arguments, plain_text, thaw
from kairo_team._util.guesses import answers_guesses
from kairo_team._util.late_pydantic import (
    AfterValidator,
    AsTuple,
    IsInstance,
    Number,
    omit_empty,
)
from kairo_team.artifacts import Artifact, DoneCall, plain_artifact
from kairo_team.budget import BudgetNode, HaltReason, Usage
from kairo_team.errors import BadOutput, NoAnswer, TeamFailed, known
from kairo_team.messages import Message, ToolCall
from kairo_team.plugin_calls import shown
from kairo_team.tasks import T, T_co, Task, TaskGraph, TaskRef, TaskStatus, check_id
from kairo_team.verdicts import EvaluationVerdict

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import DataclassInstance
    from pydantic import BaseModel

    from kairo_team.human import HumanRequest

    Data = BaseModel | DataclassInstance | Mapping[str, Any] | list[Any]
    """Data that an agent may return."""


class AgentStatus(StrEnum):
    """How an agent's run ended."""

    COMPLETED = "completed"
    TURN_LIMIT_REACHED = "turn_limit_reached"
    GRACEFUL_EXIT = "graceful_exit"
    HALTED = "halted"
    BLOCKED = "blocked"


Count = Annotated[int, Number(strict=True, ge=0)]
"""A whole number, not negative."""


_without_type: Final[Any] = omit_empty("halt", always=("output_type",))


@checked
@dataclass(frozen=True, slots=True)
class AgentOutput(Generic[T_co]):
    """What an agent returns."""

    artifact: Artifact
    status: AgentStatus = AgentStatus.COMPLETED
    turns_completed: Count = 1
    """Model calls made."""
    max_turns: Count | None = None
    """Most model calls it was allowed to make; None: unlimited."""
    tool_calls_executed: Count = 0
    usage: Usage = Usage()
    """For information only: the governor does the accounting."""
    transcript: Annotated[Sequence[Message], AsTuple()] = ()
    """The conversation, where the agent keeps one."""
    error: str | None = None
    """Why the agent did not complete, for statuses other than COMPLETED; else why the artifact is partial, if it is."""
    output_type: Any = field(default=None, compare=False, repr=False)
    """The type of `data`, if the agent worked alone and was given one; JSON leaves it out."""
    halt: HaltReason | None = None
    """The budget, the clock or the kill switch that ended the agent, for GRACEFUL_EXIT and HALTED; else None."""

    __get_pydantic_core_schema__ = _without_type

    @property
    def text(self) -> str:
        """The artifact's text."""
        return self.artifact.text

    @property
    def data(self) -> T_co:
        """The answer as the output type that the agent was given; without one, the artifact's data, else its text.

        Raises `NoAnswer` if the agent did not complete.
        """
        if self.status is not AgentStatus.COMPLETED or self.artifact.partial:
            raise NoAnswer("the agent", self.status.value, self.error)
        return cast("T_co", _data_of(self.artifact, self.output_type))


def _data_of(artifact: Artifact, kind: Any) -> Any:
    """Return an artifact's data as a type; without one, or by a name alone, as it is, else the text."""
    if kind is None or isinstance(kind, str | Mapping):
        return artifact.text if artifact.data is None else thaw(artifact.data)
    return artifact.data_as(kind)


class TeamStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"
    """A person has to decide something; the run can be resumed."""


Raised = Annotated[BaseException, IsInstance()] | None
"""An error of this process; None without an error, or when the value was made in another process."""


_without_exception: Final[Any] = omit_empty(always=("exception",))


def _state(self: Any) -> list[Any]:
    """Return the state to pickle: all fields except the exception, which may contain anything."""
    return [None if one.name == "exception" else getattr(self, one.name) for one in fields(self)]


def _copied(self: T) -> T:
    made: T = replace(cast("Any", self))  # the usual copy uses `__getstate__`, and loses the exception
    return made


def _deep_copied(self: T, memo: dict[int, Any]) -> T:
    """Copy all fields except the exception: its copy would have no traceback."""
    names = [one.name for one in fields(cast("Any", self)) if one.name != "exception"]
    made: T = replace(cast("Any", self), **{name: deepcopy(getattr(self, name), memo) for name in names})
    return made


def plain_output(given: AgentOutput[Any], member: str) -> AgentOutput:
    """Return an output after checking the types of its parts; later code relies on them."""
    artifact, status, error = given.artifact, given.status, given.error
    if not isinstance(artifact, Artifact):
        raise BadOutput(
            member, f"returned an AgentOutput whose artifact must be a kt.Artifact, not {shown(artifact, 100)}"
        )
    plain = (type(given), type(artifact), type(status)) == (AgentOutput, Artifact, AgentStatus)
    if plain and (error is None or type(error) is str):  # a subclass is copied: it could change later
        return given
    try:
        status = AgentStatus(status)
        error = None if error is None else plain_text("AgentOutput.error must be a text or None", error)
        halt = None if given.halt is None else HaltReason(given.halt)
    except ValueError as problem:
        raise BadOutput(member, f"returned an invalid AgentOutput: {problem}") from None
    rest = (given.turns_completed, given.max_turns, given.tool_calls_executed, given.usage, given.transcript)
    return AgentOutput(plain_artifact(artifact), status, *rest, error, halt=halt)


RepeatWrites = Literal["ask", "allow"]
"""What happens when a member repeats a tool call of an earlier attempt that may have changed something."""


class Attempt(NamedTuple):
    """The end of one try. It is a recorded step, so it contains everything a coordinator decides from."""

    task_id: str
    number: int
    """Number of the try, from 1; every try counts."""
    member: str
    output: AgentOutput | None
    """What the member made; None if it made nothing."""
    error: str | None = None
    """Why the try failed; None if there is an artifact to review."""
    halt: HaltReason | None = None
    """Set if a budget, the clock or the kill switch ended the try."""
    origin: str | None = None
    """Name of the governor that halted, when `halt` is set."""
    final: bool = False
    """Whether another try with the same member is pointless."""
    usage: Usage = Usage()
    """All the task has spent so far, including this try."""
    warnings: tuple[str, ...] = ()
    """Warnings of constraints."""
    interrupted: str | HumanRequest | None = None
    """Why the try was ended from outside: the reason of the cancellation, or the question that it waits for."""
    kinds: tuple[str, ...] = ()
    """Names of the error's class and base classes (`kairo_team.errors.kinds_of`)."""
    over: bool = False
    """Whether no member may try again: a constraint requested an orderly end, and there is nothing to review."""
    ended_by: ToolCall | None = None
    """The call of the tool that ended the try (`kairo_team.Tool.ends`), with the arguments that the tool got."""
    calls: tuple[DoneCall, ...] = ()
    """What the member did with tools, oldest first."""
    origin_path: str | None = None
    """Path of the governor that halted, in the budget tree: others may have its name."""
    shown: Artifact | None = None
    """The artifact as people may see it, if it has secrets of the runtime: with these masked."""

    @property
    def artifact(self) -> Artifact | None:
        """The artifact, including partial work."""
        return self.output.artifact if self.output else None


@answers_guesses
@checked
@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How one task ended."""

    task_id: Annotated[str, AfterValidator(check_id)]
    status: TaskStatus
    artifact: Artifact | None = None
    """The accepted artifact; for a task that was not accepted, the best or partial one, if any."""
    verdict: EvaluationVerdict | None = None
    """The verdict after all its reviews; None without a review.

    It is the verdict of the last review, with two exceptions. If the review was used up (`rounds_exhausted`,
    `no_progress`, `cycle`), the outcome is REVIEW_EXCEEDED, with the score, findings and criteria of the best attempt.
    If a person approved what only a person could decide, it is a PASS. An acceptance by LOW risk, or by a person while
    something else was open too, does not change it."""
    attempts: Count = 0
    """Number of tries; every try counts. 0: never started."""
    member: str | None = None
    """The last member that worked on the task."""
    usage: Usage = Usage()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    exception: Raised = field(default=None, compare=False, repr=False)
    """The error of its last attempt or review, with the traceback, if that is why the task was not accepted.

    It exists in this process only: comparisons ignore it, and JSON and pickles leave it out."""

    __get_pydantic_core_schema__ = _without_exception
    __getstate__ = _state
    __copy__ = _copied
    __deepcopy__ = _deep_copied


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What the calls of one model have used."""

    calls: int = 0
    """Tries, also those without a reply."""
    usage: Usage = Usage()
    """The sum of their charges."""
    cached_tokens: int = 0
    """Tokens of the prompts that came from the provider's cache, included in `usage`."""
    reasoning_tokens: int = 0
    """Tokens of the replies that were reasoning, included in `usage`."""

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            self.calls + other.calls,
            self.usage + other.usage,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@answers_guesses
@checked
@dataclass(frozen=True, slots=True)
class TeamResult:
    """The result of a run; every run has one."""

    run_id: Annotated[str, AfterValidator(check_id)]
    status: TeamStatus
    outcomes: tuple[TaskOutcome, ...] = ()
    """The outcomes in plan order."""
    artifact: Artifact | None = None
    """The run's output: what its coordinator set, else what the plan's own last tasks made, in plan order, each under
    its id if several. None unless the run ended COMPLETED or DEGRADED, and None if no last task was accepted."""
    plan: TaskGraph | None = None
    usage: Usage = Usage()
    budget: BudgetNode | None = None
    """What every member and task got, used and returned."""
    duration: Annotated[float, Number(ge=0)] = field(default=0.0, compare=False)
    """Seconds from the first event to the end."""
    warnings: tuple[str, ...] = ()
    error: str | None = None
    """Why the run did not complete; also the first warning. None only for a COMPLETED run."""
    halt: HaltReason | None = None
    """Why the team's governor stopped, if it did."""
    refused: bool = False
    """True when the plan, the team or the budget was refused and no member was called."""
    partial_artifact: Artifact | None = None
    """The work of a run without an output: what the coordinator set, else, in plan order, the artifacts of accepted
    tasks without an accepted dependent, and of tasks that were not accepted. Always `partial`. None if there is an
    output, or no work, or the run is COMPLETED."""
    usage_by_model: Annotated[Mapping[str, ModelUsage], AfterValidator(freeze)] = field(
        default=EMPTY, compare=False, hash=False
    )
    """What the calls of each model have used, by its name, with the shares of cache and reasoning. It has the calls of
    this process and its workers: not those before a resumption, and not those inside a nested team."""
    exception: Raised = field(default=None, compare=False, repr=False)
    """The error that kept the run from completing, with its traceback: of the planner or coordinator, else of the work
    on the first task that failed. `check` raises its error from it. Kept like `TaskOutcome.exception`."""

    __get_pydantic_core_schema__ = _without_exception
    __getstate__ = _state
    __copy__ = _copied
    __deepcopy__ = _deep_copied

    @property
    def output(self) -> str | None:
        """The text of the run's output; None if the run has none: see `artifact`, and `partial_output`."""
        return self.artifact.text if self.artifact else None

    @property
    def partial_output(self) -> str | None:
        """The text of the partial work of a run without an output, perhaps unreviewed; else None."""
        return self.partial_artifact.text if self.partial_artifact else None

    def __getitem__(self, task_id: str) -> TaskOutcome:
        """Return the outcome of a task; `KeyError` lists the existing ids.

        A task of a loop's body can be named without its round: `solve.write` returns the outcome in the last round.
        """
        for outcome in self.outcomes:
            if outcome.task_id == task_id:
                return outcome
        for outcome in reversed(self.outcomes):  # the last round first
            if self._without_rounds(outcome.task_id) == task_id:
                return outcome
        raise KeyError(f"no task {task_id!r} in this result; it has {known(o.task_id for o in self.outcomes)}")

    @overload
    def data(self, task: Task[T] | TaskRef[T]) -> T: ...
    @overload
    def data(self, task: str) -> Any: ...
    def data(self, task: Any) -> Any:
        """Return the accepted answer of a task as the task's output type, which type checkers know too.

        Without a type, or by an id alone, it is the artifact's data as JSON values, or the text if it has no data. A
        task of a loop's body gives the answer of the last round. Raises `NoAnswer`, with the task's end, if it was not
        accepted, and `KeyError` for an unknown task.

        >>> report = kt.Task("report", "Report.", output_type=Report)
        >>> result = kt.run_sync(team, "tides", plan=kt.TaskGraph([report]))
        >>> result.data(report).title
        """
        task_id = task if isinstance(task, str) else self._id_in_run(task.id)
        outcome = self[task_id]
        if outcome.status is not TaskStatus.COMPLETED or outcome.artifact is None:
            why = self.error if self.refused else outcome.error
            raise NoAnswer(f"task {task_id!r}", outcome.status.value, why) from outcome.exception
        return _data_of(outcome.artifact, None if isinstance(task, str) else task.output_type)

    def _id_in_run(self, task_id: str) -> str:
        """Return a task's id, of a task of a loop's body the loop's in front, if only one loop has such a task."""
        ids = {outcome.task_id for outcome in self.outcomes}
        if task_id in ids:
            return task_id
        grown = {self._without_rounds(one) for one in ids} - ids
        found = [one for one in grown if one.endswith(f".{task_id}")]
        return found[0] if len(found) == 1 else task_id

    def _without_rounds(self, task_id: str) -> str:
        """Return a task's id without the numbers of the rounds that it is part of."""
        part_of = self.plan[task_id].part_of if self.plan is not None else None
        if self.plan is None or part_of is None:
            return task_id
        of, own = self.plan[part_of], task_id[len(part_of) + 1 :]
        inside = own.partition(".")[2] if of.growth == "loop" else own  # the round's number is in front
        return f"{self._without_rounds(part_of)}.{inside}"

    def __repr__(self) -> str:
        """Return a summary only: event loops show the result of their main task in debug output."""
        accepted = [outcome.status for outcome in self.outcomes].count(TaskStatus.COMPLETED)
        error = f", error={self.error!r}" if self.error else ""
        return (
            f"<TeamResult {self.run_id!r} {self.status.value}: {accepted} of {len(self.outcomes)} tasks accepted, "
            f"{self.usage}{error}>"
        )

    def check(self) -> TeamResult:
        """Return the result itself if the run COMPLETED, else raise `TeamFailed`, which contains it."""
        if self.status is not TeamStatus.COMPLETED:
            raise TeamFailed(self) from self.exception
        return self

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: status, tasks, usage and budget."""
        return drawing("show_result")(self)

    def report(self, path: str | Path) -> None:
        """Write the result as one HTML file that needs no network.

        A result has no times and no calls: `kairo report` writes more, from a journal or a file of events. An existing
        file is replaced; raises `OSError` if the file cannot be written.
        """
        drawing("write_result")(self, path)
