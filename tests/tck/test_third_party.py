"""The packages of strangers are made of public names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import from the library."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kairo_team":
            yield from ((node.module or "", alias.name) for alias in node.names)


def _public() -> set[tuple[str, str]]:
    """Return the modules and names in `tests/api.txt`."""
    found: set[tuple[str, str]] = set()
    module = ""
    for line in (ROOT / "tests" / "api.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            module = line.removeprefix("# ")
        elif name := re.match(r"(?:class |def |enum |module )?(\w+)", line):
            found.add((module, name[1]))
    return found


def test_packages_of_strangers_import_public_names_alone() -> None:
    files = [*(ROOT / "tests" / "third_party").rglob("*.py")]
    modules = {module for module, _ in _public()}
    strange = {
        f"{path.name}: {module}.{name}"
        for path in files
        for module, name in _imported(path)
        if (module, name) not in _public() and f"{module}.{name}" not in modules
    }
    assert len(files) > 5
    assert not strange, "not in tests/api.txt: " + ", ".join(sorted(strange))
