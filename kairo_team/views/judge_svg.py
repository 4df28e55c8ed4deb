"""A judge as SVG pictures: against a human, in a table of counts, and its coverage against its risk."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kairo_team.views.graph_svg import GREY

_STYLE: Final = f"""<style>
text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {GREY} }}
.title {{ font-size: 14px; font-weight: bold }}
.axis {{ stroke: {GREY}; fill: none }}
"""
"""The beginning of the style of each picture."""


def _picture(title: str, style: str, width: float, height: float, parts: Iterable[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, f"<title>{title}</title>", f"{_STYLE}{style}</style>", *parts, "</svg>", ""])


def _label(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(text)}</text>'


# ---------------------------------------------------------------- a judge against a human

_CELL: Final = 84.0
_ROW: Final = 44.0
_BESIDE: Final = 110.0
"""Width of the names of levels at the left of a table."""
_ABOVE: Final = 64.0
_BELOW: Final = 84.0
_SCALE: Final = 240.0
"""Width of the line from 0 % to 100 %."""
_LONGEST: Final = 11
"""Characters of a level's name that fit over a cell; the tooltips below have the whole name."""
_OF_AGREEMENT: Final = f""".same {{ fill: #2a9d6f }}
.other {{ fill: #d98324 }}
.left {{ fill: {GREY} }}
.interval {{ stroke: #2a9d6f; stroke-width: 2; fill: none }}
.baseline {{ stroke: #c0392b; stroke-width: 2; stroke-dasharray: 3 2; fill: none }}
"""


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
    width = _BESIDE + max((len(one.levels) + 1) * _CELL for one in panels) + 24
    width = max(width, _BESIDE + _SCALE + 190)
    heights = [_ABOVE + len(one.levels) * _ROW + _BELOW for one in panels]
    parts: list[str] = []
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({_BESIDE:.0f},{sum(heights[:number]) + _ABOVE:.0f})">')
        parts += [*_table(panel), *_line(panel), "</g>"]
    return _picture("A judge compared with a human", _OF_AGREEMENT, width, sum(heights), parts)


def _table(panel: AgreementPanel) -> Iterator[str]:
    """Draw the counts; the bar in a cell is its share of the row, which is one level of the human's."""
    yield _label(8 - _BESIDE, -42, panel.title, "start", "title")
    yield _label(8 - _BESIDE, -8, "human / judge", "start", "corner")
    for column, level in enumerate((*panel.levels, "no answer")):
        yield _label((column + 0.5) * _CELL, -8, _short(level), "middle")
    for row, level in enumerate(panel.levels):
        cells = (*panel.counts[row], panel.unanswered[row])
        yield _label(-10, row * _ROW + 20, _short(level), "end")
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


def _short(level: str) -> str:
    return level if len(level) <= _LONGEST else f"{level[: _LONGEST - 1]}…"


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


# ---------------------------------------------------------------- coverage against risk

_WIDTH: Final = 320.0
_HEIGHT: Final = 200.0
_LEFT: Final = 56.0
_TOP: Final = 44.0
_GAP: Final = 36.0
_FOOT: Final = 52.0
_COLUMNS: Final = 2
_LEAST_RISK: Final = 0.05
"""Lowest upper end of the axis of risk."""
_OF_RISK: Final = f""".start {{ stroke: {GREY}; stroke-dasharray: 2 4 }}
.alpha {{ stroke: #c0392b; stroke-dasharray: 6 4 }}
.risk {{ stroke: #2f7fbf; stroke-width: 2; fill: none }}
.bound {{ stroke: #d98324; stroke-width: 2; fill: none }}
.chosen {{ fill: #2a9d6f }}
"""


@dataclass(frozen=True, slots=True)
class RiskCurve:
    """One panel of the picture."""

    title: str
    alpha: float
    points: Sequence[tuple[float, float, float]]
    """From strict to lax: coverage, share that is wrong, and its upper bound; each from 0 to 1."""
    chosen: float | None
    """Coverage at the chosen threshold; None without one."""
    start: float | None = None
    """Coverage at the first tested threshold; None without one."""


def draw_risk(curves: Sequence[RiskCurve]) -> str:
    """Return the picture's text: a panel for each curve, two in a row."""
    columns = min(len(curves), _COLUMNS)
    across, down = _LEFT + _WIDTH + _GAP, _TOP + _HEIGHT + _FOOT
    width, height = columns * across, -(-len(curves) // _COLUMNS) * down
    parts: list[str] = []
    for number, curve in enumerate(curves):
        x, y = _LEFT + number % _COLUMNS * across, _TOP + number // _COLUMNS * down
        parts.append(f'<g transform="translate({x:.0f},{y:.0f})">')
        parts += [*_panel(curve), "</g>"]
    return _picture("Coverage against risk", _OF_RISK, width, height, parts)


def _panel(curve: RiskCurve) -> Iterator[str]:
    top = min(1.0, 1.25 * max([_LEAST_RISK, 1.6 * curve.alpha, *(risk for _, risk, _ in curve.points)]))
    yield f'<text class="title" x="0" y="-22">{html.escape(curve.title)}</text>'
    yield f'<path class="axis" d="M0,0 V{_HEIGHT:.0f} H{_WIDTH:.0f}"/>'
    for share in (0.0, 0.5, 1.0):
        yield _label(share * _WIDTH, _HEIGHT + 18, f"{share:.0%}", "middle")
        yield _label(-6, _HEIGHT * (1 - share) + 4, f"{share * top:.0%}", "end")
    yield _label(_WIDTH / 2, _HEIGHT + 38, "decided so, of all artifacts", "middle")
    yield _label(0, -6, "wrong, of what is decided so", "start")
    line = _HEIGHT * (1 - curve.alpha / top)
    yield f'<path class="alpha" d="M0,{line:.1f} H{_WIDTH:.0f}"><title>at most {curve.alpha:.1%}</title></path>'
    if curve.start is not None:
        x = curve.start * _WIDTH
        yield f'<path class="start" d="M{x:.1f},0 V{_HEIGHT:.0f}"><title>tested from here on</title></path>'
    yield from _curve("bound", [(coverage, bound) for coverage, _, bound in curve.points], top)
    yield from _curve("risk", [(coverage, risk) for coverage, risk, _ in curve.points], top)
    if curve.chosen is not None:
        bound = next(bound for coverage, _, bound in curve.points if coverage == curve.chosen)
        x, y = curve.chosen * _WIDTH, _HEIGHT * (1 - bound / top)
        yield f'<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>chosen</title></circle>'
    else:
        yield _label(_WIDTH / 2, _HEIGHT / 2, "no threshold keeps the promise", "middle")


def _curve(kind: str, points: Sequence[tuple[float, float]], top: float) -> Iterator[str]:
    """Draw a line through the points; points above the picture are drawn at its edge."""
    if not points:
        return
    places = [(coverage * _WIDTH, _HEIGHT * (1 - min(share, top) / top)) for coverage, share in points]
    what = "counted" if kind == "risk" else "upper bound"
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="{kind}" points="{line}"><title>{what}</title></polyline>'
    yield from (f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in places)
    yield _label(places[-1][0] + 5, places[-1][1] + 4, what, "start")
