"""Conditions on artifacts, as data: when a task is taken, and when a loop ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from kairo_team._util.counts import count
from kairo_team._util.frozen import checked, freeze_json, thaw
from kairo_team._util.late_pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainSerializer,
    WithJsonSchema,
    to_jsonable_python,
)
from kairo_team._util.narrowing import is_list
from kairo_team._util.reply_json import object_schema, read_reply
from kairo_team.errors import known

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

Test = Literal["equals", "not_equals", "one_of", "contains", "at_least", "at_most", "holds"]
TESTS: Final[tuple[Test, ...]] = ("equals", "not_equals", "one_of", "contains", "at_least", "at_most", "holds")
"""The tests that a condition may use."""
_KEYS: Final = ("from", "field", *TESTS)


class Unreadable(ValueError):
    """The artifact does not contain what the plan reads from it."""


@checked
@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one task's accepted artifact; a mapping may be used wherever a condition may.

    `{"from": "triage", "field": "kind", "equals": "bug"}` tests the artifact of the task `triage`: its data, or without
    data its text, which is read as JSON if a field is given. `field` is a path of keys and list places, such as
    `"report.errors.0"`; without one the whole artifact is tested. `test` is one of:

    - `equals`, `not_equals`: a JSON value;
    - `one_of`: a list of JSON values;
    - `contains`: a part of a text, or a member of a list;
    - `at_least`, `at_most`: a number;
    - `holds`: the name of a function in `Team.conditions`, which gets the artifact and returns True or False.

    Raises `ValueError` for a test that does not exist, and for a value that does not fit the test.

    >>> from kairo_team.conditions import Condition
    >>> condition = Condition("triage", "equals", "bug", field="kind")
    >>> print(condition.as_data())
    {'from': 'triage', 'field': 'kind', 'equals': 'bug'}
    """

    source: str
    """Id of the task whose artifact is tested."""
    test: Test
    value: Annotated[Any, AfterValidator(freeze_json)]
    """The value to compare with."""
    field: str | None = None
    """Path in the artifact; None: the whole artifact."""

    def __post_init__(self) -> None:
        where = f"the condition on {self.source!r}"
        if self.field is not None and not all(self.field.split(".")):
            raise ValueError(f"{where}: field is a path such as 'kind' or 'report.errors.0', not {self.field!r}")
        kinds = _KINDS.get(self.test)
        # True is an int.
        fits = kinds is None or (isinstance(self.value, kinds[0]) and not isinstance(self.value, bool))
        if kinds is not None and not fits:
            raise ValueError(f"{where}: {self.test} takes {kinds[1]}, not {thaw(self.value)!r:.80}")

    def as_data(self) -> dict[str, Any]:
        """Return the condition as a mapping of JSON values."""
        path = {} if self.field is None else {"field": self.field}
        return {"from": self.source, **path, self.test: thaw(self.value)}

    def __str__(self) -> str:
        path = "" if self.field is None else f".{self.field}"
        return f"{self.source}{path} {self.test.replace('_', ' ')} {json.dumps(thaw(self.value), ensure_ascii=False)}"

    def read(self, artifact: Artifact) -> Any:
        """Return the value to test; `Unreadable` if the artifact does not have it, or it is of a wrong kind.

        For `holds` without a field, that is the artifact itself.
        """
        if self.test == "holds" and self.field is None:
            return artifact
        value = _value_at(artifact, self.field)
        kinds = _READS.get(self.test)
        if kinds is not None and (not isinstance(value, kinds[0]) or isinstance(value, bool)):
            found = f"its value is {value!r:.80}"
            raise Unreadable(f"the condition {self} needs {kinds[1]}, and {found}")
        return value

    def met_by(self, value: Any) -> bool:
        """Return whether a value that `read` returned passes; not for `holds`, which the team's function decides."""
        given = thaw(self.value)
        match self.test:
            case "equals":
                return _equal_json(value, given)
            case "not_equals":
                return not _equal_json(value, given)
            case "one_of":
                return any(_equal_json(value, one) for one in given)
            case "contains":
                if isinstance(value, str):
                    return isinstance(given, str) and given in value  # `1 in "a1"` raises
                return any(_equal_json(one, given) for one in value)
            case "at_least":
                return bool(value >= given)
            case "at_most":
                return bool(value <= given)
            case "holds":
                raise ValueError(f"{self} is decided by a function of the team")


_NUMBERS: Final = ((int, float), "a number")
_KINDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "one_of": ((list, tuple), "a list"),
    "at_least": _NUMBERS,
    "at_most": _NUMBERS,
    "holds": (str, "the name of a function in Team.conditions"),
}
"""The kind of value that a test takes."""
_READS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "contains": ((str, list), "a text or a list"),
    "at_least": _NUMBERS,
    "at_most": _NUMBERS,
}
"""The kind of value that a test can be applied to."""


def _equal_json(value: Any, given: Any) -> bool:
    """Compare JSON values: True is not 1."""
    return bool(value == given) and isinstance(value, bool) == isinstance(given, bool)


def as_condition(given: Any) -> Any:
    """Make a condition from its JSON mapping; leave everything else to the validator."""
    if not isinstance(given, Mapping):
        return given
    data = cast("Mapping[str, Any]", given)
    unknown = [key for key in data if key not in _KEYS]
    tests: list[Test] = [test for test in TESTS if test in data]
    if unknown:
        raise ValueError(f"a condition has no {unknown[0]!r}; it has {known(_KEYS)}")
    if "from" not in data or len(tests) != 1:
        raise ValueError(f"a condition has 'from' and one of {known(TESTS)}, not {dict(data)!r:.120}")
    return Condition(data["from"], tests[0], data[tests[0]], data.get("field"))


def condition_schema() -> dict[str, Any]:
    """Return the JSON Schema of a condition as data."""
    kinds = {"one_of": {"type": "array"}, "holds": {"type": "string"}}
    tests: dict[str, Any] = {test: kinds.get(test, {}) for test in TESTS}
    tests |= {test: {"type": "number"} for test in ("at_least", "at_most")}
    shape = object_schema({"from": {"type": "string"}, "field": {"type": "string"}, **tests}, ["from"])
    return {**shape, "oneOf": [{"required": [test]} for test in TESTS]}


AsCondition = Annotated[
    Condition | Mapping[str, Any] | None,
    BeforeValidator(as_condition),
    PlainSerializer(lambda given: None if given is None else given.as_data(), return_type=dict[str, Any] | None),
    WithJsonSchema({"anyOf": [condition_schema(), {"type": "null"}]}),
]
"""A condition, or its JSON mapping, kept as a condition; or None."""


def data_of(artifact: Artifact) -> Any:
    """Return an artifact's data, else the JSON in its text; `Unreadable` without either."""
    if artifact.data is not None:
        return _as_json(artifact.data)
    try:
        return read_reply(artifact.text, json.loads)
    except (ValueError, RecursionError):
        raise Unreadable(f"the artifact has no data, and its text is not JSON: {artifact.text!r:.80}") from None


def _as_json(data: Any) -> Any:
    """Return data as JSON values: an agent may return a model or a dataclass."""
    try:
        return to_jsonable_python(data)
    except ValueError as error:
        raise Unreadable(f"the artifact's data cannot be read as JSON: {error}") from None


def _value_at(artifact: Artifact, path: str | None) -> Any:
    if path is None:
        return artifact.text.strip() if artifact.data is None else _as_json(artifact.data)
    value: Any = data_of(artifact)
    done: list[str] = []
    for step in path.split("."):
        where = ".".join(done) or "the artifact"
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if step not in fields:
                raise Unreadable(f"{where} has no field {step!r}; it has {known(fields)}")
            value = fields[step]
        elif is_list(value) and step.isdecimal():
            if int(step) >= len(value):
                raise Unreadable(f"{where} has {count(len(value), 'item')}, none at {step}")
            value = value[int(step)]
        else:
            raise Unreadable(f"{where} has no field {step!r}: it is {value!r:.80}")
        done.append(step)
    return value


def items_of(artifact: Artifact, most: int, task_id: str) -> Sequence[Any]:
    """Return the items that the map `task_id` works on, from an artifact that is a list.

    Raises `Unreadable` for anything else, and for more than `most` items.
    """
    items = data_of(artifact)
    if not is_list(items):
        raise Unreadable(f"the map {task_id!r} works on a list, and this is {items!r:.80}")
    if len(items) > most:
        raise Unreadable(
            f"the list has {len(items):,} items, and the map {task_id!r} takes at most {most:,} (max_items)"
        )
    return items
