"""The commands of `kairo`, and the one place that turns an error into a sentence."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kairo_team.cli.budgets import with_limits
from kairo_team.cli.desk import Desk
from kairo_team.cli.exits import QuietEnd
from kairo_team.cli.graph import check_place
from kairo_team.cli.interrupts import LEFT
from kairo_team.cli.job import USAGE_ERROR, Job
from kairo_team.cli.judge import judge_app
from kairo_team.cli.loading import find_request, find_team, importable, load_module, read_spec
from kairo_team.cli.refusal import Refusal, explain
from kairo_team.cli.streams import tolerate_narrow_encodings
from kairo_team.errors import KairoError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEMO: Final = "kairo_team.examples.release_notes"
_DEMO_MODEL: Final = "local:smollm2"
_SURVIVES: Final = "kairo_team.examples.survives"
_EXIT_CODES: Final = (
    "Exit codes: 0 completed, 3 degraded, 4 failed, 5 timeout, 6 cancelled, 7 suspended, 2 usage error, "
    "143 and 129 ended by SIGTERM and SIGHUP."
)

app = typer.Typer(
    name="kairo",
    help="Run a team of agents over a task graph, under a budget that holds.",
    epilog=_EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(judge_app, name="judge")

TeamFile = Annotated[str, typer.Argument(metavar="FILE.py[:TEAM]", help="A Python file that builds a kt.Team.")]
Goal = Annotated[
    str | None, typer.Argument(metavar="GOAL", help="What to do; default: the file's `request` or `plan`.")
]
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Use this model in place of every model the team names.")
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="LIMITS", help="Limits such as tokens=20000,seconds=110,dollars=0.05,loops=30."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document; everything else goes to stderr.")
]


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


@app.command(epilog=_EXIT_CODES)
def demo(
    context: typer.Context,
    *,
    repo: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A git repository; default: the one this directory is in.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that writes.")] = _DEMO_MODEL,
    json: JsonOption = False,
    budget: BudgetOption = None,
) -> int:
    """Have a team write release notes from a git history, on a model inside this process."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    if repo is not None and not repo.is_dir():
        raise Refusal(f"--repo {str(repo)!r} is not a directory: give the path of a git repository")
    try:
        team, request, coordinator, note = import_module(_DEMO).build(repo=repo, model=model)
    except (KairoError, ValueError, OSError) as error:
        raise Refusal(f"the demo cannot be set up: {explain(error)}") from error
    code = desk.run(Job(team, with_limits(request, budget), coordinator, note=note))
    if not json:
        desk.print_notice(f"see a run killed and resumed, and nothing paid twice: {_python()} -m {_SURVIVES}")
    return code


def _python() -> str:
    """Return what a person types here to start this Python."""
    program = Path(sys.executable)
    if which("python") == sys.executable:
        return "python"
    return str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)


@app.command(epilog=_EXIT_CODES)
def run(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    model: ModelOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
) -> int:
    """Run the team that a Python file builds, on a goal or on the file's own request or plan."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with loaded(file, goal, budget, model) as job:
        return desk.run(job)


@app.command(epilog="Exit codes: 0 it can start, 2 it cannot.")
def check(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    model: ModelOption = None,
    json: JsonOption = False,
    budget: BudgetOption = None,
) -> int:
    """Show how the budget would be split, and what would be refused; calls no agent and no model."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with loaded(file, goal, budget, model) as job:
        return desk.check(job)


@app.command(epilog="Exit codes: 0 drawn, 2 it cannot be.")
def graph(
    context: typer.Context,
    file: TeamFile,
    goal: Goal = None,
    *,
    svg: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw an SVG picture there; default: Mermaid on stdout.")
    ] = None,
) -> int:
    """Draw the plan that a run would follow; calls no agent, no planner and no model."""
    desk = cast("Desk", context.obj)
    if svg is None:
        desk.begin_chart()
    else:
        check_place(svg, read_spec(file).file)
    with loaded(file, goal) as job:
        return desk.graph(job, svg)


@contextmanager
def loaded(file: str, goal: str | None, budget: str | None = None, model: str | None = None) -> Generator[Job]:
    """Build the job that a file and the command line describe; the file's own imports work inside the block."""
    spec = read_spec(file)
    with importable(spec.file):
        module = load_module(spec.file)
        team = find_team(module, spec)
        yield Job(team, with_limits(find_request(module, team, goal), budget), model=model)


def run_command(arguments: Sequence[str], desk: Desk | None = None) -> int:
    """Run the command that the arguments name and return its exit code; bad input is a sentence on stderr."""
    desk = desk or Desk()
    command = typer.main.get_command(app)
    try:
        code: object = command.main(args=list(arguments), prog_name="kairo", standalone_mode=False, obj=desk)
    except Refusal as refusal:
        return desk.refuse(str(refusal))
    except (KeyboardInterrupt, typer.Abort):
        code = LEFT
    except Exception as error:
        complaint = getattr(error, "format_message", None)  # an argument typer cannot accept
        if complaint is None:
            raise
        if "--json" in arguments:
            desk.begin(json=True)
        return desk.refuse(f"{complaint().rstrip('.')}; kairo --help and kairo COMMAND --help list what there is")
    if code == LEFT:  # some versions of typer return it, some raise
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
