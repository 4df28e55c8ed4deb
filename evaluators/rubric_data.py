"""A rubric as data: the allowed fields, their JSON Schema, and sentences on mistakes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Union, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    InstanceOf,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from kairo_team import plugins
from kairo_team._util.frozen import freeze_json
from kairo_team._util.mistakes import did_you_mean
from kairo_team.data.files import Place, parts_of, plain_copy
from kairo_team.data.mistakes import LineOf, Mistake, sentences, unknown_key
from kairo_team.data.reading import Missing, Reading
from kairo_team.errors import known, repeated
from kairo_team.evaluators import checks
from kairo_team.evaluators.check_calls import CHECK_TIMEOUT
from kairo_team.evaluators.checks.named_check import NamedCheck
from kairo_team.evaluators.checks.plugin_checks import is_plugin, read_plugin_check
from kairo_team.evaluators.criterion import BY, RESERVED, Criterion, Example
from kairo_team.evaluators.score_range import Number, exact

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

R = TypeVar("R")
_A_CRITERION: Final = ("criteria", 0)
"""The path of a criterion in the data."""
_SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"

SEEN: Final = r"[^\s\x85\x1c-\x1f]"
"""A pattern for a text that is not blank: it has a character other than white space."""
Text = Annotated[str, Field(pattern=SEEN)]
_Level = Annotated[str, Field(pattern=SEEN, json_schema_extra={"not": {"enum": [*sorted(RESERVED)]}})]
_Described = Annotated[dict[_Level, Text], Field(min_length=1, max_length=1)]
_Count = Annotated[int, Field(ge=1)]
_Amount = Annotated[int, Field(ge=0)]
_Limit = Annotated[float, Field(ge=0)]
_Pattern = Annotated[str, Field(min_length=1)]
_Heading = Annotated[str, Field(pattern=r"^\s*#{1,6}[ \t]+[^\s#\x85\x1c-\x1f]")]
_Code = Annotated[str, Field(pattern="^[a-z]+$")]
_Texts = dict[str, str]
TAKES: Final[Mapping[str, Mapping[str, Any]]] = {
    "max_words": {"limit": _Count},
    "min_words": {"limit": _Count},
    "max_chars": {"limit": _Count},
    "min_chars": {"limit": _Count},
    "contains": {"phrases": Text},
    "equals": {"text": str},
    "calls_tool": {"tool": Text, "least": _Count},
    "avoids_tool": {"tool": Text},
    "calls_in_order": {"tools": Text},
    "calls_with": {"tool": Text, "arguments": dict[str, Any]},
    "max_tool_calls": {"limit": _Amount, "tool": Text},
    "max_tokens_used": {"limit": _Amount},
    "max_dollars_used": {"limit": _Limit},
    "max_seconds_used": {"limit": _Limit},
    "hands_over": {"members": Text},
    "forbidden": {"phrases": Text},
    "regex": {"pattern": _Pattern, "says": str},
    "forbidden_regex": {"pattern": _Pattern, "says": str},
    "json_schema": {"schema": dict[str, Any]},
    "markdown_outline": {"outline": _Heading, "exact": bool},
    "citations": {"sources": _Texts, "form": Text, "least": _Amount},
    "quotations": {"sources": _Texts, "least_words": _Count},
    "numbers": {"sources": _Texts, "allowed": list[float]},
    "diff_applies": {"files": _Texts},
    "language": {"codes": _Code, "sure": Annotated[float, Field(gt=0, le=1)]},
}
"""The arguments of each check, with the type of one value: `phrases`, `outline`, `codes`, `tools` and `members`
take several."""
_SEVERAL: Final = ("phrases", "outline", "codes", "tools", "members")
PLAIN: Final = ("changed", "equals_reference", "json_valid", "not_blank", "python_parses")
"""Checks without arguments."""
BARE: Final = (*PLAIN, "citations", "diff_applies", "numbers", "quotations")
"""Checks that can be written by their name alone."""
IN_CODE_ONLY: Final = ("accepted_by", "command", "predicate", "pydantic_model")
"""Checks that take a function or a class, which data cannot express."""


class Closed(BaseModel):
    """A mapping of data without other keys, and with each value of exactly its JSON type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def make_named(name: str) -> NamedCheck:
    """Return the check for a name without arguments."""
    found: Any = getattr(checks, name)
    return found if isinstance(found, NamedCheck) else found()


def written(check: Any) -> str | dict[str, Any] | None:
    """Return a check as data; None where data cannot express it."""
    if not isinstance(check, NamedCheck):
        return None
    if check.made is None:
        return next((name for name in PLAIN if getattr(checks, name) is check), None)
    name, given, data = check.made
    if data is not None:
        return cast("str | dict[str, Any]", data)
    arguments = {key: list(given[key]) if isinstance(given[key], tuple) else given[key] for key in given}
    if not arguments:
        return name
    return {name: arguments}


def _model_of(name: str) -> Any:
    """Return the pydantic type of `{name: arguments}`; validating makes the check."""
    make: Any = getattr(checks, name)
    parameters = inspect.signature(make).parameters
    types = {
        key: Annotated[cast("Any", list)[kind], Field(min_length=1)] if key in _SEVERAL else kind
        for key, kind in TAKES[name].items()
    }
    # With "_" behind it, because a field of a pydantic model cannot be called "schema".
    fields: dict[str, Any] = {
        f"{key}_": (kind, Field(alias=key, default=_default(parameters[key]))) for key, kind in types.items()
    }
    arguments: Any = create_model(f"arguments of {name}", __base__=Closed, **fields)
    first = next(iter(types))
    short = None if name in BARE or name == "json_schema" else TAKES[name][first]  # a schema alone looks like arguments

    def made(data: Any) -> NamedCheck:
        value = getattr(data, f"{name}_")
        if isinstance(value, BaseModel):
            given = value.model_dump(by_alias=True, exclude_unset=True)  # unset: a rubric is written as it was read
        else:
            given = {first: [value] if first in _SEVERAL and isinstance(value, str) else value}
        several = given.pop(first) if first in _SEVERAL else ()
        return cast("NamedCheck", make(*several, **given))

    whole = arguments if short is None else _long_or_short(arguments, short, types[first])
    model = create_model(name, __base__=Closed, **cast("Any", {f"{name}_": (whole, Field(alias=name))}))
    return Annotated[model, AfterValidator(made), Tag(name)]


def _default(parameter: inspect.Parameter) -> Any:
    """Return the default of an argument; `...` where it must be given."""
    if parameter.kind is parameter.VAR_POSITIONAL or parameter.default is parameter.empty:
        return ...
    return [] if parameter.default == () else parameter.default


def _long_or_short(arguments: Any, one: Any, first: Any) -> Any:
    """Return the type of arguments by name, or of the first one alone: a value, or a list where several are allowed."""
    branches: list[Any] = [Annotated[arguments, Tag("by name")], Annotated[one, Tag("one")]]
    if first is not one:
        branches.append(Annotated[first, Tag("several")])

    def which(value: Any) -> str:
        if isinstance(value, Mapping | BaseModel):
            return "by name"
        return "several" if isinstance(value, list) and first is not one else "one"

    return Annotated[Union[tuple(branches)], Discriminator(which)]  # noqa: UP007 - made of a list


def _branch_of(value: Any) -> str | None:
    """Return the branch of `CheckData` for a value; None where no check has that name."""
    if isinstance(value, str | NamedCheck):
        return "made" if isinstance(value, NamedCheck) else "bare" if value in BARE else None
    names = [*parts_of(value)]
    return str(names[0]) if len(names) == 1 and names[0] in TAKES else None


if TYPE_CHECKING:
    CheckData = Any
else:  # made of what there is: no type checker follows
    _Bare = Annotated[Literal[BARE], AfterValidator(make_named), Tag("bare")]
    # Only names with one of these characters, so that an editor marks a misspelt name of a built-in check.
    _OTHER = {"pattern": "[-@:]"}
    _ONE = {"type": "object", "propertyNames": _OTHER, "minProperties": 1, "maxProperties": 1}
    _PLUGIN = {"anyOf": [{"type": "string", **_OTHER}, _ONE], "description": "A check of a package, or module:name."}
    _Made = Annotated[InstanceOf[NamedCheck], WithJsonSchema(_PLUGIN), Tag("made")]
    CheckData = Annotated[Union[(_Bare, _Made, *map(_model_of, TAKES))], Discriminator(_branch_of)]
"""A check in the data of a rubric: `not_blank`, `{max_words: 12}`, `{regex: {pattern: x, says: y}}`."""


def no_check(value: Any) -> str:
    """Return a sentence on a value that does not name a check."""
    names = [value] if isinstance(value, str) else [*map(str, parts_of(value))]
    if len(names) != 1 or isinstance(value, list):
        return f"must be a check's name, or one name with its arguments such as {{max_words: 12}}, not {value!r:.80}"
    (name,) = names
    if name in IN_CODE_ONLY:
        return f"cannot be {name!r}, which takes a function or a class: build this rubric in Python"
    if name in PLAIN:
        return f"takes no arguments: write {name!r} alone"
    if name in TAKES:
        return f"lacks the arguments of {name!r}, {known(TAKES[name])}: write {{{name}: ...}}"
    there = sorted({one.name for one in plugins.installed("check")})
    return f"names {name!r:.80}, which is not a check; {did_you_mean(name, there)}there are {', '.join(there)}"


def _level_kind(value: Any) -> str:
    return "described" if isinstance(value, Mapping) else "name"


_LevelData = Annotated[
    Annotated[_Level, Tag("name")] | Annotated[_Described, Tag("described")], Discriminator(_level_kind)
]
_TEXT_OF_LEVELS: Final = "Levels, worst first: names, or {name: what it means}."


class ExampleData(Closed):
    """A text and the level it has; a judge is shown it."""

    text: Text
    level: Text
    reason: str = ""


def _if_then(condition: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": condition, "required": [*condition]}, "then": then}


_RULES: Final[list[Any]] = [
    {
        "if": {"required": ["check"]},
        "then": {"properties": {"by": {"const": "check"}}},
        "else": {"required": ["by"], "properties": {"by": {"enum": ["judge", "human"]}}},
    },
    _if_then(
        {"evidence": {"enum": ["quote", "sources"]}}, {"properties": {"by": {"const": "judge"}}, "required": ["by"]}
    ),
    _if_then(
        {"evidence": {"const": "sources"}},
        {
            "properties": {
                "on": {"const": "artifact"},
                "examples": {"maxItems": 0},
                "levels": {"maxItems": 2, "items": {"type": "string"}},
            }
        },
    ),
    _if_then({"examples": {"minItems": 1}}, {"properties": {"by": {"const": "judge"}}, "required": ["by"]}),
    _if_then({"reference": {"const": True}}, {"properties": {"by": {"not": {"const": "human"}}}}),
]
"""Rules between the fields of a criterion."""


class CriterionData(Closed):
    """One thing an artifact must fulfil; the fields are those of `kairo_team.evaluators.Criterion`."""

    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    id: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]+$")]
    text: Text
    check: CheckData = Field(default=cast("Any", None), description="A check by its name, or {name: arguments}.")
    by: Literal["check", "judge", "human"] = "check"
    kind: Literal["gate", "graded", "penalty", "info"] = "gate"
    weight: Annotated[float, Field(gt=0)] = 1
    levels: Annotated[
        list[_LevelData], Field(min_length=2, json_schema_extra={"uniqueItems": True}, description=_TEXT_OF_LEVELS)
    ] = ["not met", "met"]
    evidence: Literal["none", "quote", "sources"] = "none"
    examples: list[ExampleData] = []
    reference: bool = False
    on: Literal["artifact", "transcript"] = "artifact"
    version: Text = Field(default=cast("Any", None), description="Stands for what decides, where that has no digest.")


def _criterion(data: CriterionData) -> Criterion:
    """Make the criterion; `ValueError` where its fields do not fit together."""
    levels = [one if isinstance(one, str) else next(iter(one)) for one in data.levels]
    texts = {name: text for one in data.levels if not isinstance(one, str) for name, text in one.items()}
    given: dict[str, Any] = {
        name: getattr(data, name) for name in ("by", "kind", "weight", "evidence", "reference", "on")
    }
    examples = [Example(one.text, one.level, one.reason) for one in data.examples]
    more: dict[str, Any] = {"levels": levels, "level_texts": texts, "examples": examples}
    return Criterion(data.id, data.text, data.check, **given, **more, version=data.version)


class RubricData(Closed):
    """A rubric: criteria, and the share of the graded weights that passes."""

    criteria: Annotated[list[Annotated[CriterionData, AfterValidator(_criterion)]], Field(min_length=1)]
    threshold: Annotated[float, Field(gt=0, le=1)] = 1.0
    check_timeout: Annotated[float, Field(gt=0, description="Seconds, for each check.")] = CHECK_TIMEOUT
    votes: Annotated[int, Field(ge=1, description="How often the judge is asked at most.")] = 1


@cache
def _adapter() -> TypeAdapter[RubricData]:
    return TypeAdapter(RubricData)


def read_rubric(
    kind: Callable[..., R],
    data: Any,
    reading: Reading,
    name: str = "the rubric",
    line_of: LineOf = lambda _: None,
) -> R:
    """Make a rubric of data; `ValueError` has one line for each mistake.

    `reading` has the data's folder, and whether it is trusted. `name` is the data's name in the sentences; `line_of`
    returns the line of a value in a file.
    """
    made, mistakes = rubric_of(kind, plain_copy(data, name), reading)
    if made is None:
        raise ValueError("\n".join(sentences(mistakes, name, line_of)))
    return made


def rubric_of(kind: Callable[..., R], plain: Any, reading: Reading) -> tuple[R | None, list[Mistake]]:
    """Make a rubric of JSON values; None with all mistakes if there are any.

    `reading` has the data's folder, and whether it is trusted; it gets no mistakes.
    """
    clashes = list(_clashes(plain))
    apart = Reading(reading.folder, reading.trusted)
    whole = _with_plugins(plain, apart)  # first: pydantic knows only the built-in checks
    mistakes, said = [*_repeated_ids(plain), *clashes, *apart.mistakes], {one.path[:2] for one in clashes}
    made: RubricData | None = None
    try:
        made = _adapter().validate_python(whole)
    except ValidationError as error:
        found = [_mistake(plain, one) for one in error.errors(include_url=False)]
        # The constructor finds the same clash again.
        mistakes += [one for one in found if not (one.of_fields and one.path in said)]
    if made is None or mistakes:
        return None, mistakes
    try:
        return kind(cast("Any", made.criteria), made.threshold, check_timeout=made.check_timeout, votes=made.votes), []
    except ValueError as error:
        return None, [Mistake((), str(error))]


def _with_plugins(plain: Any, reading: Reading) -> Any:
    """Return the data with each check that is a plug-in, or code of one's own, in place of its name."""
    whole = parts_of(plain)
    if not isinstance(whole.get("criteria"), list):
        return plain
    read: list[Any] = []
    for place, one in parts_of(whole["criteria"]).items():
        fields = parts_of(one)
        check: Any = fields.get("check")
        if is_plugin(check, {*TAKES, *PLAIN, *IN_CODE_ONLY}):
            made = read_plugin_check(check, ("criteria", place, "check"), reading)
            # Any check: the other fields are still validated.
            fields["check"] = checks.not_blank if isinstance(made, Missing) else made
            read.append(fields)
        else:
            read.append(one)
    return {**whole, "criteria": read}


def _repeated_ids(data: Any) -> Iterator[Mistake]:
    """Yield ids that are given twice, which a schema cannot find."""
    entries = parts_of(parts_of(data).get("criteria")).values()
    ids = [parts_of(one).get("id") for one in entries]
    twice = repeated(one for one in ids if isinstance(one, str))
    for place, one in enumerate(ids):
        if one in twice and one in ids[:place]:
            yield Mistake(
                ("criteria", place, "id"), f"is {one!r}, like the id of criteria[{ids.index(one)}]: ids must differ"
            )


def _clashes(data: Any) -> Iterator[Mistake]:
    """Yield the fields of each criterion that do not fit together, even if other fields have mistakes of their own."""
    for place, one in parts_of(parts_of(data).get("criteria")).items():
        fields = parts_of(one) if isinstance(one, dict) else {}
        for inside, says in (*_clashes_of_levels(fields), *_clashes_of_decider(fields)):
            yield Mistake(("criteria", place, *inside), says)


def _clashes_of_levels(fields: Mapping[Any, Any]) -> Iterator[tuple[Place, str]]:
    given = fields.get("levels", ["not met", "met"])
    levels = [one if isinstance(one, str) else next(iter(parts_of(one)), None) for one in parts_of(given).values()]
    for place, name in enumerate(levels):
        if name is not None and name in levels[:place]:
            yield ("levels", place), f"is {name!r:.80} again: levels must differ"
    for number, example in parts_of(fields.get("examples")).items():
        level = parts_of(example).get("level")
        if isinstance(level, str) and level.strip() and level not in levels:
            listed = ", ".join(repr(name) for name in levels if name is not None)
            yield ("examples", number, "level"), f"must be one of the levels, {listed}, not {level!r:.80}"


def _clashes_of_decider(fields: Mapping[Any, Any]) -> Iterator[tuple[Place, str]]:
    by = fields.get("by", "check")
    if not fields or by not in BY:
        return
    if by == "check" and "check" not in fields:
        yield (), "needs a check, or by: judge, or by: human"
    if by != "check" and "check" in fields:
        yield ("check",), f"does not belong here: a {by} decides it; leave the check out, or by"
    if by != "judge" and fields.get("evidence") in ("quote", "sources"):
        yield ("evidence",), f"must be 'none' where a {by} decides it: only a judge gives quotes"
    if by != "judge" and parts_of(fields.get("examples")):
        yield ("examples",), f"are shown to a judge, and a {by} decides it: leave them out"
    if by == "human" and fields.get("reference") is True:
        yield ("reference",), "must be false where a human decides it: a person is not shown Task.reference"


def _mistake(data: Any, error: ErrorDetails) -> Mistake:
    """Return a mistake with a sentence on what is wrong and what is allowed there."""
    kind, path = error["type"], _path_in(data, error["loc"])
    if kind == "extra_forbidden":
        *inside, key = path
        return Mistake(tuple(inside), unknown_key(str(key), _keys_at(tuple(inside))), str(key))
    if kind == "missing":
        return Mistake(path, f"needs {str(error['loc'][-1])!r}; it takes {', '.join(_keys_at(path))}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return Mistake(path, no_check(error["input"]))
    if kind == "value_error":
        return Mistake(path, f"is refused: {error.get('ctx', {})['error']}", of_fields=len(path) == len(_A_CRITERION))
    # YAML reads `no` and `1.0` as other types than a text.
    unquoted = kind == "string_type" and isinstance(error["input"], bool | int | float)
    return Mistake(path, f"{_must(error)}, not {error['input']!r:.80}{': put it in quotes' if unquoted else ''}")


_PLAINER: Final = {
    "be a valid string": "be a string",
    "be a valid integer": "be a whole number",
    "be a valid number": "be a number",
    "be a valid boolean": "be true or false",
    "be a valid list": "be a list",
}


def _must(error: ErrorDetails) -> str:
    kind, says = error["type"], error["msg"]
    if kind == "string_pattern_mismatch":
        pattern = error.get("ctx", {})["pattern"]
        return "must not be blank" if pattern == SEEN else f"must match the pattern {pattern}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return "must be a mapping"
    if kind == "too_short":
        return f"must hold {error.get('ctx', {})['min_length']} at least"
    if kind == "too_long":
        return f"must hold {error.get('ctx', {})['max_length']} at most"
    _, _, allowed = says.partition(" should ")
    return f"must {_PLAINER.get(allowed, allowed)}" if allowed else f"is refused: {says}"


def _path_in(data: Any, place: Sequence[int | str]) -> Place:
    """Return where in the data an error is: pydantic's location without the branches of unions and "[key]"."""
    path: list[int | str] = []
    for step in place:
        if step in (parts := parts_of(data)):
            data = parts[step]
            path.append(step)
    return tuple(path)


def _keys_at(path: Place) -> list[str]:
    """Return the keys that the mapping at a path takes."""
    node: Any = _schema()
    defined = node["$defs"]
    for step in path:
        node = _follow(node, defined, step)
    keys = [key for branch in _branches(node, defined) for key in branch.get("properties", {})]
    return list(dict.fromkeys(keys))


def _follow(node: Any, defined: Any, step: int | str) -> Any:
    for branch in _branches(node, defined):
        if isinstance(step, int) and "items" in branch:
            return branch["items"]
        if step in branch.get("properties", {}):
            return branch["properties"][step]
    return {}


def _branches(node: Any, defined: Any) -> Iterator[Any]:
    if "$ref" in node:
        yield from _branches(defined[node["$ref"].rpartition("/")[2]], defined)
    elif "oneOf" in node:
        # pydantic writes a union with a discriminator so.
        for one in node["oneOf"]:
            yield from _branches(one, defined)
    else:
        yield node


@cache
def _schema() -> dict[str, Any]:
    return {"$schema": _SCHEMA, **_without_nulls(_adapter().json_schema(by_alias=True))}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rubric's data; see `Rubric.json_schema`."""
    return deepcopy(_schema())  # the cached one must not change


def _without_nulls(node: Any) -> Any:
    """Leave out `default: null`: a missing key is None, and null is not allowed."""
    parts = parts_of(node)
    if isinstance(node, list):
        return [*map(_without_nulls, parts.values())]
    kept = {key: _without_nulls(one) for key, one in parts.items() if key != "default" or one is not None}
    return kept if isinstance(node, dict) else node


# ---------------------------------------------------------------- writing


def write_rubric(criteria: Iterable[Criterion], threshold: Number, check_timeout: float, votes: int) -> dict[str, Any]:
    """Return a rubric as data; `ValueError` has one line for each thing that data cannot express."""
    problems: list[str] = []
    written_criteria = [_written_criterion(criterion, problems) for criterion in criteria]
    share = _number("Rubric.threshold", threshold, problems)
    if problems:
        raise ValueError("\n".join(problems))
    several = {} if votes == 1 else {"votes": votes}
    return {"threshold": share, "check_timeout": check_timeout, **several, "criteria": written_criteria}


def _written_criterion(criterion: Criterion, problems: list[str]) -> dict[str, Any]:
    owner = f"criterion {criterion.id!r}"
    data: dict[str, Any] = {"id": criterion.id, "text": criterion.text}
    if criterion.check is not None:
        data["check"] = written(criterion.check)
        if not _is_json(data["check"]):
            problems.append(f"{owner}: data cannot express its check, {criterion.check!r}: take one of `checks`")
    if criterion.applies is not None:
        problems.append(f"{owner}: data cannot express `applies`, which is a function")
    data |= {name: getattr(criterion, name) for name in ("by", "kind", "evidence", "reference", "on")}
    data["weight"] = _number(f"{owner}: its weight", criterion.weight, problems)
    texts = criterion.level_texts
    data["levels"] = [{name: texts[name]} if name in texts else name for name in criterion.levels]
    data["examples"] = [{"text": one.text, "level": one.level, "reason": one.reason} for one in criterion.examples]
    data["version"] = criterion.version
    empty: tuple[Any, ...] = (None, [])
    # `empty` takes the place of a default where a field has none: no value equals it.
    return {name: value for name, value in data.items() if value not in empty and value != _USUAL.get(name, empty)}


_USUAL: Final[Mapping[str, Any]] = {
    "by": "check",
    "kind": "gate",
    "evidence": "none",
    "weight": 1,
    "levels": ["not met", "met"],
    "reference": False,
    "on": "artifact",
}
"""Defaults, which are left out."""


def _is_json(value: Any) -> bool:
    try:
        freeze_json(value)
    except ValueError:
        return False
    return value is not None


def _number(what: str, number: Any, problems: list[str]) -> int | float:
    try:
        # Beyond, readers of JSON may round.
        near = int(number) if exact(number).denominator == 1 and abs(number) < 2**53 else float(number)
    except OverflowError:
        near = math.inf
    if math.isinf(near) or exact(near) != exact(number):
        problems.append(f"{what}, {number!r}, cannot be written as a JSON number")
    return near
