"""Public names are enough for packages from elsewhere, for what `kairo init` writes and for the pages on plug-ins."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kairo_team.plugins import KINDS

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCES = [
    *sorted((ROOT / "tests/third_party").rglob("*.py")),
    *sorted((ROOT / "kairo_team/cli/project").rglob("*.txt")),
    *(ROOT / "docs" / f"{page}.md" for page in ("extending", "plug-ins", "team-run", "regulated")),
]
PYTHON = ("import ", "from ", '"""', "class ", "async ")


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from the library; the name is "" for the module itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kairo_team":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.partition(".")[0] == "kairo_team")


@cache
def public() -> set[tuple[str, str]]:
    """The modules and names in `tests/api.txt`."""
    found: set[tuple[str, str]] = set()
    module = ""
    for line in (ROOT / "tests/api.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            module = line.removeprefix("# ")
            found.add((module, ""))
        elif name := re.match(r"(?:class |def |enum |module )?(\w+)", line):
            found.add((module, name[1]))
    return found


def pieces(path: Path) -> list[str]:
    """The Python in a file: all of it, the blocks of a page, or what a template is when its names are filled in."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return BLOCK.findall(text)
    if path.suffix == ".txt":
        return [text.replace("$", "")] if text.startswith(PYTHON) else []
    return [text]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_are_imported(path: Path) -> None:
    strange = {
        f"{module}.{name}".rstrip(".")
        for source in pieces(path)
        for module, name in imported(source)
        if (module, name) not in public() and (f"{module}.{name}", "") not in public()
    }
    assert not strange, "not in tests/api.txt: " + ", ".join(sorted(strange))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_attribute_of_the_library_is_used(path: Path) -> None:
    """`kt._name`, and `_name` of a module that is imported from the library."""
    for source in pieces(path):
        tree = ast.parse(source)
        ours = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).partition(".")[0] == "kairo_team"
        }
        private = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ours
            and node.attr.startswith("_")
            and not node.attr.endswith("__")
        ]
        assert not private


def test_every_source_with_python_was_read() -> None:
    templates = [path for path in SOURCES if path.suffix == ".txt" and pieces(path)]
    assert len(templates) >= 24  # two for each plug-in point
    assert all(pieces(path) for path in SOURCES if path.suffix == ".md")


def test_the_page_on_publishing_lists_every_package() -> None:
    text = (ROOT / "docs/ecosystem.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE))
    packages = {path.name for path in (ROOT / "tests/third_party").iterdir() if (path / "pyproject.toml").exists()}
    assert rows.keys() == packages
    for name, contract in rows.items():
        about = tomllib.loads((ROOT / "tests/third_party" / name / "pyproject.toml").read_text("utf-8"))["project"]
        assert about["license"] == "Apache-2.0"
        assert contract in {point.contract for point in KINDS.values()}
        assert (ROOT / "tests/third_party" / name / "README.md").read_text("utf-8").strip()
