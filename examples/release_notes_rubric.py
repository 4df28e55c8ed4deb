"""The rules for a sentence of the release notes. Plain code decides, so that no sentence adds to its commit.

Every check takes the sentence and the commit's subject and returns None, or a `Problem` the writer can act on. Together
they accept little more than the commit's own words in their own order, after its own verb in the past tense.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kairo_team.examples.release_notes_history import KIND_OF, past


class Problem(NamedTuple):
    """The defect, and what the writer must do about it."""

    observed: str
    expected: str


Check = Callable[[str, str], Problem | None]

SHORTEST: Final = 4
LONGEST: Final = 28
"""Fewest and most words of a sentence."""
PAST_TENSE: Final = tuple(sorted(past(verb).capitalize() for verb in KIND_OF))
"""Every verb a sentence may begin with."""

_STAND_INS: Final = {
    "add": {"introduce"},
    "correct": {"fix"},
    "delete": {"remove"},
    "drop": {"remove"},
    "fix": {"correct", "repair"},
    "introduce": {"add"},
    "repair": {"fix"},
}
"""Verbs that may replace the commit's own."""
_FREE: Final = frozenset({"a", "an", "the"})
"""Words that may be added or left out."""
_NEGATIONS: Final = frozenset(
    {"cannot", "except", "hardly", "neither", "never", "no", "none", "nor", "not", "only", "unless", "until", "without"}
)
_OPPOSITES: Final = {
    "above": "below", "accept": "reject", "after": "before", "allow": "refuse", "always": "never", "disable": "enable",
    "exclude": "include", "first": "last", "from": "to", "hide": "show", "increase": "decrease", "larger": "smaller",
    "less": "more", "longer": "shorter", "maximum": "minimum", "newer": "older", "off": "on", "with": "without",
}  # fmt: skip
_FIRST_PERSON: Final = frozenset({"i", "i'm", "i've", "me", "my", "our", "ours", "us", "we", "we're", "we've"})


def one_sentence(sentence: str, subject: str) -> Problem | None:  # noqa: ARG001 - every check takes both
    """Write one sentence of 4 to 28 words on one line, ending in a full stop."""
    count = len(sentence.split())
    if not SHORTEST <= count <= LONGEST:
        return Problem(f"{count} words", f"Write {SHORTEST} to {LONGEST} words.")
    if not sentence.endswith(".") or sentence.endswith(".."):
        return Problem(f"it ends in {sentence[-6:]!r}", "End with one full stop.")
    if not sentence.isprintable() or re.search(r"[.!?;]['\")\]]*\s", sentence):
        return Problem("more than one sentence or line", "Write one sentence.")
    return None


def past_tense(sentence: str, subject: str) -> Problem | None:
    """Begin with a verb in the past tense."""
    first = sentence.partition(" ")[0]
    if first in PAST_TENSE:
        return None
    return Problem(f"it begins with {first!r}", f'Begin with "{past(_verb(subject)).capitalize()}".')


def same_kind(sentence: str, subject: str) -> Problem | None:
    """Announce the change that the commit announces: an addition stays an addition."""
    first, verb = sentence.partition(" ")[0], _verb(subject)
    if first not in PAST_TENSE:
        return None  # `past_tense` reports it
    allowed = {past(other).capitalize() for other in {verb} | _STAND_INS.get(verb, set())}
    if first in allowed or _added_support(sentence, subject):
        return None
    return Problem(f"{first!r} for a commit that says {verb!r}", f'Begin with "{past(verb).capitalize()}".')


def names_kept(sentence: str, subject: str) -> Problem | None:
    """Use the numbers, versions, identifiers and names of the commit: every one, and no other."""
    said, given = (Counter(filter(_is_name, words)) for words in (_said(sentence, subject), _given(subject)))
    if said - given:
        return Problem(f"{_list(said - given)} not in the commit", f"Leave out {_list(said - given)}.")
    if given - said:
        return Problem(f"{_list(given - said)} missing", f"Keep {_list(given - said)}.")
    return None


def words_kept(sentence: str, subject: str) -> Problem | None:
    """Keep the words of the commit."""
    lost = Counter(_given(subject)) - Counter(_said(sentence, subject))
    missing = [word for word in lost if not _is_name(word)]
    return Problem(f"{_list(missing)} missing", f"Keep {_list(missing)}.") if missing else None


def nothing_invented(sentence: str, subject: str) -> Problem | None:
    """Add no word of your own but a, an and the."""
    given = set(_given(subject))
    added = [word for word in _said(sentence, subject) if word not in given and not _is_name(word)]
    return Problem(f"{_list(added)} not in the commit", f"Leave out {_list(added)}.") if added else None


def meaning_kept(sentence: str, subject: str) -> Problem | None:
    """Turn nothing round: keep what is denied, take no opposites, leave the words in their order."""
    said, given = _said(sentence, subject), _given(subject)
    for word in sorted(_NEGATIONS):
        if said.count(word) != given.count(word):
            return Problem(f"{word!r} {said.count(word)} times, not {given.count(word)}", "Keep what is denied.")
    for one, other in _OPPOSITES.items():
        for mine, theirs in ((one, other), (other, one)):
            if mine in said and mine not in given and theirs in given:
                return Problem(f"{mine!r} where the commit says {theirs!r}", f'Write "{theirs}".')
    common = set(said) & set(given)
    if [word for word in said if word in common] != [word for word in given if word in common]:
        return Problem("the words are in another order", "Keep the order of the words.")
    return None


def no_first_person(sentence: str, subject: str) -> Problem | None:
    """Do not speak of yourself."""
    found = sorted((_FIRST_PERSON & {word.lower() for word in _words(sentence)}) - set(_words(subject)))
    return Problem(f"{_list(found)} is first person", f"Leave out {_list(found)}.") if found else None


def said_once(sentence: str, subject: str) -> Problem | None:
    """Say nothing twice."""
    said = Counter(_said(sentence, subject))
    again = [word for word in said - Counter(_given(subject)) if said[word] > 1]
    return Problem(f"{_list(again)} said twice", f"Say {_list(again)} once.") if again else None


_ALL: Final[tuple[Check, ...]] = (
    one_sentence, past_tense, same_kind, names_kept, words_kept,
    nothing_invented, meaning_kept, no_first_person, said_once,
)  # fmt: skip
CHECKS: Final[dict[str, Check]] = {check.__name__.replace("_", "-"): check for check in _ALL}


def problems(sentence: str, subject: str) -> dict[str, Problem]:
    """Return all problems of a sentence, by the name of the check; empty if it may be printed."""
    found = ((name, check(sentence, subject)) for name, check in CHECKS.items())
    return {name: problem for name, problem in found if problem}


def _verb(subject: str) -> str:
    return subject.partition(" ")[0].lower()


def _given(subject: str) -> list[str]:
    """Return the commit's words after its verb."""
    return _words(subject)[1:]


def _said(sentence: str, subject: str) -> list[str]:
    """Return the sentence's words after its verb, or after the verb that replaces it."""
    return _words(sentence)[3 if _added_support(sentence, subject) else 1 :]


def _added_support(sentence: str, subject: str) -> bool:
    """Return whether a sentence is the one allowed rewording: "Added support for X" for "Support X"."""
    return _verb(subject) == "support" and sentence.startswith("Added support for ")


def _words(text: str) -> list[str]:
    """Split a text into words, without articles and without quotation marks and punctuation around them."""
    return [word for word in map(_bare, text.split()) if word and word not in _FREE]


def _bare(word: str) -> str:
    marks = "\"'`\u2018\u2019\u201c\u201d"
    word = word.lstrip(marks).rstrip(marks + ",;:!?").rstrip(".").rstrip(marks)
    if word.startswith("(") or word.count("(") != word.count(")"):
        word = word.removeprefix("(").removesuffix(")").strip(marks)
    return word


def _is_name(word: str) -> bool:
    """Return whether a word is a number, version, identifier, option or name, and not a plain word."""
    return not re.fullmatch(r"[a-z]+(?:[-'\u2019][a-z]+)*", word)


def _list(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


if __name__ == "__main__":
    for _name, _check in CHECKS.items():
        print(f"{_name}: {_check.__doc__}")
