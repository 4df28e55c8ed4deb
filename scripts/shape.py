"""Print how long files and functions are, each figure with its limit, how much is shipped, and how it reads.

`--all` names every long function. A body counts the lines from its first statement after the docstring to its last,
without blanks and comments.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts import plain_english

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("kairo_team", "coordinators", "evaluators", "tck", "examples")
_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|pyright:|pragma|fmt:)")
MAX_FILE, MAX_MEDIAN, MAX_P90, MAX_BODY = 800, 8, 25, 60


class Function(NamedTuple):
    """A function's body length in lines, and where it stands."""

    lines: int
    where: str


def sources() -> list[Path]:
    """Return the shipped Python files, each once: the links inside kairo_team are not followed."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def functions(path: Path) -> Iterator[Function]:
    """Yield every function of a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            span = lines[body[0].lineno - 1 : body[-1].end_lineno] if body else []
            count = sum(1 for line in span if line.strip() and not line.lstrip().startswith("#"))
            yield Function(count, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")


def count_comments(text: str) -> tuple[int, int]:
    """Return how many lines are comments, and how many have one at their end, without those that a tool reads."""
    found = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT]
    above = sum(one.line.lstrip().startswith("# ") for one in found)
    beside = sum(not one.line.lstrip().startswith("#") and not _FOR_TOOLS.match(one.string) for one in found)
    return above, beside


def percentile(values: list[int], share: float) -> int:
    """Return the smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, -int(-len(values) * share // 1) - 1)]


def main() -> None:
    """Print the table, then the files and functions above the limits."""
    files = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    found = sorted((each for path in files for each in functions(path)), reverse=True)
    if not found:
        sys.exit("no functions found")
    lengths, bodies = list(files.values()), [each.lines for each in found]
    rows = [("files", lengths, ("", "", MAX_FILE)), ("functions", bodies, (MAX_MEDIAN, MAX_P90, MAX_BODY))]
    print(f"{'lines of code':14}{'count':>7}{'median':>12}{'p90':>12}{'max':>12}")
    for name, values, limits in rows:
        figures = statistics.median_high(values), percentile(values, 0.9), max(values)
        cells = (f"{value} / {limit}" if limit else f"{value}" for value, limit in zip(figures, limits, strict=True))
        print(f"{name:14}{len(values):7}" + "".join(f"{cell:>12}" for cell in cells))
    shipped = {path: count for path, count in files.items() if (ROOT / "tck") not in path.parents}
    comments = [count_comments(path.read_text(encoding="utf-8")) for path in shipped]
    print(f"lines shipped, without the kits: {sum(shipped.values()):,}")
    above, beside = (100 * sum(each) / sum(shipped.values()) for each in zip(*comments, strict=True))
    print(f"lines of comments: {above:.2f} of 100, and {beside:.2f} at the end of a line")
    for name, paths in (("code", plain_english.CODE), ("docs", plain_english.DOCS)):
        print(f"places to read twice, {name}: {len(plain_english.places(paths)):,}")
    for path, count in files.items():
        if count > MAX_FILE:
            print(f"too long: {path.relative_to(ROOT)} has {count} lines")
    floor = MAX_P90 if "--all" in sys.argv[1:] else MAX_BODY
    for function in found:
        if function.lines > floor:
            print(f"{'too long' if function.lines > MAX_BODY else 'long'}: {function.where} has {function.lines} lines")


if __name__ == "__main__":
    main()
