"""A command-line coding agent as a member; the project's own tests review its work.

    python -m kairo_team.examples.coding_agent                                     # a small agent, a scripted model
    python -m kairo_team.examples.coding_agent --agent claude --model anthropic:claude-haiku-4-5
    python -m kairo_team.examples.coding_agent --agent codex --model openai:gpt-5-mini --project ~/my-project

The agent works in a copy of the project; its artifact is the patch. When it has ended, a rubric with one check runs the
tests there, and what they print goes back to the agent. Every call of its model is inside the budget. The copy stays
for you to look at, and the project is untouched.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio

import kairo_team as kt
from kairo_team.agents import Program
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel
from kairo_team.tools import supervised

DATA: Final = Path(__file__).with_name("coding_agent_data")
PROJECT: Final = DATA / "project"
GOAL: Final = "Implement slug() in slugs.py. Change no other file."
CODEX: Final = (
    "exec codex exec --skip-git-repo-check --ephemeral --disable multi_agent -m m -s workspace-write"
    " -c web_search='\"disabled\"' -c model_provider='\"governed\"'"
    ' -c "model_providers.governed={name=\\"governed\\",base_url=\\"$OPENAI_BASE_URL\\",'
    'env_key=\\"OPENAI_API_KEY\\",wire_api=\\"responses\\"}" -'
)
"""Codex reads no base URL from the environment: the shell puts the address into its configuration."""
AGENTS: Final = {
    "small": [sys.executable, str(DATA / "small_agent.py")],
    "claude": ["claude", "-p", "--bare", "--permission-mode", "acceptEdits"],
    "codex": ["sh", "-c", CODEX],
}
"""Commands of the agents that are known here; each reads its task from its standard input."""
FIRST_TRY: Final = '''"""Names of pages for addresses."""


def slug(title: str) -> str:
    """Return a title in lower case, with one dash for each run of signs other than a-z and 0-9."""
    return title.lower().replace(" ", "-")
'''
SECOND_TRY: Final = '''"""Names of pages for addresses."""

import re


def slug(title: str) -> str:
    """Return a title in lower case, with one dash for each run of signs other than a-z and 0-9."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
'''


def scripted() -> FunctionModel:
    """Make a model that is wrong at first, and right once it has read what the tests print."""
    return FunctionModel(lambda request: SECOND_TRY if "FAIL:" in request.messages[-1].text else FIRST_TRY)


class Coder(Program):
    """A coding agent that works in a copy of a project, and whose artifact is the patch."""

    def __init__(self, argv: list[str], *, model: str | ChatModel, project: Path, copy: Path) -> None:
        super().__init__(argv, model=model, cwd=copy)
        self._project, self._copy = project, copy

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Let the agent work, and return the difference that it makes: a reviewer looks at a new artifact only."""
        said = await super().run(assignment, context)
        return patch(self._project, self._copy) or said


def patch(before: Path, after: Path) -> str:
    """Return the unified diff of two folders; files that are not text are left out."""
    names = {path.relative_to(folder) for folder in (before, after) for path in folder.rglob("*") if path.is_file()}
    lines: list[str] = []
    for name in sorted(names):
        if not set(name.parts) & {".git", "__pycache__"}:
            lines += difflib.unified_diff(_lines(before / name), _lines(after / name), f"a/{name}", f"b/{name}")
    return "".join(lines)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    except UnicodeDecodeError:
        return []


def tests_pass(project: Path, copy: Path) -> Criterion:
    """Make the criterion that the project's own tests pass in its copy; its finding is their output."""

    def run(_: kt.Artifact) -> bool | kt.Finding:
        """Let the tests of the project pass."""
        for test in project.rglob("test*.py"):  # an agent that changes them does not pass them by that
            shutil.copy(test, copy / test.relative_to(project))
        command = supervised([sys.executable, "-m", "unittest"], cwd=str(copy))
        try:
            done = subprocess.run(  # noqa: S603 - this Python
                command, cwd=copy, capture_output=True, text=True, timeout=120, check=False
            )
        except subprocess.TimeoutExpired:
            return kt.Finding("tests", observed="the tests do not end within two minutes", expected="Let them end.")
        said = done.stderr.replace(str(copy), ".")[-3_000:]
        return done.returncode == 0 or kt.Finding("tests", observed=said, expected="Let all tests pass.")

    return Criterion("tests", "The project's own tests pass.", run)


def make_team(project: Path, copy: Path, agent: str = "small", model: str | ChatModel | None = None) -> kt.Team:
    """Make a team of one coder, who works in the folder `copy`, and the rubric that reviews the work."""
    coder = Coder(AGENTS[agent], model=model or scripted(), project=project, copy=copy)
    coordinator = ExpertTeamCoordinator(evaluator=Rubric([tests_pass(project, copy)]))
    return kt.Team("workshop", [kt.Member(kt.Role("coder", "You change the code in this folder."), coder)], coordinator)


async def work(team: kt.Team, goal: str, tokens: int) -> kt.TeamResult:
    """Let the agent work until the tests pass."""
    return await kt.run(team, goal, budget=kt.Budget(tokens=tokens, seconds=1_800))


def main(arguments: list[str] | None = None) -> int:
    """Copy the project, let the agent work, and print the patch."""
    parser = argparse.ArgumentParser(description="A coding agent whose work is reviewed by the project's own tests.")
    parser.add_argument("--agent", choices=AGENTS, default="small")
    parser.add_argument("--model", help="the model behind the agent, such as openai:gpt-5-mini; a script without it")
    parser.add_argument("--project", type=Path, default=PROJECT, help="the folder that is copied")
    parser.add_argument("--goal", default=GOAL)
    parser.add_argument("--tokens", type=int, default=200_000, help="the most that all calls may use")
    given = parser.parse_args(arguments)
    copy = Path(tempfile.mkdtemp(prefix="coding-agent-")) / "project"
    shutil.copytree(given.project, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    result = anyio.run(work, make_team(given.project, copy, given.agent, given.model), given.goal, given.tokens)
    (outcome,) = result.outcomes
    print(result.output or result.error)
    print(f"{result.status.value.upper()} after {outcome.attempts} attempts, {result.usage}; the work is in {copy}")
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    sys.exit(main())
