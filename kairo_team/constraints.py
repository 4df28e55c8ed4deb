"""What constraints receive and return: values only. `governance.constraint_chain` has the chain that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import EMPTY, check_kind, freeze_json
from kairo_team.budget import Usage, check_count, check_seconds

if TYPE_CHECKING:
    from kairo_team.messages import Message


class ResourceAction(StrEnum):
    """The action that a violation leads to; actions compare by `severity`."""

    ALLOW = "allow"
    """The violation is emitted as an event, and nothing else happens."""
    WARN_CONTINUE = "warn_continue"
    """A warning on the task's outcome; the work continues."""
    GRACEFUL_EXIT = "graceful_exit"
    """The turn is finished, no further model call is started, and the work kept so far is returned."""
    EMERGENCY_STOP = "emergency_stop"
    """All work in flight is interrupted: of the run for a team's constraint, of the attempt for a member's."""

    @property
    def severity(self) -> int:
        """How much the action interferes, from 0."""
        return _SEVERITY[self]

    def __lt__(self, other: str) -> bool:  # `str` would compare the words
        return self.severity < other.severity if isinstance(other, ResourceAction) else NotImplemented

    def __le__(self, other: str) -> bool:
        return self.severity <= other.severity if isinstance(other, ResourceAction) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return self.severity > other.severity if isinstance(other, ResourceAction) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return self.severity >= other.severity if isinstance(other, ResourceAction) else NotImplemented


_SEVERITY: Final[Mapping[ResourceAction, int]] = {
    ResourceAction.ALLOW: 0,
    ResourceAction.WARN_CONTINUE: 1,
    ResourceAction.GRACEFUL_EXIT: 2,
    ResourceAction.EMERGENCY_STOP: 3,
}


@dataclass(frozen=True, slots=True)
class AgentState:
    """The progress of an attempt, as its governed models saw it."""

    messages: Sequence[Message] = ()
    """The messages of the next request, or of the last answered one."""
    turns_completed: int = 0
    """Model calls that were answered."""
    tool_calls_executed: int = 0
    last_text: str = ""
    """The text of the last reply."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))
        check_count("AgentState.turns_completed", self.turns_completed)
        check_count("AgentState.tool_calls_executed", self.tool_calls_executed)


@dataclass(frozen=True, slots=True)
class ResourceContext:
    """What a constraint checks: one attempt, now."""

    iteration: int = 0
    """The turn that is about to begin or was just answered, from 0."""
    tokens_used: int = 0
    """Tokens used by all the task's attempts so far."""
    elapsed: float = 0.0
    """Seconds since the attempt began, by the run's clock."""
    agent_state: AgentState = AgentState()
    member: str | None = None
    """The member's name."""
    usage: Usage = Usage()
    """All that the task has spent so far."""

    def __post_init__(self) -> None:
        check_count("ResourceContext.iteration", self.iteration)
        check_count("ResourceContext.tokens_used", self.tokens_used)
        check_seconds("ResourceContext.elapsed", self.elapsed)


@dataclass(frozen=True, slots=True)
class ResourceValidation:
    """The finding of a constraint."""

    violated: bool
    reason: str = ""
    """Why; never blank when violated."""
    metrics: Mapping[str, Any] = EMPTY
    """The measured JSON values by name, copied read-only."""

    def __post_init__(self) -> None:
        check_kind("ResourceValidation.violated", self.violated, bool)
        if not isinstance(self.reason, str) or (self.violated and not self.reason.strip()):
            raise ValueError(f"a violation needs a reason in words, not {self.reason!r}")
        if not isinstance(self.metrics, Mapping):
            raise ValueError(f"ResourceValidation.metrics must be a mapping of JSON values, not {self.metrics!r}")
        object.__setattr__(self, "metrics", freeze_json(self.metrics))


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated constraint, and the action it requests."""

    constraint: str
    """The constraint's name."""
    position: int
    """The constraint's place in the chain, from 0."""
    action: ResourceAction
    validation: ResourceValidation

    @property
    def reason(self) -> str:
        """Why the constraint is violated."""
        return self.validation.reason

    def __str__(self) -> str:
        return f"the constraint {self.constraint!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ConstraintReport:
    """The findings of a chain."""

    action: ResourceAction
    """The most severe requested action."""
    validations: tuple[ResourceValidation, ...] = ()
    """Every validation made, in the chain's order, up to the first emergency stop."""
    decided_by: str | None = None
    """Name of the first constraint that requested `action`; None if nothing was violated."""
    violations: tuple[Violation, ...] = ()
    """Every violation, in the chain's order."""
