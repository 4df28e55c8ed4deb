"""Run a script on untrusted text in a process of its own: a crash or a hang there harms nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from kairo_team._util.child_processes import supervised

SECONDS: Final = 10.0
"""Seconds after which such a process is killed."""
AT_ONCE: Final = 4
"""Most such processes at a time, in one event loop; later ones wait."""

_turns: RunVar[anyio.CapacityLimiter] = RunVar("kairo_team.evaluators.checks.script_process")


async def run_script(script: str, given: Any, seconds: float = SECONDS) -> Any:
    """Run a script in a fresh interpreter, JSON in and JSON out, and return what it printed.

    The script reads `given` from stdin and nothing else of this program: no arguments, no site packages, no user
    folder. Raises `TimeoutError` when it takes longer than `seconds`, `RuntimeError` when it does not print JSON.
    """
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
