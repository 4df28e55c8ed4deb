"""The keys of a served team: who has which, read from a file or a variable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kairo_team.errors import Misuse
from kairo_team.web_console.access import LEAST_TOKEN, same

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SHAPE: Final = "a line for each key: a name and the key, such as `ada 8f0c...`; lines that begin with # are left out"


class Keys:
    """Keys by the names of who has them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take the keys; raises `Misuse` without one, for a bad name, a short key, and one key under two names."""
        if not keys:
            raise Misuse("a served team needs a key: keys={'ada': ...}, a name and the key for each caller")
        for name, key in keys.items():
            if not _NAME.fullmatch(name):
                raise Misuse(f"a key's name has 1 to 40 characters of A-Z, a-z, 0-9, _ and -, not {name!r:.80}")
            if len(key) < LEAST_TOKEN or not key.isascii() or not key.isprintable() or " " in key:
                raise Misuse(f"the key of {name!r} needs at least {LEAST_TOKEN} characters of printable ASCII")
        if len(set(keys.values())) < len(keys):
            raise Misuse("two names have the same key: give each caller a key of its own")
        self._keys = dict(keys)

    def name_of(self, given: str) -> str | None:
        """Return who has a key; None for a wrong one. Takes the same time for every wrong key."""
        found = [name for name, key in self._keys.items() if same(given, key)]  # all are compared, for the same time
        return found[0] if found else None

    def __repr__(self) -> str:
        return f"Keys({', '.join(sorted(self._keys))})"


def read_keys(text: str, where: str) -> dict[str, str]:
    """Read a name and a key from each line; `Misuse` names the line that cannot be read, and never shows it."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:  # noqa: PLR2004 - a name and a key
            raise Misuse(f"{where}, line {number} cannot be read: it takes {_SHAPE}")
        if words[0] in keys:
            raise Misuse(f"{where}, line {number}: {words[0]!r} has a key already")
        keys[words[0]] = words[1]
    if not keys:
        raise Misuse(f"{where} has no key: it takes {_SHAPE}")
    return keys
