"""The command line, `kairo`. It needs the extra `cli` (typer and rich), which is imported when a command runs."""

from __future__ import annotations

import gc
import signal
import sys
from importlib.util import find_spec

from kairo_team.cli.secret_arguments import hide_database_url
from kairo_team.errors import MissingExtra

__all__ = ["main"]


def main() -> int:
    """Run the command that the program's arguments name and return its exit code."""
    if any(find_spec(name) is None for name in ("typer", "rich")):
        print(f"kairo: {MissingExtra('the command line', 'cli')}", file=sys.stderr)
        return 2
    hide_database_url()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # there is nothing to clean up yet, and a traceback from an import does not help
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(20_000)  # imports make much and free nothing: to look for garbage takes a tenth of their time
    from kairo_team.cli.app import run_program

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_program(sys.argv[1:])
