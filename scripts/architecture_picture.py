"""Draw docs/architecture.svg from the imports of the code.

Run `python -m scripts.architecture_picture > docs/architecture.svg`.

A box is a folder of `kairo_team/`; the vocabulary is its own modules. A box is drawn above all that its modules import
when they are imported, and arrows that follow from others are left out. Imports inside functions and for type checkers
are not drawn: tests/test_architecture.py lists those that go up.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import permutations, product
from pathlib import Path
from typing import Final

import networkx as nx

PACKAGE: Final = Path(__file__).resolve().parent.parent / "kairo_team"
LEFT_OUT: Final = ("tck", "examples", "testing")
"""Folders that the library does not import."""
APART: Final = ("data/teams",)
"""Folders inside another that are drawn by themselves."""
ENGINE: Final = "engine"
WIDTH: Final = 860
BOX: Final = (130, 34)
STEP: Final = 62
"""From one floor to the next."""
FONT: Final = 'font-family="sans-serif" font-size="13"'


def room_of(module: str) -> str:
    """Return the folder of a module by its dotted path below `kairo_team`; "" for the package itself."""
    first, *rest = module.split(".")
    inner = f"{first}/{rest[0]}" if rest else ""
    if inner in APART or (first == ENGINE and (PACKAGE / inner / "__init__.py").exists()):
        return inner
    if (PACKAGE / first / "__init__.py").exists():
        return first
    return first if first == "api" else "vocabulary" if (PACKAGE / f"{first}.py").exists() else ""


def imported(path: Path) -> Iterator[str]:
    """Yield the modules and names of the package that a file imports when it is imported itself."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kairo_team"):
            for alias in node.names:
                yield f"{node.module}.{alias.name}".removeprefix("kairo_team.")


def rooms() -> nx.DiGraph[str]:
    """Return the folders, with an edge to each one that a folder imports; the engine's are `engine/live` and so on."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    folders = [PACKAGE, PACKAGE / "coordinators", PACKAGE / "evaluators"]  # links, which `rglob` does not follow
    for path in sorted({path for folder in folders for path in folder.rglob("*.py")}):
        here = room_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        if path.parent == PACKAGE and path.name in {"__init__.py", "__main__.py"}:
            continue
        for there in map(room_of, imported(path)):
            if here and there and here != there and not {here.partition("/")[0], there.partition("/")[0]} & {*LEFT_OUT}:
                graph.add_edge(here, there)
    return graph


def houses(graph: nx.DiGraph[str]) -> nx.DiGraph[str]:
    """Return the graph with the rooms of the engine as one."""
    names = {room: ENGINE if room.startswith(f"{ENGINE}/") else room for room in graph}
    made: nx.DiGraph[str] = nx.DiGraph()
    made.add_edges_from((names[one], names[other]) for one, other in graph.edges if names[one] != names[other])
    return made


def floors(graph: nx.DiGraph[str]) -> list[list[str]]:
    """Return the folders in rows, each above all that it imports; raises if they import in a circle."""
    rows = [sorted(row) for row in nx.topological_generations(graph.reverse())]
    arrows = nx.transitive_reduction(graph).edges
    return [list(row) for row in min(product(*map(permutations, rows)), key=lambda rows: _sideways(rows, arrows))]


def _places(rows: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return how far from the left the middle of each box is."""
    return {room: WIDTH / (len(row) + 1) * (place + 1) for row in rows for place, room in enumerate(row)}


def _sideways(rows: Sequence[Sequence[str]], arrows: Iterable[tuple[str, str]]) -> float:
    """Return how far the arrows lead to the side; those of the engine, which is wide, lead straight up and down."""
    places = _places(rows)
    return sum(abs(places[one] - places[other]) for one, other in arrows if ENGINE not in (one, other))


def draw() -> str:
    """Return the picture."""
    graph = rooms()
    top = houses(graph)
    inner = floors(graph.subgraph(room for room in graph if room.startswith(f"{ENGINE}/")))
    rows = floors(top)
    height = STEP * len(rows)
    heights = {room: height - STEP * (number + 1) + 10 for number, row in enumerate(rows) for room in row}
    places = {room: (x, heights[room]) for room, x in _places(rows).items()}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The folders of kairo_team: each imports only those below it</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        (
            '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#888"/></marker>'
        ),
    ]
    for one, other in sorted(nx.transitive_reduction(top).edges):
        (x, y), (to_x, to_y) = places[one], places[other]
        if ENGINE not in (one, other) and y < heights[ENGINE] < to_y:
            lines.append(_arrow_around(x, y, to_x, to_y))
        else:
            lines.append(_arrow(to_x if one == ENGINE else x, y, x if other == ENGINE else to_x, to_y))
    for room, (x, y) in sorted(places.items()):
        lines += _engine(y, inner) if room == ENGINE else _box(x, y, room)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return _line(f"M{x:g} {y + BOX[1]:g}L{to_x:g} {to_y - 1:g}")


def _arrow_around(x: float, y: float, to_x: float, to_y: float) -> str:
    """Draw an arrow that passes the engine beside it, from the side of one box to the side of the other."""
    side, middle = (-1 if x < WIDTH / 2 else 1), BOX[1] / 2
    beside = 85 if side < 0 else WIDTH - 85
    end = to_x + side * (BOX[0] / 2 + 1)
    return _line(f"M{x + side * BOX[0] / 2:g} {y + middle:g}H{beside:g}V{to_y + middle:g}H{end:g}")


def _line(line: str) -> str:
    return f'<path d="{line}" stroke="#888" fill="none" marker-end="url(#tip)"/>'


def _box(x: float, y: float, name: str, *, width: float = BOX[0], fill: str = "#eef3f8") -> list[str]:
    size = f'width="{width:g}" height="{BOX[1]}"'
    return [
        f'<rect x="{x - width / 2:g}" y="{y:g}" {size} rx="5" fill="{fill}" stroke="#567"/>',
        f'<text x="{x:g}" y="{y + 22:g}" text-anchor="middle" {FONT} fill="#222">{escape(name)}</text>',
    ]


def _engine(y: float, inner: list[list[str]]) -> list[str]:
    """Draw the engine with its rooms, each of which imports only those to its left."""
    left, width = 110, WIDTH - 220
    lines = [
        f'<rect x="{left}" y="{y - 4:g}" width="{width}" height="{BOX[1] + 8}" rx="6" fill="#dbe7f3" stroke="#345"/>',
        f'<text x="{left + 12}" y="{y + 22:g}" {FONT} font-weight="bold" fill="#222">engine</text>',
    ]
    names = [room.partition("/")[2] for row in inner for room in row]
    each = (width - 90) / len(names)
    for place, name in enumerate(names):
        lines += _box(left + 80 + each * (place + 0.5), y, name, width=each - 10, fill="#fff")
    return lines


if __name__ == "__main__":
    print(draw(), end="")
