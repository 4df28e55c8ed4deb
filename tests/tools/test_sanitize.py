"""What becomes of what a tool returned: text of any value, masked and capped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer

from kairo_team._util.masking import MASK
from kairo_team.tools import ToolResult
from kairo_team.tools.result import MAX_RESULT, Sanitizer, text_of
from tests.tools.stages import pipeline, simple

pytestmark = pytest.mark.anyio


class Model(BaseModel):
    when: date
    tags: set[str] = set()


class Stubborn(BaseModel):
    n: int = 1

    @field_serializer("n")
    def refuse(self, n: int) -> int:
        raise RuntimeError("not for you")


@dataclass
class Row:
    n: int
    data: bytes = b"\xff"


class Plain:
    def __str__(self) -> str:
        return "a plain thing"


class Unsayable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Level(StrEnum):
    HIGH = "high"


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


def circle() -> Any:
    rows: list[Any] = [1]
    rows.append(rows)
    return rows


def endless() -> Iterator[int]:
    while True:
        yield 1


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, ""),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ([1, "ü", None], '[1,"ü",null]'),
        ({"a": (1, 2), 3: {4}}, '{"a":[1,2],"3":[4]}'),
        (Model(when=date(2026, 1, 2), tags={"x"}), '{"when":"2026-01-02","tags":["x"]}'),
        ([Row(1, b"ok")], '[{"n":1,"data":"ok"}]'),
        (Row(1), '{"n":1,"data":"[the tool returned 1 byte, and only text can be shown to you]"}'),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.50"), "1.50"),
        (PurePosixPath("a/b"), "a/b"),
        (Level.HIGH, "high"),
        (Loud("quiet"), "quiet"),
        (b"abc", "abc"),
        (b"\xff\xfe\xfd", "[the tool returned 3 bytes, and only text can be shown to you]"),
        (bytearray(4), "[the tool returned 4 bytes, and only text can be shown to you]"),
        (Plain(), "a plain thing"),
        ([Plain()], '["a plain thing"]'),
        (Unsayable(), "<a Unsayable that cannot be shown>"),
        ({"a": Unsayable()}, '{"a":"<a Unsayable that cannot be shown>"}'),
        (circle(), "[1, [...]]"),
        (int, "<class 'int'>"),
    ],
)
def test_a_value_of_any_kind_becomes_text(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("value", [Stubborn(), endless(), deep(), object(), {"a": "\ud800"}, lambda: 1, [Stubborn()]])
async def test_what_has_no_text_is_described_and_never_an_error(value: Any) -> None:
    result = await pipeline().call(simple(lambda _: value), {})
    assert not result.is_error
    assert result.text
    assert result.text.encode()


class Liar:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("I am nobody")


@pytest.mark.parametrize("value", [iter([1]), map(str, itertools.count()), itertools.count(), open(__file__)])  # noqa: PTH123, SIM115
async def test_what_is_gone_through_once_or_never_ends_is_not_gone_through(value: Any) -> None:
    result = await pipeline().call(simple(lambda _: value), {})
    assert len(result.text) < 500
    assert result.value is value
    getattr(value, "close", lambda: None)()


async def test_a_value_that_lies_about_its_class_is_an_error_and_nothing_worse() -> None:
    result = await pipeline().call(simple(lambda _: Liar()), {})
    assert result == ToolResult("RuntimeError: I am nobody", is_error=True)
    assert not (await pipeline().call(simple(lambda _: [Liar()]), {})).is_error


# ---------------------------------------------------------------- secrets


SECRET = 'p/a"ss\\wörd+1 %'


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(SECRET))[1:-1],
        json.dumps(json.dumps({"a": SECRET})),
        json.dumps(SECRET).replace("/", "\\/"),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="")
        .replace("%2F", "%2f")
        .replace("%22", "%22")
        .replace("%5C", "%5c")
        .replace("%C3%B6", "%c3%b6")
        .replace("%2B", "%2b"),
    ],
)
def test_a_secret_is_masked_however_it_is_written(written: str) -> None:
    text = Sanitizer([SECRET])(f"key={written}.")
    assert MASK in text
    assert "ss" not in text.replace(MASK, "")
    assert text.endswith((".", '}".'))


def test_secrets_that_contain_or_overlap_each_other_leave_nothing_over() -> None:
    sanitize = Sanitizer(["abc", "abcdef", "xab", "", "efgh"])
    assert sanitize("-abcdef-abc-xabcdefgh-") == f"-{MASK}-{MASK}-{MASK}-"
    assert Sanitizer(["aa"])("aaa a") == f"{MASK} a"
    assert Sanitizer([])("abc") == "abc"


async def test_errors_and_refusals_are_masked_too() -> None:
    def fail(arguments: Any) -> None:
        raise ValueError("the key hunter2 is wrong")

    way = pipeline(secrets=["hunter2"], allowed=["simple"])
    assert (await way.call(simple(fail), {})).text == f"ValueError: the key {MASK} is wrong"
    assert (await way.call(simple(fail, name="hunter2"), {})).text.startswith(f"the tool '{MASK}' is not allowed")


async def test_a_masked_result_has_no_value() -> None:
    way = pipeline(secrets=["hunter2"])
    assert await way.call(simple(lambda _: {"key": "hunter2"}), {}) == ToolResult(f'{{"key":"{MASK}"}}')


def test_the_text_of_a_result_is_text() -> None:
    with pytest.raises(ValueError, match="must be a string, not 5"):
        ToolResult(5)  # type: ignore[arg-type]  # the point


# ---------------------------------------------------------------- size


def test_a_long_text_is_capped_with_a_notice_of_how_much_was_left_out() -> None:
    text = Sanitizer()("x" * (MAX_RESULT + 7))
    assert text == "x" * MAX_RESULT + "\n[7 more characters left out]"
    assert Sanitizer()("x" * MAX_RESULT) == "x" * MAX_RESULT


@pytest.mark.parametrize("at", range(4, 13))
def test_a_secret_across_the_edge_is_masked_whole(at: int) -> None:
    text = Sanitizer(["hunter2"], most=10)("." * at + "hunter2" + "." * 20)
    assert "hunter2"[: max(2, 10 - at)] not in text or at >= 10
    assert "hun" not in text
    assert "er2" not in text
    left_out = int(text.rpartition("[")[2].split()[0])
    kept = text.rpartition("\n")[0].replace(MASK, "hunter2")
    assert len(kept) + left_out == at + 27


def test_long_secrets_at_the_edge_and_short_ones_all_over_stay_hidden_and_within_the_cap() -> None:
    long = "k" * 30
    text = Sanitizer([long], most=100)(f"{long}." * 50)
    assert "k" not in text
    assert len(Sanitizer(["a"], most=100)("a" * 1000)) < 100 + len(MASK) + 40


@pytest.mark.parametrize("value", ["x" * 5_000_000, ["x" * 1000] * 5000, {"a": list(range(500_000))}])
async def test_huge_values_are_capped(value: Any) -> None:
    result = await pipeline(secrets=["hunter2"]).call(simple(lambda _: value), {})
    assert MAX_RESULT < len(result.text) < MAX_RESULT + 100
    assert result.text.endswith("more characters left out]")
    assert result.value is None


async def test_half_a_surrogate_pair_does_not_reach_the_model() -> None:
    result = await pipeline().call(simple(lambda _: "a\ud800b"), {})
    assert result.text == "a?b"


@given(
    secrets=st.lists(st.text('ab/"\\é %', min_size=1, max_size=4), max_size=4),
    text=st.text('ab/"\\é %x', max_size=60),
    most=st.integers(1, 70),
)
@example(secrets=["ab", "ba"], text="aba", most=2)
def test_no_secret_is_left_whatever_the_text(secrets: list[str], text: str, most: int) -> None:
    clean = Sanitizer(secrets, most)(text)
    kept = clean.rpartition("\n[")[0] if clean.endswith("left out]") else clean
    for piece in kept.split(MASK):
        assert not any(secret in piece for secret in secrets)
        assert piece in text
