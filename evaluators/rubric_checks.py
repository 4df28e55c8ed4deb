"""The checks that a rubric's data can name, and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model

from kairo_team._util.mistakes import did_you_mean
from kairo_team.errors import known
from kairo_team.evaluators import checks
from kairo_team.evaluators.checks.named_check import NamedCheck
from kairo_team.evaluators.data_files import parts_of

SEEN: Final = r"[^\s\x85\x1c-\x1f]"
"""A pattern for a text that is not blank: it has a character other than white space."""
Text = Annotated[str, Field(pattern=SEEN)]
_Count = Annotated[int, Field(ge=1)]
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
    "max_tool_calls": {"limit": Annotated[int, Field(ge=0)]},
    "forbidden": {"phrases": Text},
    "regex": {"pattern": _Pattern, "says": str},
    "forbidden_regex": {"pattern": _Pattern, "says": str},
    "json_schema": {"schema": dict[str, Any]},
    "markdown_outline": {"outline": _Heading, "exact": bool},
    "citations": {"sources": _Texts, "form": Text, "least": Annotated[int, Field(ge=0)]},
    "quotations": {"sources": _Texts, "least_words": _Count},
    "numbers": {"sources": _Texts, "allowed": list[float]},
    "diff_applies": {"files": _Texts},
    "language": {"codes": _Code, "sure": Annotated[float, Field(gt=0, le=1)]},
}
"""The arguments of each check, with the type of one value: `phrases`, `outline` and `codes` take several."""
_SEVERAL: Final = ("phrases", "outline", "codes")
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
    name, given = check.made
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
    short = None if name in BARE or name == "json_schema" else TAKES[name][first]

    def made(data: Any) -> NamedCheck:
        value = getattr(data, f"{name}_")
        if isinstance(value, BaseModel):
            given = value.model_dump(by_alias=True, exclude_unset=True)
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


def _which(value: Any) -> str | None:
    """Return the branch of `CheckData` for a value; None where no check has that name."""
    if isinstance(value, str):
        return "bare" if value in BARE else None
    names = [*parts_of(value)]
    return str(names[0]) if len(names) == 1 and names[0] in TAKES else None


if TYPE_CHECKING:
    CheckData = Any
else:  # made of what there is: no type checker follows
    _Bare = Annotated[Literal[BARE], AfterValidator(make_named), Tag("bare")]
    CheckData = Annotated[Union[(_Bare, *map(_model_of, TAKES))], Discriminator(_which)]
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
    hint = did_you_mean(name, [*TAKES, *PLAIN])
    return f"names {name!r:.80}, which is not a check; {hint}there are {', '.join(sorted([*TAKES, *PLAIN]))}"
