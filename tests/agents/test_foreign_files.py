"""What pictures and files of other libraries' messages are held with: never less than providers bill."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.agents.foreign_files import part_bound
from kairo_team.files import File
from kairo_team.models.prompt_bounds import file_bound


def png(width: int, height: int) -> bytes:
    """Make a picture of one colour, which has few bytes at any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * ((width + 7) // 8 + 1) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURE = png(1_000, 800)
TEXT = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{TEXT}"
PDF = b"%PDF-1.4 <</Type /Page>> <</Type /Page>>"
PDF_TEXT = base64.b64encode(PDF).decode()
PDF_URL = f"data:application/pdf;base64,{PDF_TEXT}"

PICTURES: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": URL}},
    {"type": "image_url", "image_url": URL},
    {"type": "input_image", "image_url": URL, "detail": "high"},
    {"type": "image", "source_type": "base64", "data": TEXT, "mime_type": "image/png"},
    {"type": "image", "base64": TEXT, "mime_type": "image/png", "id": "lc_1"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TEXT}},
    {"type": "media", "mime_type": "image/png", "data": PICTURE},
]
PDFS: list[dict[str, Any]] = [
    {"type": "input_file", "file_data": PDF_URL, "filename": "a.pdf"},
    {"type": "file", "file": {"file_data": PDF_URL, "filename": "a.pdf"}},
    {"type": "file", "base64": PDF_TEXT, "mime_type": "application/pdf"},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_TEXT}},
]
ELSEWHERE: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
    {"type": "input_image", "file_id": "file-1"},
    {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
    {"type": "image", "file_id": "file-1"},
]
DOCUMENTS: list[dict[str, Any]] = [
    {"type": "input_file", "file_url": "https://x.org/a.pdf"},
    {"type": "input_file", "file_id": "file-1"},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "file", "source_type": "id", "id": "file-1"},
    {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
    {"type": "media", "mime_type": "application/pdf", "file_uri": "gs://bucket/a.pdf"},
    {"type": "audio", "url": "https://x.org/a.wav"},
    {"type": "input_file", "file_data": base64.b64encode(b"PK\3\4 packed words").decode(), "filename": "a.docx"},
]


@pytest.mark.parametrize("model", ["openai:gpt-5", "openai:gpt-4o-mini", "anthropic:claude"])
@pytest.mark.parametrize("part", [*PICTURES, *PDFS], ids=lambda part: str(part)[:60])
def test_a_file_with_its_content_counts_by_its_size(part: dict[str, Any], model: str) -> None:
    data = File(data=PICTURE if part in PICTURES else PDF)
    least = file_bound(data, "openai-mini" if "mini" in model else "any")
    assert least <= part_bound(part, model) <= least + 300, "and a few bytes around it"


@pytest.mark.parametrize("part", [*ELSEWHERE, *DOCUMENTS], ids=lambda part: str(part)[:60])
def test_a_file_that_is_elsewhere_counts_as_the_largest(part: dict[str, Any]) -> None:
    media_type = "image/png" if part in ELSEWHERE else "application/pdf"
    largest = file_bound(File(url="https://x.org/any", media_type=media_type))
    assert largest <= part_bound(part, "m") <= largest + 300


def test_a_large_picture_of_few_bytes_is_no_bargain() -> None:
    data = png(8_000, 8_000)
    part = {"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": "image/png"}
    assert part_bound(part, "m") > 300_000 > len(data)


def test_the_words_of_a_document_are_not_an_address() -> None:
    """Else a colon makes a text a file that only its provider has, of 600 pages."""
    for words in ("Note: high water at 14:20.", "https://x.org has the table"):
        part = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": words}}
        assert len(words) <= part_bound(part, "m") <= 200
    linked = {"type": "file", "url": "https://x.org/a.txt", "mime_type": "text/plain"}
    assert part_bound(linked, "m") > 1_000_000, "how long it is, only the provider learns"


@given(
    kind=st.sampled_from(["thinking", "tool_use", "server_tool_use", "refusal", "image", "document", "file"]),
    words=st.text(max_size=200),
    key=st.sampled_from(["data", "text", "signature", "input", "title"]),
)
def test_words_count_at_least_their_bytes(kind: str, words: str, key: str) -> None:
    part = {"type": kind, "source": {"media_type": "text/plain", key: words}}
    assert part_bound(part, "m") >= len(words.encode("utf-8", "surrogatepass"))
