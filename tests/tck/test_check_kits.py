"""Checks that ship, and one of each kind that a stranger writes, keep the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import anyio
import pytest

import kairo_team as kt
from kairo_team.evaluators import Answer, Check, checks
from kairo_team.tck import CheckTCK
from tests.mutants.kit_checks import RightCheck
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


class TestMaxWords(CheckTCK):
    cannot_crash = True
    good_artifacts = ("one two", "one")
    bad_artifacts = ("one two three", "a b c d")
    published = "max_words"
    options: ClassVar[Mapping[str, Any]] = {"limit": 2}

    @classmethod
    def make_check(cls) -> Check:
        return checks.max_words(2)


class TestJsonValid(CheckTCK):
    cannot_crash = True
    good_artifacts = ('{"a": 1}', "[]")
    bad_artifacts = ("{", "a")
    published = "json_valid"

    @classmethod
    def make_check(cls) -> Check:
        return checks.json_valid


class TestCitations(CheckTCK):
    """It looks at what the task used."""

    cannot_crash = True
    good_artifacts = ("The tide rose [log].",)
    bad_artifacts = ("The tide rose.", "The tide rose [diary].")
    upstream: ClassVar[Mapping[str, str | kt.Artifact]] = {"log": "The tide rose."}
    published = "citations"

    @classmethod
    def make_check(cls) -> Check:
        return checks.citations()


class TestRegex(CheckTCK):
    cannot_crash = True
    good_artifacts = ("# Tides",)
    bad_artifacts = ("Tides",)
    published = "regex"
    options: ClassVar[Mapping[str, Any]] = {"pattern": "^#", "says": "it has no title"}

    @classmethod
    def make_check(cls) -> Check:
        return checks.regex("^#", "it has no title")


class Almanac:
    """A check with state, a context, a wait and a failure: what a service may be."""

    def __init__(self, patience: float = 0.5, *, open_hours: bool = True) -> None:
        self.patience = patience
        self.open_hours = open_hours

    async def __call__(self, artifact: kt.Artifact, context: kt.EvaluationContext) -> Answer:
        await anyio.sleep(self.patience)
        if not self.open_hours:
            raise ConnectionError("the almanac is closed")
        if "moon" not in artifact.text:
            return Answer("wrong", finding=kt.Finding("moon", expected=f"{context.task.id} names the moon"))
        return Answer("right" if "sea" in artifact.text else "half")


class TestAlmanac(CheckTCK):
    can_wait = True
    levels = ("wrong", "half", "right")
    good_artifacts = ("The moon pulls the sea.",)
    bad_artifacts = ("The moon.", "The sea.")

    @classmethod
    def make_check(cls) -> Check:
        return Almanac()

    @classmethod
    def make_crashing_check(cls) -> Check:
        return Almanac(open_hours=False)

    @classmethod
    def make_waiting_check(cls) -> Check:
        return Almanac(5_000.0)


@variant("trio")
class TestWhatMutantsAreMadeOf(RightCheck):
    """What the wrong checks change one thing of."""
