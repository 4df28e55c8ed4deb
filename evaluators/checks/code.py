"""Checks on source code, which is never executed: a script parses it in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import RunVar

from kairo_team._util.child_processes import supervised
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact

# Extreme nesting exhausts the parser in several ways; all of them are findings, not failures of the check.
_PARSE: Final = """
import ast, json, sys
faults = []
for line, code in json.load(sys.stdin):
    try:
        ast.parse(code)
    except SyntaxError as error:
        faults.append([line + (error.lineno or 1), error.msg])
    except (ValueError, MemoryError, RecursionError) as error:
        faults.append([line + 1, str(error) or "nested too deeply"])
print(json.dumps(faults[:3]))
"""
SECONDS: Final = 10.0
"""Seconds after which such a process is killed."""
AT_ONCE: Final = 4
"""Most such processes at a time, in one event loop; later ones wait."""

_turns: RunVar[anyio.CapacityLimiter] = RunVar("kairo_team.evaluators.checks.code")


async def _parses(artifact: Artifact) -> CheckAnswer:
    faults: Any = await run_script(_PARSE, _python(artifact.text))
    return not faults or "; ".join(f"line {line} is not valid Python: {message}" for line, message in faults)


python_parses = NamedCheck("python_parses", _parses, timeout=6 * SECONDS)  # it may wait for its turn
"""Check that the text parses as Python; if it has blocks fenced as Python, that each block does."""


def _python(text: str) -> list[tuple[int, str]]:
    """Return the Python blocks of a text, or else the whole text, each with the number of lines above."""
    blocks: list[tuple[int, str]] = []
    fence, begin, lines = "", 0, text.splitlines()
    for number, line in enumerate(lines):
        bare = line.strip()
        if fence and bare.startswith(fence) and not bare.strip(fence[0]):
            if begin:
                blocks.append((begin, "\n".join(lines[begin:number])))
            fence = ""
        elif not fence and bare.startswith(("```", "~~~")):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
            named = bare[len(fence) :].split()[:1]
            begin = number + 1 if named and named[0].lower() in ("python", "py", "python3") else 0
    if fence and begin:
        blocks.append((begin, "\n".join(lines[begin:])))
    return blocks or [(0, text)]


async def run_script(script: str, given: Any, seconds: float = SECONDS) -> Any:
    """Run a script in a fresh interpreter, JSON in and JSON out, and return what it printed.

    The script reads `given` from stdin and nothing else of this program: no arguments, no site packages, no user
    folder. Raises `TimeoutError` when it takes longer than `seconds`, `RuntimeError` when it does not print JSON.
    """
    # Isolated, without site packages: nothing in this program's environment can change the result.
    command = supervised([sys.executable, "-I", "-S", "-W", "ignore", "-c", script])
    written = json.dumps(given).encode()
    try:
        async with _limiter():
            with anyio.fail_after(seconds):
                done = await anyio.run_process(command, input=written, check=False, stderr=subprocess.DEVNULL)
    except ExceptionGroup as broken:  # the process ended before it had read its input
        raise RuntimeError("the process that checks the text ended too early") from broken
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"the process that checks the text ended with {done.returncode} and no answer") from None


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _turns.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        _turns.set(limiter)
        return limiter
