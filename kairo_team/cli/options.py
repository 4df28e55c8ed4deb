"""What several commands take: arguments, options, and the desk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kairo_team.cli.numbers import whole_number
from kairo_team.cluster.delivery import EngineName
from kairo_team.engine.work.runtime import ContentMode

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk

TeamFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:TEAM]",
        help="A Python file, or MODULE:TEAM, that builds a kt.Team, or a team as data in .yaml, .toml or .json.",
    ),
]
Goal = Annotated[
    str | None, typer.Argument(metavar="GOAL", help="What to do; default: the file's `request` or `plan`.")
]
FilesOption = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="PATH", help="Give every member this file, such as photo.png; may be repeated."),
]
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Use this model in place of every model the team names.")
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="NAME",
        help="The coordinator, as `kairo plugins coordinator` lists them; default: the team's own, else the usual one.",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="LIMITS", help="Limits such as tokens=20000,seconds=110; also dollars=0.05 and loops=30."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document; everything else goes to stderr.")
]
HostOption = Annotated[str, typer.Option(metavar="ADDRESS", help="The address it binds to.")]
TlsCertOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate.")]
TlsKeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The key of that certificate.")]
BehindProxyOption = Annotated[
    bool, typer.Option("--behind-proxy", help="A proxy in front of it serves HTTPS; needs --name.")
]
JournalOption = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="FILE|NAME:OPTIONS",
        envvar="KAIRO_JOURNAL",
        help="The journal in which runs are recorded: a file, NAME:option=value,... for one that a package brings "
        "(`kairo plugins journal`), or TEAM.py for that team's own.",
    ),
]
FileJournalOption = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="FILE", envvar="KAIRO_JOURNAL", help="The file of the journal in which runs are recorded."
    ),
]
"""For commands that read or write the tables of a journal, which only a file or a database has."""
AccountOption = Annotated[
    str | None,
    typer.Option(
        "--account", metavar="NAME", help="Set the run's budget aside in this account; `kairo budget` shows it."
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The PostgreSQL database in which runs are recorded: its URL, or env:NAME or file:PATH, which have it; "
        "default: KAIRO_DATABASE.",
    ),
]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine", help="What delivers work; default: the engine that the database already uses, else procrastinate."
    ),
]
RunIdOption = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="The run's id; default: a new one.")]
EventsOption = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Append every event of the run to this file, one JSON line each."),
]
ContentOption = Annotated[
    ContentMode | None,
    typer.Option(
        "--content",
        envvar="KAIRO_CONTENT",
        help="Which events have prompts, replies, arguments, results and artifacts: none, --events and the journal's, "
        "or the journal's alone; default: as the team's runtime says.",
    ),
]
VotesOption = Annotated[
    int | None,
    whole_number("Ask up to N times; the share of votes is the confidence. Default: as the rubric says.", 1),
]
RubricOption = Annotated[
    str,
    typer.Option("--rubric", metavar="FILE", help="A rubric: FILE.py[:NAME], or data in .yaml, .toml or .json."),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its beginning.")]


def desk_of(context: typer.Context, *, json: bool = False) -> Desk:
    """Return the desk of a command; with `json` it keeps stdout for the document."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    return desk
