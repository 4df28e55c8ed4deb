"""The places of a plan that grew: maps and loops are frames around their tasks.

A map with few items has a box for each, one with many a strip of small squares. The rounds of a loop are drawn from
left to right, and an arrow leads back to the first. An arrow to or from a task inside a frame leads to or from the
frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.views.graph_layout import Box, Point, lay_out

if TYPE_CHECKING:
    import networkx as nx

MOST_BOXED: Final = 8
"""Items of a map that have a box each."""
_MOST_ROUNDS: Final = 4
"""Rounds of a loop whose tasks have a box each."""
_FEWEST_IN_ROW: Final = 16
_SQUARE, _STEP = 14.0, 18.0
"""Size of a square of a strip, and from one to the next."""
_PAD: Final = 14.0
_HEADING: Final = 22.0
"""Height of the line with a round's number."""
_BETWEEN_ROUNDS: Final = 44.0
_BACK: Final = 34.0
"""Height of the arrow back, with its words."""


class Shape(NamedTuple):
    """A task as the layout knows it."""

    id: str
    depends_on: Sequence[str] = ()
    part_of: str | None = None
    grows: str | None = None
    """"loop" if its tasks are rounds."""


@dataclass(slots=True)
class Picture:
    """Places between (0, 0) and (width, height)."""

    width: float = 0.0
    height: float = 0.0
    boxes: dict[str, Box] = field(default_factory=dict[str, Box])
    frames: dict[str, Box] = field(default_factory=dict[str, Box])
    """Frames of maps and loops, those around others first."""
    squares: dict[str, Box] = field(default_factory=dict[str, Box])
    """Tasks in strips."""
    arrows: list[tuple[tuple[str, str], tuple[Point, ...]]] = field(
        default_factory=list[tuple[tuple[str, str], tuple[Point, ...]]]
    )
    """The tasks that an arrow joins, and its corners."""
    nexts: list[tuple[Point, ...]] = field(default_factory=list[tuple[Point, ...]])
    """The corners of arrows from one round to the next."""
    rounds: list[tuple[str, Point]] = field(default_factory=list[tuple[str, Point]])
    """The words above rounds, and where their line begins."""
    backs: dict[str, tuple[Point, ...]] = field(default_factory=dict[str, tuple[Point, ...]])
    """The corners of the arrow back of each loop."""

    def add(self, part: Picture, x: float, y: float) -> None:
        """Put a part here, with its upper left corner at a place."""

        def moved(corners: Iterable[Point]) -> tuple[Point, ...]:
            return tuple((left + x, top + y) for left, top in corners)

        for own, other in ((self.boxes, part.boxes), (self.frames, part.frames), (self.squares, part.squares)):
            own.update((name, box._replace(x=box.x + x, y=box.y + y)) for name, box in other.items())
        self.arrows += [(ends, moved(corners)) for ends, corners in part.arrows]
        self.nexts += map(moved, part.nexts)
        self.rounds += [(words, moved([place])[0]) for words, place in part.rounds]
        self.backs.update((name, moved(corners)) for name, corners in part.backs.items())
        self.width, self.height = max(self.width, x + part.width), max(self.height, y + part.height)


def arrange(
    shapes: Sequence[Shape], width: float, heights: Mapping[str, float], *, most_boxed: int = MOST_BOXED
) -> Picture:
    """Place the tasks of a plan; `heights` has the height of each box, or of the head of each frame.

    More parts of a map than `most_boxed` are a strip; with 0 no part of a frame is drawn.
    """
    return _Plan(shapes, width, heights, most_boxed).level(None)


def count_drawn(shapes: Sequence[Shape]) -> int:
    """Return how many boxes and frames a picture of the plan has."""
    return _Plan(shapes, 0.0, {}, MOST_BOXED).count(None)


def grouped(shapes: Sequence[Shape], name: Callable[[str], str]) -> list[Shape]:
    """Return a plan in which tasks of the same depth and the same name are parts of one frame."""
    plan = _Plan(shapes, 0.0, {}, MOST_BOXED)
    groups: dict[str, list[Shape]] = defaultdict(list)
    for depth, layer in enumerate(plan.layers(), 1):
        for task_id in layer:
            groups[f"{depth}. {name(task_id)}"].append(plan.by_id[task_id])
    made: list[Shape] = []
    for group, tasks in groups.items():
        around = group if len(tasks) > 1 else None
        made += [Shape(group)] * (around is not None)
        made += [Shape(one.id, one.depends_on, around) for one in tasks]
    return made


def _round_of(shape: Shape) -> str:
    """Return the number of the round in an id such as `polish.02.write`, or "" where it has none."""
    number, dot, _ = shape.id[len(shape.part_of or "") + 1 :].partition(".")
    return str(int(number)) if dot and number.isdecimal() else ""


class _Plan:
    def __init__(self, shapes: Sequence[Shape], width: float, heights: Mapping[str, float], most_boxed: int) -> None:
        self._width, self._heights, self._most_boxed = width, heights, most_boxed
        self.by_id = {shape.id: shape for shape in shapes}
        self._parts: dict[str | None, list[Shape]] = defaultdict(list)
        for shape in shapes:
            self._parts[self._frames_around(shape.id)].append(shape)
        self._edges: dict[str | None, set[tuple[str, str]]] = defaultdict(set)
        """Edges between the parts of a frame, or of the plan."""
        for shape in shapes:
            for name in shape.depends_on:
                self._take_edge(name, shape.id)

    def _frames_around(self, name: str) -> str | None:
        part_of = self.by_id[name].part_of
        return part_of if part_of in self.by_id and part_of != name else None

    def _path(self, name: str) -> list[str]:
        """Return a task and the frames around it, the outermost first."""
        path = [name]
        while (around := self._frames_around(path[-1])) is not None and around not in path:
            path.append(around)
        return path[::-1]

    def _take_edge(self, before: str, after: str) -> None:
        if before not in self.by_id:
            return
        around: str | None = None
        for one, other in zip(self._path(before), self._path(after), strict=False):
            if one != other:
                self._edges[around].add((one, other))
                return
            around = one

    def level(self, around: str | None, only: Sequence[Shape] | None = None) -> Picture:
        """Place the parts of a frame (None: of the plan), or only these."""
        shapes = self._parts[around] if only is None else only
        inner = {shape.id: self._frame(shape) for shape in shapes if self._parts.get(shape.id)}
        widths = {one.id: inner[one.id].width if one.id in inner else self._width for one in shapes}
        heights = {one.id: inner[one.id].height if one.id in inner else self._heights[one.id] for one in shapes}
        layout = lay_out(self.graph(around, shapes), widths, heights)
        made = Picture(layout.width, layout.height)
        made.arrows = [(edge, corners) for edge, corners in layout.routes.items()]
        for name, box in layout.boxes.items():
            if name in inner:
                made.add(inner[name], box.x, box.y)
            else:
                made.boxes[name] = box
        return made

    def graph(self, around: str | None, only: Sequence[Shape] | None = None) -> nx.DiGraph[str]:
        """Return the dependencies among the parts of a frame (None: of the plan), or only among these."""
        import networkx as nx

        shapes = self._parts[around] if only is None else only
        dag: nx.DiGraph[str] = nx.DiGraph()
        dag.add_nodes_from(shape.id for shape in shapes)
        dag.add_edges_from(self._edges_among(around, shapes))
        if not nx.is_directed_acyclic_graph(dag):  # tasks of several plans may form a circle
            dag.remove_edges_from(list(dag.edges))
        return dag

    def _edges_among(self, around: str | None, shapes: Sequence[Shape]) -> list[tuple[str, str]]:
        here = {shape.id: at for at, shape in enumerate(shapes)}
        edges = [edge for edge in self._edges[around] if edge[0] in here and edge[1] in here]
        return sorted(edges, key=lambda edge: (here[edge[1]], here[edge[0]]))

    def layers(self) -> list[list[str]]:
        """Return the parts of the plan by depth, without networkx, whose graph of a large plan takes much memory."""
        shapes = self._parts[None]
        sorter = TopologicalSorter[str]({shape.id: () for shape in shapes})
        for one, other in self._edges_among(None, shapes):
            sorter.add(other, one)
        try:
            sorter.prepare()
        except CycleError:  # tasks of several plans may form a circle
            return [[shape.id for shape in shapes]]
        layers: list[list[str]] = []
        while layer := sorter.get_ready():
            layers.append([*layer])
            sorter.done(*layer)
        return layers

    def count(self, around: str | None) -> int:
        """Return how many boxes and frames the parts of a frame, or of the plan, are drawn as."""
        parts = self._parts.get(around, ())
        if around is not None and not self._is_boxed(self.by_id[around]):
            return 0
        return len(parts) + sum(self.count(one.id) for one in parts)

    def _is_boxed(self, shape: Shape) -> bool:
        """Return whether the parts of a task have boxes of their own."""
        parts = self._parts.get(shape.id, ())
        if shape.grows == "loop":
            return len(set(map(_round_of, parts))) <= _MOST_ROUNDS
        return len(parts) <= self._most_boxed

    # ------------------------------------------------------------------ frames

    def _frame(self, shape: Shape) -> Picture:
        rounds: dict[str, list[Shape]] = defaultdict(list)
        for one in self._parts[shape.id] if shape.grows == "loop" else ():
            rounds[_round_of(one)].append(one)
        inner = self._picture_inside(shape, rounds)
        head, below = self._heights[shape.id], _BACK if rounds else 0.0
        made = Picture(max(self._width, inner.width + 2 * _PAD), head + inner.height + _PAD + below)
        made.frames[shape.id] = Box(0.0, 0.0, made.width, made.height)
        made.add(inner, _PAD, head)
        if rounds:
            # From the end of the row, below it, to its beginning.
            left, right, bottom = _PAD + 8, _PAD + inner.width - 8, head + inner.height
            made.backs[shape.id] = (right, bottom + 2), (right, bottom + 16), (left, bottom + 16), (left, bottom + 3)
        return made

    def _picture_inside(self, shape: Shape, rounds: Mapping[str, Sequence[Shape]]) -> Picture:
        if not self._most_boxed:
            return Picture()
        if not self._is_boxed(shape):
            parts = self._parts[shape.id]
            wide = min(max(_FEWEST_IN_ROW, ceil(2 * sqrt(len(parts)))), len(parts))
            # A column for each round; else the strip is filled row by row.
            return _strip(list(rounds.values()) or [parts[at::wide] for at in range(wide)])
        return self._rounds(shape.id, rounds) if rounds else self.level(shape.id)

    def _rounds(self, name: str, rounds: Mapping[str, Sequence[Shape]]) -> Picture:
        levels = [(number, self.level(name, shapes)) for number, shapes in rounds.items()]
        heading = _HEADING if any(rounds) else 0.0
        made, left = Picture(), 0.0
        middle = heading + max(level.height for _, level in levels) / 2
        for number, level in levels:
            if left:
                made.nexts.append(((left - _BETWEEN_ROUNDS + 6, middle), (left - 6, middle)))
            if number:
                made.rounds.append((f"round {number}", (left, heading - 9)))
            made.add(level, left, middle - level.height / 2)
            left += level.width + _BETWEEN_ROUNDS
        return made


def _strip(columns: Sequence[Sequence[Shape]]) -> Picture:
    most = max(map(len, columns))
    made = Picture(len(columns) * _STEP - (_STEP - _SQUARE), most * _STEP - (_STEP - _SQUARE))
    for across, column in enumerate(columns):
        for down, shape in enumerate(column):
            made.squares[shape.id] = Box(across * _STEP, down * _STEP, _SQUARE, _SQUARE)
    return made
