"""Import a package's names at their first use, so that importing the package is fast."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
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
    moved: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    `homes` maps each module to its names, or to "" for the module itself. A module's name is relative to the package,
    or complete when it is outside the package. `made` are names that a function makes; `before` is called before the
    first use of each name. `moved` maps modules to names that the package had before: they are found, with a
    `DeprecationWarning` that says where they are now. The error for an unknown name says what is meant in the package,
    or which of the modules in `beside` has it.

    Use this inside `if not TYPE_CHECKING:`, with normal imports for type checkers: for type checkers a module with a
    `__getattr__` has every name.
    """
    gone = {name: f"{package}.{module}" for module, names in moved.items() for name in names.split()}
    home = {name: module for module, names in homes.items() for name in names.split() or [module]}
    makers = made or {}

    def find(name: str) -> Any:
        if name in gone:
            return _answer_guess(package, gone[name], name)
        if name not in home and name not in makers:
            hint = "" if name.startswith("_") else _where_else(package, name, names(), beside)
            # Python has no public way to ask which code reads a module's attribute.
            caller = sys._getframe(1).f_code  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            # Python replaces an `AttributeError` by a bare "cannot import name", and looks for a module before that.
            if hint and caller.co_name == "_handle_fromlist" and find_spec(f"{package}.{name}") is None:
                raise ImportError(f"cannot import name {name!r} from {package!r}{hint}", name=package)
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


def _answer_guess(package: str, module: str, name: str) -> Any:
    from kairo_team._util.guesses import OF_THE_PACKAGE

    also = f"; if you meant another thing: {OF_THE_PACKAGE[name]}" if name in OF_THE_PACKAGE else ""
    sentence = f"{package}.{name} moved to {module}, and works until 1.0: write `from {module} import {name}`{also}"
    warnings.warn(sentence, DeprecationWarning, stacklevel=3)  # at the line that reads the name
    return getattr(import_module(module), name)


def _where_else(package: str, name: str, names: Sequence[str], beside: Sequence[str]) -> str:
    """Return the end of a sentence that says what a name is called, where it is, or which similar name exists."""
    from kairo_team._util.guesses import OF_THE_PACKAGE
    from kairo_team._util.mistakes import did_you_mean  # imported only after a mistake

    if beside and name in OF_THE_PACKAGE:
        return f": {OF_THE_PACKAGE[name]}"
    # Python asks here first for `from package import module`, and then imports it: to read other modules is in vain.
    if name.isidentifier() and find_spec(f"{package}.{name}") is not None:
        return f": it is a module, so write `import {package}.{name}`"
    shorts = [short for short in beside if name in dir(import_module(f"{package}.{short}"))]
    if shorts:
        return f": it is in {package}.{shorts[0]}, so write `from {package}.{shorts[0]} import {name}`"
    hint = did_you_mean(name, names).rstrip()
    return f"; {hint}" if hint else ""
