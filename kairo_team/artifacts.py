"""What an attempt leaves to those after it: its artifact, the tool calls it made, and the findings of its review."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Final, Literal, TypeVar, overload

from kairo_team._util.frozen import checked, freeze, freeze_json, known_arguments, plain_text
from kairo_team._util.guesses import answers_guesses
from kairo_team._util.late_pydantic import adapter, omit_empty, to_json, to_jsonable_python
from kairo_team.errors import BadOutput
from kairo_team.files import File, as_files
from kairo_team.messages import ModelResponse

T = TypeVar("T")


def _as_json(data: Any) -> bytes | None:
    """Return data as JSON; None if it contains anything but JSON values."""
    try:
        return to_json(freeze_json(data))
    except ValueError:
        return None


@answers_guesses
@known_arguments
@dataclass(frozen=True, slots=True)
class Artifact:
    """The work that an attempt produced."""

    text: str
    data: Any = field(default=None, hash=False)
    """The artifact as structured data, if the task has an output type or the agent returned some. Where the text is
    blank, a run makes it the JSON of the data."""
    media_type: str = "text/plain"
    partial: bool = False
    """Whether the work was cut short: by a limit, a deadline or a kill."""
    files: Sequence[File] = ()
    """Files that belong to the work: tasks that depend on it get them."""

    __get_pydantic_core_schema__ = omit_empty("files")

    def __post_init__(self) -> None:
        if type(self.text) is not str:
            object.__setattr__(self, "text", plain_text("Artifact.text must be a string", self.text))
        if type(self.media_type) is not str:
            object.__setattr__(self, "media_type", plain_text("Artifact.media_type must be a string", self.media_type))
        if not isinstance(self.partial, bool):
            raise ValueError(f"Artifact.partial must be True or False, not {self.partial!r}")
        if self.data is not None:
            object.__setattr__(self, "data", freeze(self.data))
        if self.files or type(self.files) is not tuple:
            object.__setattr__(self, "files", as_files("Artifact.files", self.files))

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hex; of the text and the files' digests, if there are files."""
        whole = "\n".join([self.text, *(file.digest for file in self.files)])
        # Models return half surrogate pairs too.
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()

    @overload
    def data_as(self, kind: type[T]) -> T: ...
    @overload
    def data_as(self, kind: Any) -> Any: ...
    def data_as(self, kind: Any) -> Any:
        """Return the data (else the text, read as JSON) validated as `kind`, or raise pydantic's `ValidationError`.

        As `str` the text is the text itself.
        """
        if isinstance(kind, Mapping):
            raise ValueError(
                f"data_as takes a type, such as list[str] or a model, not {kind!r:.80}: the data of a JSON Schema is "
                "artifact.data"
            )
        if self.data is None:
            if kind is str:
                return self.text
            return adapter(kind).validate_json(self.text)
        try:
            return adapter(kind).validate_python(self.data)
        except ValueError:
            written = _as_json(self.data)
            if written is None:
                raise
            return adapter(kind).validate_json(written)  # a strict type accepts a list or a date only from JSON


def is_blank(artifact: Artifact) -> bool:
    """Return whether an artifact holds nothing: no data, no file, and no visible character in its text."""
    from kairo_team._util.masking import is_seen  # late: most programs that import this module ask about no text

    return artifact.data is None and not artifact.files and not any(map(is_seen, artifact.text))


def _is_data(value: object) -> bool:
    """Return whether a value is data that an agent may return: a pydantic model, a dataclass, a dict or a list."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "kairo_team":  # such as a reply of a model
        return False
    return is_dataclass(kind) or isinstance(value, Mapping | list) or hasattr(kind, "__pydantic_serializer__")


_OF_BYTES: Final = "; bytes go into a file: return kt.Artifact(text, files=[kt.File(data=...)])"


def artifact_of_returned(given: Any, member: str) -> Artifact:
    """Return what an agent returned as a plain artifact; raise `BadOutput` for anything but text, data or artifact."""
    if isinstance(given, str):
        return Artifact(given)
    if isinstance(given, Artifact):
        return plain_artifact(given)
    if _is_data(given):
        try:
            return artifact_of(given)
        except ValueError as error:
            hint = _OF_BYTES if "utf-8" in str(error) else ""
            raise BadOutput(member, f"returned a {type(given).__name__} that JSON cannot hold: {error}{hint}") from None
    plain = isinstance(given, bool | int | float)  # short enough to quote
    what = "nothing (None)" if given is None else repr(given) if plain else f"a {type(given).__name__}"
    hint = ""
    if inspect.isawaitable(given):
        hint = "; write return await ..."
    elif isinstance(given, bytes | bytearray | memoryview):
        what, hint = "bytes", _OF_BYTES
    elif isinstance(given, ModelResponse):
        hint = "; return its .text"
    takes = "an agent returns a string, data (a model, a dataclass, a dict or a list), an Artifact or an AgentOutput"
    raise BadOutput(member, f"returned {what}: {takes}{hint}")


def artifact_of(data: Any, *, partial: bool = False, fallback: Any = None) -> Artifact:
    """Return data as an artifact, with its JSON as the text; raises `ValueError` for what JSON cannot hold.

    `fallback` makes JSON of such a value.
    """
    values = to_jsonable_python(data, fallback=fallback)
    return Artifact(to_json(values).decode(), values, "application/json", partial)


def plain_artifact(given: Artifact) -> Artifact:
    """Return a plain copy of an artifact, so that a subclass cannot change it later."""
    if type(given) is Artifact:
        return given
    return Artifact(given.text, given.data, given.media_type, given.partial, given.files)


@known_arguments
@dataclass(frozen=True, slots=True)
class DoneCall:
    """A tool call that an attempt made, as later attempts at the same work receive it."""

    attempt: int
    """The number of the attempt that made the call."""
    tool: str
    arguments: str
    """The arguments as JSON, cut after 1,000 characters."""
    digest: str
    """Digest of the tool's name and of all its arguments."""
    result: str | None = None
    """The result, cut after 1,000 characters; None: the call's end is unknown."""
    failed: bool = False
    """Whether the call returned an error."""
    asks: bool = False
    """Whether a person decides before it is repeated: it changed something, or may have, and is not idempotent."""


@checked
@dataclass(frozen=True)
class Finding:
    """One defect, described so that a member can fix it."""

    id: str
    criterion: str | None = None
    severity: Literal["blocking", "info"] = "blocking"
    locus: str = ""
    """Where in the artifact the defect is."""
    observed: str = ""
    expected: str = ""
    recheck: str = ""
    """How the defect will be checked again; the member's next prompt has it."""
    status: Literal["open", "closed", "regressed", "met"] = "open"
    """closed: it was a defect before and is fixed. regressed: it was right before. met: it is right, and not known to
    have been a defect; a member finds it in `Assignment.met`, not among the findings."""

    @property
    def is_right(self) -> bool:
        """Whether there is nothing to fix: the finding is closed or met."""
        return self.status in ("closed", "met")
