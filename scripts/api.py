"""Print the public API: every public name with its signature, and the public methods of every class.

    python -m scripts.api > tests/api.txt

`tests/test_api.py` compares the file with the code, so that no public name changes unseen.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any

from scripts.docs_site.public_names import ELSEWHERE, MODULES, public_names

_PLACE = re.compile(r" at 0x[0-9a-f]+")
_SET = re.compile(r"(?<=\{)[^{}]+(?=\}\))")
_METHODS = (staticmethod, classmethod)


def signature(value: Any) -> str:
    """Return what a call takes and returns; "(...)" where Python cannot say."""
    try:
        written = _PLACE.sub("", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"
    return _SET.sub(lambda inside: ", ".join(sorted(inside[0].split(", "))), written)


def lines_of(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one public name."""
    if inspect.isclass(value) and issubclass(value, Enum):
        yield f"enum {name}: {', '.join(f'{one.name} = {one.value!r}' for one in value)}"
    elif inspect.isclass(value):
        yield f"class {name}{signature(value)}"
        yield from _members(value)
    elif callable(value):
        yield f"def {name}{signature(value)}"
    elif inspect.ismodule(value):
        yield f"module {name}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(kind: type) -> Iterator[str]:
    ours = [base for base in kind.__mro__ if base.__module__.startswith("kairo_team")]
    found = {name: member for base in reversed(ours) for name, member in vars(base).items()}
    for name, member in sorted(found.items()):
        if name.startswith(("_", "test_")):  # a kit's tests are what it runs, not what is called
            continue
        inner = member.__func__ if isinstance(member, _METHODS) else member
        if inspect.isfunction(inner):
            word = "async def" if inspect.iscoroutinefunction(inner) else "def"
            yield f"    {word} {name}{signature(inner)}"
        else:
            yield f"    {name}"


def main() -> None:
    """Print it."""
    homes: dict[int, str] = {}
    for package in sorted((*MODULES, *ELSEWHERE)):
        module = import_module(package)
        print(f"\n# {package}")
        for name in public_names(module):
            value = getattr(module, name)
            home = homes.setdefault(id(value), f"{package}.{name}")
            if home != f"{package}.{name}":
                print(f"{name}: the same as {home}")
            else:
                print("\n".join(lines_of(name, value)))


if __name__ == "__main__":
    main()
