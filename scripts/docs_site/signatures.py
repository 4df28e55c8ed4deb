"""Signatures and types as one would write them in code."""

from __future__ import annotations

import ast
import inspect
import re
from enum import Enum
from typing import Any

from scripts.docs_site.public_names import homes

_LONGEST_DEFAULT = 50


def parameters(value: Any) -> list[tuple[str, inspect.Parameter]]:
    """Return the parameters by name; none of an enum, a protocol, or a class without a constructor of its own."""
    if inspect.isclass(value) and (issubclass(value, Enum) or getattr(value, "_is_protocol", False)):
        return []
    try:
        return list(inspect.signature(value).parameters.items())
    except (ValueError, TypeError):  # an exception without a constructor of its own
        return []


def signature(value: Any, *, bound: bool = False) -> str:
    """Write a signature as one would in code; long defaults are left out, public types are named in full."""
    taken = [one for _, one in parameters(value)][1 if bound else 0 :]
    if not taken and inspect.isclass(value):
        return ""
    shown = [_shown(one) for one in taken]
    for place, one in enumerate(taken):
        if one.kind is one.KEYWORD_ONLY and not any(
            p.kind in {p.KEYWORD_ONLY, p.VAR_POSITIONAL} for p in taken[:place]
        ):
            shown.insert(place, "*")
    if any(one.kind is one.POSITIONAL_ONLY for one in taken):
        shown.insert(sum(one.kind is one.POSITIONAL_ONLY for one in taken), "/")
    returns = "" if inspect.isclass(value) else inspect.signature(value).return_annotation
    arrow = f" -> {full_type(plain_type(returns))}" if returns not in {"", inspect.Signature.empty} else ""
    return f"({', '.join(shown)}){arrow}"


def _shown(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    annotation = "" if one.annotation is one.empty else f": {full_type(plain_type(one.annotation))}"
    if one.default is one.empty:
        return f"{stars}{one.name}{annotation}"
    return f"{one.name}{annotation}{' = ' if annotation else '='}{default_text(one.default)}"


def default_text(value: object) -> str:
    """Write a default: enums and functions by name, a long value of the library as a call, other long ones as dots."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    written = repr(value)
    if type(value).__module__.startswith("kairo_team"):
        return f"{type(value).__name__}()" if len(written) > _LONGEST_DEFAULT else written
    return written if len(written) <= _LONGEST_DEFAULT and "<" not in written else "..."


def plain_type(annotation: object) -> str:
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
            kept: ast.AST = self.visit(node.slice.elts[0])
            return kept
        return self.generic_visit(node)


def full_type(annotation: str) -> str:
    """Name public types in full, so that the site links them; it shows their last part."""
    try:
        tree = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return annotation
    return ast.unparse(_Qualified().visit(tree)).replace("\n", " ")
