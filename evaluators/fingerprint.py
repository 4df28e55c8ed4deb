"""What tells one check from another: their names, arguments and source, in a form that is the same in every process."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, cast


def digest_of(value: Any) -> str:
    """Return the SHA-256, in hex, of a value made of JSON values."""
    written = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def fingerprint(value: Any) -> Any:
    """Describe a value by JSON values.

    A function counts by its name, its source where that can be read, its defaults and what it closes over. An object
    counts by its `fingerprint` attribute when it has one, else by its class alone.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return {str(key): fingerprint(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [fingerprint(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, functools.partial):
        part = cast("Any", value)
        return ["partial", *map(fingerprint, (part.func, part.args, part.keywords))]
    said = getattr(value, "fingerprint", None)
    if isinstance(said, str) and not isinstance(value, type):
        return [_name(type(value)), said]
    return _function(value) if inspect.isroutine(value) or isinstance(value, type) else _name(type(value))


def _function(value: Any) -> Any:
    function = inspect.unwrap(getattr(value, "__func__", value))
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):  # typed at a prompt, or written in another language
        source = ""
    cells: tuple[Any, ...] = getattr(function, "__closure__", None) or ()
    inside = [_content(cell) for cell in cells]
    return [_name(function), source, fingerprint(getattr(function, "__defaults__", None)), inside]


def _content(cell: Any) -> Any:
    """Return what a function closes over when that is made of JSON values, else its class."""
    try:
        content = cell.cell_contents
    except ValueError:  # an empty cell
        return None
    try:
        return json.loads(json.dumps(content))
    except (TypeError, ValueError, RecursionError):
        return _name(type(content))


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
