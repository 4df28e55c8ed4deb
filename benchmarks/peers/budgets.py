"""Run the budget experiment for every library, each in an environment of its own, and print one table.

An environment is kept in the folder `--envs` and used again; without that it is removed when the program ends. A
library that cannot be installed is skipped, with the reason.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers.experiment import LIMIT
from benchmarks.peers.programs import Skipped, line, run

WIDTHS: Final = (1, 4, 16, 32, 128)
OURS: Final = "kairo_team"
PEERS: Final[Mapping[str, Sequence[str]]] = {
    "pydantic_ai": ("pydantic-ai-slim",),
    "inspect_ai": ("inspect-ai",),
    "agentbudget": ("agentbudget",),
    "shekel": ("shekel", "openai"),
    "tokencap": ("tokencap", "openai"),
}
"""What to install for each module of this package."""


def environment(requirements: Sequence[str], folder: Path) -> str:
    """Return the Python of an environment that has the requirements, made where it is not there yet."""
    python = folder / "bin" / "python"
    stamp = folder / "installed"
    if not stamp.exists():
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *requirements])
        stamp.touch()
    return str(python)


def measure(module: str, python: str) -> tuple[str, list[int]]:
    """Return a library's name and version, and what it spent at each width."""
    said = [json.loads(run([python, "-m", f"benchmarks.peers.{module}", "--width", str(width)])) for width in WIDTHS]
    return f"{said[0]['peer']} {said[0]['version']}", [each["spent"] for each in said]


def cells(spent: Sequence[int]) -> list[str]:
    """Write amounts, those above the limit in bold."""
    return [f"**{amount:,}**" if amount > LIMIT else f"{amount:,}" for amount in spent]


def main(kept: Path | None) -> None:
    """Measure everybody and print the table; `kept` is where the environments are kept."""
    with tempfile.TemporaryDirectory() as temporary:
        envs = (kept or Path(temporary)).absolute()
        print(line(f"callers at once, {LIMIT} tokens", [str(width) for width in WIDTHS]))
        print(line("---", ["---:"] * len(WIDTHS)))
        for module, requirements in {OURS: (), **PEERS}.items():
            try:
                python = environment(requirements, envs / module) if requirements else sys.executable
                name, spent = measure(module, python)
            except Skipped as reason:
                print(f"{module} skipped: {reason}", file=sys.stderr)
            else:
                print(line(name, cells(spent)), flush=True)
