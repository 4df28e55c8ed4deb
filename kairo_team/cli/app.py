"""The program `kairo`: its help, and the one place that turns an error into a sentence.

Only the imports that `kairo --help` needs are here; a command's module and its views are imported when it is called.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, cast

import typer

from kairo_team.cli.commands import Commands
from kairo_team.cli.exit_codes import EXIT_CODES, LEFT, USAGE_ERROR, QuietEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.cli.desk import Desk

app = typer.Typer(
    name="kairo",
    cls=Commands,
    help="Run a team of agents over a task graph, under a budget that holds.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_COMPLETION: Final = "_KAIRO_COMPLETE"
"""The environment variable by which a shell asks for words that complete a command line."""


class LazyDesk:
    """The desk of one command, made when it is first needed; the help needs none."""

    def __init__(self) -> None:
        self.made: Desk | None = None

    def get(self) -> Desk:
        """Return the desk."""
        if self.made is None:
            from kairo_team.cli.desk import Desk  # it imports every view

            self.made = Desk()
        return self.made

    def close(self, code: int) -> int:
        """Flush the buffers; return the exit code, or another one if the output was lost."""
        if self.made is None:
            streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
            try:
                for stream in filter(None, streams):
                    stream.flush()
            except OSError:
                return self.get().close(code)
            return code
        return self.made.close(code)


@app.callback(invoke_without_command=True)
def kairo(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int:
    """Run a team of agents over a task graph, under a budget that holds."""
    if show_version:
        print_version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE_ERROR)
    context.obj = cast("LazyDesk", context.obj).get()
    return 0


def print_version() -> None:
    """Print the version of the library."""
    from kairo_team._util.version import version_of_library

    print(f"kairo {version_of_library() or '(not installed)'}")


def run_command(arguments: Sequence[str], desk: LazyDesk | None = None) -> int:
    """Run the command that the arguments name and return its exit code; bad input is a sentence on stderr."""
    desk = desk or LazyDesk()
    if [*arguments] == ["--version"]:  # typer would import pydantic to run anything
        print_version()
        return 0
    command = typer.main.get_command(app)
    try:
        options = _defaults(arguments)
        code: object = command.main(
            args=list(arguments), prog_name="kairo", standalone_mode=False, obj=desk, default_map=options
        )
    except (KeyboardInterrupt, typer.Abort):
        code = LEFT
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            return desk.get().lose(error)  # typer could not write its help
        sentences = _refusal(error)
        if sentences is None:
            raise
        if "--json" in arguments:
            desk.get().begin(json=True)
        return desk.get().refuse(*sentences)
    if code == LEFT and not desk.get().has_shown:  # some versions of typer return it, some raise
        desk.get().print_notice("interrupted")
    return code if isinstance(code, int) else 0


def _defaults(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of options that the working directory sets; none where no command runs."""
    runs_nothing = not arguments or not {"--help", "--version"}.isdisjoint(arguments) or _COMPLETION in os.environ
    if runs_nothing or not os.path.exists("pyproject.toml"):  # noqa: PTH110 - pathlib would have to be imported
        return {}
    from kairo_team.cli.defaults import defaults  # imported only where there may be some

    return defaults(arguments)


def _refusal(error: Exception) -> Sequence[str] | None:
    """Return the sentences on why a command was not started; None for any other error."""
    from kairo_team.cli.refusal import Refusal  # imported only after a mistake

    if isinstance(error, Refusal):
        return cast("Sequence[str]", error.args)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return [f"no file can have the name {str(error.filename)!r:.80}: it is too long; give the path of a file"]
    complaint = getattr(error, "format_message", None)  # an argument typer cannot accept
    if complaint is None:
        return None
    text = complaint().replace("Value error, ", "")  # pydantic's, of an option's value
    context = getattr(error, "ctx", None)
    name = "kairo" if context is None else context.command_path
    return [f"{text}{'' if text.endswith(('.', '?')) else '.'} {name} --help lists what there is"]


def run_program(arguments: Sequence[str]) -> int:
    """Run a command as the whole of this process."""
    end = QuietEnd()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a question mark for a character that its encoding does not have
    desk = LazyDesk()
    end.code = code = desk.close(run_command(arguments, desk))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on an interrupt ends the process without a traceback
    return code
