"""How values show themselves: a value asks for a drawing by name, and the package's door says which view draws it.

So no value imports a view. `kairo_team/__init__.py` registers the functions when the package is imported, by name only:
the module of a view is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HOMES: Final[dict[str, str]] = {}
"""The module of each registered function, by the function's name."""


def register_drawings(homes: Mapping[str, str]) -> None:
    """Register the functions that draw values: each module with the names of its functions, separated by spaces."""
    _HOMES.update({name: module for module, names in homes.items() for name in names.split()})


def drawing(name: str) -> Callable[..., str]:
    """Return the registered function with that name; raises `KeyError` for any other."""
    found: Callable[..., str] = getattr(import_module(_HOMES[name]), name)
    return found
