"""The lines of a program that its user writes: one rule for all libraries."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Final

_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def written(source: str) -> int:
    """Count the lines that have code, without imports, docstrings and what runs the file as a program."""
    aside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and _is_aside(node):
            aside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    coded: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            coded.update(range(token.start[0], token.end[0] + 1))
    return len(coded - aside)


def _is_aside(node: ast.stmt) -> bool:
    """Return whether a statement is an import, a bare text such as a docstring, or what runs the file."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
            return True
        case ast.If(test):
            return ast.unparse(test) == "__name__ == '__main__'"
        case _:
            return False
