"""What a package shows of its kits: a badge, and a page that lists many packages; both from `kairo plugins` reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

_WIDTH: Final = 6.6
"""Width of one character of the badge, about."""
_GREEN, _RED = "#2f7d32", "#b3261e"
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>()#|!])")


def badge_of(documents: Sequence[Mapping[str, Any]], package: str | None = None) -> str:
    """Return an SVG that says which contracts a package keeps; needs no network.

    Raises `ValueError` without a kit of the package. `package` may be left out if only one package has kits.
    """
    runs = [run for run in _runs(documents) if package in (None, run["distribution"])]
    names = sorted({run["distribution"] for run in runs})
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise ValueError(f"a badge is of one package with kits, and here are {found}: name one by --package")
    ok = all(run["problem"] is None for run in runs)
    kept = ", ".join(f"{contract} {version}" for contract, version, _ in _contracts(runs))
    right = (kept or "no kit") if ok else "a clause does not hold"
    return _svg("kairo-team", right, _GREEN if ok else _RED)


def page_of(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown page that lists the plug-ins of all packages in the documents, with what their kits say."""
    lines = ["# Plug-ins for kairo-team", "", "| package | plug-ins | contracts | kits |", "|---|---|---|---|"]
    runs = _runs(documents)
    plugins = [one for document in documents for one in document["plugins"] if not one["built_in"]]
    for name, version in sorted({(one["distribution"], one["version"]) for one in plugins}):
        own = [one for one in plugins if (one["distribution"], one["version"]) == (name, version)]
        named = ", ".join(sorted({f"{one['kind']} {one['name']}" for one in own}))
        mine = [run for run in runs if (run["distribution"], run["version"]) == (name, version)]
        kept = ", ".join(f"{contract} {of} ({count})" for contract, of, count in _contracts(mine))
        lines.append(f"| {' | '.join(map(_plain, (f'{name} {version}', named, kept or '-', _said(mine))))} |")
    return "\n".join(lines) + "\n"


def _runs(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of kits in all documents; `ValueError` for a document without them."""
    missing = [document for document in documents if not isinstance(document.get("kits"), list)]
    if missing:
        raise ValueError("a report has no kits: write it by `kairo plugins --check --kit --json`")
    return [run for document in documents for run in document["kits"]]


def _contracts(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield contract, version and "11 of 15 clauses" of the reports, each once."""
    found: dict[tuple[str, str, str], None] = {}
    for report in (report for run in runs for report in run["reports"]):
        outcomes = [clause["outcome"] for clause in report["clauses"].values()]
        count = f"{outcomes.count('passed')} of {len(outcomes)} clauses"
        found[str(report["contract"]), str(report["version"]), count] = None
    yield from found


def _said(runs: Sequence[Mapping[str, Any]]) -> str:
    problems = [run["problem"] for run in runs if run["problem"] is not None]
    return "; ".join(problems) or ("nothing failed" if runs else "ships none")


def _plain(text: str) -> str:
    """Return a text of a package as one cell of a table, in which nothing is Markdown or HTML."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _svg(left: str, right: str, colour: str) -> str:
    one, two = (round(len(text) * _WIDTH + 12) for text in (left, right))
    words = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + two}" height="20" role="img" aria-label="{words}">'
        f"<title>{words}</title>"
        f'<rect width="{one}" height="20" fill="#444"/><rect x="{one}" width="{two}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{one / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{one + two / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )
