"""`kairo demo`: a team at work in five scenes, from the first task to the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kairo_team.cli.databases import file_of
from kairo_team.cli.demo_scenes import Demo
from kairo_team.cli.exit_codes import EXIT_CODES
from kairo_team.cli.options import (
    BudgetOption,
    ContentOption,
    EventsOption,
    JournalOption,
    JsonOption,
    desk_of,
)
from kairo_team.cli.sources import demo_job, demo_source, recorded

_MODEL: Final = "local:smollm2"

demo_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@demo_app.command(epilog=EXIT_CODES)
def demo(
    context: typer.Context,
    *,
    repo: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A git repository; default: commits that come with the demo.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that writes.")] = _MODEL,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: JournalOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
) -> int:
    """Have a team write release notes from a git history, on a model inside this process, in five scenes.

    A team at work; a sentence that was sent back and revised; the same team with a tenth of the budget; a killed
    process, whose run is resumed; the report. With --json only the first scene is played.
    """
    desk = desk_of(context, json=json)
    job = demo_job(repo, budget, model)
    if not json:
        return Demo(desk, job, model, file_of(journal), events, content, own_commits=repo is not None).play()
    with recorded(job, file_of(journal), demo_source(model)) as kept:
        return desk.run(kept, events, content)
