"""The recorded results, and the tables of docs/machines-measured.md that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "machines-measured.md"
MARKER: Final = re.compile(r"(<!-- machines: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
FAULTS: Final = ("killed", "stopped", "kills")
NAMES: Final = {"kairo_team": "kairo-team", "dbos": "DBOS alone", "celery": "Celery", "ray": "Ray"}
WAYS: Final = {
    "dbos": "engine DBOS",
    "procrastinate": "engine procrastinate",
    "visibility_timeout=10": "Redis, `visibility_timeout` of 10 s",
    "Redis": "Redis, `visibility_timeout` of an hour",
    "nobody starts the dead executor again": "the dead executor is not started again",
}
"""Name of a way on the page, if it differs from the name in the results."""
ALL: Final = {"killed": 20, "stopped": 20, "kills": 96}
"""Steps of the job, by fault."""
TITLES: Final = ("the job ends", "seconds until then", "calls", "cut", "answered calls repeated", "two at once")

Results = list[dict[str, Any]]
"""A module, a way, a fault, and what was seen each time."""


def load() -> Results:
    """Read what was recorded."""
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    return results


def record(module: str, way: str, fault: str, seen: Sequence[Mapping[str, Any]]) -> None:
    """Write down what was seen, in the place of what was there before."""
    kept = [one for one in load() if (one["module"], one["way"], one["fault"]) != (module, way, fault)]
    kept.append({"module": module, "way": way, "fault": fault, "seen": list(seen)})
    order = list(NAMES)
    kept.sort(key=lambda one: order.index(one["module"]))
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def redraw(page: str, results: Results) -> str:
    """Return the page with all tables drawn again."""
    return MARKER.sub(lambda found: f"{found[1]}{draw(found[2], results)}{found[3]}", page)


def write_page() -> None:
    """Draw the tables of the page again."""
    PAGE.write_text(redraw(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")


def draw(part: str, results: Results) -> str:
    """Return one table: of a fault, of the `versions`, or of what kairo-team has in its `books`."""
    rows = _rows(part, results) if part in FAULTS else {"versions": _versions, "books": _books}[part](results)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(fault: str, results: Results) -> Iterator[list[str]]:
    titles = [*TITLES[:2], "kills", *TITLES[2:], "steps lost"] if fault == "kills" else [*TITLES]
    yield ["library", *titles]
    yield ["---", "---", *["---:"] * (len(titles) - 1)]
    for one in results:
        if one["fault"] == fault:
            seen = one["seen"]
            ended = [each for each in seen if each["seconds"] is not None]
            seconds = _span([round(each["seconds"], 1) for each in ended]) if ended else "-"
            figures = [_span([each["bill"][name] for each in seen]) for name in ("calls", "cut", "again", "twice")]
            if fault == "kills":
                figures = [_span([each["faults"] for each in seen]), *figures, _span([_lost(each) for each in seen])]
            way = one["way"].replace("after 5 s", "at once") if fault == "kills" else one["way"]
            name = f"{NAMES[one['module']]}, {WAYS.get(way, way)}"
            yield [name, f"{len(ended)} of {len(seen)} times", seconds, *figures]


def _lost(seen: Mapping[str, Any]) -> int:
    """Return how many steps had no answer that a living worker heard, when the measurement ended."""
    if seen["said"]:
        return ALL["kills"] - int(seen["said"]["answers"])
    bill = seen["bill"]
    cut_and_repeated = bill["calls"] - bill["steps"] - bill["again"]
    return max(0, int(bill["cut"]) - cut_and_repeated)


def _versions(results: Results) -> Iterator[list[str]]:
    yield ["library", "version"]
    yield ["---", "---"]
    found = {one["module"]: each["said"]["version"] for one in results for each in one["seen"] if each["said"]}
    for module, version in found.items():
        yield [NAMES[module], version]


def _books(results: Results) -> Iterator[list[str]]:
    names = {"recorded": "calls recorded", "listed": "of them in doubt", "tokens": "tokens charged"}
    yield ["kairo-team", "calls that came to the provider", *names.values()]
    yield ["---", *["---:"] * (len(names) + 1)]
    for one in results:
        if one["module"] == "kairo_team" and one["fault"] != "kills":
            said = [each["said"] for each in one["seen"] if each["said"]]
            came = _span([each["bill"]["calls"] for each in one["seen"]])
            yield [
                f"{WAYS[one['way']]}, {one['fault']}",
                came,
                *(_span([each[name] for each in said]) for name in names),
            ]


def _span(figures: Sequence[float]) -> str:
    """Write the least and the most."""
    least, most = min(figures), max(figures)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
