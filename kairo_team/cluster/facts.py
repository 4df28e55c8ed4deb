"""Facts that a worker reports to the subscribers that measure it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from kairo_team.cluster.units import Kind

Outcome = Literal["finished", "refused", "fenced", "given_back", "failed"]
"""The outcome of a delivery.

`finished`: the unit is done. `refused`: the delivery was not valid, or its run was refused. `fenced`: the delivery was
fenced off before its end. `given_back`: the worker ended first. `failed`: the worker failed. After the last two,
another worker does the unit."""

AskOutcome = Literal["granted", "refused", "cancelled"]


class UnitBegun(NamedTuple):
    """The work on a unit begins."""

    kind: Kind
    waited: float
    """Seconds since the unit was sent, by the clock of the database."""


class UnitEnded(NamedTuple):
    """The work on a unit has ended here."""

    kind: Kind
    outcome: Outcome


class DeliveryRefused(NamedTuple):
    """A delivery was refused, because another process has its unit or this process works on it already."""


class BudgetAsked(NamedTuple):
    """An attempt that asked for more than its slice has its answer, or was cancelled before the answer."""

    seconds: float
    outcome: AskOutcome


class UnitReaped(NamedTuple):
    """This process has taken a unit from a dead one."""

    kind: Kind


class WorkerRestarted(NamedTuple):
    """The worker was declared dead, or could not reach the database; a new worker starts."""


Fact = UnitBegun | UnitEnded | DeliveryRefused | BudgetAsked | UnitReaped | WorkerRestarted
Report = Callable[[Fact], object]
"""Takes a fact, in any thread; must return at once."""


@runtime_checkable
class Measuring(Protocol):
    """A subscriber that also measures workers."""

    def measure_worker(self, team: str, silence: Callable[[], float | None]) -> Report:
        """Return the function that takes the facts of a worker of team `team` while its process lives.

        `silence` may be called from any thread and returns the seconds since the worker reached the database, or None
        before it has connected.
        """
        ...


def ignore_fact(_fact: Fact) -> None:
    """Ignore a fact."""
