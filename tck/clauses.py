"""The clauses of a contract, as its protocol's docstring numbers them."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Final

_CLAUSE: Final = re.compile(r"^(C\d+)\. (.+?)(?=^C\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
_UNSEEN: Final = re.compile(r"^The kit cannot see: (.+)$", re.MULTILINE)


@cache
def clauses_of(contract: type) -> dict[str, str]:
    """Return the clauses of a protocol of `kairo_team.contracts` by number, each as one line of text."""
    text = inspect.getdoc(contract) or ""
    return {number: " ".join(words.split()) for number, words in _CLAUSE.findall(text)}


def unseen_of(contract: type) -> str:
    """Return what no kit of the protocol can see, in a line of its docstring; "" without one."""
    found = _UNSEEN.search(inspect.getdoc(contract) or "")
    return "" if found is None else found[1]
