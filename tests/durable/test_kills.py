"""A run that is killed anywhere goes on to its end; `benchmarks` kills it, and compares with the provider."""

from __future__ import annotations

from pathlib import Path

import pytest

kills = pytest.importorskip("benchmarks.kills", reason="the benchmarks are no part of the wheel")
soak = pytest.importorskip("benchmarks.soak", reason="the benchmarks are no part of the wheel")


@pytest.mark.exhaustive
@pytest.mark.parametrize("times", [30, pytest.param(100, marks=pytest.mark.long)])
def test_kf_b14_runs_that_are_killed_again_and_again_lose_nothing_and_pay_nothing_unseen(times: int) -> None:
    account = kills.measure(times, seed=1)
    assert account.kills >= times
    assert account.completed == account.runs
    assert (account.finished_again, account.untraced, account.mismatches) == (0, 0, 0)


@pytest.mark.exhaustive
def test_processes_that_share_a_journal_are_killed_stopped_and_taken_over_and_nothing_is_wrong(tmp_path: Path) -> None:
    assert soak.Soak(tmp_path, seed=3).run(minutes=0.5), "what was wrong is printed"
