"""The reference of errors by message, written from `kairo_team.errors` and from where they are raised."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kairo_team import errors
from kairo_team.errors import KairoError
from scripts.docs_site import public_names, source_docs
from scripts.docs_site.docstrings import as_markdown
from scripts.docs_site.pages import Page

_HEAD = """# Errors by message

Search this page for the words of a message. What stands in `<...>` differs from case to case. A message says what was
wrong, with which value, and what to do. Every error of the library is a `KairoError`; those under `Misuse` are mistakes
of the caller: nothing was started, and nothing was spent. Errors of Python's own kinds (`ValueError`, `TypeError`) are
raised where a value is made.
"""
_LONGEST_MESSAGE = 400


def page() -> Page:
    """Write the page."""
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2]
    parts = [_HEAD.rstrip(), f"```text\n{tree}\n```"]
    parts += [_described(kind) for kind in sorted(kinds(), key=lambda one: one.__name__)]
    parts += [_plain(name) for name in ("ValueError", "TypeError")]
    return Page("reference/errors.md", "\n\n".join(parts))


def kinds() -> list[type[KairoError]]:
    """Return the errors of the library."""
    found = (getattr(errors, name) for name in vars(errors) if not name.startswith("_"))
    return [one for one in found if inspect.isclass(one) and issubclass(one, KairoError)]


def _described(kind: type[KairoError]) -> str:
    said = as_markdown(inspect.getdoc(kind) or "", public_names.link, "../")
    parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    built = list(_built(kind))
    raised = [message for message in messages()[kind.__name__] if message not in built]
    parts = [f"## {kind.__name__}", f"Extends {parents}. {said}"]
    parts += [_listed("Its message:", built)] if built else []
    parts += [_listed("Raised with:", raised)] if raised else []
    return "\n\n".join(parts)


def _plain(name: str) -> str:
    return "\n\n".join([f"## {name}", _listed("Raised with:", messages()[name])])


def _listed(head: str, found: list[str]) -> str:
    return "\n".join([head, "", *(f"- {_code(message)}" for message in found)])


def _code(message: str) -> str:
    fence = "``" if "`" in message else "`"
    return f"{fence}{message}{fence}"


def _built(kind: type[KairoError]) -> Iterator[str]:
    """Yield the messages that the constructor of an error builds."""
    node = next(
        one
        for one in ast.walk(source_docs.tree_of(Path(inspect.getfile(errors))))
        if isinstance(one, ast.ClassDef) and one.name == kind.__name__
    )
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "super().__init__" and one.args:
            message = _text(one.args[0])
        elif isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "self.message":
            message = _text(one.value)
        else:
            continue
        if message:
            yield message


@cache
def messages() -> dict[str, list[str]]:
    """Return, by the name of the error, what it is raised with anywhere in the library."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in source_docs.sources():
        if "/examples/" in path.as_posix() or "/tck/" in path.as_posix():
            continue
        for node in ast.walk(source_docs.tree_of(path)):
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_problems"):
                found["PlanRefused"].update(
                    text for text in map(_text, ast.walk(node)) if " " in text and text not in _said(node)
                )
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                texts = [text for text in map(_text, _arguments(node.exc)) if " " in text]
                found[ast.unparse(node.exc.func).rpartition(".")[2]].update(texts)
    return defaultdict(list, {name: sorted(texts, key=str.lower) for name, texts in found.items()})


def _said(function: ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(function) or "").split())


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    for argument in call.args:
        yield from argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]


def _text(node: ast.AST) -> str:
    """Return a message, with what is filled in by its name; empty for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [
        str(one.value) if isinstance(one, ast.Constant) else f"<{_name(one.value)}>"
        for one in node.values
        if isinstance(one, ast.Constant | ast.FormattedValue)
    ]
    return " ".join("".join(parts).split())[:_LONGEST_MESSAGE]


def _name(node: ast.expr) -> str:
    """Name what is filled in: the last name of its expression."""
    names = [one for one in ast.walk(node) if isinstance(one, ast.Attribute | ast.Name)]
    if isinstance(node, ast.Call) and node.args:
        return _name(node.args[0])
    if not names:
        return "..."
    first = names[0]
    return (first.attr if isinstance(first, ast.Attribute) else first.id).strip("_").replace("_", " ")
