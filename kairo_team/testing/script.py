"""What scripted doubles have in common: items handed out one after another, and a check that all were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, cast

T = TypeVar("T")

Failure = BaseException | type[BaseException]
"""Raised in its turn instead of being returned."""


class Script(Generic[T]):
    """Items in order. An item that is an exception is raised; asking for more than there are is an error."""

    __slots__ = ("_asked", "_items", "_what")

    def __init__(self, items: Iterable[T | Failure], what: str) -> None:
        if isinstance(items, str):
            raise ValueError(f"{what} takes a list of items, not the string {items!r}")
        self._items = list(items)
        self._what = what
        self._asked = 0

    def take(self) -> T:
        """Return or raise the next item; `AssertionError` when the script is over."""
        self._asked += 1
        if self._asked > len(self._items):
            raise AssertionError(f"{self._what}: call {self._asked} of a script of {len(self._items)}")
        item = self._items[self._asked - 1]
        if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
            raise item
        return cast("T", item)

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless every item was asked for, and none more."""
        if self._asked != len(self._items):
            raise AssertionError(f"{self._what}: {self._asked} calls of a script of {len(self._items)}")
