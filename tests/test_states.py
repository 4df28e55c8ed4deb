"""The moves a run and a task can make: the tables, and nothing else."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.records.plan_records import NewPlanRecords
from kairo_team.engine.tasks.ready_tasks import Entry
from kairo_team.engine.tasks.task_run import RUN_MOVES, TASK_MOVES, Path, RunState, TaskRun, TaskState, check_move
from kairo_team.errors import IllegalMove
from kairo_team.results import TeamStatus
from kairo_team.tasks import Task, TaskStatus

RUN_TABLE: Final = """
idle -> planning
planning -> plan_ready running failed timeout cancelled suspended
plan_ready -> planning running failed timeout cancelled suspended
running -> completed degraded failed timeout cancelled suspended
suspended -> planning running
"""
"""Semantics 3."""

TASK_TABLE: Final = """
pending -> in_flight skipped failed
in_flight -> generating skipped completed failed cancelled suspended
generating -> generating evaluating completed failed cancelled suspended
evaluating -> generating evaluating completed failed cancelled suspended
suspended -> failed cancelled
"""
"""PENDING -> IN_FLIGHT (GENERATING <-> EVALUATING) -> end. A task that could not be paid for fails without a start;
what waits for a person ends with the run, where that cannot wait."""


def read(table: str) -> dict[str, set[str]]:
    lines = [line.partition(" -> ") for line in table.split("\n") if line]
    return {start: set(ends.split()) for start, _, ends in lines}


def test_the_runs_table_is_the_designs() -> None:
    assert {str(start): {str(end) for end in ends} for start, ends in RUN_MOVES.items()} == read(RUN_TABLE)


def test_the_tasks_table_is_the_designs() -> None:
    assert {str(start): {str(end) for end in ends} for start, ends in TASK_MOVES.items()} == read(TASK_TABLE)


@pytest.mark.parametrize(("start", "to"), list(product(RunState, RunState)))
def test_a_run_makes_the_moves_of_its_table_and_no_other(start: RunState, to: RunState) -> None:
    history: list[str] = ["idle", "planning", start]
    if to in read(RUN_TABLE).get(start, ()):
        check_move("r", history, to)
        assert history == ["idle", "planning", start, to]
        return
    with pytest.raises(IllegalMove) as caught:
        check_move("r", history, to)
    assert history == ["idle", "planning", start]
    assert caught.value.history == ("idle", "planning", start)
    assert f"'r' cannot go from {start} to {to}" in str(caught.value)


@pytest.mark.parametrize(("start", "to"), list(product(TaskState, TaskState)))
def test_a_task_makes_the_moves_of_its_table_and_no_other(start: TaskState, to: TaskState) -> None:
    record = make_record()
    record.state, record.path = start, Path(start, Path(TaskState.PENDING))
    if to in read(TASK_TABLE).get(start, ()):
        record.move(to)
        assert (record.state, record.history) == (to, ["pending", start, to])
        return
    with pytest.raises(IllegalMove) as caught:
        record.move(to)
    assert (record.state, record.history) == (start, ["pending", start])
    assert caught.value.history == ("pending", start)
    assert f"'t' cannot go from {start} to {to}" in str(caught.value)


def test_every_way_a_run_can_end_is_a_status_and_the_other_way_round() -> None:
    ends = {state.value for state in RunState if state not in RUN_MOVES} | {RunState.SUSPENDED.value}
    assert ends == {status.value for status in TeamStatus}


def test_from_every_state_of_a_run_an_end_can_be_reached() -> None:
    for start in RunState:
        reached, news = {str(start)}, [str(start)]
        while news:
            new = {str(end) for end in RUN_MOVES.get(news.pop(), ())} - reached
            reached |= new
            news += new
        assert reached & {status.value for status in TeamStatus}


def test_every_state_of_a_task_that_can_be_told_is_a_status() -> None:
    told = {state.value for state in TaskState} - {"generating", "evaluating"}
    assert told == {status.value for status in TaskStatus}


def test_a_task_that_never_started_is_never_cancelled_or_accepted_and_never_waits() -> None:
    assert not {TaskState.CANCELLED, TaskState.COMPLETED, TaskState.SUSPENDED} & TASK_MOVES[TaskState.PENDING]


def make_record() -> TaskRun:
    return TaskRun(Entry(Task("t", "do"), 0, ()), NewPlanRecords(MemoryRecords(), 0))


@given(st.lists(st.sampled_from(TaskState)))
def test_any_walk_along_the_table_is_recorded_and_any_other_step_is_refused(steps: list[TaskState]) -> None:
    record = make_record()
    history: list[str] = [TaskState.PENDING]
    for to in steps:
        if to in TASK_MOVES.get(history[-1], ()):
            record.move(to)
            history.append(to)
        else:
            with pytest.raises(IllegalMove, match="'t' cannot go from"):
                record.move(to)
        assert (record.history, record.state) == (history, history[-1])


@given(st.lists(st.sampled_from(RunState)))
def test_a_run_walks_along_its_table_alone(steps: list[RunState]) -> None:
    history: list[str] = [RunState.IDLE]
    for to in steps:
        before = list(history)
        if to in RUN_MOVES.get(history[-1], ()):
            check_move("r", history, to)
            assert history == [*before, to]
        else:
            with pytest.raises(IllegalMove) as caught:
                check_move("r", history, to)
            assert caught.value.history == tuple(before) == tuple(history)
