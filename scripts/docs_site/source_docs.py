"""Docstrings of what has none at run time: fields, constants and type aliases, read from the sources."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

import kairo_team

_PACKAGE = Path(kairo_team.__file__).parent


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file, once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def described(node: ast.Module | ast.ClassDef) -> dict[str, tuple[str, str]]:
    """Return what is assigned or annotated in a body: how it is written, and the docstring after it."""
    found: dict[str, tuple[str, str]] = {}
    for place, one in enumerate(node.body):
        if not isinstance(one, ast.Assign | ast.AnnAssign):
            continue
        target = one.targets[0] if isinstance(one, ast.Assign) else one.target
        if not isinstance(target, ast.Name):
            continue
        written = one.annotation if isinstance(one, ast.AnnAssign) and isinstance(node, ast.ClassDef) else one.value
        after = node.body[place + 1] if place + 1 < len(node.body) else None
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        found[target.id] = ast.unparse(written) if written else "", inspect.cleandoc(str(said))
    return found


def described_fields(kind: type) -> dict[str, tuple[str, str]]:
    """Return the fields that a class declares itself: the type as it is written, and the docstring after it."""
    try:
        node = _classes_of(Path(inspect.getfile(kind))).get(kind.__name__)
    except TypeError:
        return {}
    return described(node) if node else {}


@cache
def _classes_of(path: Path) -> dict[str, ast.ClassDef]:
    """Return the classes of a file by name, of two with one name the first."""
    nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]
    return {node.name: node for node in reversed(nodes)}


@cache
def described_anywhere() -> dict[str, tuple[str, str]]:
    """Return the type aliases and constants of the whole package that have a docstring."""
    found: dict[str, tuple[str, str]] = {}
    for path in sources():
        for name, (written, said) in described(tree_of(path)).items():
            if said and not name.startswith("_"):
                found.setdefault(name, (written, said))
    return found


def sources() -> list[Path]:
    """Return every source file of the library, those behind its links too."""
    rooms = [_PACKAGE, *(path for path in _PACKAGE.iterdir() if path.is_symlink())]
    return sorted({path for room in rooms for path in room.rglob("*.py")})
