"""The state of a recorded run: its limits, its tasks, and its calls summed up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team.budget import Budget, Usage, to_dollars
from kairo_team.durable import recovery
from kairo_team.durable.codec import outline, outline_field
from kairo_team.engine.records.replay import RAISED_BUDGET, recorded_plan
from kairo_team.results import Attempt, TaskOutcome, TeamResult
from kairo_team.tasks import TaskGraph, TaskStatus
from kairo_team.team import TeamConfig, TeamExecutionRequest, root_budget

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.human import HumanRequest
    from kairo_team.recorded import RecordedCall, RecordedRun

_AT_WORK: Final = ("running", "interrupted")
_WAITING: Final = (TaskStatus.PENDING, TaskStatus.SUSPENDED)


class TaskStanding(NamedTuple):
    """The state of a task of a recorded run."""

    task_id: str
    status: str
    """The task's status; `running` or `interrupted` for a task that has made calls and has not ended."""
    member: str | None
    outcome: TaskOutcome | None
    """The outcome of a task that has ended or is suspended."""


class CallSum(NamedTuple):
    """The calls of one model or tool."""

    what: str
    """`model` or `tool`."""
    name: str
    calls: int
    in_doubt: int
    usage: Usage
    under_way: int = 0
    """Calls that have no end yet; `usage` does not contain them."""


class RunInside(NamedTuple):
    """A recorded run inside a task of another."""

    run_id: str
    parent: str
    """The run around this one."""
    task_id: str


class RunRecord(NamedTuple):
    """A recorded run with all that views show."""

    run: RecordedRun
    budget: Budget
    """The run's limits."""
    tasks: tuple[TaskStanding, ...]
    calls: tuple[CallSum, ...]
    in_doubt: tuple[RecordedCall, ...]
    questions: tuple[HumanRequest, ...]
    error: str | None
    """Why the run did not complete."""
    result: TeamResult | None = None
    """The result of the last session; None while the run is under way."""


def read_record(journal: SqlJournal, run: RecordedRun) -> RunRecord:
    """Read the state of a run."""
    steps = _steps(journal, run.run_id)
    calls, in_doubt = journal.calls(run.run_id), journal.in_doubt(run.run_id)
    result = None if run.state in _AT_WORK else recorded_result(journal, run.run_id)
    ends = [one for one in steps.values() if isinstance(one, TaskOutcome)] if result is None else result.outcomes
    return RunRecord(
        run,
        raised_budget(steps) or first_budget(journal, run.run_id),
        tuple(_tasks(run, recorded_plan(steps), ends, _begun(journal, run.run_id, calls))),
        call_sums(journal, run),
        in_doubt,
        journal.pending(run.run_id),
        None if result is None else result.error,
        result,
    )


def recorded_request(journal: SqlJournal, run_id: str) -> TeamExecutionRequest:
    """Return the request that began a run, with its limits as last raised."""
    with journal.database.reading() as connection:
        row = connection.execute("SELECT request FROM run WHERE run_id = ?", (run_id,)).fetchone()
        request = journal.database.look_at(row["request"], TeamExecutionRequest, f"the request of run {run_id!r}")
    raised = raised_budget(_steps(journal, run_id))
    if raised is None:
        return request
    return replace(request, config=replace(request.config, budget=raised))


def recorded_attempts(journal: SqlJournal, run_id: str) -> list[Attempt]:
    """Return the ends of a run's attempts, in the order they were recorded, with secrets of artifacts masked."""
    sql = "SELECT value FROM step WHERE run_id = ? AND key LIKE 'attempt:%' ORDER BY id"
    with journal.database.reading() as connection:
        rows = connection.execute(sql, (run_id,)).fetchall()
        look_at, what = journal.database.look_at, f"an attempt of run {run_id!r}"
        found = [look_at(row["value"], object, what, outline) for row in rows]
    return [_as_shown(one) for one in found if isinstance(one, Attempt)]


def _as_shown(made: Attempt) -> Attempt:
    if made.shown is None or made.output is None:
        return made
    return made._replace(output=replace(made.output, artifact=made.shown))


def runs_inside(journal: SqlJournal, run_id: str) -> list[RunInside]:
    """Return the runs inside the tasks of a run, at any depth, in the order they began."""
    found: list[RunInside] = []
    around = [run_id]
    while around:
        with journal.database.reading() as connection:
            sql = "SELECT run_id, parent_step FROM run WHERE parent = ? ORDER BY started_at, run_id"
            rows = connection.execute(sql, (parent := around.pop(0),)).fetchall()
        found += [RunInside(row["run_id"], parent, _task_of(row["parent_step"])) for row in rows]
        around += [row["run_id"] for row in rows]
    return found


def _task_of(step: object) -> str:
    """Return the task of an attempt's recorded step, `attempt:<plan>:<task>:<number>`."""
    return str(step).split(":", 2)[-1].rpartition(":")[0]


def _row(connection: Connection, run_id: str) -> Any:
    return connection.execute("SELECT * FROM run WHERE run_id = ?", (run_id,)).fetchone()


def _field(journal: SqlJournal, run_id: str, column: str, name: str) -> Any:
    """Return one field of a run's request or result; None if it has its default, or if nothing is recorded."""
    with journal.database.reading() as connection:
        written, what = _row(connection, run_id)[column], f"the {column} of run {run_id!r}"
        if written is None:
            return None
        return journal.database.look_at(written, object, what, partial(outline_field, name=name))


def _steps(journal: SqlJournal, run_id: str) -> dict[str, object]:
    """Return the plan and its changes, the ends of tasks and the raised budget."""
    sql = (
        "SELECT key, value FROM step WHERE run_id = ?"
        " AND (key = ? OR key LIKE 'plan:%' OR key LIKE 'add:%' OR key LIKE 'grown:%'"
        " OR key LIKE 'outcome:%') ORDER BY id"
    )
    with journal.database.reading() as connection:
        rows = connection.execute(sql, (run_id, RAISED_BUDGET)).fetchall()
        look_at = journal.database.look_at
        named = ((row["key"], row["value"]) for row in rows)
        return {key: look_at(value, object, f"step {key!r} of run {run_id!r}", outline) for key, value in named}


def raised_budget(steps: Mapping[str, object]) -> Budget | None:
    """Return a run's limits as last raised, from its steps; None if they never were."""
    raised = steps.get(RAISED_BUDGET)
    return raised if isinstance(raised, Budget) else None


def first_budget(journal: SqlJournal, run_id: str) -> Budget:
    """Return the limits that a run began with."""
    config = _field(journal, run_id, "request", "config")
    return root_budget(config if isinstance(config, TeamConfig) else TeamConfig())


def _tasks(
    run: RecordedRun, plan: TaskGraph | None, ends: Iterable[TaskOutcome], begun: Mapping[str, str | None]
) -> Iterator[TaskStanding]:
    """Yield the tasks in the plan's order, then the tasks of earlier plans."""
    ended = {one.task_id: one for one in ends}
    planned = [] if plan is None else [task.id for task in plan.tasks]
    for task_id in dict.fromkeys([*planned, *ended]):
        outcome = ended.get(task_id)
        is_open = outcome is None or outcome.status in _WAITING
        if is_open and task_id in begun and run.state in _AT_WORK:
            yield TaskStanding(task_id, run.state, begun[task_id], None)
        elif outcome is not None:
            yield TaskStanding(task_id, outcome.status.value, outcome.member, outcome)
        else:
            yield TaskStanding(task_id, TaskStatus.PENDING.value, None, None)


def _begun(journal: SqlJournal, run_id: str, calls: Sequence[RecordedCall]) -> dict[str, str | None]:
    """Return the members of the tasks that made a call or began a run inside."""
    begun = {call.task_id: call.member for call in calls if call.run_id == run_id and call.task_id is not None}
    with journal.database.reading() as connection:
        inside = connection.execute("SELECT parent_step, parent_member FROM run WHERE parent = ?", (run_id,)).fetchall()
    for row in inside:
        begun[_task_of(row["parent_step"])] = row["parent_member"]
    return begun


def call_sums(journal: SqlJournal, run: RecordedRun) -> tuple[CallSum, ...]:
    """Return the models of a run and of the runs inside it, then the tools, most called first."""
    with journal.database.reading() as connection:
        rows = recovery.call_sums(connection, run.run_id, recovery.over_in(journal.database, run.state))
    return tuple(
        CallSum(one["what"], one["name"], one["calls"], one["in_doubt"], _sum_of(one), one["under_way"]) for one in rows
    )


def _sum_of(row: Any) -> Usage:
    return Usage(row["prompt"], row["completion"], to_dollars(row["picos"]), 0, row["tool_calls"])


def recorded_error(journal: SqlJournal, run_id: str) -> str | None:
    """Return why a run's last session did not complete; None if it did, or if its end is not recorded."""
    return cast("str | None", _field(journal, run_id, "result", "error"))


def recorded_result(journal: SqlJournal, run_id: str) -> TeamResult | None:
    """Return the result of a run's last session; None if its end is not recorded."""
    with journal.database.reading() as connection:
        written = _row(connection, run_id)["result"]
        what = f"the result of run {run_id!r}"
        return None if written is None else journal.database.look_at(written, TeamResult, what, outline)
