"""What a worker tells of itself to whoever measures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from kairo_team.cluster.units import Kind

Outcome = Literal["finished", "refused", "fenced", "given_back", "failed"]
"""What came of a delivery: its unit was done; it did not count, or its run was refused; it counted no more before its
end; the worker ended first, or failed over it, and others go on with it."""

AskOutcome = Literal["granted", "refused", "cancelled"]


class UnitBegun(NamedTuple):
    """The work on a unit begins."""

    kind: Kind
    waited: float
    """Seconds since it was sent, by the clock of the database."""


class UnitEnded(NamedTuple):
    """The work on a unit has ended here."""

    kind: Kind
    outcome: Outcome


class DeliveryRefused(NamedTuple):
    """A delivery came that does not count: another process has its unit, or this one works on it already."""


class BudgetAsked(NamedTuple):
    """An attempt that needed more than its slice has its answer, or was cancelled before."""

    seconds: float
    outcome: AskOutcome


class UnitReaped(NamedTuple):
    """This process has taken a unit from a dead one."""

    kind: Kind


class WorkerRestarted(NamedTuple):
    """The worker was taken for dead, or could not reach the database: it begins anew."""


Fact = UnitBegun | UnitEnded | DeliveryRefused | BudgetAsked | UnitReaped | WorkerRestarted
Tell = Callable[[Fact], object]
"""Takes a fact, in any thread, at once."""


@runtime_checkable
class Measuring(Protocol):
    """What a subscriber may also be: something that measures a worker."""

    def measure_worker(self, team: str, silence: Callable[[], float | None]) -> Tell:
        """Return what takes the facts of a worker of the team `team`, as long as its process lives.

        `silence`, called from any thread, returns the seconds since it reached the database; None while it has none.
        """
        ...


def unheard(_fact: Fact) -> None:
    """Take a fact that nobody measures."""
