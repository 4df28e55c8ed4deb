"""The places of the boxes and arrows of a plan: layers by longest path, few crossings, nothing on top of a box.

The method is layered drawing (Sugiyama, Tagawa and Toda, 1981). Layers become columns from left to right; a tall layer
whose arrows join few other tasks becomes several columns. An arrow that passes columns gets a lane through each.
Columns are sorted by the mean place of their neighbours, and the order with the fewest crossings is kept. Then
everything moves as near to its neighbours as its column allows. Arrows that pass the same columns share lanes when
they leave the same task or reach the same task.
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
    """Corners from box to box. Steps alternate: one crosses the space between two columns, the next follows a lane
    through a column."""


@dataclass(slots=True, eq=False)
class _Item:
    """A box or a lane in a column."""

    column: int
    height: float = 0.0
    weight: float = _LANE_WEIGHT
    middle: float = 0.0
    place: float = 0.0
    """Position in the column, as a share from 0 to 1."""
    before: dict[_Item, None] = field(default_factory=dict["_Item", None])
    after: dict[_Item, None] = field(default_factory=dict["_Item", None])


_Columns = list[list[_Item]]


def lay_out(dag: nx.DiGraph[str], width: float, heights: Mapping[str, float]) -> Layout:
    """Lay out a directed acyclic graph; all boxes have the same width, each has its own height."""
    names = _columns(dag)
    boxes = {name: _Item(at, heights[name], 1.0) for at, column in enumerate(names) for name in column}
    columns = [[boxes[name] for name in column] for column in names]
    chains = _chains(dag, boxes, columns)
    _untangle(columns)
    _settle(columns)
    lefts = _lefts(columns, width)
    places = {
        name: Box(lefts[item.column], item.middle - item.height / 2, width, item.height) for name, item in boxes.items()
    }
    routes = {edge: _route(chain, lefts, width) for edge, chain in chains.items()}
    bottom = max(item.middle + item.height / 2 for column in columns for item in column)
    return Layout(lefts[-1] + width, bottom, places, routes)


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
        size = ceil(len(ordered) / ceil(len(ordered) / most)) if _meets_few(dag, ordered) else len(ordered)
        columns += [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return columns


def _meets_few(dag: nx.DiGraph[str], layer: Sequence[str]) -> bool:
    """Return whether a layer's arrows join few other tasks; cut into columns, such a layer needs few lanes."""
    others = {other for name in layer for other in (*dag.predecessors(name), *dag.successors(name))}
    return len(others) <= len(layer) / 2


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
            wanted = {item: _neighbours_place(item, forward=forward) for item in column}
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


def _neighbours_place(item: _Item, *, forward: bool) -> float:
    return _mean((other.place for other in (item.before if forward else item.after)), default=item.place)


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
            _stack(column, _wanted(column, forward=forward, both=last))
    top = min(item.middle - item.height / 2 for column in columns for item in column)
    for column in columns:
        for item in column:
            item.middle -= top


def _wanted(column: Sequence[_Item], *, forward: bool, both: bool) -> list[float]:
    """Return the ideal place of each item of a column; an item without a neighbour stays with the one above it."""
    tied = [item for item in column if item.before or item.after]
    last = _wish(tied[0], forward=forward, both=both) if tied else column[0].middle
    wanted: list[float] = []
    for item in column:
        last = _wish(item, forward=forward, both=both) if item.before or item.after else last
        wanted.append(last)
    return wanted


def _wish(item: _Item, *, forward: bool, both: bool) -> float:
    """Return the mean middle of an item's neighbours; for a lane, of its neighbouring lanes if it has any."""
    others = [*item.before, *item.after] if both else list(item.before if forward else item.after)
    lanes = [other for other in others if not other.height] if not item.height else []
    return _mean((other.middle for other in lanes or others), default=item.middle)


def _stack(column: Sequence[_Item], wanted: Sequence[float]) -> None:
    """Place a column's items in order without overlap, with the least sum of squared distances to the places wanted."""
    offsets = [0.0]
    for above, below in pairwise(column):
        offsets.append(offsets[-1] + _distance(above, below))
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


def _distance(above: _Item, below: _Item) -> float:
    """Return the least distance between the middles of two neighbours in a column."""
    gap = _BETWEEN_BOXES if above.height and below.height else _BESIDE_A_LANE
    return (above.height + below.height) / 2 + gap


def _lefts(columns: _Columns, width: float) -> list[float]:
    """Return the left edge of each column; more arrows between two columns put them wider apart."""
    lefts = [0.0]
    for column in columns[:-1]:
        arrows = sum(len(item.after) for item in column)
        lefts.append(lefts[-1] + width + min(_GAP_MOST, _GAP + _GAP_PER_ARROW * arrows))
    return lefts


def _route(chain: Sequence[_Item], lefts: Sequence[float], width: float) -> tuple[Point, ...]:
    corners: list[Point] = []
    for item in chain:
        left = lefts[item.column]
        corners += [(left, item.middle), (left + width, item.middle)]
    return tuple(corners[1:-1])
