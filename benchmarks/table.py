"""A row of the table, the table, and fair timing."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One measured ratio, or amount, and the most it may be; no limit is there to be known, not to be kept."""

    what: str
    measured: float
    limit: float | None
    note: str = ""
    unit: str = "x"

    @property
    def verdict(self) -> str:
        """Whether the limit holds."""
        if self.limit is None:
            return ""
        return "ok" if self.measured <= self.limit else "OVER"


Clock = Callable[[], float]


def seconds_of(work: Callable[[], object], clock: Clock) -> float:
    """Time one call. Older objects are frozen first, so that the collector's passes count only this call's objects.

    The collector stays on: it is on in every program that pays for it.
    """
    gc.collect()
    gc.freeze()
    try:
        began = clock()
        work()
        return clock() - began
    finally:
        gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Timing:
    """How long something took, and how that compares with the first thing timed in the same round; medians of all."""

    seconds: float
    ratio: float


def compare(
    works: Mapping[str, Callable[[], object]], repeats: int, clock: Clock = time.process_time
) -> dict[str, Timing]:
    """Time several things in turn, in rounds: each is compared with the first one of its own round.

    A machine changes its speed within a run; what lies side by side is hit alike. Processor time, unless another clock
    is given: other work of the machine is not measured.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds_of(work, clock))
    first = next(iter(times.values()))
    return {
        name: Timing(median(taken), median(one / base for one, base in zip(taken, first, strict=True)))
        for name, taken in times.items()
    }


def silence_runs() -> None:
    """Keep out of the output what the library logs of runs that fail on purpose."""
    logging.getLogger("kairo_team").setLevel(logging.CRITICAL)


def draw(rows: Sequence[Row]) -> str:
    """Draw the rows as a table."""
    lines = [("what", "measured", "to reach", "", "")]
    for r in rows:
        limit = f"<= {r.limit:g} {r.unit}" if r.limit else ""
        lines.append((r.what, f"{r.measured:.2f} {r.unit}", limit, r.verdict, r.note))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    drawn = [
        f"{what:<{widths[0]}}  {measured:>{widths[1]}}  {limit:>{widths[2]}}  {verdict:<{widths[3]}}  {note}".rstrip()
        for what, measured, limit, verdict, note in lines
    ]
    return "\n".join([drawn[0], "-" * max(map(len, drawn)), *drawn[1:]])
