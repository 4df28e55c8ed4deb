"""Numbers as people write them: `5,000` where a command takes a number."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, get_origin, get_type_hints

import pytest
import typer
from typer.models import OptionInfo

import kairo_team as kt
from kairo_team.cli.budgets import limited, parse_limits
from kairo_team.cli.commands import COMMANDS
from kairo_team.cli.journal_commands import read_age
from kairo_team.cli.numbers import plain_number, seconds, whole_number
from kairo_team.cli.refusal import Refusal


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5,000", "5000"),
        ("1,234,567", "1234567"),
        ("$1,000.50", "$1000.50"),
        ("-5,000", "-5000"),
        ("5000", "5000"),
        ("5,00", "5,00"),
        ("50,0000", "50,0000"),
        ("5,000,00", "5,000,00"),
        ("0.5", "0.5"),
        ("many", "many"),
        ("", ""),
    ],
)
def test_commas_count_only_between_thousands(text: str, number: str) -> None:
    assert plain_number(text) == number


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("tokens=5,000", {"tokens": 5_000}),
        ("tokens=1,234,567,seconds=1,100,loops=30", {"tokens": 1_234_567, "seconds": 1_100.0, "loops": 30}),
        ("dollars=$1,000.50,tokens=20000", {"dollars": "1000.50", "tokens": 20_000}),
        ("tokens = 5,000 , dollars = none", {"tokens": 5_000, "dollars": None}),
    ],
)
def test_limits_may_have_commas_in_their_numbers(text: str, limits: dict[str, object]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize(
    "text", ["tokens=5,00", "tokens=5,000,00", "tokens=5,,000", "tokens=5,000,", "tokens=20000,110"]
)
def test_other_commas_are_refused(text: str) -> None:
    with pytest.raises(Refusal):
        limited(kt.Budget(), text)


def test_an_age_may_be_in_thousands() -> None:
    assert read_age("1,000d", "--older-than") == 86_400_000


@pytest.mark.parametrize(
    ("least", "most", "text", "number"),
    [(0, None, "5,000", 5_000), (1, None, "1", 1), (0, 65_535, "65,535", 65_535), (0, None, 7, 7)],
)
def test_an_option_takes_a_whole_number(least: int, most: int | None, text: object, number: int) -> None:
    assert whole_number("", least, most).parser(text) == number


@pytest.mark.parametrize("text", ["5,00", "-1", "1.5", "many", "", "5_000", "\u0665", "65,536"])
def test_an_option_refuses_other_numbers(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a whole number from 0 to 65,535"):
        whole_number("", 0, 65_535).parser(text)


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", "1,0"])
def test_an_option_refuses_other_seconds(text: str) -> None:
    assert seconds("").parser("1,000.5") == 1_000.5
    with pytest.raises(typer.BadParameter, match="is not a number of seconds from 0"):
        seconds("").parser(text)


def options_of(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from (one for one in annotation.__metadata__ if isinstance(one, OptionInfo))


def test_every_option_that_takes_a_number_takes_it_with_commas() -> None:
    found: dict[str, OptionInfo] = {}
    for name, place in COMMANDS.items():
        module = import_module(f"kairo_team.cli.{place.home.partition(':')[0]}")
        for command in getattr(module, place.home.partition(":")[2]).registered_commands:
            for option, annotation in get_type_hints(command.callback, include_extras=True).items():
                kinds = {str(one) for one in (annotation.__args__ if get_origin(annotation) is Annotated else ())}
                if kinds & {"<class 'int'>", "int | None", "<class 'float'>", "float | None"}:
                    found |= {f"{name} {option}": one for one in options_of(annotation)}
    assert {"budget tokens", "serve port", "eval repeat", "worker concurrency", "events after"} < found.keys()
    shares = {name for name, option in found.items() if option.metavar == "SHARE"}
    assert all(option.parser for name, option in found.items() if name not in shares), found
