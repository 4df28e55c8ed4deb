"""`kairo schema`: the JSON Schemas of files of data, for editors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.options import desk_of
from kairo_team.evaluators.rubric import Rubric

if TYPE_CHECKING:
    from collections.abc import Mapping


schema_app = typer.Typer(help="Print the JSON Schema of a file of data.", add_completion=False, rich_markup_mode=None)


@schema_app.callback(invoke_without_command=True)
def schema(context: typer.Context) -> int:
    """Print the JSON Schema of a file of data; without a name, list the schemas."""
    if context.invoked_subcommand is None:
        for command in schema_app.registered_commands:
            print(f"kairo schema {command.name}")
    return 0


@schema_app.command("rubric", epilog=list_exit_codes("printed"))
def schema_rubric(context: typer.Context) -> int:
    """Print the JSON Schema of a rubric in .yaml, .toml or .json."""
    return _print(context, Rubric.json_schema())


@schema_app.command("team", epilog=list_exit_codes("printed"))
def schema_team(context: typer.Context) -> int:
    """Print the JSON Schema of a team in .yaml, .toml or .json."""
    from kairo_team.data.teams.loading import team_schema  # slow to import

    return _print(context, team_schema())


def _print(context: typer.Context, schema: Mapping[str, Any]) -> int:
    desk_of(context, json=True).put(json.dumps(schema, indent=2) + "\n")
    return 0
