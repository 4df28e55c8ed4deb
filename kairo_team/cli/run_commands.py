"""The commands that take a team's file: `kairo run`, `check` and `graph`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kairo_team.cli.databases import any_place_of
from kairo_team.cli.exit_codes import EXIT_CODES, list_exit_codes
from kairo_team.cli.loading import read_team_spec
from kairo_team.cli.options import (
    AccountOption,
    BudgetOption,
    ContentOption,
    CoordinatorOption,
    DatabaseOption,
    EngineOption,
    EventsOption,
    FilesOption,
    Goal,
    JournalOption,
    JsonOption,
    ModelOption,
    RunIdOption,
    TeamFile,
    desk_of,
)
from kairo_team.cli.outputs import check_output
from kairo_team.cli.sources import file_source, loaded, recorded, refuse_model

run_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@run_app.command(epilog=EXIT_CODES)
def run(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    files: FilesOption = None,
    model: ModelOption = None,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    engine: EngineOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
    account: AccountOption = None,
    run_id: RunIdOption = None,
) -> int:
    """Run the team that a Python file builds or a file of data holds, on a goal or on the file's own request or plan.

    With a journal, Ctrl-C leaves the run interrupted: `kairo resume` resumes it. A team without its own gate then waits
    for answers to its questions: `kairo answer` gives them. With a database, `kairo worker`s of the same team make the
    attempts.
    """
    desk = desk_of(context, json=json)
    place = any_place_of(journal, database)
    refuse_model(place, model)
    with (
        loaded(file, goal, budget, model, coordinator, files) as job,
        recorded(job, place, file_source(file, goal, model, coordinator), run_id, engine, account) as kept,
    ):
        return desk.run(kept, events, content)


@run_app.command(epilog=list_exit_codes("it can start", refused="it cannot"))
def check(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    files: FilesOption = None,
    model: ModelOption = None,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Show how the budget would be split, and what would be refused; calls no agent and no model.

    With a journal, which is not opened, questions of a team without its own gate can wait, as for `kairo run`.
    """
    desk = desk_of(context, json=json)
    recorded = any_place_of(journal, database) is not None
    with loaded(file, goal, budget, model, coordinator, files) as job:
        return desk.check(job, recorded=recorded)


@run_app.command(epilog=list_exit_codes("drawn", refused="it cannot be"))
def graph(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    coordinator: CoordinatorOption = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw an SVG picture there; default: Mermaid on stdout.")
    ] = None,
) -> int:
    """Draw the plan that a run would follow; calls no agent, no planner and no model."""
    desk = desk_of(context)
    if svg is None:
        desk.begin_chart()
    else:
        check_output("--svg", svg, [str(read_team_spec(file).file)])
    with loaded(file, goal, coordinator=coordinator) as job:
        return desk.graph(job, svg)
