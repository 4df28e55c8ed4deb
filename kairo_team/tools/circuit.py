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
        if circuit is None:
            return _CLOSED
        if circuit.opened_at is not None:
            if circuit.trying or self._clock() - circuit.opened_at < self.setting.pause:  # one trial at a time
                return None
            circuit.trying = True
        return circuit.period

    def end(self, tool: str, ticket: int, succeeded: bool | None) -> None:
        """Record how an admitted call ended; None for a refused or cancelled call, which does not count."""
        circuit = self._circuits.get(tool)
        if circuit is None:
            if succeeded is not False:  # a tool that never failed has no circuit
                return
            circuit = self._circuits[tool] = _Circuit()
        if ticket != circuit.period:  # admitted before the circuit opened
            return
        circuit.trying = False
        if succeeded:
            circuit.failures, circuit.opened_at = 0, None
        elif succeeded is False:
            circuit.failures += 1
            if circuit.failures >= self.setting.failures:  # a failed trial opens it again: the count continues
                circuit.opened_at = self._clock()
                circuit.period += 1

    def repeat(self, tool: str, *, succeeded: bool) -> None:
        """Record a call that an earlier session of the run made; a pause that it causes begins now."""
        circuit = self._circuits.get(tool)
        self.end(tool, _CLOSED if circuit is None else circuit.period, succeeded)


_CLOSED: Final[int] = 0


@dataclass(slots=True)
class _Circuit:
    """One tool's failures.

    A ticket is the number of the period in which a call was admitted. Each opening begins a new period, so that calls
    admitted earlier no longer count.
    """

    failures: int = 0
    opened_at: float | None = None
    """When the circuit opened, by the clock; None: closed."""
    trying: bool = False
    """Whether a trial call is running."""
    period: int = _CLOSED
