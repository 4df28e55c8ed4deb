"""Write the states and the status table: `python -m tests.states_page > docs/states.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kairo_team.budget import HaltReason
from kairo_team.engine.run.ending import LAST_EVENT, RunFacts, decide_status
from kairo_team.engine.tasks.task_run import RUN_MOVES, TASK_MOVES, RunState, TaskState
from kairo_team.results import TeamStatus
from kairo_team.team import RiskProfile

PLAIN = RunFacts(
    halt=None,
    caller_cancelled=False,
    broken=False,
    ended_for_halt=False,
    waiting=False,
    accepted=1,
    lost=0,
    dispensable=0,
    degraded=False,
    risk=RiskProfile.MEDIUM,
    tolerate_failures=False,
)

ENDS: Mapping[str, Mapping[str, Any]] = {
    "the caller was cancelled": {"caller_cancelled": True},
    "killed": {"halt": HaltReason.CANCELLED},
    "deadline": {"halt": HaltReason.TIME_BUDGET_EXCEEDED},
    "planning or binding failed, `abort_team`, the coordinator raised": {"broken": True},
    "emergency stop of the team": {"halt": HaltReason.EMERGENCY_STOP},
    "the team's budget is exhausted and a task ended for it": {
        "halt": HaltReason.TOKEN_BUDGET_EXCEEDED,
        "ended_for_halt": True,
    },
    "a task, or the plan, waits for a person": {"waiting": True},
    "every task has ended": {},
}
"""What ended the run; the first that applies decides."""

MIXES: Mapping[str, Mapping[str, Any]] = {
    "nothing was accepted": {"accepted": 0, "lost": 1},
    "some task that was needed is missing": {"lost": 1},
    "all that is missing was dispensable": {"dispensable": 1},
    "all accepted, one without a PASS, partial or by a fallback plan": {"degraded": True},
    "all accepted": {},
}
"""How the tasks ended."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "expert team, MEDIUM or HIGH": {},
    "task board, MEDIUM or HIGH": {"tolerate_failures": True},
    "either, LOW": {"risk": RiskProfile.LOW},
}
"""Whose runs, at which risk."""


def page() -> str:
    """Write the page."""
    return "\n".join(
        [
            "# States",
            "",
            "Written from the code by `python -m tests.states_page > docs/states.md`.",
            "[What happens when ...](what-happens-when.md) lists the cases in which each state occurs.",
            "",
            "## A run",
            "",
            *diagram(RunState, RUN_MOVES),
            "",
            "Any other move raises an `IllegalMove` with the history of the states. A suspended run is resumed with",
            "`Runtime.resume`, in a new session with the same id. Each status has its own last event:",
            "",
            "| status | last event |",
            "|---|---|",
            *(f"| {status.name} | `{LAST_EVENT[status].type}` |" for status in TeamStatus),
            "",
            "A session that leaves its run in a journal, to be resumed, ends with `team.interrupted`.",
            "",
            "## A task",
            "",
            *diagram(TaskState, TASK_MOVES),
            "",
            "`generating` and `evaluating` are the two phases of a task in flight. The states from which an arrow",
            "leads to the dot are the possible statuses of a task in the result. A task that never started is",
            "`skipped`, never `cancelled`; without a budget for the task, it is `failed`.",
            "",
            "## The status of a run",
            "",
            "The first row from the top that applies decides:",
            "",
            f"| what ended the run | its tasks | {' | '.join(KINDS)} |",
            f"|---|---|{'---|' * len(KINDS)}",
            *status_rows(),
            "",
            "A missing task was dispensable if it has dependents and all its dependents met their `needs` without",
            "it, or if a later plan does not need it. If the coordinator ended the run without some tasks",
            "(`TeamRun.conclude`), these tasks count as if they had not been planned.",
            "",
        ]
    )


def diagram(states: Iterable[RunState | TaskState], moves: Mapping[str, Iterable[RunState | TaskState]]) -> list[str]:
    """Draw a table of moves as a Mermaid state diagram; its first state is where everything begins."""
    known = list(states)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {known[0].value}"]
    for state in known:
        ends = set(moves.get(state, ()))
        lines += [f"    {state.value} --> {to.value}" for to in known if to in ends]
        lines += [] if ends and state.value != "suspended" else [f"    {state.value} --> [*]"]
    return [*lines, "```"]


def status_rows() -> list[str]:
    """Return the rows of the status table; an end after which the tasks make no difference has one."""
    rows: list[str] = []
    for end, facts in ENDS.items():
        cells = {mix: _cells(facts, tasks) for mix, tasks in MIXES.items()}
        nothing, *others = cells.values()
        if len(set(others)) == 1:
            same = others[0] == nothing
            cells = {"whatever they did": nothing} if same else {**dict.fromkeys(("nothing was accepted",), nothing)}
            cells |= {} if same else {"something was accepted": others[0]}
        rows += [f"| {end} | {mix} | {' | '.join(statuses)} |" for mix, statuses in cells.items()]
    return rows


def _cells(end: Mapping[str, Any], tasks: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(decide_status(replace(PLAIN, **end, **tasks, **kind)).name for kind in KINDS.values())


if __name__ == "__main__":
    sys.stdout.write(page())
