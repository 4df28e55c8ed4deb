"""The names of `kairo_team.evaluators`: all are there, and each brings only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kairo_team import evaluators

LATER = ("agent_judge", "calibration", "combined", "judging", "panel")


def test_every_name_is_where_it_is_said_to_be() -> None:
    package: Any = evaluators
    assert set(evaluators.__all__) <= set(dir(evaluators))
    assert evaluators.__all__ == sorted(evaluators.__all__)
    assert {name for names in package._HOMES.values() for name in names.split()} == {*evaluators.__all__} - {"checks"}
    assert all(getattr(package, name) is not None for name in evaluators.__all__)


def test_a_name_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rubrik'"):
        evaluators.Rubrik  # type: ignore[attr-defined]  # noqa: B018 - what is refused


def test_a_rubric_of_checks_does_not_wait_for_judges_and_calibration() -> None:
    code = "import json, sys; from kairo_team.evaluators import Rubric, checks; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "kairo_team.evaluators.rubric" in loaded
    assert loaded.isdisjoint(f"kairo_team.evaluators.{name}" for name in LATER)
