"""The law: a run whose attempts are made by workers ends as it ends in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings

import kairo_team as kt
from kairo_team.testing import EventRecorder
from tests.cluster.stage import new_database, warned, working
from tests.cluster.test_inner_events import by_inner_run
from tests.durable.test_law import Scenario, World, request_of, scenarios, team_of
from tests.lost_needs import any_need


def seen(result: kt.TeamResult) -> Any:
    """What has to be the same: all but times, and what is chance."""
    ends = [
        (
            one.task_id,
            one.status,
            None if one.artifact is None else one.artifact.text[:9],
            one.attempts,
            one.member,
            replace(one.usage, seconds=0.0),
            one.warnings,
            any_need(one.error),
            None if one.verdict is None else one.verdict.outcome,
        )
        for one in result.outcomes
    ]
    spent = replace(result.usage, seconds=0.0), result.usage_by_model
    return result.status, ends, spent, [*map(any_need, warned(result))], result.error


def told(recorder: EventRecorder) -> Any:
    """The events of teams inside attempts, without what is set aside for their tasks: a slice is no budget tree."""
    found = by_inner_run(recorder.events)
    for event in (event for inner in found.values() for event in inner if event["type"] == "budget.carved"):
        del event["tokens"], event["picodollars"]
    return found


@pytest.mark.real_time
@given(scenarios())
@settings(deadline=None)
def test_a_run_with_workers_ends_like_a_run_without(scenario: Scenario) -> None:
    anyio.run(_compare, scenario)


async def _compare(scenario: Scenario) -> None:
    here, heard_here, heard_there = World(), EventRecorder(), EventRecorder()
    runtime = kt.Runtime(models={"m:x": here.model}, subscribers=[heard_here])
    local = await kt.run(team_of(scenario, here, runtime), request_of(scenario))
    there = World()
    team = team_of(scenario, there, kt.Runtime(models={"m:x": there.model}))
    async with working(new_database("procrastinate"), team) as cluster:
        runtime = kt.Runtime(models={"m:x": there.model}, engine=cluster, subscribers=[heard_there])
        with anyio.fail_after(60):
            result = await kt.run(team_of(scenario, there), request_of(scenario), runtime=runtime)
        assert seen(result) == seen(local)
        assert sorted(there.asked) == sorted(here.asked)
        assert told(heard_there) == told(heard_here)
        calls = cluster.journal.calls("r")
        assert len(there.asked) == sum(call.what == "model" for call in calls)
        assert {call.state for call in calls} <= {"answered"}
