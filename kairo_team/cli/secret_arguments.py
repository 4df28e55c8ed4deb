"""Remove a database URL with a password from the command line at once: other users of the machine can list it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from kairo_team._util.database_url import has_password

OPTION: Final = "--database"
GIVEN: Final = "KAIRO_DATABASE_GIVEN"
"""The environment variable that the URL of the command line is moved to."""
FROM_ENVIRONMENT: Final = "env:"
"""The prefix that marks the name of an environment variable in place of a URL."""


def hide_database_url() -> None:
    """Restart the program with the URL in the environment, if its command line has a URL with a password.

    On Windows the program is not restarted, and its command line stays as it was.
    """
    arguments, url = without_password(sys.argv[1:])
    if url is None:
        return
    os.environ[GIVEN] = url
    count = len(sys.argv) - 1
    if os.name == "posix" and sys.orig_argv[len(sys.orig_argv) - count :] == sys.argv[1:]:
        interpreter = sys.orig_argv[1 : len(sys.orig_argv) - count]
        # Only a new program has another command line in the list of processes.
        os.execv(sys.executable, [sys.executable, *interpreter, *arguments])  # noqa: S606 - no shell is wanted
    sys.argv[1:] = arguments


def without_password(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments with the name of a variable in place of a URL with a password, and the URL if there is one.

    Every such URL is replaced; the last one counts, as for every option.
    """
    found: str | None = None
    written: list[str] = []
    for number, one in enumerate(arguments):
        option, equals, value = one.partition("=")
        if option == OPTION and equals and has_password(value):
            found, one = value, f"{OPTION}={FROM_ENVIRONMENT}{GIVEN}"  # noqa: PLW2901 - it is written in its place
        elif number and arguments[number - 1] == OPTION and has_password(one):
            found, one = one, f"{FROM_ENVIRONMENT}{GIVEN}"  # noqa: PLW2901 - it is written in its place
        written.append(one)
    return written, found
