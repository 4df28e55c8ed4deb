"""Where in a run's recorded steps some work is done: it names what the work records, the same in every session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final


class MemoryJournal:
    """A run's recorded steps in the order they were made; give `records` of an earlier run to replay it."""

    __slots__ = ("_records",)

    def __init__(self, records: Mapping[str, object] | None = None) -> None:
        self._records: dict[str, object] = dict(records or {})

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view: key to value."""
        return MappingProxyType(self._records)

    def get(self, key: str, default: object) -> object:
        """Return the value recorded under `key`, else `default`."""
        return self._records.get(key, default)

    def put(self, key: str, value: object) -> None:
        """Record `value` under `key`."""
        self._records[key] = value


_PLACE: Final = ContextVar("kairo_team_place", default="run")


@contextmanager
def within(place: str) -> Generator[None]:
    """Do the work of the block at this place."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


class Places:
    """Names pieces of work of one run by their place, and by how many there were before them in it."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: Counter[str] = Counter()

    def name(self, purpose: str) -> str:
        """Name the next piece of work for a purpose, here."""
        name = f"{purpose}:{_PLACE.get()}"
        self._named[name] += 1
        return f"{name}:{self._named[name]}"
