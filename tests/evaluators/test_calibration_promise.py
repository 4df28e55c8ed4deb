"""What calibration promises holds in at least 1 - delta of 1,000 draws; without any of its parts it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kairo_team.evaluators.calibration import thresholds
from kairo_team.evaluators.calibration.thresholds import Reviewed, Side, Walk, choose
from tests.evaluators.calibration_rig import SIMULATIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "calibration.md"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "at the edge" else pytest.mark.exhaustive) for name in SIMULATIONS]
)
def test_the_promise_holds(name: str) -> None:
    simulation = SIMULATIONS[name]
    found = simulation.run()
    assert found.held >= 1 - simulation.delta
    row = f"| {name} | {found.held:.1%} | {found.made:.1%} | {found.covered:.1%} |\n"
    assert row in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["a good judge", "seldom wrong", "few bad ones", "a cascade", "later attempts are harder"]
)
def test_a_judge_that_is_good_enough_gets_a_certificate(name: str) -> None:
    assert SIMULATIONS[name].run(draws=200).made > 0.9


@pytest.mark.exhaustive
def test_the_start_pays_where_a_judge_errs_also_where_it_is_surest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the walk that starts where zero errors are allowed."""
    simulation = SIMULATIONS["seldom wrong"]
    found = simulation.run()
    monkeypatch.setattr(thresholds, "START", 0.0)
    before = simulation.run()
    assert min(found.held, before.held) >= 1 - simulation.delta
    said = f"allowed decides {before.covered:.1%} by itself instead of {found.covered:.1%}."
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())


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


def a_start_that_reads_the_labels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """It begins at the first threshold that holds."""

    def first(walk: Walk) -> int:
        holds = (n for n, step in enumerate(walk.steps) if step.n >= walk.needed and step.bound <= walk.alpha)
        return next(holds, len(walk.steps))

    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        walks = choose(reviewed, alphas, delta, **how)
        return {
            place: replace(walk, chosen=next((s for s in walk.steps[first(walk) :]), None))
            for place, walk in walks.items()
        }

    return chooser


def on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """It takes the laxest threshold that holds, whatever those before it do."""

    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        walks = choose(reviewed, alphas, delta, **how)
        return {
            place: replace(walk, chosen=next((s for s in reversed(walk.steps) if s.bound <= walk.alpha), None))
            for place, walk in walks.items()
        }

    return chooser


def the_best_of_several_starts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """It tries starts and keeps the one that decides most."""

    def chooser(reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, **how: bool) -> Any:
        tried: list[dict[Any, Walk]] = []
        for start in (0.0, 0.2, 0.4, 0.6, 0.8):
            monkeypatch.setattr(thresholds, "START", start)
            tried.append(choose(reviewed, alphas, delta, **how))
        return {
            place: max((walks[place] for walks in tried), key=lambda walk: walk.chosen.n if walk.chosen else -1)
            for place in tried[0]
        }

    return chooser


MUTANTS = {
    a_start_that_reads_the_labels: "at the edge everywhere",
    on_after_a_failure: "at the edge everywhere",
    the_best_of_several_starts: "at the edge everywhere",
    without_the_bound: "at the edge",
    the_strictest_where_none_holds: "hopeless",
    the_whole_delta_for_each_side: "at the edge",
    attempts_mixed: "later attempts are harder",
}


@pytest.mark.sampled
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_catches(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = SIMULATIONS[MUTANTS[mutant]]
    held = simulation.run(mutant(monkeypatch)).held
    assert held < 1 - simulation.delta
    assert f"| {mutant.__name__.replace('_', ' ')} | {held:.1%} |\n" in PAGE.read_text(encoding="utf-8")
