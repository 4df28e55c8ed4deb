"""Bytes and images that a tool returns: a sentence in the prompt, never their base64."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.testing import ScriptedModel
from kairo_team.tools.result import text_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(62)
SENTENCE = "[the tool returned 70 bytes of image/png, and only text can be shown to you]"


class Model(BaseModel):
    name: str
    picture: bytes


@dataclass
class Data:
    name: str
    picture: bytes


class Hides(BaseModel):
    """A model that says itself how it is written."""

    picture: bytes
    password: str = Field(exclude=True)
    name: str = Field(default="it", serialization_alias="Name")


class Image:
    """As Pillow's images are."""

    __module__ = "PIL.Image"
    width, height = 3, 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (PNG, SENTENCE),
        (memoryview(PNG), SENTENCE),
        (b"%PDF-1.7 \xff", "[the tool returned 10 bytes of application/pdf, and only text can be shown to you]"),
        (b"\x00\x01", "[the tool returned 2 bytes, and only text can be shown to you]"),
        ({"name": "it", "picture": PNG}, f'{{"name":"it","picture":"{SENTENCE}"}}'),
        (Model(name="it", picture=PNG), f'{{"name":"it","picture":"{SENTENCE}"}}'),
        (Data("it", PNG), f'{{"name":"it","picture":"{SENTENCE}"}}'),
        ([{"deep": (PNG, "text")}], f'[{{"deep":["{SENTENCE}","text"]}}]'),
        (Image(), "[the tool returned an image of 3 x 4 pixels, and only text can be shown to you]"),
        ([Image()], '["[the tool returned an image of 3 x 4 pixels, and only text can be shown to you]"]'),
        ({"name": "it", "text": b"plain"}, '{"name":"it","text":"plain"}'),
        ("Ebbe und Flut: grün".encode(), "Ebbe und Flut: grün"),
        (b"", ""),
        (BytesIO(PNG), SENTENCE),
        (BytesIO(b"plain"), "plain"),
        (array("I", [1, 2, 3]), "array('I', [1, 2, 3])"),
        (memoryview(array("I", [1, 2, 3])), "[the tool returned 12 bytes, and only text can be shown to you]"),
        ({PNG: 1}, f'{{"{SENTENCE}":1}}'),
        (deque([PNG]), "deque([[bytes]])"),
        (SimpleNamespace(picture=PNG), "namespace(picture=[bytes])"),
        (Hides(picture=PNG, password="sesame"), f'{{"picture":"{SENTENCE}","Name":"it"}}'),
        (Hides(picture=b"plain", password="sesame"), '{"picture":"plain","Name":"it"}'),
    ],
    ids=lambda one: type(one).__name__,
)
def test_third_o44_bytes_and_images_become_a_sentence(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_third_o44_a_value_that_goes_round_in_a_circle_with_bytes_in_it_is_described() -> None:
    value: list[Any] = [PNG]
    value.append(value)
    assert text_of(value) == "[[bytes], [...]]"


@pytest.mark.anyio
@pytest.mark.parametrize("made", [PNG, {"picture": PNG}, Model(name="it", picture=PNG), Data("it", PNG), [PNG]])
async def test_third_o44_a_member_that_returns_bytes_is_told_of_files(made: Any) -> None:
    async def draw(assignment: kt.Assignment) -> Any:
        return made

    result = await kt.run(kt.Team("desk", [kt.Member("clerk", draw)]), "Draw it.")
    assert "bytes go into a file: return kt.Artifact(text, files=[kt.File(data=...)])" in str(result.error)
    assert "a bytes" not in str(result.error)


@pytest.mark.anyio
@pytest.mark.parametrize("make", [lambda: PNG, lambda: {"picture": PNG}], ids=["alone", "inside"])
async def test_third_o44_a_model_reads_the_sentence(make: Callable[[], Any]) -> None:
    @kt.tool(side_effect="read")
    async def draw() -> Any:
        """Draw something."""
        return make()

    model = ScriptedModel([kt.ModelResponse("", [kt.ToolCall("c", "draw")]), "done"])
    await kt.MiniAgent(model, tools=[draw]).run("Draw it.")
    (answer,) = [message.text for message in model.calls[1].messages if message.role == "tool"]
    assert SENTENCE in answer
    assert "iVBOR" not in answer
