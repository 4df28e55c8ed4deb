"""What a contract promises: the clauses, the version and the stability, all as its protocol's docstring states them."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Final, Literal, NamedTuple, cast

Stability = Literal["experimental", "stable"]
"""What may change when; `docs/support.md` says it for each."""
_CLAUSE: Final = re.compile(r"^(C\d+)\. (.+?)(?=^C\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
_MARK: Final = re.compile(r"(?:^|\s)Contract (?P<version>\d+\.\d+), (?P<mark>experimental|stable)\.$", re.MULTILINE)

_UNSEEN: Final = re.compile(r"^The kit cannot see: (.+)$", re.MULTILINE)


class Promise(NamedTuple):
    """The version and the stability of a contract."""

    version: str
    """The second number counts the clauses; the first one rises when a clause is changed or removed."""
    stability: Stability


@cache
def clauses_of(contract: type) -> dict[str, str]:
    """Return the clauses of a protocol of `kairo_team.contracts` by number, each as one line of text."""
    text = inspect.getdoc(contract) or ""
    return {number: " ".join(words.split()) for number, words in _CLAUSE.findall(text)}


def promise_of(contract: type) -> Promise | None:
    """Return what the docstring of a protocol promises; None for a class that is not a contract."""
    found = _MARK.search(vars(contract).get("__doc__") or "")  # its own alone: `getdoc` would inherit one
    return None if found is None else Promise(found["version"], cast("Stability", found["mark"]))


def unseen_of(contract: type) -> str:
    """Return what no kit of the protocol can see, in a line of its docstring; "" without one."""
    found = _UNSEEN.search(inspect.getdoc(contract) or "")
    return "" if found is None else found[1]
