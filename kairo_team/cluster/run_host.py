"""A run that a worker coordinates: a new run, or one taken over from a process that is gone."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kairo_team._util.threads import run_in_thread
from kairo_team.errors import InsufficientBudget, KairoError, Misuse, RunFinished, RunNotFound
from kairo_team.gates import DeferGate
from kairo_team.recorded import ENDED

if TYPE_CHECKING:
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.cluster.units import Unit
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.team import Team

_logger = logging.getLogger("kairo_team")


class RunHost:
    """One run that this process coordinates."""

    def __init__(self, cluster: Cluster, team: Team, base: Runtime, unit: Unit) -> None:
        self._cluster = cluster
        self._team = replace(team, runtime=None)
        self._unit = unit
        runtime = base.on(cluster.journal, cluster, base.subscribers)
        runtime.gate = runtime.gate or DeferGate()  # a question waits for `kairo answer`
        self._runtime = runtime

    def interrupt(self, reason: str) -> None:
        """End the work on the run here, so that another worker resumes it."""
        with suppress(Misuse, KeyError):  # the run has not begun, or has ended
            self._runtime.runs[self._unit.run_id].interrupt(reason)

    async def coordinate(self) -> bool:
        """Coordinate the run until it ends or waits for a person; return False if it is refused."""
        unit, journal = self._unit, self._cluster.journal
        try:
            await self._runtime.resume(unit.run_id, self._team, take_over=True)
        except (RunFinished, RunNotFound) as error:
            _logger.info("run %s: %s", unit.run_id, error)
        except (Misuse, InsufficientBudget) as error:  # another team than at first, or too little budget
            _logger.warning("run %s is refused: %s", unit.run_id, error)
            await run_in_thread(journal.end_unit, unit.id, unit.fence, str(error))
            return False
        else:
            state = (await run_in_thread(journal.show, unit.run_id)).state
            _logger.info("run %s: %s", unit.run_id, state)
            if state not in (*ENDED, "suspended"):
                raise Unrecorded(unit.run_id)
        await run_in_thread(journal.end_unit, unit.id, unit.fence, None)
        return True


class Unrecorded(KairoError):
    """The end of a run could not be recorded; another process resumes the run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the end of run {run_id!r} is not recorded: another worker resumes the run")
