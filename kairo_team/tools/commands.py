"""What a shell command may hide: is it a single one, and what are its parts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

_SPECIAL: Final = re.compile(r"[;&|`$<>(){}\x00-\x08\x0a-\x1f\x7f]")
"""What can make one command into several, redirect it, or fill in what is not written there."""
_SEPARATOR: Final = re.compile(r"[;&|`(){}<>\n\r]+|\$\(")


def is_plain(command: str) -> bool:
    """Say whether the command is a single one, without anything a shell would fill in."""
    return not _SPECIAL.search(command)


def readings(command: str) -> Iterator[str]:
    """Yield the command and its parts as they are written and without quotes, also by the program's bare name.

    Spaces in a row are one.
    """
    for part in {command, *_SEPARATOR.split(command)}:
        for words in (part.split(), _unquoted(part)):
            yield " ".join(words)
            yield " ".join([words[0].rpartition("/")[2], *words[1:]] if words else [])


def _unquoted(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:  # a quotation that does not end
        return re.sub(r"['\"\\]", "", part).split()
