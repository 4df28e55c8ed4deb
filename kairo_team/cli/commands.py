"""The commands of `kairo` by name; a command's module is imported when the command is called, not for the help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup


class Place(NamedTuple):
    """The place of a command, and its description in the list of commands."""

    home: str
    """`module:app` in `kairo_team.cli`."""
    help: str
    """The first sentence of the command's own help."""


COMMANDS: Final[Mapping[str, Place]] = {
    "demo": Place(
        "demo_command:demo_app",
        "Have a team write release notes from a git history, on a model inside this process, in five scenes.",
    ),
    "run": Place(
        "run_commands:run_app",
        "Run the team that a Python file builds or a file of data holds, "
        "on a goal or on the file's own request or plan.",
    ),
    "check": Place(
        "run_commands:run_app",
        "Show how the budget would be split, and what would be refused; calls no agent and no model.",
    ),
    "graph": Place(
        "run_commands:run_app", "Draw the plan that a run would follow; calls no agent, no planner and no model."
    ),
    "judge": Place("judge:judge_app", "Try a judge on a text, compare it with labelled examples, and attack it."),
    "schema": Place("schema_command:schema_app", "Print the JSON Schema of a file of data."),
    "runs": Place("journal_commands:journal_app", "List the recorded runs, the newest first."),
    "show": Place(
        "journal_commands:journal_app",
        "Show the state of a recorded run: tasks, calls, open questions, and the command that resumes it.",
    ),
    "compare": Place(
        "journal_commands:journal_app",
        "Show two recorded runs side by side, task by task; tasks that ended differently come first.",
    ),
    "questions": Place(
        "journal_commands:journal_app",
        "List the open questions of all runs: the oldest first, with the command that answers it, deferred ones last.",
    ),
    "resume": Place(
        "journal_commands:journal_app",
        "Resume a run that is suspended, or whose process is gone: nothing that was finished is done again.",
    ),
    "answer": Place("journal_commands:journal_app", "Answer an open question of a recorded run."),
    "cancel": Place("journal_commands:journal_app", "End a recorded run for good: it cannot be resumed."),
    "steer": Place(
        "journal_commands:journal_app",
        "Give a directive to a run that is at work in another process: members see it at their next turn.",
    ),
    "top-up": Place(
        "journal_commands:journal_app",
        "Raise the limits of a run that is at work in another process; tasks that wait for budget try again.",
    ),
    "fork": Place(
        "journal_commands:journal_app",
        "Make a new run from an earlier point of a recorded one, which stays as it is; kept work is not paid again.",
    ),
    "forget": Place(
        "journal_commands:journal_app", "Delete a recorded run that no process has, or all runs that ended long ago."
    ),
    "events": Place("journal_commands:journal_app", "Print the events of a recorded run as JSON Lines."),
    "migrate": Place(
        "upkeep_commands:upkeep_app",
        "Bring the tables of a journal or a database to the format of this version, in one transaction.",
    ),
    "backup": Place(
        "upkeep_commands:upkeep_app", "Copy a journal that may be in use, with all its records, to a file."
    ),
    "metrics": Place(
        "metrics_command:metrics_app",
        "Print how many runs, questions, workers and calls in doubt a journal has, in the text format of Prometheus.",
    ),
    "top": Place(
        "top_command:top_app",
        "Show the workers and open runs of a journal or a database, live in a terminal until Ctrl-C.",
    ),
    "worker": Place(
        "cluster_commands:cluster_app",
        "Make attempts and coordinate runs for a team whose runs are in a database, until SIGTERM or Ctrl-C.",
    ),
    "submit": Place(
        "cluster_commands:cluster_app",
        "Record a run in a database for the workers of its team to coordinate, and print its id.",
    ),
    "pause": Place(
        "queue_commands:queue_app",
        "Let no further submitted run of a queue begin, until `kairo unpause`; runs at work continue.",
    ),
    "unpause": Place(
        "queue_commands:queue_app",
        "Let the submitted runs of a paused queue begin again, the highest priority first.",
    ),
    "queue": Place(
        "queue_commands:queue_app",
        "Show the queues of submitted runs, or set how many runs of a team, an account or all are at work at once.",
    ),
    "budget": Place(
        "account_commands:account_app",
        "Set the budget of an account, which limits all runs charged to it, or show what is used and set aside.",
    ),
    "serve": Place(
        "serve_command:serve_app",
        "Serve a team by MCP, OpenAI's interface, A2A and AG-UI, each run under a budget.",
    ),
    "console": Place(
        "console_command:console_app", "Show recorded runs in a browser, live, and answer their questions there."
    ),
    "report": Place(
        "report_command:report_app", "Write a run as one HTML file that opens from disk and needs no network."
    ),
    "eval": Place(
        "eval_command:eval_app",
        "Run a team on every case of a dataset, review each result, and print what share passed.",
    ),
    "plugins": Place(
        "plugins_command:plugins_app",
        "List the plug-ins that files, options and configurations can name: built-in ones and installed ones.",
    ),
    "init": Place(
        "init_command:init_app",
        "Write a small project that works at once: a team with its rubric, its tests and a CI workflow.",
    ),
}
"""Commands in the order of the help."""


class CommandTable(Mapping[str, Any]):
    """The commands by name; looking one up imports its module."""

    def __getitem__(self, name: str) -> Any:
        module, _, app = COMMANDS[name].home.partition(":")
        found: Any = typer.main.get_command(getattr(import_module(f"kairo_team.cli.{module}"), app))
        return getattr(found, "commands", {}).get(name, found)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class WholeSentences(TyperGroup):
    """A group whose list of commands shows the whole first sentence of each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        _write_list({name: one.help or "" for name, one in self.commands.items()}, ctx, formatter)


class Commands(TyperGroup):
    """The group of all commands; none is imported before it is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = cast("Any", CommandTable())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; another program's command is answered with ours."""
        if args and args[0] not in COMMANDS:
            from kairo_team._util.guesses import OF_THE_COMMAND_LINE  # imported only after a mistake
            from kairo_team.cli.refusal import Refusal

            if args[0] in OF_THE_COMMAND_LINE:
                raise Refusal(f"there is no command {args[0]!r}: {OF_THE_COMMAND_LINE[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        _write_list({name: place.help for name, place in COMMANDS.items()}, ctx, formatter)


def _write_list(helps: Mapping[str, str], ctx: Any, formatter: Any) -> None:
    listed: dict[str, TyperCommand] = {}
    for name, text in helps.items():
        sentence = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
        listed[name] = TyperCommand(name, short_help=f"{sentence}.")
    TyperGroup(commands=cast("Any", listed)).format_commands(ctx, formatter)
