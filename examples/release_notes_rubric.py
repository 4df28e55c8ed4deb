"""What a sentence of the release notes must be. Plain code decides, so that no sentence says what its commit does not.

Every check takes the sentence and the commit's subject and returns None, or a `Problem` the writer can act on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kairo_team.examples.release_notes_history import KIND_OF, past


class Problem(NamedTuple):
    """What was found, and what the writer should do about it."""

    observed: str
    expected: str


Check = Callable[[str, str], Problem | None]

PAST_TENSE: Final = tuple(sorted({past(verb).capitalize() for verb in KIND_OF} | {"Corrected", "Resolved"}))
"""Every verb a sentence may begin with."""

_SAME: Final = [{"add", "introduce"}, {"delete", "drop", "remove"}, {"correct", "fix", "repair", "resolve"}]
"""Verbs that may stand for one another at the head of a sentence."""
_FREE: Final = frozenset({"a", "an", "the"})
"""Words that may come and go."""
_FILLERS: Final = frozenset({"also", "just", "new", "now", "properly", "simply", "some"})
"""Words of a commit that may be left out."""
_NEGATIONS: Final = frozenset(
    "barely except hardly less longer neither never no nobody none nor not nothing only unless until without".split()
)
_OPPOSITES: Final = [
    tuple(pair.split("-"))
    for pair in "allow-forbid allow-refuse allow-prevent accept-reject enable-disable add-remove show-hide start-stop "
    "increase-decrease increase-reduce raise-lower before-after from-to with-without more-less above-below on-off "
    "include-exclude require-allow open-close lock-unlock first-last minimum-maximum min-max always-never "
    "newer-older true-false to-from after-before".split()
]
_FIRST_PERSON: Final = frozenset({"i", "i'm", "i've", "me", "my", "our", "ours", "us", "we", "we're", "we've"})


def one_sentence(sentence: str, subject: str) -> Problem | None:
    """One sentence of 4 to 28 words on one line, ending in a full stop."""
    count = len(sentence.split())
    if not 4 <= count <= 28:
        return Problem(f"{count} words", "Write 4 to 28 words.")
    if not sentence.endswith(".") or sentence.endswith(".."):
        return Problem(f"it ends in {sentence[-6:]!r}", "End with one full stop.")
    if not sentence.isprintable() or re.search(r"[.!?;]['\")\]]*\s", sentence):
        return Problem("more than one sentence or line", "Write one sentence.")
    return None


def past_tense(sentence: str, subject: str) -> Problem | None:
    """The first word is a verb in the past tense."""
    first = sentence.partition(" ")[0]
    if first in PAST_TENSE:
        return None
    return Problem(f"it begins with {first!r}", f'Begin with "{past(_verb(subject)).capitalize()}".')


def same_kind(sentence: str, subject: str) -> Problem | None:
    """The verb announces the change that the commit's verb announces: an addition stays an addition."""
    first, verb = sentence.partition(" ")[0].lower(), _verb(subject)
    if first.capitalize() not in PAST_TENSE:
        return None  # the past tense is another check's business
    if first in {past(other) for other in _alike(verb)} or _added_support(sentence, subject):
        return None
    return Problem(f"{first!r} for a commit that says {verb!r}", f'Begin with "{past(verb).capitalize()}".')


def names_kept(sentence: str, subject: str) -> Problem | None:
    """Numbers, versions, identifiers and names are those of the commit: every one, and no other."""
    said, given = _names(sentence), _names(subject)
    if said - given:
        return Problem(f"{_list(said - given)} not in the commit", f"Leave out {_list(said - given)}.")
    if given - said:
        return Problem(f"{_list(given - said)} missing", f"Keep {_list(given - said)}.")
    return None


def words_kept(sentence: str, subject: str) -> Problem | None:
    """The commit's words come back; only fillers may be left out."""
    lost = Counter(_rest(subject)) - Counter(_said(sentence, subject))
    missing = [word for word in lost if word not in _FILLERS and not _is_name(word)]
    return Problem(f"{_list(missing)} missing", f"Keep {_list(missing)}.") if missing else None


def nothing_invented(sentence: str, subject: str) -> Problem | None:
    """Every word stands in the commit, articles aside."""
    given = set(_rest(subject))
    added = [word for word in _said(sentence, subject) if word not in given and not _is_name(word)]
    return Problem(f"{_list(added)} not in the commit", f"Leave out {_list(added)}.") if added else None


def meaning_kept(sentence: str, subject: str) -> Problem | None:
    """Nothing is turned round: the same negations, no opposites, and the words in the commit's order."""
    said, given = _said(sentence, subject), _rest(subject)
    for word in sorted(_NEGATIONS):
        if said.count(word) != given.count(word):
            return Problem(f"{word!r} {said.count(word)} times, not {given.count(word)}", "Keep what is denied.")
    for left, right in _OPPOSITES:
        if left in given and right in said and right not in given:
            return Problem(f"{right!r} where the commit says {left!r}", f'Keep "{left}".')
        if right in given and left in said and left not in given:
            return Problem(f"{left!r} where the commit says {right!r}", f'Keep "{right}".')
    common = set(said) & set(given)
    if [word for word in said if word in common] != [word for word in given if word in common]:
        return Problem("the words are in another order", "Keep the order of the words.")
    return None


def no_first_person(sentence: str, subject: str) -> Problem | None:
    """Nobody speaks of himself, unless the commit does."""
    found = (_FIRST_PERSON & {word.casefold() for word in _words(sentence)}) - set(_words(subject))
    return Problem(f"{_list(found)} is first person", f"Leave out {_list(found)}.") if found else None


def said_once(sentence: str, subject: str) -> Problem | None:
    """No word comes more often than in the commit."""
    said = Counter(_rest(sentence))
    again = [word for word in said - Counter(_rest(subject)) if said[word] > 1]
    return Problem(f"{_list(again)} said twice", f"Say {_list(again)} once.") if again else None


CHECKS: Final[dict[str, Check]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        one_sentence,
        past_tense,
        same_kind,
        names_kept,
        words_kept,
        nothing_invented,
        meaning_kept,
        no_first_person,
        said_once,
    )
}


def problems(sentence: str, subject: str) -> dict[str, Problem]:
    """All that is wrong with a sentence, by the name of the check; nothing when it may be printed."""
    found = ((name, check(sentence, subject)) for name, check in CHECKS.items())
    return {name: problem for name, problem in found if problem}


def _verb(subject: str) -> str:
    return subject.partition(" ")[0].lower()


def _alike(verb: str) -> set[str]:
    """The verb and those that may stand for it."""
    return {verb}.union(*(group for group in _SAME if verb in group))


def _added_support(sentence: str, subject: str) -> bool:
    """Whether it is the one rewording allowed: "Support X" may become "Added support for X"."""
    return _verb(subject) == "support" and sentence.startswith("Added support for ")


def _words(text: str) -> list[str]:
    """The words of a text without quotation marks and punctuation around them, articles left out."""
    bare = (_bare(_bare(word)) for word in text.split())
    return [word for word in bare if word and word.lower() not in _FREE]


def _bare(word: str) -> str:
    word = word.strip("\"'`\u2018\u2019\u201c\u201d,;:!?").rstrip(".")
    whole = word.count("(") == word.count(")") and not word.startswith("(")
    return word if whole else word.removeprefix("(").removesuffix(")")


def _rest(text: str) -> list[str]:
    """The words after the leading verb; plain words in lower case, names as they are."""
    return [word if _is_name(word) else word.lower() for word in _words(text)[1:]]


def _said(sentence: str, subject: str) -> list[str]:
    """The sentence's words after the verb, or what stands for it."""
    return _rest(sentence)[2:] if _added_support(sentence, subject) else _rest(sentence)


def _is_name(word: str) -> bool:
    """Whether a word is a number, a version, an identifier, an option or a name."""
    return not re.fullmatch(r"[a-z]+(?:[-'\u2019][a-z]+)*", word)


def _names(text: str) -> Counter[str]:
    return Counter(filter(_is_name, _words(text)[1:]))


def _list(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
