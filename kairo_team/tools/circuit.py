"""Circuit breakers: calls of a tool that fails again and again are refused for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kairo_team.budget import check_count, check_seconds


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """When the calls of a tool are refused, and for how long."""

    failures: int = 3
    """Failures in a row that open the circuit: exceptions and timeouts, not cancellations and not refusals."""
    pause: float = 30.0
    """Seconds it stays open; then one call may try, and its success closes it."""

    def __post_init__(self) -> None:
        check_count("CircuitBreaker.failures", self.failures, 1)
        check_seconds("CircuitBreaker.pause", self.pause)


class CircuitBreakers:
    """The circuits of one run, one per tool. `clock` returns seconds, from any origin; it never goes back."""

    __slots__ = ("_circuits", "_clock", "setting")

    def __init__(self, setting: CircuitBreaker, clock: Callable[[], float]) -> None:
        self.setting = setting
        self._clock = clock
        self._circuits: dict[str, _Circuit] = {}

    @property
    def why_open(self) -> str:
        """What a member reads in place of a call that is refused."""
        return (
            f"it failed {self.setting.failures} times in a row and is left alone for {self.setting.pause:g} seconds: "
            "go on without it, or try again later"
        )

    def admit(self, tool: str) -> int | None:
        """Return the ticket of a call that may be made, to be handed to `end`; None while the circuit is open."""
        circuit = self._circuits.get(tool)
        return _CLOSED if circuit is None else circuit.admit(self.setting, self._clock)

    def end(self, tool: str, ticket: int, succeeded: bool | None) -> None:
        """Record how an admitted call ended; None for a call that was refused or cancelled, which does not count."""
        circuit = self._circuits.get(tool)
        if circuit is None:
            if succeeded is not False:
                return
            circuit = self._circuits[tool] = _Circuit()
        circuit.end(ticket, succeeded, self.setting, self._clock)

    def repeat(self, tool: str, *, succeeded: bool) -> None:
        """Take note of a call that an earlier session of the run made; its pause begins now."""
        circuit = self._circuits.get(tool)
        self.end(tool, _CLOSED if circuit is None else circuit.period, succeeded)


_CLOSED: Final[int] = 0


class _Circuit:
    """One tool's failures.

    A ticket names the period in which a call was admitted. Each opening begins a new one, so a call that was admitted
    before it does not affect what follows.
    """

    __slots__ = ("failures", "opened_at", "period", "trying")

    def __init__(self) -> None:
        self.failures = 0
        self.opened_at: float | None = None
        """None: closed."""
        self.trying = False
        """A call is finding out whether the tool works again."""
        self.period: int = _CLOSED

    def admit(self, setting: CircuitBreaker, clock: Callable[[], float]) -> int | None:
        if self.opened_at is not None:
            if self.trying or clock() - self.opened_at < setting.pause:
                return None
            self.trying = True
        return self.period

    def end(self, ticket: int, succeeded: bool | None, setting: CircuitBreaker, clock: Callable[[], float]) -> None:
        if ticket != self.period:
            return
        self.trying = False
        if succeeded:
            self.failures, self.opened_at = 0, None
        elif succeeded is False:
            self.failures += 1
            if self.failures >= setting.failures:  # also after a trial: they are counted on
                self.opened_at = clock()
                self.period += 1
