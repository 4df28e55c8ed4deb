"""`RunScope`: what every part of a run is given instead of the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kairo_team.contracts import Records, RunJournal
    from kairo_team.engine.live.event_bus import Around
    from kairo_team.engine.records.replay import EarlyEnd
    from kairo_team.governance.governor import Governor
    from kairo_team.team import Team, TeamConfig, TeamExecutionRequest


@dataclass(frozen=True, slots=True)
class RunScope:
    """One run: what it executes, what it spends, where its steps are recorded and its events go."""

    request: TeamExecutionRequest
    team: Team
    config: TeamConfig
    governor: Governor
    journal: Records
    kept: RunJournal | None
    """The journal, where it outlives the process."""
    clock: Callable[[], float]
    started: float
    """When the run began, by its clock."""
    early_end: EarlyEnd | None
    """What ended the recorded run before all its tasks had ended."""
    emit: Callable[..., object]
    """Emits an event: its class and its own fields in order; run id, number and time are filled in."""
    begin: Callable[..., Around]
    """Emits the event that some work begins with; returns what the subscribers put around that work."""
