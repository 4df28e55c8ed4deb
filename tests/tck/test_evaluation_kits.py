"""Every evaluator of ours keeps the contract of evaluators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy
from kairo_team.evaluators import (
    Criterion,
    Rubric,
    SimpleEvaluationStrategy,
    all_of,
    any_of,
    checks,
)
from kairo_team.tck import EvaluationStrategyTCK, run_kit
from kairo_team.testing import virtual_time_backends
from tests.mutants.honest_reviews import WordsTCK
from tests.tck.certified import certified
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")

TIDES = "The moon pulls the sea, so the tide rises twice a day."
MORE_TIDES = "Twice a day the sea rises and falls.\nThe moon does it."
LONG = " ".join(["The moon pulls the sea, says everybody who was ever asked about the tide."] * 3)


# ---------------------------------------------------------------- code only


class DosageCheck:
    """The evaluator of the page on the library's use."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        if "mg" not in context.artifact.text:
            return kt.EvaluationVerdict.revise(
                "No dose is given.", findings=[kt.Finding("dose", expected="a dose in mg")]
            )
        return kt.EvaluationVerdict.passed(score=1.0)


class TestDosage(EvaluationStrategyTCK):
    deterministic = True
    cannot_crash = True
    good_artifacts = ("take 5 mg",)
    bad_artifacts = ("take some",)

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return DosageCheck()


class TestSimpleDefault(EvaluationStrategyTCK):
    """All that can fail here is a blank artifact."""

    deterministic = True
    cannot_crash = True
    good_artifacts = (TIDES, "x")
    bad_artifacts = ("", " \n ")

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return SimpleEvaluationStrategy()


def breaking(error: Exception) -> Criterion:
    async def check(_: kt.Artifact) -> bool:
        raise error

    return Criterion("archive", "it is in the archive", check)


async def waits(_: kt.Artifact) -> bool:
    await anyio.sleep_forever()
    return True


WAITING = Criterion("archive", "it is in the archive", waits)


def criteria() -> list[Criterion]:
    return [
        Criterion("there", "it says something", checks.not_blank),
        Criterion("moon", "it names the moon", checks.contains("moon")),
        Criterion("sea", "it names the sea", checks.contains("sea"), kind="graded", weight=3),
        Criterion("short", "it has at most 20 words", checks.max_words(20), kind="graded", weight=2),
        Criterion("calm", "nobody shouts", checks.forbidden("!"), kind="penalty"),
        Criterion("long", "it has 200 words", checks.min_words(200), kind="info"),
    ]


class RubricOfChecks(EvaluationStrategyTCK):
    deterministic = True
    can_hang = True
    has_parts = True
    good_artifacts = (TIDES, MORE_TIDES)
    bad_artifacts: ClassVar[Sequence[str | kt.Artifact]] = ("The sea rises.", LONG, "The moon, says the sea!" + LONG)

    @classmethod
    def of(cls, criteria: Iterable[Criterion]) -> EvaluationStrategy:
        return Rubric([*criteria], 0.8)

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return cls.of(criteria())

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        return cls.of([*criteria(), breaking(error)])

    @classmethod
    def make_hanging_strategy(cls) -> EvaluationStrategy:
        return cls.of([*criteria(), WAITING])

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        given = criteria()
        return [cls.of(given[::-1]), cls.of([*given[3:], *given[:3]])]


class TestRubric(RubricOfChecks):
    pass


@variant("trio")
class TestSimpleOfARubric(RubricOfChecks):
    @classmethod
    def of(cls, criteria: Iterable[Criterion]) -> EvaluationStrategy:
        return SimpleEvaluationStrategy(Rubric([*criteria], 0.8))


class TestAllOf(RubricOfChecks):
    """Each criterion a strategy of its own; what is graded is a gate then."""

    bad_artifacts = ("The sea rises.", LONG)

    @classmethod
    def of(cls, criteria: Iterable[Criterion]) -> EvaluationStrategy:
        return all_of(*(Rubric([Criterion(one.id, one.text, one.check)]) for one in criteria if one.id != "long"))


class TestAnyOf(EvaluationStrategyTCK):
    """Two ways to be right; both depend on the archive where it breaks."""

    deterministic = True
    can_hang = True
    has_parts = True
    good_artifacts = (TIDES, "Winds drive the waves.")
    bad_artifacts = ("The sea rises.", "It is so.")

    @classmethod
    def ways(cls, *more: Criterion) -> list[EvaluationStrategy]:
        return [
            Rubric([Criterion(word, f"it names the {word}", checks.contains(word)), *more]) for word in ("moon", "wind")
        ]

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return any_of(*cls.ways())

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        return any_of(*cls.ways(breaking(error)))

    @classmethod
    def make_hanging_strategy(cls) -> EvaluationStrategy:
        return any_of(*cls.ways(WAITING))

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        return [any_of(*cls.ways()[::-1])]


class Broken:
    """A strategy that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        raise self.error


class AllOfWithABrokenOne(TestAllOf):
    """The other parts are fine, and may send it back: E02, the failure is not told beside."""

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        return all_of(cls.make_strategy(), Broken(error))


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_kf_e02_a_part_that_raises_decides_nothing_and_is_told_nobody(backend: str) -> None:
    """All else of it is as in `TestAllOf`, whose part that breaks says so in a verdict."""
    report = run_kit(AllOfWithABrokenOne, tests="_c07_", backend=backend)
    outcomes = [result.outcome for result in report.results if result.outcome != "skipped"]
    assert outcomes == ["passed"] * 4, "\n".join(report.lines())


@variant("asyncio")
class TestCalibratedCode(RubricOfChecks):
    @classmethod
    def of(cls, criteria: Iterable[Criterion]) -> EvaluationStrategy:
        return certified(Rubric([*criteria], 0.8))


# ---------------------------------------------------------------- of examples and packages


@variant("trio")
class TestReleaseNotes(EvaluationStrategyTCK):
    """The rubric of the release notes, for one commit. Its checks fail at a text that is not a `Sentence`."""

    deterministic = True
    task = kt.Task("write", "Write.", inputs={"subject": "Add retries to the client"})
    good_artifacts = (json.dumps({"sentence": "Added retries to the client."}),)
    bad_artifacts = (json.dumps({"sentence": "We removed everything, for 3 reasons."}), "Added retries to the client.")

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        example = pytest.importorskip("kairo_team.examples.release_notes")
        strategy: EvaluationStrategy = example.make_team("test:writer").evaluators["sentence"]
        return strategy

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        strategy: Any = cls.make_strategy()
        return Rubric([*strategy.criteria, breaking(error)])


TABLE = "row,substance,unit,least,most,day\nT-1,Fictamide,mg,20,60,180\nT-2,Exemplol,ug,100,300,600\n"


@variant("asyncio")
class TestDoseNotes(EvaluationStrategyTCK):
    """The rubric that another package publishes: a person signs what code let through."""

    deterministic = True
    cannot_crash = True
    can_pass = False
    good_artifacts = ("Fictamide: 40 mg, 3 a day [T-1]\nExemplol: 200 ug, 2 a day [T-2]",)
    bad_artifacts = ("Fictamide: 400 mg, 3 a day [T-1]", "Exemplol: 200, 2 a day [T-7]", "")
    table: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _table(self, tmp_path: Path) -> None:
        type(self).table = tmp_path / "doses.csv"
        self.table.write_text(TABLE, encoding="utf-8")

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        strategy: EvaluationStrategy = pytest.importorskip("clinical_dose").dose_rubric(cls.table)
        return strategy


@variant("trio")
class TestOfWords(WordsTCK):
    """Somebody else's, of code."""


class GivesUpItself:
    """An evaluator whose archive does not answer, with a patience of its own."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        with anyio.fail_after(5):
            await anyio.sleep_forever()
        raise AssertionError("unreachable")


class GivesUpItselfTCK(WordsTCK):
    can_hang = True

    @classmethod
    def make_hanging_strategy(cls) -> EvaluationStrategy:
        return GivesUpItself()


def test_a_review_may_give_up_before_the_run_ends_it() -> None:
    """By raising, which is its own failure and no timeout of the run's."""
    assert not run_kit(GivesUpItselfTCK, tests="_c08_").clauses("failed")


# ---------------------------------------------------------------- what the kit says of what it is not told


class Untold(EvaluationStrategyTCK):
    """Nothing is overridden."""


class WithoutACrash(EvaluationStrategyTCK):
    good_artifacts: ClassVar[Sequence[str | kt.Artifact]] = ("take 5 mg",)
    bad_artifacts = ("take some",)

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        return DosageCheck()


class OneText(WithoutACrash):
    good_artifacts = "take 5 mg"


@pytest.mark.parametrize(
    ("kit", "tests", "said"),
    [
        (Untold, "c03_what_is_good", "good_artifacts must be a list of at least one artifact, not ()"),
        (Untold, "c03_what_is_bad", "bad_artifacts must be a list of at least one artifact, not ()"),
        (Untold, "c02_what_is_blank", "override the class method make_strategy(cls), a fresh one each time"),
        (OneText, "c03_what_is_good", "good_artifacts must be a list of at least one artifact, not 'take 5 mg'"),
        (WithoutACrash, "c07_its_failure_decides", "override the class method make_crashing_strategy(cls, error)"),
    ],
)
def test_a_kit_says_what_it_lacks(kit: type[EvaluationStrategyTCK], tests: str, said: str) -> None:
    """Not skipped, and not passed: a kit that is told nothing fails."""
    [result] = run_kit(kit, tests=tests).results
    assert result.outcome == "failed"
    assert said in result.reason
