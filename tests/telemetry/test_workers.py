"""What a worker tells becomes metrics that its operator watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cluster.facts import (
    BudgetAsked,
    DeliveryRefused,
    Measuring,
    UnitBegun,
    UnitEnded,
    UnitReaped,
    WorkerRestarted,
)
from kairo_team.errors import JournalError
from kairo_team.views import telemetry_metrics
from tests.telemetry.traced import Traced

TEAM = {"gen_ai.workflow.name": "desk"}


@pytest.fixture
def traced() -> Traced:
    return Traced()


def measuring(traced: Traced, silence: Callable[[], float | None] = lambda: 0.5) -> Callable[[Any], object]:
    assert isinstance(traced.subscriber, Measuring)
    return traced.subscriber.measure_worker("desk", silence)


def values(traced: Traced, name: str) -> list[tuple[dict[str, Any], Any]]:
    return [(dict(one.attributes), one.value) for one in traced.points(name)]


def test_units_are_counted_while_they_are_under_way(traced: Traced) -> None:
    tell = measuring(traced)
    tell(UnitBegun("run", 0.25))
    tell(UnitBegun("attempt", 0.5))
    tell(UnitBegun("attempt", 1.5))
    tell(UnitEnded("attempt", "finished"))
    name = "kairo.worker.active_units"
    assert values(traced, name) == [
        ({**TEAM, "kairo.unit.kind": "run"}, 1),
        ({**TEAM, "kairo.unit.kind": "attempt"}, 1),
    ]
    waits = {one.attributes["kairo.unit.kind"]: one for one in traced.points("kairo.worker.delivery.wait_time")}
    assert (waits["run"].count, waits["run"].sum) == (1, 0.25)
    assert (waits["attempt"].count, waits["attempt"].sum) == (2, 2.0)


def test_deliveries_are_counted_by_what_came_of_them(traced: Traced) -> None:
    tell = measuring(traced)
    tell(UnitBegun("run", 0.0))
    tell(UnitEnded("run", "given_back"))
    tell(DeliveryRefused())
    tell(DeliveryRefused())
    assert values(traced, "kairo.worker.deliveries") == [
        ({**TEAM, "kairo.unit.kind": "run", "kairo.outcome": "given_back"}, 1),
        ({**TEAM, "kairo.outcome": "refused"}, 2),
    ]


def test_waits_for_budget_take_their_seconds(traced: Traced) -> None:
    tell = measuring(traced)
    tell(BudgetAsked(0.5, "granted"))
    tell(BudgetAsked(2.0, "refused"))
    points = traced.points("kairo.worker.budget.wait_time")
    assert [(one.attributes["kairo.outcome"], one.count, one.sum) for one in points] == [
        ("granted", 1, 0.5),
        ("refused", 1, 2.0),
    ]


def test_what_was_taken_from_the_dead_and_how_often_it_began_anew_are_counted(traced: Traced) -> None:
    tell = measuring(traced)
    tell(UnitReaped("attempt"))
    tell(WorkerRestarted())
    assert values(traced, "kairo.worker.reaped_units") == [({**TEAM, "kairo.unit.kind": "attempt"}, 1)]
    assert values(traced, "kairo.worker.restarts") == [(TEAM, 1)]


@pytest.mark.parametrize(("silence", "found"), [(0.75, [(TEAM, 0.75)]), (None, [])])
def test_its_silence_is_read_when_metrics_are(traced: Traced, silence: float | None, found: list[Any]) -> None:
    measuring(traced, lambda: silence)
    assert values(traced, "kairo.worker.silence") == found


def test_seconds_and_counts_have_the_units_of_the_conventions(traced: Traced) -> None:
    tell = measuring(traced)
    for fact in (
        UnitBegun("run", 0.0), UnitEnded("run", "finished"), BudgetAsked(0.0, "granted"), UnitReaped("run"),
        WorkerRestarted(),
    ):  # fmt: skip
        tell(fact)
    assert traced.units("kairo.worker.") == {
        "kairo.worker.active_units": "{unit}",
        "kairo.worker.deliveries": "{delivery}",
        "kairo.worker.delivery.wait_time": "s",
        "kairo.worker.budget.wait_time": "s",
        "kairo.worker.reaped_units": "{unit}",
        "kairo.worker.restarts": "{restart}",
        "kairo.worker.silence": "s",
    }


def test_a_journal_that_cannot_be_read_is_asked_once_for_each_collection(
    traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away takes its time to say so, and a collection has a dozen metrics."""
    asked: list[object] = []

    def unreadable(journal: object) -> Any:
        asked.append(journal)
        raise JournalError("runs.db", "it is away")

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    monkeypatch.setattr(telemetry_metrics, "read_metrics", unreadable)
    monkeypatch.setattr(telemetry_metrics, "_SAME_COLLECTION", 60.0)
    traced.subscriber.measure_journal(journal)
    assert traced.points("kairo.runs") == []
    assert asked == [journal]
    journal.close()
