"""The constraints that come with the library, one class each. A limit is reached at `>=`."""

from __future__ import annotations

import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from kairo_team.budget import Money, check_count, to_dollars, to_picodollars
from kairo_team.constraints import ResourceAction, ResourceContext, ResourceValidation
from kairo_team.governance.plug_ins import name_of

if TYPE_CHECKING:
    from kairo_team.contracts import ResourceConstraint


class _Limit(ABC):
    """A limit on something that is used up. Its metrics are `used`, `limit` and `unit`; dollars are strings."""

    __slots__ = ()
    name: ClassVar[str]
    unit: ClassVar[str]
    action: ClassVar[ResourceAction] = ResourceAction.GRACEFUL_EXIT

    @property
    @abstractmethod
    def limit(self) -> int | float | Decimal:
        """All there is."""

    @abstractmethod
    def used(self, context: ResourceContext) -> int | float | Decimal:
        """Return how much of the limit is used."""

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Compare what is used with the limit."""
        return self._validated(self.used(context))

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Return the class's `action`."""
        return self.action

    def share(self, context: ResourceContext) -> float:
        """Return how much of the limit is used; 1.0 is all."""
        return float(self.used(context)) / float(self.limit)

    def _validated(self, used: float | Decimal) -> ResourceValidation:
        violated = used >= self.limit
        reason = f"{_show_amount(used)} of {_show_amount(self.limit)} {self.unit} are used" if violated else ""
        metrics = {"used": _as_json(used), "limit": _as_json(self.limit), "unit": self.unit}
        return ResourceValidation(violated, reason, metrics)


def _show_amount(amount: float | Decimal) -> str:
    return f"{amount:g}" if isinstance(amount, float) else f"{amount}"


def _as_json(amount: float | Decimal) -> int | float | str:
    # A string, because a JSON number would lose digits of money.
    return str(amount) if isinstance(amount, Decimal) else amount


@dataclass(frozen=True, slots=True)
class _Count(_Limit):
    """A limit that is a whole number."""

    n: int

    def __post_init__(self) -> None:
        check_count(f"{type(self).__name__}.n", self.n, 1)

    @property
    def limit(self) -> int:
        """The number itself."""
        return self.n


@dataclass(frozen=True, slots=True)
class MaxIterations(_Count):
    """Allow at most `n` turns in one attempt: turn `n + 1` never begins. GRACEFUL_EXIT."""

    name: ClassVar[str] = "max-iterations"
    unit: ClassVar[str] = "iterations"

    def used(self, context: ResourceContext) -> int:
        """Return how many turns were begun before this one."""
        return context.iteration


@dataclass(frozen=True, slots=True)
class TokenBudget(_Count):
    """Begin no further turn once all attempts of the task together have used `n` tokens. GRACEFUL_EXIT.

    It is checked between calls, so the last call may exceed it. `Budget(tokens=...)` is never exceeded.
    """

    name: ClassVar[str] = "token-budget"
    unit: ClassVar[str] = "tokens"

    def used(self, context: ResourceContext) -> int:
        """Return the tokens used so far."""
        return context.tokens_used


@dataclass(frozen=True, slots=True)
class CostLimit(_Limit):
    """Begin no further turn once all attempts of the task together have spent `dollars` (US). GRACEFUL_EXIT."""

    name: ClassVar[str] = "cost-limit"
    unit: ClassVar[str] = "dollars"
    dollars: Money

    def __post_init__(self) -> None:
        # Rounded down, and so is `limit`: a limit must not become larger than its text says.
        if not to_picodollars(self.dollars, field="CostLimit.dollars", round_up=False):
            raise ValueError(f"CostLimit.dollars must be above 0, not {self.dollars!r}")

    @property
    def limit(self) -> Decimal:
        """US dollars, exact."""
        return to_dollars(to_picodollars(self.dollars, round_up=False))

    def used(self, context: ResourceContext) -> Decimal:
        """Return the dollars spent so far."""
        return context.usage.dollars


@dataclass(frozen=True, slots=True)
class Timeout(_Limit):
    """Interrupt an attempt after `seconds`, also in the middle of a call. EMERGENCY_STOP.

    On a team it also interrupts the whole run that many seconds after its start.
    """

    name: ClassVar[str] = "timeout"
    unit: ClassVar[str] = "seconds"
    action: ClassVar[ResourceAction] = ResourceAction.EMERGENCY_STOP
    seconds: float

    def __post_init__(self) -> None:
        _check_above_zero("Timeout.seconds", self.seconds)

    @property
    def limit(self) -> float:
        """Seconds."""
        return self.seconds

    def used(self, context: ResourceContext) -> float:
        """Return the seconds since the attempt began."""
        return context.elapsed

    async def watch(self) -> ResourceValidation:
        """Wait until the time is up."""
        await anyio.sleep(self.seconds)
        # The limit itself: the clock may say that the timer fired a little early.
        return self._validated(float(self.seconds))


@dataclass(frozen=True, slots=True)
class ExternalSignal:
    """Stop the work at a signal from outside, also in the middle of a call. EMERGENCY_STOP.

    `signal` is the path of a file whose existence is the signal, or a function, sync or async, that returns True.
    The signal is checked before each turn, after each reply, and every `every` seconds. A function must be quick. If
    the check for the file fails, the work stops too.
    """

    name: ClassVar[str] = "external-signal"
    signal: str | os.PathLike[str] | Callable[[], Any]
    every: float = 0.1

    def __post_init__(self) -> None:
        if not callable(self.signal) and not (isinstance(self.signal, str | os.PathLike) and os.fspath(self.signal)):
            raise ValueError(f"ExternalSignal.signal must be the path of a file or a function, not {self.signal!r}")
        _check_above_zero("ExternalSignal.every", self.every)

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Look for the signal."""
        return await self._look()

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Return EMERGENCY_STOP."""
        return ResourceAction.EMERGENCY_STOP

    async def watch(self) -> ResourceValidation:
        """Check every `every` seconds until the signal is there."""
        while True:
            found = await self._look()
            if found.violated:
                return found
            await anyio.sleep(self.every)

    async def _look(self) -> ResourceValidation:
        if callable(self.signal):
            raised = self.signal()
            if inspect.isawaitable(raised):
                raised = await raised
            source = getattr(self.signal, "__qualname__", type(self.signal).__qualname__)
        else:
            raised, source = _is_there(self.signal), str(Path(self.signal))
        return ResourceValidation(
            bool(raised), f"the signal {source!r} is raised" if raised else "", {"signal": source}
        )


def _is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether a file exists; raise if that cannot be determined."""
    try:
        Path(path).stat()
    # Other errors are raised, because they do not prove that the signal is absent.
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class WarnAt:
    """Warn once a share of another constraint's limit is used. WARN_CONTINUE.

    The other constraint is not enforced: put both into the list. It must have a method `share(context)`.
    """

    constraint: ResourceConstraint
    share: float = 0.8
    """From above 0 to 1."""

    def __post_init__(self) -> None:
        if not callable(getattr(self.constraint, "share", None)):
            raise ValueError(
                f"WarnAt.constraint must have a method share(context) that returns how much of its limit is used (as "
                f"MaxIterations, TokenBudget, CostLimit and Timeout have), not {self.constraint!r}"
            )
        _check_above_zero("WarnAt.share", self.share)
        if self.share > 1:
            raise ValueError(f"WarnAt.share must be at most 1, not {self.share!r}: 0.8 warns at 80 %")

    @property
    def name(self) -> str:
        """The share, and the constraint whose limit it is a share of."""
        return f"warn-at {self.share:.3g} {name_of(self.constraint)}"

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Compare the used share with `share`."""
        measure: Any = self.constraint
        used = float(measure.share(context))
        violated = used >= self.share
        reason = f"{used:.0%} of the limit of {name_of(self.constraint)!r} is used" if violated else ""
        return ResourceValidation(violated, reason, {"used": used, "share": float(self.share)})

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Return WARN_CONTINUE."""
        return ResourceAction.WARN_CONTINUE


def _check_above_zero(field: str, number: object) -> None:
    """Raise `ValueError` unless `number` is finite and above 0."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number <= 0:
        raise ValueError(f"{field} must be a finite number above 0, not {number!r}")
