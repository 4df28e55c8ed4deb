"""The tables of `docs/revising.md`, made of the measured rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.revising import counts
from benchmarks.revising.counts import TEXTS, WAYS
from benchmarks.revising.rows import Row
from kairo_team.evaluators.calibration.confidence_bounds import Proportion


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of all tables."""
    yield from _shares(rows)
    yield ""
    yield from _gains(rows)
    yield ""
    yield from _pairs(rows)
    yield ""
    yield from _kinds(rows)
    yield ""
    yield from _loops(rows)


def _shares(rows: Sequence[Row]) -> Iterator[str]:
    yield f"| share of {len(rows)} that passes | 1 text | 2 | 3 | 4 | tokens in all |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, reach in WAYS.items():
        made = [reach(rows, k) for k in TEXTS]
        cells = " | ".join(_percent(one.share) for one in made)
        yield f"| {name} | {cells} | {made[-1].tokens:,} |"


def _gains(rows: Sequence[Row]) -> Iterator[str]:
    yield "| of those that reached it, pass at | text 2 | text 3 | text 4 |"
    yield "| --- | ---: | ---: | ---: |"
    arms = {"with findings": "findings_on", '"Try again."': "again_on", "fresh texts": "anew"}
    for name, arm in arms.items():
        _, *later = counts.gains(rows, arm)
        yield f"| {name} | {' | '.join(f'{one.k} of {one.n}, {_percent(one)}' for one in later)} |"


def _pairs(rows: Sequence[Row]) -> Iterator[str]:
    yield "| after at most 4 texts | only the first passes | only the second | by chance |"
    yield "| --- | ---: | ---: | ---: |"
    names, last = list(WAYS), TEXTS[-1]
    reached = [WAYS[name](rows, last) for name in names]
    for one, other in ((0, 1), (0, 2), (0, 3), (1, 2)):
        pair = counts.compare(reached[one], reached[other])
        chance = "< 0.001" if pair.chance < 0.001 else f"{pair.chance:.3f}"  # noqa: PLR2004 - as it says
        yield f"| {names[one]}; {names[other]} | {pair.one_only} | {pair.other_only} | {chance} |"


def _kinds(rows: Sequence[Row]) -> Iterator[str]:
    names = list(WAYS)[:3]
    yield f"| kind, pass of each | 1 text | {' | '.join(names)} |"
    yield f"| --- | ---: |{' ---: |' * len(names)}"
    made = [WAYS[names[0]](rows, 1), *(WAYS[name](rows, TEXTS[-1]) for name in names)]
    for kind, places in counts.kinds(rows).items():
        at_once, *last = [sum(one.passed[place] for place in places) for one in made]
        yield f"| {kind} | {at_once} of {len(places)} | {' | '.join(map(str, last))} |"


def _loops(rows: Sequence[Row]) -> Iterator[str]:
    early, later = counts.stopped(rows)
    yield f"- Loops with findings that ended before their fourth text, without a pass: {early} of {len(rows)}."
    yield f"- Of these, {later.n} continued when the rule was left out; {later.k} of them pass."
    for name, arm in (("with findings", "findings_on"), ('with "Try again."', "again_on")):
        same = counts.unchanged(rows, arm)
        yield f"- Revisions {name} that gave back the text unchanged: {same.k} of {same.n}."


def _percent(share: Proportion) -> str:
    return f"{share.rate or 0:.0%} ({share.low:.0%} to {share.high:.0%})"
