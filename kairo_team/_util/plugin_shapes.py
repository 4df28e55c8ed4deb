"""Check that a plug-in has the methods of its protocol, when it is passed in; errors are sentences."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from kairo_team._util.narrowing import is_several

_MAY_BE_AWAITED = ("Any", "Awaitable", "Coroutine", "Future")
"""Return annotations that allow a plain `def` instead of an `async def`."""
_INSTEAD: Final = {
    "an evaluator": ": code checks a criterion, kt.Rubric([kt.Criterion('short', 'at most 60 words', check)])"
}
"""What to write instead of an object without the method."""


def check_plug_in(where: str, what: str, given: object, method: str, *takes: str) -> None:
    """Raise `ValueError` unless `given` is an object with an async method that takes these arguments by position.

    `where` begins the sentence ("Team.coordinator"); `what` names what is expected ("a coordinator").
    """
    check_instance(where, what, given)
    found = getattr(given, method, None)
    call = f"{method}({', '.join(takes)})"
    if not callable(found):
        raise ValueError(f"{where} must have an async {call}, not {given!r}{_INSTEAD.get(what, '')}")
    check_method(where, found, f"{type(given).__name__}.{method}", call, len(takes))


def check_instance(where: str, what: str, given: object) -> None:
    """Raise `ValueError` for a class instead of an instance."""
    if isinstance(given, type):
        name = given.__name__
        raise ValueError(f"{where}: {name} is a class, not {what}: make one, {name}(...)")


def check_method(where: str, method: Callable[..., Any], name: str, call: str, takes: int) -> None:
    """Raise `ValueError` for a method that is clearly not async, or cannot be called as `call` shows."""
    if _is_generator(method):
        raise ValueError(f"{where}: {name} yields but must return: write async def {call} with a return")
    function = _plain_function(method)
    is_plain = inspect.isfunction(function) and not inspect.iscoroutinefunction(function)
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    if is_plain and not any(word in returns for word in _MAY_BE_AWAITED):
        raise ValueError(f"{where}: {name} is not an async function: write async def {call}")
    signature = _signature(method)
    if signature is not None and not _takes_arguments(signature, takes):
        raise ValueError(f"{where}: {name} takes {signature}, and is called as {call}")


def check_function(where: str, function: Callable[..., Any], call: str, takes: int = 1) -> None:
    """Raise `ValueError` for a function that cannot be called as `call` shows, with `takes` positional arguments."""
    signature = _signature(function)
    if signature is not None and not _takes_arguments(signature, takes):
        raise ValueError(f"{where}: {_name(function)} takes {signature}, and is called as {call}")


def check_agent(where: str, agent: object) -> None:
    """Raise `ValueError` for anything but a function of an assignment or an object with `run`."""
    check_instance(where, "an agent", agent)
    if callable(getattr(agent, "run", None)):
        check_plug_in(where, "an agent", agent, "run", "assignment", "context")
        return
    if not callable(agent):
        hint = ""
        if isinstance(agent, str):
            model = f": kt.MiniAgent({agent!r:.80}) is an agent that asks this model"
            hint = model if len(agent.split()) == 1 else ": give the function itself, not what it returns"
        raise ValueError(
            f"{where}: the agent must be a function or have an async run(assignment, context), not {agent!r:.200}{hint}"
        )
    function = cast("Callable[..., Any]", agent)
    if _is_generator(function):
        raise ValueError(f"{where}: {_name(function)} yields; an agent must return its result")
    signature = _signature(function)
    if signature is None:
        return
    way = context_by(function)
    fits = _takes_arguments(signature, 2 if way == "position" else 1, *(("context",) if way == "keyword" else ()))
    if not fits:
        raise ValueError(
            f"{where}: {_name(function)} takes {signature}; an agent function takes (assignment) or "
            "(assignment, context)"
        )


def context_by(function: Callable[..., Any]) -> Literal["position", "keyword"] | None:
    """Return how an agent function takes its context; None if it takes only the assignment.

    The context is the second required positional parameter, or a parameter named `context`.
    """
    signature = _signature(function)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name == "context"):
        return "position"
    named = any(p.name == "context" and p.kind is not p.POSITIONAL_ONLY for p in parameters[1:])
    return "keyword" if named else None


def as_list(where: str, what: str, given: Any) -> Sequence[Any]:
    """Return the given items as a list; `ValueError` for a string or a single item."""
    if not is_several(given):
        raise ValueError(f"{where} is a list of {what}, not {given!r}: put it into a list, [...]")
    return list(given)


def is_async(function: Any) -> bool:
    """Return whether calling the function, or an object with `__call__`, returns a coroutine."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself is needed


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return a function's signature without annotations."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return None
    # Annotations would make a message hard to read.
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    return found.replace(parameters=bare, return_annotation=inspect.Signature.empty)


def _takes_arguments(signature: inspect.Signature, positional: int, *names: str) -> bool:
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _plain_function(function: Any) -> Any:
    """Return the function behind decorators, methods and partial calls."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    return getattr(inspect.unwrap(function), "__func__", inspect.unwrap(function))


def _is_generator(function: Callable[..., Any]) -> bool:
    found = _plain_function(function)
    return inspect.isasyncgenfunction(found) or inspect.isgeneratorfunction(found)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or f"{function!r}")


def check_parts(owner: str, parts: Any, what: str, methods: Mapping[str, str]) -> tuple[Any, ...]:
    """Return objects as a tuple; raises `ValueError`, which names `owner`, unless each has all `methods`, by name."""
    if not is_several(parts):
        raise ValueError(f"{owner}: {what}s are given as a list, not {parts!r}")
    given = tuple(parts)
    for one in given:
        check_instance(owner, f"a {what}", one)
        lacking = [name for name in methods if not callable(getattr(one, name, None))]
        if lacking:
            from_config = f"kairo_team.governance.{what.capitalize()}Chain.from_config([{{'name': ...}}])"
            raise ValueError(
                f"{owner}: a {what} has {' and '.join(methods.values())}; {one!r} lacks {' and '.join(lacking)}"
                f"{f'; by name: {from_config}' if isinstance(one, str | Mapping) else ''}"
            )
        for name, written in methods.items():
            if written.startswith("async "):
                call = written.removeprefix("async ")
                check_method(owner, getattr(one, name), f"{type(one).__name__}.{name}", call, 1)
    return given
