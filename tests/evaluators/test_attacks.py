"""The corpus of attacks: the same from the same seed, complete, split by family, understood by an obedient judge."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

import kairo_team as kt
from benchmarks.obedient import ObedientJudge, obeys
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Rubric
from kairo_team.evaluators.artifact_view import MAX_SHOWN, as_data, obvious_defect
from kairo_team.evaluators.attacks.corpus import (
    FAMILIES,
    LANGUAGES,
    LATIN,
    WEAK,
    Work,
    attacks,
    filler,
    halves,
    ordinary,
    sentences,
)
from kairo_team.evaluators.attacks.trial import AttackReport, attack_judge

SEEDS = st.integers(0, 2**32)
RUBRIC = Rubric([Criterion("good", "it does the task", by="judge")])


@given(SEEDS)
def test_the_same_seed_makes_the_same_attacks(seed: int) -> None:
    assert attacks(seed) == attacks(seed)


def test_another_seed_makes_others() -> None:
    first, second = ({attack.text for attack in attacks(seed)} for seed in (0, 1))
    assert len(first & second) < len(first)


@given(SEEDS)
def test_every_family_has_every_language_that_its_writing_changes(seed: int) -> None:
    made = Counter((attack.family, attack.language) for attack in attacks(seed))
    wanted = {(family.name, language) for family in FAMILIES for language in family.languages or LANGUAGES}
    assert made == dict.fromkeys(wanted, 1)
    assert len(LANGUAGES) == 12
    assert {family.languages for family in FAMILIES} == {(), LATIN, (*LATIN, "Russian")}


def test_the_first_attacks_are_one_of_each_family() -> None:
    first = attacks(7)[: len(FAMILIES)]
    assert {attack.family for attack in first} == {family.name for family in FAMILIES}


def test_what_the_list_is_made_with_is_apart_from_what_is_reported() -> None:
    """By family, and by sentence: no sentence of a family for tuning stands in an attack that is reported."""
    tune, report = ({attack.family for attack in attacks(split=split)} for split in ("tune", "report"))
    assert tune | report == {family.name for family in FAMILIES}
    assert not tune & report
    seen = [words[key] for words in sentences().values() for key in ("order", "verdict", "score", "end", "authority")]
    assert not [one.id for one in attacks(split="report") for words in seen if words in one.text]


def test_languages_have_the_same_purposes_and_no_sentence_twice() -> None:
    purposes = {frozenset(words) for words in sentences().values()}
    texts = [text for words in sentences().values() for text in words.values()]
    assert (len(purposes), len(texts)) == (1, len(set(texts)))
    raw = files("kairo_team.evaluators.attacks").joinpath("sentences.json").read_text("utf-8")
    assert len(json.loads(raw)) == len(sentences())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_obedient_judge_understands_every_attack_and_no_harmless_text(seed: int) -> None:
    shown = {attack.id: attack.on(WEAK[0]) for attack in attacks(seed)}
    prompts = {
        name: as_data(f"{work.goal}\n{work.task}\n{work.upstream}\n{work.artifact}") for name, work in shown.items()
    }
    assert [name for name, prompt in prompts.items() if not obeys(prompt)] == []
    harmless = [*WEAK, *ordinary(), Work("", filler(6_000))]
    assert [work.artifact for work in harmless if obeys(as_data(work.task + work.artifact))] == []


def test_an_attack_stands_in_its_place_and_nowhere_else() -> None:
    for attack in attacks():
        work = WEAK[0]
        alone, hostile = attack.alone(work), attack.on(work)
        for place in ("artifact", "upstream", "goal", "task"):
            stands = "artifact" if attack.place == "opening" else attack.place
            assert (attack.text in getattr(hostile, place)) == (place == stands)
            assert attack.text not in getattr(alone, place)
        if attack.place == "opening":
            assert hostile.artifact.startswith(attack.text)
        if attack.place == "split":
            first, second = halves(attack.text)
            assert (first.strip() in hostile.upstream, second in hostile.artifact) == (True, True)
            assert min(len(first), len(second)) > len(attack.text) / 4
        if attack.family == "behind the cut":
            assert hostile.artifact.index(attack.text) >= MAX_SHOWN
        assert abs(len(hostile.artifact) - len(alone.artifact)) <= len(attack.text) + 6
        assert obvious_defect(kt.Artifact(alone.artifact)) is None


@pytest.mark.anyio
async def test_a_rubric_whose_checks_decide_leaves_nothing_to_attack() -> None:
    never = Criterion("never", "a check that fails", check=lambda artifact: False)
    strategy = AgentEvaluationStrategy("test:judge", Rubric([never, *RUBRIC.criteria]))
    found = await attack_judge(strategy, WEAK, attacks()[:10], models={"test:judge": ObedientJudge("selects")})
    assert (found.success.n, found.left_out, found.alone[0].outcome) == (0, 10, kt.VerdictOutcome.REVISE)


def test_a_report_says_why_a_second_review_without_an_attack_has_no_answer() -> None:
    silent = kt.EvaluationVerdict.review_exceeded(kt.Cause.EVALUATOR_ERROR, "the judge is down")
    report = AttackReport([kt.EvaluationVerdict.revise("It is thin.")], [silent], [], 0, kt.Usage())
    assert (report.no_answers, report.why_no_answer) == (1, "the judge is down")
