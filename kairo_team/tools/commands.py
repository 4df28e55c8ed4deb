"""Commands as a guard sees them: their words in every possible reading; and globs for commands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from kairo_team.tools.globs import name_glob, names_meet
from kairo_team.tools.shell_words import QUOTES, joined_lines, shell_words, unquoted

LONGEST: Final = 20_000
"""The longest command, in characters, that is examined; a longer one counts as undecided."""

# Control characters and unusual spaces count too, because shells and `str.split` do not agree on them.
_SPECIAL: Final = re.compile(r"[;&|`$<>(){}\x00-\x08\x7f]|[^\S \t]")
"""Characters that can join commands, redirect them, or expand to other text; unusual spaces too."""
_SEPARATOR: Final = re.compile(r"[;&|`(){}<>\n\r]+|\$\(")
_PUNCTUATION: Final = re.compile(r"['\"\\^,=!@;&|`$(){}\[\]<>]")
_EXPANSION: Final = re.compile(r"[$`].*", re.DOTALL)
# Characters that have no width and would keep a word from its rule while it looks the same.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\U000e0000-\U000e0fff]"
)
# Windows finds a program without its ending.
_ENDING: Final = re.compile(r"\.(?:exe|cmd|bat|com)$")
_WILD: Final = re.compile(r"[*?\[]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_ANY: Final = ("*", "**")
_LONGEST_WORD: Final = 1_000
"""The longest word, in characters, whose wildcards are examined; a longer word counts as undecided."""


@dataclass(frozen=True)
class Command:
    """One command of a call."""

    text: str

    def __str__(self) -> str:
        return repr(self.text[:200])

    @property
    def is_too_long(self) -> bool:
        """Whether it is too long to be examined."""
        return len(self.text) > LONGEST

    @property
    def is_plain(self) -> bool:
        """Whether it is a single command without shell expansions."""
        return not self.is_too_long and not _SPECIAL.search(self.text)

    @cached_property
    def readings(self) -> Sequence[Sequence[str]]:
        """The words of the command and of its parts, in every way they can be read, in one case and spelling."""
        text = _folded(self.text)
        found: dict[tuple[str, ...], None] = {}
        joined = joined_lines(text)
        for part in dict.fromkeys((text, *_SEPARATOR.split(text), joined, *_SEPARATOR.split(joined))):
            for words in _read(part):
                found[tuple(words)] = None
        return [words for words in found if words]

    @cached_property
    def words(self) -> Mapping[str, bool] | None:
        """Every text in it that may be a path, and whether a shell may expand it; None if there are too many."""
        return None if self.is_too_long else shell_words(self.text)


class CommandGlob:
    """A glob for a command's words; `*` in a word matches any characters, and as the last word any further words."""

    __slots__ = ("_naive", "_operands", "_options", "_program", "_quoted", "_whole")

    def __init__(self, glob: str) -> None:
        self._naive, self._quoted = glob.split(), unquoted(glob)
        self._whole = _folded(glob)
        program, *rest = self._whole.split()
        # A glob may span folders (`/opt/*/rm`), so only a plain program is reduced to its name.
        self._program = program if _WILD.search(program) else _name(program)
        self._options = any(_is_option(word) for word in rest)
        self._operands: list[tuple[str, bool]] = []
        loose = False
        for word in rest:
            if word in _ANY or _is_option(word):
                loose = True
            else:
                self._operands.append((word, loose))

    def fits(self, command: Command) -> bool:
        """Return whether a command matches word by word, both as a shell reads it and split at spaces."""
        text = command.text
        # To allow, both readings must match: a tool may run the text in a shell or split it itself.
        return command.is_plain and _word_fits(self._naive, text.split()) and _word_fits(self._quoted, unquoted(text))

    def touches(self, command: Command) -> bool:
        """Return whether a command may contain one that matches, in any spelling.

        The program may be any word, after any path. The values of options are unknown: after the first option, the
        words need not be consecutive, and an option that sets something (`name=value`) may mean anything. An option of
        the glob matches any option. More words may follow.
        """
        return command.is_too_long or any(
            fnmatchcase(" ".join(words), self._whole) or self._may_begin(words) for words in command.readings
        )

    def _may_begin(self, words: Sequence[str]) -> bool:
        """Return whether the glob's program is among the words, and the words after it may match the glob's."""
        # Assignments (`A=b rm x`) come before the program, the one word that a shell expands to run it.
        first = next((place for place, word in enumerate(words) if "=" not in word), 0)
        sets = False
        for place, word in enumerate(words):
            same = _may_be if place == first else fnmatchcase
            if (same(_name(word), self._program) or same(word, self._program)) and (
                sets or self._may_follow(words[place + 1 :])
            ):
                return True
            # After an assignment (`git -c alias.x=rm x`) any word may mean the program's arguments.
            sets = sets or "=" in word
        return False

    def _may_follow(self, words: Sequence[str]) -> bool:
        """Return whether the words after the program may match the glob's."""
        if self._options and not any(_is_option(word) for word in words):
            return False
        rest, after_option = iter(words), False
        for operand, loose in self._operands:
            for word in rest:
                after_option = after_option or _is_option(word)
                if not _is_option(word) and _may_be(word, operand):
                    break
                if after_option and "=" in word:
                    return True
                if not (after_option or loose):
                    return False
            else:
                return False
        return True


def _word_fits(glob: Sequence[str], words: Sequence[str]) -> bool:
    free = glob[-1] in _ANY
    head = glob[:-1] if free else glob
    enough = len(words) >= max(1, len(head)) if free else len(words) == len(head)
    return enough and all(fnmatchcase(word, wanted) for word, wanted in zip(words, head, strict=False))


def _may_be(word: str, wanted: str) -> bool:
    """Return whether a shell may expand a word to the wanted one."""
    if fnmatchcase(word, wanted):
        return True
    # A non-ASCII character matches any: a file system may treat it like an ASCII one.
    filled = _NOT_ASCII.sub("?", _EXPANSION.sub("*", word))
    return _WILD.search(filled) is not None and (
        len(filled) > _LONGEST_WORD or names_meet(name_glob(filled), name_glob(wanted))
    )


def _read(part: str) -> Iterator[Sequence[str]]:
    """Yield the words of a part as written, as a shell reads them, without quotes, and without punctuation."""
    # Each shell and each tool splits in its own way. A rule that refuses must match in any of these readings.
    yield part.split()
    yield " ".join(unquoted(part)).split()
    bare = QUOTES.sub("", part)
    yield bare.split()
    yield _PUNCTUATION.sub(" ", part).split()
    yield _PUNCTUATION.sub(" ", bare).split()


def _folded(text: str) -> str:
    # File systems that ignore case and width would run it all the same.
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()


def _name(word: str) -> str:
    """Return the bare name of a program."""
    return _ENDING.sub("", re.split(r"[/\\]", word)[-1]) or word


def _is_option(word: str) -> bool:
    return word.startswith("-")
