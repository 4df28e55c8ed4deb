"""Let agents of other libraries and programs run at a governed address, and write what came out of it.

    python -m scripts.interop [NAME ...] [--runs 50] [--cache FOLDER]

Each library gets an environment of its own below the cache folder, and each program a folder of its own. Everything is
installed once, from the package indexes; the runs themselves use loopback alone. The table stands between two markers
in docs/wrappers-matrix.md; a run with names replaces only their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interop.server import ScriptedServer, Served
from kairo_team._util.child_watch import marked

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "wrappers-matrix.md"
BEGIN: Final = "<!-- interop -->"
END: Final = "<!-- end of interop -->"
HEAD: Final = (
    "| | version | interface | runs | killed | limit kept | billed | count equal | stopped on kill | resumed free |",
    "|---|---|---|---|---|---|---|---|---|---|",
)

PATIENCE: Final = 10.0
"""Seconds until a process that is still there counts as left behind."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library or a program, and where it comes from."""

    title: str
    interface: str
    packages: tuple[str, ...]
    """What is installed; the first one's version is in the table."""
    npm: bool = False


LIBRARIES: Final = {
    "microsoft_agent_framework": Library("Microsoft Agent Framework", "Responses", ("agent-framework-openai",)),
    "google_adk": Library("Google ADK", "chat completions, by LiteLLM", ("google-adk", "litellm")),
    "strands": Library("Strands Agents", "chat completions, streamed", ("strands-agents", "openai")),
    "crewai": Library("CrewAI", "chat completions", ("crewai",)),
    "smolagents": Library("smolagents", "chat completions", ("smolagents", "openai")),
    "llamaindex": Library(
        "LlamaIndex", "chat completions, streamed", ("llama-index-core", "llama-index-llms-openai-like")
    ),
    "claude_code": Library("Claude Code, a program", "Messages, streamed", ("@anthropic-ai/claude-code",), npm=True),
    "codex": Library("Codex, a program", "Responses, streamed", ("@openai/codex",), npm=True),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a library is installed."""

    python: str
    bin: Path | None
    version: str
    seconds: float
    """How long the installation took; 0 if it was there."""


def install(name: str, library: Library, cache: Path) -> Place:
    """Install a library into an environment of its own, unless it is there."""
    place, begun = cache / name, time.monotonic()
    mark = place / ".installed"
    if not mark.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if library.npm:
            npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), *library.packages]
            subprocess.run(npm, check=True)
        else:
            uv = str(Path(sys.executable).with_name("uv"))
            python = str(place / "bin" / "python")
            subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", sys.executable, str(place)], check=True)
            project = ["--editable", f"{ROOT}[address]"]
            subprocess.run([uv, "pip", "install", "-q", "--python", python, *project, *library.packages], check=True)
        mark.touch()
        took = time.monotonic() - begun
    else:
        took = 0.0
    first = library.packages[0]
    if library.npm:
        about = json.loads((place / "node_modules" / first / "package.json").read_text())
        return Place(sys.executable, place / "node_modules" / ".bin", about["version"], took)
    python = str(place / "bin" / "python")
    code = f"import importlib.metadata as m; print(m.version({first!r}))"
    version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return Place(python, None, version, took)


def let_run(name: str, place: Place, folder: Path, server: ScriptedServer, runs: int) -> Iterator[dict[str, Any]]:
    """Yield what a worker reports, run by run."""
    folder.mkdir(parents=True)
    command = [place.python, "-m", "interop.worker", name, "--server", server.url, "--folder", str(folder)]
    command += ["--runs", str(runs), *([] if place.bin is None else ["--bin", str(place.bin)])]
    env = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    env |= {"PYTHONPATH": str(ROOT), "HOME": str(folder), "CREWAI_DISABLE_TELEMETRY": "true"}
    env |= {"OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    log = folder / "worker.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as worker,
    ):
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith('{"run"'):
                row = json.loads(line)
                yield row | {"left": left_over(row["run"])}
    if worker.returncode:
        raise SystemExit(f"{name}: the worker ended with {worker.returncode}; see {log}")


def left_over(run: str) -> int:
    """Count the processes that a run leaves behind, by a variable in their environment; a watcher kills them."""
    ends = time.monotonic() + PATIENCE
    while (left := marked(f"KAIRO_INTEROP_RUN={run}\0".encode())) and time.monotonic() < ends:
        time.sleep(0.1)
    return len(left)


def judged(row: dict[str, Any], calls: list[Served]) -> dict[str, bool]:
    """Compare a run with the calls that the server saw."""
    spent = sum(call.tokens for call in calls)
    before = {call.what for call in calls if call.session == 0}
    again = [call for call in calls if call.session == 1 and call.what in before]
    late = [call for call in calls if row["silence"] and row["silence"][0] < call.begun < row["silence"][1]]
    exact = row["tokens"] == spent and not row["doubtful"]
    charged = row["answered"] <= spent <= row["tokens"] and row["doubtful"] > 0
    return {
        "limit kept": row["limit"] is None or (spent <= row["limit"] and row["tokens"] <= row["limit"]),
        "count equal": exact or charged,
        "exact": exact,
        "stopped on kill": not late and not row["left"],
        # Only the call that the kill cut off is made again.
        "resumed free": len(again) <= 1 and not row["diverged"],
        "ended well": row["status"] == "completed" or "halted" in str(row["error"]) or "budget" in str(row["error"]),
    }


def prove(name: str, library: Library, place: Place, runs: int, folder: Path) -> str:
    """Let a library run, and return its row of the table; raises `SystemExit` where something does not hold."""
    with ScriptedServer() as server:
        rows = list(let_run(name, place, folder, server, runs))
        whole, rows = rows[:2], rows[2:]
        for row in whole:
            if row["status"] != "completed" or "It is a sea." not in row["output"] or not server.of(row["run"])[1:]:
                raise SystemExit(f"{name} does not work undisturbed: {row}")
        print(f"{name}: {whole[1]['tokens']} tokens and {whole[1]['seconds']:.1f} s undisturbed", flush=True)
        found = [judged(row, server.of(row["run"])) for row in rows]
        for row, claims in zip(rows, found, strict=True):
            if not all(holds for claim, holds in claims.items() if claim != "exact"):
                print(json.dumps(row), claims, [(c.session, c.what[:6], c.tokens) for c in server.of(row["run"])])
        billed = sum(row["tokens"] for row in rows)
    killed = [claims for row, claims in zip(rows, found, strict=True) if row["killed"] != "none"]
    processes = sum(row["killed"] == "kill" for row in rows)

    def share(claim: str, of: list[dict[str, bool]]) -> str:
        return f"{sum(claims[claim] for claims in of)} of {len(of)}"

    exact = sum(claims["exact"] for claims in found)
    cells = [
        library.title, place.version, library.interface, str(runs), f"{len(killed)}, {processes} by SIGKILL",
        share("limit kept", found), f"{billed:,}", f"{share('count equal', found)}, {exact} to the token",
        share("stopped on kill", killed), share("resumed free", killed),
    ]  # fmt: skip
    bad = [claims for claims in found if not claims["ended well"]]
    if bad:
        print(f"{name}: {len(bad)} runs ended neither well nor by their limit")
    return f"| {' | '.join(cells)} |"


def write(rows: dict[str, str]) -> None:
    """Put rows into the page, each in the place of the library's earlier one."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    kept = {match[1]: match[0] for match in re.finditer(r"^\| ([^|]+) \|.*$", old, re.MULTILINE)}
    kept |= {LIBRARIES[name].title: row for name, row in rows.items()}
    table = [*HEAD, *(kept[one.title] for one in LIBRARIES.values() if one.title in kept)]
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table)}\n{END}{after}")


def main() -> None:
    """Install, run, and write."""
    parser = argparse.ArgumentParser(prog="python -m scripts.interop")
    parser.add_argument("names", nargs="*", help=", ".join(LIBRARIES))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--cache", type=Path, default=ROOT / ".venv" / "interop")
    parser.add_argument("--dry", action="store_true", help="print the rows and leave the page alone")
    given = parser.parse_args()
    unknown = set(given.names) - set(LIBRARIES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}, only {', '.join(LIBRARIES)}")
    broken: list[str] = []
    for name in given.names or LIBRARIES:
        library = LIBRARIES[name]
        place = install(name, library, given.cache)
        print(f"{name} {place.version}: installed in {place.seconds:.0f} s", flush=True)
        folder = given.cache / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.monotonic()
        row = prove(name, library, place, given.runs, folder)
        print(row, f"{time.monotonic() - begun:.0f} s", flush=True)
        broken += [name] if any(held != of for held, of in re.findall(r"(\d+) of (\d+)", row)) else []
        if not given.dry:
            write({name: row})
    if broken:
        raise SystemExit(f"a claim does not hold for {', '.join(broken)}")
    both = [given.cache / name for name in ("crewai", "microsoft_agent_framework")]
    if not given.names:
        example = [sys.executable, "-m", "kairo_team.examples.two_libraries", *map(str, both)]
        subprocess.run(example, check=True)


if __name__ == "__main__":
    main()
