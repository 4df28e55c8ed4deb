"""Recorded steps, kept in memory for the life of a run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


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
