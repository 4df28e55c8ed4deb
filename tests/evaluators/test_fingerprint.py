"""What tells one check from another: whatever decides is in the digest, and what cannot be read has none."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import operator
import os
import re
import subprocess
import sys
import threading
from collections import Counter, defaultdict
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
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.evaluators import (
    CalibratedEvaluationStrategy,
    CascadeEvaluationStrategy,
    Criterion,
    Example,
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


def any_text(artifact: kt.Artifact, limit: Any) -> bool:
    return bool(artifact.text != limit)


class Negated:
    """A decorator with a state of its own."""

    def __init__(self, function: Callable[..., bool], negate: bool) -> None:
        functools.update_wrapper(self, function)
        self.function, self.negate = function, negate

    def __call__(self, artifact: kt.Artifact) -> bool:
        return self.function(artifact) is not self.negate


class Sized(dict[str, int]):
    """A mapping with a state beside its items."""

    def __init__(self, least: int) -> None:
        super().__init__(a=1)
        self.least = least


class Names(list[str]):
    """A list with a state beside its items."""

    def __init__(self, least: int) -> None:
        super().__init__("ab")
        self.least = least


def class_that(limit: Any) -> Any:
    """A check whose class, not its instance, has the state."""

    class Check:
        least = limit

        def __call__(self, artifact: kt.Artifact) -> bool:
            return bool(len(artifact.text) >= self.least.limit)

    return Check()


def class_with_property(kind: Any, limit: int) -> Any:
    class Check:
        least = kind(lambda _: limit)

        def __call__(self, artifact: kt.Artifact) -> bool:
            return bool(len(artifact.text) >= self.least)

    return Check()


def calls_by_name(thing: Any) -> Any:
    """A function whose module holds something else under the same name."""
    code = compile("def check(artifact):\n    return thing(artifact)\n", "<made>", "exec")
    scope: dict[str, Any] = {"thing": thing, "__name__": "made"}
    exec(code, scope)  # noqa: S102 - a module of its own
    return scope["check"]


PAIRS: dict[str, tuple[Any, Any]] = {
    "class-based decorators": (Negated(short, negate=False), Negated(short, negate=True)),
    "mappings with a default": (closed_over(defaultdict(int)), closed_over(defaultdict(float))),
    "mappings with a state": (closed_over(Sized(1)), closed_over(Sized(2))),
    "mappings of another kind": (closed_over({"a": 1}), closed_over(Counter("a"))),
    "lists with a state": (closed_over(Names(1)), closed_over(Names(2))),
    "lists and tuples": (closed_over([1]), closed_over((1,))),
    "lists that look like bytes": (closed_over(["bytes", "61"]), closed_over(b"a")),
    "lists that look like sets": (closed_over(["set", 1]), closed_over({1})),
    "sets that do not change": (closed_over({1}), closed_over(frozenset({1}))),
    "bytes that change": (closed_over(b"a"), closed_over(bytearray(b"a"))),
    "attributes of classes": (class_that(Words(5)), class_that(Words(6))),
    "properties": (class_with_property(property, 5), class_with_property(property, 6)),
    "cached properties": (
        class_with_property(functools.cached_property, 5),
        class_with_property(functools.cached_property, 6),
    ),
    "objects of the module": (calls_by_name(Words(5)), calls_by_name(Words(6))),
    "closures of the module": (calls_by_name(keyword(5)), calls_by_name(keyword(6))),
    "bound methods of the module": (calls_by_name(Words(5).at_most), calls_by_name(Words(6).at_most)),
    "partials of the module": (calls_by_name(functools.partial(Words(5))), calls_by_name(functools.partial(Words(6)))),
    "modules of the module": (calls_by_name(re), calls_by_name(functools)),
    "how many a lambda takes": (lambda *_: True, lambda _: True),
    "getters": (operator.itemgetter(1), operator.itemgetter(2)),
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


LAMBDAS: list[Callable[[kt.Artifact], bool]] = [lambda one: one.text in {"tide", "moon", "sea", "boat", "rock"}]
SETS: list[Any] = [
    *LAMBDAS,
    closed_over({"tide", "moon", "sea", "boat", "rock"}),
    closed_over({"words": frozenset({("tide", 1), ("moon", 2), ("sea", 3)})}),
    calls_by_name({"tide", "moon", "sea", "boat", "rock"}),
    Words(Counter("tides and moons")),
]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_fingerprint_is_the_same_in_another_process(seed: str) -> None:
    """Also where the process puts sets in another order."""
    code = (
        "from tests.evaluators.test_fingerprint import *\n"
        "print(*(digest_of(fingerprint(one)) for pair in [*PAIRS.values(), SETS] for one in pair))"
    )
    there = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=there)
    assert done.stdout.split() == [digest_of(fingerprint(one)) for pair in [*PAIRS.values(), SETS] for one in pair]


LIMITS = st.one_of(
    st.integers(-3, 3),
    st.floats(-1, 1),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(0, 1)),
    st.lists(st.integers(0, 1), max_size=2),
    st.sets(st.integers(0, 3)),
    st.frozensets(st.text(max_size=1)),
    st.dictionaries(st.integers(0, 1) | st.text(max_size=1), st.integers(0, 1), max_size=2),
    st.decimals(-1, 1, places=1),
    st.dates(),
    st.sampled_from(Level),
    st.sampled_from(["a", "b+"]).map(re.compile),
)
KINDS: dict[str, Callable[[Any], Any]] = {
    "an object": Words,
    "a bound method": lambda limit: Words(limit).at_most,
    "a closure": closed_over,
    "a keyword default": keyword,
    "a partial": lambda limit: functools.partial(any_text, limit=limit),
    "an attribute": with_attribute,
    "a class": class_that,
    "a name of its module": calls_by_name,
    "a decorator's": lambda limit: Negated(short, limit),
    "a mapping": lambda limit: closed_over(Sized(limit)),
    "inside a partial of a method of a closure": lambda limit: functools.partial(Words(closed_over(limit)).at_most),
}


@pytest.mark.parametrize("kind", KINDS)
@given(LIMITS, LIMITS)
def test_equal_state_has_an_equal_digest_and_other_state_another_one(kind: str, one: Any, other: Any) -> None:
    """The law for every kind of callable; equal is what is of the same type and equal, all the way down."""
    made = KINDS[kind]
    same = (type(one), _exact(one)) == (type(other), _exact(other))
    digest = digest_of(fingerprint(made(one)))
    assert digest == digest_of(fingerprint(made(copy.deepcopy(one))))
    assert (digest == digest_of(fingerprint(made(other)))) == same


def _exact(value: Any) -> Any:
    """A value in which 1 is not True and 0.0 is not -0.0, and the order of sets and dicts does not count."""
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return sorted(map(repr, value.items()))
    return repr(value)


FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "id": ({"id": "a"}, {"id": "b"}),
    "text": ({"text": "a"}, {"text": "b"}),
    "check": ({"by": "check", "check": short}, {"by": "check", "check": long}),
    "by": ({"by": "judge"}, {"by": "human"}),
    "kind": ({"kind": "gate"}, {"kind": "penalty"}),
    "weight": ({"weight": 1}, {"weight": 2}),
    "levels": ({"levels": ("a", "b")}, {"levels": ("b", "a")}),
    "evidence": ({"evidence": "none"}, {"evidence": "quote"}),
    "applies": ({"applies": short}, {"applies": long}),
    "version": ({"version": "1"}, {"version": "2"}),
    "level_texts": ({}, {"level_texts": {"met": "every word"}}),
    "examples": ({}, {"examples": (Example("The moon.", "met"),)}),
    "reference": ({}, {"reference": True}),
    "on": ({"on": "artifact"}, {"on": "transcript"}),
}


def test_a_digest_changes_with_every_field_of_a_criterion_and_with_the_threshold() -> None:
    asked = {one.name for one in dataclasses.fields(Criterion)} - {"_"}
    assert set(FIELDS) == asked

    def digest(fields: dict[str, Any], **more: Any) -> str | None:
        other = Criterion("other", "it is graded", by="judge", kind="graded")
        usual: dict[str, Any] = {"id": "a", "text": "t", "by": "judge"}
        return Rubric([Criterion(**{**usual, **fields}), other], **more).digest

    for name, (one, other) in FIELDS.items():
        assert digest(one) != digest(other), name
    assert digest({}) != digest({}, threshold=0.1)


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


def test_a_check_of_a_team_notes_criteria_that_are_not_frozen_and_why() -> None:
    def notes(evaluator: Any, **named: Any) -> tuple[str, ...]:
        coordinator = ExpertTeamCoordinator(evaluator=evaluator)
        team = kt.Team("desk", [kt.Member("w", ScriptedAgent(["a"]))], coordinator, evaluators=named)
        found = kt.check(team, "Say it.")
        assert found.ok
        return found.notes

    (own,) = notes(locked(2))
    assert own == f"the coordinator's evaluator: {locked(2).no_digest}"
    assert "Criterion(version=...)" in own
    (named,) = notes("few", few=CascadeEvaluationStrategy([SimpleEvaluationStrategy(locked(2))]))
    assert named == "the evaluator 'few': a rubric in it has no digest, so its criteria are not frozen"
    assert notes(locked(2, version="1"), few=all_of(Rubric([Criterion("a", "short", short)]))) == ()


class Alike(type):
    """Classes that are all equal."""

    def __eq__(cls, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(cls) -> int:
        return 1


class AtMostTwo(metaclass=Alike):
    def __call__(self, artifact: kt.Artifact) -> bool:
        return len(artifact.text) <= 2


class AtMostThree(metaclass=Alike):
    def __call__(self, artifact: kt.Artifact) -> bool:
        return len(artifact.text) <= 3


def test_a_class_is_described_by_itself_whatever_it_is_equal_to() -> None:
    assert AtMostTwo == AtMostThree
    assert digest_of(fingerprint(AtMostTwo())) == digest_of(fingerprint(AtMostTwo()))
    assert digest_of(fingerprint(AtMostTwo())) != digest_of(fingerprint(AtMostThree()))
