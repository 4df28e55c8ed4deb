"""Coverage against risk as one SVG picture: the share that a judge decides by itself, and its wrong part."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_WIDTH: Final = 320.0
_HEIGHT: Final = 200.0
_LEFT: Final = 56.0
_TOP: Final = 44.0
_GAP: Final = 36.0
_FOOT: Final = 52.0
_COLUMNS: Final = 2
_LEAST_RISK: Final = 0.05
"""Lowest upper end of the axis of risk."""

_GREY: Final = "#7a8490"
"""4 to 1 against white and against near-black."""
_STYLE: Final = f"""<style>
text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {_GREY} }}
.title {{ font-size: 14px; font-weight: bold }}
.axis {{ stroke: {_GREY}; fill: none }}
.start {{ stroke: {_GREY}; stroke-dasharray: 2 4 }}
.alpha {{ stroke: #c0392b; stroke-dasharray: 6 4 }}
.risk {{ stroke: #2f7fbf; stroke-width: 2; fill: none }}
.bound {{ stroke: #d98324; stroke-width: 2; fill: none }}
.chosen {{ fill: #2a9d6f }}
</style>"""


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
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">']
    parts += ["<title>Coverage against risk</title>", _STYLE]
    for number, curve in enumerate(curves):
        x, y = _LEFT + number % _COLUMNS * across, _TOP + number // _COLUMNS * down
        parts.append(f'<g transform="translate({x:.0f},{y:.0f})">')
        parts += [*_panel(curve), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


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


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(text)}</text>'
