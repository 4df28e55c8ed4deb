"""Whoever pays: a run cut at any commit goes on to the same end, and no finished call is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durable import growing_payers, judge_payers, payers, talk_payers
from tests.durable.cuts import SAMPLE, check_cuts
from tests.durable.payers import Payer

pytestmark = pytest.mark.real_time

PAYERS: list[type[Payer]] = [
    payers.Members, payers.Budgeted, payers.Guarded, payers.Broken, payers.Looping, payers.Streaming, payers.Nested,
    payers.SideBySide, payers.Planned, payers.Frugal, payers.AgentPlans, payers.Retries, payers.Fallbacks, payers.Flaky,
    payers.Debate, payers.Supervised, payers.HandsOver, judge_payers.Judges, judge_payers.AgentJudge,
    judge_payers.Panel, judge_payers.Cascade, judge_payers.Pairs, judge_payers.Tries, judge_payers.Talks,
    judge_payers.Eval, talk_payers.Chats, talk_payers.ReviewedChats, growing_payers.Grows, growing_payers.GrowsInside,
]  # fmt: skip
CASES = [(kind, backend) for kind in PAYERS for backend in kind.backends]
IDS = [f"{kind.__name__}-{backend}" for kind, backend in CASES]


@pytest.mark.parametrize(("kind", "backend"), CASES[:1], ids=IDS[:1])  # the next test makes each cut of all of them
def test_whoever_pays_a_cut_run_goes_on_to_the_same_end(kind: type[Payer], backend: str, tmp_path: Path) -> None:
    check_cuts(kind, backend, tmp_path, most=SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "backend"), CASES, ids=IDS)
def test_whoever_pays_each_cut_goes_on_to_the_same_end(kind: type[Payer], backend: str, tmp_path: Path) -> None:
    check_cuts(kind, backend, tmp_path, most=None)
