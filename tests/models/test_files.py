"""Files on their way to a provider: sent whole, or refused before anything is sent; and what they cost at most."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.models.local import LocalModel
from kairo_team.models.openai_compatible import OpenAICompatible
from kairo_team.models.prompt_bounds import Rule, file_bound, image_size, page_count, prompt_bound, refuse_files
from kairo_team.testing import FunctionModel, ScriptedModel
from tests.models.provider_wires import completion, events, exchanges, model_of

pytestmark = pytest.mark.anyio


def png(width: int = 3, height: int = 2) -> bytes:
    """A grey PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PHOTO = kt.File(data=png(), name="photo.png")
PAPER = kt.File(data=b"%PDF-1.4\n1 0 obj <</Type /Pages /Count 2>> endobj", name="paper.pdf")
NOTES = kt.File(data='{"tide": "höher"}'.encode(), media_type="application/json", name="notes.json")
AT_URL = kt.File(url="https://example.org/photo.png")
_BEGUN: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
}
CLAUDE = events(
    {"type": "message_start", "message": {**_BEGUN, "usage": {"input_tokens": 9, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Seen."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
    done=False,
    named=True,
)
GEMINI = {
    "candidates": [{"content": {"parts": [{"text": "Seen."}], "role": "model"}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2},
}
RESPONSES: dict[str, Any] = {
    "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "parallel_tool_calls": True,
    "tools": [], "tool_choice": "auto", "usage": {
        "input_tokens": 9, "output_tokens": 2, "total_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    },
    "output": [{
        "id": "o", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Seen.", "annotations": []}],
    }],
}  # fmt: skip
REPLIES: dict[str, Any] = {
    "openai-chat": completion(content="Seen."),
    "openai-responses": RESPONSES,
    "anthropic-messages": CLAUDE,
    "google-generate": GEMINI,
}


async def sent_to(wire: str, *messages: kt.Message) -> str:
    asked: list[Any] = []
    response = await model_of(wire, REPLIES[wire], asked=asked).complete(kt.ModelRequest(messages))
    assert response.text == "Seen."
    return json.dumps(asked[0])


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize("file", [PHOTO, PAPER], ids=str)
async def test_the_content_of_a_file_is_in_the_bytes_of_the_wire(wire: str, file: kt.File) -> None:
    assert file.data is not None
    sent = await sent_to(wire, kt.Message.user("What is this?", [file]))
    usual, in_urls = base64.b64encode(file.data).decode(), base64.urlsafe_b64encode(file.data).decode()
    assert usual in sent or in_urls in sent
    assert "What is this?" in sent


@pytest.mark.parametrize("wire", REPLIES)
async def test_a_text_is_sent_as_a_text_or_a_document(wire: str) -> None:
    assert NOTES.data is not None
    sent = json.loads(await sent_to(wire, kt.Message.user("Read.", [NOTES])))
    said = json.dumps(sent, ensure_ascii=False)
    assert '{\\"tide\\": \\"höher\\"}' in said or base64.b64encode(NOTES.data).decode() in said


@pytest.mark.parametrize("wire", REPLIES)
async def test_a_tool_result_may_hold_a_file(wire: str) -> None:
    assert PHOTO.data is not None
    call = kt.Message.assistant("", [kt.ToolCall("call_1", "look", {})])
    sent = await sent_to(wire, kt.Message.user("Look."), call, kt.Message.tool("call_1", "Here.", [PHOTO]))
    assert base64.b64encode(PHOTO.data).decode()[:40] in sent.replace("_", "/").replace("-", "+")
    assert "Here." in sent


async def test_an_image_at_a_url_is_passed_on_as_its_url() -> None:
    for wire in ("openai-chat", "openai-responses", "anthropic-messages"):
        assert '"https://example.org/photo.png"' in await sent_to(wire, kt.Message.user("Look.", [AT_URL]))


async def test_a_url_that_a_library_would_fetch_here_is_refused_before_anything_is_sent() -> None:
    paper = kt.File(url="https://example.org/paper.pdf")
    for wire, file in (("google-generate", AT_URL), ("openai-chat", paper)):
        asked: list[Any] = []
        with pytest.raises(ModelCallError, match=r"does not fetch .* from a URL; give the content") as caught:
            await model_of(wire, REPLIES[wire], asked=asked).complete(kt.ModelRequest([kt.Message.user("", [file])]))
        assert caught.value.unspent
        assert not asked


@pytest.mark.parametrize(
    ("wire", "file", "why"),
    [
        ("anthropic-messages", kt.File(data=b"OggS" + b"\0" * 20), "does not take recordings"),
        ("openai-chat", kt.File(data=b"\0", media_type="image/tiff"), "of images it takes 'image/gif'"),
        ("openai-chat", kt.File(data=b"\0", media_type="application/zip"), "PDFs and texts; convert it"),
        ("google-generate", kt.File(data=b"\xff", media_type="text/plain"), "not UTF-8"),
    ],
)
def test_a_model_says_which_files_it_does_not_take(wire: str, file: kt.File, why: str) -> None:
    assert why in str(model_of(wire, {}).file_problem(file))


async def test_the_embedded_model_and_a_model_that_says_nothing_take_no_file() -> None:
    assert LocalModel().file_problem(PHOTO) == "it reads text only"
    assert OpenAICompatible("m", "http://localhost:1/v1").file_problem(PHOTO) is None

    class Plain:
        name = "test:plain"

        async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
            raise AssertionError("it was asked")

    with pytest.raises(ModelCallError, match=r"cannot be given photo.png, image/png, 71 bytes: it takes no files"):
        refuse_files(Plain(), kt.ModelRequest([kt.Message.user("Look.", [PHOTO])]))


def test_a_scripted_model_says_what_it_takes() -> None:
    model = ScriptedModel([], files=["image/*"])
    assert model.file_problem(PHOTO) is None
    assert model.file_problem(PAPER) == "it takes 'image/*'"
    assert FunctionModel(lambda _: "", files=()).file_problem(PHOTO) == "it takes no files"


def test_files_count_in_the_bound_of_a_prompt() -> None:
    without, photo = prompt_bound(kt.ModelRequest([kt.Message.user("")])), kt.Message.user("", [PHOTO])
    assert prompt_bound(kt.ModelRequest([photo])) == without + file_bound(PHOTO)
    assert file_bound(PHOTO, "anthropic") < file_bound(PHOTO, "openai") < file_bound(PHOTO) < file_bound(AT_URL)


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        b"GIF89a" + struct.pack("<HH", 640, 480),
        b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03",
        b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480),
        b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14),
        b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
    ],
)
def test_width_and_height_are_read_from_the_beginning_of_an_image(data: bytes) -> None:
    assert image_size(data) == (640, 480)
    assert image_size(data[:9]) is None


def test_pages_are_counted_also_where_a_pdf_packs_them() -> None:
    pages = b"".join(b"<</Type/Page /Parent 1 0 R>>" for _ in range(5))
    packed = b"9 0 obj <</Type/ObjStm/N 5/Filter/FlateDecode>>\nstream\n" + zlib.compress(pages) + b"\nendstream"
    assert page_count(b"%PDF-1.4 " + pages) == 5
    assert page_count(b"%PDF-1.5 " + packed) == 5
    assert page_count(b"%PDF-1.5 encrypted") == 600


def packed(objects: bytes, *, name: bytes = b"/ObjStm", more: bytes = b"", end: bytes = b"\nendstream") -> bytes:
    """A PDF that describes its first page plainly, and the others in packed objects."""
    first = b"%PDF-1.5 <</Linearized 1>> <</Type/Page>> "
    return first + b"9 0 obj <</Type" + name + more + b"/Filter/FlateDecode>>\nstream\n" + objects + end


PAGES = b"".join(b"<</Type/Page>>" for _ in range(99)) + b"<</Type/Pages/Count 100>>"
PDFS = {
    "packed": (packed(zlib.compress(PAGES)), 100),
    "not packed after all": (packed(b"12 0 " + PAGES), 100),
    "much else beside the kind": (packed(zlib.compress(PAGES), more=b"/X(" + b"a" * 400 + b")"), 100),
    "the kind by its numbers": (packed(zlib.compress(PAGES), name=b"/Obj#53tm"), 100),
    "pages by their numbers": (b"%PDF-1.4 " + b"<</Type/#50age>>" * 50, 50),
    "a comment in between": (b"%PDF-1.4 " + b"<</Type%c\n/Page>>" * 50, 50),
    "encrypted": (packed(bytes(range(256)) * 4), 600),
    "cut off": (packed(zlib.compress(PAGES)[:-30]), 600),
    "without an end": (packed(zlib.compress(PAGES), end=b""), 600),
    "a bomb": (packed(zlib.compress(bytes(40_000_000))), 600),
    "many bombs": (packed(zlib.compress(bytes(4_000_000))) * 100, 600),
    "nothing but kinds": (b"%PDF-1.4 " + b"/ObjStm" * 1_000_000, 600),
    "nothing but words before a comment": (b"%PDF-1.4 " + b"/Type%" * 50_000, 600),
}


@pytest.mark.parametrize(("data", "pages"), PDFS.values(), ids=PDFS)
def test_pages_that_cannot_be_counted_are_as_many_as_there_may_be(data: bytes, pages: int) -> None:
    """Also of files that would take minutes to read."""
    assert page_count(data) == pages


def test_the_rate_of_a_recording_is_the_lowest_that_its_header_allows() -> None:
    def wav(samples: int, rate: int) -> kt.File:
        head = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, samples, rate, 2, 16)
        return kt.File(data=head + bytes(80_000), name="a.wav")

    assert file_bound(wav(8_000, 16_000)) == file_bound(wav(8_000, 2**32 - 1)) == file_bound(wav(2**32 - 1, 16_000))


HEADS = {
    "a.wav": b"RIFF\x24\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8_000, 16_000, 2, 16) + b"data",
    "a.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 100, 100),
    "a.gif": b"GIF89a\x10\0\x10\0",
    "a.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(11) + b"\xff\xc0\0\x11\x08\0\x10\0\x10\x03",
    "a.webp": b"RIFF\x24\0\0\0WEBPVP8X" + bytes(20),
    "a.pdf": b"%PDF-1.5 /ObjStm /Length 3>>stream\n" + zlib.compress(b"<</Type /Page>>") + b"endstream",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_file_that_was_cut_anywhere_has_a_bound(name: str) -> None:
    head = HEADS[name]
    assert all(file_bound(kt.File(data=head[:end], name=name)) >= 200 for end in range(1, len(head) + 1))


def _files_in(value: Any) -> Iterator[kt.File]:
    """The files of a recorded request; those that a provider keeps under an id are not ours to bound."""
    match value:
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            yield _at(url, "image/png")
        case {"type": "file", "file": {"file_data": str(url)}} | {"type": "input_file", "file_data": str(url)}:
            yield _at(url, "application/pdf")
        case {"source": {"type": "url", "url": str(url)}}:
            yield _at(url, "image/png")
        case {"source": {"type": "base64", "data": str(data), "media_type": kind}}:
            yield kt.File(data=base64.b64decode(data), media_type=kind)
        case {"inlineData": {"data": str(data), "mimeType": kind}}:
            yield kt.File(data=base64.urlsafe_b64decode(data + "=="), media_type=kind)
        case dict():
            for one in cast("dict[str, Any]", value).values():
                yield from _files_in(one)
        case list():
            several = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
            for one in several:
                yield from _files_in(one)
        case _:
            pass


def _at(url: str, kind: str) -> kt.File:
    if url.startswith("data:"):
        return kt.File(data=base64.b64decode(url.partition(",")[2]), media_type=kind)
    return kt.File(url=url, media_type=kind)


def _texts(value: Any) -> int:
    """The bytes of the texts of a request; a file's content is far longer than any of them."""
    if isinstance(value, dict):
        return sum(map(_texts, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        several = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return sum(map(_texts, several))
    return len(value.encode()) if isinstance(value, str) and len(value) < 5_000 else 0


def _billed(response: Any) -> int | None:
    """The tokens of the prompt by the provider's own count."""
    usage: dict[str, int] = response.get("usage") or response.get("usageMetadata") or {}
    names = ("prompt_tokens", "input_tokens", "promptTokenCount")
    found = next((usage[name] for name in names if name in usage), None)
    cached = usage.get("cache_creation_input_tokens", 0) + usage.get("cache_read_input_tokens", 0)
    return None if found is None else found + cached


RULES: dict[str, Rule] = {
    "v1/messages": "anthropic",
    "v1/chat/completions": "openai",
    "v1/responses": "openai",
    "v1beta": "google",
}


def test_every_recorded_bill_for_a_file_is_within_its_bound() -> None:
    """With the files' bounds and the bytes of the texts alone: without what a bound adds for messages and tools."""
    compared = 0
    for name, exchange in exchanges():
        files, response = list(_files_in(exchange["request"])), exchange["response"]
        billed = _billed(response) if isinstance(response, dict) else None
        if not files or billed is None:
            continue
        path = exchange["path"]
        rule = "any" if "mistral" in name or "groq" in name else RULES.get(path, RULES.get(path.split("/")[0], "any"))
        bound = sum(file_bound(file, rule) for file in files) + _texts(exchange["request"])
        assert bound >= billed, f"{name}: {billed} tokens billed, at most {bound} held"
        compared += 1
    assert compared >= 18
