"""What makes a value a value: read-only containers, and no field that is taken in and ignored."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from pydantic import ConfigDict, ValidationError

T = TypeVar("T")
VALUE: Final = ConfigDict(defer_build=True, extra="forbid")
"""How a value is validated: when first used, and nothing unknown in it."""


def no_other_fields(kind: type[T]) -> type[T]:
    """Let the constructor of a pydantic dataclass raise `TypeError` for a field it does not have."""
    validate = cast("Any", kind).__init__

    @functools.wraps(validate)
    def init(self: T, *args: Any, **fields: Any) -> None:
        try:
            validate(self, *args, **fields)
        except ValidationError as error:
            unknown = [str(e["loc"][0]) for e in error.errors() if e["type"] == "unexpected_keyword_argument"]
            if not set(unknown) & set(fields):
                raise
            has = ", ".join(getattr(kind, "__dataclass_fields__"))  # noqa: B009 - of every dataclass
            raise TypeError(f"{kind.__name__} has no field {unknown[0]!r} (unexpected keyword); it has {has}") from None

    setattr(kind, "__init__", init)  # noqa: B010 - assigning it confuses the type checkers
    return kind


def quick(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a constructor about four times as fast; it does the same.

    The one it has sets each field through `object.__setattr__`. This one sets them as usual, on an object that is
    of an unfrozen class while it is filled. A subclass keeps the slow one.
    """
    if any(f.default_factory is not MISSING or f.kw_only or not f.init for f in fields(cast("Any", kind))):
        raise TypeError(f"{kind.__name__}: a quick value takes plain fields with plain defaults")
    names, asked, scope = _signature(kind)
    scope |= {"slow": cast("Any", kind).__init__, "put": object.__setattr__}
    lines = [
        f"def __init__(self, {asked}):",
        f"    if type(self) is not kind: return slow(self, {', '.join(names)})",
        "    put(self, '__class__', draft)",
        *(f"    self.{name} = {name}" for name in names),
        "    self.__class__ = kind",
        *(["    self.__post_init__()"] if hasattr(kind, "__post_init__") else []),
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - of the class's own field names, as dataclasses itself does
    init = scope["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    setattr(kind, "__init__", init)  # noqa: B010 - assigning it confuses the type checkers
    return kind


def maker(kind: type[T], packed: int | None = None) -> Callable[..., T]:
    """Return a function that fills a frozen dataclass with slots and checks nothing: its caller knows the fields good.

    Takes the fields as the constructor does; with `packed`, those from that place on as one tuple, where a call with
    a star would cost as much as the filling. It costs two thirds of a `quick` constructor that checks nothing.
    """
    names, asked, scope = _signature(kind)
    single, rest = names[:packed], names[packed:] if packed is not None else []
    if rest:
        asked = ", ".join([*single, "rest"])
    lines = [
        f"def make({asked}):",
        *([f"    if len(rest) != {len(rest)}: return kind({', '.join(single)}, *rest)"] if rest else []),
        "    made = draft()",
        *(f"    made.{name} = {name}" for name in single),
        *([f"    {''.join(f'made.{name}, ' for name in rest)}= rest"] if rest else []),
        "    made.__class__ = kind",
        "    return made",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - of the class's own field names, as dataclasses itself does
    make: Callable[..., T] = scope["make"]
    return make


def _signature(kind: type[T]) -> tuple[list[str], str, dict[str, Any]]:
    """Return a dataclass's field names, the parameters that take them, and the names that code filling it refers to.

    These are `kind`, `draft` (the same class, unfrozen) and the defaults of the parameters.
    """
    own_fields = fields(cast("Any", kind))
    asked = ", ".join(f"{f.name}=default_{f.name}" if f.default is not MISSING else f.name for f in own_fields)
    scope: dict[str, Any] = {"kind": kind, "draft": type(f"_Draft{kind.__name__}", (kind,), _UNFROZEN)}
    scope |= {f"default_{f.name}": f.default for f in own_fields if f.default is not MISSING}
    return [f.name for f in own_fields], asked, scope


_UNFROZEN: Final = {
    "__slots__": (),
    "__init__": object.__init__,
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,
}


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change and can be hashed when its values can."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("this mapping is part of a frozen value: build a new value with dataclasses.replace")

    if not TYPE_CHECKING:  # type checkers would compare the signatures
        __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets it to None
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return (FrozenDict, (dict(self),))


EMPTY: FrozenDict = FrozenDict()


def freeze(value: Any) -> Any:
    """Copy nested dicts, lists and sets into their read-only kin; leave everything else as it is."""
    if isinstance(value, FrozenDict):
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
    """Copy nested mappings and sequences into plain dicts and lists; leave everything else as it is."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return {key: thaw(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return [thaw(item) for item in items]
    return value


def freeze_json(value: Any) -> Any:
    """Freeze `value` after checking that it can go through JSON and back; raise `ValueError` naming what cannot."""
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
