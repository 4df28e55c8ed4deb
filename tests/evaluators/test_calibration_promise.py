"""What calibration promises holds in at least 1 - delta of 1,000 draws; without any of its parts it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kairo_team.evaluators.calibration import thresholds
from kairo_team.evaluators.calibration.thresholds import Reviewed, Side, choose
from tests.evaluators.calibration_rig import SIMULATIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "calibration.md"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "at the edge" else pytest.mark.exhaustive) for name in SIMULATIONS]
)
def test_the_promise_holds(name: str) -> None:
    simulation = SIMULATIONS[name]
    held, made = simulation.run()
    assert held >= 1 - simulation.delta
    assert f"| {name} | {held:.1%} | {made:.1%} |\n" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["a good judge", "few bad ones", "a cascade", "later attempts are harder"])
def test_a_judge_that_is_good_enough_gets_a_certificate(name: str) -> None:
    _, made = SIMULATIONS[name].run(draws=200)
    assert made > 0.9


# ---------------------------------------------------------------- without one of its parts


def without_the_bound(monkeypatch: pytest.MonkeyPatch) -> Any:
    def share(k: int, n: int, delta: float) -> float:
        return k / n if n else 1.0

    monkeypatch.setattr(thresholds, "upper_bound", share)
    return choose


def the_strictest_where_none_holds(monkeypatch: pytest.MonkeyPatch) -> Any:
    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        walks = choose(reviewed, alphas, delta, **how)
        return {
            place: replace(walk, chosen=walk.chosen or next((s for s in walk.steps if s.n >= walk.needed), None))
            for place, walk in walks.items()
        }

    return chooser


def the_whole_delta_for_each_side(monkeypatch: pytest.MonkeyPatch) -> Any:
    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        return choose(reviewed, alphas, delta * len(alphas), **how)

    return chooser


def attempts_mixed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        first = choose([replace(one, attempt=1) for one in reviewed], alphas, delta, **how)
        return {(bucket, side): walk for (_, side), walk in first.items() for bucket in ("1", "2", "3+")}

    return chooser


MUTANTS = {
    without_the_bound: "at the edge",
    the_strictest_where_none_holds: "hopeless",
    the_whole_delta_for_each_side: "at the edge",
    attempts_mixed: "later attempts are harder",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_catches(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = SIMULATIONS[MUTANTS[mutant]]
    held, _ = simulation.run(mutant(monkeypatch))
    assert held < 1 - simulation.delta
    assert f"| {mutant.__name__.replace('_', ' ')} | {held:.1%} |\n" in PAGE.read_text(encoding="utf-8")
