"""Run a job with a view, and turn every end into a result."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from kairo_team import api as front
from kairo_team._util.masking import masked, shortened
from kairo_team.cli.databases import away_from_children
from kairo_team.cli.exit_codes import EXIT_CODE_BY_STATUS, LEFT, USAGE_ERROR
from kairo_team.cli.interrupts import Interrupts, warn_at_once
from kairo_team.cli.journals import command, go_on_commands, quoted
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.engine.live.task_pool import Watch, background
from kairo_team.engine.work.run_arguments import pick_coordinator
from kairo_team.engine.work.runtime import ContentMode, Runtime, bind_runtime, runtime_of
from kairo_team.errors import HaltError, InsufficientBudget, JournalError, KairoError, Misuse, PlanMismatch, RunExists
from kairo_team.gates import DeferGate
from kairo_team.models.resolver import Fallback, ModelResolver
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.team import Team, TeamExecutionRequest, root_budget
from kairo_team.views import LiveView, PlainView
from kairo_team.views.json_lines import JsonLines
from kairo_team.views.other_journals import Book, OtherJournal
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from kairo_team.budget import Budget
    from kairo_team.cli.streams import Screen
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.contracts import Subscriber, TeamCoordinator
    from kairo_team.engine.plan.preflight import PlanCheck
    from kairo_team.recorded import RecordedRun
    from kairo_team.views.eval_progress import EvalProgress

_NOT_RESUMED: Final = (Misuse, InsufficientBudget, HaltError, JournalError)
"""Errors of `Runtime.resume` after which the run is unchanged."""
_MOST_OWNERS: Final = 4
"""How many owners of a model object one sentence names."""


class GoOn(NamedTuple):
    """Arguments of `Runtime.resume` for a recorded run."""

    take_over: bool = False
    allow_changes: Sequence[str] = ()
    budget: Budget | None = None
    """Replaces the run's budget."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make or to resume."""

    team: Team
    request: TeamExecutionRequest
    coordinator: TeamCoordinator | None = None
    """None takes the team's, else the default."""
    model: str | None = None
    """Replaces every model named in the team."""
    note: str | None = None
    """A remark on the input, for the reader."""
    journal: Book | None = None
    """Records the run; None leaves that to the team's own runtime."""
    cluster: Cluster | None = None
    """Has workers make the attempts, on the journal; None makes them here."""
    go_on: GoOn | None = None
    """Set to resume a recorded run; `request` is then the run's first request."""


class Ended(NamedTuple):
    """How a job ended."""

    result: TeamResult
    code: int
    """The program's exit code."""
    interrupted: bool = False
    """Whether the run was stopped and can be resumed from its journal."""
    go_on: Sequence[str] = ()
    """The commands that continue the run; the last one resumes it."""


def execute(
    job: Job,
    screen: Screen,
    *,
    keep_on: bool,
    events: Path | None,
    content: ContentMode | None,
    view: LiveView | PlainView | EvalProgress | None = None,
) -> Ended:
    """Run the job to its end, however it ends; `events` is a file to which its events are appended.

    With `keep_on` the run continues when the output is no longer read; else it is stopped. `content` replaces the
    runtime's, and `view` the usual view, if given.
    """
    shown = view
    if shown is None and screen.live:
        shown = LiveView(screen, root_budget(job.request.config))
    shown = shown or PlainView(screen.print_text, warn_at_once)
    subscribers: list[Subscriber] = [shown]
    runtime = _runtime(job, subscribers)
    if content == "journal" and runtime.store is None:
        raise Refusal("--content journal needs a journal: give --journal FILE, or --content events with --events FILE")
    runtime.content = content or runtime.content
    if job.go_on is None:
        found = check(job, runtime)
        if not found.ok:
            raise Refusal(f"nothing was started: {'; '.join(found.problems)}")
    again = "" if job.journal is None else command("resume", quoted(job.request.run_id), journal=job.journal)
    interrupts = Interrupts(runtime, shown.notify, again)
    runtime.subscribers = (*runtime.subscribers, interrupts)
    if not keep_on:
        screen.on_lost = lambda: interrupts.stop("the output was closed")
    with _writing_events(runtime, events), plain_log(), away_from_children(), interrupts, shown:
        watch = shown.watch if isinstance(shown, PlainView) else None
        result = _run(replace(job, team=replace(job.team, runtime=None)), runtime, watch)
    if result.refused:
        return Ended(result, USAGE_ERROR)
    run, commands = _recorded_run(job, runtime)
    interrupted = run is not None and result.status is TeamStatus.CANCELLED and run.state == "interrupted"
    if (
        run is not None and interrupted
    ):  # calls in doubt are charged when the run is left, which the result does not know
        result = replace(result, usage=replace(run.usage, seconds=result.usage.seconds))
    code = LEFT if interrupted else EXIT_CODE_BY_STATUS[result.status]
    return Ended(result, interrupts.exit_code or code, interrupted, commands)


@contextmanager
def _writing_events(runtime: Runtime, path: Path | None) -> Generator[None]:
    """Append the events of the runs in the block to a file; `Refusal` for one that cannot be written."""
    if path is None:
        yield
        return
    try:
        lines = JsonLines(path)
    except OSError as error:
        raise Refusal(f"--events {path}: it cannot be written: {error.strerror}; name another file") from error
    with lines:
        runtime.subscribers = (*runtime.subscribers, lines)
        yield


def _recorded_run(job: Job, runtime: Runtime) -> tuple[RecordedRun | None, list[str]]:
    """Return the run as its journal has it, once this process has left it, and the commands that continue it."""
    book = job.journal if isinstance(job.journal, OtherJournal) else runtime.store
    if not isinstance(book, SqlJournal | OtherJournal):
        return None, []
    try:
        if isinstance(book, SqlJournal):
            book.close()  # gives the run back, so that its state is final
        run = book.show(job.request.run_id)
        if run.state == "running" and isinstance(book, OtherJournal):  # this process still has it there
            run = run._replace(state="interrupted")
        return run, go_on_commands(book, run)
    except KairoError:  # it never began, the disk is broken, or a journal of a package shows no runs
        return None, []


def check(job: Job, runtime: Runtime | None = None, *, recorded: bool = False) -> PlanCheck:
    """Find out whether the job can start; `recorded`: in a journal that is not opened for this."""
    team, runtime = replace(job.team, runtime=None), runtime or _runtime(job, (), recorded=recorded)
    return front.check(team, job.request, coordinator=job.coordinator, runtime=runtime)


def _run(job: Job, runtime: Runtime, watch: Watch | None) -> TeamResult:
    call: Callable[[], Awaitable[Any]]
    if job.go_on is None:
        call = partial(front.run, job.team, job.request, coordinator=job.coordinator, runtime=runtime)
    else:
        how = job.go_on._asdict()
        call = partial(runtime.resume, job.request.run_id, job.team, coordinator=job.coordinator, **how)
    try:
        result: Any = anyio.run(_with_watch, watch, call)
    except (Exception, BaseExceptionGroup, SystemExit) as error:
        if isinstance(error, RunExists) and job.journal is not None:
            there = command("show", quoted(error.run_id), journal=job.journal)
            raise Refusal(
                f"run {error.run_id!r} is recorded already: give --run-id another id; {there} shows it"
            ) from error
        charged = job.journal is not None and job.journal.account is not None
        if job.journal is not None and charged and job.go_on is None and isinstance(error, InsufficientBudget | Misuse):
            there = command("budget", journal=job.journal)
            raise Refusal(f"nothing was started: {explain(error)}; {there} shows the accounts") from error
        if job.go_on is not None and isinstance(error, _NOT_RESUMED):
            way_out = ""
            if isinstance(error, PlanMismatch):
                way_out = f"; --allow-change {quoted(error.field)} resumes with the change"
            raise Refusal(f"{explain(error)}{way_out}") from error
        return TeamResult(job.request.run_id, TeamStatus.FAILED, error=masked(f"the run broke off: {explain(error)}"))
    if isinstance(result, TeamResult):
        return result
    wrong = f"the coordinator returned {one_line(repr(result), 80)}, not a TeamResult"
    return TeamResult(job.request.run_id, TeamStatus.FAILED, error=wrong)


async def _with_watch(watch: Watch | None, call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call while `watch` runs; raise the call's error unchanged."""
    if watch is None:
        return await call()
    try:
        async with background(watch):
            return await call()
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise
        raise first from first.__cause__


def _runtime(job: Job, subscribers: Sequence[Subscriber], *, recorded: bool = False) -> Runtime:
    """Return a runtime for the run, with the settings of the team's own runtime."""
    runtime = runtime_of(bind_runtime(job.team)).with_subscribers(subscribers)
    book = job.journal
    runtime.store = book.journal if isinstance(book, OtherJournal) else book or runtime.store
    runtime.engine = job.cluster or runtime.engine
    # Without a gate, questions of a recorded run wait in the journal for `kairo answer`.
    if runtime.gate is None and (recorded or runtime.store is not None):
        runtime.gate = DeferGate()
    if job.model is None:
        return runtime
    runtime.models = ModelResolver({"*": job.model})
    with refusing(KairoError):
        runtime.models.resolve(job.model)
    return runtime


def describe_unreplaced(job: Job) -> str:
    """Describe the owners of model objects, which --model does not replace; empty if every model is a name."""
    if job.model is None:
        return ""
    coordinator = pick_coordinator(job.team, job.request, job.coordinator)
    asked = {"the planner": getattr(coordinator, "planner", None)}
    asked |= {f"member {member.id!r}": member.agent for member in job.team.everyone}
    owners = [who for who, agent in asked.items() if not _is_named(getattr(agent, "model", None))]
    if not owners:
        return ""
    what = "brings its own model object, which stays"
    if len(owners) > 1:
        what = "bring their own model objects, which stay"
    if len(owners) > _MOST_OWNERS:
        owners = [*owners[: _MOST_OWNERS - 1], f"{len(owners) - _MOST_OWNERS + 1} more"]
    who = " and ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
    return f"--model replaces named models only: {who} {what}"


def _is_named(model: object) -> bool:
    """Return whether a model is a name or None."""
    if isinstance(model, Fallback):
        return all(map(_is_named, model.alternatives))
    return model is None or isinstance(model, str)


class _OneLine(logging.Formatter):
    """A log record as a sentence: no traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {explain(error)}" if error is not None else ""
        return shortened(f"{record.levelname.lower()}: {one_line(record.getMessage())}{why}")


class JsonLine(logging.Formatter):
    """A log record as a line of JSON, with the unit of work that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; all of it is ASCII, so that a terminal or a collector reads it whole."""
        from kairo_team.cluster.units import at_work

        unit = at_work.get()
        about = {} if unit is None else {"run": unit.run_id, "unit": unit.id, "fence": unit.fence}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **about,
        }
        if record.exc_info:
            line["error"] = shortened(self.formatException(record.exc_info))
        return json.dumps(line)


class _ToStderr(logging.StreamHandler[Any]):
    """Writes to the current stderr, which a live view replaces by its own."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@contextmanager
def plain_log(formatter: logging.Formatter | None = None) -> Generator[None]:
    """Show the library's log in sentences, unless the program has set up logging; with a formatter, in its lines."""
    logger = logging.getLogger("kairo_team")
    if logger.hasHandlers() and formatter is None:
        yield
        return
    handler = _ToStderr()
    handler.setFormatter(formatter or _OneLine())
    handler.addFilter(lambda record: not hasattr(record, "result"))  # the command itself shows how the run ended
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def log_level(level: int) -> Generator[None]:
    """Log in the block what is at least as severe."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
