"""The picture of `docs/revising.md`: the share that passes by the number of texts, with exact intervals."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.revising.counts import TEXTS, WAYS
from benchmarks.revising.rows import Row
from kairo_team.evaluators.calibration.confidence_bounds import Proportion

DRAWN: Final = dict(zip(list(WAYS)[:3], ("#0072B2", "#D55E00", "#009E73"), strict=True))
"""The ways that are drawn, and their colours."""
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 48, 110
STEP: Final = 0.1
"""The axis ends at a multiple of this share."""
ASIDE: Final = 8
"""Points at the same number of texts lie so far apart."""
AXIS: Final = "revised texts, or fresh texts for the same tokens"
FONT: Final = 'font-family="sans-serif" font-size="13" fill="#222"'


def draw(rows: Sequence[Row]) -> str:
    """Return the picture's text."""
    lines = {name: [WAYS[name](rows, k).share for k in TEXTS] for name in DRAWN}
    steps = int(max(share.high for shares in lines.values() for share in shares) / STEP) + 1
    parts = [*_frame(len(rows)), *_grid(steps)]
    for number, (name, shares) in enumerate(lines.items()):
        parts += _line(name, shares, number, min(1.0, steps * STEP))
    return "\n".join([*parts, "</svg>", ""])


def _frame(count: int) -> Iterator[str]:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield "<title>Share of instructions that pass, by the number of texts</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    yield f'<text x="{LEFT}" y="24" {FONT} font-weight="bold">Pass, of {count}, with 95 % intervals</text>'
    yield f'<text x="{LEFT + _width() / 2:.0f}" y="{HEIGHT - BOTTOM + 40}" {FONT} text-anchor="middle">{AXIS}</text>'


def _grid(steps: int) -> Iterator[str]:
    for step in range(steps + 1):
        y = _y(step / steps, 1.0)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" {FONT} text-anchor="end">{step * STEP:.0%}</text>'
    for texts in TEXTS:
        yield f'<text x="{_x(texts):.1f}" y="{HEIGHT - BOTTOM + 20}" {FONT} text-anchor="middle">{texts}</text>'


def _line(name: str, shares: Sequence[Proportion], number: int, top: float) -> Iterator[str]:
    colour = DRAWN[name]
    xs = [_x(texts) + ASIDE * (number - 1) for texts in TEXTS]
    points = " ".join(f"{x:.1f},{_y(share.rate or 0.0, top):.1f}" for x, share in zip(xs, shares, strict=True))
    yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, share in zip(xs, shares, strict=True):
        low, high = _y(share.low, top), _y(share.high, top)
        yield f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{_y(share.rate or 0.0, top):.1f}" r="4" fill="{colour}"/>'
    y = HEIGHT - 48 + 20 * number
    yield f'<rect x="{LEFT}" y="{y - 9}" width="14" height="4" fill="{colour}"/>'
    yield f'<text x="{LEFT + 20}" y="{y}" {FONT}>{html.escape(name)}</text>'


def _width() -> int:
    return WIDTH - LEFT - RIGHT


def _x(texts: int) -> float:
    return LEFT + (texts - 0.5) / len(TEXTS) * _width()


def _y(share: float, top: float) -> float:
    return HEIGHT - BOTTOM - share / top * (HEIGHT - TOP - BOTTOM)
