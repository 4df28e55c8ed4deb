"""The API reference: a page for every public name, written from its signature, types and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import kairo_team
from scripts.docs_site.docstrings import as_markdown
from scripts.docs_site.pages import Page

MODULES = (
    "kairo_team",
    "kairo_team.agents",
    "kairo_team.contracts",
    "kairo_team.coordinators",
    "kairo_team.errors",
    "kairo_team.evals",
    "kairo_team.evaluators",
    "kairo_team.evaluators.checks",
    "kairo_team.governance",
    "kairo_team.governance.policies",
    "kairo_team.models",
    "kairo_team.plugins",
    "kairo_team.prompts",
    "kairo_team.tck",
    "kairo_team.testing",
    "kairo_team.tools",
)
"""A name that several of them have is described with the first one."""
ELSEWHERE = {"kairo_team.events": "events.md"}
"""Modules with a page of another kind."""

_LONGEST_DEFAULT = 50
_PACKAGE = Path(kairo_team.__file__).parent
_LINE = re.compile(r"\s+")


def public_names(module: ModuleType) -> list[str]:
    """Return the names of a module that are for its users: `__all__`, or what it defines or hands on as `X as X`."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if name != "__version__")
    tree = _tree(Path(inspect.getfile(module)))
    handed_on = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    made = set(_described(tree)) | {
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
    if module != MODULES[0]:
        return {}
    return {
        home: names.split() for home, names in getattr(import_module(module), "_HOMES").items() if names and home
    }


def meanings(name: str) -> Mapping[str, str]:
    """Return what the fields of a public class mean, with their defaults; nothing for another name."""
    home = homes().get(name)
    value = None if home is None else getattr(import_module(home), name)
    if not inspect.isclass(value):
        return {}
    defaults = {field: one.default for field, one in _parameters(value) if one.default is not one.empty and one.default is not None}
    shown = {field: f" Default: `{_default(value)}`." for field, value in defaults.items()}
    return {field: f"{said}{shown.get(field, '')}".strip() for field, (_, said) in _fields(value).items()}


def pages() -> Iterator[Page]:
    """Write the list of the modules, and their pages."""
    yield Page("api/index.md", _front(), nav=[f"{module}/index" for module in MODULES])
    for module in MODULES:
        parts = parts_of(module)
        yield Page(f"api/{module}/index.md", _module_page(module), nav=list(parts))
        for part, names in parts.items():
            entries = [_name(module, name) for name in sorted(names)]
            yield Page(f"api/{module}/{part}.md", "\n\n".join([f"# kt: {part}", *entries]))


def _front() -> str:
    rows = [f"| [`{module}`]({module}/index.md) | {_first_line(import_module(module))} |" for module in MODULES]
    head = "# API\n\nEvery public name: its signature, its types, and what its docstring says of units and errors."
    return "\n".join([head, "", "| module | what it has |", "|---|---|", *rows, ""])


def _module_page(module: str) -> str:
    names = public_names(import_module(module))
    value = import_module(module)
    said = as_markdown(inspect.getdoc(value) or "", link, "../../")
    rows: list[str] = []
    for name in names:
        part = f"{module}.{name}"
        home = link(name)
        target = f"../{part}/index.md" if part in MODULES else f"../../{home or ELSEWHERE[part]}"
        rows.append(f"| [`{name}`]({target}) | {_first_line(getattr(value, name), name)} |")
    head = [f"# {module}", "", said, "", "| name | what it is |", "|---|---|", *rows, ""]
    own = [name for name in names if link(name) == f"api/{module}/index.md#{name.lower()}"]
    return "\n\n".join(["\n".join(head), *(_name(module, name) for name in own)])


def _first_line(value: object, name: str = "") -> str:
    said = _doc(value, name).strip()
    line = _LINE.sub(" ", said.partition("\n\n")[0]).replace("|", "\\|")
    return re.split(r"(?<=[.:]) (?=[A-Z`>])", line)[0]


def _name(module: str, name: str) -> str:
    value = getattr(import_module(module), name)
    short = f"kt.{name}" if module == "kairo_team" else f"from {module} import {name}"
    others = [
        other for other in MODULES if other != module and name in public_names(import_module(other))
    ]  # the same object under a second name
    also = f", also in {' and '.join(f'`{other}`' for other in others)}" if others else ""
    return f"## {name}\n\n`{short}`{also}\n\n{_entry(module, name, value)}"


def _entry(module: str, name: str, value: Any) -> str:
    said = as_markdown(_doc(value, name), link, "../../")
    options = [f":module: {module}"]
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base.__name__ in homes()]
        extends = f"Extends {', '.join(f'[`{base}`](../../{link(base)})' for base in bases)}." if bases else ""
        inner = "\n\n".join([extends, said, *_members(value)]).strip()
        return _directive("py:class", name + _signature(value), options, inner, colons=5)
    if callable(value) and hasattr(value, "__code__"):
        asynchronous = [":async:"] if inspect.iscoroutinefunction(value) else []
        return _directive("py:function", name + _signature(value), [*options, *asynchronous], said, colons=5)
    written, _ = _described_anywhere().get(name, ("", ""))
    shown = f"```python\n{name} = {written}\n```\n\n" if written else ""
    return _directive("py:data", name, options, shown + said, colons=5)


def _members(kind: type) -> Iterator[str]:
    """Describe what a class has: fields, then properties, then methods, each with those it inherits."""
    if issubclass(kind, Enum):
        for member in kind:
            said = as_markdown(_fields_of(kind).get(member.name, ("", ""))[1], link, "../../")
            yield _directive("py:attribute", member.name, [f":value: {member.value!r}"], said, colons=4)
        return
    for name, (annotation, said) in _fields(kind).items():
        described = as_markdown(said, link, "../../")
        yield _directive("py:attribute", name, [f":type: {_qualified_type(annotation)}"], described, colons=4)
    for name, value in _own(kind).items():
        if isinstance(value, property):
            returns = inspect.signature(value.fget).return_annotation if value.fget else ""
            option = [f":type: {_qualified_type(_plain(returns))}"] if returns else []
            said = as_markdown(inspect.getdoc(value) or "", link, "../../")
            yield _directive("py:property", name, option, said, colons=4)
    for name, value in _own(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function):
            bound = not isinstance(value, staticmethod)
            options = [f":{type(value).__name__}:"] if isinstance(value, classmethod | staticmethod) else []
            options += [":async:"] if inspect.iscoroutinefunction(function) else []
            said = as_markdown(inspect.getdoc(function) or "", link, "../../")
            yield _directive("py:method", name + _signature(function, bound=bound), options, said, colons=4)


def _own(kind: type) -> dict[str, Any]:
    """Return the public members that a class, or one it extends, defines; tests of a contract kit are left out."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("kairo_team"):
            for name, value in vars(base).items():
                if not name.startswith(("_", "test_")):
                    found.setdefault(name, value)
    return found


def _fields(kind: type) -> dict[str, tuple[str, str]]:
    """Return the type and the docstring of each public field, those of the classes it extends first."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("kairo_team"):
            found.update(_fields_of(base))
    types = {name: _plain(one.annotation) for name, one in _parameters(kind)}
    return {
        name: (types.get(name, annotation), said)
        for name, (annotation, said) in found.items()
        if not name.startswith("_") and (said or dataclasses.is_dataclass(kind) or name in getattr(kind, "__annotations__", {}))
    }


def _parameters(value: Any) -> list[tuple[str, inspect.Parameter]]:
    if inspect.isclass(value) and (issubclass(value, Enum) or getattr(value, "_is_protocol", False)):
        return []
    try:
        return list(inspect.signature(value).parameters.items())
    except (ValueError, TypeError):  # an exception without a constructor of its own
        return []


def _signature(value: Any, *, bound: bool = False) -> str:
    """Write a signature as one would in code; long defaults are left out, public types are named in full."""
    parameters = [one for _, one in _parameters(value)][1 if bound else 0 :]
    if not parameters and inspect.isclass(value):
        return ""
    shown = [_shown(one) for one in parameters]
    for place, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and not any(p.kind in {p.KEYWORD_ONLY, p.VAR_POSITIONAL} for p in parameters[:place]):
            shown.insert(place, "*")
    if any(one.kind is one.POSITIONAL_ONLY for one in parameters):
        shown.insert(sum(one.kind is one.POSITIONAL_ONLY for one in parameters), "/")
    returns = "" if inspect.isclass(value) else inspect.signature(value).return_annotation
    arrow = f" -> {_qualified_type(_plain(returns))}" if returns not in {"", inspect.Signature.empty} else ""
    return f"({', '.join(shown)}){arrow}"


def _shown(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    annotation = "" if one.annotation is one.empty else f": {_qualified_type(_plain(one.annotation))}"
    if one.default is one.empty:
        return f"{stars}{one.name}{annotation}"
    return f"{one.name}{annotation}{' = ' if annotation else '='}{_default(one.default)}"


def _default(value: object) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    written = repr(value)
    if type(value).__module__.startswith("kairo_team"):
        return f"{type(value).__name__}()" if len(written) > _LONGEST_DEFAULT else written
    return written if len(written) <= _LONGEST_DEFAULT and "<" not in written else "..."


def _plain(annotation: object) -> str:
    """Write an annotation without the modules of its types."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('([^']+)'\)", r"\1", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)


class _Qualified(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        home = homes().get(node.id)
        return node if home is None else ast.Name(f"{home}.{node.id}")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[0])
        return self.generic_visit(node)


def _qualified_type(annotation: str) -> str:
    """Name public types in full, so that the site links them; it shows their last part."""
    try:
        tree = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return annotation
    return ast.unparse(_Qualified().visit(tree)).replace("\n", " ")


def _directive(kind: str, head: str, options: list[str], inner: str, *, colons: int) -> str:
    fence = ":" * colons
    return "\n".join([f"{fence}{{{kind}}} {head}", *options, "", inner, fence])


def _doc(value: object, name: str) -> str:
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        said = inspect.getdoc(value) or ""
        return "" if said.startswith(f"{name}(") else said
    return _described_anywhere().get(name, ("", ""))[1]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _described(node: ast.Module | ast.ClassDef) -> dict[str, tuple[str, str]]:
    """Return what is assigned or annotated in a body: how it is written, and the docstring after it."""
    found: dict[str, tuple[str, str]] = {}
    for place, one in enumerate(node.body):
        target = one.targets[0] if isinstance(one, ast.Assign) else one.target if isinstance(one, ast.AnnAssign) else None
        if not isinstance(target, ast.Name) or not isinstance(one, ast.Assign | ast.AnnAssign):
            continue
        written = one.annotation if isinstance(one, ast.AnnAssign) and isinstance(node, ast.ClassDef) else one.value
        after = node.body[place + 1] if place + 1 < len(node.body) else None
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        found[target.id] = ast.unparse(written) if written else "", inspect.cleandoc(str(said))
    return found


def _fields_of(kind: type) -> dict[str, tuple[str, str]]:
    try:
        tree = _tree(Path(inspect.getfile(kind)))
    except TypeError:
        return {}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    return _described(nodes[0]) if nodes else {}


@cache
def _described_anywhere() -> dict[str, tuple[str, str]]:
    """Return the type aliases and constants of the whole package that have a docstring."""
    found: dict[str, tuple[str, str]] = {}
    for path in sources():
        for name, (written, said) in _described(_tree(path)).items():
            if said and not name.startswith("_"):
                found.setdefault(name, (written, said))
    return found


def sources() -> list[Path]:
    rooms = [_PACKAGE, *(path for path in _PACKAGE.iterdir() if path.is_symlink())]
    return sorted({path for room in rooms for path in room.rglob("*.py")})
