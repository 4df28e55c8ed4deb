"""Find the texts in a command that may be paths, in every way in which a shell may read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from kairo_team.tools.globs import ANYTHING, NUMBER, WILD

QUOTES: Final = re.compile(r"['\"\\^]")
_CONTINUED: Final = re.compile(r"[\\^`]\r?\n")
"""What a shell removes at the end of a line: the next line continues the same word."""
LONGEST_PATH: Final = 4_096
"""Length of the longest path that a system opens, in characters."""
_MOST_TEXT: Final = 200_000
"""Most characters of all readings of a command together; a command with more counts as undecided."""
_MOST_ALTERNATIVES: Final = 200
"""Most steps to resolve the braces of one word; a word that needs more may be anything."""
_DEEPEST: Final = 4
"""Most levels of quoted commands inside quoted commands that are read."""

_ESCAPES: Final = re.compile(r"\$'(?:\\.|[^'\\])*'?", re.DOTALL)
_QUOTED: Final = re.compile(rf"\\.|\"(?:\\.|[^\"\\])*\"|{_ESCAPES.pattern}|'[^']*'", re.DOTALL)
_READS_SCRIPTS: Final = re.compile(
    r"(?:^|[^\w.-])(?:(?:ba|da|a|k|mk|z|c|tc|fi|s|rs|pw|power)?sh|eval|su|watch|parallel|trap)(?![\w.-])", re.IGNORECASE
)
"""Programs that read an argument as a command, so that quotes around it do not protect it."""
_HIDES_QUOTES: Final = re.compile(r"<<|(?:^|[\s;&|()<>])#[^\n]*\n")
"""The start of a here-document or the end of a comment: a quote in it does not quote."""
_NUMBERS: Final = re.compile(r"\$\(\([^()$`]*\)\)|\$\[[^]$`]*\]|\$[?#$!]")
_FILLED_IN: Final = re.compile(r"\$\(.*|`.*|\$\{[^}]*\}?|\$[A-Za-z_]\w*|\$[0-9@*-]", re.DOTALL)
_LITERAL: Final = {letter: chr(0xE002 + place) for place, letter in enumerate("$`{}*?[")}
"""Placeholders for these characters where the shell does not expand them."""
_LITERAL_BRACES: Final = {ord(letter): _LITERAL[letter] for letter in "{}"}
_AS_WRITTEN: Final = {ord(mark): letter for letter, mark in _LITERAL.items()}
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"[^,]*\.\.[^,]*")
_CHOICE: Final = re.compile(r"(?:\\.|\"[^\"]*\"|'[^']*'|[^,])*", re.DOTALL)
_GROUP: Final = re.compile(r"[?*+@!]?\([^()]*\)")
_OPERATORS: Final = re.compile(r"[;&|<>()`\n]+")
_BETWEEN: Final = re.compile(r"[\s'\",;:=@|&<>(){}`]+")
_GLUE: Final = re.compile(r"[=:,@+%#!^]")
_LONGEST_CLUSTER: Final = 64
"""Most characters of short options before a glued value, as in `tar -xzfFILE`."""


def shell_words(text: str) -> Mapping[str, bool] | None:
    """Return every text in a command that may be a path, and whether a shell may expand it; None if there are too many.

    These are the words with and without quotes, the pieces between punctuation, the alternatives in braces, and the
    values glued to options and names. `ANYTHING` and `NUMBER` replace text that only the shell knows.
    """
    found: dict[str, bool] = {}
    size = 0
    for marked, expands in _values(text):
        wild = expands and WILD.search(marked) is not None
        value = marked.translate(_AS_WRITTEN)
        if not value or found.get(value, -1) >= wild:  # False < True: the reading that expands covers the other
            continue
        if len(value) > LONGEST_PATH:
            if (wild or "/." in value) and not re.search(r"\s", value):
                return None
            continue
        found[value] = wild
        size += len(value)
        if size > _MOST_TEXT:
            return None
    return found


def joined_lines(text: str) -> str:
    """Return a command with its continued lines joined."""
    return _CONTINUED.sub("", text)


def unquoted(text: str) -> list[str]:
    """Return the words as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError:  # a quote is not closed
        return QUOTES.sub("", text).split()


def alternatives(word: str) -> list[str]:
    """Return the words that a word's braces expand to, with `*` for a range."""
    return [one.translate(_AS_WRITTEN) for one in _alternatives(word)]


def _alternatives(word: str) -> list[str]:
    waiting, found = [word], list[str]()
    for _ in range(_MOST_ALTERNATIVES):
        if not waiting:
            return found
        one = waiting.pop()
        group = _BRACES.search(one)
        if group is None:
            found.append(one)
            continue
        before, inside, after = one[: group.start()], group[1], one[group.end() :]
        if "," in inside:
            waiting += [before + choice + after for choice in dict.fromkeys(_choices(inside))]
        elif _RANGE.fullmatch(inside):
            waiting.append(f"{before}*{after}")
        else:
            waiting.append(before + group[0].translate(_LITERAL_BRACES) + after)
    # Too many to list, so it may be anything.
    return [ANYTHING]


def _choices(inside: str) -> Iterator[str]:
    """Yield the texts between the commas that are not quoted."""
    at = 0
    while at <= len(inside):
        choice = _CHOICE.match(inside, at)
        end = choice.end() if choice else at
        yield inside[at:end]
        at = end + 1


def _filled(text: str) -> str:
    """Mark the text that the shell expands, and, where quotes are reliable, the text that it does not."""
    unsure = _READS_SCRIPTS.search(text) or _HIDES_QUOTES.search(text)
    text = _ESCAPES.sub(ANYTHING, text) if unsure else _QUOTED.sub(_protected, text)
    return re.sub(r"\$(?=\")", "", _FILLED_IN.sub(ANYTHING, _NUMBERS.sub(NUMBER, text)))


def _protected(quoted: re.Match[str]) -> str:
    found = quoted[0]
    if found[0] == "$":
        return ANYTHING
    if found[0] == "\\":
        return found
    kept = "$`{}" if found[0] == "'" else "{}"
    if re.search(r"\s", found):  # programs such as `find` and `git` may expand a single word themselves
        kept += "*?["
    return found.translate({ord(letter): _LITERAL[letter] for letter in kept})


def _values(text: str) -> Iterator[tuple[str, bool]]:
    texts = dict.fromkeys((text, joined_lines(text)))
    # The text as it is, and as a shell would expand it: whether there is a shell is unknown.
    for read, expands in (*((one, False) for one in texts), *((_filled(one), True) for one in texts)):
        for word in _words(read):
            for whole in _pieces(word):
                for one in _alternatives(whole) if expands else (whole,):
                    yield from ((value, expands) for value in _glued_values(one))
        for plain in (read, QUOTES.sub("", read)):
            yield from ((piece, expands) for piece in _BETWEEN.split(plain))


def _words(text: str) -> Iterator[str]:
    yield text
    yield from text.split()
    yield from _nested(text, _DEEPEST)
    yield from QUOTES.sub("", text).split()


def _nested(text: str, deeper: int) -> Iterator[str]:
    for word in unquoted(text):
        yield word
        if deeper and QUOTES.search(word):
            yield from _nested(word, deeper - 1)


def _pieces(word: str) -> Iterator[str]:
    """Yield the word, the word with its groups as wildcards, and the parts of both between operators."""
    grouped = word
    for _ in range(_DEEPEST if "(" in word else 0):
        grouped = _GROUP.sub("*", grouped)
    for one in dict.fromkeys((grouped, word)):
        yield one
        yield from _OPERATORS.split(one)


def _glued_values(word: str) -> Iterator[str]:
    """Yield the word, and values in it that may be glued to an option or a name."""
    yield word
    bare = QUOTES.sub("", word)
    if bare != word:
        yield bare
    head = re.split(r"\s", word, maxsplit=1)[0]
    for glue in _GLUE.finditer(head):
        yield word[glue.end() :]
    if re.match(r"-[^-]", head):
        letters = head.partition("/")[0]
        # Only the program knows which option takes the value, so every rest may be a path.
        yield from (word[at:] for at in range(2, min(len(letters), _LONGEST_CLUSTER) + 1))
