"""`kairo schema`: the JSON Schemas of files of data, for editors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import typer

from kairo_team.cli.exit_codes import exit_codes
from kairo_team.evaluators.rubric import Rubric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kairo_team.cli.desk import Desk

schema_app = typer.Typer(help="Print the JSON Schema of a file of data.", add_completion=False, rich_markup_mode=None)


@schema_app.callback(invoke_without_command=True)
def schema(context: typer.Context) -> int:
    """Print the JSON Schema of a file of data; without a name, list the schemas."""
    if context.invoked_subcommand is None:
        for command in schema_app.registered_commands:
            print(f"kairo schema {command.name}")
    return 0


@schema_app.command("rubric", epilog=exit_codes("printed"))
def schema_rubric(context: typer.Context) -> int:
    """Print the JSON Schema of a rubric in .yaml, .toml or .json."""
    return _print(context, Rubric.json_schema())


@schema_app.command("team", epilog=exit_codes("printed"))
def schema_team(context: typer.Context) -> int:
    """Print the JSON Schema of a team in .yaml, .toml or .json."""
    from kairo_team.data.teams.loading import team_schema  # slow to import

    return _print(context, team_schema())


def _print(context: typer.Context, schema: Mapping[str, Any]) -> int:
    desk = cast("Desk", context.obj)
    desk.begin(json=True)
    document = json.dumps(schema, indent=2) + "\n"
    desk.present(document, lambda screen: screen.print_text(document))
    return 0
