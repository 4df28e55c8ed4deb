"""Checks of packages, and of one's own code, by their names in the data of a rubric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from kairo_team import plugins
from kairo_team._util.plugin_shapes import is_async
from kairo_team.data.files import Place, parts_of
from kairo_team.data.reading import Missing, Reading, imported, is_import, not_declared
from kairo_team.evaluators.checks.named_check import Made, NamedCheck
from kairo_team.evaluators.criterion import takes_context
from kairo_team.plugin_options import holds_path, holds_path_as_key, is_unreadable, signature_of

_SEVERAL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def is_plugin(value: Any, built_in: set[str]) -> bool:
    """Return whether the data of a check names one that is not built in: a published one, or `module:name`."""
    names = [value] if isinstance(value, str) else [*parts_of(value)]
    if len(names) != 1 or not isinstance(name := names[0], str) or name in built_in:
        return False
    return is_import(name) or plugins.published("check", name)


def read_plugin_check(value: Any, place: Place, reading: Reading) -> NamedCheck | Missing:
    """Make the check that the data names, `name` or `{name: its options}`; note what is wrong with it."""
    name, given = (value, None) if isinstance(value, str) else next(iter(parts_of(value).items()))
    name = str(name)
    found: Any = imported(name, place, reading) if is_import(name) else _published(name, place, reading)
    if isinstance(found, Missing):
        return found
    inside = place if given is None else (*place, name)
    if given is None and is_import(name) and not isinstance(found, type):
        check = found  # the check itself, as everywhere that `module:name` is taken
    else:
        options = _options(found, given, inside, reading)
        if isinstance(options, Missing):
            return options
        try:
            check = plugins.make_by("check", f"check {name!r}", found, options)
        except ValueError as error:
            return reading.refuse(inside, f"is refused: {error}")
    try:
        plugins.KINDS["check"].check(f"check {name!r}", check)
    except ValueError as error:
        return reading.refuse(inside, f"is refused: {error}")
    return _named(value, name if given is None else f"{name}({given!r})", check)


def _published(name: str, place: Place, reading: Reading) -> Any:
    try:
        return plugins.find("check", name)
    except ValueError as error:
        return reading.refuse(place, f"is refused: {error}")


def _options(make: Any, given: Any, place: Place, reading: Reading) -> dict[str, Any] | Missing:
    """Return the options by name, with each path in its place; a single value is the first option."""
    if not callable(make):
        return reading.refuse(place, f"gives options to {make!r:.80}, which is not a class or function")
    parameters, hints = signature_of(make)
    if not isinstance(given, Mapping):
        first = next((name for name, one in parameters.items() if one.kind not in _SEVERAL), None)
        if given is not None and first is None:
            return reading.refuse(place, "takes no options: write its name alone")
        given = {} if given is None else {first: given}
    loose = plugins.undeclared_paths(make)
    options: dict[str, Any] = {}
    before = len(reading.mistakes)
    for key, value in parts_of(given).items():
        name = str(key)
        hint = hints.get(name)
        if not reading.trusted and (name in loose or is_unreadable(hint)):
            reading.refuse((*place, name), not_declared(name))
        keys = holds_path_as_key(hint)
        options[name] = _placed(value, (*place, name), reading, keys=keys) if holds_path(hint) else value
    return options if len(reading.mistakes) == before else Missing()


def _placed(value: Any, place: Place, reading: Reading, *, keys: bool) -> Any:
    """Return a value whose texts are paths, also those in lists and mappings; `keys`: also the names of the latter."""
    if isinstance(value, str):
        return reading.path(value, place)
    if isinstance(value, list):
        return [_placed(one, (*place, step), reading, keys=keys) for step, one in parts_of(value).items()]
    if isinstance(value, Mapping):
        return {
            reading.path(str(step), (*place, step)) if keys else step: _placed(one, (*place, step), reading, keys=keys)
            for step, one in parts_of(value).items()
        }
    return value


def _named(data: Any, shown: str, check: Callable[..., Any]) -> NamedCheck:
    """Return the check with the data that named it, and the ways in which it is called."""
    in_place = is_async(check) or getattr(check, "in_place", False) is True
    timeout: float | None = getattr(check, "timeout", None)
    named = NamedCheck(
        shown, check, source=check, in_place=in_place, wants_context=takes_context(check), timeout=timeout
    )
    named.made = Made(shown, {}, data)
    return named
