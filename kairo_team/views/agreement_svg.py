"""Draw a judge against a human as one SVG picture: a table of counts, and how often they agree."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_CELL: Final = 84.0
_ROW: Final = 44.0
_LEFT: Final = 110.0
_TOP: Final = 64.0
_FOOT: Final = 84.0
_SCALE: Final = 240.0
"""Width of the line from 0 % to 100 %."""
_LONGEST: Final = 11
"""Characters of a level's name that fit over a cell; the tooltips below have the whole name."""
_GREY: Final = "#7a8490"
"""4 to 1 against white and against near-black."""
_STYLE: Final = f"""<style>
text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {_GREY} }}
.title {{ font-size: 14px; font-weight: bold }}
.axis {{ stroke: {_GREY}; fill: none }}
.same {{ fill: #2a9d6f }}
.other {{ fill: #d98324 }}
.left {{ fill: {_GREY} }}
.interval {{ stroke: #2a9d6f; stroke-width: 2; fill: none }}
.baseline {{ stroke: #c0392b; stroke-width: 2; stroke-dasharray: 3 2; fill: none }}
</style>"""


@dataclass(frozen=True, slots=True)
class AgreementPanel:
    """One panel of the picture: a table of counts, and a line with the agreement."""

    title: str
    levels: Sequence[str]
    counts: Sequence[Sequence[int]]
    """Rows are the human's levels, columns the judge's."""
    unanswered: Sequence[int]
    """Artifacts without an answer of the judge, by the human's level."""
    agreed: tuple[float, float, float] | None
    """The share on which they agree, and the ends of its interval, from 0 to 1; None where nothing was answered."""
    majority: float | None
    """The agreement, from 0 to 1, of always answering the most frequent level."""


def draw_agreement(panels: Sequence[AgreementPanel]) -> str:
    """Return the picture's text: one panel below the other."""
    width = _LEFT + max((len(one.levels) + 1) * _CELL for one in panels) + 24
    width = max(width, _LEFT + _SCALE + 190)
    heights = [_TOP + len(one.levels) * _ROW + _FOOT for one in panels]
    size = f'width="{width:.0f}" height="{sum(heights):.0f}" viewBox="0 0 {width:.0f} {sum(heights):.0f}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">']
    parts += ["<title>A judge compared with a human</title>", _STYLE]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({_LEFT:.0f},{sum(heights[:number]) + _TOP:.0f})">')
        parts += [*_table(panel), *_line(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _table(panel: AgreementPanel) -> Iterator[str]:
    """Draw the counts; the bar in a cell is its share of the row, which is one level of the human's."""
    yield _label(8 - _LEFT, -42, panel.title, "start", "title")
    yield _label(8 - _LEFT, -8, "human / judge", "start", "corner")
    for column, level in enumerate((*panel.levels, "no answer")):
        yield _label((column + 0.5) * _CELL, -8, level, "middle")
    for row, level in enumerate(panel.levels):
        cells = (*panel.counts[row], panel.unanswered[row])
        yield _label(-10, row * _ROW + 20, level, "end")
        for column, many in enumerate(cells):
            # `or 1`: a level that the human never gave has an empty row.
            x, y, share = column * _CELL, row * _ROW, many / (sum(cells) or 1)
            kind = "left" if column == len(panel.levels) else "same" if row == column else "other"
            said = (*panel.levels, "no answer")[column]
            what = html.escape(f"human: {level}; judge: {said}; {share:.0%} of this row")
            yield f'<path class="axis" d="M{x:.0f},{y:.0f} h{_CELL:.0f} v{_ROW:.0f} h-{_CELL:.0f} z"/>'
            yield _label(x + _CELL / 2, y + 20, f"{many:,}", "middle")
            bar = f'x="{x + 6:.1f}" y="{y + _ROW - 14:.1f}" width="{share * (_CELL - 12):.1f}" height="8"'
            yield f'<rect class="{kind}" {bar}><title>{what}</title></rect>'


def _line(panel: AgreementPanel) -> Iterator[str]:
    """Draw the share on which they agree with its interval, and the baseline, on a line from 0 % to 100 %."""
    y = len(panel.levels) * _ROW + 34
    yield _label(-10, y + 4, "agrees", "end")
    yield f'<path class="axis" d="M0,{y:.0f} H{_SCALE:.0f}"/>'
    for share in (0.0, 0.5, 1.0):
        yield f'<path class="axis" d="M{share * _SCALE:.0f},{y - 3:.0f} v6"/>'
        yield _label(share * _SCALE, y + 22, f"{share:.0%}", "middle")
    if panel.majority is not None:
        what = f"always the most frequent level: {panel.majority:.1%}"
        x = panel.majority * _SCALE
        yield f'<path class="baseline" d="M{x:.1f},{y - 12:.0f} v24"><title>{what}</title></path>'
    if panel.agreed is not None:
        rate, low, high = (share * _SCALE for share in panel.agreed)
        what = "agrees in {:.1%} ({:.1%} to {:.1%})".format(*panel.agreed)
        ends = f"M{low:.1f},{y - 5:.0f} v10 M{high:.1f},{y - 5:.0f} v10"
        yield f'<path class="interval" d="M{low:.1f},{y:.0f} H{high:.1f} {ends}"/>'
        yield f'<circle class="same" cx="{rate:.1f}" cy="{y:.0f}" r="5"><title>{what}</title></circle>'
        baseline = f", baseline {panel.majority:.0%}" if panel.majority is not None else ""
        yield _label(_SCALE + 12, y + 4, f"{panel.agreed[0]:.0%}{baseline}", "start", "rate")


def _label(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    shown = text if kind or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(shown)}</text>'
