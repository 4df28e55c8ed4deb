"""Shared code for constraints and guardrails: their names, their answers, and making them from a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from kairo_team.errors import known

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def name_of(plugged: object) -> str:
    """Return its own name, else that of its class."""
    name = getattr(plugged, "name", None)
    return name if isinstance(name, str) and name.strip() else type(plugged).__name__


def expect(answer: Any, kind: type[T]) -> T:
    """Return an answer if it is of the type it must have, else raise `TypeError`."""
    if isinstance(answer, kind):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # else the interpreter complains of it later, somewhere else
    raise TypeError(f"it returned {answer!r:.200}, not a {kind.__name__}")


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[T]):
    """What a configuration can name: what is built in, then what packages publish under an entry-point group.

    What is published is imported only when it is named.
    """

    what: str
    """The word for one of them."""
    group: str
    """The entry-point group; each entry is a class or function that makes one."""
    built_in: Mapping[str, Callable[..., Any]]
    check: Callable[[str, Any], tuple[T, ...]]
    """Returns a list of them as a tuple; `ValueError` in the name of the first argument for what is none."""
    keys: tuple[str, ...] = ()
    """The keys of the list in a file, outermost first."""
    twice: str = "keep one of them"
    """What to do about one that is configured twice."""

    def read(self, entry: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the options of one configured entry."""
        options = dict(cast("Mapping[str, Any]", entry)) if isinstance(entry, Mapping) else {}
        name: Any = options.pop("name", None)
        if not isinstance(name, str):
            raise ValueError(
                f"a configured {self.what} is a mapping with a name, not {entry!r}; there are {self._names()}"
            )
        return name, options

    def maker(self, name: str) -> Callable[..., Any]:
        """Return what makes the one of that name."""
        return self.built_in.get(name) or self._load(name)

    def make(self, name: str, options: Mapping[str, Any], *, also: Iterable[str] = ()) -> T:
        """Make the one of that name; `also` are options that are taken elsewhere, named where one is unknown."""
        make = self.maker(name)
        self._check_options(name, make, options, also)
        try:
            (made,) = self.check(f"{self.what} {name!r}", [make(**options)])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.what} {name!r}: {error}") from error
        return made

    def make_all(self, config: Any, build: Callable[[Any], tuple[str, T]]) -> Sequence[T]:
        """Make every entry; `build` returns one and the name it may have only once."""
        built: dict[str, T] = {}
        for entry in self._entries(config):
            name, made = build(entry)
            if name in built:
                raise ValueError(
                    f"the {self.what} {name!r} is configured twice: {self.twice}; there are {self._names()}"
                )
            built[name] = made
        return tuple(built.values())

    def _entries(self, config: Any) -> Iterable[Any]:
        """Return the entries of a configuration: their list, or what holds it under `keys`, outer ones left out."""
        found, keys = config, list(self.keys)
        while isinstance(found, Mapping):
            section = cast("Mapping[Any, Any]", found)  # type: ignore[redundant-cast]  # pyright needs it
            key = next((key for key in keys if key in section), None)
            if key is None:
                break
            keys = keys[keys.index(key) + 1 :]
            strange = [name for name in section if name != key] if not keys else []
            if strange:
                raise ValueError(f"{'.'.join(self.keys[:-1])} has {key!r} alone; {strange[0]!r} is unknown")
            found = section[key]
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
            where = f"; in a file it stands under {'.'.join(self.keys)}" if self.keys else ""
            raise ValueError(f"{self.what}s are configured by a list of mappings, not {found!r:.200}{where}")
        return cast("Iterable[Any]", found)  # type: ignore[redundant-cast]  # pyright needs it

    def _check_options(
        self, name: str, make: Callable[..., Any], options: Mapping[str, Any], also: Iterable[str]
    ) -> None:
        """Raise `ValueError` for an option there is not, or one that lacks."""
        signature = inspect.signature(make)
        try:
            signature.bind(**options)
        except TypeError as error:
            strange = [option for option in options if option not in signature.parameters]
            problem = f"there is no option {strange[0]!r}" if strange else str(error)
            has = known({*signature.parameters, *also})
            raise ValueError(f"{self.what} {name!r}: {problem}; its options are {has}") from None

    def _load(self, name: str) -> Callable[..., Any]:
        """Import what a package published under a name."""
        found = [point for point in self._published() if point.name == name]
        if not found:
            raise ValueError(f"there is no {self.what} {name!r}; there are {self._names()}")
        if len(found) > 1:
            where = known(point.value for point in found)
            raise ValueError(f"the {self.what} {name!r} is published twice: {where}")
        try:
            make: Callable[..., Any] = found[0].load()
        except Exception as error:
            raise ValueError(f"{self.what} {name!r} cannot be loaded from {found[0].value!r}: {error}") from error
        return make

    def _published(self) -> Sequence[EntryPoint]:
        metadata: Any = import_module("importlib.metadata")  # slow to import, and rarely asked for
        return tuple(metadata.entry_points(group=self.group))

    def _names(self) -> str:
        return known({*self.built_in, *(point.name for point in self._published())})
