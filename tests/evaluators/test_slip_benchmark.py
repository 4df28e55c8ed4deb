"""The tables of docs/evaluation.md on good work that an erring judge refuses, and on what a question costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks import slips
from kairo_team.evaluators import AgentEvaluationStrategy

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evaluation.md"
MOST = {"1%": 1.5, "3%": 5.0, "5%": 12.0}
"""Percent of good works that may be refused with four criteria, by the share of slips."""


@pytest.mark.exhaustive
async def test_one_more_question_saves_most_of_what_a_slip_would_cost() -> None:
    once = await slips.refused(0.03, 4, slips.AskedOnce, 300)
    twice = await slips.refused(0.03, 4, AgentEvaluationStrategy, 300)
    assert (once.k > 60, twice.k < 30) == (True, True)


async def test_without_slips_nothing_is_refused() -> None:
    for criteria in slips.CRITERIA:
        assert (await slips.refused(0.0, criteria, AgentEvaluationStrategy, 20)).k == 0


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])  # it takes minutes, and asks nothing of the event loop
async def test_the_table_of_refused_work_is_what_is_counted_and_keeps_its_bounds() -> None:
    table = await slips.draw()
    assert table in PAGE.read_text("utf-8")
    for row in table.splitlines()[2:]:
        criteria, rate, _, again, _ = (cell.strip() for cell in row.strip("|").split("|"))
        if criteria == "4":
            assert float(re.findall(r"([0-9.]+)%", again)[0]) < MOST[rate]


async def test_the_table_of_tokens_is_what_is_counted() -> None:
    assert await slips.draw_tokens() in PAGE.read_text("utf-8")
