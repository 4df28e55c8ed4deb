"""Check with regular expressions in time proportional to the text, so that no text can make a check hang.

Python's own engine backtracks: a text made for it can keep it busy for ever, and no other thread gets its turn;
`(a+)+b` on a row of a's is enough. The engine here is the one that pydantic validates strings with; it has neither
look-around nor backreferences.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

LONGEST: Final = 1_000_000
"""Most characters of a text that is searched; a longer one is left undecided."""


class Pattern:
    """A regular expression, searched for anywhere in a text, in time proportional to the text.

    Raises `ValueError` for an expression that the engine does not support.
    """

    __slots__ = ("_validator", "pattern")

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str) or not pattern:
            raise ValueError(f"a pattern is a string that is not empty, not {pattern!r}")
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        except SchemaError as error:
            why = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
            raise ValueError(f"the pattern {pattern!r} cannot be searched for in linear time: {why}") from None
        self.pattern = pattern

    def found_in(self, text: str) -> bool:
        """Return whether the expression matches anywhere in a text; `ValueError` for a text that is too long."""
        if len(text) > LONGEST:
            raise ValueError(f"a text of {len(text)} characters is not searched; at most {LONGEST} are")
        try:
            self._validator.validate_python(_encodable(text))
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] != "string_pattern_mismatch":
                raise
            return False
        return True


@by_name
def regex(pattern: str, says: str = "") -> NamedCheck:
    """Make a check that a regular expression is found in the text: `^...$` for the whole text, `(?m)` line by line.

    `says` is the finding's text when it is not. The syntax is Rust's, which is Python's without look-around and
    backreferences; `ValueError` for a pattern with these.
    """
    wanted = Pattern(pattern)

    def check(artifact: Artifact) -> CheckAnswer:
        return wanted.found_in(artifact.text) or says or f"nothing in the text matches {pattern!r}"

    return NamedCheck(f"regex({pattern!r})", check, source=says or None)


@by_name
def forbidden_regex(pattern: str, says: str = "") -> NamedCheck:
    """Make a check that a regular expression is found nowhere in the text; in everything else like `regex`."""
    banned = Pattern(pattern)

    def check(artifact: Artifact) -> CheckAnswer:
        if not banned.found_in(artifact.text):
            return True
        lines = (number for number, line in enumerate(artifact.text.splitlines(), 1) if banned.found_in(line))
        number = next(lines, None)  # None: the match is over several lines
        where = "" if number is None else f" in line {number}"
        return f"{says or f'the text must not match {pattern!r}'}{where}"

    return NamedCheck(f"forbidden_regex({pattern!r})", check, source=says or None)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no other program can read, with a mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves that fit become one character again.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def search(pattern: str, text: str) -> bool:
    """Search for a pattern that is used often, such as one of a JSON Schema."""
    return _compiled(pattern).found_in(text)


_compiled = lru_cache(maxsize=500)(Pattern)
