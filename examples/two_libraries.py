"""A crew of CrewAI and an agent of Microsoft Agent Framework under one budget, each in an environment of its own.

    python -m venv crew-env && crew-env/bin/pip install crewai
    python -m venv writer-env && writer-env/bin/pip install agent-framework-openai
    python -m kairo_team.examples.two_libraries crew-env writer-env
    python -m kairo_team.examples.two_libraries crew-env writer-env --model openai:gpt-5-mini --tokens 20000

The crew gathers facts, and the agent turns them into a notice. Both are ordinary scripts: they read a task and print a
result. Each is a member by `Program`, which puts the address of its model into the environment; so every call of
both is held, counted and ended by the same budget. Without `--model` a script answers in place of a model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import anyio

import kairo_team as kt
from kairo_team.agents import Program
from kairo_team.contracts import ChatModel
from kairo_team.testing import FunctionModel

DATA: Final = Path(__file__).with_name("two_libraries_data")
PLAN: Final = kt.TaskGraph(
    [
        kt.Task("facts", "Gather what bathers should know about the tide at noon.", member="crew"),
        kt.Task("notice", "Write the notice of these facts.", member="writer", depends_on=["facts"]),
    ]
)


def scripted() -> FunctionModel:
    """Make a model that says what each of the agents needs to hear."""

    def answer(request: kt.ModelRequest) -> str:
        said = " ".join(message.text for message in request.messages)
        if "notice board" in said:
            return "High water is at noon, at 6.8 metres. Bathe before eleven."
        return "High water is at 12:00, at 6.8 m. The beach is under water from 11:00 to 13:00."

    return FunctionModel(answer)


def make_team(crew: Path, writer: Path, model: str | ChatModel | None = None) -> kt.Team:
    """Make the team; `crew` and `writer` are the Pythons of the two environments."""
    model = model or scripted()
    return kt.Team(
        "harbour",
        [
            kt.Member("crew", Program([str(crew), str(DATA / "crew.py")], model=model)),
            kt.Member("writer", Program([str(writer), str(DATA / "writer.py")], model=model)),
        ],
    )


def python_of(environment: Path) -> Path:
    """Return the Python of a virtual environment."""
    places = [environment / "bin" / "python", environment / "Scripts" / "python.exe"]
    return next((place.absolute() for place in places if place.exists()), places[0])


def table(result: kt.TeamResult) -> str:
    """Return what each member used, and the notice, or the error without one."""
    lines = [f"{one.task_id:8} {one.member or '':8} {one.status:10} {one.usage}" for one in result.outcomes]
    return "\n".join([*lines, "", str(result.output or result.error), "", f"{result.status.value}, {result.usage}"])


async def work(team: kt.Team, tokens: int) -> kt.TeamResult:
    """Let both do their task under one budget."""
    return await kt.run(team, "Put up a notice.", plan=PLAN, budget=kt.Budget(tokens=tokens, seconds=600))


def main(arguments: list[str] | None = None) -> int:
    """Run the team and print the result."""
    parser = argparse.ArgumentParser(description="A crew of CrewAI and an agent of Agent Framework under one budget.")
    parser.add_argument("crew", type=Path, help="a virtual environment with crewai")
    parser.add_argument("writer", type=Path, help="a virtual environment with agent-framework-openai")
    parser.add_argument("--model", help="the model of both, such as openai:gpt-5-mini; a script without it")
    parser.add_argument("--tokens", type=int, default=5_000, help="the most that both may use together")
    given = parser.parse_args(arguments)
    team = make_team(python_of(given.crew), python_of(given.writer), given.model)
    result = anyio.run(work, team, given.tokens)
    print(table(result))
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    sys.exit(main())
