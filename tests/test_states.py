"""The moves a run and a task can make: the tables, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.board import Entry
from kairo_team.errors import IllegalMove
from kairo_team.results import TeamStatus
from kairo_team.states import RUN_MOVES, TASK_MOVES, RunState, TaskState, check_move
from kairo_team.task_record import TaskRecord
from kairo_team.tasks import Task, TaskStatus

RUN_TABLE = """
idle -> planning
planning -> plan_ready running failed timeout cancelled
plan_ready -> planning running failed timeout cancelled
running -> completed degraded failed timeout cancelled
"""
"""Semantics 3, without SUSPENDED, which comes with the human gate."""


def test_the_runs_table_is_the_designs() -> None:
    expected = {}
    for line in RUN_TABLE.split("\n"):
        if line:
            start, _, ends = line.partition(" -> ")
            expected[start] = set(ends.split())
    assert {str(start): {str(end) for end in ends} for start, ends in RUN_MOVES.items()} == expected


def test_every_way_a_run_can_end_is_a_status_and_the_other_way_round() -> None:
    assert {state.value for state in RunState if state not in RUN_MOVES} == {status.value for status in TeamStatus}


def test_every_state_of_a_task_that_can_be_told_is_a_status() -> None:
    told = {state.value for state in TaskState} - {"generating", "evaluating"}
    assert told == {status.value for status in TaskStatus}


def test_a_task_that_never_started_is_never_cancelled_or_accepted() -> None:
    assert not {TaskState.CANCELLED, TaskState.COMPLETED} & TASK_MOVES[TaskState.PENDING]


@given(st.lists(st.sampled_from(TaskState)))
def test_any_walk_along_the_table_is_recorded_and_any_other_step_is_refused(steps: list[TaskState]) -> None:
    history: list[str] = [TaskState.PENDING]
    for to in steps:
        before = list(history)
        if to in TASK_MOVES.get(history[-1], ()):
            check_move("t", history, to, TASK_MOVES)
            assert history == [*before, to]
        else:
            with pytest.raises(IllegalMove) as caught:
                check_move("t", history, to, TASK_MOVES)
            assert history == before
            assert caught.value.history == tuple(before)
            assert f"'t' cannot go from {before[-1]} to {to}" in str(caught.value)


@given(st.lists(st.sampled_from(TaskState)))
def test_a_record_moves_along_the_same_table(steps: list[TaskState]) -> None:
    record = TaskRecord(Entry(Task("t", "do"), 0, ()))
    history: list[str] = [TaskState.PENDING]
    for to in steps:
        if to in TASK_MOVES.get(history[-1], ()):
            record.move(to)
            history.append(to)
        else:
            with pytest.raises(IllegalMove, match="'t' cannot go from"):
                record.move(to)
        assert (record.history, record.state) == (history, history[-1])
