"""`isinstance` for containers of unknown items.

After `isinstance(value, list)` a strict type checker does not know the type of the items. After `is_list(value)` the
items are `Any`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a list."""
    return isinstance(value, list)


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    """Return whether a value is a tuple."""
    return isinstance(value, tuple)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a sequence; a text is one too."""
    return isinstance(value, Sequence)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a mapping."""
    return isinstance(value, Mapping)


def fields_of(value: object) -> Mapping[str, Any]:
    """Return a value that is a mapping; an empty one for any other."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value has items, and is not a text."""
    return isinstance(value, Iterable) and not isinstance(value, str)
