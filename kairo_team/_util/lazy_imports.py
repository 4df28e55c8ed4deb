"""Packages whose names are imported at their first use, so that importing the package is fast."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    *,
    made: Mapping[str, Callable[[], Any]] | None = None,
    before: Callable[[], None] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    `homes` lists, by the module in the package that has them, the names to be found there, and "" for the module
    itself. `made` are names that are made by a function; `before` is called ahead of every first use of a name. Use it
    inside `if not TYPE_CHECKING:`, with the imports themselves beside it for type checkers: a module with a
    `__getattr__` has every name, for them.
    """
    home = {name: module for module, names in homes.items() for name in names.split() or [module]}
    makers = made or {}

    def find(name: str) -> Any:
        if name not in home and name not in makers:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if before is not None:
            before()
        if name in makers:
            found = makers[name]()
        else:
            module = import_module(f"{package}.{home[name]}")
            found = module if home[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *makers})

    return find, names
