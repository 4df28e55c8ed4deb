"""Resolve this library beside others, and write the table of it in docs/support.md.

    python -m scripts.room [--dry]

Each cell is one `uv pip compile` of one requirement beside another; nothing is installed. A library that is pushed back
or kept out needs a reason here, whose packages uv has to name too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "support.md"
BEGIN: Final = "<!-- room -->"
END: Final = "<!-- end of room -->"
OURS: Final = {"core": "", "models": "[models]", "all": "[all]"}
OTHERS: Final = (
    "pydantic-ai",
    "crewai",
    "langchain",
    "google-adk",
    "agent-framework",
    "strands-agents",
    "openai-agents",
    "temporalio",
    "fastmcp",
)
WHY: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "pydantic-ai": (
        (
            "`models` needs pydantic-ai-slim 2.64, and no such pydantic-ai can be installed: 2.66 needs a "
            "pydantic-evals that is not on the index; ask for `pydantic-ai-slim` in its place"
        ),
        ("pydantic-ai-slim",),
    ),
    "strands-agents": (
        (
            "`serve`, which is in `all`, needs mcp 2.2 to bound the sessions of its clients, and strands-agents needs "
            "an older mcp"
        ),
        ("mcp",),
    ),
    "crewai": ("crewai needs openai below 3, pydantic-ai-slim 2.64 needs openai 3.31", ("openai", "pydantic-ai-slim")),
}
"""Why a library is not the newest one beside an extra, and the packages that this is about."""


def resolve(*requirements: str) -> tuple[dict[str, str], str]:
    """Return the versions that uv finds, by name, and what it says; no versions where there are none."""
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.in")
        wanted.write_text("\n".join(requirements) + "\n")
        command = [uv, "pip", "compile", "-q", "--python", sys.executable, "--no-header", "--no-annotate", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)", done.stdout, re.MULTILINE))
    return (found if done.returncode == 0 else {}), done.stderr


def row(other: str) -> str:
    """Return the row of a library."""
    newest = resolve(other)[0][other]
    cells: list[str] = []
    backed: str | None = None
    for extras in OURS.values():
        versions, _ = resolve(f"kairo-team{extras} @ {ROOT.as_uri()}", other)
        version = versions.get(other)
        if version != newest and backed is None:
            backed = extras
        cells.append(
            "newest" if version == newest else "impossible" if version is None else f"pushed back to {version}"
        )
    why = ""
    if backed is not None:
        if other not in WHY:
            raise SystemExit(f"{other} is not the newest beside every extra ({cells}): say why in scripts/room.py")
        why, about = WHY[other]
        said = resolve(f"kairo-team{backed} @ {ROOT.as_uri()}", f"{other}=={newest}")[1]
        unnamed = [name for name in about if name not in said]
        if unnamed:
            raise SystemExit(f"the reason for {other} in scripts/room.py is old: uv does not name {unnamed}: {said}")
    return f"| {other} | {newest} | {' | '.join(cells)} | {why} |"


def main() -> None:
    """Resolve everything, two at a time, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.room")
    parser.add_argument("--dry", action="store_true", help="print the table and leave the page alone")
    given = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(row, OTHERS))
    head = [f"| library | newest | {' | '.join(f'`{name}`' for name in OURS)} | why |", "|---|---|---|---|---|---|"]
    table = "\n".join([*head, *rows])
    print(table)
    if not given.dry:
        before, rest = PAGE.read_text().split(BEGIN, 1)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
