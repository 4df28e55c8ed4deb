"""What goes wrong in writing a kit down is said at once."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team.errors import ContractBreach, Misuse
from kairo_team.tck import EvaluationStrategyTCK, TeamCoordinatorTCK, run_kit


@pytest.mark.parametrize(
    ("kit", "name", "meant"),
    [
        (EvaluationStrategyTCK, "determinstic", "deterministic"),
        (EvaluationStrategyTCK, "asks_judge", "asks_a_judge"),
        (EvaluationStrategyTCK, "make_stratgy", "make_strategy"),
        (TeamCoordinatorTCK, "support_plan", "supports_plan"),
        (TeamCoordinatorTCK, "backend_", "backend"),
    ],
)
def test_a_misspelt_attribute_is_refused(kit: type[Any], name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"Mine\.{name} is not an attribute of the kit; did you mean '{meant}'"):
        type("Mine", (kit,), {name: True})


def test_attributes_of_ones_own_are_welcome() -> None:
    mine = type("Mine", (EvaluationStrategyTCK,), {"table": {}, "archive": None})
    assert issubclass(mine, EvaluationStrategyTCK)


def test_a_factory_that_lacks_an_argument_is_refused_once_and_not_in_every_test() -> None:
    sentence = (
        r"Mine\.make_coordinator lacks 'evaluator', which the kit gives it by name: "
        r"write make_coordinator\(cls, \*, evaluator=None\)"
    )
    with pytest.raises(TypeError, match=sentence):
        type("Mine", (TeamCoordinatorTCK,), {"make_coordinator": classmethod(lambda cls: None)})
    type("Mine", (TeamCoordinatorTCK,), {"make_coordinator": classmethod(lambda cls, **given: None)})


async def test_inside_an_event_loop_run_kit_says_that_it_makes_its_own() -> None:
    with pytest.raises(Misuse, match="call it from plain code"):
        run_kit(EvaluationStrategyTCK)


async def test_a_coordinator_that_returns_no_result_is_named() -> None:
    class Forgetful:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> Any:
            return None

    team = kt.Team("team", [kt.Member("a", kt.MiniAgent("test:none"))])
    with pytest.raises(ContractBreach, match=r"Forgetful\.execute returned None"):
        await kt.run(team, "Do it.", coordinator=Forgetful())
