"""Whatever befalls workers, coordinators and the database: nothing is lost, paid twice, overspent or left over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.server import need_postgres

chaos: Any = pytest.importorskip("benchmarks.chaos.__main__", reason="the benchmarks are no part of the wheel")
account: Any = pytest.importorskip("benchmarks.chaos.account", reason="the benchmarks are no part of the wheel")


# The first one is a step of CI.
@pytest.mark.parametrize(
    ("faults", "pooled"),
    [
        pytest.param(100, True, id="100-behind-a-pooler"),
        pytest.param(100, False, id="100-on-the-database"),
        pytest.param(500, True, id="500-behind-a-pooler"),
    ],
)
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_after_many_faults_with_each_engine_nothing_is_wrong(tmp_path: Path, faults: int, pooled: bool) -> None:
    need_postgres()
    with ThreadPoolExecutor(2) as engines:
        measured = [
            engines.submit(chaos.measure, engine, faults, 11, tmp_path, pooled=pooled, pace=0.9, beat=0.5)
            for engine in ("procrastinate", "dbos")
        ]
        accounts = [one.result()[0] for one in measured]
    for found in accounts:
        assert found.faults >= faults
        assert found.completed > 0
        assert found.wrong == 0, found.problems


def test_an_account_counts_as_wrong_what_must_be_0() -> None:
    right = account.Account(faults=1, runs=2, completed=1, out_of_budget=1, calls=3, in_doubt=1)
    assert right.wrong == 0
    for name in ("lost", "paid_twice", "unseen", "overspent", "mismatches", "zombies", "stuck", "left_over"):
        assert (right + account.Account(**{name: 1})).wrong == 1, name
    assert len(astuple(right)) == 15
