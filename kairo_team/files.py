"""`File`: an image, a PDF, a text or a recording that goes with a task, a message or an artifact."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from kairo_team._util.counts import count
from kairo_team._util.frozen import known_arguments
from kairo_team._util.narrowing import is_several

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

MOST_BYTES: Final = 20 * 1024 * 1024
"""Most bytes of one file, about what providers take in one request."""
MOST_SHOWN: Final = 300_000
"""Most bytes of a file that events and pages hold."""
_NO_FILE: Final = "a file must be a kt.File, such as kt.File(path='photo.png')"
_LONGEST_NAME: Final = 200
_LONGEST_URL: Final = 8_000
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+_-]*")
_SIGNS: Final = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
"""First bytes of files, and their media types."""
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
"""The same for files that begin with RIFF: bytes 8 to 11."""
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_ENDINGS: Final = {
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".md": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
}
"""Media types by ending that are missing from Python's table, or different in some versions."""
_TEXTS: Final = frozenset({"json", "jsonl", "yaml", "toml", "xml", "javascript", "sql"})
"""Subtypes of `application/` that are text."""
_Content = bytes | Callable[[], bytes | None] | None


@known_arguments
class File:
    """A file with its media type: `File(path="photo.png")`, `File(data=..., media_type="image/png")`, `File(url=...)`.

    Give exactly one of `data`, `path` and `url`. A path is read at once. A URL (http or https) is passed on to the
    provider, which fetches it; this library never does. Without a `media_type` the first bytes decide, then the name's
    ending; without a `name` it is the path's, the URL's or made from the digest. Two files are equal if their content
    and their media type are equal. Raises `ValueError` for a missing, unreadable or empty file, one of more than 20 MB,
    and one of unknown media type.

    >>> photo = kt.File(path="photo.png")
    >>> print(photo)
    photo.png, image/png, 120 kB
    """

    __slots__ = ("_content", "_digest", "_media_type", "_name", "_size", "_url")
    _content: _Content
    _digest: str
    _media_type: str
    _name: str
    _size: int | None
    _url: str | None

    def __init__(
        self,
        *,
        data: bytes | None = None,
        path: str | os.PathLike[str] | None = None,
        url: str | None = None,
        media_type: str | None = None,
        name: str | None = None,
    ) -> None:
        given = [one for one, value in (("data", data), ("path", path), ("url", url)) if value is not None]
        if len(given) != 1:
            raise ValueError(f"a File takes one of data=, path= and url=, not {' and '.join(given) or 'none of them'}")
        usual = ""
        if path is not None:
            usual, data = Path(path).name, _read(Path(path))
        if url is not None:
            _check_url(url)
            usual = unquote(urlsplit(url).path.rpartition("/")[2])
        if data is not None:
            data = _checked(data)
        kind = _media_type_of(media_type, data, name or usual)
        digest = hashlib.sha256(url.encode() if url is not None else data or b"").hexdigest()
        chosen = _name_of(name, usual, digest, kind)
        self._fill(data, url, kind, chosen, digest, None if data is None else len(data))

    def _fill(
        self, content: _Content, url: str | None, media_type: str, name: str, digest: str, size: int | None
    ) -> None:
        values = (content, digest, media_type, name, size, url)
        for slot, value in zip(File.__slots__, values, strict=True):
            object.__setattr__(self, slot, value)

    @classmethod
    def stored(cls, content: _Content, *, media_type: str, name: str, digest: str, size: int) -> File:
        """Make a file of known digest from its content, or from a function that fetches it at the first use.

        The function returns None where the content is no longer kept. Journals use this.
        """
        made = cls.__new__(cls)
        made._fill(content, None, media_type, name, digest, size)  # noqa: SLF001 - the class's own
        return made

    @property
    def data(self) -> bytes | None:
        """The content; None for a URL, and where only the description was kept."""
        content = self._content
        if callable(content):
            content = content()
            object.__setattr__(self, "_content", content)  # fetched once
        return content

    @property
    def url(self) -> str | None:
        """The address, for a file that the provider fetches."""
        return self._url

    @property
    def media_type(self) -> str:
        """The media type, such as `image/png`, in lower case and without parameters."""
        return self._media_type

    @property
    def name(self) -> str:
        """The name shown to models and people; a path's last part."""
        return self._name

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hex; of a URL, of the address itself."""
        return self._digest

    @property
    def size(self) -> int | None:
        """Bytes; None for a URL."""
        return self._size

    @property
    def is_image(self) -> bool:
        """Whether the media type is an image's."""
        return self._media_type.startswith("image/")

    @property
    def is_text(self) -> bool:
        """Whether the media type is a text's, JSON and the like included."""
        main, _, sub = self._media_type.partition("/")
        return main == "text" or (main == "application" and sub.rpartition("+")[2] in _TEXTS)

    def masked_by(self, mask: Callable[[str], str]) -> File:
        """Return the file with name and URL as `mask` returns them; itself where they stay. The digest stays too."""
        name, url = mask(self._name), None if self._url is None else mask(self._url)
        if (name, url) == (self._name, self._url):
            return self
        made = File.__new__(File)
        made._fill(self._content, url, self._media_type, name, self._digest, self._size)  # noqa: SLF001 - as above
        return made

    def as_json(self) -> dict[str, str]:
        """Return the arguments that make an equal file, as JSON values: the content as base64."""
        about = {"media_type": self._media_type, "name": self._name}
        if self._url is not None:
            return {"url": self._url, **about}
        return {"data": base64.b64encode(self.data or b"").decode("ascii"), **about}

    def as_shown(self, most: int = MOST_SHOWN) -> dict[str, Any]:
        """Return the file as JSON values for events: with its content only if that has at most `most` bytes."""
        about = {"name": self._name, "media_type": self._media_type, "size": self._size, "digest": self._digest}
        # `data` last, because it may be fetched.
        if self._url is not None or self._size is None or self._size > most or (data := self.data) is None:
            return about if self._url is None else {**about, "url": self._url}
        return {**about, "data": base64.b64encode(data).decode("ascii")}

    @classmethod
    def of_shown(cls, shown: Any) -> File | None:
        """Return a file from what `as_shown` wrote, perhaps without its content; None for anything else."""
        match shown:
            case {
                "name": str(name),
                "media_type": str(media_type),
                "digest": str(digest),
                "size": int(size) | (None as size),
            }:
                pass
            case _:
                return None
        try:
            if "url" in shown:
                return cls(url=shown["url"], media_type=media_type, name=name)
            content = base64.b64decode(shown["data"], validate=True) if "data" in shown else None
        except (TypeError, ValueError):  # masked, or cut
            content = None
        return cls.stored(content, media_type=media_type, name=name, digest=digest, size=size or 0)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema  # slow to import

        texts = core_schema.str_schema()
        written = core_schema.plain_serializer_function_ser_schema(File.as_json)
        shape = core_schema.dict_schema(texts, texts)
        return core_schema.no_info_plain_validator_function(
            _validated, json_schema_input_schema=shape, serialization=written
        )

    def __str__(self) -> str:
        size = "by its URL" if self._size is None else size_text(self._size)
        return f"{self._name}, {self._media_type}, {size}"

    def __repr__(self) -> str:
        return f"<File {self} {self._digest[:16]}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, File):
            return NotImplemented
        return (self._digest, self._media_type, self._url) == (other._digest, other._media_type, other._url)

    def __hash__(self) -> int:
        return hash((self._digest, self._media_type))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a File is frozen: make another one instead of setting its {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a File is frozen: its {name} cannot be deleted")

    def __copy__(self) -> File:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> File:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # `data`, because a function that fetches may not be pickled.
        values = (self.data, self._url, self._media_type, self._name, self._digest, self._size)
        return _unpickled, values


def _unpickled(*values: Any) -> File:
    made = File.__new__(File)
    made._fill(*values)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the class's own function for pickle
    return made


def as_files(where: str, values: Any) -> tuple[File, ...]:
    """Return files as a tuple; raise `ValueError` for anything else, such as one file without a list."""
    if isinstance(values, bytes) or not is_several(values):
        raise ValueError(
            f"{where} must be a list of File objects, such as [kt.File(path='photo.png')], not {values!r:.80}"
        )
    kept = tuple(values)
    for number, one in enumerate(kept):
        if not isinstance(one, File):
            raise ValueError(f"{where}[{number}]: {_NO_FILE}, not {one!r:.80}")
    return kept


def unique(files: Iterable[File]) -> tuple[File, ...]:
    """Return files in order, each content once."""
    return tuple(dict.fromkeys(files))


class Offered(NamedTuple):
    """Files as they are given to a model that is asked about the work of others."""

    seen: tuple[File, ...]
    """Those that it takes, each once."""
    lines: tuple[str, ...]
    """A line on each file, which says so where the model does not take it."""


def offered_to(problem: Callable[[File], str | None] | None, files: Iterable[File]) -> Offered:
    """Return what a model gets of files; `problem` says why it does not take one, None: it takes none."""
    given = unique(files)
    seen = tuple(file for file in given if problem is not None and problem(file) is None)
    return Offered(seen, tuple(f"{file}" if file in seen else f"{file} (not shown to you)" for file in given))


def size_text(size: int) -> str:
    """Return a number of bytes for people: 812 bytes, 120 kB, 1.2 MB."""
    for unit, least in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= least:
            amount = size / least
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"  # noqa: PLR2004 - two digits
    return count(size, "byte")


def kind_of(beginning: bytes) -> str | None:
    """Return the media type by the first bytes of a file, 12 or more; None if it is unknown."""
    if beginning.startswith(b"RIFF"):
        return _RIFF.get(bytes(beginning[8:12]))
    return next((kind for sign, kind in _SIGNS if beginning.startswith(sign)), None)


def _read(path: Path) -> bytes:
    """Return a file's content; raise `ValueError` in a sentence where that is not possible."""
    try:
        if path.is_dir():
            raise ValueError(f"File(path={str(path)!r}) is a directory: give the path of one file")
        found = path.stat()
        if not S_ISREG(found.st_mode):
            # Before it is opened: a device may be endless, and a pipe waits for its writer.
            raise ValueError(f"File(path={str(path)!r}) is not a regular file: give the path of one file")
        _check_size(found.st_size, repr(str(path)))  # before the read: it may be huge
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)  # a file may grow, and files of /proc report no size
        _check_size(len(content), repr(str(path)))
        return content
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise ValueError(f"File(path={str(path)!r}) cannot be read: {why}") from None


def _checked(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        hint = "; for a file on disk write File(path=...)" if isinstance(data, str | os.PathLike) else ""
        raise ValueError(f"File.data must be bytes, not {data!r:.80}{hint}")
    content = bytes(cast("bytes", data))
    _check_size(len(content), "the data")
    if not content:
        raise ValueError("a File must not be empty")
    return content


def _check_size(size: int, what: str) -> None:
    if size > MOST_BYTES:
        most = MOST_BYTES // (1024 * 1024)
        raise ValueError(f"{what} has {size:,} bytes, a File at most {most} MiB: make it smaller, or give its url=")


def _check_url(url: object) -> None:
    fit = False
    if isinstance(url, str) and len(url) <= _LONGEST_URL and not re.search(r"\s", url):
        try:
            parts = urlsplit(url)
            fit = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            fit = False
    if not fit:
        raise ValueError(
            f"File.url must be an address such as 'https://host/photo.png', not {url!r:.80}; a file on disk is path="
        )


def _media_type_of(given: object, data: bytes | None, name: str) -> str:
    if given is not None:
        kind = given.partition(";")[0].strip().lower() if isinstance(given, str) else ""
        if not _MEDIA_TYPE.fullmatch(kind):
            raise ValueError(f"File.media_type must be one such as 'image/png', not {given!r:.80}")
        return kind
    found = None if data is None else kind_of(data[:16])
    if found in (None, "application/zip"):  # office documents are archives, and their names say more
        found = media_type_of_name(name) or found
    if found is None:
        what = f"the file {name!r}" if name else "these bytes"
        raise ValueError(f"the media type of {what} is unknown: name it, such as File(..., media_type='image/png')")
    return found


def media_type_of_name(name: str) -> str | None:
    """Return the media type for a name's ending; None if it is unknown. The same on every machine."""
    ending = Path(name).suffix.lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    # The shared table also has the machine's own types.
    return mimetypes.MimeTypes().guess_type(f"file{ending}", strict=False)[0]


def _name_of(given: object, usual: str, digest: str, kind: str) -> str:
    if given is None:
        name = "".join(one for one in usual if one.isprintable())[-_LONGEST_NAME:]  # the last ones: the ending is kept
        return name or f"{digest[:8]}{mimetypes.MimeTypes().guess_extension(kind, strict=False) or ''}"
    if not isinstance(given, str) or not given.strip() or not given.isprintable() or len(given) > _LONGEST_NAME:
        raise ValueError(f"File.name must be one line of at most {_LONGEST_NAME} characters, not {given!r:.80}")
    return given


def _validated(value: Any) -> File:
    """Return a file, or make one of `as_json`'s values."""
    if isinstance(value, File):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{_NO_FILE}, not {value!r:.80}")
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", value))
    # Not `path`: data from a model must not name one.
    if unknown := given.keys() - {"data", "url", "media_type", "name"}:
        raise ValueError(f"a file as data has data (base64) or url, media_type and name, not {min(unknown)!r}")
    if isinstance(written := given.get("data"), str):
        given["data"] = base64.b64decode(written, validate=True)  # else strange characters are skipped in silence
    return File(**given)
