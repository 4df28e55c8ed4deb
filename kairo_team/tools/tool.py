"""`Tool`: a function that an agent may call, and how a typed function becomes one."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast, get_args, overload

from kairo_team._util.frozen import FrozenDict, check_kind, freeze, freeze_json, known_call, trusted
from kairo_team.messages import ToolSpec
from kairo_team.permissions import SideEffect

NO_PARAMETERS: Final[FrozenDict] = freeze({"type": "object", "properties": {}})
"""JSON Schema of a tool that takes no arguments."""

MAX_DESCRIPTION: Final = 10_000
"""Most characters of a tool's description, which is in every prompt."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
_MARKS: Final = "__kairo_tool__"

F = TypeVar("F")

Ends = Literal["answer", "turn"]
"""How a tool's call ends an attempt: with the tool's result as the answer, or just as the end of the turn."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that an agent may call by name.

    `as_tool` makes one from a function; construct it directly for anything else, such as a tool of a server.
    """

    name: str
    """At most 64 alphanumeric characters, `_` and `-`, which all providers accept."""
    call: Callable[[Mapping[str, Any]], Awaitable[Any]] = field(repr=False)
    """An async function that takes the arguments as `check` returned them, as one mapping. Called concurrently. The
    return value is the result; an exception, or a `ToolResult` with an error, is an error that the member can read."""
    description: str = ""
    """The description for the model; it is cut after 10,000 characters, with a notice."""
    parameters: Mapping[str, Any] = field(default=NO_PARAMETERS, hash=False)
    """JSON Schema of the arguments: an object. Copied read-only."""
    side_effect: SideEffect = "system"
    check: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = field(default=None, repr=False)
    """Returns the arguments as `call` takes them, or raises `ValueError` with a sentence that the model can act on.
    None checks them by `parameters`, with the extra `json-schema`; without it, that no required one is missing."""
    timeout: float | None = None
    """Seconds that one call may take; None sets no limit."""
    idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more, so that it may be repeated after a crash."""
    ends: Ends | None = None
    """How a successful call ends the attempt; no model is called after it, and `Attempt.ended_by` is that call. None:
    the attempt continues. "answer": the tool's result is the artifact. "turn": the member's text so far is the
    artifact, or the tool's result if it wrote nothing; it need not be of the task's output type."""
    server: str | None = None
    """Name of the tool's MCP server."""
    server_tool: str | None = None
    """The tool's name on that server."""
    allowed: bool = False
    """Whether the list `allow` of the MCP server names this tool. A team
    without an `McpPolicy` of its own then allows it."""

    _spec: ToolSpec = field(init=False, repr=False, compare=False)

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
        object.__setattr__(self, "_spec", trusted(ToolSpec)(self.name, self.description, self.parameters))

    @property
    def spec(self) -> ToolSpec:
        """The tool's specification for a model."""
        return self._spec


@dataclass(frozen=True, slots=True)
class _Marks:
    """The options of `@tool` for a function; None: not set."""

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
@known_call
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
    """Mark a typed function as a tool, `@tool` or `@tool(side_effect="read")`, and return the function itself.

    `name` and `description` default to the function's own; `timeout` is in seconds, for one call. An `idempotent` tool
    is called again after a crash that left a call without a recorded end; `ends` is as for `Tool`. An unmarked function
    may be used as a tool too; it counts as "system".
    """
    _check_options("@tool", side_effect, timeout, ends)
    marks = _Marks(name, description, side_effect, timeout, idempotent, ends)
    return partial(_mark, marks) if function is None else _mark(marks, function)


def _mark(marks: _Marks, function: Any) -> Any:
    marked: Any = getattr(function, "__func__", function)  # the function inside a static or class method
    if not callable(marked):
        raise ValueError(f"@tool decorates a function, not {function!r}")
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

    The parameters' types and defaults become the schema, checked by pydantic; the tool's and the parameters'
    descriptions come from the docstring. Arguments here have priority over the arguments of
    `@tool`. Async functions are
    awaited, others run in a worker thread. `ValueError` for a function that cannot be a tool; it names the wrong
    parameter.
    """
    given: dict[str, Any] = {"name": name, "description": description, "side_effect": side_effect}
    given |= {"timeout": timeout, "ends": ends}
    chosen = {key: value for key, value in given.items() if value is not None}
    if isinstance(function, Tool):
        return replace(function, **chosen) if chosen else function
    # Imported here: it needs pydantic, which takes long to import, and most runs have no tools.
    from kairo_team.tools.signature import Signature, function_of, unbound

    signature, marks = Signature(function), _Marks()
    # `@tool` may have marked the function inside a partial, or the method of a callable object.
    for marked in (function_of(function), unbound(function)):
        marks = getattr(marked, _MARKS, marks)
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


def _check_options(owner: str, side_effect: Any, timeout: Any, ends: Any) -> None:
    """Raise `ValueError` for an unknown side effect or end, or an invalid timeout."""
    if ends is not None and ends not in get_args(Ends):
        raise ValueError(f"{owner}: ends must be one of {', '.join(get_args(Ends))}, or None, not {ends!r}")
    if side_effect not in get_args(SideEffect):
        raise ValueError(f"{owner}: side_effect must be one of {', '.join(get_args(SideEffect))}, not {side_effect!r}")
    number = timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool))
    if not number or (timeout is not None and not (math.isfinite(timeout) and timeout > 0)):
        raise ValueError(f"{owner}: timeout must be seconds > 0, or None for no limit, not {timeout!r}")


def _schema(owner: str, parameters: Any) -> Mapping[str, Any]:
    """Return a schema read-only; `ValueError` unless it describes arguments by name."""
    given = cast("Mapping[str, Any]", parameters if isinstance(parameters, Mapping) else {"type": None})
    if given.get("type", "object") != "object":
        raise ValueError(f"{owner}: the parameters must be the JSON Schema of an object, not {parameters!r:.200}")
    try:
        schema: Mapping[str, Any] = freeze_json(given or NO_PARAMETERS)  # providers refuse an empty schema
    except ValueError as error:
        raise ValueError(f"{owner}: the parameters are not a JSON Schema: {error}") from error
    return schema


def fitting_name(name: str) -> str:
    """Return a valid tool name: replace other characters by `_`, and cut after 64."""
    return _UNFIT.sub("_", name)[:_LONGEST] or "_"
