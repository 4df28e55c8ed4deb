"""Output types of tasks: Python types, which pydantic validates, and JSON Schemas.

JSON Schemas are applied by the library `jsonschema-rs` (extra `json-schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, NoReturn, cast

from kairo_team._util.frozen import thaw
from kairo_team._util.late_pydantic import adapter
from kairo_team._util.mistakes import faults_of
from kairo_team._util.reply_json import read_reply
from kairo_team.artifacts import Artifact
from kairo_team.errors import InvalidReply, MissingExtra

MAX_FAULTS: Final = 3
"""The most faults that are searched for: a large value can have a million."""
MAX_QUOTE: Final = 300
"""The most characters quoted of one fault: a validator repeats the value it found."""
MAX_STEPS: Final = 100_000
"""The most backtracking steps, some milliseconds, of a pattern with a lookaround or a back reference in one value."""


class JsonSchema:
    """One JSON Schema. Nothing outside it is ever fetched: every reference must end inside the schema.

    Most patterns take time in proportion to the value. A pattern with a lookaround or a back reference does not: it may
    take `MAX_STEPS` steps, and a value that needs more is faulty. With `linear`, a schema with such a pattern is
    refused.

    Raises `MissingExtra`, which names `what`, without the extra, and `ValueError` for an invalid JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any], what: str, *, linear: bool = False) -> None:
        if find_spec("jsonschema_rs") is None:
            raise MissingExtra(what, "json-schema")
        library: Any = import_module("jsonschema_rs")
        bounded = library.FancyRegexOptions(backtrack_limit=MAX_STEPS)
        self._validator = _built(library, schema, bounded, "it is not a valid JSON Schema")
        if linear:
            fault = "it has a pattern that cannot be searched for in linear time"
            # This engine never backtracks, and refuses such patterns.
            self._validator = _built(library, schema, library.RegexOptions(), fault)

    def faults(self, value: Any) -> list[str]:
        """Return the first few faults of a value; empty without faults.

        Raises `ValueError` if the schema cannot be applied, such as to a value that is nested too deeply.
        """
        try:
            found: list[Any] = list(islice(self._validator.iter_errors(value), MAX_FAULTS))
        except Exception as error:  # a value that is not JSON
            raise ValueError(f"its schema cannot be applied: {short(error)}") from error
        return [f"{_place(fault.instance_path)}: {short(fault)}" for fault in found]

    def checked(self, value: Any) -> Any:
        """Return the value; raise `ValueError` with its first few faults."""
        if faults := self.faults(value):
            raise ValueError("; ".join(faults))
        return value


def _built(library: Any, schema: Mapping[str, Any], patterns: Any, fault: str) -> Any:
    try:
        return library.validator_for(thaw(schema), retriever=_refuse, pattern_options=patterns)
    except Exception as error:  # includes what a hostile schema makes the validator raise
        raise ValueError(f"{fault}: {short(error)}") from error


def short(error: BaseException) -> str:
    """Return an error's message in one line of bounded length."""
    message = getattr(error, "message", "") or str(error) or type(error).__name__
    line = " ".join(message[: MAX_QUOTE * 4].split())  # cut first: a message may have the whole value
    return line if len(line) <= MAX_QUOTE else f"{line[:MAX_QUOTE]}..."


def _place(path: Iterable[str | int]) -> str:
    """Write the place of a fault, as in `$.tides[0].height`."""
    steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in path)
    return "$" + "".join(steps)


def _refuse(address: str) -> NoReturn:
    raise ValueError(f"nothing outside the schema is fetched, such as {address!r:.200}")


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of an output type."""
    if isinstance(kind, Mapping):
        schema: dict[str, Any] = thaw(kind)
        return schema
    return adapter(kind).json_schema()


def asked_schema(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema to ask for; None without an output type, and for `str`, which is the text itself."""
    return None if kind is None or kind is str else schema_of(kind)


def check_output(kind: Any, artifact: Artifact, *, cut_by: str | None = None) -> Any:
    """Return the artifact's data (else the JSON in its text) as JSON values, or raise `InvalidReply`.

    `cut_by` is the cause that cut the reply off: the error names it, and a number is refused because digits may be
    missing.
    """
    if kind is str and artifact.data is None:
        return artifact.text
    try:
        data = _read(kind, artifact.text, cut_by) if artifact.data is None else _checked(kind, artifact)
    except ValueError as error:
        from pydantic import ValidationError  # slow to import

        first = faults_of(error, 1)[0] if isinstance(error, ValidationError) else str(error)
        raise InvalidReply(_name(kind), first if cut_by is None else f"{cut_by}; {_MORE}") from None
    if cut_by is not None and not isinstance(data, dict | list | str):
        raise InvalidReply(_name(kind), f"{cut_by}; {_MORE}")
    return data  # pyright: ignore[reportUnknownVariableType]  # narrowed to a dict of anything


def _read(kind: Any, text: str, cut_by: str | None) -> Any:
    """Return the JSON in a reply; where a whole one has none, the reply itself if all values of the type are texts."""
    try:
        return read_reply(text, lambda found: _checked(kind, Artifact(found)))
    except ValueError:
        if cut_by is not None or schema_of(kind).get("type") != "string":
            raise
    return _checked(kind, Artifact(text, text.strip()))


_MORE: Final = "allow it more tokens (max_tokens), or ask for less"


def _checked(kind: Any, artifact: Artifact) -> Any:
    if isinstance(kind, Mapping):
        return _json_schema(cast("Mapping[str, Any]", kind)).checked(thaw(artifact.data_as(Any)))
    return adapter(kind).dump_python(artifact.data_as(kind), mode="json")


def output_type_problem(what: str, kind: Any) -> str | None:
    """Return why an output type, called `what`, cannot be used; None if it can."""
    try:
        if isinstance(kind, Mapping):
            _json_schema(cast("Mapping[str, Any]", kind))
        else:
            adapter(kind).rebuild()  # raises for an undefined name
    except Exception as error:  # noqa: BLE001 - pydantic raises many kinds of errors for an invalid type
        return f"{what} cannot be used to validate data: {_why_not(kind, error)}"
    return None


def _why_not(kind: Any, error: Exception) -> str:
    from pydantic.errors import PydanticSchemaGenerationError  # slow to import

    if not isinstance(error, PydanticSchemaGenerationError):
        return str(error).partition("\n")[0]
    shown = f"the class {kind.__name__}" if isinstance(kind, type) else f"{kind!r:.80}"
    return (
        f"pydantic cannot validate {shown}. Give a pydantic model, a dataclass, a type of these or of built-in ones "
        "such as list[str], or a JSON Schema"
    )


def _json_schema(schema: Mapping[str, Any]) -> JsonSchema:
    return JsonSchema(schema, "an output type that is a JSON Schema")


def _name(kind: Any) -> str:
    if isinstance(kind, Mapping):
        return str(cast("Mapping[str, Any]", kind).get("title", "JSON Schema"))
    return str(getattr(kind, "__name__", kind))
