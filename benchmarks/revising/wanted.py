"""What an instruction may ask for: each of these is one criterion that code decides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kairo_team.evaluators import Criterion, Rubric, checks

if TYPE_CHECKING:
    import kairo_team as kt


@dataclass(frozen=True, slots=True)
class Instruction:
    """One thing to write, and what decides whether it was written."""

    id: str
    """Its kind and a number, such as `list-3`."""
    ask: str
    """The instruction for the model."""
    criteria: tuple[Criterion, ...]
    good: str
    """A text that a person wrote, which passes."""
    bad: str
    """One that does not."""

    @property
    def rubric(self) -> Rubric:
        """Return its criteria as a rubric of gates."""
        return Rubric(self.criteria)


def most_words(count: int) -> Criterion:
    """Want at most so many words."""
    return Criterion("most-words", f"at most {count} words", checks.max_words(count))


def least_words(count: int) -> Criterion:
    """Want at least so many words."""
    return Criterion("least-words", f"at least {count} words", checks.min_words(count))


def most_chars(count: int) -> Criterion:
    """Want at most so many characters."""
    return Criterion("most-chars", f"at most {count} characters", checks.max_chars(count))


def says(*phrases: str) -> Criterion:
    """Want every phrase, whatever the case of its letters."""
    return Criterion("says", f"it says {_named(phrases)}", checks.contains(*phrases))


def avoids(*words: str) -> Criterion:
    """Want none of the words, which are whole words."""
    pattern = "|".join(map(re.escape, words))
    check = checks.forbidden_regex(rf"(?i)\b(?:{pattern})\b", f"the text must not say {_named(words)}")
    return Criterion("avoids", f"it does not say {_named(words)}", check)


def looks(id: str, text: str, pattern: str) -> Criterion:
    """Want a regular expression to be found."""
    return Criterion(id, text, checks.regex(pattern, f"not met: {text}"))


def lacks(id: str, text: str, pattern: str) -> Criterion:
    """Want a regular expression to be found nowhere."""
    return Criterion(id, text, checks.forbidden_regex(pattern, f"not met: {text}"))


def begins(start: str) -> Criterion:
    """Want the text to begin so."""
    return looks("begins", f'it begins with "{start}"', rf"^\s*{re.escape(start)}")


def ends(end: str) -> Criterion:
    """Want the text to end so."""
    return looks("ends", f'it ends with "{end}"', rf"{re.escape(end)}\s*$")


def order(*phrases: str) -> Criterion:
    """Want the phrases one after the other, with any text between."""
    pattern = "(?is)" + ".*".join(map(re.escape, phrases))
    said = ", then ".join(f'"{one}"' for one in phrases)
    return looks("order", f"it says {said}", pattern)


def lines(count: int, line: str, what: str) -> Criterion:
    """Want exactly this many lines, each of which matches; `what` describes them."""
    pattern = rf"^\s*(?:{line}\s*\n\s*){{{count - 1}}}{line}\s*$"
    return looks("lines", f"exactly {count} lines and nothing else, {what}", pattern)


def json_object(text: str, right: Callable[[dict[str, Any]], bool]) -> Criterion:
    """Want a JSON object alone, of which the function is true; `text` describes it."""
    return _json(f"an object {text}", lambda found: isinstance(found, dict) and right(cast("dict[str, Any]", found)))


def json_list(text: str, right: Callable[[list[Any]], bool]) -> Criterion:
    """Want a JSON list alone, of which the function is true; `text` describes it."""

    def check(found: Any) -> bool:
        return isinstance(found, list) and right(cast("list[Any]", found))  # type: ignore[redundant-cast]  # pyright needs it

    return _json(f"a list {text}", check)


def _json(text: str, right: Callable[[Any], bool]) -> Criterion:
    def check(artifact: kt.Artifact) -> bool | str:
        try:
            found: Any = json.loads(artifact.text)
        except ValueError:
            return "the answer is not JSON alone"
        return right(found) or f"the JSON is not {text}"

    return Criterion("json", f"the answer is JSON alone, {text}", check)


def _named(phrases: tuple[str, ...]) -> str:
    return " and ".join(f'"{phrase}"' for phrase in phrases)
