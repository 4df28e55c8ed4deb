"""Checks that execute something: only in a sandbox that the user provides."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import EMPTY
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

TAIL = 1_000
"""Most characters of a command's output that a finding shows: the last ones, where the error is."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command."""

    exit_code: int
    output: str = ""
    """The command's stdout and stderr."""


Sandbox = Callable[[Sequence[str], Mapping[str, str]], Awaitable[Ran]]
"""An async function that runs a command where it can do no harm, with files given by path and text. The library has no
sandbox: a model's text is only executed in one that the user chose. The sandbox bounds the output that it keeps."""


def command(
    argv: Sequence[str],
    sandbox: Sandbox,
    *,
    file: str = "artifact.txt",
    files: Mapping[str, str] = EMPTY,
    timeout: float = 60.0,
) -> NamedCheck:
    """Make a check that a command exits with 0, run by `sandbox` with the artifact's text as `file`.

    `files` are put into the same folder; `timeout` is in seconds, after it the artifact is left undecided. Linters are
    such commands: `command(["ruff", "check", "it.py"], sandbox, file="it.py")`.
    """
    words = _words(argv)
    if not callable(sandbox):
        raise ValueError(f"command: the sandbox must be an async function of a command and files, not {sandbox!r}")
    beside = dict(files)  # a copy, because the fingerprint rests on it

    async def check(artifact: Artifact) -> CheckAnswer:
        ran: Any = sandbox(words, {**beside, file: artifact.text})
        ran = await ran if inspect.isawaitable(ran) else ran
        if not isinstance(ran, Ran) or type(ran.exit_code) is not int:  # `False` equals 0
            raise TypeError(f"the sandbox returned {type(ran).__name__} instead of a Ran with an exit code")
        return ran.exit_code == 0 or _failed(words, ran)

    return NamedCheck(f"command({words!r}, file={file!r})", check, source=beside, timeout=timeout)


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise ValueError(f"command takes the words of a command as a list, such as ['ruff', 'check'], not {argv!r}")
    return tuple(argv)


def _failed(words: Sequence[str], ran: Ran) -> str:
    output = ran.output.strip()
    tail = output if len(output) <= TAIL else f"...{output[-TAIL:]}"
    return f"{' '.join(words)} exited with {ran.exit_code}{f': {tail}' if tail else ''}"
