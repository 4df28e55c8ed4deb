"""The tables of docs/calibration.md and docs/strategies.md from people's labels and the answers of real judges."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks import real_labels

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.sampled("anyio_backend"),
    pytest.mark.skipif(
        real_labels.folder() is None,
        reason="the answers of real judges are not here: ../shared/judge-data of the repository",
    ),
]

DOCS = Path(__file__).resolve().parents[2] / "docs"
LEAST = 90
"""Redraws of a hundred in which all promises must be true."""


@pytest.mark.sampled
@pytest.mark.parametrize("judge", real_labels.ROWS)
def test_the_promise_is_kept_on_every_real_judge(judge: str) -> None:
    kept, promised, decided = real_labels.promises(judge)
    assert kept >= LEAST
    assert (promised > 0) == (decided > 0)


@pytest.mark.exhaustive  # it counts tables of the docs
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])  # it asks nothing of the event loop
async def test_the_tables_of_panels_orders_and_people_are_what_is_counted() -> None:
    strategies = DOCS.joinpath("strategies.md").read_text("utf-8")
    assert real_labels.draw_orders() in strategies
    assert await real_labels.draw_panels() in strategies
    assert await real_labels.draw_votes() in strategies
    assert real_labels.draw_people() in DOCS.joinpath("calibration.md").read_text("utf-8")


def test_what_is_fitted_on_is_never_what_is_reported() -> None:
    fitted, other = real_labels.halves()
    assert {one.artifact for one in fitted}.isdisjoint(one.artifact for one in other)
    assert len(fitted) + len(other) == len(real_labels.labelled())


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])  # it runs the command line sixteen times
async def test_the_table_of_the_commands_is_what_they_print() -> None:
    assert real_labels.draw_calibration() in DOCS.joinpath("calibration.md").read_text("utf-8")
