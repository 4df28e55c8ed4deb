"""Limits for templates: a team's file may come from anywhere, so its loops must end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS: Final = 100_000
"""Most loop iterations and calls in one prompt."""
MAX_TEXT: Final = 10_000_000
"""Most characters or items that a template may make with `*`."""
STEPS: Final = "steps_"
"""The name of a template's variable for its `Steps`."""


class Steps:
    """Counts the loop iterations and calls of one prompt."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self) -> None:
        """Count one step; `SecurityError` when there are too many."""
        self._left -= 1
        if self._left < 0:
            raise SecurityError(f"the template goes through its loops more than {MAX_STEPS:,} times")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox in which all templates end: loops and calls are counted, and results of `*` and `**` are limited."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.intercepted_binops = frozenset({"*", "**"})
        self.filters |= {"counted_": _counted}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "counted_", [], [], None, None, lineno=loop.lineno)
        return tree

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # jinja mangles the names of these two
        """Count and make a call."""
        _steps_of(context).take()
        if isinstance(obj, LoopContext) and args:  # a recursive loop iterates over new items
            args = (_counted(context, args[0]), *args[1:])
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply `*` or `**`, unless the result would be huge."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and not (numbers and abs(left) < MAX_TEXT and abs(right) <= 64):  # noqa: PLR2004 - bits
            raise SecurityError("the template raises to a power that is too large")
        if operator == "*" and not numbers:
            many: Any
            times: Any
            many, times = (right, left) if isinstance(left, int) else (left, right)
            if len(many) * times > MAX_TEXT:
                raise SecurityError(f"the template makes a text of more than {MAX_TEXT:,} characters")
        return super().call_binop(context, operator, left, right)


@pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items and count each."""
    steps = _steps_of(context)
    for item in items:
        steps.take()
        yield item


def _steps_of(context: Context) -> Steps:
    steps = context.resolve(STEPS)
    if not isinstance(steps, Steps):
        raise SecurityError("the template has loops or calls in a part that is imported without context")
    return steps
