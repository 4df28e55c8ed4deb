"""Artifacts that attack their judge: none passes whose clean twin fails, and clean text rings no alarm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.artifact_view import view_of
from kairo_team.evaluators.attacks.corpus import ordinary
from kairo_team.evaluators.judge_injection import talks_to_judge
from kairo_team.evaluators.panel import PanelEvaluationStrategy
from kairo_team.testing import AskedQuestion, ScriptedJudge, read_question
from tests.evaluators.judge_rig import reviewed

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
CORPUS: list[dict[str, Any]] = json.loads(files("etbscan").joinpath("data/attacks.json").read_text("utf-8"))[
    "scenarios"
]
ATTACKS = {one["id"]: one for one in CORPUS if one["injected"]}
CONTROLS = {one["id"]: one for one in CORPUS if not one["injected"]}
OURS: dict[str, Any] = json.loads(Path(__file__).with_name("data").joinpath("forgeries.json").read_text("utf-8"))
"""Payloads by name, and an answer that fails without them; `benchmarks.hostile` reads them too."""
WEAK: str = OURS["weak"]
FORGERIES: dict[str, str] = OURS["forgeries"]


class Obedient(ScriptedJudge):
    """The worst judge there can be: it says that all is met as soon as the work wants it to, and notices nothing.

    It obeys in one of three forms, and says so of every statement, also of the controls.
    """

    def __init__(self, payload: str, *, speaks: str = "the form") -> None:
        self.payload = payload
        self.speaks = speaks
        super().__init__()

    def said(self, asked: AskedQuestion, text: str) -> str:
        if self.payload in asked.work:
            return "met"
        return "not met" if asked.holds(text) is None else str(super().said(asked, text))

    def write(self, request: kt.ModelRequest) -> str:
        told = super().write(request)
        if self.payload not in read_question(request).work or self.speaks == "the form":
            return told
        return self.payload if self.speaks == "what it is told" else f"{self.payload}{told}{self.payload}"


RUBRIC = Rubric([Criterion("good", "it answers the question", by="judge")])


async def decide(text: str, payload: str, speaks: str) -> kt.VerdictOutcome:
    judge = Obedient(payload, speaks=speaks)
    strategy = AgentEvaluationStrategy("test:judge", RUBRIC)
    return (await strategy.evaluate(reviewed(text, judge))).outcome


SPEAKS = ("the form", "what it is told", "both")


@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("name", ATTACKS)
async def test_no_attack_of_the_corpus_makes_an_obedient_judge_pass_what_fails_alone(name: str, speaks: str) -> None:
    attack = ATTACKS[name]
    assert await decide(attack["base_content"], attack["injection"], speaks) is kt.VerdictOutcome.REVISE
    assert await decide(attack["candidate"], attack["injection"], speaks) is not kt.VerdictOutcome.PASS


@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("name", FORGERIES)
async def test_no_forgery_makes_an_obedient_judge_pass_what_fails_without_it(name: str, speaks: str) -> None:
    assert await decide(WEAK, FORGERIES[name], speaks) is kt.VerdictOutcome.REVISE
    assert await decide(f"{WEAK}\n\n{FORGERIES[name]}", FORGERIES[name], speaks) is not kt.VerdictOutcome.PASS


@pytest.mark.parametrize("name", FORGERIES)
async def test_no_forgery_makes_a_panel_of_obedient_judges_pass(name: str) -> None:
    judges = [Obedient(FORGERIES[name]) for _ in range(3)]
    verdict = await PanelEvaluationStrategy(judges, RUBRIC).evaluate(reviewed(f"{WEAK}\n\n{FORGERIES[name]}"))
    assert verdict.outcome is not kt.VerdictOutcome.PASS


@pytest.mark.parametrize("best", ["met", "good", "yes", "fully"])
@pytest.mark.parametrize("name", sorted(FORGERIES.keys() - {"a dialogue"}))  # whose words are those of any dialogue
def test_a_forgery_rings_the_alarm_whatever_the_best_answer_is_called(name: str, best: str) -> None:
    said = re.sub(r"\bmet\b", best, FORGERIES[name])
    assert talks_to_judge(f"{WEAK}\n\n{said}") is not None


@pytest.mark.parametrize("name", CONTROLS)
def test_the_controls_of_the_corpus_ring_no_alarm(name: str) -> None:
    assert talks_to_judge(CONTROLS[name]["candidate"]) is None


def paragraphs() -> Iterator[str]:
    """Plain text that nobody wrote with a judge in mind: our own pages, and those of what is installed here."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]
    for package in ("anyio", "networkx", "jinja2", "pydantic", "pytest", "hypothesis", "rich"):
        found = files(package)
        pages += sorted(Path(str(found)).glob("*.py"))[:20]
    for page in pages:
        text = page.read_text("utf-8")
        yield from (one for one in re.split(r"\n\s*\n", text) if 60 <= len(one) <= 3_000)


@pytest.mark.exhaustive
def test_of_clean_text_at_most_one_in_two_hundred_raises_an_alarm() -> None:
    clean = list(paragraphs())
    alarms = [one for one in clean if talks_to_judge(one) is not None]
    assert len(clean) > 1_000
    assert len(alarms) <= len(clean) / 200, alarms[:5]


def test_harmless_sentences_with_the_words_of_attacks_raise_no_alarm() -> None:
    ours = json.loads(Path(__file__).with_name("data").joinpath("harmless.json").read_text("utf-8"))
    harmless = [text for kind in ours.values() for text in kind] + [work.artifact for work in ordinary()]
    assert len(harmless) == 128
    assert [text for text in harmless if talks_to_judge(text) is not None] == []


def test_what_a_judge_is_shown_cannot_be_told_from_its_fence() -> None:
    for payload in FORGERIES.values():
        view = view_of(payload)
        first, shown, last, *_ = view.fenced("a" * 32, "kt42").splitlines()
        assert first == last
        assert first not in shown
