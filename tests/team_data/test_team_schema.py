"""The JSON Schema of a team: derived from the constructors, complete, and what editors can use."""

from __future__ import annotations

import inspect
import json
from typing import Any

import jsonschema_rs
import pytest

import kairo_team as kt
from kairo_team import plugins
from kairo_team.data.teams import team_schema
from kairo_team.data.teams.hints import arguments_of
from tests.team_data.test_team_data import WHOLE, WRONG

yaml = pytest.importorskip("yaml")
LEFT_OUT = {
    "console": {"source", "sink"},  # streams
    "sqlite": {"source"},  # what began the runs, which the program knows
    "mcp-http": {"options"},  # by their own names
    "mcp-stdio": {"options"},
    "TeamExecutionRequest": {"run_id"},  # every run needs one of its own
    "Task": {"part_of"},  # the run sets it
}
"""What the constructors take and data cannot say."""
VALUES = (
    kt.Team,
    kt.Member,
    kt.Role,
    kt.Runtime,
    kt.TeamConfig,
    kt.TeamExecutionRequest,
    kt.Budget,
    kt.BudgetPolicy,
    kt.Task,
    kt.TaskGraph,
    kt.ToolPermissions,
    kt.Price,
    kt.ModelLimit,
    kt.ModelRetry,
)


def makers() -> list[tuple[str, Any]]:
    built_in = [(name, plugins.find(kind, name)) for kind, one in plugins.KINDS.items() for name in one.built_in]
    return [*built_in, *((kind.__name__, kind) for kind in VALUES)]


@pytest.mark.parametrize(("name", "make"), makers())
def test_data_takes_the_arguments_of_the_constructors(name: str, make: Any) -> None:
    takes = {*arguments_of(make)} & {*inspect.signature(make).parameters}
    assert {*inspect.signature(make).parameters} - takes == LEFT_OUT.get(name, set())


def test_the_schema_is_a_valid_one_and_every_reference_leads_somewhere() -> None:
    schema = team_schema()
    jsonschema_rs.meta.validate(schema)
    text = json.dumps(schema)
    named = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert named <= {*schema["$defs"]}
    assert all(schema["$defs"].values())


def test_a_whole_team_fits_the_schema_and_a_wrong_one_does_not() -> None:
    validator = jsonschema_rs.validator_for(team_schema())
    whole = yaml.safe_load(WHOLE)
    assert [error.message for error in validator.iter_errors(whole)] == []
    assert not validator.is_valid(yaml.safe_load(WRONG))
    assert not validator.is_valid({"name": "a"})


def test_nobody_can_change_the_schema_of_others() -> None:
    team_schema()["properties"].clear()
    assert team_schema()["properties"]
