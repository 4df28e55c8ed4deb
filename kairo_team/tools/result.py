"""`ToolResult`: the result of a tool call, and how a value of any kind becomes text."""

from __future__ import annotations

from dataclasses import dataclass
from json import loads
from typing import Any, cast

from kairo_team._util.frozen import quick
from kairo_team._util.late_pydantic import to_json
from kairo_team.errors import BadExit
from kairo_team.plugin_calls import PLAIN_CALL, problem_of


@quick
@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call for a member."""

    text: str
    is_error: bool = False
    """The call failed or was refused; the text has the reason."""
    value: Any = None
    """The tool's return value, while the text is still its unchanged text; None otherwise."""
    refused_by: str | None = None
    """What refused the call or its result: a stage of the pipeline, or a policy's name."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ValueError(f"ToolResult.text must be a string, not {self.text!r:.200}")


def text_of(value: Any) -> str:
    """Return the text of any value that a tool returned; never raises.

    A string stays unchanged and None is blank. A value that JSON can hold, pydantic models and dataclasses included, is
    written as JSON. Bytes are described by their number, any other value by its `str`.
    """
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if hasattr(value, "__next__"):  # it may never end, and pydantic would go through it
        return describe(value)
    try:
        text = _json(value, "utf8")
        return str(loads(text)) if text.startswith('"') else text  # a date or the like is no quotation
    except Exception:  # noqa: BLE001 - it goes round in a circle, or a serialiser of its own fails
        return describe(value)


def _json(value: Any, bytes_mode: Any) -> str:
    try:
        return to_json(value, fallback=describe, bytes_mode=bytes_mode, inf_nan_mode="constants").decode()
    except ValueError:
        if bytes_mode == "base64":
            raise
        return _json(value, "base64")


def describe(value: Any) -> str:
    """Return `str(value)`, or a description of a value whose `str` fails."""
    try:
        with PLAIN_CALL:
            return str.__str__(str(value))
    except Exception:  # noqa: BLE001 - its own `__str__` or `__repr__` fails
        return f"<a {type(value).__name__} that cannot be shown>"


def describe_error(error: BaseException) -> str:
    """Return an exception's type and text, without its traceback; of a group, what its leaves say."""
    if isinstance(error, BaseExceptionGroup):
        return problem_of(cast("BaseExceptionGroup[BaseException]", error))
    name, text = type(error).__name__, describe(error)
    if isinstance(error, BadExit):
        return text
    return f"{name}: {text}" if text.strip() else name
