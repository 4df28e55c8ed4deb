"""The public names of the library, and where the site describes each."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from scripts.docs_site.source_docs import described, tree_of

MODULES = (
    "kairo_team",
    "kairo_team.agents",
    "kairo_team.agents.langgraph",
    "kairo_team.api",
    "kairo_team.conditions",
    "kairo_team.contracts",
    "kairo_team.coordinators",
    "kairo_team.durable",
    "kairo_team.errors",
    "kairo_team.evals",
    "kairo_team.evaluators",
    "kairo_team.evaluators.checks",
    "kairo_team.governance",
    "kairo_team.governance.policies",
    "kairo_team.governance.pricing",
    "kairo_team.messages",
    "kairo_team.models",
    "kairo_team.models.local_server",
    "kairo_team.plugins",
    "kairo_team.prompts",
    "kairo_team.recorded",
    "kairo_team.tck",
    "kairo_team.data.teams",
    "kairo_team.testing",
    "kairo_team.tools",
    "kairo_team.views",
)
"""A name that several of them have is described with the first one."""
ELSEWHERE = {"kairo_team.events": "events.md"}
"""Modules with a page of another kind."""


@cache
def public_names(module: ModuleType) -> list[str]:
    """Return the names of a module that are for its users: `__all__`, or what it defines or hands on as `X as X`."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if name != "__version__")
    tree = tree_of(Path(inspect.getfile(module)))
    handed_on = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    made = {name for name, (_, said) in described(tree).items() if said} | {
        node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return sorted(name for name in handed_on | made if name and not name.startswith("_"))


@cache
def homes() -> Mapping[str, str]:
    """Return the module with which each public name is described."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name in public_names(import_module(module)):
            value = getattr(import_module(module), name)
            if not inspect.ismodule(value):
                first = found.setdefault(name, module)
                if getattr(import_module(first), name) is not value:
                    raise ValueError(f"{first}.{name} and {module}.{name} are two things: give one another name")
    return found


def link(name: str) -> str | None:
    """Return the place of a public name, from the root of the site; None for another name."""
    home = homes().get(name)
    return None if home is None else f"{_file(home, name)}#{name.lower()}"


def _file(home: str, name: str) -> str:
    """Return the page of a name: that of its module, which is divided where the module names the homes of many."""
    parts = parts_of(home)
    part = next((part for part, names in parts.items() if name in names), None)
    return f"api/{home}/{part}.md" if part else f"api/{home}/index.md"


@cache
def parts_of(module: str) -> Mapping[str, Sequence[str]]:
    """Return the pages into which the first module is divided, by the modules its names are defined in."""
    found: dict[str, list[str]] = {}
    for name in public_names(import_module(module)) if module == MODULES[0] else ():
        value = getattr(import_module(module), name)
        if not inspect.ismodule(value):
            found.setdefault(value.__module__.removeprefix(f"{module}."), []).append(name)
    return dict(sorted(found.items()))
