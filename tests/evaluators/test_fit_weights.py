"""`fit_weights`: a judge of a panel counts as much as it was right on labelled examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.abc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.errors import KairoError, NoAnswer
from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    LabelledArtifact,
    PanelEvaluationStrategy,
    Proportion,
    Rubric,
    fit_weights,
    score_judge,
)
from kairo_team.evaluators.calibration.weights import weight_of
from kairo_team.testing import FunctionModel, MemoryJournal, ScriptedJudge
from tests.evaluators.test_judge_question import TEXT, gate

pytestmark = pytest.mark.anyio
RUBRIC = Rubric([gate()])


class Errs(ScriptedJudge):
    """Is wrong about every n-th text; 0: never."""

    def __init__(self, each: int, name: str = "test:judge") -> None:
        super().__init__(self._says, name=name)
        self.each = each

    def _says(self, _: str, work: str) -> str:
        if not work.rsplit(maxsplit=1)[-1].isdigit():
            return "met"  # the library's own text
        number = int(work.rsplit(maxsplit=1)[-1])
        good = number % 2 == 1
        wrong = self.each and number % self.each == 0
        return "met" if good != wrong else "not met"


def labels(count: int, *, start: int = 0) -> list[LabelledArtifact]:
    return [LabelledArtifact(f"{TEXT} {n}", "Explain tides.", passed=n % 2 == 1) for n in range(start, start + count)]


def panel(*judges: Any, **fields: Any) -> PanelEvaluationStrategy:
    return PanelEvaluationStrategy(judges or three(), RUBRIC, **fields)


def three() -> Sequence[Errs]:
    return [Errs(0, "test:a"), Errs(5, "test:b"), Errs(1, "test:c")]


async def test_a_judge_that_is_right_more_often_counts_more() -> None:
    found = await fit_weights(panel(), labels(40))
    assert [str(one).split(",")[0] for one in found.right] == ["40 of 40", "32 of 40", "0 of 40"]
    assert found.weights == (round(math.log(41), 2), round(math.log(33 / 9), 2), 0.01)
    assert found.quorum == round(sum(found.weights) / 2 + 0.01, 2)
    assert found.usage.tokens > 0
    weighted = panel(quorum=found.quorum, weights=found.weights)
    other = labels(40, start=100)
    assert (await score_judge(weighted, other)).report.decisions.agreed.k == 40
    assert (await score_judge(panel(), other)).report.decisions.agreed.k == 32


@settings(max_examples=30)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 200))
def test_a_weight_grows_with_what_is_right_and_is_above_zero(right: int, more: int, wrong: int) -> None:
    one, other = (weight_of(Proportion(k, right + more + wrong)) for k in (right, right + more))
    assert 0 < one <= other


async def test_what_cannot_be_fitted_is_refused_before_a_judge_is_asked() -> None:
    judges = three()
    for some, why in (
        (labels(19), r"at least 20 labelled examples, not 19: label more"),
        ([one for one in labels(60) if one.passed], r"that a human does not pass, not 30 and 0"),
        ([*labels(8), *(one for one in labels(60, start=9) if one.passed)], r"not 34 and 4"),
        ([], "at least one"),
        (labels(5) * 10, "not 5"),
    ):
        with pytest.raises(ValueError, match=why):
            await fit_weights(panel(*judges), some)
    alone: Any = AgentEvaluationStrategy("test:judge", RUBRIC)
    with pytest.raises(ValueError, match="weights are for the judges of a PanelEvaluationStrategy, not for"):
        await fit_weights(alone, labels(20))
    with pytest.raises(ValueError, match="concurrency must be a whole number >= 1, not 0"):
        await fit_weights(panel(*judges), labels(20), concurrency=0)
    assert not any(one.calls for one in judges)


@pytest.mark.parametrize("each", [0, 1])
async def test_equal_judges_are_refused(each: int) -> None:
    shares = "20 of 20" if each == 0 else "0 of 20"
    with pytest.raises(ValueError, match=f"the judges get equal weights.*they are right in {shares}, {shares}"):
        await fit_weights(panel(Errs(each, "test:a"), Errs(each, "test:b")), labels(20))


async def test_a_judge_that_never_answers_is_refused_with_its_reason() -> None:
    broken = FunctionModel(lambda _: "hm", name="test:broken")
    with pytest.raises(ValueError, match=r"the judge .* decided none of 20 examples, the last: .*no JSON object"):
        await fit_weights(panel(Errs(0, "test:a"), broken), labels(20))
    unknown: Any = "nowhere:model"
    with pytest.raises(ValueError, match=r"the judge 'nowhere:model' decided none of 20 examples, the last: .*nowhere"):
        await fit_weights(panel(Errs(0, "test:a"), unknown), labels(20))


async def test_it_stays_within_the_budget() -> None:
    whole = await fit_weights(panel(), labels(20))
    judges = three()
    with pytest.raises(NoAnswer, match="the fit of weights has no answer: it ended"):
        await fit_weights(panel(*judges), labels(20), budget=kt.Budget(tokens=whole.usage.tokens // 2))
    assert 0 < sum(len(one.calls) for one in judges) < 40


async def test_judges_are_replaced_by_name_and_vote() -> None:
    judges = dict(zip("abc", three(), strict=True))
    found = await fit_weights(panel("a", "b", "c", votes=3), labels(20), models=judges)
    assert [one.n for one in found.right] == [20, 20, 20]
    assert {len(one.calls) for one in judges.values()} == {40}


async def test_a_resumed_fit_asks_nothing_again() -> None:
    journal, begun, reached = MemoryJournal(), three(), anyio.Event()

    class Dies(Errs):
        async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
            if len(self.calls) == 9:
                journal.crash()
                reached.set()
                await anyio.sleep_forever()
            return await super().complete(request)

    async def dying(group: anyio.abc.TaskGroup) -> None:
        await reached.wait()
        group.cancel_scope.cancel()

    first = [*begun[:2], Dies(1, "test:c")]
    async with anyio.create_task_group() as group:
        group.start_soon(dying, group)
        await fit_weights(panel(*first), labels(20), journal=journal, run_id="fit", concurrency=1)
    there = journal.elsewhere()
    rest = three()
    with pytest.raises(KairoError, match="weights-"):
        await fit_weights(panel(*rest), labels(22), journal=there, run_id="fit")
    assert not any(one.calls for one in rest)
    found = await fit_weights(panel(*rest), labels(20), journal=there, run_id="fit")
    assert [len(one.calls) + len(other.calls) for one, other in zip(first, rest, strict=True)] == [20, 20, 20]
    again = three()
    assert await fit_weights(panel(*again), labels(20), journal=there, run_id="fit") == found
    assert not any(one.calls for one in again)
    assert found.weights == (await fit_weights(panel(), labels(20))).weights
