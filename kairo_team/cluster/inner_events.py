"""Events of runs inside a worker's attempt: the coordinator's subscribers get them as if in one process."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

import anyio

from kairo_team._util.trace_context import without_span
from kairo_team.engine.live.event_bus import Bus
from kairo_team.events import Event, TeamEnded, event_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from kairo_team.engine.live.task_pool import Watch
    from kairo_team.engine.work.runtime import Runtime

_COMMON: Final = len(fields(Event))


class InnerEvents:
    """Passes the events of each run inside one attempt to the subscribers of the runtime around it."""

    def __init__(self, runtime: Runtime, start_soon: Callable[[Watch], object]) -> None:
        """`start_soon` runs the async subscribers until the attempt ends."""
        self._runtime = runtime
        self._start_soon = start_soon
        self._buses: dict[str, tuple[Bus, anyio.Event]] = {}

    def take(self, written: str) -> None:
        """Emit an event that a worker reported, with the number that it has in its run."""
        event = event_from_json(written)
        bus, ended = self._buses.get(event.run_id) or self._open(event.run_id)
        own = tuple(getattr(event, one.name) for one in fields(event)[_COMMON:])
        bus.seq = event.seq - 1
        with without_span():  # the current span belongs to the attempt, not to this event
            bus.emit(type(event), *own)
        if isinstance(event, TeamEnded):
            del self._buses[event.run_id]
            ended.set()

    def _open(self, run_id: str) -> tuple[Bus, anyio.Event]:
        runtime, ended = self._runtime, anyio.Event()
        bus = Bus(run_id, runtime.subscribers, runtime.masker if runtime.secrets else None)

        async def pump() -> None:
            async with bus.pumping(runtime.grace):
                await ended.wait()

        self._start_soon(pump)
        self._buses[run_id] = (bus, ended)
        return self._buses[run_id]
