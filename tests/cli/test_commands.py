"""The list of commands in the help, which is written without importing them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

import kairo_team.cli
from kairo_team.cli.app import app
from kairo_team.cli.commands import COMMANDS

MODULES = Path(kairo_team.cli.__file__).parent


def short(help_text: str) -> str:
    """What a help text is cut to; no line of a list of commands is longer."""
    first = help_text.split("\n\n", maxsplit=1)[0]
    return " ".join(first.split())[:80]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_describes_a_command_as_its_own_help_begins(name: str) -> None:
    program: Any = typer.main.get_command(app)
    command = program.commands[name]
    assert short(command.help).startswith(short(COMMANDS[name].help))
    listed = TyperCommand(name, help=COMMANDS[name].help)
    assert command.get_short_help_str(60) == listed.get_short_help_str(60)


@pytest.mark.parametrize("group", [[], ["judge"], ["schema"]])
def test_a_list_of_commands_cuts_no_sentence(kairo: Any, group: list[str]) -> None:
    said = kairo(*group, "--help")
    assert "..." not in said.out.partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_has_options_of_typer_s_own(kairo: Any, name: str) -> None:
    assert "completion" not in kairo(name, "--help").out


def test_every_command_that_a_module_defines_is_listed() -> None:
    defined: set[str] = set()
    for path in MODULES.glob("*.py"):
        for group in re.findall(r"^(\w+_app) = typer\.Typer", path.read_text("utf-8"), re.MULTILINE):
            found: Any = typer.main.get_command(getattr(import_module(f"kairo_team.cli.{path.stem}"), group))
            is_one = group.removesuffix("_app") in ("judge", "schema")
            defined |= {group.removesuffix("_app")} if is_one else set(getattr(found, "commands", {found.name: found}))
    assert defined == set(COMMANDS)


def test_a_command_that_there_is_not_is_refused_with_the_nearest_one(kairo: Any) -> None:
    said = kairo("rum")
    assert said.code == 2
    assert "'run'" in said.err
