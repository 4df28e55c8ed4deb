"""Messages for mistakes: they name the field, the allowed values and the given one, and the name that was meant."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MOST: Final = 5
"""Most sentences of one message: the first mistakes often cause the others."""
_UNKNOWN: Final = frozenset({"unexpected_keyword_argument", "extra_forbidden"})
_MISSING: Final = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_TOO_MANY: Final = "unexpected_positional_argument"
_GIVEN_TWICE: Final = "multiple_argument_values"
_OF_CALLS: Final = _UNKNOWN | _MISSING | {_TOO_MANY, _GIVEN_TWICE}
_BOUNDS: Final = ("greater_than", "less_than", "too_", "string_too_", "multiple_of", "finite_number")
_NOUNS: Final[Mapping[Any, tuple[str, str]]] = {
    str: ("a string", "strings"),
    bool: ("True or False", "booleans"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    Decimal: ("an amount", "amounts"),
    datetime: ("a datetime", "datetimes"),
    type(None): ("None", "None"),
    Any: ("a value", "values"),
}
"""Words for types in a sentence: singular and plural."""


_TWICE: Final = "{} takes {!r} once, and this call gives it without its name and as {}="
_OF_RUNTIME: Final = ("journal", "models", "prices", "gate", "secrets", "subscribers", "model_limits", "model_retry")
_OF_CONFIG: Final = (
    *("max_parallel_tasks", "risk_profile", "budget_policy", "deadline_at", "task_timeout", "review_timeout"),
    *("max_feedback_rounds", "max_human_rounds"),
)
_TOOLS: Final = "an agent has them: kt.MiniAgent('openai:gpt-5-mini', tools=[...])"
_OF_RUN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("goal", "input", "prompt"), "it is the second argument: {}(team, 'Explain tides.')"),
    **dict.fromkeys(("timeout", "seconds"), "it is a limit of the budget: budget=kt.Budget(seconds=60)"),
    "model": "an agent has one: kt.Member('writer', kt.MiniAgent('openai:gpt-5-mini'))",
    "judge": (
        "the coordinator has one: coordinator=kt.ExpertTeamCoordinator(evaluator=rubric, judge='openai:gpt-5-mini')"
    ),
    **dict.fromkeys(
        ("evaluator", "rubric"), "the coordinator has one: coordinator=kt.ExpertTeamCoordinator(evaluator=rubric)"
    ),
    **{name: f"the runtime has it: runtime=kt.Runtime({name}=...)" for name in _OF_RUNTIME},
    **dict.fromkeys(
        ("context", "inputs"), "a request has them: kt.TeamExecutionRequest('Explain tides.', {{'age': 10}})"
    ),
    "tasks": "they are a plan: plan=kt.TaskGraph([kt.Task('write', 'Write it.')])",
    **{name: f"the config has it: config=kt.TeamConfig({name}=...)" for name in _OF_CONFIG},
}
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    **{
        name: {one: text.format(f"kt.{name}") for one, text in _OF_RUN.items()} for name in ("run", "run_sync", "check")
    },
    **{
        name: {
            **{one: text.format(f"runtime.{name}") for one, text in _OF_RUN.items()},
            **{one: f"the runtime has it: kt.Runtime({one}=...)" for one in _OF_RUNTIME},
            "resume": "write await runtime.resume(run_id, team)",
        }
        for name in ("start", "stream")
    },
    "Member": dict.fromkeys(
        ("instructions", "prompt", "system_prompt"), "a role has them: kt.Role('writer', instructions='...')"
    )
    | {"model": "its agent has it: kt.Member('writer', kt.MiniAgent('openai:gpt-5-mini'))", "tools": _TOOLS},
    "Team": {
        "budget": "a run has one, kt.run(team, goal, budget=...), and so has a member",
        "config": (
            "a run has one, kt.run(team, goal, config=...), or in a file request = kt.TeamExecutionRequest(goal, "
            "config=...)"
        ),
        "tools": _TOOLS,
        **{name: _OF_RUN[name] for name in ("model", "judge", "rubric")},
        **dict.fromkeys(("tasks", "plan"), "a run has one: kt.run(team, goal, plan=kt.TaskGraph([...]))"),
        **{name: f"the runtime has it: runtime=kt.Runtime({name}=...)" for name in _OF_RUNTIME},
    },
    "Task": {
        "agent": "name a role or a member of the team: role='writer' or member='writer'",
        **dict.fromkeys(("context", "data"), "JSON values for the member are its inputs: inputs={'age': 10}"),
        **dict.fromkeys(
            ("map", "for_each", "foreach", "each", "items"),
            "a task for each item of a list is kt.Task.map(id, description, over='list', max_items=200)",
        ),
    },
    "ExpertTeamCoordinator": {
        "rubric": "it is an evaluator: evaluator=rubric",
        **{name: _OF_RUN[name] for name in _OF_CONFIG},
    },
    "Budget": {
        **dict.fromkeys(("usd", "cost", "max_cost", "money", "cost_usd"), "its limit in US dollars is dollars"),
        **dict.fromkeys(("time", "timeout", "duration", "minutes"), "its limit is seconds"),
        **dict.fromkeys(("turns", "steps", "iterations", "max_turns", "rounds"), "its limit is loops"),
    },
    "ModelLimit": {
        **dict.fromkeys(("rpm", "requests_per_minute", "requests"), "write per_minute=60"),
        "tpm": "write tokens_per_minute=100_000",
    },
    "Case": dict.fromkeys(("expected", "expected_output", "output"), "a good answer is its reference: reference='...'"),
}
"""For arguments that people expect of a class or function: what to write instead, by its name."""


def _hint_elsewhere(owner: Any, name: str) -> str | None:
    hints: Mapping[str, str] = getattr(owner, "hints_for", None) or _ELSEWHERE.get(owner.__name__, {})
    return hints.get(name)


def did_you_mean(name: str, names: Iterable[str], most: int = 1) -> str:
    """Return "did you mean 'this'? " with the most similar names, or "" if none is similar."""
    from difflib import get_close_matches  # imported only after a mistake

    near = get_close_matches(name, [*names], most)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


def faults_of(error: ValidationError, most: int | None = None) -> list[str]:
    """Return pydantic's errors as "place: message", the first `most`; without a place for the value itself."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:most]
    return [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found]


def refuse(kind: type, error: ValidationError) -> Exception:
    """Return the error to raise instead of pydantic's: `TypeError` for wrong arguments, else `ValueError`."""
    sentences = explain(kind, error)
    # With a longer place, the mistake is in a value, not in the call.
    wrong_call = all(one["type"] in _OF_CALLS and len(one["loc"]) == 1 for one in error.errors())
    return (TypeError if wrong_call else ValueError)("; ".join(sentences))


def explain(kind: type, error: ValidationError) -> list[str]:
    """Return a sentence for each wrong argument of a value class.

    Pydantic reports an error for every branch of a union; these become one sentence that names all allowed types.
    """
    places: dict[str, list[tuple[_Place, ErrorDetails]]] = {}
    for one in error.errors(include_url=False):
        place = _find(kind, one)
        places.setdefault(place.where, []).append((place, one))
    sentences: list[str] = []
    for errors in places.values():
        wrong = [sentence for place, one in errors if (sentence := _sentence(place, one)) is not None]
        place, first = errors[0]
        sentences += wrong or [
            f"{place.where} must be {describe(place.hint)}, not {_show_given(place, first['input'])}"
        ]
    found = list(dict.fromkeys(sentences))
    more = len(found) - _MOST
    return found if more <= 0 else [*found[:_MOST], f"and {more} more"]


def wrong_arguments(kind: Callable[..., Any], given: Iterable[str], positional: int) -> str | None:
    """Return a sentence on unknown or missing arguments of a class or function; None when its arguments are right."""
    parameters, where = dict(inspect.signature(kind).parameters), kind.__name__
    if next(iter(parameters), None) in {"self", "cls"}:
        where, positional = ".".join(kind.__qualname__.split(".")[-2:]), positional - 1
        del parameters[next(iter(parameters))]
    takes = [name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
    unknown = [name for name in given if name not in parameters] if len(takes) == len(parameters) else []
    if unknown and (hint := _hint_elsewhere(kind, unknown[0])) is not None:
        return f"{where} takes no {unknown[0]!r}: {hint}"
    if unknown:
        return _takes_no(where, unknown[0], f"it takes {_listed(takes)}", takes)
    kinds = [one.kind for one in parameters.values()]
    in_order = [name for name, kind in zip(parameters, kinds, strict=True) if kind.name.startswith("POSITIONAL")]
    if positional > len(in_order) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return _too_many(where, in_order, takes)
    twice = next((name for name in in_order[:positional] if name in given), None)
    if twice is not None:
        return _TWICE.format(where, twice, twice)
    filled = {*given, *takes[:positional]}
    required = [name for name in takes if parameters[name].default is inspect.Parameter.empty]
    lacking = [name for name in required if name not in filled]
    if not lacking:
        return None
    if lacking == ["request"]:
        call = f"runtime.{kind.__name__}" if "." in where else f"kt.{where}"
        return f"{where} needs 'request', which is the goal: {call}(team, 'Explain tides.')"
    return f"{where} needs {_listed(map(repr, lacking))}; it takes {_listed(takes)}"


def _too_many(where: str, in_order: Sequence[str], takes: Iterable[str]) -> str:
    few = f"at most {_listed(in_order)} without their names" if in_order else "no value without its name"
    return f"{where} takes {few}; it takes {_listed(f'{name}=' for name in takes)}"


def _takes_no(where: str, name: str, what_it_takes: str, takes: Sequence[str]) -> str:
    hint = did_you_mean(name, takes)
    rest = f"{what_it_takes[0].upper()}{what_it_takes[1:]}" if hint else what_it_takes
    return f"{where} takes no {name!r}; {hint}{rest}"


def _listed(words: Iterable[str], last: str = "and") -> str:
    """Join words with commas and a last "and", or `last`."""
    *before, final = words
    return f"{', '.join(before)} {last} {final}" if before else final


class _Place(NamedTuple):
    """The place of an error in a value."""

    where: str
    hint: Any
    """The type that is allowed there."""
    kind: type | None
    """The class of the value there; for an unknown or missing field, the class that has the field."""
    top: bool
    """Whether the place is the whole value, so that a sentence need not name it."""
    name: str = ""
    """The missing or unknown field."""


def _find(kind: type, error: ErrorDetails) -> _Place:
    """Follow an error's location through the types, ignoring the steps that pydantic adds for branches of unions."""
    where, hint, inside = kind.__name__, cast("Any", kind), cast("type | None", kind)
    steps: list[int | str] = list(error["loc"])
    wrong_field = error["type"] in _UNKNOWN | _MISSING
    name = str(steps.pop()) if wrong_field and steps else ""
    for depth, step in enumerate(steps):
        names = list(_hints(inside)) if inside is not None else []
        if depth == 0 and isinstance(step, int) and step < len(names):
            step = names[step]  # noqa: PLW2901 - an argument by position
        if step in names:
            where, hint = f"{where}.{step}", _hints(cast("type", inside))[str(step)]
        elif isinstance(step, int) and (item := _item_of(hint)) is not None:
            where, hint = f"{where}[{step}]", item
        # pydantic adds the step "[key]" to the place of a key that is wrong.
        elif get_origin(hint) is Mapping and steps[depth + 1 :] != ["[key]"] and step != "[key]":
            where, hint = f"{where}[{step!r:.80}]", get_args(hint)[1]
        elif step == "[key]":
            where, hint = f"{where}: a key", str
        else:
            continue
        branches = (hint, *get_args(hint))
        inside = next((one for one in branches if isinstance(one, type) and is_dataclass(one)), None)
    return _Place(where, hint, inside, not steps, name)


def _sentence(place: _Place, error: ErrorDetails) -> str | None:
    """Return a sentence on the error; None for a wrong type, which has one sentence for all branches of a union."""
    kind = error["type"]
    if kind in _OF_CALLS:
        return _about_call(place, error)
    if kind in {"value_error", "assertion_error"}:
        message = str(error.get("ctx", {}).get("error", error["msg"]))
        return message if place.top or message.startswith(place.where) else f"{place.where}: {message}"
    if kind == "string_pattern_mismatch" and error.get("ctx", {}).get("pattern") == r"\S":
        return f"{place.where} must not be blank"
    if kind == "string_unicode":
        return f"{place.where} has half a character (a lone surrogate), which no text can hold: {error['input']!r:.80}"
    if kind.startswith(_BOUNDS):
        return f"{place.where} {error['msg'].replace('Input should', 'must', 1)}, not {error['input']!r:.80}"
    return None


def _about_call(place: _Place, error: ErrorDetails) -> str | None:
    """Return the sentence on an unknown or missing argument, one that is given twice, or one too many."""
    kind = error["type"]
    if kind == _GIVEN_TWICE:
        owner, _, name = place.where.rpartition(".")
        return _TWICE.format(owner, name, name)
    if place.kind is None:
        return None
    if kind == _TOO_MANY:
        return _one_too_many(place.kind, error["input"])
    takes = list(_hints(place.kind))
    if kind in _MISSING:
        return f"{place.where} needs {place.name!r}; {_article(place.kind)} takes {_listed(takes)}"
    hint = _hint_elsewhere(place.kind, place.name)
    if hint is not None:
        return f"{place.where} takes no {place.name!r}: {hint}"
    if place.top:
        return _takes_no(place.where, place.name, f"it takes {_listed(takes)}", takes)
    return _takes_no(place.where, place.name, f"{_article(place.kind)} takes {_listed(takes)}", takes)


def _one_too_many(kind: type, given: Any) -> str:
    """Return a sentence on a value after the last one that a class takes, which may be meant as one of a list."""
    takes = _hints(kind)
    for name, hint in takes.items():
        if _is_item(given, hint):
            place = _Place(f"{kind.__name__}.{name}", hint, None, top=False)
            return f"{place.where} must be {describe(hint)}, not {_show_given(place, given)}"
    return _too_many(kind.__name__, list(takes), takes)


def _is_item(given: Any, hint: Any) -> bool:
    """Return whether a value is one of the values whose list is allowed."""
    item = _item_of(hint)
    return isinstance(item, type) and is_dataclass(item) and isinstance(given, item)


def _show_given(place: _Place, given: Any) -> str:
    """Show what was given; for one item instead of a list, also what to write."""
    shown = f"{given!r:.80}"
    if isinstance(given, str) and _item_of(place.hint) is str:
        return f"the one string {shown}: write [{shown}]"
    if _is_item(given, place.hint):
        return f"{with_article(type(given).__name__)} alone: put them into a list, [...]"
    if not isinstance(given, type) and place.hint is str and isinstance(name := getattr(given, "id", None), str):
        return f"the {type(given).__name__} {name!r}: write its id, {name!r}"
    if not isinstance(given, type):
        return shown
    return f"the class {given.__name__}"


def describe(hint: Any) -> str:
    """Describe the values of a type, for a sentence: "a string", "a list of strings or None"."""
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return _describe_union([describe(branch) for branch in get_args(hint)])
    if origin is Literal:
        return _listed(map(repr, get_args(hint)), "or")
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _listed((repr(one.value) for one in hint), "or")
    item = _item_of(hint)
    if item is not None:
        held = f"a {'set' if issubclass(cast('type', origin), AbstractSet) else 'list'}"
        several = _NOUNS[item][1] if item in _NOUNS else f"{getattr(item, '__name__', item)} objects"
        return held if item is Any else f"{held} of {several}"
    if origin is not None and issubclass(origin, Mapping):
        return "a dict"
    return _NOUNS[hint][0] if hint in _NOUNS else _article(hint)


def _describe_union(branches: list[str]) -> str:
    # Fields of sets also take lists, and to list both would double the sentence.
    sets = [one for one in branches if one.startswith("a set of ")]
    for one in sets:
        as_list = one.replace("a set", "a list", 1)
        if as_list in branches:
            branches = [b for b in branches if b != as_list]
            branches[branches.index(one)] = one.replace("a set", "a set or list", 1)
    if _NOUNS[float][0] in branches:  # "a number" covers whole numbers
        branches = [one for one in branches if one != _NOUNS[int][0]]
    return _listed(dict.fromkeys(branches), "or")


def with_article(name: str) -> str:
    """Return a class's name with its article, for a sentence: "an Artifact", "a Usage"."""
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _article(kind: Any) -> str:
    return with_article(str(getattr(kind, "__name__", kind)))


def _item_of(hint: Any) -> Any:
    """Return the type of a list's, tuple's or set's items; None for other types."""
    for branch in get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,):
        origin = get_origin(branch)
        if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet):
            return get_args(branch)[0]
    return None


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Return the fields of a dataclass by name, with their types."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(cast("Any", kind)) if one.init}


class _Text(str):
    """A type or a default in a signature, shown as code."""

    __slots__ = ()
    __repr__ = str.__str__


def signature_of(kind: type, init: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a dataclass's constructor, with its types shown as code."""
    own, hints = inspect.signature(init), _hints(kind)
    parameters = dict(own.parameters)
    for one in fields(cast("Any", kind)):
        shown = parameters[one.name].replace(annotation=_Text(_written(hints[one.name])))
        if (factory := one.default_factory) is not MISSING:
            shown = shown.replace(default=_Text(f"{factory.__name__}()" if isinstance(factory, type) else "..."))
        parameters[one.name] = shown
    return own.replace(parameters=list(parameters.values()), return_annotation=None)


def _written(hint: Any) -> str:
    """Return a type as an annotation's code: "str | None", "Mapping[str, Any]"."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return " | ".join(map(_written, inside))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inside))}]"
    if origin is not None and inside:
        return f"{origin.__name__}[{', '.join(map(_written, inside))}]"
    if hint is type(None) or hint is Ellipsis:
        return "..." if hint is Ellipsis else "None"
    return getattr(hint, "__name__", None) or str(hint)
