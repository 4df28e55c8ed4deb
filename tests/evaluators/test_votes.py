"""`votes=k`: a judge is asked until its votes are decided, and their share is its confidence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    CalibratedEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    PairwiseStrategy,
    PanelEvaluationStrategy,
    Rubric,
    calibrate,
)
from kairo_team.evaluators.criterion import Answer
from kairo_team.evaluators.judge_question import WORDINGS
from kairo_team.evaluators.judge_reply import Judgement, are_decided, counted, is_decided, leading, share
from kairo_team.testing import MemoryJournal, ScriptedJudge, ScriptedModel, ScriptedPairJudge, read_question
from tests.evaluators.judge_rig import reviewed
from tests.evaluators.test_judge_question import LEVELS, TEXT, gate, verdict_of
from tests.evaluators.test_slips import Slips

pytestmark = pytest.mark.anyio
LEVEL = st.sampled_from(["no", "partly", "yes", None])
SAID = st.lists(LEVEL, min_size=1, max_size=9)


class Wavers(ScriptedJudge):
    """Says the next level in each question, and the last of them after that."""

    def __init__(self, *levels: str, **fields: Any) -> None:
        super().__init__(lambda *_: levels[min(len(self.calls), len(levels)) - 1], **fields)


# ---------------------------------------------------------------- laws of the count


def until_decided(said: list[str | None]) -> list[str | None]:
    return next(said[:n] for n in range(1, len(said) + 1) if is_decided(said[:n], len(said)))


@given(SAID)
def test_votes_stop_exactly_when_nothing_that_is_left_could_change_the_answer(said: list[str | None]) -> None:
    votes = len(said)
    for n in range(1, votes):
        left = itertools.combinations_with_replacement(["no", "partly", "yes", "other", None], votes - n)
        ends = {leading([*said[:n], *rest]) for rest in left}
        assert is_decided(said[:n], votes) == (len(ends) == 1)
    assert leading(until_decided(said)) == leading(said) or not leading(said)[0]


@given(SAID, st.randoms(use_true_random=False))
def test_the_order_of_votes_does_not_matter(said: list[str | None], lots: Any) -> None:
    other = list(said)
    lots.shuffle(other)
    assert leading(until_decided(said))[0] == leading(until_decided(other))[0]
    if leading(said)[0]:
        assert leading(until_decided(said)) == leading(until_decided(other))
    there = votes(said)
    shuffled = lots.sample(there, len(there))
    assert counted(there, [judged()], len(said), "") == counted(shuffled, [judged()], len(said), "")


@given(SAID)
def test_the_share_is_a_share_and_more_than_half_where_two_levels_are_decided(said: list[str | None]) -> None:
    assert 0 < share(said, len(said)) <= 1
    two = ["no" if one == "no" else "yes" for one in said]
    if leading(two)[0]:
        assert share(until_decided([*two]), len(two)) > 0.5


@given(SAID, st.integers(1, 20))
def test_votes_that_are_missing_never_make_it_surer(said: list[str | None], missing: int) -> None:
    there = Counter(said).most_common(1)[0][1]
    votes = len(said) + missing
    if not is_decided(said, votes):
        assert share(said, votes) == there / votes < share(said, len(said))


def judged(kind: Any = "gate") -> Criterion:
    return gate(levels=LEVELS, kind=kind)


def votes(said: Iterable[str | None]) -> list[Judgement]:
    return [
        Judgement({"plain": Answer(level, f"because {number % 2}")}, 0.5, None) for number, level in enumerate(said)
    ]


def test_an_info_is_neither_waited_for_nor_counted_in_the_confidence() -> None:
    info = replace(judged("info"), id="note")
    given = [Judgement({"plain": Answer("yes"), "note": Answer(level)}, None, None) for level in ("yes", "no")]
    assert are_decided(given, [judged(), info], 3)
    assert not are_decided(given, [info], 3)
    assert counted(given, [judged(), info], 3, "").confidence == 1.0


# ---------------------------------------------------------------- asking


@pytest.mark.parametrize(
    ("says", "asked", "outcome", "sure"),
    [
        (("met", "met", "not met"), 2, "pass", 1.0),
        (("met", "not met", "met"), 3, "pass", 2 / 3),
        (("not met", "met", "not met"), 3, "revise", 2 / 3),
        (("not met", "not met"), 2, "revise", 1.0),
        (("cannot tell", "cannot tell"), 2, "escalate", 1.0),
        (("met", "not met", "cannot tell"), 3, "escalate", 1 / 3),
    ],
)
async def test_three_votes(says: tuple[str, ...], asked: int, outcome: str, sure: float) -> None:
    judge = Wavers(*says, confidence=0.4)
    verdict = await verdict_of(judge, votes=3)
    assert (verdict.outcome.value, len(judge.calls)) == (outcome, asked)
    assert verdict.confidence == pytest.approx(sure)
    if says[-1] == "cannot tell" and "met" in says:
        assert "split: 1 x cannot tell, 1 x met, 1 x not met" in verdict.criteria[0].reason


async def test_one_vote_asks_the_same_to_the_letter() -> None:
    given: list[dict[str, Any]] = [{}, {"trusted": True}]
    for fields in given:
        plain, one, three = ScriptedJudge(), ScriptedJudge(), ScriptedJudge()
        without = await verdict_of(plain, seed=7, **fields)
        assert await verdict_of(one, seed=7, votes=1, **fields) == without
        assert one.calls == plain.calls
        await verdict_of(three, seed=7, votes=3, **fields)
        assert three.calls[0] == plain.calls[0], "the first of several votes is the only one of today"


async def test_each_vote_has_marks_an_order_and_words_of_its_own() -> None:
    words, orders = set[str](), set[tuple[bool, ...]]()
    for seed in range(12):
        judge = Wavers("met", "not met", "met")
        await verdict_of(judge, gate(), gate("other", levels=LEVELS), seed=seed, votes=3)
        asked = [read_question(call) for call in judge.calls]
        assert len({one.token for one in asked}) == len(asked)
        ids = [part.id for one in asked for part in one.statements]
        assert len({*ids}) == len(ids) or seed, "ids are drawn anew"
        orders |= {tuple(one.holds(part.criterion) is None for part in one.statements) for one in asked}
        words |= {one.meets for one in WORDINGS for call in judge.calls if f"work {one.meets} this" in str(call)}
    assert words == {one.meets for one in WORDINGS}
    assert len(orders) > 6


async def test_a_vote_that_cannot_be_paid_is_not_asked_and_the_verdict_says_so() -> None:
    one = await verdict_of(ScriptedJudge())
    for says, outcome, sure in ((["met"], "pass", 1 / 5), (["met", "not met"], "escalate", 1 / 5)):
        judge = Wavers(*says)
        budget = kt.Budget(tokens=one.usage.tokens * len(says) + one.usage.tokens // 2)
        strategy = AgentEvaluationStrategy("test:judge", Rubric([gate()]), votes=5)
        verdict = await strategy.evaluate(reviewed(TEXT, judge, budget=budget))
        assert (verdict.outcome.value, len(judge.calls)) == (outcome, len(says))
        assert verdict.confidence == pytest.approx(sure)
        assert f"{len(says)} of 5 votes were given, because the next cannot be paid: " in verdict.criteria[0].reason


async def test_without_money_for_one_vote_there_is_no_verdict() -> None:
    context = reviewed(TEXT, ScriptedJudge(), budget=kt.Budget(tokens=10))
    verdict = await AgentEvaluationStrategy("test:judge", Rubric([gate()]), votes=3).evaluate(context)
    assert verdict.cause is kt.Cause.JUDGE_BUDGET


async def test_a_vote_with_wrong_controls_ends_the_review() -> None:
    """Otherwise an attack had several tries."""

    class Obeys(ScriptedJudge):
        def said(self, asked: Any, text: str) -> Any:
            return "met" if len(self.calls) == 2 else super().said(asked, text)

    judge = Obeys({"plain": "not met"}, default="met")
    verdict = await verdict_of(judge, votes=5)
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.INJECTION_SUSPECTED)
    assert len(judge.calls) == 3, "two votes, and the library's own text once, however many votes there are"


@pytest.mark.parametrize("about", ["criterion", "control"])
async def test_a_slip_in_a_vote_costs_one_more_question_in_that_vote(about: str) -> None:
    judge = Slips(2, about=about)
    verdict = await verdict_of(judge, votes=3)
    assert (verdict.outcome, verdict.confidence) == (kt.VerdictOutcome.PASS, 1.0)
    assert judge.seen == 3
    assert len({read_question(call).token for call in judge.calls}) == 3


async def test_canaries_of_ones_own_are_in_later_votes_too() -> None:
    judge = ScriptedJudge({"blood group": "not met"})
    for seed in range(30):
        await verdict_of(judge, seed=seed, votes=3, canaries={"it names the blood group": "blood group"})
    later = [call for place, call in enumerate(judge.calls) if place % 2]
    assert any("blood group" in str(call) for call in later)


async def test_votes_and_a_persons_criterion_await_that_person() -> None:
    person = Criterion("legal", "it may be published", by="human")
    verdict = await verdict_of(Wavers("met", "not met", "met"), gate(), person, votes=3)
    assert verdict.awaits_approval
    assert verdict.confidence == pytest.approx(2 / 3)


async def test_very_many_votes_end_with_the_money() -> None:
    judge = Wavers(*["met", "not met"] * 500)
    strategy = AgentEvaluationStrategy("test:judge", Rubric([gate()]), votes=10**9)
    verdict = await strategy.evaluate(reviewed(TEXT, judge, budget=kt.Budget(tokens=30_000)))
    assert len(judge.calls) < 100
    assert verdict.outcome is not kt.VerdictOutcome.REVIEW_EXCEEDED
    assert verdict.confidence is not None
    assert verdict.confidence < 1e-6


async def test_panels_and_pairs_vote_too() -> None:
    judges = [Wavers("met", "not met", "met", name="test:a"), Wavers("met", name="test:b")]
    panel = PanelEvaluationStrategy(judges, Rubric([gate()]), votes=3)
    verdict = await panel.evaluate(reviewed(TEXT))
    assert [len(one.calls) for one in judges] == [3, 2]
    assert verdict.confidence == pytest.approx(2 / 3)
    answers = iter(["first", "second", "second", "first", "first", "second"])
    pair = ScriptedPairJudge(lambda first, _: "first" if first == TEXT else next(answers, "second"))
    found = await PairwiseStrategy("test:judge", votes=3, seed=1).compare(TEXT, "Tides.", reviewed(TEXT, pair))
    assert found.better == "first"
    assert found.confidence in (pytest.approx(2 / 3), 1.0)
    assert len(pair.calls) in (4, 5)


@pytest.mark.parametrize("votes", [0, -1, True, 2.0, "3"])
def test_bad_votes_are_refused(votes: Any) -> None:
    with pytest.raises(ValueError, match=r"votes must be a whole number >= 1, such as 3, not"):
        AgentEvaluationStrategy("test:judge", Rubric([gate()]), votes=votes)
    with pytest.raises(ValueError, match="votes must be"):
        PanelEvaluationStrategy(["test:a", "test:b"], Rubric([gate()]), votes=votes)
    with pytest.raises(ValueError, match=r"Rubric.votes must be a whole number >= 1, such as 3, not"):
        Rubric([gate()], votes=votes)
    with pytest.raises(ValueError, match="votes must be"):
        PairwiseStrategy("test:judge", votes=votes)


async def test_a_rubric_says_how_many_votes_its_judge_has() -> None:
    rubric = Rubric([gate()], votes=3)
    assert AgentEvaluationStrategy("test:judge", rubric).options.votes == 3
    assert PanelEvaluationStrategy(["test:a", "test:b"], rubric).options.votes == 3
    assert AgentEvaluationStrategy("test:judge", rubric, votes=1).options.votes == 1
    assert rubric.digest != Rubric([gate()]).digest
    again = Rubric.from_data(rubric.to_data())
    assert (again.votes, again.digest) == (3, rubric.digest)
    assert "votes" not in Rubric([gate()]).to_data()
    with pytest.raises(ValueError, match="votes"):
        Rubric.from_data({**rubric.to_data(), "votes": 0})


async def test_a_team_of_data_votes(tmp_path: Path) -> None:
    """The judge of the coordinator votes as its rubric says."""
    team = tmp_path / "team.yaml"
    team.write_text(
        """
name: desk
members: [{role: writer, agent: {mini: {model: test:writer}}}]
coordinator:
  expert:
    judge: test:judge
    evaluator: {votes: 3, criteria: [{id: plain, text: it is plain, by: judge}]}
"""
    )
    judge = Wavers("met", "not met", "met")
    runtime = kt.Runtime(models={"test:judge": judge, "test:writer": ScriptedModel([TEXT])})
    made = replace(kt.load_team(team), runtime=runtime)
    result = await kt.run(made, "Explain tides.")
    verdict = result["writer"].verdict
    assert verdict is not None
    assert (len(judge.calls), verdict.outcome) == (3, kt.VerdictOutcome.PASS)
    assert verdict.confidence == pytest.approx(2 / 3)


# ---------------------------------------------------------------- certificates


def by_number(_: str, work: str) -> str:
    return "met" if work == "own" or int(work.rsplit(maxsplit=1)[-1]) % 2 else "not met"


async def test_votes_are_the_confidence_of_calibration_and_part_of_its_certificates() -> None:
    def made(votes: int) -> AgentEvaluationStrategy:
        return AgentEvaluationStrategy(ScriptedJudge(by_number, confidence=0.3), Rubric([gate()]), votes=votes)

    labelled = [LabelledArtifact(f"{TEXT} {n}", "Explain tides.", passed=bool(n % 2)) for n in range(80)]
    found = await calibrate(made(3), labelled, 0.2, 0.2)
    assert {one.threshold for one in found.certificates} == {1.0}
    context = reviewed(f"{TEXT} 1")
    sure = await CalibratedEvaluationStrategy(made(3), found.certificates).evaluate(context)
    assert (sure.outcome, sure.confidence) == (kt.VerdictOutcome.PASS, 1.0)
    for other in (1, 5):
        verdict = await CalibratedEvaluationStrategy(made(other), found.certificates).evaluate(reviewed(f"{TEXT} 1"))
        assert verdict.cause is kt.Cause.LOW_CONFIDENCE
        assert "it was made for another parameters" in verdict.feedback
    one, three = found.certificates[0].subject.parameters, (await calibrate(made(1), labelled[:4])).certificates
    assert not three
    assert one["stages"][0]["votes"][0] == 3


# ---------------------------------------------------------------- a resumed run


async def test_a_resumed_run_asks_no_vote_again() -> None:
    """The process dies in the third vote: the first two are in its journal."""
    journal, reached = MemoryJournal(), anyio.Event()
    rubric = Rubric([gate()])

    def team(judge: ScriptedJudge) -> kt.Team:
        strategy = AgentEvaluationStrategy(judge, rubric, votes=3)
        return kt.Team("desk", [kt.Member("a", lambda _: TEXT)], coordinator=ExpertTeamCoordinator(evaluator=strategy))

    class Dies(Wavers):
        async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
            if len(self.calls) == 2:
                journal.crash()
                reached.set()
                await anyio.sleep_forever()
            return await super().complete(request)

    first, second = Dies("met", "not met"), Wavers("met")

    async def dying(group: anyio.abc.TaskGroup) -> None:
        await reached.wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(dying, group)
        async with kt.Runtime(journal=journal) as runtime:
            await (await runtime.start(team(first), "Explain tides.", run_id="r")).result()
    result = await kt.Runtime(journal=journal.elsewhere()).resume("r", team(second))
    assert [len(one.calls) for one in (first, second)] == [2, 1]
    verdict = result["a"].verdict
    assert verdict is not None
    assert verdict.outcome is kt.VerdictOutcome.PASS
    assert verdict.confidence == pytest.approx(2 / 3)
