"""Packages whose names are imported at their first use, so that importing the package is fast."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OURS: Final = "kairo_team."


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    *,
    made: Mapping[str, Callable[[], Any]] | None = None,
    before: Callable[[], None] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    `homes` lists, by the module that has them, the names to be found there, and "" for the module itself. A module is
    named as the package sees it, or in full when it is outside the package. `made` are names that are made by a
    function; `before` is called ahead of every first use of a name. Use it inside `if not TYPE_CHECKING:`, with the
    imports themselves beside it for type checkers: a module with a `__getattr__` has every name, for them.
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
            place = home[name]
            module = import_module(place if place.startswith(_OURS) else f"{package}.{place}")
            found = module if place == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *makers})

    return find, names
