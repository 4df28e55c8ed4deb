"""`RunScope`: what every part of a run gets instead of the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kairo_team.contracts import Records, RunJournal
    from kairo_team.engine.live.enforced_end import CallSupervisor
    from kairo_team.engine.live.event_bus import Around, ModelTally
    from kairo_team.engine.records.plan_records import EarlyEnd
    from kairo_team.governance.governor import Governor
    from kairo_team.team import Team, TeamConfig, TeamExecutionRequest


@dataclass(frozen=True, slots=True)
class RunScope:
    """One run: what it executes, what it spends, and where its steps and events go."""

    request: TeamExecutionRequest
    team: Team
    config: TeamConfig
    governor: Governor
    journal: Records
    kept: RunJournal | None
    """The journal, if it outlives the process."""
    clock: Callable[[], float]
    started: float
    """When the run began, by `clock`."""
    early_end: EarlyEnd | None
    """The cause of the recorded run's end before all its tasks had ended; None if there was none."""
    emit: Callable[..., object]
    """Emit an event: takes its class and its own fields in order; run id, number and time are filled in."""
    begin: Callable[..., Around]
    """Emit the first event of some work; return what the subscribers put around that work."""
    tally: ModelTally
    supervisor: CallSupervisor
    """Calls the run's plug-ins, and ends calls that ignore their cancellation."""
