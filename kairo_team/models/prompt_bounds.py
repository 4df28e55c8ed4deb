"""Upper bounds of the tokens that a request takes in a prompt, and what a model does before it sends a request.

Files count by the rules that providers document. Sources: OpenAI "Images and vision" (tiles of 512 pixels, patches of
32), Anthropic "Vision" (width x height / 750, at most 4,784) and "PDF support" (each page as text of 1,500 to 3,000
tokens and as an image), Google "Image understanding" and "Audio understanding" (258 tokens a tile of 768 pixels, at
most 2,240 an image on Gemini 3; 32 a second).
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

from kairo_team._util.narrowing import is_mapping
from kairo_team.errors import ModelCallError

if TYPE_CHECKING:
    from kairo_team.contracts import ChatModel
    from kairo_team.files import File
    from kairo_team.messages import Message, ModelRequest, ToolCall, ToolSpec

Rule = Literal["openai", "openai-mini", "anthropic", "google", "any"]
"""Whose rule applies. `openai-mini` is gpt-4o-mini, whose tiles cost 33 times as much; `any` is the most expensive."""

_AROUND: Final = 200
"""Tokens around a file: its name, separators, what a provider says about it."""
_PAGE_TEXT: Final = 6_000
"""Tokens of the text of one page: twice the most that Anthropic documents."""
_MOST_PAGES: Final = 600
"""Pages of a PDF that cannot be counted: the most that a provider takes."""
_SECOND: Final = 50
"""Tokens of a second of sound; Google's are 32."""
_WAV_HEAD: Final = 34
"""Bytes of a WAV up to the end of what its length is read from."""
_SLOWEST: Final = 750
"""Bytes of a second of sound, at least: Opus at 6 kbit/s."""
_FRAME_SECOND: Final = 300
"""Tokens of a second of video with sound, on Gemini."""
_SLOWEST_VIDEO: Final = 4_000
"""Bytes of a second of video, at least."""
_UNSEEN: Final[dict[Rule, int]] = {
    "openai": 24_700, "openai-mini": 48_169, "anthropic": 4_884, "google": 20_000, "any": 50_000,
}  # fmt: skip
"""Tokens of an image whose width and height are not known, such as one at a URL."""
_PAGE_IMAGE: Final[dict[Rule, int]] = {
    "openai": 3_879, "openai-mini": 48_169, "anthropic": 4_884, "google": 2_240, "any": 8_192,
}  # fmt: skip
"""Tokens of the image of one page."""
_PER_MESSAGE: Final = 16
_PER_REQUEST: Final = 32
"""Tokens a provider may add around each message, tool and tool call, and around each request (roles, separators)."""
_BOUND: Final = "_prompt_bound"
"""Name under which a message and a tool keep their bound."""


def prompt_bound(request: ModelRequest, rule: Rule = "any") -> int:
    """Return a safe upper bound of a request's prompt tokens: no tokenizer makes more tokens than UTF-8 bytes.

    Files count by their provider's `rule`.
    """
    texts = sum(map(_message_bound, request.messages)) + sum(file_bound(file, rule) for file in request.files)
    tools = sum(map(_tool_bound, request.tools)) if request.tools else 0
    schema = _json_bytes(request.output_schema) if request.output_schema else 0
    return texts + tools + schema + _PER_REQUEST


def _message_bound(message: Message) -> int:
    known: int | None = vars(message).get(_BOUND)
    if known is None:
        calls = sum(map(_call_bound, message.tool_calls)) if message.tool_calls else 0
        own = byte_length(message.text) + calls
        if message.native is not None:  # it is sent in place of text and calls
            own = max(own, byte_length(message.native))
        known = own + byte_length(message.tool_call_id or "") + _PER_MESSAGE
        vars(message)[_BOUND] = known  # every turn counts the whole conversation again, and no message changes
    return known


def _call_bound(call: ToolCall) -> int:
    arguments = call.arguments
    length = byte_length(arguments) if isinstance(arguments, str) else _json_bytes(arguments)
    return byte_length(call.id) + byte_length(call.name) + length + _PER_MESSAGE


def _tool_bound(tool: ToolSpec) -> int:
    known: int | None = vars(tool).get(_BOUND)
    if known is None:
        known = byte_length(tool.name) + byte_length(tool.description) + _json_bytes(tool.parameters) + _PER_MESSAGE
        vars(tool)[_BOUND] = known
    return known


def byte_length(text: str) -> int:
    """Return the length of a text in UTF-8."""
    # Quick for the usual case; prompts are counted again in every turn.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _json_bytes(value: Mapping[str, Any]) -> int:
    """Return the length of the value as JSON."""
    # Everything beyond ASCII is escaped: this is the longest form.
    return len(json.dumps(value, default=repr))


LENGTHS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "max_new_tokens")
"""The providers' names for the most tokens of a reply."""
_COPIES: Final = ("n", "best_of")
"""The providers' names for the number of replies."""


def capped(fields: Any, most: int | None) -> Any:
    """Return fields of a request, if they are a mapping, with length and number of replies reduced to what is held."""
    if not is_mapping(fields):
        return fields
    caps: dict[object, int | None]
    caps = {**dict.fromkeys(LENGTHS, most), **dict.fromkeys(_COPIES, 1)}
    return {
        name: min(value, cap) if isinstance(value, int | float) and (cap := caps.get(name)) is not None else value
        for name, value in fields.items()
    }


def problem_with_file(model: ChatModel, file: File) -> str | None:
    """Return why one model does not take a file, in a sentence; None if it takes it."""
    ask = getattr(model, "file_problem", None)
    why: str | None = "it takes no files" if ask is None else ask(file)
    if file.url is None and file.data is None:
        why = "its content is no longer kept: give the file again, File(path=...)"
    return None if why is None else f"model {model.name!r} cannot be given {file}: {why}"


def refuse_files(model: ChatModel, request: ModelRequest) -> None:
    """Raise `ModelCallError` before a call whose files the model does not take: a file is never dropped."""
    for file in request.files:
        if (why := problem_with_file(model, file)) is not None:
            raise ModelCallError("bad_request", model.name, why, unspent=True)


def file_bound(file: File, rule: Rule = "any") -> int:
    """Return the most tokens that a file takes in a prompt; by the most expensive rule for an unknown provider."""
    data = file.data
    if file.is_image:
        seen = None if data is None else image_size(data)
        return _AROUND + (_UNSEEN[rule] if seen is None else _IMAGES[rule](*seen))
    if file.is_text and data is not None:  # a token has at least one byte
        return _AROUND + len(data)
    if file.media_type.startswith("audio/") and data is not None:
        return _AROUND + ceil(_seconds(data) * _SECOND)
    if file.media_type.startswith("video/") and data is not None:
        return _AROUND + ceil(len(data) / _SLOWEST_VIDEO * _FRAME_SECOND)
    pages = _MOST_PAGES if data is None else page_count(data)
    return _AROUND + pages * (_PAGE_TEXT + _PAGE_IMAGE[rule])


def _openai(width: int, height: int) -> int:
    """Tiles: 85 and at most 8 of 170. Patches of 32 pixels: at most 10,000, of up to 2.46 tokens."""
    patches = min(10_000, ceil(width / 32) * ceil(height / 32))
    return max(1_445, ceil(patches * 2.46))


def _openai_mini(width: int, height: int) -> int:
    return 2_833 + min(8, max(4, ceil(width / 512) * ceil(height / 512))) * 5_667


def _anthropic(width: int, height: int) -> int:
    return min(4_784, ceil((width + 28) * (height + 28) / 750)) + 100


def _google(width: int, height: int) -> int:
    side = min(768, max(256, int(min(width, height) / 1.5)))
    return max(2_240, ceil(width / side) * ceil(height / side) * 258)


def _any_encoder(width: int, height: int) -> int:
    """Patches of 14 pixels, the smallest of known encoders; small images are scaled up, to 4 tiles of 1,601 tokens."""
    return max(8_192, ceil(width / 14) * ceil(height / 14))


_IMAGES: Final[dict[Rule, Callable[[int, int], int]]] = {
    "openai": _openai, "openai-mini": _openai_mini, "anthropic": _anthropic, "google": _google, "any": _any_encoder,
}  # fmt: skip


_WIDEST: Final = 32_768
"""Pixels of a side; providers refuse larger images."""


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, GIF, JPEG or WebP; None for anything else."""
    try:
        if data.startswith(b"\x89PNG"):
            width, height = struct.unpack(">II", data[16:24])
        elif data.startswith(b"GIF8"):
            width, height = struct.unpack("<HH", data[6:10])
        elif data.startswith(b"\xff\xd8"):
            width, height = _jpeg_size(data)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            width, height = _webp_size(data)
        else:
            return None
    except (struct.error, IndexError, ValueError):
        return None
    # A size beyond that is a broken header, and counts as unknown.
    return (width, height) if 0 < width <= _WIDEST and 0 < height <= _WIDEST else None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    place = 2
    while True:
        while data[place] == 0xFF:  # noqa: PLR2004 - begins a marker, and may be repeated
            place += 1
        marker, place = data[place], place + 1
        # The three have other meanings: tables for Huffman and arithmetic coding, and a reserved number.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004 - a start of frame
            height, width = struct.unpack(">HH", data[place + 3 : place + 7])
            return width, height
        # These markers have neither a length nor a body.
        if marker not in (0x01, *range(0xD0, 0xD9)):
            place += struct.unpack(">H", data[place : place + 2])[0]
        if data[place] != 0xFF:  # noqa: PLR2004 - no marker where one must be
            raise ValueError("not a JPEG")


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            # The upper two bits are a scale.
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack("<I", data[21:25])[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case _:
            raise ValueError("not a WebP image")


def _name(word: bytes) -> bytes:
    """Return a regular expression for a PDF name; a character may be `#` and its number in hexadecimal."""
    return b"/" + b"".join(b"(?:%c|#%02x|#%02X)" % (character, character, character) for character in word)


_GAP: Final = rb"(?:\s|%[^\r\n]{0,200}[\r\n]){0,20}"
"""Between two words of a PDF: white space, and comments."""
# Compiled when the first PDF is read: most runs read none.
_PAGE: Final = _name(b"Type") + _GAP + _name(b"Page") + rb"(?![A-Za-z#])"
_COUNT: Final = _name(b"Count") + _GAP + rb"(\d{1,6})"
_PACKED: Final = _name(b"ObjStm")
_BEGIN: Final = re.compile(rb"stream\r?\n")
_MOST_AHEAD: Final = 2_000
"""Bytes between the kind of packed objects and their beginning."""
_MOST_PACKED: Final = 2_000
_MOST_UNPACKED: Final = 32 * 1024 * 1024
"""Bytes that are unpacked of a file at most: a small one can unpack to gigabytes."""


def page_count(data: bytes) -> int:
    """Return at least the number of pages of a PDF, at most 600; 600 if they cannot be counted, as in an encrypted one.

    >>> page_count(b"%PDF-1.4 <</Type /Page>> <</Type /Page>>")
    2
    """
    found = 0
    for text in (data, *_unpacked(data)):
        if text is None:
            return _MOST_PAGES
        counts = [int(one) for one in re.findall(_COUNT, text)]
        # A tree of pages states its count; the larger of both is safe if the file lies about one.
        found = max(found, sum(1 for _ in re.finditer(_PAGE, text)), *counts, 0)
    return min(found, _MOST_PAGES) or _MOST_PAGES


def _unpacked(data: bytes) -> Iterator[bytes | None]:
    """Yield the packed objects of a PDF, in which its pages may be described; None for those that cannot be read."""
    left = _MOST_UNPACKED
    for number, found in enumerate(re.finditer(_PACKED, data)):
        begin = _BEGIN.search(data, found.end(), found.end() + _MOST_AHEAD)
        end = -1 if begin is None else data.find(b"endstream", begin.end())
        if begin is None or end < 0 or number >= _MOST_PACKED:
            yield None
            return
        packed = data[begin.end() : end]
        if packed[:1].isdigit():  # plain objects, which begin with a number
            continue
        unpack = zlib.decompressobj()
        try:
            text = unpack.decompress(packed, left)  # at most what is left: a small file may unpack to gigabytes
        except zlib.error:  # encrypted, or another filter
            text = b""
        left -= len(text)
        if not unpack.eof or left <= 0:
            yield None
            return
        yield text


def _seconds(data: bytes) -> float:
    """Return at least the seconds of a recording: of a WAV by its header, else at the lowest rate."""
    if len(data) >= _WAV_HEAD and data[:4] == b"RIFF" and data[8:12] == b"WAVE" and data[12:16] == b"fmt ":
        samples, rate = struct.unpack("<II", data[24:32])
        rates = (rate, samples * int.from_bytes(data[32:34], "little"))  # a wrong one must not make it short
        if all(rates):
            return len(data) / float(min(rates))
    return len(data) / _SLOWEST
