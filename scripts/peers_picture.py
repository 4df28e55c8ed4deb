"""Draw the table of docs/speed.md: `python scripts/peers_picture.py > docs/peers-graph.svg`.

The table is the data: what `python -m benchmarks.peers graph` printed, as it stands on the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "speed.md"
HEAD: Final = "| microseconds a task |"
COST: Final = re.compile(r"([\d,.]+) us, [\d,.]+ x")

COLOURS: Final = ("#888888", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4B3F72", "#8C564B")
"""One for each line of the table, in its order."""
WIDTH, HEIGHT = 860, 470
LEFT, RIGHT, TOP, BOTTOM = 84, 290, 48, 56
MOST_TASKS: Final = 20_000
FONT: Final = 'font-family="sans-serif" font-size="13" fill="#222"'


class Line(NamedTuple):
    """One library: its name in the table, and microseconds a task by the number of tasks."""

    name: str
    costs: dict[int, float]


class Scale(NamedTuple):
    """Where tasks and microseconds lie; both axes are logarithmic."""

    least: float
    most: float

    def x(self, tasks: float) -> float:
        """Return the place of a number of tasks, the smallest of which is 100."""
        return LEFT + math.log(tasks / 100) / math.log(MOST_TASKS / 100) * (WIDTH - LEFT - RIGHT)

    def y(self, cost: float) -> float:
        """Return the place of a cost."""
        return (
            HEIGHT - BOTTOM - math.log(cost / self.least) / math.log(self.most / self.least) * (HEIGHT - TOP - BOTTOM)
        )


def read(page: str) -> list[Line]:
    """Return the lines of the page's table; what was not measured is left out."""
    table = page[page.index(HEAD) :].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in row.strip("| ").split("|")] for row in table]
    sizes = [int(cell.replace(",", "")) for cell in rows[0][1:] if cell.replace(",", "").isdigit()]
    lines: list[Line] = []
    for name, *cells in rows[2:]:
        found = {size: COST.fullmatch(cell) for size, cell in zip(sizes, cells, strict=False)}
        lines.append(Line(name, {size: float(cost[1].replace(",", "")) for size, cost in found.items() if cost}))
    return lines


def draw(lines: list[Line]) -> str:
    """Draw one line for each library."""
    costs = [cost for line in lines for cost in line.costs.values()]
    scale = Scale(10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs))))
    parts = [*_frame(), *_grid(scale)]
    for line, colour in zip(lines, COLOURS, strict=False):
        parts += _curve(scale, line, colour)
    return "\n".join([*parts, *_legend(lines), "</svg>", ""])


def _frame() -> Iterator[str]:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield "<title>Processor time for each task of a graph, by library and number of tasks</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    yield f'<text x="{LEFT}" y="24" {FONT} font-weight="bold">Microseconds a task, by tasks of the graph</text>'


def _grid(scale: Scale) -> Iterator[str]:
    for power in range(round(math.log10(scale.least)), round(math.log10(scale.most)) + 1):
        y = scale.y(10.0**power)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" {FONT} text-anchor="end">{10**power:,} us</text>'
    for tasks in (100, 1_000, 3_000, MOST_TASKS):
        x = scale.x(tasks)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" {FONT} text-anchor="middle">{tasks:,}</text>'


def _curve(scale: Scale, line: Line, colour: str) -> Iterator[str]:
    points = [(scale.x(tasks), scale.y(cost)) for tasks, cost in line.costs.items()]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _legend(lines: list[Line]) -> Iterator[str]:
    """Name the libraries, the most expensive first, at the largest size that all were measured at, as the lines lie."""
    named = zip(lines, COLOURS, strict=False)
    for place, (line, colour) in enumerate(sorted(named, key=lambda one: -one[0].costs.get(1_000, 0.0))):
        x, y = WIDTH - RIGHT + 18, TOP + 14 + 24 * place
        yield f'<rect x="{x}" y="{y - 9}" width="14" height="4" fill="{colour}"/>'
        yield f'<text x="{x + 20}" y="{y}" {FONT}>{line.name}</text>'


if __name__ == "__main__":
    print(draw(read(PAGE.read_text(encoding="utf-8"))), end="")
