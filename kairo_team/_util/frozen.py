"""Immutable values: read-only containers and validated dataclasses that never ignore an unknown field."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, cast

from kairo_team._util.narrowing import is_mapping, is_several

if TYPE_CHECKING:
    from pydantic import ConfigDict

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_TAKES_NOTHING_ELSE: Final[ConfigDict] = {"extra": "forbid"}


def checked(kind: type[T]) -> type[T]:
    """Make a frozen dataclass validate its constructor's arguments against its annotations.

    A bad value raises `ValueError` with sentences (`kairo_team._util.mistakes`), an unknown or missing field
    `TypeError`. The validator is built for the first value, because building all validators takes longer than the rest
    of the import. A program that makes no such values does not import pydantic.
    """
    setattr(kind, "__pydantic_config__", _TAKES_NOTHING_ELSE)  # noqa: B010 - assigning it confuses the type checkers
    as_written = cast("Any", kind).__init__
    fill: Any = None

    @functools.wraps(as_written)
    def init(self: T, *args: Any, **fields: Any) -> None:
        nonlocal fill
        if fill is None:
            fill = _filler(kind)
        fill(self, args, fields)

    # `inspect` follows `__wrapped__`, so the signature is made only when it is read.
    setattr(init, "__wrapped__", _Shown(kind, as_written))  # noqa: B010 - the same
    setattr(kind, "__init__", init)  # noqa: B010 - the same
    return kind


def _filler(kind: type) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], None]:
    from pydantic import TypeAdapter, ValidationError  # slow to import
    from pydantic_core import ArgsKwargs

    validate = TypeAdapter(kind).validator.validate_python

    def fill(made: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        try:
            validate(ArgsKwargs(args, fields), self_instance=made)
        except ValidationError as error:
            from kairo_team._util.mistakes import refuse  # imported only after a mistake

            raise refuse(kind, error) from None

    return fill


def trusted(kind: Callable[P, T]) -> Callable[P, T]:
    """Return a `checked` class's constructor without its validator, for fields known to be valid and frozen.

    A run that makes only such values does not build the validator, which takes long. `__post_init__` is called.
    """
    new, as_written = object.__new__, _as_written(cast("Any", kind))

    def make(*args: P.args, **fields: P.kwargs) -> T:
        made = new(cast("Any", kind))
        as_written(made, *args, **fields)
        return cast("T", made)

    return make


def _as_written(kind: Any) -> Callable[..., None]:
    """Return the constructor of a `checked` class that checks nothing."""
    fill: Callable[..., None] = kind.__init__.__wrapped__.as_written
    return fill


def replaced(value: T, **changes: Any) -> T:
    """Return `dataclasses.replace(value, ...)` of a `checked` class without its validator, for valid new fields.

    A subclass, which may have a constructor of its own, goes through that one.
    """
    kind = cast("Any", type(value))
    if "__pydantic_config__" not in vars(kind):
        return cast("T", replace(cast("Any", value), **changes))
    made = object.__new__(kind)
    kept = {name: getattr(value, name) for name in _given_names(kind) if name not in changes}
    _as_written(kind)(made, **kept, **changes)
    return cast("T", made)


@functools.cache
def _given_names(kind: Any) -> tuple[str, ...]:
    """Return the fields that the constructor of a dataclass takes."""
    return tuple(one.name for one in fields(kind) if one.init)


class _Shown:
    """The constructor for `inspect.signature` and `help`, with its types shown as code; computed when it is read."""

    def __init__(self, kind: type, init: Callable[..., Any]) -> None:
        self._kind, self.as_written = kind, init

    @property
    def __signature__(self) -> Any:
        from kairo_team._util.mistakes import signature_of

        return signature_of(self._kind, self.as_written)


def known_arguments(kind: type[T]) -> type[T]:
    """Make a class that validates itself name unknown arguments, the nearest names, and missing arguments.

    The class may have `hints_for`: for arguments that people expect, a sentence that says what to write instead.
    """
    as_written = cast("Any", kind).__init__

    @functools.wraps(as_written)
    def init(self: T, *args: Any, **given: Any) -> None:
        try:
            as_written(self, *args, **given)
        except TypeError as error:
            _name_mistake(error, kind, given, len(args))
            raise

    setattr(kind, "__init__", init)  # noqa: B010 - assigning it confuses the type checkers
    return kind


def known_call(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function name unknown arguments, the nearest names, and missing arguments."""

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        try:
            return function(*args, **given)
        except TypeError as error:
            _name_mistake(error, function, given, len(args))
            raise

    if not inspect.iscoroutinefunction(function):
        return call

    @functools.wraps(function)
    async def awaited(*args: P.args, **given: P.kwargs) -> Any:
        # The arguments are bound when the coroutine is made, so `call` sees their mistakes.
        return await cast("Any", call)(*args, **given)

    return cast("Callable[P, R]", awaited)  # a coroutine function, as before


def _name_mistake(error: TypeError, called: Callable[..., Any], given: Iterable[str], positional: int) -> None:
    """Raise a `TypeError` that names wrong arguments, if these are why a call did not begin."""
    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        return  # the call began
    from kairo_team._util.mistakes import wrong_arguments  # imported only after a mistake

    problem = wrong_arguments(called, given, positional)
    if problem is not None:
        raise TypeError(problem) from None


def maker(kind: type[T], packed: int | None = None) -> Callable[..., T]:
    """Return a function that fills a frozen dataclass with slots without checks, for fields that are known to be valid.

    It takes the fields like the constructor; with `packed`, the fields from that index on as one tuple, because a call
    with a star would cost as much as the filling.
    """
    own_fields = fields(cast("Any", kind))
    names = [one.name for one in own_fields]
    single, rest = names[:packed], names[packed:] if packed is not None else []
    # The globals of the function: the class, the same class unfrozen, and the defaults of the parameters.
    scope: dict[str, Any] = {"kind": kind, "draft": type(f"_Draft{kind.__name__}", (kind,), _UNFROZEN)}
    scope |= {f"default_{one.name}": one.default for one in own_fields if one.default is not MISSING}
    asked = ", ".join(f"{name}=default_{name}" if f"default_{name}" in scope else name for name in names)
    if rest:
        asked = ", ".join([*single, "rest"])
    lines = [
        f"def make({asked}):",
        # The constructor raises the usual error for a wrong number of fields.
        *([f"    if len(rest) != {len(rest)}: return kind({', '.join(single)}, *rest)"] if rest else []),
        "    made = draft()",
        *(f"    made.{name} = {name}" for name in single),
        *([f"    {''.join(f'made.{name}, ' for name in rest)}= rest"] if rest else []),
        # The draft adds no slots, so both classes have the same layout, and Python allows the change.
        "    made.__class__ = kind",
        "    return made",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - made of the class's field names, as dataclasses does
    make: Callable[..., T] = scope["make"]
    return make


_UNFROZEN: Final = {
    "__slots__": (),
    "__init__": object.__init__,
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,
}


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change and is hashable if its values are."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("this mapping is part of a frozen value: build a new value with dataclasses.replace")

    if not TYPE_CHECKING:  # type checkers would reject the signatures
        __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __missing__(self, key: object) -> NoReturn:
        raise KeyError(f"no {key!r} here; there is {', '.join(sorted(map(repr, self))) or 'nothing'}")

    if not TYPE_CHECKING:  # type checkers would allow any attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"JSON values have no attribute {name!r}: write [{name!r}], or artifact.data_as(Type).{name}"
            )

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets it to None
        return hash(frozenset(self.items()))

    # Without this, pickle and copy would set the items one by one, which `_refuse` refuses.
    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return (FrozenDict, (dict(self),))


EMPTY: FrozenDict = FrozenDict()


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""Types of most values in containers. To find out that one is not an abstract collection takes ten times as long."""


def plain_text(what: str, text: Any) -> str:
    """Return a text as a plain `str`, ignoring overrides of a subclass; raises `ValueError` for other types."""
    if type(text) is str:
        return text
    if not isinstance(text, str):
        raise ValueError(f"{what}, not {text!r:.200}")
    return str.__str__(text)


def freeze(value: Any) -> Any:
    """Copy nested dicts, lists and sets into read-only containers; keep everything else."""
    if type(value) in _PLAIN or isinstance(value, FrozenDict):
        return value
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return FrozenDict({key: freeze(item) for key, item in mapping.items()}) if mapping else EMPTY
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return tuple(freeze(item) for item in items)
    if isinstance(value, AbstractSet):
        members = cast("Iterable[Any]", value)
        return frozenset(freeze(item) for item in members)
    return value


def thaw(value: Any) -> Any:
    """Copy nested mappings and sequences into plain dicts and lists; keep everything else."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return {key: thaw(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return [thaw(item) for item in items]
    return value


def check_kind(where: str, value: object, kind: type, *, or_none: bool = False) -> None:
    """Raise `ValueError` unless `value` is of this kind, or None where that is allowed."""
    if isinstance(value, kind) or (or_none and value is None):
        return
    from kairo_team._util.mistakes import with_article  # imported only after a mistake

    name = {str: "a string", bool: "True or False"}.get(kind) or with_article(kind.__name__)
    hint = "; it was not awaited: write await before the call" if isinstance(value, Coroutine) else ""
    raise ValueError(f"{where} must be {name}{' or None' if or_none else ''}, not {value!r:.80}{hint}")


def freeze_several(where: str, values: Any, kind: type) -> tuple[Any, ...]:
    """Return values of one kind as a tuple; `ValueError` unless it is a list of this kind."""
    if not is_several(values):
        raise ValueError(f"{where} must be a list, not {values!r:.80}")
    kept = tuple(values)
    for number, one in enumerate(kept):
        check_kind(f"{where}[{number}]", one, kind)
    return kept


def freeze_named(where: str, values: Any, kind: type | None = None) -> FrozenDict:
    """Return values by name, of one kind or of any, as a read-only mapping; `ValueError` for anything else."""
    if not is_mapping(values):
        raise ValueError(f"{where} must be a dict, not {values!r:.80}")
    for name, one in values.items():
        check_kind(f"{where}: a key", name, str)
        if kind is not None:
            check_kind(f"{where}[{name!r}]", one, kind)
    frozen: FrozenDict = freeze(values)
    return frozen


def freeze_json(value: Any) -> Any:
    """Freeze `value` after checking that it consists of JSON values; `ValueError` names a value that does not."""
    _check_json(value, "")
    return freeze(value)


def _check_json(value: Any, where: str) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        for key, item in mapping.items():
            if not isinstance(key, str):
                raise ValueError(f"key {key!r}{where} must be a string to go through JSON")
            _check_json(item, f" at {key!r}{where}")
    elif isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        for item in items:
            _check_json(item, where)
    else:
        raise ValueError(
            f"{value!r}{where} must be made of JSON values (strings, numbers, booleans, None, lists, dicts)"
        )
