"""The recorded results, and the tables of docs/side-by-side.md that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.side_by_side.jobs import JOBS
from benchmarks.side_by_side.libraries import LIBRARIES
from benchmarks.side_by_side.provider import TALK
from benchmarks.side_by_side.situations import Seen

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "side-by-side.md"
MARKER: Final = re.compile(r"(<!-- side by side: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

_STATUS: Final = re.compile("(completed|degraded|failed): ")
"""What kairo-team's programs say before the result."""

Results = dict[str, Any]
"""By library: its versions, and by job its lines and what was seen in each situation."""

SITUATIONS: Final = {
    "plain": "calls, tokens",
    "failed": "a branch fails",
    "well": "started again, the branch well",
    "limited": "money runs out",
    "killed": "killed, started again",
}


def load() -> Results:
    """Read what was recorded."""
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return results


def record(library: str, versions: Mapping[str, str], job: str, lines: int, seen: Mapping[str, Seen]) -> None:
    """Write down what was seen of a library in one job, in the place of what was there before."""
    results = load()
    entry = results.setdefault(library, {"versions": {}, "jobs": {}})
    entry["versions"] = dict(versions)
    entry["jobs"][job] = {"lines": lines, "seen": {name: _cut(each) for name, each in seen.items()}}
    ordered = {key: results[key] for key in LIBRARIES if key in results}
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _cut(seen: Seen) -> dict[str, Any]:
    """Return what was seen as data; what came back without the talk that makes it long, and without addresses."""
    came = re.sub(r"https?://\S+", "...", " ".join(seen.came.replace(TALK, "").split()))
    said = came.rstrip(".") if seen.worked else came[:160]
    return {**asdict(seen), "came": said}


def draw(part: str, results: Results) -> str:
    """Return one table: that of a job, or `libraries`."""
    rows = _libraries(results) if part == "libraries" else _job(part, results)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def redraw(page: str, results: Results) -> str:
    """Return the page with all tables drawn anew."""
    return MARKER.sub(lambda found: f"{found[1]}{draw(found[2], results)}{found[3]}", page)


def _libraries(results: Results) -> Iterator[list[str]]:
    yield ["library", "versions", "limit", "kept on disk", *(f"lines: {job.replace('_', ' ')}" for job in JOBS)]
    yield ["---", "---", "---", "---", *("---:" for _ in JOBS)]
    for key, entry in results.items():
        library = LIBRARIES[key]
        numbers = ", ".join(f"{name} {number}" for name, number in entry["versions"].items())
        lines = [str(entry["jobs"][job]["lines"]) if job in entry["jobs"] else "-" for job in JOBS]
        yield [library.name, numbers, library.limit, library.restart, *lines]


def _job(job: str, results: Results) -> Iterator[list[str]]:
    yield ["library", "lines", *SITUATIONS.values()]
    yield ["---", "---:", *("---" for _ in SITUATIONS)]
    for key, entry in results.items():
        if job in entry["jobs"]:
            found = entry["jobs"][job]
            cells = [_cell(name, Seen(**found["seen"][name])) for name in SITUATIONS]
            yield [LIBRARIES[key].name, str(found["lines"]), *cells]


def _cell(situation: str, seen: Seen) -> str:
    """Write what came back, and what was billed for it."""
    if situation == "plain":
        return f"{seen.calls}, {seen.billed:,}" if seen.worked else _came(seen)
    if situation == "limited":
        over = seen.limit is not None and seen.billed > seen.limit
        billed = f"{seen.billed:,} of {seen.limit:,}"
        return f"{f'**{billed}**' if over else billed}; {_came(seen)}"
    if situation == "failed":
        return f"{_came(seen)}; {seen.billed:,} billed"
    again = f"**{seen.again:,}**" if seen.again else "0"
    return f"{_came(seen)}; {seen.billed:,} billed, {again} of it again"


def _came(seen: Seen) -> str:
    if not seen.worked:
        return f"`{seen.came.partition(':')[0]}`"
    status, _, said = seen.came.partition(": ") if _STATUS.match(seen.came) else ("", "", seen.came)
    documents = len(re.findall(r"doc-\d", said))
    if documents:
        said = f"{'joined' if said.startswith('Joined') else 'summaries'}: {documents} of 6 documents"
    said = "nothing" if said == "None" else said[0].lower() + said[1:].rstrip(".")
    return f"{status}: {said}" if status else said
