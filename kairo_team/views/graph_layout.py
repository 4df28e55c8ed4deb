"""The places of the boxes and arrows of a graph: layers by longest path, few crossings, nothing on top of a box.

The method is layered drawing (Sugiyama, Tagawa and Toda, 1981). Layers become columns from left to right; a tall layer
whose arrows join few other tasks becomes several columns. An arrow that passes columns gets a lane through each.
Columns are sorted by the mean place of their neighbours, and the order with the fewest crossings is kept. Then
everything moves as near to its neighbours as its column allows. Arrows that pass the same columns share lanes when
they leave the same task or reach the same task. Parts of a graph that no arrow joins are drawn one below the other, and
boxes without any arrow in rows and columns below them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import networkx as nx

_FEWEST: Final = 12
"""Boxes that always fit into one column."""
_PER_ROOT: Final = 1.7
"""Boxes in the tallest column per square root of all boxes; the picture is then about as wide as high."""
_FEWEST_LOOSE: Final = 4
"""Boxes without an arrow that always fit into one column."""
_ROUNDS: Final = 12
"""Sweeps over the columns, for their order and again for their heights."""
_BETWEEN_BOXES: Final = 18.0
_BESIDE_A_LANE: Final = 9.0
_GAP: Final = 52.0
"""Least width between two columns."""
_GAP_MOST: Final = 180.0
_GAP_PER_ARROW: Final = 3.0
_LANE_WEIGHT: Final = 1000.0
"""Weight of keeping a lane straight; keeping a box near its neighbours weighs 1."""

Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by task and arrows by the tasks they join; everything lies between (0, 0) and (width, height)."""

    width: float
    height: float
    boxes: Mapping[str, Box]
    routes: Mapping[tuple[str, str], tuple[Point, ...]]
    """Corners from box to box: a step crosses the space between two columns, or is level and passes through one."""


@dataclass(slots=True, eq=False)
class _Item:
    """A box or a lane in a column."""

    column: int
    width: float = 0.0
    height: float = 0.0
    weight: float = _LANE_WEIGHT
    middle: float = 0.0
    place: float = 0.0
    """Position in the column, as a share from 0 to 1."""
    before: dict[_Item, None] = field(default_factory=dict["_Item", None])
    after: dict[_Item, None] = field(default_factory=dict["_Item", None])


_Columns = list[list[_Item]]


def lay_out(dag: nx.DiGraph[str], width: float | Mapping[str, float], heights: Mapping[str, float]) -> Layout:
    """Lay out a directed acyclic graph; all boxes have the same width or their own, and each has its own height."""
    import networkx as nx

    sizes = {name: (width if isinstance(width, float | int) else width[name], heights[name]) for name in dag}
    joined = [set(part) for part in nx.weakly_connected_components(dag) if len(part) > 1]
    number = {name: at for at, name in enumerate(dag)}
    joined.sort(key=lambda part: min(map(number.__getitem__, part)))
    parts = [_lay_out_joined(_part_of_graph(dag, part), sizes) for part in joined]
    loose = [name for name in dag if not dag.degree(name)]
    if loose:
        parts.append(_in_columns(loose, sizes))
    return below_each_other(parts)


def _part_of_graph(dag: nx.DiGraph[str], part: set[str]) -> nx.DiGraph[str]:
    """Return a part of a graph, in the order of the whole."""
    if len(part) == len(dag):
        return dag
    import networkx as nx

    own: nx.DiGraph[str] = nx.DiGraph()
    own.add_nodes_from(name for name in dag if name in part)
    own.add_edges_from((a, b) for a, b in dag.edges if a in part)
    return own


def below_each_other(parts: Sequence[Layout]) -> Layout:
    """Put layouts below each other."""
    boxes: dict[str, Box] = {}
    routes: dict[tuple[str, str], tuple[Point, ...]] = {}
    top = 0.0
    for part in parts:
        boxes |= {name: box._replace(y=box.y + top) for name, box in part.boxes.items()}
        routes |= {edge: tuple((x, y + top) for x, y in corners) for edge, corners in part.routes.items()}
        top += part.height + _BETWEEN_BOXES
    return Layout(max(part.width for part in parts), top - _BETWEEN_BOXES, boxes, routes)


def _in_columns(names: Sequence[str], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """Put boxes without arrows into columns, about as high as they are wide together."""
    most = max(_FEWEST_LOOSE, ceil(_PER_ROOT * sqrt(len(names))))
    rows = ceil(len(names) / ceil(len(names) / most))
    boxes: dict[str, Box] = {}
    left = bottom = 0.0
    for at in range(0, len(names), rows):
        column, top = names[at : at + rows], 0.0
        for name in column:
            wide, high = sizes[name]
            boxes[name] = Box(left, top, wide, high)
            top += high + _BETWEEN_BOXES
        left += max(sizes[name][0] for name in column) + _BETWEEN_BOXES
        bottom = max(bottom, top - _BETWEEN_BOXES)
    return Layout(left - _BETWEEN_BOXES, bottom, boxes, {})


def _lay_out_joined(dag: nx.DiGraph[str], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    names = _columns(dag)
    boxes = {name: _Item(at, *sizes[name], 1.0) for at, column in enumerate(names) for name in column}
    columns = [[boxes[name] for name in column] for column in names]
    chains = _chains(dag, boxes, columns)
    _untangle(columns)
    _settle(columns)
    widths = [max(item.width for item in column) for column in columns]
    lefts = [0.0]
    for column, width in zip(columns[:-1], widths, strict=False):
        arrows = sum(len(item.after) for item in column)  # more of them put the columns wider apart
        lefts.append(lefts[-1] + width + min(_GAP_MOST, _GAP + _GAP_PER_ARROW * arrows))
    places = {
        name: Box(lefts[item.column], item.middle - item.height / 2, item.width, item.height)
        for name, item in boxes.items()
    }
    routes = {edge: _route(chain, lefts, widths) for edge, chain in chains.items()}
    bottom = max(item.middle + item.height / 2 for column in columns for item in column)
    return Layout(lefts[-1] + widths[-1], bottom, places, routes)


def path_of(corners: Sequence[Point]) -> str:
    """Write corners as a path of SVG: a line where a step is level, else a curve."""
    steps = [f"M{corners[0][0]:.0f},{corners[0][1]:.0f}"]
    for (x, y), (to_x, to_y) in pairwise(corners):
        half = (x + to_x) / 2
        curve = f"C{half:.0f},{y:.0f} {half:.0f},{to_y:.0f} {to_x:.0f},{to_y:.0f}"
        steps.append(f"H{to_x:.0f}" if y == to_y else curve)
    return " ".join(steps)


# ---------------------------------------------------------------- columns and lanes


def _columns(dag: nx.DiGraph[str]) -> list[list[str]]:
    """Put every task into the first layer after all it depends on; cut tall layers into several columns."""
    import networkx as nx

    most = max(_FEWEST, round(_PER_ROOT * sqrt(len(dag))))
    number = {name: at for at, name in enumerate(dag)}
    place: dict[str, float] = {}
    columns: list[list[str]] = []
    for layer in nx.topological_generations(dag):
        wanted = {name: (_mean(place[before] for before in dag.predecessors(name)), number[name]) for name in layer}
        ordered = sorted(layer, key=wanted.__getitem__)
        place |= {name: at / len(ordered) for at, name in enumerate(ordered)}
        # A layer whose arrows join few other tasks needs few lanes where it is cut into columns.
        others = {other for name in ordered for other in (*dag.predecessors(name), *dag.successors(name))}
        meets_few = len(others) <= len(ordered) / 2
        size = ceil(len(ordered) / ceil(len(ordered) / most)) if meets_few else len(ordered)
        columns += [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return columns


def _mean(numbers: Iterable[float], *, default: float = 0.0) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else default


def _chains(dag: nx.DiGraph[str], boxes: Mapping[str, _Item], columns: _Columns) -> dict[tuple[str, str], list[_Item]]:
    """Give every arrow that passes columns its lanes, and link the items that follow each other on its way."""
    long = [(a, b) for a, b in dag.edges if boxes[b].column - boxes[a].column > 1]
    leaving, reaching = Counter(a for a, _ in long), Counter(b for _, b in long)
    lanes: dict[tuple[str, str, int], _Item] = {}
    chains: dict[tuple[str, str], list[_Item]] = {}
    for a, b in dag.edges:
        # The end with more long arrows shares its lanes, which makes the fewest lanes.
        shared = ("from", a) if leaving[a] >= reaching[b] else ("to", b)
        chain = [boxes[a]]
        for column in range(boxes[a].column + 1, boxes[b].column):
            if (*shared, column) not in lanes:
                lane = lanes[*shared, column] = _Item(column)
                columns[column].insert(len(columns[column]) // 2, lane)  # where a sort without a preference leaves it
            chain.append(lanes[*shared, column])
        chains[a, b] = [*chain, boxes[b]]
        for one, next_one in pairwise(chains[a, b]):
            one.after[next_one] = next_one.before[one] = None
    return chains


# ---------------------------------------------------------------- order


def _untangle(columns: _Columns) -> None:
    """Sort every column so that few arrows cross: towards the columns before, then those after, the best is kept."""
    _number(columns)
    best, fewest = [list(column) for column in columns], _count_crossings(columns)
    for turn in range(_ROUNDS):
        if not fewest:
            break
        forward = turn % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = {
                item: _mean((one.place for one in (item.before if forward else item.after)), default=item.place)
                for item in column
            }
            column.sort(key=wanted.__getitem__)
            _number([column])
        crossings = _count_crossings(columns)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    columns[:] = best


def _number(columns: _Columns) -> None:
    for column in columns:
        for at, item in enumerate(column):
            item.place = (at + 0.5) / len(column)


def _count_crossings(columns: _Columns) -> int:
    crossings = 0
    for column in columns:
        ends: list[float] = []
        for item in column:
            places = sorted(other.place for other in item.after)
            crossings += sum(len(ends) - bisect_right(ends, place) for place in places)
            for place in places:
                insort(ends, place)
    return crossings


# ---------------------------------------------------------------- places


def _settle(columns: _Columns) -> None:
    """Move everything up or down towards its neighbours, as far as its column allows; the top is at 0."""
    for column in columns:
        _stack(column, [0.0] * len(column))
    for turn in range(_ROUNDS):
        # The last two sweeps weigh both sides, so that the final places favour neither.
        forward, last = turn % 2 == 0, turn >= _ROUNDS - 2
        for column in columns if forward else reversed(columns):
            _stack(column, [_wanted_middle(item, forward=forward, both=last) for item in column])
    top = min(item.middle - item.height / 2 for column in columns for item in column)
    for column in columns:
        for item in column:
            item.middle -= top


def _wanted_middle(item: _Item, *, forward: bool, both: bool) -> float:
    """Return the mean middle of an item's neighbours; for a lane, of its neighbouring lanes if it has any."""
    others = [*item.before, *item.after] if both else list(item.before if forward else item.after)
    lanes = [other for other in others if not other.height] if not item.height else []
    return _mean((other.middle for other in lanes or others), default=item.middle)


def _stack(column: Sequence[_Item], wanted: Sequence[float]) -> None:
    """Place a column's items in order without overlap, with the least sum of squared distances to the places wanted."""
    offsets = [0.0]
    for above, below in pairwise(column):
        gap = _BETWEEN_BOXES if above.height and below.height else _BESIDE_A_LANE
        offsets.append(offsets[-1] + (above.height + below.height) / 2 + gap)
    # Without the least distances this is isotonic regression: neighbours that would overlap are pooled.
    pools: list[tuple[float, float, int]] = []  # mean, weight, items
    for item, want, offset in zip(column, wanted, offsets, strict=True):
        mean, weight, size = want - offset, item.weight, 1
        while pools and pools[-1][0] > mean:
            upper, upper_weight, upper_size = pools.pop()
            mean = (mean * weight + upper * upper_weight) / (weight + upper_weight)
            weight, size = weight + upper_weight, size + upper_size
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    for item, mean, offset in zip(column, means, offsets, strict=True):
        item.middle = mean + offset


def _route(chain: Sequence[_Item], lefts: Sequence[float], widths: Sequence[float]) -> tuple[Point, ...]:
    corners: list[Point] = []
    for item in chain:
        left, whole = lefts[item.column], widths[item.column]
        corners += [(left, item.middle), (left + whole, item.middle)]
    # An arrow leaves its box, which may be narrower than the column, and passes the rest of the column level.
    start = (lefts[chain[0].column] + chain[0].width, chain[0].middle)
    return (*([start] if start != corners[1] else []), *corners[1:-1])
