"""The libraries: what to install for each, and which limit of its own each has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OURS: Final = "kairo_team"


class Missing(Exception):
    """A library could not be installed; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Library:
    """How one library is compared."""

    name: str
    requirements: Sequence[str]
    """What to install for it, its own package first."""
    limit: str
    """What its programs set when money runs out: the nearest thing to a limit in tokens that it has."""
    restart: str
    """What its programs keep on disk for a later process."""


LIBRARIES: Final[Mapping[str, Library]] = {
    OURS: Library("kairo-team", ("kairo-team",), "`Budget(tokens=)`", "`SqliteJournal`"),
    "langgraph": Library(
        "LangGraph",
        ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2", "langchain-openai==1.7.3"),
        "none: `recursion_limit` counts steps",
        "`AsyncSqliteSaver`",
    ),
    "agent_framework": Library(
        "Microsoft Agent Framework",
        ("agent-framework-core==1.23.0", "agent-framework-openai==1.17.0", "agent-framework-orchestrations==1.4.0"),
        "none: `max_iterations` counts steps",
        "`FileCheckpointStorage`",
    ),
    "pydantic_graph": Library(
        "pydantic-graph",
        ("pydantic-graph==2.68.0", "pydantic-ai-slim[openai]==2.68.0"),
        "`UsageLimits(total_tokens_limit=)`",
        "nothing: it has no persistence of its own",
    ),
    "crewai": Library(
        "CrewAI Flows",
        ("crewai==1.15.30",),
        "none: `max_method_calls` counts methods",
        "after each method: `CheckpointConfig`, in circles `@persist`",
    ),
    "strands": Library(
        "Strands Agents",
        ("strands-agents[openai]==1.62.0",),
        "node runs: `max_node_executions`, `max_iterations`",
        "`FileSessionManager`",
    ),
    "adk": Library(
        "Google ADK",
        ("google-adk==2.13.0", "litellm==1.106.2", "mcp==2.3.0"),
        "calls: `RunConfig(max_llm_calls=)`",
        "`SqliteSessionService`, `ResumabilityConfig`",
    ),
}
"""By the first part of a program's name."""


def python_for(key: str, folder: Path) -> str:
    """Return the Python of an environment that has the library, made in the folder where it is not there yet."""
    if key == OURS:
        return sys.executable
    requirements = LIBRARIES[key].requirements
    place = folder / key
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = place / "installed.json"
    wanted = json.dumps(list(requirements))
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(place, ignore_errors=True)
        _uv("venv", "-q", "--python", sys.executable, str(place))
        _uv("pip", "install", "-q", "--python", str(python), *requirements)
        stamp.write_text(wanted, encoding="utf-8")
    return str(python)


def versions(key: str, python: str) -> dict[str, str]:
    """Return the versions that an environment has of what was asked for."""
    names = [name.partition("==")[0].partition("[")[0] for name in LIBRARIES[key].requirements]
    asked = f"import json; from importlib.metadata import version; print(json.dumps([version(n) for n in {names!r}]))"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    return dict(zip(names, json.loads(said.stdout), strict=True))


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise Missing("there is no uv: pip install uv")
    done = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - uv itself
    if done.returncode:
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
