"""Task board: a data pipeline of plain functions over a CSV file; one branch fails, and the report is still made.

    python examples/task_board.py
    kairo run examples/task_board.py

    station --- clean -+- statistics --+
                       +- months ------+- report (does with 3 of its 4)
                       +- outliers ----+
                       |               |
    lighthouse --------+- compare - drift

The file of the lighthouse is missing. Its task fails after two retries, its dependents are skipped with the cause, the
other branches finish, and the report, which `needs` three of its four dependencies, is made without the fourth. The run
is DEGRADED, with the reason. No model is used: a function is an agent like any other.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, stdev

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator

DATA = Path(__file__).resolve().parent / "task_board_data"
MEASURES = {"low": "degrees", "high": "degrees", "rain": "mm", "wind": "m/s"}
"""Columns of the file except the day, and their units."""
FAR = 4
"""Standard deviations from the month's mean beyond which a figure is an outlier."""


@dataclass(frozen=True)
class Day:
    """A row of the file with all its figures."""

    day: date
    low: float
    high: float
    rain: float
    wind: float


Rows = list[dict[str, str]]
Days = list[Day]


def load(assignment: kt.Assignment) -> kt.Artifact:
    """Read the rows of a file."""
    file = DATA / assignment.inputs["file"]
    if not file.exists():
        raise FileNotFoundError(f"{file.name} has not come")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return kt.Artifact(f"{len(rows)} rows", rows)


def clean(assignment: kt.Assignment) -> kt.Artifact:
    """Keep one row of each day, and drop rows with missing figures."""
    rows = assignment.upstream["station"].data_as(Rows)
    once = {row["day"]: row for row in rows}
    days = [row for row in once.values() if all(is_figure(row[measure]) for measure in MEASURES)]
    text = f"{len(days)} days; {len(rows) - len(once)} rows came twice, {len(once) - len(days)} lacked a figure"
    return kt.Artifact(text, days)


def is_figure(cell: str) -> bool:
    """Return whether a cell of the file is a number."""
    return cell.lstrip("-").replace(".", "", 1).isdigit()


def statistics(assignment: kt.Assignment) -> str:
    """Sum up each column."""
    days = assignment.upstream["clean"].data_as(Days)
    lines = [f"{'':6}{'least':>8}{'mean':>8}{'most':>8}"]
    for measure, unit in MEASURES.items():
        figures = [getattr(day, measure) for day in days]
        lines.append(f"{measure:6}{min(figures):8.1f}{fmean(figures):8.1f}{max(figures):8.1f}  {unit}")
    return "\n".join(lines)


def months(assignment: kt.Assignment) -> str:
    """Return how warm and how wet each month was."""
    by_month: dict[str, Days] = defaultdict(list)
    for day in assignment.upstream["clean"].data_as(Days):
        by_month[f"{day.day:%Y-%m}"].append(day)
    return "\n".join(
        f"{month}  {len(days):2} days  {fmean((day.low + day.high) / 2 for day in days):5.1f} degrees"
        f"  {sum(day.rain for day in days):6.1f} mm"
        for month, days in by_month.items()
    )


def outliers(assignment: kt.Assignment) -> str:
    """Name the figures that are far from the others of their column and month."""
    days = assignment.upstream["clean"].data_as(Days)
    found: list[str] = []
    for measure, unit in MEASURES.items():
        by_month: dict[int, list[float]] = defaultdict(list)
        for day in days:
            by_month[day.day.month].append(getattr(day, measure))
        limits = {month: (fmean(figures), FAR * stdev(figures)) for month, figures in by_month.items()}
        for day in days:
            figure, (middle, far) = getattr(day, measure), limits[day.day.month]
            if abs(figure - middle) > far:
                found.append(f"{day.day}  {measure:4} {figure:5.1f} {unit}")
    return "\n".join(sorted(found)) or "none"


def compare(assignment: kt.Assignment) -> kt.Artifact:
    """Subtract the station's temperatures from the lighthouse's, day by day."""
    there = {row["day"]: float(row["high"]) for row in assignment.upstream["lighthouse"].data_as(Rows)}
    days = assignment.upstream["clean"].data_as(Days)
    both = {str(day.day): there[str(day.day)] - day.high for day in days if str(day.day) in there}
    return kt.Artifact(f"{len(both)} days in both files", both)


def drift(assignment: kt.Assignment) -> str:
    """Return how far apart the two thermometers are."""
    apart = assignment.upstream["compare"].data_as(dict[str, float])
    return f"{fmean(apart.values()):+.1f} degrees on average"


def report(assignment: kt.Assignment) -> str:
    """Join the parts that exist, and name the missing ones."""
    parts = {part: assignment.upstream.get(part) for part in assignment.task.depends_on}
    return "\n\n".join(f"{part.upper()}\n{made.text if made else '(not there)'}" for part, made in parts.items())


def build() -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team, a member for each function, and the plan it works on."""
    steps = (load, clean, statistics, months, outliers, compare, drift, report)
    board = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=2, backoff=0.1))
    team = kt.Team("weather-desk", [kt.Member(step.__name__, step) for step in steps], coordinator=board)
    parts = ["statistics", "months", "outliers", "drift"]
    plan = kt.TaskGraph(
        [
            kt.Task("station", "Read the station's file.", member="load", inputs={"file": "station.csv"}),
            kt.Task("lighthouse", "Read the lighthouse's file.", member="load", inputs={"file": "lighthouse.csv"}),
            kt.Task("clean", "Keep the usable rows.", member="clean", depends_on=["station"]),
            kt.Task("statistics", "Sum up the columns.", member="statistics", depends_on=["clean"]),
            kt.Task("months", "Sum up the months.", member="months", depends_on=["clean"]),
            kt.Task("outliers", "Find what cannot be.", member="outliers", depends_on=["clean"]),
            kt.Task("compare", "Compare both files.", member="compare", depends_on=["clean", "lighthouse"]),
            kt.Task("drift", "Find the drift.", member="drift", depends_on=["compare"]),
            kt.Task("report", "Put the report together.", member="report", depends_on=parts, needs=3),
        ]
    )
    return team, kt.TeamExecutionRequest("Report on the weather of the year.", plan=plan)


def summary(result: kt.TeamResult) -> str:
    """Print how each task ended and why, then the report, then the status."""
    lines = [f"{'task':10}  {'status':9}  {'tries':>5}"]
    for outcome in result.outcomes:
        made = outcome.artifact.text.partition("\n")[0] if outcome.artifact else ""
        note = outcome.error or (made if outcome.task_id in ("station", "clean") else "")
        lines.append(f"{outcome.task_id:10}  {outcome.status:9}  {outcome.attempts:5}  {note}".rstrip())
    *_, last = result.outcomes
    made = last.artifact.text if last.artifact else f"no report: {last.error}"
    return "\n\n".join(["\n".join(lines), made, result.status.value.upper()])


team, request = build()


def main() -> int:
    """Run the pipeline and print the results."""
    result = kt.run_sync(team, request)
    print(summary(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main())
