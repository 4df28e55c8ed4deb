"""The classes of recorded values: write a class as a name, and find it again by that name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final, get_args, get_type_hints

from pydantic import BaseModel

from kairo_team._util.mistakes import with_article

_LIBRARY: Final = (
    "artifacts", "budget", "conditions", "engine.plan.planning", "engine.records.plan_records",
    "engine.records.questions", "engine.work.run_services", "human", "messages", "results", "tasks", "team",
    "tools.result", "verdicts",
)  # fmt: skip
"""Modules whose value classes are written by their name alone, so that a class may move to another module."""


class CorruptRecord(ValueError):
    """A text that the codec cannot have written."""


class NotRecordable(ValueError):
    """A value that cannot be written; the message names the place inside the value."""


class Refusal(Exception):
    """Why a value is refused, and the path to it, innermost part first."""

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(problem)
        self.problem, self.path = problem, [*path]


@cache
def library() -> Mapping[str, type]:
    """Return the library's value classes by name."""
    modules = [import_module(f"kairo_team.{name}") for name in _LIBRARY]
    return {
        name: member
        for module in modules
        for name, member in vars(module).items()
        if isinstance(member, type) and member.__module__ == module.__name__ and _is_value_class(member)
    }


def _is_value_class(kind: type[Any]) -> bool:
    return is_dataclass(kind) or issubclass(kind, Enum | BaseModel) or is_named_tuple(kind)


def is_named_tuple(kind: type[Any]) -> bool:
    """Return whether a class is a named tuple."""
    return hasattr(kind, "_make") and issubclass(kind, tuple)


def name_of(kind: type[Any]) -> str:
    """Return the name by which a class is found again; raise `Refusal` for a class that cannot be found by name."""
    # A user's class may have the name of one of the library's.
    if library().get(kind.__name__) is kind:
        return kind.__name__
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        if foreign(name) is kind:
            return name
    except CorruptRecord:
        pass
    raise Refusal(f"{described(kind)} cannot be found again by its name: define it in a module")


def check_type(kind: Any) -> None:
    """Raise `Refusal` for a type whose values certainly cannot be written."""
    seen: set[int] = set()
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        waiting += get_args(one)
        if isinstance(one, type) and not get_args(one) and _is_value_class(one):
            name_of(one)
            waiting += _types_of_fields(one)


def _types_of_fields(kind: type[Any]) -> list[Any]:
    if issubclass(kind, BaseModel):
        return [field.annotation for field in kind.model_fields.values()]
    try:
        return list(get_type_hints(kind).values())
    except Exception:  # a name that is imported only for type checkers  # noqa: BLE001
        return []


def loaded(name: str) -> type:
    """Return a user's value class like `foreign`; `CorruptRecord` for a module that is not imported already."""
    module, _, _ = name.partition(":")
    # Others can write to a database: their texts must not decide which modules are imported here.
    if module not in sys.modules:
        raise CorruptRecord(f"its class {name!r} is not known here: only classes of modules that are imported are read")
    return foreign(name)


def foreign(name: str) -> type:
    """Import and return a user's value class by its module and name; `CorruptRecord` for anything else."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for number, part in enumerate(path.split(".")):
            # A class is in a module or in a class: a recorded name leads through nothing else.
            if number and not isinstance(found, type):
                break
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # importing a module may raise anything
        raise CorruptRecord(f"there is no class {name!r}: {error}") from error
    if not isinstance(found, type) or not _is_value_class(found):
        raise CorruptRecord(f"{name!r} is not a dataclass, named tuple, enum or pydantic model")
    return found


def described(kind: type[Any]) -> str:
    """Describe a value's class: "a function", "a value of class package.module.Class"."""
    if kind.__module__ == "builtins":
        return with_article(kind.__qualname__)
    return f"a value of class {kind.__module__}.{kind.__qualname__}"
