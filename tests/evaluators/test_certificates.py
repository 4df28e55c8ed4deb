"""Certificates in files: written exactly, read unchanged or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy
from kairo_team.evaluators.calibration.calibration import calibrate
from kairo_team.evaluators.calibration.certificates import (
    Certificate,
    Subject,
    read_certificates,
    write_certificates,
)
from tests.evaluators.calibration_doubles import STAGED, SURE, Told, cascade, certificate, labels, reviewed

pytestmark = pytest.mark.anyio


async def test_certificates_go_through_json_and_back() -> None:
    found = await calibrate(cascade(), STAGED)
    assert read_certificates(write_certificates(found.certificates)) == found.certificates


async def test_a_certificate_that_was_made_better_than_its_counts_is_refused() -> None:
    one = certificate(await calibrate(Told(), SURE))
    for change in ({"k": 7}, {"n": 20}, {"alpha": 0.01}):
        with pytest.raises(ValueError, match="bears no promise"):
            replace(one, **change)
    with pytest.raises(ValueError, match="k <= n <= examples"):
        replace(one, examples=50)
    text = write_certificates([one]).replace('"k": 0', '"k": 7')
    with pytest.raises(ValueError, match="no valid certificates"):
        read_certificates(text)


async def test_a_certificate_of_which_any_field_was_changed_is_refused() -> None:
    """Also where the counts would still support it: another threshold, another judge, fewer errors."""
    found = (await calibrate(cascade(), STAGED)).certificates
    written = json.loads(write_certificates(found))
    assert read_certificates(json.dumps(written)) == found
    for name, value in list(_leaves(written["certificates"][1])):
        changed = json.loads(write_certificates(found))
        _change(changed["certificates"][1], name, value)
        with pytest.raises(ValueError, match=r"certificate 2 .*was changed after|no valid certificates|holds no cert"):
            read_certificates(json.dumps(changed))
    assert {name[0] for name, _ in _leaves(written["certificates"][1])} >= {
        "threshold",
        "k",
        "subject",
        "sides",
        "data",
    }


def _leaves(value: Any, *way: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict | list):
        items: Any = cast("Any", value).items() if isinstance(value, dict) else enumerate(cast("Any", value))
        for name, inner in items:
            yield from _leaves(inner, *way, name)
    else:
        yield way, value


def _change(value: Any, way: tuple[Any, ...], old: Any) -> None:
    *before, last = way
    for name in before:
        value = value[name]
    value[last] = old * 0.999 if isinstance(old, float) else old + 1 if isinstance(old, int) else f"{old}x"


async def test_a_certificate_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    (one,) = (await calibrate(Told(), SURE, {"pass": 0.1})).certificates
    written = json.loads(write_certificates([one]))
    del written["certificates"][0]["digest"]
    said = r"certificate 1 \(pass, attempt 1\) has no digest: an earlier version wrote it; calibrate again"
    with pytest.raises(ValueError, match=said):
        read_certificates(json.dumps(written))


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_threshold_is_written_exactly_and_decides_the_same_when_it_is_read_again(at: float, sure: float) -> None:
    one = Certificate("pass", "1", 0.1, 0.05, at, 100, 0, 250, Subject("r", "j"), "d")
    (again,) = read_certificates(write_certificates([one]))
    assert (again, again.threshold.hex()) == (one, at.hex())
    assert (sure >= again.threshold) == (sure >= at)


@pytest.mark.parametrize("at", [0.1 + 0.2, 0.9999999999, 1 / 3])
async def test_what_is_not_sure_enough_is_told_with_the_exact_numbers(at: float) -> None:
    found = await calibrate(Told(), labels((40, f"pass {at!r}", True)), {"pass": 0.1})
    below = math.nextafter(at, 0)
    verdict = await CalibratedEvaluationStrategy(Told(), found.certificates).evaluate(reviewed(f"pass {below!r}"))
    assert verdict.feedback == f"the judge says pass and is sure to {below!r}, where {at!r} is asked for"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"certificates": 7}', '{"certificates": [{}]}', "[" * 5_000])
def test_what_is_no_file_of_certificates_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="certificates"):
        read_certificates(text)
