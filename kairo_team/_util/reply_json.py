"""JSON of a model: the schema of what it is asked for, and its reply, in a code fence or between sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

_MOST_VALUES: Final = 1_000
"""Most places of a reply that are tried as the beginning of a value."""
_LANGUAGE: Final = re.compile(r"[ \t]*[A-Za-z][\w+.-]*")
"""The language that may follow the beginning of a code fence."""
_FENCE: Final = 3
"""Fewest characters of the beginning, and of the end, of a code fence."""
_BEGUN: Final = re.compile(r'\{\s*["}]|\[\s*[\[{"\]]')
"""The beginning of JSON, unlike a bracket in a sentence."""


def object_schema(properties: Mapping[str, Any], required: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties alone; `required` are those it must have, None: all."""
    needed = [*properties] if required is None else [*required]
    return {"type": "object", "properties": dict(properties), "required": needed, "additionalProperties": False}


def read_json(text: str | bytes) -> Any:
    """Parse JSON; raises `ValueError` or `RecursionError`. Refuses `NaN` and `Infinity`, which Python would read."""
    return json.loads(text, parse_constant=refuse_constant)


def refuse_constant(name: str) -> NoReturn:
    """Raise the error of a number that Python's reader knows and JSON does not."""
    raise ValueError(f"{name} is not a JSON value")


def read_reply(text: str, read: Callable[[str], T]) -> T:
    """Return what `read` returns for the JSON in a reply: the whole text, inside its code fence, or between sentences.

    `read` takes a JSON text and raises `ValueError` for a value that does not fit. Raises the `ValueError` of the
    likeliest text if none fits, and its own if several different values fit.
    """
    whole = text.strip().removeprefix("\ufeff").strip()
    problem: ValueError | None = None
    for one in dict.fromkeys((whole, _unfenced(whole))):
        try:
            return read(one)
        except ValueError as error:
            problem = error
    fitting: list[T] = []
    # The whole text was read above.
    values = [value.text for value in values_in(whole) if value.text != whole]
    for one in values:
        try:
            made = read(one)
        except ValueError as error:
            problem = error if len(values) == 1 else problem
        else:
            fitting += [] if made in fitting else [made]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(f"{len(fitting)} different JSON values in the reply fit, and there must be one")
    assert problem is not None, "the whole text was read first"
    raise problem


def json_in(text: str) -> str:
    """Return the JSON in a reply, as it is written there; the text itself if it has none, or several values."""
    try:
        return read_reply(text, _written)
    except (ValueError, RecursionError):
        return text


def _written(text: str) -> str:
    json.loads(text)
    return text


def _unfenced(whole: str) -> str:
    """Return the inside of a text that is one code fence, on one or several lines; else the text."""
    mark = whole[:1]
    if mark not in ("`", "~"):
        return whole
    opening, closing = len(whole) - len(whole.lstrip(mark)), len(whole) - len(whole.rstrip(mark))
    if min(opening, closing) < _FENCE or opening + closing > len(whole):
        return whole
    inside = whole[opening:-closing]
    language = _LANGUAGE.match(inside)
    return (inside if language is None else inside[language.end() :]).strip()


class Value(NamedTuple):
    """A JSON value in a text."""

    text: str
    made: Any


def values_in(text: str, beginnings: str = "{[") -> list[Value]:
    """Return the outermost JSON objects and arrays of a text, up to the first broken one.

    An object with a duplicate key counts as broken. `beginnings` are the brackets to look for.
    """
    decoder = json.JSONDecoder(object_pairs_hook=without_doubles)
    bracket = re.compile(f"[{re.escape(beginnings)}]")
    found: list[Value] = []
    place = 0
    for _ in range(_MOST_VALUES):
        opening = bracket.search(text, place)
        if opening is None:
            break
        try:
            made, place = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            if _BEGUN.match(text, opening.start()):
                break
            place = opening.end()
        else:
            found.append(Value(text[opening.start() : place], made))
    return found


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values; `ValueError` if a key is given twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made
