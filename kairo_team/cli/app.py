"""The commands of `kairo`, and the one place that turns an error into a sentence."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kairo_team.cli.console_command import console_app
from kairo_team.cli.desk import Desk
from kairo_team.cli.eval_command import eval_app
from kairo_team.cli.exits import QuietEnd
from kairo_team.cli.graph import check_place
from kairo_team.cli.init_command import init_app
from kairo_team.cli.interrupts import LEFT
from kairo_team.cli.job import USAGE_ERROR
from kairo_team.cli.journal_commands import journal_app
from kairo_team.cli.judge import judge_app
from kairo_team.cli.loading import read_team_spec
from kairo_team.cli.options import (
    EXIT_CODES,
    BudgetOption,
    ContentOption,
    CoordinatorOption,
    EventsOption,
    Goal,
    JournalOption,
    JsonOption,
    ModelOption,
    TeamFile,
)
from kairo_team.cli.plugins_command import plugins_app
from kairo_team.cli.refusal import Refusal
from kairo_team.cli.report_command import report_app
from kairo_team.cli.schema_command import schema_app
from kairo_team.cli.sources import demo_job, demo_source, file_source, loaded, recorded
from kairo_team.cli.streams import tolerate_narrow_encodings

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEMO_MODEL: Final = "local:smollm2"
_SURVIVES: Final = "kairo_team.examples.survives"
_GOOD: Final = (0, 3)
"""Exit codes of a run that has a result: completed and degraded."""

app = typer.Typer(
    name="kairo",
    help="Run a team of agents over a task graph, under a budget that holds.",
    epilog=EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(judge_app, name="judge")
app.add_typer(schema_app, name="schema")
app.add_typer(journal_app)
app.add_typer(console_app)
app.add_typer(report_app)
app.add_typer(eval_app)
app.add_typer(plugins_app)
app.add_typer(init_app)


@app.callback(invoke_without_command=True)
def kairo(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int:
    """Run a team of agents over a task graph, under a budget that holds."""
    if show_version:
        print(f"kairo {_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE_ERROR)
    return 0


def _version() -> str:
    try:
        return version("kairo-team")
    except PackageNotFoundError:
        return "(not installed)"


@app.command(epilog=EXIT_CODES)
def demo(
    context: typer.Context,
    *,
    repo: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A git repository; default: the one this directory is in.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that writes.")] = _DEMO_MODEL,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: JournalOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
) -> int:
    """Have a team write release notes from a git history, on a model inside this process."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with recorded(demo_job(repo, budget, model), journal, demo_source(model)) as job:
        code = desk.run(job, events, content)
    if code in _GOOD and not json and journal is None:
        desk.print_notice(f"see a run killed and resumed, and nothing paid twice: {_python()} -m {_SURVIVES}")
    return code


def _python() -> str:
    """Return what a person types here to start this Python."""
    program = Path(sys.executable)
    if which("python") == sys.executable:
        return "python"
    return str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)


@app.command(epilog=EXIT_CODES)
def run(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    model: ModelOption = None,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: JournalOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="The run's id; default: a new one.")
    ] = None,
) -> int:
    """Run the team that a Python file builds or a file of data holds, on a goal or on the file's own request or plan.

    With a journal, Ctrl-C leaves the run interrupted: `kairo resume` goes on with it. A team without a gate of its own
    then waits for answers to its questions: `kairo answer` gives them.
    """
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with (
        loaded(file, goal, budget, model, coordinator) as job,
        recorded(job, journal, file_source(file, goal, model, coordinator), run_id) as kept,
    ):
        return desk.run(kept, events, content)


@app.command(epilog="Exit codes: 0 it can start, 2 it cannot.")
def check(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    model: ModelOption = None,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
) -> int:
    """Show how the budget would be split, and what would be refused; calls no agent and no model."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with loaded(file, goal, budget, model, coordinator) as job:
        return desk.check(job)


@app.command(epilog="Exit codes: 0 drawn, 2 it cannot be.")
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
    desk = cast("Desk", context.obj)
    if svg is None:
        desk.begin_chart()
    else:
        check_place(svg, read_team_spec(file).file)
    with loaded(file, goal, coordinator=coordinator) as job:
        return desk.graph(job, svg)


def run_command(arguments: Sequence[str], desk: Desk | None = None) -> int:
    """Run the command that the arguments name and return its exit code; bad input is a sentence on stderr."""
    desk = desk or Desk()
    command = typer.main.get_command(app)
    try:
        code: object = command.main(args=list(arguments), prog_name="kairo", standalone_mode=False, obj=desk)
    except Refusal as refusal:
        return desk.refuse(*refusal.args)
    except (KeyboardInterrupt, typer.Abort):
        code = LEFT
    except Exception as error:
        complaint = getattr(error, "format_message", None)  # an argument typer cannot accept
        if complaint is None:
            raise
        if "--json" in arguments:
            desk.begin(json=True)
        return desk.refuse(f"{complaint().rstrip('.')}; kairo --help and kairo COMMAND --help list what there is")
    if code == LEFT and not desk.has_shown:  # some versions of typer return it, some raise
        desk.print_notice("interrupted")
    return code if isinstance(code, int) else 0


def run_program(arguments: Sequence[str]) -> int:
    """Run a command as the whole of this process."""
    end = QuietEnd()
    tolerate_narrow_encodings()
    desk = Desk()
    end.code = code = desk.close(run_command(arguments, desk))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the rest prints nothing, also when it is interrupted
    return code
