"""Shared code for constraints and guardrails: their names, their answers, and lists of them in a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kairo_team._util.narrowing import fields_of, is_mapping, is_several
from kairo_team.errors import known
from kairo_team.plugins import installed

T = TypeVar("T")


def name_of(plugged: object) -> str:
    """Return the plug-in's `name`, else its class name."""
    name = getattr(plugged, "name", None)
    return name if isinstance(name, str) and name.strip() else type(plugged).__name__  # never empty, since it is shown


def expect(answer: Any, kind: type[T]) -> T:
    """Return the answer if it is a `kind`, else raise `TypeError`."""
    if isinstance(answer, kind):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # else the interpreter warns later that it was never awaited
    raise TypeError(f"it returned {answer!r:.200}, not a {kind.__name__}")


@dataclass(frozen=True, slots=True)
class Configured:
    """Read the plug-ins of one kind from a configuration: each is a mapping with its name and its options."""

    kind: str
    """The plug-in point, as `kairo_team.plugins` names it."""
    keys: tuple[str, ...]
    """The keys that lead to the list in a file, outermost first."""
    twice: str = "keep one"
    """Advice in the error for a plug-in that is configured twice."""

    def read(self, entry: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the options of one configured entry."""
        options = dict(fields_of(entry))
        name: Any = options.pop("name", None)
        if not isinstance(name, str):
            raise ValueError(
                f"a configured {self.kind} is a mapping with a name, not {entry!r}; there are {self._names()}"
            )
        return name, options

    def make_all(self, config: Any, build: Callable[[Any], tuple[str, T]]) -> Sequence[T]:
        """Make every entry; `build` returns the object and its name, which must be unique."""
        built: dict[str, T] = {}
        for entry in self._entries(config):
            name, made = build(entry)
            if name in built:
                raise ValueError(
                    f"the {self.kind} {name!r} is configured twice: {self.twice}; there are {self._names()}"
                )
            built[name] = made
        return tuple(built.values())

    def _entries(self, config: Any) -> Iterable[Any]:
        """Return the list of entries, given as such or under `keys`; outer keys may be left out."""
        found, keys = config, list(self.keys)
        while is_mapping(found):
            key = next((key for key in keys if key in found), None)
            if key is None:
                break
            keys = keys[keys.index(key) + 1 :]
            strange = [name for name in found if name != key] if not keys else []
            if strange:
                raise ValueError(f"{'.'.join(self.keys[:-1])} has {key!r} alone; {strange[0]!r} is unknown")
            found = found[key]
        if is_mapping(found) or not is_several(found):
            where = f"; in a file, put it under {'.'.join(self.keys)}" if self.keys else ""
            raise ValueError(f"{self.kind}s are configured by a list of mappings, not {found!r:.200}{where}")
        return found

    def _names(self) -> str:
        return known({one.name for one in installed(self.kind)})
