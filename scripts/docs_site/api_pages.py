"""The API reference: an entry for every public name, written from its signature, types and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from typing import Any

from scripts.docs_site.docstrings import as_markdown
from scripts.docs_site.pages import Page
from scripts.docs_site.public_names import ELSEWHERE, MODULES, homes, link, parts_of, public_names
from scripts.docs_site.signatures import default_text, full_type, parameters, plain_type, signature
from scripts.docs_site.source_docs import described_anywhere, described_fields

_LINE = re.compile(r"\s+")


def meanings(name: str) -> Mapping[str, str]:
    """Return what the fields of a public class mean, with their defaults; nothing for another name."""
    home = homes().get(name)
    value = None if home is None else getattr(import_module(home), name)
    if not inspect.isclass(value):
        return {}
    defaults = {
        field: one.default
        for field, one in parameters(value)
        if one.default is not one.empty and one.default is not None
    }
    shown = {field: f" Default: `{default_text(value)}`." for field, value in defaults.items()}
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
        found = getattr(value, name)
        part = found.__name__ if inspect.ismodule(found) else f"{module}.{name}"
        home = link(name)
        target = f"../{part}/index.md" if part in MODULES else f"../../{home or ELSEWHERE[part]}"
        rows.append(f"| [`{name}`]({target}) | {_first_line(found, name)} |")
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
        return _directive("py:class", name + signature(value), options, inner, colons=5)
    if callable(value) and hasattr(value, "__code__"):
        asynchronous = [":async:"] if inspect.iscoroutinefunction(value) else []
        return _directive("py:function", name + signature(value), [*options, *asynchronous], said, colons=5)
    written, _ = described_anywhere().get(name, ("", ""))
    shown = f"```python\n{name} = {written}\n```\n\n" if written else ""
    return _directive("py:data", name, options, shown + said, colons=5)


def _members(kind: type[Any]) -> Iterator[str]:
    """Describe what a class has: fields, then properties, then methods, each with those it inherits."""
    if issubclass(kind, Enum):
        for member in kind:
            said = described_fields(kind).get(member.name, ("", ""))[1]
            yield _member("py:attribute", member.name, [f":value: {member.value!r}"], said)
        return
    for name, (annotation, said) in _fields(kind).items():
        yield _member("py:attribute", name, [f":type: {full_type(annotation)}"], said)
    own = _own(kind)
    for name, value in own.items():
        if isinstance(value, property):
            returns = inspect.signature(value.fget).return_annotation if value.fget else ""
            option = [f":type: {full_type(plain_type(returns))}"] if returns else []
            yield _member("py:property", name, option, inspect.getdoc(value) or "")
    for name, value in own.items():
        yield from _method(name, value)


def _method(name: str, value: Any) -> Iterator[str]:
    function: Any = getattr(value, "__func__", value)
    if inspect.isfunction(function):
        how = type(value).__name__
        options = [f":{how}:"] if how in {"classmethod", "staticmethod"} else []
        options += [":async:"] if inspect.iscoroutinefunction(function) else []
        head = name + signature(function, bound=how != "staticmethod")
        yield _member("py:method", head, options, inspect.getdoc(function) or "")


def _member(kind: str, head: str, options: list[str], said: str) -> str:
    return _directive(kind, head, options, as_markdown(said, link, "../../"), colons=4)


def _own(kind: type[Any]) -> dict[str, Any]:
    """Return the public members that a class, or one it extends, defines; tests of a contract kit are left out."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("kairo_team"):
            for name, value in vars(base).items():
                if not name.startswith(("_", "test_")):
                    found.setdefault(name, value)
    return found


def _fields(kind: type[Any]) -> dict[str, tuple[str, str]]:
    """Return the type and the docstring of each public field, those of the classes it extends first."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("kairo_team"):
            found.update(described_fields(base))
    types = {name: plain_type(one.annotation) for name, one in parameters(kind)}
    return {
        name: (types.get(name, annotation), said)
        for name, (annotation, said) in found.items()
        if not name.startswith("_")
        and (said or dataclasses.is_dataclass(kind) or name in getattr(kind, "__annotations__", {}))
    }


def _directive(kind: str, head: str, options: list[str], inner: str, *, colons: int) -> str:
    fence = ":" * colons
    return "\n".join([f"{fence}{{{kind}}} {head}", *options, "", inner, fence])


def _doc(value: object, name: str) -> str:
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        said = inspect.getdoc(value) or ""
        return "" if said.startswith(f"{name}(") else said
    return described_anywhere().get(name, ("", ""))[1]
