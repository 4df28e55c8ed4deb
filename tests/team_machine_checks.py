"""What holds of every run, whatever its members, people and watchers do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.budget import BudgetNode
from kairo_team.engine.records.plan_records import Replan, Unpaid
from tests.status_oracle import Story, TaskEnd, an_end_is_accepted, status_of
from tests.team_machine_doubles import World
from tests.team_machine_play import TOP_UP, Played, Session

COMPLETED, SUSPENDED = kt.TaskStatus.COMPLETED, kt.TeamStatus.SUSPENDED
CALM: Final = (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED)
EXHAUSTED: Final = ("token_budget_exceeded", "dollar_budget_exceeded", "loop_budget_exceeded", "tool_budget_exceeded")

LETTERS: Final[Mapping[type[events.Event], str]] = {
    events.TaskAssigned: "A",
    events.AttemptStarted: "S",
    events.AttemptFinished: "F",
    events.EvaluationStarted: "E",
    events.EvaluationResult: "R",
    events.TaskEnded: "T",
}
WHOLE: Final = re.compile("T|A(SF(ER)?)*T")
CUT: Final = re.compile("T|A(SF(ER)?)*(S|SFE|E)?T")
"""The same, of a task whose last attempt or review was interrupted."""


def check(played: Played) -> None:
    """Check everything that holds of every run."""
    sessions = split(played.recorder.events)
    assert len(sessions) == len(played.sessions)
    assert [event.seq for event in played.recorder.events] == list(range(1, len(played.recorder.events) + 1))
    accepted: dict[str, kt.TaskOutcome] = {}
    ended: dict[str, events.TaskEnded] = {}
    spent = 0.0
    for number, (session, told) in enumerate(zip(played.sessions, sessions, strict=True)):
        check_session(told, resumed=number > 0, last=session is played.sessions[-1])
        check_tasks(told, session, played, ended)
        check_time(session, played, spent)
        spent += session.took
        assert session.left == 0, "a loop task is left"
        if session.result is not None:
            check_result(session.result, told, played)
            check_status(session.result, sessions[: number + 1], session, played)
            check_kept(session, accepted)
    check_limits(played.world)
    check_forgotten(played)
    if played.log is not None:
        assert played.log == sessions[0]


def split(told: Sequence[events.Event]) -> list[list[events.Event]]:
    """Split the events into sessions."""
    sessions: list[list[events.Event]] = []
    for event in told:
        if isinstance(event, events.TeamStarted | events.TeamResumed):
            sessions.append([])
        sessions[-1].append(event)
    return sessions


def check_session(told: Sequence[events.Event], *, resumed: bool, last: bool) -> None:
    """Check the first and last event: there is one of each, and nothing around them."""
    assert isinstance(told[0], events.TeamResumed if resumed else events.TeamStarted)
    assert isinstance(told[-1], events.TeamEnded)
    assert sum(isinstance(event, events.TeamEnded) for event in told) == 1
    assert last or isinstance(told[-1], events.TeamSuspended)


def check_tasks(
    told: Sequence[events.Event], session: Session, played: Played, ended: dict[str, events.TaskEnded]
) -> None:
    """Check the order of each task's events, that its needs were met first, and that it ended as the result says.

    `ended`: the ends that earlier sessions told of; nothing more is told of these tasks. This session's are added.
    """
    tasks = {task.id: task for task in tasks_of(session, played)}
    lives: dict[str, str] = {}
    ends = dict(ended)
    for event in told:
        if not isinstance(event, events.TaskEvent):
            continue
        assert event.task_id not in ends, f"{event.type} after the end of {event.task_id}"
        letter = next((letter for kind, letter in LETTERS.items() if isinstance(event, kind)), "")
        lives[event.task_id] = lives.get(event.task_id, "") + letter
        if isinstance(event, events.TaskAssigned) and event.task_id in tasks:
            met = [need for need in tasks[event.task_id].depends_on if need in ends]
            assert len(met) == len(tasks[event.task_id].depends_on), "it started before its needs had ended"
            accepted = sum(isinstance(ends[need], events.TaskCompleted) for need in met)
            assert accepted >= tasks[event.task_id].needed
        elif isinstance(event, events.TaskEnded):
            ends[event.task_id] = event
    for task_id, life in lives.items():
        grammar = CUT if isinstance(ends.get(task_id), events.TaskCancelled) else WHOLE
        assert grammar.fullmatch(life), f"{task_id}: {life}"
    if session.result is not None:
        assert {o.task_id: o.status.value for o in session.result.outcomes if o.status != "pending"} == {
            task_id: end.type.partition(".")[2] for task_id, end in ends.items()
        }
        for outcome in session.result.outcomes:
            if outcome.task_id in ends:
                end = ends[outcome.task_id]
                assert (end.attempts, end.reason, end.member) == (outcome.attempts, outcome.error, outcome.member)
    ended |= {task_id: end for task_id, end in ends.items() if not isinstance(end, events.TaskSuspended)}


def tasks_of(session: Session, played: Played) -> Sequence[kt.Task]:
    plan = session.result.plan if session.result is not None else None
    return plan.tasks if plan is not None else played.scenario.tasks


def check_time(session: Session, played: Played, spent: float) -> None:
    """Check that nothing outlives a kill or the deadline by more than the grace."""
    config, more = played.scenario.config, played.scenario.more
    limit = None if more is not None and spent else config.budget.seconds
    ends = [] if limit is None else [max(0.0, limit - spent)]
    ends += [deed.at for deed in session.deeds if deed.what == "kill"]
    if ends and played.scenario.shared is None:  # the time of a shared budget is real
        assert session.took <= min(ends) + config.cancel_grace + 1e-6


def check_result(result: kt.TeamResult, told: Sequence[events.Event], played: Played) -> None:
    """Check the result in itself, and against the last event."""
    outcomes, statuses = result.outcomes, {outcome.status for outcome in result.outcomes}
    assert [outcome.task_id for outcome in outcomes] == [task.id for task in (result.plan.tasks if result.plan else ())]
    asleep = result.status is SUSPENDED
    assert kt.TaskStatus.IN_FLIGHT not in statuses
    assert asleep or not statuses & {kt.TaskStatus.PENDING, kt.TaskStatus.SUSPENDED}
    assert (result.error is None) is (result.status is kt.TeamStatus.COMPLETED)
    assert result.error is None or result.warnings[0] == result.error
    there = result.status in CALM and an_end_is_accepted(result)
    assert (result.output is not None) is there
    assert (result.partial_output is not None) or there or COMPLETED not in statuses
    assert result.status is kt.TeamStatus.COMPLETED or result.warnings
    for outcome in outcomes:
        check_outcome(outcome)
    last = told[-1]
    assert isinstance(last, events.TeamEnded)
    assert (last.status, last.usage, last.error) == (result.status, result.usage, result.error)
    check_budget(result, played)


def check_outcome(outcome: kt.TaskOutcome) -> None:
    match outcome.status:
        case kt.TaskStatus.COMPLETED:
            assert outcome.artifact is not None
            assert outcome.error is None
        case kt.TaskStatus.SKIPPED:
            assert (outcome.attempts, outcome.artifact) == (0, None)
            assert outcome.error
        case kt.TaskStatus.PENDING:
            assert (outcome.attempts, outcome.artifact, outcome.error) == (0, None, None)
        case _:
            assert outcome.error


def check_budget(result: kt.TeamResult, played: Played) -> None:
    """Check the budget law on every governor, and that every token and loop is somebody's."""
    assert result.budget is not None
    exact = not played.scenario.does("record")
    check_node(result.budget, exact=exact)
    plans = [value for key, value in played.records.items() if key.startswith("plan:") and key.endswith(":usage")]
    if result.status is not SUSPENDED:  # while it waits, more plans may follow
        for unit in ("tokens", "loops", "tool_calls"):
            owners = [*(outcome.usage for outcome in result.outcomes), *plans]
            assert getattr(result.usage, unit) == sum(getattr(usage, unit) for usage in owners), unit
    first = played.scenario.config.budget.tokens
    if first is not None and played.scenario.more is None and played.scenario.shared is None:
        raised = sum(deed.what == "top up" for session in played.sessions for deed in session.deeds)
        assert result.budget.budget.tokens in {first + (TOP_UP.tokens or 0) * number for number in range(raised + 1)}


def check_node(node: BudgetNode, *, exact: bool) -> None:
    assert node.closed
    assert node.held == kt.Usage()
    for unit in ("tokens", "loops", "tool_calls"):
        limit = getattr(node.budget, unit)
        assert limit is None or not exact or getattr(node.usage, unit) <= limit, f"{node.path}: {node}"
    for child in node.children:
        check_node(child, exact=exact)


def check_kept(session: Session, accepted: dict[str, kt.TaskOutcome]) -> None:
    """Check that what was accepted in an earlier session is what it was, and nobody worked on it again."""
    assert session.result is not None
    now = {outcome.task_id: outcome for outcome in session.result.outcomes}
    for task_id, before in accepted.items():
        assert session.tried[task_id] == 0, f"{task_id} was accepted, and was done again"
        assert task_id in now, f"{task_id} was accepted, and is lost"
        assert comparable_outcome(now[task_id]) == comparable_outcome(before)
    accepted |= {task_id: outcome for task_id, outcome in now.items() if outcome.status is COMPLETED}


def check_limits(world: World) -> None:
    """Check concurrency: of each member, and of the whole run from dispatch to verdict."""
    scenario, most = world.scenario, world.scenario.config.max_parallel_tasks
    assert +world.running == Counter(), "somebody is still at work"
    assert most is None or world.most["work"] <= most
    for number, member in enumerate(scenario.members):
        assert member["max_concurrency"] is None or world.most[f"m{number}"] <= member["max_concurrency"]
    assert all(governor.closed for governor in world.governors), "a governor is open"


def check_forgotten(played: Played) -> None:
    """Check that the runtime knows nothing of the run any more but its id."""
    runtime, result = played.runtime, played.sessions[-1].result
    if result is None and played.recorder.events[-1].type == "team.suspended":
        # Its caller was cancelled in the moment in which the session ended: it waits on, and can be resumed.
        assert list(runtime.runs) == ["r"]
        return
    assert list(runtime.runs) == []
    assert runtime.pending() == ()
    with pytest.raises(kt.RunFinished):
        _ = runtime.runs["r"]
    if runtime.governor is not None and result is not None:
        assert runtime.governor.held == kt.Usage()
        assert runtime.governor.usage.tokens == result.usage.tokens
        assert runtime.governor.usage.loops == result.usage.loops


# ---------------------------------------------------------------- the status


def check_status(
    result: kt.TeamResult, sessions: Sequence[Sequence[events.Event]], session: Session, played: Played
) -> None:
    """Check the status against the oracle, from what was seen of the run up to this session."""
    story = story_of(result, sessions, session, played)
    assert result.status == status_of(story), story
    final = {"kill": "cancelled", "alarm": "emergency_stop"}
    happened = {final[deed.what] for deed in session.deeds if deed.what in final} | {"time_budget_exceeded", None}
    happened |= {*EXHAUSTED, "emergency_stop"} if played.scenario.guarded else {*EXHAUSTED}
    assert result.halt in happened
    if any(deed.what == "kill" for deed in session.deeds):
        assert result.halt in {"cancelled", "time_budget_exceeded", "emergency_stop"}


def story_of(
    result: kt.TeamResult, sessions: Sequence[Sequence[events.Event]], session: Session, played: Played
) -> Story:
    """Put together what was seen: events, outcomes, and what is recorded."""
    records, told, so_far = session.records, sessions[-1], list(chain.from_iterable(sessions))
    asked = [event for event in told if isinstance(event, events.HumanDecided) and event.task_id is None]
    waits = bool(asked) and asked[-1].action == "defer" and not isinstance(told[-1], events.TeamCancelled)
    end, ready = records.get("end"), any(isinstance(event, events.PlanReady) for event in told)
    fallbacks = [records[key] for key in sorted(records) if key.startswith("fallback:")]
    refused = (not ready and not waits) or rejected(asked)
    return Story(
        tuple(end_of(outcome, result, so_far, records) for outcome in result.outcomes),
        killed=result.halt == "cancelled",
        late=result.halt == "time_budget_exceeded",
        refused=refused,
        aborted=end is not None and end.aborted,
        emergency=result.halt == "emergency_stop",
        exhausted=result.halt in EXHAUSTED,
        plan_waits=waits,
        fallback=any(fallbacks),
        risk=played.scenario.config.risk_profile.value,
        tolerant=not played.scenario.expert,
    )


def rejected(asked: Sequence[events.HumanDecided]) -> bool:
    """Say whether a person, or nobody, refused the plan in this session."""
    return bool(asked) and asked[-1].action in ("reject", "silent")


def end_of(
    outcome: kt.TaskOutcome, result: kt.TeamResult, told: Sequence[events.Event], records: Mapping[str, Any]
) -> TaskEnd:
    passed = outcome.verdict is not None and outcome.verdict.outcome is kt.VerdictOutcome.PASS
    artifact = outcome.artifact
    return TaskEnd(
        outcome.status.value,
        needed=not (is_replaced(outcome.task_id, records) or is_dispensable(outcome.task_id, result)),
        for_budget=ended_for_budget(outcome, told, records),
        unpassed=outcome.verdict is not None and not passed,
        partial=artifact is not None and artifact.partial,
    )


def is_dispensable(task_id: str, result: kt.TeamResult) -> bool:
    """Say whether a task has dependents, and all of them met their needs without it."""
    assert result.plan is not None
    accepted = {outcome.task_id for outcome in result.outcomes if outcome.status is COMPLETED}
    after = [task for task in result.plan.tasks if task_id in task.depends_on]
    return bool(after) and all(sum(need in accepted for need in task.depends_on) >= task.needed for task in after)


def is_replaced(task_id: str, records: Mapping[str, Any]) -> bool:
    """Say whether a later plan took the place of a task."""
    plans = [value for value in records.values() if isinstance(value, Replan) and value.graph is not None]
    return any(task_id == plan.failing or task_id in plan.replaced for plan in plans)


def ended_for_budget(outcome: kt.TaskOutcome, told: Sequence[events.Event], records: Mapping[str, Any]) -> bool:
    """Say whether a budget's end was the task's: its last attempt was halted, or never paid for."""
    if any(isinstance(value, Unpaid) and value.halted for key, value in records.items()
           if key.startswith("unpaid:") and key.endswith(f":{outcome.task_id}")):  # fmt: skip
        return True
    mine = [event for event in told if getattr(event, "task_id", None) == outcome.task_id]
    last = [type(event) for event in mine if isinstance(event, events.BudgetHalted | events.AttemptStarted)]
    return bool(last) and last[-1] is events.BudgetHalted


# ---------------------------------------------------------------- replays


def comparable_outcome(outcome: kt.TaskOutcome) -> kt.TaskOutcome:
    """Leave out its duration, and which of several lost needs was lost first."""
    error = "skipped" if outcome.status is kt.TaskStatus.SKIPPED else outcome.error
    return replace(outcome, usage=replace(outcome.usage, seconds=0.0), error=error)


def comparable(result: kt.TeamResult) -> dict[str, Any]:
    """Leave out durations and the split, who had to be closed, and which of several lost needs was lost first."""
    skipped = [f"task {o.task_id!r} skipped" for o in result.outcomes if o.status is kt.TaskStatus.SKIPPED]
    warnings = {
        text
        for text in result.warnings
        if not text.endswith("did not end when it was cancelled and was closed")
        and not any(text.startswith(one) for one in skipped)
    }
    return {
        "status": result.status,
        "outcomes": [comparable_outcome(outcome) for outcome in result.outcomes],
        "artifact": result.artifact,
        "plan": result.plan,
        "usage": replace(result.usage, seconds=0.0),
        "warnings": warnings,
        "error": result.error,
        "halt": result.halt,
        "refused": result.refused,
    }
