"""Arguments of a tool call in three forms: as the model wrote them, as the tool takes them, as guards see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from kairo_team._util.frozen import freeze_json, thaw
from kairo_team._util.late_pydantic import to_jsonable_python
from kairo_team._util.reply_json import read_json
from kairo_team.tools.result import describe, describe_error

if TYPE_CHECKING:
    from kairo_team.tools.tool import Tool


class CallRefusedError(Exception):
    """A tool call is refused: `by` names the stage or policy, the text is for the member."""

    def __init__(self, by: str, reason: str) -> None:
        self.by = by
        super().__init__(reason)


class CallPutOffError(Exception):
    """A tool call is not made now: a person is to answer first, about it or about one before it."""


def _bad(reason: str) -> CallRefusedError:
    return CallRefusedError("arguments", reason)


def check_arguments(tool: Tool, arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return the arguments as the tool takes them; for wrong ones raise `CallRefusedError`, which the model reads."""
    given = _parsed(arguments) if isinstance(arguments, str) else _plain_copy(arguments)
    if not isinstance(given, dict):
        raise _bad(f"the arguments must be a JSON object, by name, not {describe(given)[:200]!r}")
    try:
        check = tool.check or _check_by_schema(tool)
        found: Any = check(cast("dict[str, Any]", given))
        if not isinstance(found, dict | Mapping):  # `dict` first: its check is quick
            raise TypeError(f"the check returned {describe(found)[:200]!r}, which is not a mapping of arguments")
        return cast("Mapping[str, Any]", found)
    except ValueError as error:
        raise _bad(f"the arguments do not fit: {describe(error)}") from error
    except Exception as error:
        raise _bad(f"the arguments could not be checked: {describe_error(error)}") from error


@lru_cache(256)
def _check_by_schema(tool: Tool) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return the check of a tool that has none of its own."""
    if find_spec("jsonschema_rs") is None:  # without that extra, only missing arguments are refused
        return partial(_check_names, tool.parameters.get("required", ()))
    from kairo_team.output_types import JsonSchema

    return JsonSchema(tool.parameters, f"tool {tool.name!r}").checked


def _check_names(required: Iterable[str], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if missing := [name for name in required if name not in arguments]:
        raise ValueError(f"{', '.join(map(repr, missing))} missing")
    return arguments


def _parsed(text: str) -> Any:
    """Parse the JSON text of arguments; a blank text means no arguments."""
    try:
        return read_json(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _bad(f"the arguments are not JSON: {describe(error)}; they began {text[:100]!r}") from error


def _plain_copy(arguments: Any) -> Any:
    """Copy read-only values into plain dicts and lists, as functions and schema validators expect them."""
    try:
        return thaw(arguments)
    except RecursionError as error:
        raise _bad("the arguments are nested too deeply") from error
    except Exception as error:
        raise _bad(f"the arguments cannot be read: {describe_error(error)}") from error


def seen_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as guards and guardrails see them: JSON values, a read-only copy."""
    try:
        # A copy: what a guard does to it must not reach the tool, and values of the tool's own types become JSON.
        seen: Mapping[str, Any] = freeze_json(to_jsonable_python(arguments, fallback=describe))
    except Exception as error:
        raise _bad(f"the arguments are not JSON values: {describe_error(error)}") from error
    return seen
