"""A plan as one self-contained SVG picture: no font, no script, no style from outside.

The colours are readable on a light and on a dark page: boxes have their own background, the rest is a medium grey.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells

from kairo_team.views.graph_frames import Picture, Shape, arrange
from kairo_team.views.graph_layout import Box, path_of
from kairo_team.views.text import NOT_XML

if TYPE_CHECKING:
    from kairo_team.views.graph_chart import Chart, Node

_CELL: Final = 7.3
"""Width of a character in a monospaced font of 12 pixels; rounded up, so that no text leaves its box."""
_MOST_CELLS: Final = 30
_FEWEST_CELLS: Final = 12
_LINE: Final = 16.0
_PADDING: Final = 10.0
_MARGIN: Final = 20.0
_HEAD: Final = 34.0
"""Height of the title's line."""
_TITLE_CELL: Final = 9.0

GREY: Final = "#7a8490"
"""4 to 1 against white and against near-black."""
_INK: Final = "#16202c"
_GROUNDS: Final = ("#d6e8f7", "#fbe3c8", "#d3efe2", "#f3daea", "#f6f0b8", "#e2dcf5", "#dfe3e8", "#cfeef2")

_STYLE: Final = f"""<style>
text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {_INK}; white-space: pre }}
.title {{ font-size: 15px; font-weight: bold; fill: {GREY} }}
.size {{ fill: {GREY} }}
.id {{ font-weight: bold }}
.remark {{ font-style: italic }}
.soft {{ fill: {GREY} }}
.edge {{ fill: none; stroke: {GREY}; stroke-width: 1.4 }}
.back {{ stroke-dasharray: 5 4; stroke-linejoin: round }}
.frame rect {{ fill: none; stroke: {GREY} }}
.frame text {{ fill: {GREY} }}
.task rect, .square {{ stroke: {GREY} }}
</style>"""
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    f'<path d="M0,0.5 L8,4 L0,7.5 z" fill="{GREY}"/></marker></defs>'
)


def draw_svg(chart: Chart) -> str:
    """Return the picture's text: the chart of a plan, from left to right, one box for each task."""
    cells = max(cell_len(line) for node in chart.nodes for line in _lines(node))
    cells = min(max(cells, _FEWEST_CELLS), _MOST_CELLS)
    heights = {node.id: 2 * _PADDING - 4 + _LINE * len(_lines(node)) for node in chart.nodes}
    shapes = [Shape(task.id, task.depends_on, task.part_of, task.growth) for task in chart.plan.tasks]
    picture = arrange(shapes, cells * _CELL + 2 * _PADDING, heights)
    parts = [*_head(chart, picture), *_frames(chart, picture), *_edges(picture), *_boxes(chart, picture, cells)]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _lines(node: Node) -> list[str]:
    return [line for line in (node.id, node.who, node.remark) if line]


def _head(chart: Chart, picture: Picture) -> Iterator[str]:
    title = _cut(chart.title, 48)
    wide = max(picture.width, cell_len(title) * _TITLE_CELL + cell_len(chart.size) * _CELL + 24)
    width, height = round(wide + 2 * _MARGIN), round(picture.height + _HEAD + 2 * _MARGIN)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield f"<title>{_escape(chart.title)}: {chart.size}</title>"
    yield _STYLE
    yield _ARROW
    yield f'<text x="{_MARGIN:g}" y="{_MARGIN + 12:g}" class="title">{_escape(title)}</text>'
    after = _MARGIN + cell_len(title) * _TITLE_CELL + 24
    yield f'<text x="{after:g}" y="{_MARGIN + 12:g}" class="size">{chart.size}</text>'
    yield f'<g transform="translate({_MARGIN:g},{_MARGIN + _HEAD:g})">'


def _frames(chart: Chart, picture: Picture) -> Iterator[str]:
    nodes = {node.id: node for node in chart.nodes}
    for name, box in picture.frames.items():
        cells = int((box.width - 2 * _PADDING) / _CELL)
        yield from _box(nodes[name], box, "none", cells, "frame")
    for words, (x, y) in picture.rounds:
        yield f'<text class="soft" x="{x:.1f}" y="{y:.1f}">{words}</text>'
    for name, corners in picture.backs.items():
        path = "M" + " L".join(f"{x:.0f},{y:.0f}" for x, y in corners)
        yield f'<path class="edge back" d="{path}" marker-end="url(#arrow)"><title>{_escape(name)} again</title></path>'
    for corners in picture.nexts:
        yield f'<path class="edge" d="{path_of(corners)}" marker-end="url(#arrow)"/>'


def _edges(picture: Picture) -> Iterator[str]:
    for edge, corners in picture.arrows:
        before, after = map(_escape, edge)
        yield (
            f'<path class="edge" data-from="{before}" data-to="{after}" d="{path_of(corners)}" '
            f'marker-end="url(#arrow)"><title>{before} to {after}</title></path>'
        )


def _boxes(chart: Chart, picture: Picture, cells: int) -> Iterator[str]:
    workers = {who: number for number, who in enumerate(dict.fromkeys(node.who for node in chart.nodes))}
    for node in chart.nodes:
        ground = _GROUNDS[workers[node.who] % len(_GROUNDS)]
        if node.id in picture.boxes:
            yield from _box(node, picture.boxes[node.id], ground, cells, "task")
        elif node.id in picture.squares:
            yield (
                f'<rect class="square" data-task="{_escape(node.id)}" {_place(picture.squares[node.id])} rx="2" '
                f'fill="{ground}"><title>{_tooltip(node)}</title></rect>'
            )


def _place(box: Box) -> str:
    return f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _tooltip(node: Node) -> str:
    return _escape(chr(10).join([*_lines(node), node.description]))


def _box(node: Node, box: Box, ground: str, cells: int, kind: str) -> Iterator[str]:
    yield f'<g class="{kind}" data-task="{_escape(node.id)}">'
    yield f"<title>{_tooltip(node)}</title>"
    yield f'<rect {_place(box)} rx="6" fill="{ground}"/>'
    lines = [("id", _cut_middle(node.id, cells)), ("who", _cut(node.who, cells)), ("remark", _cut(node.remark, cells))]
    for number, (style, line) in enumerate(entry for entry in lines if entry[1]):
        place = f'x="{box.x + _PADDING:.1f}" y="{box.y + _PADDING + 9 + number * _LINE:.1f}"'
        yield f'<text {place} class="{style}">{_escape(line)}</text>'
    yield "</g>"


# ---------------------------------------------------------------- text


def _cut(text: str, cells: int) -> str:
    """Cut a text to this many columns of a monospaced font."""
    return text if cell_len(text) <= cells else chop_cells(text, cells - 1)[0] + "…"


def _cut_middle(task_id: str, cells: int) -> str:
    """Cut an id in the middle, because the ids of many tasks often differ at their ends."""
    if len(task_id) <= cells:
        return task_id
    end = cells // 2
    return f"{task_id[: cells - end - 1]}…{task_id[-end:]}"


def _escape(text: str) -> str:
    return html.escape(NOT_XML.sub("?", text))
