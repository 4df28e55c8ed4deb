"""Write the wrapper matrix: `python -m tests.agents.matrix_table` puts it at the top of docs/wrappers-matrix.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.agents.rigs import COLUMNS, Rig, rigs

MEANING = {
    "hold": "sixteen tasks at once under 250 tokens spend no more: the most a call may use is held before it is made",
    "cap": "a reply is capped to what is left, by the library's own `max_tokens`",
    "halt": "a `HaltError` leaves the wrapper unchanged, at a turn and out of a tool",
    "cancel": "a timeout or a cancelled run ends the call in flight",
    "usage": "tokens, loops and tool calls are booked and reported as the model reported them",
    "partial": "the text before a timeout comes back as the partial artifact",
    "guardrails": "all four phases see, change and deny the calls of the library",
    "permissions": "tools that are not allowed are not offered, and the permission guard sees every call",
}
MORE = "\n## At a governed address\n"
"""Where the rest of the page begins, which `python -m scripts.interop` writes."""


def table(rows: Iterable[type[Rig]]) -> str:
    """Write the matrix as a page."""
    rows = list(rows)
    reasons = [f"- {rig.name}, {column}: {why}." for rig in rows for column, why in rig.cannot.items()]
    return "\n".join(
        [
            "# The wrapper matrix",
            "",
            "What each wrapper of another library is proved to do, with the library itself and a scripted model:",
            "every cell is a test of `tests/agents/test_wrapper_matrix.py`. What a wrapper cannot see is listed in",
            "[Agents of other libraries](wrappers.md). Written by `python -m tests.agents.matrix_table`.",
            "",
            f"| | {' | '.join(COLUMNS)} | event loops |",
            f"|---{'|---' * len(COLUMNS)}|---|",
            *map(_row, rows),
            "",
            *(["What a wrapper cannot do:", "", *reasons, ""] if reasons else []),
            *(f"- **{column}**: {meaning}." for column, meaning in MEANING.items()),
            "",
        ]
    )


def _row(rig: type[Rig]) -> str:
    cells = ["no" if column in rig.cannot else "yes" for column in COLUMNS]
    return f"| `{rig.name}` | {' | '.join(cells)} | {', '.join(rig.backends)} |"


if __name__ == "__main__":
    page = Path(__file__).resolve().parents[2] / "docs" / "wrappers-matrix.md"
    page.write_text(table(rigs()) + MORE + page.read_text(encoding="utf-8").split(MORE)[1], encoding="utf-8")
