"""The state of a recorded run: its limits, its tasks, and its calls summed up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team.budget import Budget, Usage, to_dollars
from kairo_team.durable import recovery
from kairo_team.durable.codec import outline, outline_field
from kairo_team.durable.event_pages import read_pages
from kairo_team.engine.records.plan_records import RAISED_BUDGET, recorded_plan
from kairo_team.engine.records.suspension import WAITING
from kairo_team.events import WorkEvent
from kairo_team.recorded import GIVEN_UP
from kairo_team.results import Attempt, TaskOutcome, TeamResult
from kairo_team.tasks import TaskGraph, TaskStatus
from kairo_team.team import TeamConfig, TeamExecutionRequest, root_budget
from kairo_team.views.open_tasks import Waits, describe_dependencies
from kairo_team.views.set_aside import SetAside

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.events import Event
    from kairo_team.human import HumanRequest
    from kairo_team.recorded import RecordedCall, RecordedRun

_AT_WORK: Final = ("running", "interrupted", GIVEN_UP)
_OF_PLANS: Final = "key LIKE 'plan:%' OR key LIKE 'add:%' OR key LIKE 'grown:%'"
"""The steps of a plan and its changes."""
_HEAD: Final = 1_000
"""Characters of a recorded outcome that are read for its status, which comes right after the task's id."""
_STATUS: Final = re.compile(r'"status":\{"~":"TaskStatus","v":"(\w+)"')
_OPEN: Final = ("running", "interrupted", *(one.value for one in WAITING))
"""Words for tasks that have not ended."""


class TaskStanding(NamedTuple):
    """The state of a task of a recorded run."""

    task_id: str
    status: str
    """The task's status; `running` or `interrupted` for a task that has made calls and has not ended."""
    member: str | None
    outcome: TaskOutcome | None
    """The outcome of a task that has ended or is suspended."""
    waits_for: str = ""
    """What an open task waits for, in words: other tasks, a person, budget, a member."""


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


class Progress(NamedTuple):
    """How far a run is."""

    done: int
    """Tasks that were accepted."""
    failed: int
    total: int
    """Tasks of the plan; 0 without a plan."""


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
    set_aside: str = ""
    """How much is set aside for whom, in words; "" if nothing is, or if the run's events are not kept."""


def read_record(journal: SqlJournal, run: RecordedRun) -> RunRecord:
    """Read the state of a run."""
    steps = _steps(journal, run.run_id)
    calls, in_doubt = journal.calls(run.run_id), journal.in_doubt(run.run_id)
    result = None if run.state in _AT_WORK else recorded_result(journal, run.run_id)
    ends = [one for one in steps.values() if isinstance(one, TaskOutcome)] if result is None else result.outcomes
    plan, (set_aside, waits) = recorded_plan(steps), _facts_of_live_run(journal, run)
    needs = {} if plan is None else {task.id: task.depends_on for task in plan.tasks}
    return RunRecord(
        run,
        recorded_limits(journal, run.run_id),
        with_waits(list(_tasks(run, plan, ends, _begun(journal, run.run_id, calls))), needs, waits),
        call_sums(journal, run),
        in_doubt,
        journal.pending(run.run_id),
        None if result is None else result.error,
        result,
        set_aside,
    )


def recorded_progress(journal: SqlJournal, run_id: str, planned: Callable[[str, object], int]) -> Progress:
    """Return how far a run is; `planned` gives the size of its plan, which changes only with its second argument."""
    plans = f"SELECT count(*), max(id) FROM step WHERE run_id = ? AND ({_OF_PLANS})"  # noqa: S608 - words of this module
    ends = "SELECT substr(value, 1, ?) AS head FROM step WHERE run_id = ? AND key LIKE 'outcome:%'"
    with journal.database.reading() as connection:
        last = tuple(connection.execute(plans, (run_id,)).fetchone())
        heads = [row["head"] for row in connection.execute(ends, (_HEAD, run_id))]
    states = Counter(found[1] for head in heads if (found := _STATUS.search(head)))
    return Progress(states[TaskStatus.COMPLETED.name], states[TaskStatus.FAILED.name], planned(run_id, last))


def planned_tasks(journal: SqlJournal, run_id: str) -> int:
    """Return how many tasks the plan of a run has."""
    plan = recorded_plan(_steps(journal, run_id, _OF_PLANS))
    return 0 if plan is None else len(plan.tasks)


def _facts_of_live_run(journal: SqlJournal, run: RecordedRun) -> tuple[str, Mapping[str, str]]:
    """Return two facts from the events of a live run: the amounts set aside, and the reason why each task waits."""
    if run.state != "running":  # whatever was set aside went back, or was lost with the process
        return "", {}
    told, waits = SetAside(), dict[str, Waits]()
    for event in journal.events_after(run.run_id):
        told.take(event)
        if isinstance(event, WorkEvent) and event.task_id is not None:
            waits.setdefault(event.task_id, Waits()).take(event)
    return told.describe(), {task_id: one.reason for task_id, one in waits.items()}


def with_waits(
    tasks: Sequence[TaskStanding], needs: Mapping[str, Sequence[str]], waits: Mapping[str, str]
) -> tuple[TaskStanding, ...]:
    """Add what open tasks wait for: `needs` has what each depends on, `waits` what else."""
    is_open = {one.task_id for one in tasks if one.status in _OPEN}
    return tuple(
        one._replace(
            waits_for="a person"
            if one.status == TaskStatus.SUSPENDED.value
            else describe_dependencies(needs.get(one.task_id, ()), is_open) or waits.get(one.task_id, "")
        )
        if one.task_id in is_open
        else one
        for one in tasks
    )


def recorded_request(journal: SqlJournal, run_id: str) -> TeamExecutionRequest:
    """Return the request that began a run, with its limits as last raised."""
    with journal.database.reading() as connection:
        row = connection.execute("SELECT request FROM run WHERE run_id = ?", (run_id,)).fetchone()
        request = journal.database.look_at(row["request"], TeamExecutionRequest, f"the request of run {run_id!r}")
    raised = raised_limits(journal, run_id)
    if raised is None:
        return request
    return replace(request, config=replace(request.config, budget=raised))


def recorded_events(journal: SqlJournal, run_id: str) -> Iterator[Event]:
    """Yield the events of a run one by one, which needs little memory."""
    sql = "SELECT body FROM event WHERE run_id = ? ORDER BY last"
    with journal.database.reading() as connection:
        yield from read_pages(connection, run_id, (row["body"] for row in connection.execute(sql, (run_id,))))


def recorded_attempts(journal: SqlJournal, run_id: str, task_id: str | None = None) -> Iterator[Attempt]:
    """Yield the ends of a run's attempts, in the order they were recorded, with secrets of artifacts masked.

    With `task_id`, the attempts of this task alone, and no other is read.
    """
    sql = "SELECT key, value FROM step WHERE run_id = ? AND key LIKE 'attempt:%' ORDER BY id"
    look_at, what = journal.database.look_at, f"an attempt of run {run_id!r}"
    with journal.database.reading() as connection:
        for row in connection.execute(sql, (run_id,)):
            if task_id not in (None, _task_of(row["key"])):
                continue
            made = look_at(row["value"], object, what, outline)
            if isinstance(made, Attempt):
                if made.shown is not None and made.output is not None:
                    made = made._replace(output=replace(made.output, artifact=made.shown))
                yield made


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


def _steps(journal: SqlJournal, run_id: str, which: str = f"{_OF_PLANS} OR key LIKE 'outcome:%'") -> dict[str, object]:
    """Return steps of a run: by default the plan and its changes, and the ends of tasks."""
    sql = f"SELECT key, value FROM step WHERE run_id = ? AND ({which}) ORDER BY id"  # noqa: S608 - words of this module
    with journal.database.reading() as connection:
        rows = connection.execute(sql, (run_id,)).fetchall()
        look_at = journal.database.look_at
        named = ((row["key"], row["value"]) for row in rows)
        return {key: look_at(value, object, f"step {key!r} of run {run_id!r}", outline) for key, value in named}


def recorded_limits(journal: SqlJournal, run_id: str) -> Budget:
    """Return a run's limits, as last raised."""
    return raised_limits(journal, run_id) or first_budget(journal, run_id)


def raised_limits(journal: SqlJournal, run_id: str) -> Budget | None:
    """Return a run's limits as last raised; None if they never were."""
    sql = "SELECT value FROM step WHERE run_id = ? AND key = ?"
    with journal.database.reading() as connection:
        row = connection.execute(sql, (run_id, RAISED_BUDGET)).fetchone()
        what = f"the limits of run {run_id!r}"
        raised = None if row is None else journal.database.look_at(row["value"], object, what, outline)
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
        is_open = outcome is None or outcome.status in WAITING
        if is_open and task_id in begun and run.state in _AT_WORK:
            at_work = "running" if run.state == "running" else "interrupted"
            yield TaskStanding(task_id, at_work, begun[task_id], None)
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
        CallSum(
            one["what"],
            one["name"],
            one["calls"],
            one["in_doubt"],
            Usage(one["prompt"], one["completion"], to_dollars(one["picos"]), 0, one["tool_calls"]),
            one["under_way"],
        )
        for one in rows
    )


def recorded_error(journal: SqlJournal, run_id: str) -> str | None:
    """Return why a run's last session did not complete; None if it did, or if its end is not recorded."""
    return cast("str | None", _field(journal, run_id, "result", "error"))


def recorded_result(journal: SqlJournal, run_id: str, tasks: Collection[str] | None = None) -> TeamResult | None:
    """Return the result of a run's last session; None if its end is not recorded.

    With `tasks`, it has the outcomes of these alone, no plan and no budget, which take much of a large run's memory.
    """
    with journal.database.reading() as connection:
        written = _row(connection, run_id)["result"]
        what, read = f"the result of run {run_id!r}", outline if tasks is None else partial(_outline_of, tasks=tasks)
        return None if written is None else journal.database.look_at(written, TeamResult, what, read)


def _outline_of(written: str, tasks: Collection[str]) -> Any:
    """Return a recorded result like `outline`: without plan and budget, and with the outcomes of these tasks alone."""

    def kept(body: dict[str, Any]) -> dict[str, Any] | None:
        # Dropped while the text is read: the objects of ten thousand tasks need eighty megabytes.
        kind = body.get("~")
        is_other = kind == "TaskOutcome" and body["v"]["task_id"] not in tasks
        return None if is_other or kind in ("Task", "BudgetNode") else body

    try:
        body: Any = json.loads(written, object_hook=kept)
        fields = body["v"]
        fields["plan"] = fields["budget"] = None
        fields["outcomes"]["v"] = [one for one in fields["outcomes"]["v"] if one is not None]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return outline(written)  # it is not as expected: the usual way reads it, or says what is wrong
    return outline(json.dumps(body))
