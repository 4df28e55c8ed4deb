"""A plan as a Mermaid flowchart, which GitHub and many editors draw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kairo_team.views.graph_chart import Chart

MOST_EDGES: Final = 500
"""Edges that Mermaid draws unless its own configuration, which no chart can change, allows more (`maxEdges`)."""
MOST_CHARACTERS: Final = 50_000
"""Length of a chart that Mermaid reads unless its own configuration allows more (`maxTextSize`)."""

_PLAIN: Final = r"[^\W_]|[ ,?!'(=/]|(?<=[^\W\d_])[.)](?=\s|$)|(?<=[^\W_])[-_](?=[^\W_])"
_CHARACTER: Final = re.compile(f"({_PLAIN})|(.)", re.DOTALL)
"""Characters that need no escape anywhere in a label, and all others: quotes and brackets, which are Mermaid's, tags,
which are HTML's, and marks that begin a list, a heading, an emphasis or an entity."""


def draw_mermaid(chart: Chart) -> str:
    """Return the flowchart's text, from left to right; tasks are `t1`, `t2` and so on, in plan order."""
    names = {node.id: f"t{number}" for number, node in enumerate(chart.nodes, 1)}
    # A string of JSON is one of YAML, on one line; without anything that looks like a tag.
    title = json.dumps(chart.title, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    lines = ["---", f"title: {title}", "---", "flowchart LR"]
    for node in chart.nodes:
        label = "<br/>".join(_escape(line) for line in (node.id, node.who, node.remark) if line)
        lines.append(f'    {names[node.id]}["{label}"]')
    lines += [f"    {names[before]} --> {names[after]}" for before, after in chart.edges]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Write every character that could have a meaning in Mermaid, HTML or Markdown as `#NN;`."""
    return _CHARACTER.sub(lambda found: found[1] or f"#{ord(found[2])};", text)


def mermaid_limits(chart: Chart, text: str) -> Iterator[str]:
    """Yield a sentence for each limit of Mermaid that the chart exceeds."""
    if len(chart.edges) > MOST_EDGES:
        yield f"the chart has {len(chart.edges):,} edges, and Mermaid draws {MOST_EDGES} unless its maxEdges is raised"
    if len(text) > MOST_CHARACTERS:
        size, most = f"{len(text):,}", f"{MOST_CHARACTERS:,}"
        yield f"the chart has {size} characters, and Mermaid reads {most} unless its maxTextSize is raised"
