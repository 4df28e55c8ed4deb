"""Circuit breakers: refuse the calls of a tool for a while after it failed several times in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kairo_team._util.counts import in_seconds
from kairo_team.budget import check_count, check_seconds


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Settings for when the calls of a tool are refused, and for how long."""

    failures: int = 3
    """Failures in a row that open the circuit: exceptions and timeouts, not cancellations and not refusals."""
    pause: float = 30.0
    """Seconds that the circuit stays open; then one call is admitted as a trial, and its success closes the circuit."""

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
        """The text that a member reads instead of the result of a refused call."""
        return (
            f"it failed {self.setting.failures} times in a row and is blocked for {in_seconds(self.setting.pause)}: "
            "continue without it, or try again later"
        )

    def admit(self, tool: str) -> int | None:
        """Admit a call and return its ticket for `end`; None while the circuit is open."""
        circuit = self._circuits.get(tool)
        return _CLOSED if circuit is None else circuit.admit(self.setting, self._clock)

    def end(self, tool: str, ticket: int, succeeded: bool | None) -> None:
        """Record how an admitted call ended; None for a refused or cancelled call, which does not count."""
        circuit = self._circuits.get(tool)
        if circuit is None:
            if succeeded is not False:  # a tool that never failed has no circuit
                return
            circuit = self._circuits[tool] = _Circuit()
        circuit.end(ticket, succeeded, self.setting, self._clock)

    def repeat(self, tool: str, *, succeeded: bool) -> None:
        """Record a call that an earlier session of the run made; a pause that it causes begins now."""
        circuit = self._circuits.get(tool)
        self.end(tool, _CLOSED if circuit is None else circuit.period, succeeded)


_CLOSED: Final[int] = 0


class _Circuit:
    """One tool's failures.

    A ticket is the number of the period in which a call was admitted. Each opening begins a new period, so that calls
    admitted earlier no longer count.
    """

    __slots__ = ("failures", "opened_at", "period", "trying")

    def __init__(self) -> None:
        self.failures = 0
        self.opened_at: float | None = None
        """When the circuit opened, by the clock; None: closed."""
        self.trying = False
        """Whether a trial call is running."""
        self.period: int = _CLOSED

    def admit(self, setting: CircuitBreaker, clock: Callable[[], float]) -> int | None:
        if self.opened_at is not None:
            if self.trying or clock() - self.opened_at < setting.pause:  # one trial at a time
                return None
            self.trying = True
        return self.period

    def end(self, ticket: int, succeeded: bool | None, setting: CircuitBreaker, clock: Callable[[], float]) -> None:
        if ticket != self.period:  # admitted before the circuit opened
            return
        self.trying = False
        if succeeded:
            self.failures, self.opened_at = 0, None
        elif succeeded is False:
            self.failures += 1
            if self.failures >= setting.failures:  # a failed trial opens it again: the count continues
                self.opened_at = clock()
                self.period += 1
