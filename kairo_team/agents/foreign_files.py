"""Upper bounds of pictures and files in the messages of other libraries.

A wrapper sees them as the mappings that its library sends, in the shapes of several providers: a URL, an id that only
the provider knows, or the content in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from kairo_team.files import File
from kairo_team.models.prompt_bounds import Rule, byte_length, file_bound

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image", "image_url", "input_image", "computer_screenshot"), "image/png"),
    **dict.fromkeys(("audio", "input_audio", "audio_url"), "audio/wav"),
    **dict.fromkeys(("video", "input_video", "video_url"), "video/mp4"),
    **dict.fromkeys(("file", "input_file", "document", "document_url", "media"), "application/pdf"),
}
"""Media type of a part by its type, unless the part names one."""
_CONTENT: Final = frozenset({"data", "base64", "file_data", "bytes"})
"""Keys of a part's content."""
_ADDRESSES: Final = frozenset({"image_url", "url"})
"""Keys of a part's address. A `data:` URL contains the content."""
_TYPES: Final = ("mime_type", "media_type", "mimeType")
"""Keys under which a part names its media type."""


def part_bound(part: Mapping[str, Any], model: str) -> int:
    """Return the most tokens that a part of a message takes, by the name of its model.

    A file counts by the most expensive rule of all providers, because any of them may answer to a name; only the rule
    of gpt-4o-mini is chosen by the name. A file without its content counts as the largest one. Other parts have at most
    a token for each byte.
    """
    usual = _KINDS.get(str(part.get("type")))
    if usual is None:
        return _length(part)
    rule: Rule = "openai-mini" if "4o-mini" in model else "any"
    leaves = dict(_leaves(part))
    named = next((leaves[key] for key in _TYPES if key in leaves), usual)
    for key in sorted((_CONTENT | _ADDRESSES) & leaves.keys()):
        content = leaves[key]
        if key in _CONTENT and str(named).startswith("text/"):  # in base64 or not
            return _length(part)
        found, data = _opened(content, str(named))
        if data is None:
            continue
        if found.startswith("text/"):
            return _length(part)
        return file_bound(_known_or_largest(data, found), rule) + _length(part) - _length(content)
    return file_bound(unseen_file(usual), rule) + _length(part)


def unseen_file(media_type: str) -> File:
    """Return a file without content in place of one that only its provider has: a picture, or anything else."""
    kind = media_type if media_type.startswith("image/") else "application/pdf"
    return File(url="https://provider.invalid/file", media_type=kind)


def _opened(content: Any, named: str) -> tuple[str, bytes | None]:
    """Return the media type and the bytes of a content; None for what is elsewhere."""
    if isinstance(content, bytes):
        return named, content
    if content.startswith("data:"):
        head, _, content = content.partition(",")
        named = head.removeprefix("data:").partition(";")[0] or named
    elif ":" in content:  # an address
        return named, None
    try:
        return named, base64.b64decode(content, validate=True)
    except ValueError:  # the words of a text document
        return "text/plain", content.encode("utf-8", "surrogatepass")


def _known_or_largest(data: bytes, media_type: str) -> File:
    """Return a file; of unknown kind, one that counts as the largest."""
    try:
        return File(data=data, media_type=media_type)
    except ValueError:  # empty, too large, or of a type that providers do not take
        return unseen_file(media_type)


def _leaves(part: Mapping[str, Any]) -> Iterator[tuple[str, str | bytes]]:
    for key, value in part.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value))
        elif isinstance(value, str | bytes) and value:
            yield key, value


def _length(value: object) -> int:
    return byte_length(repr(value))
