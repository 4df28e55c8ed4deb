"""What a journal returns of a run it has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.budget import NO_USAGE, Usage

if TYPE_CHECKING:
    from kairo_team.contracts import RunJournal
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.team import TeamExecutionRequest


ENDED: Final = ("completed", "degraded", "failed", "timeout", "cancelled")
"""States of a run that cannot be resumed."""
GIVEN_UP: Final = "given_up"
"""State of a submitted run that ended one worker after another: no worker takes it until a person resumes it."""
STATES: Final = ("queued", "running", "suspended", "interrupted", GIVEN_UP, *ENDED)
"""All states that a recorded run can have."""


class RecordedRun(NamedTuple):
    """A run as its journal shows it."""

    run_id: str
    team: str
    goal: str
    state: str
    """`queued` (no worker has begun it), `running`, `suspended`, `interrupted` (its process is gone), `given_up`
    (it ended one worker after another), or how the run ended: `completed`, `degraded`, ..."""
    parent: str | None
    """Id of the run that contains this one; None without one."""
    source: Mapping[str, str]
    """How the run was started, in the words of the program that did: `SqliteJournal(source=)`."""
    usage: Usage
    """Usage so far, including calls with an unknown end in full; amounts that are only `held` are not included."""
    seconds: float
    """Seconds that the run has worked."""
    started_at: float
    """Seconds since 1970."""
    updated_at: float
    forked_from: str | None = None
    """Id of the run from an earlier point of which this one was forked."""
    held: Usage = NO_USAGE
    """Held for the run's calls that are under way."""
    problem: str | None = None
    """Why the records cannot be read, so that only the data of the run's row are known; None if they can be."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a run inside another run: in an attempt of it."""

    run_id: str
    """Id of the run that contains the attempt."""
    step: str
    """The key of the attempt."""
    member: str | None
    """The member that makes the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One try of a call of a model or a tool."""

    run_id: str
    what: str
    """`model` or `tool`."""
    name: str
    task_id: str | None
    member: str | None
    state: str
    """`sent`, `answered`, `failed`, `unknown` (charged in full) or `unsent` (it never left)."""
    usage: Usage
    """The amount charged: the usage, or the whole hold if the call's end will never be known."""
    step: str
    """The step that made the call, such as an attempt's key."""
    key: str
    """The call's name in the run, the same for all tries of one call."""
    loops: int
    """The iterations of that step when the call was sent."""
    sent_at: float
    """Seconds since 1970."""
    copied: bool = False
    """True for a call that was made, and paid, in the run that this one was forked from."""
    held: Usage = NO_USAGE
    """Held for the call while it is under way; its usage is not known yet."""


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A deferred question, with the answer that came since."""

    question: HumanRequest
    decision: HumanDecision | None = None
    """The answer; None: the question is still open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredRun:
    """All that is recorded of a run, and the journal of the session that resumes it."""

    request: TeamExecutionRequest
    place: Place | None
    """The run's place in another run; None for a run of its own."""
    seconds: float
    """Seconds that the run has worked."""
    seq: int
    """The number of the last recorded event."""
    steps: Mapping[str, object]
    """The recorded values by key, in the order in which the keys were first recorded."""
    calls: Sequence[RecordedCall]
    """The run's own calls, in the order they were sent, without the calls of runs inside it."""
    questions: Sequence[RecordedQuestion]
    """The deferred questions, in the order they were deferred."""
    journal: RunJournal
    state: str = "running"
    """The recorded state when the run was taken: `running` if its session was cut, `suspended`, `interrupted`,
    `queued`, or how it ended, for a run inside another."""
