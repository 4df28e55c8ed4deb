"""`ToolResult`: the result of a tool call, how a value of any kind becomes text, and how a text is masked and cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from io import BytesIO
from json import loads
from typing import Any, Final, cast

from kairo_team._util.counts import count
from kairo_team._util.frozen import known_arguments
from kairo_team._util.late_pydantic import to_json
from kairo_team._util.masking import MASK, Masker
from kairo_team.errors import BadExit
from kairo_team.files import File, as_files, kind_of
from kairo_team.plugin_calls import PLAIN_CALL, problem_of

MAX_RESULT: Final = 50_000
"""Most characters of a tool's result that a member receives; a notice gives the number of the others."""

_WRITTEN_BYTES: Final = re.compile(r"""\bb(['"])(?:\\.|[^\\])*?\1""", re.DOTALL)
_SHORT: Final = 60
"""Most characters of bytes that a description shows."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, for the member."""

    text: str
    is_error: bool = False
    """Whether the call failed or was refused; the text has the reason."""
    value: Any = None
    """The tool's return value, as long as the text is its unchanged text; None otherwise."""
    refused_by: str | None = None
    """What refused the call or its result: a stage of the pipeline, or a policy's name."""
    files: Sequence[File] = ()
    """Files that a model gets after the text, if it takes them."""

    def __post_init__(self) -> None:
        if self.files or type(self.files) is not tuple:
            object.__setattr__(self, "files", as_files("ToolResult.files", self.files))
        if not isinstance(self.text, str):
            raise ValueError(f"ToolResult.text must be a string, not {self.text!r:.200}")

    @property
    def is_json(self) -> bool:
        """Whether the text should be the JSON of the tool's return value."""
        return not self.is_error and not isinstance(self.value, str | None)


def result_of(value: Any) -> ToolResult:
    """Return a tool's return value as a result; a tool cannot set `refused_by`."""
    if isinstance(value, ToolResult):
        return replace(value, refused_by=None)
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # `__class__` may lie
    if issubclass(kind, File):
        return ToolResult(str(value), files=[value])
    if kind is list or kind is tuple:
        items = cast("Sequence[object]", value)
        files = [cast("File", one) for one in items if issubclass(type(one), File)]
        if files:
            return ToolResult("\n".join(text_of(one) for one in items), files=files)
    return ToolResult(text_of(value), value=value)


def text_of(value: Any) -> str:
    """Return the text of any value that a tool returned; never raises.

    A string stays unchanged and None is blank. A value that JSON can express, including pydantic models and
    dataclasses, is written as JSON. Bytes and images, alone or inside a value, become a sentence, any other value its
    `str`.
    """
    if isinstance(value, str):
        # The base's method, because a subclass may show something else than its text.
        return value if type(value) is str else str.__str__(value)
    if value is None:
        return ""
    if isinstance(value, BytesIO):
        value = value.getvalue()
    if isinstance(value, bytes | bytearray | memoryview) or _is_image(value):
        return _read_bytes(value)
    if hasattr(value, "__next__"):  # an iterator may never end, and pydantic would consume it
        return describe(value)
    try:
        text = _json(value)
        return str(loads(text)) if text.startswith('"') else text  # a date or the like needs no quotes
    except Exception:  # noqa: BLE001 - the value contains itself, or its own serialiser fails
        return describe(value)


def _json(value: Any) -> str:
    try:
        return to_json(value, fallback=_described, bytes_mode="utf8", inf_nan_mode="constants").decode()
    except ValueError:  # bytes that are not UTF-8
        return to_json(_in_sentences(value), fallback=_described, inf_nan_mode="constants").decode()


def _read_bytes(value: Any) -> str:
    """Return bytes that are a text as that text; for other bytes, and for an image, the sentence."""
    if not _is_image(value):
        with suppress(UnicodeDecodeError):
            text = bytes(value).decode()
            if "\0" not in text:  # binary data may be valid UTF-8 by chance
                return text
    return file_sentence(value)


def file_sentence(value: Any) -> str:
    """Return the sentence for bytes or an image, which a prompt cannot contain."""
    if _is_image(value):
        what = f"an image of {value.width} x {value.height} pixels"
    else:
        content = bytes(value)
        kind = kind_of(content[:16])
        size = count(len(content), "byte")
        what = f"{size} of {kind}" if kind else size
    return f"[the tool returned {what}, and only text can be shown to you]"


def _is_image(value: Any) -> bool:
    """Return whether a value is a Pillow image, without importing Pillow."""
    return type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "width") and hasattr(value, "height")


def _described(value: Any) -> str:
    return file_sentence(value) if _is_image(value) else describe(value)


def _in_sentences(value: Any) -> Any:
    """Return a value with all bytes in it replaced by sentences."""
    match value:
        case bytes() | bytearray() | memoryview():
            return _read_bytes(value)
        case Mapping():
            named = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
            keys = (file_sentence(key) if isinstance(key, bytes) else key for key in named)
            return dict(zip(keys, map(_in_sentences, named.values()), strict=True))
        case list() | tuple() | set() | frozenset():
            return [_in_sentences(one) for one in cast("Iterable[Any]", value)]
        case type():
            return value
        case _ if hasattr(value, "__pydantic_serializer__"):  # it leaves out what is excluded
            return _in_sentences(value.__pydantic_serializer__.to_python(value, by_alias=True))
        case _ if hasattr(value, "__dataclass_fields__"):
            return {one.name: _in_sentences(getattr(value, one.name)) for one in fields(value)}
        case _:
            return value


def describe(value: Any) -> str:
    """Return `str(value)` with long bytes cut out; describe a value whose `str` fails by its class."""
    try:
        with PLAIN_CALL:
            return _WRITTEN_BYTES.sub(_cut_bytes, str.__str__(str(value)))
    except Exception:  # noqa: BLE001 - its own `__str__` or `__repr__` fails
        return f"<a {type(value).__name__} that cannot be shown>"


def _cut_bytes(written: re.Match[str]) -> str:
    return "[bytes]" if len(written[0]) > _SHORT and "\\x" in written[0] else written[0]


def describe_error(error: BaseException) -> str:
    """Return an exception's type and text, without its traceback; for a group, the texts of its leaves."""
    if isinstance(error, BaseExceptionGroup):
        return problem_of(cast("BaseExceptionGroup[BaseException]", error))
    name, text = type(error).__name__, describe(error)
    if isinstance(error, BadExit):
        return text
    return f"{name}: {text}" if text.strip() else name


class Sanitizer:
    """Masks the given secrets in all forms that `Masker` knows, and limits the length."""

    __slots__ = ("_masker", "_most")

    def __init__(self, secrets: Iterable[str] = (), most: int = MAX_RESULT) -> None:
        self._masker = Masker(secrets)
        self._most = most

    def __call__(self, text: str) -> str:
        """Return the text as a member may read it."""
        length = len(text)
        if length > self._most and text.isascii():
            text = text[: self._most + self._masker.longest]  # keep a secret across the edge whole
        spans = self._masker.spans(text) if self._masker else []
        if length <= self._most and not spans and _is_sound(text):
            return text
        pieces: list[str] = []
        at, room, end = 0, self._most, min(length, self._most)
        for start, stop in spans:
            # `room` is what is left of the limit: a mask may be longer than its secret.
            if start >= end or start - at >= room:
                break
            pieces += [text[at:start], MASK]
            room -= start - at + len(MASK)
            at = stop
        end = max(at, min(end, at + room))
        pieces.append(text[at:end])
        left_out = length - end
        if left_out > 0:
            pieces.append(f"\n[{left_out} more characters left out]")
        # Half a surrogate pair could not be sent to a model or written to a journal.
        return "".join(pieces).encode(errors="replace").decode()


def _is_sound(text: str) -> bool:
    """Return whether the text can be encoded: half a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
