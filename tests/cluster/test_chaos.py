"""Whatever befalls workers, coordinators and the database: nothing is lost, paid twice, overspent or left over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.server import need_postgres

chaos: Any = pytest.importorskip("benchmarks.chaos.__main__", reason="the benchmarks are no part of the wheel")
observer: Any = pytest.importorskip("benchmarks.chaos.observer", reason="the benchmarks are no part of the wheel")
stage: Any = pytest.importorskip("benchmarks.chaos.stage", reason="the benchmarks are no part of the wheel")
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


def test_time_passes_by_the_beats_of_the_fastest_worker() -> None:
    """On a slow machine a unit may wait for long; where no worker beats, nobody is late."""
    rows = [[("one", 4), ("two", 9)], [("one", 8), ("two", 10), ("new", 90)], [("one", 8), ("new", 90)], []]
    connection = SimpleNamespace(execute=lambda _sql: SimpleNamespace(fetchall=lambda: rows.pop(0)))
    looking = observer.Observer("", None, 0.5)
    assert [looking._beaten(connection) for _ in range(4)] == [0.0, 1.0, 0.0, 0.0]


async def test_what_is_awaited_may_take_as_long_as_something_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0.0], [0]
    monkeypatch.setattr(stage.time, "monotonic", lambda: now[0])
    made: Any = object.__new__(stage.Stage)
    made.observer = SimpleNamespace(changed=0.0)
    made.problems = list[str]()

    async def sleep(_seconds: float) -> None:
        now[0] += stage.QUIET - 1
        looks[0] += 1
        if looks[0] < 10:
            made.observer.changed = now[0]

    monkeypatch.setattr(stage.anyio, "sleep", sleep)
    assert await made.expect(lambda: looks[0] == 10, lambda: "it never comes")
    assert not await made.expect(lambda: False, lambda: "it never comes")
    assert made.problems == ["it never comes"]
