"""`kairo worker` and `kairo submit`: a team on many machines, over one PostgreSQL database."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, Literal

import anyio
import typer

from kairo_team.cli.databases import (
    BEAT,
    MAX_DELIVERIES,
    WORKER_PATIENCE,
    away_from_children,
    clustered,
    connect,
    database_of,
    tell_if_away,
)
from kairo_team.cli.exit_codes import (
    EXIT_CODE_BY_STATUS,
    EXIT_CODES,
    GIVEN_UP_CODE,
    LEFT,
    LEFT_BY_SIGNAL,
    list_exit_codes,
)
from kairo_team.cli.interrupts import handled, leave
from kairo_team.cli.job import Ended, Job, JsonLine, check, log_level, plain_log
from kairo_team.cli.journals import command, coverage_of_run, go_on_commands, quoted, until_reached, worker_command
from kairo_team.cli.loading import importable, load_team_file, read_team_spec
from kairo_team.cli.numbers import seconds, whole_number
from kairo_team.cli.options import (
    AccountOption,
    BudgetOption,
    DatabaseOption,
    EngineOption,
    Goal,
    JsonOption,
    RunIdOption,
    TeamFile,
    desk_of,
)
from kairo_team.cli.refusal import Refusal, explain
from kairo_team.cli.run_table import show_commands
from kairo_team.cli.sources import file_source, loaded, with_id
from kairo_team.engine.work.runtime import bind_runtime, runtime_of
from kairo_team.errors import InsufficientBudget, JournalError, MissingExtra, Misuse, RunExists
from kairo_team.recorded import ENDED, GIVEN_UP

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.cluster.service import WorkerService
    from kairo_team.recorded import RecordedRun

LogFormat = Literal["text", "json"]
_LOOK: Final = 0.5
"""Seconds between two checks whether a run has ended."""
_WORKER_CODES: Final = list_exit_codes(
    "ended by a signal, its work done or given back", {LEFT: "left at once, by Ctrl-C", 143: "left at once, by SIGTERM"}
)
_SUBMIT_CODES: Final = EXIT_CODES.removesuffix(".") + f"; {GIVEN_UP_CODE} given up by the workers (--wait)."
_ONE_SIGNAL: Final = 1.0
"""Seconds in which several signals count as one, because process managers often send them twice."""

cluster_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@cluster_app.command(epilog=_WORKER_CODES)
def worker(
    file: TeamFile,
    *,
    database: DatabaseOption = None,
    engine: EngineOption = None,
    concurrency: Annotated[int, whole_number("Attempts made at once.", 1)] = 8,
    members: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Make attempts of these members alone, and coordinate no runs; default: all."),
    ] = None,
    beat: Annotated[float, seconds("Time between two heartbeats; the same for all workers.")] = BEAT,
    max_deliveries: Annotated[
        int,
        whole_number("Deaths of workers at one unit after which it is given up.", 1),
    ] = MAX_DELIVERIES,
    drain: Annotated[
        float,
        seconds("How long work in hand may take after SIGTERM or Ctrl-C."),
    ] = 30.0,
    health: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer /healthz and /readyz there; a port alone: on this machine."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How lines are written: as text, or as JSON with time, run, unit and fence.")
    ] = "text",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print a line when an attempt or a run begins and when it ends.")
    ] = False,
) -> int:
    """Make attempts and coordinate runs for a team whose runs are in a database, until SIGTERM or Ctrl-C.

    Any number of workers on any number of machines serve one database. After the first signal a worker takes no new
    work and ends the work it has; unfinished work is given to other workers. A second signal ends the worker at once.
    """
    place = database_of(database)
    spec = read_team_spec(file)
    names = None if members is None else [name.strip() for name in members.split(",") if name.strip()]
    with ExitStack() as stack:
        stack.enter_context(importable(spec.folder))
        team, _ = load_team_file(spec)
        say = _say_text if log_format == "text" else _say_json
        stack.enter_context(plain_log(None if log_format == "text" else JsonLine()))
        if verbose:
            stack.enter_context(log_level(logging.INFO))
        try:
            from kairo_team.cluster.health import HealthServer
            from kairo_team.cluster.service import WorkerService

            make = partial(connect, place, engine, beat=beat, max_deliveries=max_deliveries, patience=WORKER_PATIENCE)
            service = WorkerService(make, team, concurrency=concurrency, members=names, drain=drain, tell=say)
            if health is not None:
                server = stack.enter_context(HealthServer(service, health))
                say(f"health: port {server.port}, /healthz and /readyz")
            tell_if_away(place, say)
            with _ended_by_signals(service), away_from_children():
                anyio.run(service.run)
        except MissingExtra as error:
            raise Refusal(str(error)) from None
        except (JournalError, Misuse, ValueError) as error:
            raise Refusal(explain(error)) from None
    say("ended")
    return 0


def _say_text(line: str) -> None:
    with suppress(OSError, ValueError):  # without a reader the worker still works
        print(line, flush=True)


def _say_json(line: str) -> None:
    record = logging.LogRecord("kairo_team", logging.INFO, "", 0, line, (), None)
    _say_text(JsonLine().format(record))


@contextmanager
def _ended_by_signals(service: WorkerService) -> Generator[None]:
    """Have the first signal stop the service, and the second one end the process at once."""
    first: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = now
            service.stop()
        elif now - first > _ONE_SIGNAL:
            leave(LEFT_BY_SIGNAL + number)

    with handled((signal.SIGINT, signal.SIGTERM), handle):
        yield


# ---------------------------------------------------------------- submit


@cluster_app.command(epilog=_SUBMIT_CODES)
def submit(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    database: DatabaseOption = None,
    engine: EngineOption = None,
    budget: BudgetOption = None,
    account: AccountOption = None,
    run_id: RunIdOption = None,
    priority: Annotated[
        int,
        whole_number("When several runs or attempts wait, a higher priority begins first; default: 0.", -1000, 1000),
    ] = 0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends or asks a person, and show its result.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Record a run in a database for the workers of its team to coordinate, and print its id.

    Takes a goal, or the file's own request or plan, as `kairo run` does. With --wait the exit code is the run's.
    """
    desk = desk_of(context, json=json)
    place = database_of(database)
    with (
        loaded(file, goal, budget) as job,
        clustered(place, engine, file_source(file, goal, None, None)) as cluster,
    ):
        made = with_id(job, run_id)
        _send(cluster, made, account, priority)
        _show_sent(cluster, made, desk, json=json and not wait)
        return _wait_for(cluster, made, desk) if wait else 0


def _send(cluster: Cluster, job: Job, account: str | None, priority: int) -> None:
    found = check(job, recorded=True)
    if not found.ok:
        raise Refusal(f"nothing was submitted: {'; '.join(found.problems)}")
    templates = runtime_of(bind_runtime(job.team)).templates
    try:
        cluster.submit(job.team, job.request, templates, account=account, priority=priority)
    except RunExists as error:
        there = command("show", quoted(error.run_id), journal=cluster.journal)
        raise Refusal(f"run {error.run_id!r} is recorded already: give --run-id another id; {there} shows it") from None
    except InsufficientBudget as short:
        raise Refusal(
            f"nothing was submitted: {explain(short)}; kairo budget {quoted(short.origin)} shows it"
        ) from None


def _show_sent(cluster: Cluster, job: Job, desk: Desk, *, json: bool) -> None:
    run, journal = cluster.journal.show(job.request.run_id), cluster.journal
    name = quoted(run.run_id)
    words = (("show", name), ("events", name, "--follow"), ("cancel", name))
    commands = [command(*one, journal=journal) for one in words]
    coverage = coverage_of_run(journal, run)
    if json:
        desk.present(_waiting_document(run, coverage.problem, commands), lambda _screen: None)
        return
    desk.screen.print_text(f"run {run.run_id} is submitted to {journal.place}")
    if coverage.problem is not None:
        desk.screen.print_text(f"it waits: {coverage.problem}")
        commands = [worker_command(journal, run), *commands] if coverage.needs_worker else commands
    show_commands(commands, desk.screen, title="continue with:")


def _waiting_document(run: RecordedRun, why: str | None, go_on: Sequence[str]) -> dict[str, object]:
    """Return the document of a run that has no result yet."""
    return {"run_id": run.run_id, "state": run.state, "waits": why, "go_on": list(go_on)}


def _wait_for(cluster: Cluster, job: Job, desk: Desk) -> int:
    """Wait until the run has ended, has a question for a person, or is given up; show its result."""
    journal, run_id = cluster.journal, job.request.run_id
    try:
        look = partial(journal.show, run_id)
        while (run := until_reached(look, desk.print_notice)).state not in (*ENDED, "suspended", GIVEN_UP):
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        there = command("show", quoted(run_id), journal=journal)
        desk.print_notice(f"the run continues: {there} shows it")
        return LEFT
    if run.state == GIVEN_UP:
        why = coverage_of_run(journal, run).problem
        document = _waiting_document(run, why, go_on_commands(journal, run))
        return desk.present(document, lambda screen: screen.print_text(f"run {run_id} waits: {why}"), GIVEN_UP_CODE)
    result = journal.result(run_id)
    if result is None:  # it was cancelled before it began
        desk.print_notice(f"run {run_id} has ended: {run.state}")
        return EXIT_CODE_BY_STATUS[run.state]
    return desk.show_ended(job, Ended(result, EXIT_CODE_BY_STATUS[result.status], go_on=go_on_commands(journal, run)))
