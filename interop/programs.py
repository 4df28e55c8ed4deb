"""Command-line agents, each installed from npm into a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kairo_team.agents import Program

CODEX = (
    'exec "$0" exec --skip-git-repo-check --ephemeral --ignore-user-config --disable multi_agent -m m'
    " -s danger-full-access"
    " -c web_search='\"disabled\"' -c model_provider='\"governed\"'"
    ' -c "model_providers.governed={name=\\"governed\\",base_url=\\"$OPENAI_BASE_URL\\",'
    'env_key=\\"OPENAI_API_KEY\\",wire_api=\\"responses\\"}" -'
)
"""Codex reads no base URL from the environment: the shell puts the address into its configuration."""


def claude_code(bin: Path, home: Path, model: Any, env: dict[str, str]) -> Program:
    """Return Claude Code with its tools; `--bare` leaves out what it would look up elsewhere."""
    home.mkdir(parents=True, exist_ok=True)
    argv = [str(bin / "claude"), "-p", "--bare", "--allowedTools", "Bash"]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return Program(argv, model=model, cwd=home, env={"HOME": str(home), **quiet, **env})


def codex(bin: Path, home: Path, model: Any, env: dict[str, str]) -> Program:
    """Return Codex with the commands of its user."""
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    return Program(["sh", "-c", CODEX, str(bin / "codex")], model=model, cwd=home, env={"HOME": str(home), **env})


PROGRAMS = {"claude_code": claude_code, "codex": codex}
