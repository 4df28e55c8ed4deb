"""`Tool`: a function that an agent may call, and how a typed function becomes one."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast, get_args, overload

from kairo_team._util.frozen import FrozenDict, check_kind, freeze, freeze_json
from kairo_team.messages import ToolSpec
from kairo_team.permissions import SideEffect

NO_PARAMETERS: Final[FrozenDict] = freeze({"type": "object", "properties": {}})
"""JSON Schema of a tool that takes no arguments."""

MAX_DESCRIPTION: Final = 10_000
"""Characters of a tool's description; it is in every prompt."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
_MARKS: Final = "__kairo_tool__"

F = TypeVar("F")

Ends = Literal["answer", "turn"]
"""What a call of a tool that ends an attempt makes of it: its answer, or a turn that is over without one."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that an agent may call by name.

    `as_tool` makes it from a function; make it by hand for anything else, such as a tool of a server.
    """

    name: str
    """At most 64 letters, digits, `_` and `-`: what providers accept."""
    call: Callable[[Mapping[str, Any]], Awaitable[Any]] = field(repr=False)
    """Async; takes the arguments by name, as `check` returned them. Called concurrently. Its return value is the
    result; an exception, or a `ToolResult` with an error, is an error the member can read."""
    description: str = ""
    """The description for the model; what is longer than 10,000 characters is cut, and a notice says so."""
    parameters: Mapping[str, Any] = field(default=NO_PARAMETERS, hash=False)
    """JSON Schema of the arguments: an object. Copied read-only."""
    side_effect: SideEffect = "system"
    check: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = field(default=None, repr=False)
    """Returns the arguments as `call` takes them, or raises `ValueError` with a sentence the model can act on. None
    takes them as they come."""
    timeout: float | None = None
    """Seconds one call may take; None is no limit of its own."""
    idempotent: bool = False
    """A second call with the same arguments changes nothing more: it may be made again after a crash."""
    ends: Ends | None = None
    """A call that succeeds ends the attempt, and no model is called after it; `Attempt.ended_by` is that call. None:
    the attempt goes on. "answer": the tool's result is the artifact. "turn": what the member wrote so far is the
    artifact, or the tool's result where it wrote nothing; it need not be of the task's output type."""
    server: str | None = None
    """Name of the MCP server it belongs to."""
    server_tool: str | None = None
    """The name that server gives it."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a tool's name is 1 to 64 letters, digits, '_' or '-', not {self.name!r}: give it another"
            )
        owner = f"tool {self.name!r}"
        for what, function in (("call", self.call), ("check", self.check or self.call)):
            if not callable(function):
                raise ValueError(f"{owner}: {what} must be a function, not {function!r}")
        check_kind(f"{owner}: the description", self.description, str)
        if (more := len(self.description) - MAX_DESCRIPTION) > 0:
            cut = f"{self.description[:MAX_DESCRIPTION]}\n[{more:,} more characters left out]"
            object.__setattr__(self, "description", cut)
        for what, text in (("server", self.server), ("server_tool", self.server_tool)):
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{owner}: {what} must be a string or None, not {text!r}")
        _check_options(owner, self.side_effect, self.timeout, self.ends)
        object.__setattr__(self, "parameters", _schema(owner, self.parameters))

    @property
    def spec(self) -> ToolSpec:
        """The specification that a model receives."""
        return ToolSpec(self.name, self.description, self.parameters)


@dataclass(frozen=True, slots=True)
class _Marks:
    """The options of `@tool` for a function; None is not set."""

    name: str | None = None
    description: str | None = None
    side_effect: SideEffect | None = None
    timeout: float | None = None
    idempotent: bool = False
    ends: Ends | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    side_effect: SideEffect = "system",
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    ends: Ends | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    side_effect: SideEffect = "system",
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    ends: Ends | None = None,
) -> Any:
    """Mark a typed function as a tool: `@tool`, or `@tool(side_effect="read")`. The function does not change.

    `name` and `description` default to the function's own; `timeout` is seconds of one call. One that is `idempotent`
    is called again after a crash in which nobody saw its end; `ends` is that of `Tool`. Anything unmarked may be used
    as a tool too; it then counts as "system".
    """
    _check_options("@tool", side_effect, timeout, ends)
    marks = _Marks(name, description, side_effect, timeout, idempotent, ends)
    return partial(_mark, marks) if function is None else _mark(marks, function)


def _mark(marks: _Marks, function: Any) -> Any:
    marked: Any = getattr(function, "__func__", function)  # of a static or class method, the function within
    if not callable(marked):
        raise ValueError(f"@tool stands before a function, not {function!r}")
    try:
        setattr(marked, _MARKS, marks)
    except AttributeError:
        raise ValueError(f"{function!r} cannot be marked: make the tool by as_tool(..., side_effect=...)") from None
    return function


def as_tool(
    function: Tool | Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    side_effect: SideEffect | None = None,
    timeout: float | None = None,
    ends: Ends | None = None,
) -> Tool:
    """Make a tool of a function, method, partial or callable object; a `Tool` is returned unchanged.

    The parameters' types and defaults become the schema, checked by pydantic; their descriptions, and its own, come
    from the docstring. Arguments here have priority over those of `@tool`. Async functions are awaited, others run in a
    worker thread. `ValueError` for a function that cannot be a tool, which names the wrong parameter.
    """
    given: dict[str, Any] = {"name": name, "description": description, "side_effect": side_effect}
    given |= {"timeout": timeout, "ends": ends}
    chosen = {key: value for key, value in given.items() if value is not None}
    if isinstance(function, Tool):
        return replace(function, **chosen) if chosen else function
    from kairo_team.tools.signature import Signature  # imports pydantic, which no run without tools needs

    signature = Signature(function)
    marks = _marks_of(function)
    options: dict[str, Any] = {
        "name": name or marks.name or signature.name,
        "description": signature.description if marks.description is None else marks.description,
        "side_effect": marks.side_effect or "system",
        "timeout": marks.timeout,
        "idempotent": marks.idempotent,
        "ends": marks.ends,
        **chosen,
    }
    return Tool(call=signature.call, check=signature.check, parameters=signature.schema, **options)


def _marks_of(function: Any) -> _Marks:
    """Return the options of `@tool` for a function, for the one inside a partial, or for a callable object."""
    from kairo_team.tools.signature import function_of

    while isinstance(function, partial):
        function = cast("partial[Any]", function).func  # type: ignore[redundant-cast]  # pyright needs it
    marks: _Marks = getattr(function, _MARKS, None) or getattr(function_of(function), _MARKS, None) or _Marks()
    return marks


def _check_options(owner: str, side_effect: Any, timeout: Any, ends: Any) -> None:
    """Raise `ValueError` for a side effect or an end there is not, or a timeout that is none."""
    if ends is not None and ends not in get_args(Ends):
        raise ValueError(f"{owner}: ends must be one of {', '.join(get_args(Ends))}, or None, not {ends!r}")
    if side_effect not in get_args(SideEffect):
        raise ValueError(f"{owner}: side_effect must be one of {', '.join(get_args(SideEffect))}, not {side_effect!r}")
    number = timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool))
    if not number or (timeout is not None and not (math.isfinite(timeout) and timeout > 0)):
        raise ValueError(f"{owner}: timeout must be seconds > 0, or None for no limit, not {timeout!r}")


def _schema(owner: str, parameters: Any) -> Mapping[str, Any]:
    """Return a schema read-only; `ValueError` for what describes no arguments by name."""
    given = cast("Mapping[str, Any]", parameters if isinstance(parameters, Mapping) else {"type": None})
    if given.get("type", "object") != "object":
        raise ValueError(f"{owner}: the parameters must be the JSON Schema of an object, not {parameters!r:.200}")
    try:
        schema: Mapping[str, Any] = freeze_json(given or NO_PARAMETERS)
    except ValueError as error:
        raise ValueError(f"{owner}: the parameters are no JSON Schema: {error}") from error
    return schema


def fitting_name(name: str) -> str:
    """Return a name made fit for a tool: what may not be in it is `_`, and it ends after 64 characters."""
    return _UNFIT.sub("_", name)[:_LONGEST] or "_"
