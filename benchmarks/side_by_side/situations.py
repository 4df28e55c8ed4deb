"""One program in five situations, each in processes of its own: what it was billed, and what came back."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.side_by_side.provider import Call, Provider, serving

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 120
"""The most that a process may take."""
QUIET: Final = 0.7
"""Seconds without a call, or an answer, until a process that waits for held calls is killed."""
SHARE: Final = 0.6
"""The limit, of what the program was billed without one."""

REFUSED: Final = {
    "map_reduce": {"reader doc-3"},
    "triage": {"billing specialist"},
    "write_test_fix": {"writer 2"},
    "support_desk": {"refunds desk"},
}
"""The branch that fails: its calls are refused as by a content filter."""
HELD: Final = {
    "map_reduce": {"reader doc-4", "reader doc-5", "reader doc-6"},
    "triage": {"billing specialist"},
    "write_test_fix": {"writer 3"},
    "support_desk": {"refunds desk"},
}
"""The calls that are under way when the process is killed; the others before them have been answered."""


QUIETLY: Final = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}
"""The environment of a program: no library asks anything of the network."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a program in one situation."""

    came: str
    """What came back: the result, or the error."""
    worked: bool
    """Whether that was a result."""
    calls: int
    billed: int
    """Tokens."""
    limit: int | None = None
    """The limit, in tokens, when there was one."""
    again: int = 0
    """Tokens for calls that had been answered before, in an earlier process."""
    cut: int = 0
    """Calls that were under way when the process was killed."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a program is started."""

    python: str
    module: str

    def line(self, url: str, folder: Path, tokens: int | None, calls: int | None, again: bool) -> list[str]:
        """Return the command with its arguments."""
        said = [self.python, "-m", self.module, "--url", url, "--folder", str(folder)]
        said += ["--tokens", str(tokens), "--calls", str(calls)] if tokens is not None else []
        return [*said, "--again"] if again else said


def all_of(command: Command, job: str) -> dict[str, Seen]:
    """Put a program to all situations."""
    with tempfile.TemporaryDirectory() as name:
        folders = {part: Path(name) / part for part in ("plain", "failed", "limited", "killed")}
        for folder in folders.values():
            folder.mkdir()
        plain = seen(command, folders["plain"], Provider())
        failed = Provider(refuse=REFUSED[job])
        first = seen(command, folders["failed"], failed)
        well = seen(command, folders["failed"], Provider(), again=answered(failed.ledger))
        limited = seen(command, folders["limited"], Provider(), limit=limit_of(plain))
        return {
            "plain": plain,
            "failed": first,
            "well": well,
            "limited": limited,
            "killed": killed(command, job, folders["killed"]),
        }


def limit_of(plain: Seen) -> tuple[int, int]:
    """Return the limit for a program that was billed so much without one: in tokens, and in calls."""
    return int(plain.billed * SHARE), int(plain.calls * SHARE)


def answered(ledger: Collection[Call]) -> set[str]:
    """Return the keys of the calls that were answered."""
    return {call.key for call in ledger if call.answered}


def seen(
    command: Command,
    folder: Path,
    provider: Provider,
    *,
    limit: tuple[int, int] | None = None,
    again: Collection[str] | None = None,
    cut: int = 0,
) -> Seen:
    """Run a program to its end; `again` has the keys of calls that an earlier process was answered."""
    tokens, calls = limit or (None, None)
    with serving(provider) as url:
        said = _said(command.line(url, folder, tokens, calls, again is not None))
    ledger = provider.ledger
    return Seen(
        came=str(said.get("result", said.get("error"))),
        worked="result" in said,
        calls=len(ledger),
        billed=sum(call.tokens for call in ledger),
        limit=tokens,
        again=sum(call.tokens for call in ledger if call.key in (again or ())),
        cut=cut,
    )


def _said(command: list[str]) -> Mapping[str, Any]:
    """Run a program, and return the last line that it printed."""
    try:
        done = subprocess.run(  # noqa: S603 - our own programs
            command, cwd=ROOT, env=QUIETLY, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    said: Mapping[str, Any] = json.loads(lines[-1])
    return said


def killed(command: Command, job: str, folder: Path) -> Seen:
    """Kill a program with SIGKILL while calls are under way, and start it again."""
    provider = Provider(hold=HELD[job])
    with serving(provider) as url:
        process = subprocess.Popen(  # noqa: S603 - our own programs
            command.line(url, folder, None, None, again=False),
            cwd=ROOT,
            env=QUIETLY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + SECONDS
        try:
            while not (provider.held and time.monotonic() - provider.touched > QUIET):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{command.module} did not come to the calls that are held: {provider.ledger}")
                time.sleep(0.01)
        finally:
            process.kill()
            process.wait()
    before = answered(provider.ledger)
    return seen(command, folder, Provider(), again=before, cut=len(provider.ledger) - len(before))
