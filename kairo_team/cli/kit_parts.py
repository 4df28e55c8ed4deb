"""`kairo plugins KIND --kit`: the factories and capabilities of a kit, read from its source, and the clauses."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from rich.text import Text

from kairo_team.clauses import clauses_of
from kairo_team.cli.refusal import refusing
from kairo_team.errors import MissingExtra
from kairo_team.plugins import Kind

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen

_BASE: Final = "ContractTCK"
"""The class whose capabilities all kits share."""
_INSTEAD: Final = re.compile(r"or say (\w+ = \w+)")
_NOT_DECLARED: Final = {"contract", "pytestmark"}
"""Class attributes of a kit that are not capabilities."""


class Factory(NamedTuple):
    """A class method that a test class writes."""

    signature: str
    what: str
    instead: str | None
    """The capability to declare in place of the factory, if one can be declared."""
    has_default: bool

    @property
    def when(self) -> str:
        """When the test class has to write it."""
        if self.has_default:
            return "has a default"
        return f"needed, or say {self.instead}" if self.instead else "needed"


class Capability(NamedTuple):
    """A class attribute that a test class may set."""

    name: str
    type: str
    default: str
    what: str


class KitParts(NamedTuple):
    """All that one kit asks of its test class."""

    kit: str
    factories: list[Factory]
    capabilities: list[Capability]
    shared: list[Capability]
    """Those of every kit."""
    clauses: dict[str, str]


def parts_of(kind: Kind) -> KitParts | None:
    """Return what the kit of a plug-in point asks; None without a kit, and `Refusal` without the extra `tck`."""
    if kind.kit is None:
        return None
    with refusing(MissingExtra, about="--kit: "):
        from kairo_team import tck  # it needs an extra

        return parts_of_kit(getattr(tck, kind.kit))


def show_parts(parts: KitParts | None, screen: Screen) -> None:
    """Print what a kit asks, below the head of its plug-in point."""
    if parts is None:
        screen.print_text("  no kit: it is tested like any function")
        return
    _title("factories: class methods of your test class", screen)
    for factory in parts.factories:
        _entry(factory.signature, f"{factory.when}. {factory.what}", screen)
    for title, capabilities in (("its", parts.capabilities), ("every kit's", parts.shared)):
        _title(f"{title} capabilities: class attributes; tests of what is missing are skipped", screen)
        for one in capabilities:
            _entry(f"{one.name}: {one.type} = {one.default}", one.what, screen)
    _title("clauses", screen)
    for number, text in parts.clauses.items():
        screen.print_indented(f"{number}. {text}", 4)


def document_of(parts: KitParts | None) -> dict[str, Any] | None:
    """Return what a kit asks, as JSON has it."""
    if parts is None:
        return None
    return {
        "kit": parts.kit,
        "factories": [one._asdict() for one in parts.factories],
        "capabilities": [one._asdict() for one in (*parts.capabilities, *parts.shared)],
        "clauses": parts.clauses,
    }


def _title(text: str, screen: Screen) -> None:
    screen.show(Text(f"  {text}", style="bold"), **screen.uncut)


def _entry(head: str, what: str, screen: Screen) -> None:
    screen.print_indented(head, 4)
    screen.print_indented(what, 6)


def parts_of_kit(kit: Any) -> KitParts:
    """Return what a kit asks of its test class."""
    factories: dict[str, Factory] = {}
    found: dict[bool, dict[str, Capability]] = {True: {}, False: {}}
    for kind in reversed(kit.__mro__[:-1]):
        for name, capability in _capabilities(kind):
            value: Any = getattr(kit, name, None)
            # A later class of the kit may set a plain value; any other default is shown as it was written.
            default = repr(value) if type(value) in {bool, int, float, str, tuple} else capability.default
            found[kind.__name__ == _BASE][name] = capability._replace(default=default)
        for name, function in class_methods(kind):
            if name not in factories and (made := _factory(function)):
                factories[name] = made
    ordered = sorted(factories.values(), key=lambda one: (one.has_default, one.instead is not None))
    return KitParts(kit.__name__, ordered, [*found[False].values()], [*found[True].values()], clauses_of(kit.contract))


def class_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the functions of the class methods that a class itself has, by name."""
    for name, member in vars(kind).items():
        if isinstance(member, classmethod):
            yield name, cast("Any", member).__func__


def _factory(function: Any) -> Factory | None:
    """Return the factory that a class method of a kit is; None for a method that only the kit uses."""
    said = inspect.getdoc(function) or ""
    node = _node_of(function)
    needed = "make_it(" in ast.unparse(node)
    if function.__name__.startswith("_") or not (needed or "verrid" in said or function.__name__.startswith("make_")):
        return None
    assert isinstance(node, ast.FunctionDef)
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    instead = _INSTEAD.search(ast.unparse(node))
    signature = f"{node.name}({ast.unparse(node.args)}){returns}"
    return Factory(signature, " ".join(said.split()), instead and instead[1], has_default=not needed)


def _capabilities(kind: type) -> Iterator[tuple[str, Capability]]:
    """Yield the class attributes that a class of a kit declares with a docstring."""
    node = _node_of(kind)
    assert isinstance(node, ast.ClassDef)
    for place, one in enumerate(node.body[:-1]):
        after = node.body[place + 1]
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and one.target.id not in _NOT_DECLARED
            and not one.target.id.startswith("_")
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            written = ast.unparse(one.annotation).removeprefix("ClassVar[").removesuffix("]")
            default = "" if one.value is None else ast.unparse(one.value)
            said = " ".join(str(after.value.value).split())
            yield one.target.id, Capability(one.target.id, written, default, said)


@cache
def _node_of(thing: Any) -> ast.stmt:
    return ast.parse(dedent(inspect.getsource(thing))).body[0]
