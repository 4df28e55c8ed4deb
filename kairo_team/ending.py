"""The end of a run: what happened, the status that follows, and the result that always comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from kairo_team import events
from kairo_team.board import Entry
from kairo_team.errors import HaltError, PlanRefused, innermost
from kairo_team.results import Artifact, TaskOutcome, TeamStatus
from kairo_team.states import COMPLETED, TaskState
from kairo_team.status import RunFacts, decide_status
from kairo_team.task_record import TaskRecord
from kairo_team.tasks import TaskStatus
from kairo_team.verdicts import VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.budget import HaltReason
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import TeamConfig

_logger = logging.getLogger("kairo_team")


LAST_EVENT: Final[Mapping[TeamStatus, type[events.TeamEnded]]] = {
    TeamStatus.COMPLETED: events.TeamCompleted,
    TeamStatus.DEGRADED: events.TeamCompleted,
    TeamStatus.FAILED: events.TeamFailed,
    TeamStatus.TIMEOUT: events.TeamTimedOut,
    TeamStatus.CANCELLED: events.TeamCancelled,
}
"""The last event of a run, by its status."""


@dataclass(slots=True)
class Ending:
    """What brought a run to its end."""

    tolerate_failures: bool
    caller_cancelled: bool = False
    error: Exception | None = None
    """What planning, binding or the coordinator itself raised."""
    reason: str | None = None
    """Why it was killed."""
    warnings: list[str] = field(default_factory=list[str])
    makeshift: bool = False
    """The run goes on with less than was asked for, such as a plan that stands in for one that could not be made."""

    @contextmanager
    def watching(self) -> Generator[None]:
        """Keep what the block raises; only the caller's cancellation, and signals, go on."""
        try:
            yield
        except Exception as error:
            self.error = innermost(error)
            _logger.debug("a run ended early", exc_info=True)
        except BaseException as error:
            self.caller_cancelled = True
            if isinstance(error, BaseExceptionGroup):  # the caller gets its cancellation, not what failed beside it
                rest = cast("BaseExceptionGroup[BaseException]", error).split(Exception)[1]
                raise rest or error from None
            raise

    @property
    def refused(self) -> bool:
        """Nothing was started."""
        return isinstance(self.error, PlanRefused)

    def end_of_cut_short(self) -> TaskState:
        """How a task in flight ends when the run is cut short."""
        if self.caller_cancelled or self.error is None or isinstance(self.error, HaltError):
            return TaskState.CANCELLED
        return TaskState.FAILED

    def cut_short_by(self, halt: HaltReason | None) -> str | None:
        """Say in a sentence what ended the run before its time."""
        if self.caller_cancelled:
            return "the caller was cancelled"
        if self.reason is not None:
            return self.reason
        if self.error is not None:
            return str(self.error) or type(self.error).__name__
        return f"the team was halted: {halt.value}" if halt is not None else None

    def explain(self, halt: HaltReason | None, outcomes: Sequence[TaskOutcome]) -> str:
        """Say in a sentence why the run did not complete."""
        failed = [outcome for outcome in outcomes if outcome.status is TaskStatus.FAILED]
        if failed and self.cut_short_by(None) is None:
            more = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
            return f"task {failed[0].task_id!r} failed: {failed[0].error}{more}"
        skipped = [f"task {o.task_id!r} {o.status.value}: {o.error}" for o in outcomes if o.error is not None]
        return self.cut_short_by(halt) or next(iter(skipped), "nothing was planned")

    def all_warnings(
        self, error: str | None, stubborn: Sequence[str], outcomes: Sequence[TaskOutcome]
    ) -> tuple[str, ...]:
        """Return each warning once: the error first, then what was warned of, then what was lost."""
        closed = [f"{name!r} did not end when it was cancelled and was closed" for name in stubborn]
        of_tasks = [f"task {o.task_id!r}: {text}" for o in outcomes for text in o.warnings]
        lost = [f"task {o.task_id!r} {o.status.value}: {o.error}" for o in outcomes if o.error is not None]
        return tuple(dict.fromkeys([*([error] if error else []), *self.warnings, *closed, *of_tasks, *lost]))

    def status(self, halt: HaltReason | None, records: Sequence[TaskRecord], config: TeamConfig) -> TeamStatus:
        """Decide the status."""
        accepted = [record for record in records if record.state is COMPLETED]
        missing = [record for record in records if record.state is not COMPLETED]
        suspects = [one for one in accepted if one.verdict is not None or (one.artifact and one.artifact.partial)]
        dispensable = sum(map(_is_dispensable, missing))
        facts = RunFacts(
            halt=halt,
            caller_cancelled=self.caller_cancelled,
            broken=self.error is not None and not (halt is not None and isinstance(self.error, HaltError)),
            ended_for_halt=any(record.for_halt for record in missing),
            accepted=len(accepted),
            lost=len(missing) - dispensable,
            dispensable=dispensable,
            blemished=self.makeshift or any(map(_is_blemished, suspects)),
            risk=config.risk_profile,
            tolerate_failures=self.tolerate_failures,
        )
        return decide_status(facts)


def _is_dispensable(record: TaskRecord) -> bool:
    """Say whether it has dependents, and all of them met their needs without it."""
    dependents = record.entry.dependents
    return bool(dependents) and all(dependent.accepted_needs >= dependent.needed for dependent in dependents)


def _is_blemished(record: TaskRecord) -> bool:
    passed = record.verdict is not None and record.verdict.outcome is VerdictOutcome.PASS
    partial = record.artifact is not None and record.artifact.partial
    return not passed and (record.verdict is not None or partial)


def join_output(records: Sequence[TaskRecord]) -> Artifact | None:
    """Return the accepted tasks without an accepted dependent, in plan order, each under its id if several."""
    ends = [
        record
        for record in records
        if record.entry.accepted and not any(dependent.accepted for dependent in record.entry.dependents)
    ]
    artifacts = [(record.task.id, record.artifact) for record in ends if record.artifact is not None]
    if len(artifacts) <= 1:
        return artifacts[0][1] if artifacts else None
    text = "\n\n".join(f"{task_id}:\n{artifact.text}" for task_id, artifact in artifacts)
    return Artifact(text, partial=any(artifact.partial for _, artifact in artifacts))


def skip_unbound(graph: TaskGraph | None, emit: Callable[..., None]) -> list[TaskRecord]:
    """Skip every task of a plan, if there is one, that was never bound."""
    records = [TaskRecord(Entry(task, index, ())) for index, task in enumerate(graph.tasks if graph else ())]
    for record in records:
        record.move(TaskState.SKIPPED)
        record.error = "the run ended before it started"
        emit(events.TaskSkipped, record.task.id, None, 0, record.error)
    return records
