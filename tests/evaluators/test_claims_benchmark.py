"""The table of docs/evaluation.md on claims against sources."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks import claims
from kairo_team.evaluators.claims import sentences_of

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evaluation.md"


def test_each_unfaithful_work_has_one_claim_without_support_and_each_faithful_one_none() -> None:
    for works in claims.LABELLED:
        counts = [sum(one in claims.UNSUPPORTED for one in sentences_of(work)) for work in works]
        assert counts == [0, 0, 1, 1]


@pytest.mark.exhaustive  # it counts a table of the docs
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])  # it asks nothing of the event loop
async def test_the_table_is_what_is_counted() -> None:
    assert await claims.draw() in PAGE.read_text("utf-8")
