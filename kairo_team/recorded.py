"""What a journal gives back of a run it has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.budget import NO_USAGE

if TYPE_CHECKING:
    from kairo_team.budget import Usage
    from kairo_team.contracts import RunJournal
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.team import TeamExecutionRequest


ENDED: Final = ("completed", "degraded", "failed", "timeout", "cancelled")
"""States in which a run cannot go on."""
STATES: Final = ("queued", "running", "suspended", "interrupted", *ENDED)
"""All that a recorded run can be in."""


class RecordedRun(NamedTuple):
    """A run as its journal shows it."""

    run_id: str
    team: str
    goal: str
    state: str
    """`queued` (no worker has begun it), `running`, `suspended`, `interrupted` (its process is gone), or how it ended:
    `completed`, `degraded`, ..."""
    parent: str | None
    """The run it is a part of."""
    source: Mapping[str, str]
    """How it was started, in the words of the program that did: `SqliteJournal(source=)`."""
    usage: Usage
    """What it has spent, calls with an unknown end included in full; not what is only `held`."""
    seconds: float
    """How long it has worked."""
    started_at: float
    """Seconds since 1970."""
    updated_at: float
    forked_from: str | None = None
    """The run that it goes on from an earlier point of."""
    held: Usage = NO_USAGE
    """What is held for its calls that are under way."""
    problem: str | None = None
    """Why its records cannot be read, so that only what stands in its row is known; None where all is well."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in another run a run is made: in an attempt of it."""

    run_id: str
    """The run it is a part of."""
    step: str
    """The key of the attempt."""
    member: str | None
    """Who makes the attempt."""


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
    """What is charged: what it used, or all that was held for it where nobody will see its end."""
    step: str
    """The work it was made in, such as an attempt's key."""
    key: str
    """The call's name in the run: all tries of one call have the same."""
    loops: int
    """The iterations of that work when it was sent."""
    sent_at: float
    """Seconds since 1970."""
    copied: bool = False
    """It was made, and paid, in the run that this one was forked from."""
    held: Usage = NO_USAGE
    """What is held for it while it is under way: it has used nothing yet that is known."""


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A question that was put off, and the answer that came since."""

    question: HumanRequest
    decision: HumanDecision | None = None
    """None: it still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredRun:
    """All that is recorded of a run, and the journal of the session that goes on with it."""

    request: TeamExecutionRequest
    place: Place | None
    """Where it is made, in another run; None for one of its own."""
    seconds: float
    """How long it has worked."""
    seq: int
    """The number of its last event that is recorded."""
    steps: Mapping[str, object]
    """The recorded values by key, in the order in which the keys were first recorded."""
    calls: Sequence[RecordedCall]
    """In the order they were sent, without those of runs inside it."""
    questions: Sequence[RecordedQuestion]
    """In the order they were put off."""
    journal: RunJournal
    state: str = "running"
    """How it was recorded when it was taken: `running` where its session was cut, `suspended`, `interrupted`, `queued`,
    or how it ended, for a run inside another."""
