"""A run that is killed anywhere goes on to its end; `benchmarks/kills.py` kills it, and compares with the provider."""

from __future__ import annotations

import pytest

kills = pytest.importorskip("benchmarks.kills", reason="the benchmarks are no part of the wheel")


@pytest.mark.exhaustive
def test_kf_b14_runs_killed_a_hundred_times_lose_nothing_and_pay_nothing_unseen() -> None:
    account = kills.measure(100, seed=1)
    assert account.kills >= 100
    assert account.completed == account.runs
    assert (account.finished_again, account.untraced, account.mismatches) == (0, 0, 0)
