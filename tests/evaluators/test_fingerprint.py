"""What tells one check from another: whatever decides is in the digest, and what cannot be read has none."""

from __future__ import annotations

import functools
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.engine.digests import criteria_digest
from kairo_team.evaluators import (
    CalibratedEvaluationStrategy,
    CascadeEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    Rubric,
    SimpleEvaluationStrategy,
    all_of,
    calibrate,
    checks,
)
from kairo_team.evaluators.fingerprint import digest_of, fingerprint
from kairo_team.testing import ScriptedAgent


class Words:
    """A check that is an object."""

    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def __call__(self, artifact: kt.Artifact) -> bool:
        return bool(len(artifact.text.split()) <= self.limit)

    def at_most(self, artifact: kt.Artifact) -> bool:
        return self(artifact)


class Slotted:
    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, artifact: kt.Artifact) -> bool:
        return len(artifact.text) <= self.limit


@dataclass(frozen=True)
class Bounds:
    least: int
    most: int

    def __call__(self, artifact: kt.Artifact) -> bool:
        return self.least <= len(artifact.text) <= self.most


class Level(Enum):
    LOW = 1
    HIGH = 2


class Locked(Words):
    """One whose state cannot be read."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.lock = threading.Lock()


def keyword(limit: int) -> Callable[..., bool]:
    def check(artifact: kt.Artifact, *, most: int = limit) -> bool:
        return len(artifact.text) <= most

    return check


def closed_over(thing: Any) -> Callable[[kt.Artifact], bool]:
    def check(artifact: kt.Artifact) -> bool:
        return bool(thing(artifact)) if callable(thing) else thing is not None

    return check


def with_attribute(limit: int) -> Callable[[kt.Artifact], bool]:
    def check(artifact: kt.Artifact) -> bool:
        most: int = vars(check)["limit"]
        return len(artifact.text) <= most

    vars(check)["limit"] = limit
    return check


def decorated(negate: bool) -> Callable[[kt.Artifact], bool]:
    def long(artifact: kt.Artifact) -> bool:
        return len(artifact.text) > 5

    @functools.wraps(long)
    def wrapper(artifact: kt.Artifact) -> bool:
        return long(artifact) is not negate

    return wrapper


def short(artifact: kt.Artifact) -> bool:
    return len(artifact.text) < 5


def long(artifact: kt.Artifact) -> bool:
    return len(artifact.text) > 5


def model_that(accepts: int) -> type[BaseModel]:
    class Dose(BaseModel):
        mg: int

        @field_validator("mg")
        @classmethod
        def small(cls, mg: int) -> int:
            if mg > accepts:
                raise ValueError("too much")
            return mg

    return Dose


PAIRS: dict[str, tuple[Any, Any]] = {
    "instances": (Words(5), Words(500)),
    "instances with slots": (Slotted(5), Slotted(500)),
    "dataclasses": (Bounds(1, 5), Bounds(1, 6)),
    "instances that hold others": (Words(Bounds(1, 5)), Words(Bounds(1, 6))),
    "bound methods": (Words(5).at_most, Words(500).at_most),
    "bound methods of builtins": ("abc".__contains__, "abd".__contains__),
    "methods of patterns": (re.compile("a").search, re.compile("b").search),
    "keyword defaults": (keyword(5), keyword(6)),
    "closures over functions": (closed_over(short), closed_over(long)),
    "closures over closures": (closed_over(closed_over(short)), closed_over(closed_over(long))),
    "patterns": (closed_over(re.compile("a")), closed_over(re.compile("b"))),
    "flags of patterns": (closed_over(re.compile("a")), closed_over(re.compile("a", re.IGNORECASE))),
    "sets": (closed_over({"a", "b"}), closed_over({"a", "c"})),
    "bytes": (closed_over(b"a"), closed_over(b"b")),
    "decimals": (closed_over(Decimal("0.1")), closed_over(Decimal("0.2"))),
    "enumerations": (closed_over(Level.LOW), closed_over(Level.HIGH)),
    "keys of mappings": (closed_over({1: "a"}), closed_over({"1": "a"})),
    "attributes of functions": (with_attribute(5), with_attribute(6)),
    "decorated functions": (decorated(negate=False), decorated(negate=True)),
    "cached functions": (functools.lru_cache(short), functools.lru_cache(long)),
    "partials of objects": (functools.partial(Words(5)), functools.partial(Words(6))),
    "lambdas in one line": (lambda _: len(__name__) > 5, lambda _: len(__name__) > 6),
    "accepted_by": (checks.accepted_by(Words(5)), checks.accepted_by(Words(6))),
    "errors of accepted_by": (checks.accepted_by(short, (ValueError,)), checks.accepted_by(short, (KeyError,))),
    "predicate": (checks.predicate(Words(5)), checks.predicate(Words(6))),
    "models that validate": (checks.pydantic_model(model_that(5)), checks.pydantic_model(model_that(6))),
    "how sure a language is": (checks.language("en", sure=0.12345678), checks.language("en", sure=0.12345679)),
}


@pytest.mark.parametrize("what", ["check", "applies"])
@pytest.mark.parametrize("name", PAIRS)
def test_audit_g09_a_digest_changes_with_the_state_of_what_decides(name: str, what: str) -> None:
    def digest(function: Any) -> str | None:
        given: Any = {"check": short, what: function}
        return Rubric([Criterion("a", "as it should be", **given)]).digest

    one, other = PAIRS[name]
    assert digest(one) is not None
    assert digest(one) == digest(one) != digest(other) is not None


LIMIT = 5


def by_the_module(artifact: kt.Artifact) -> bool:
    return helper(artifact) <= LIMIT


def helper(artifact: kt.Artifact) -> int:
    return len(artifact.text)


def test_audit_g09_a_digest_changes_with_what_a_check_names_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {digest_of(fingerprint(by_the_module))}
    for name, value in (("LIMIT", 6), ("helper", short)):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[__name__], name, value)
            digests.add(digest_of(fingerprint(by_the_module)))
    assert len(digests) == 3
    assert digest_of(fingerprint(by_the_module)) in digests


def test_a_function_that_names_itself_and_an_object_that_holds_itself_have_fingerprints() -> None:
    def count(n: int) -> int:
        return count(n - 1) if n else 0

    words = Words(5)
    words.limit = {"self": words}
    assert digest_of(fingerprint(count)) == digest_of(fingerprint(count))
    assert digest_of(fingerprint(words)) == digest_of(fingerprint(words))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_audit_g09_values_have_the_same_fingerprint_exactly_when_they_are_the_same(one: Any, other: Any) -> None:
    """The law of fingerprints, for plain values; True is not 1."""
    same = repr(one) == repr(other) or (one == other and repr(sorted(repr(one))) == repr(sorted(repr(other))))
    assert (digest_of(fingerprint(Words(one))) == digest_of(fingerprint(Words(other)))) == same


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    code = (
        "from tests.evaluators.test_fingerprint import *\n"
        "print(digest_of([fingerprint(one) for pair in PAIRS.values() for one in pair]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest_of([fingerprint(one) for pair in PAIRS.values() for one in pair])


# ---------------------------------------------------------------- what cannot be read


def locked(limit: int, **fields: Any) -> Rubric:
    return Rubric([Criterion("words", "few words", Locked(limit), **fields)])


def test_audit_g09_what_cannot_be_read_has_no_digest_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rubric = locked(5)
    with caplog.at_level(logging.WARNING, "kairo_team"):
        assert (rubric.digest, rubric.digest) == (None, None)
    (line,) = caplog.messages
    assert line == rubric.no_digest
    assert "its criteria are not frozen and no certificate is made for it" in line
    assert "the check of criterion 'words'" in line
    assert "Criterion(version=...)" in line
    assert Rubric([Criterion("a", "short", short)]).no_digest == ""


def test_audit_g09_a_version_stands_for_what_cannot_be_read() -> None:
    assert locked(5, version="1").digest == locked(5, version="1").digest != locked(5, version="2").digest
    assert locked(5, version="1").digest is not None
    with pytest.raises(ValueError, match="version must be a text that is not blank, or None, not ' '"):
        locked(5, version=" ")


def test_what_is_too_large_to_be_read_has_no_digest() -> None:
    assert Rubric([Criterion("a", "known", Words([[n] for n in range(20_000)]))]).digest is None


@pytest.mark.anyio
async def test_audit_g09_without_a_digest_there_is_no_certificate() -> None:
    labelled = [LabelledArtifact(f"text {n}", "Write.", passed=True) for n in range(30)]
    with pytest.raises(ValueError, match="the check of criterion 'words'"):
        await calibrate(locked(5), labelled)
    with pytest.raises(ValueError, match="the check of criterion 'words'"):
        CalibratedEvaluationStrategy(SimpleEvaluationStrategy(locked(5)), [])
    assert (await calibrate(locked(5, version="1"), labelled)).certificates


def test_audit_g09_strategies_with_such_a_part_have_no_digest_either() -> None:
    simple = SimpleEvaluationStrategy(locked(5))
    for strategy in (simple, CascadeEvaluationStrategy([simple]), all_of(simple)):
        assert criteria_digest(strategy) is None


@pytest.mark.anyio
async def test_audit_g09_criteria_without_a_digest_are_not_frozen_and_work_goes_on() -> None:
    agent = ScriptedAgent(["a b c", "a"])
    team = kt.Team("desk", [kt.Member("writer", agent)], coordinator=ExpertTeamCoordinator(evaluator=locked(2)))
    result = await kt.run(team, "Say it.")
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "a")
