"""Import a package's names at their first use, so that importing the package is fast."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_OURS: Final = "kairo_team."


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    *,
    made: Mapping[str, Callable[[], Any]] | None = None,
    before: Callable[[], None] | None = None,
    beside: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    `homes` maps each module to its names, or to "" for the module itself. A module's name is relative to the package,
    or complete when it is outside the package. `made` are names that a function makes; `before` is called before the
    first use of each name. The error for an unknown name says which of the modules in `beside` has it. Use this inside
    `if not TYPE_CHECKING:`, with normal imports for type checkers: for type checkers a module with a `__getattr__` has
    every name.
    """
    home = {name: module for module, names in homes.items() for name in names.split() or [module]}
    makers = made or {}

    def find(name: str) -> Any:
        if name not in home and name not in makers:
            hint = "" if name.startswith("_") else _where_else(package, name, names(), beside)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        if before is not None:
            before()
        if name in makers:
            found = makers[name]()
        else:
            place = home[name]
            module = import_module(place if place.startswith(_OURS) else f"{package}.{place}")
            found = module if place == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *makers})

    return find, names


def _where_else(package: str, name: str, names: Sequence[str], beside: Sequence[str]) -> str:
    """Return the end of a sentence that says where a name is, or which similar name exists; "" without either."""
    from kairo_team._util.mistakes import did_you_mean  # imported only after a mistake

    shorts = [short for short in beside if name in dir(import_module(f"{package}.{short}"))]
    if shorts:
        return f": it is in {package}.{shorts[0]}, so write `from {package}.{shorts[0]} import {name}`"
    hint = did_you_mean(name, names).rstrip()
    return f"; {hint}" if hint else ""
