"""The team whose runs are in the journals under `tests/data/journals`, and the program that wrote them.

    python -m tests.durable.kept_team FILE-OR-URL

An earlier version of the library runs this very program: use only what that version has.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.testing import FunctionModel

MODEL = "test:kept"


@dataclass(frozen=True)
class Station:
    """A value of the team's output type."""

    name: str
    metres: float


class Provider:
    """Answers by the words of a request alone, counts the calls, and ends the process at one of them."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.asked: list[str] = []
        self.dies_at = dies_at
        self.model = FunctionModel(self.answer, name=MODEL)

    async def answer(self, request: kt.ModelRequest) -> kt.ModelResponse | str:
        self.asked.append(request.messages[-1].text)
        if len(self.asked) == self.dies_at:
            await anyio.sleep(0.3)  # the record that this call was sent is on disk before; events follow it
            os._exit(0)
        if request.tools and not any(one.role == "tool" for one in request.messages):
            return kt.ModelResponse("", tool_calls=[kt.ToolCall("call-1", "look", {"place": "Æbelø"})])
        return f"answer {len(self.asked[-1])}"


@kt.tool(side_effect="read")
def look(place: str) -> str:
    """Look a place up."""
    return f"{place} lies in the sea"


class Editor:
    """Sends each first text back, with what the model says about it."""

    models = (MODEL,)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        said = await ask(context.context, f"judge {context.artifact.text}")
        return kt.EvaluationVerdict.revise(said) if context.attempt == 1 else kt.EvaluationVerdict.passed(0.9)


class Boss:
    """Leaves the decision to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, f"may {context.artifact.text!r} go out?")


async def ask(context: kt.MemberContext, text: str) -> str:
    """Ask the model."""
    return (await context.model(MODEL).complete(kt.ModelRequest([kt.Message.user(text)], max_tokens=40))).text


async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Write a text in two calls."""
    first = await ask(context, f"draft {assignment.task.id} {assignment.attempt}")
    return await ask(context, f"improve {first} {[one.observed for one in assignment.findings]}")


async def measure(assignment: kt.Assignment, context: kt.MemberContext) -> str | kt.Artifact:
    """Write a value of the output type as JSON, or return a value of a class."""
    name = await ask(context, f"which {assignment.task.id}")
    if assignment.task.output_type is None:
        return kt.Artifact(name, data=Station(name, 1.5))
    return json.dumps({"name": name, "metres": 1.5})


async def note(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Write a note in one call."""
    return await ask(context, f"note {assignment.task.id}")


def team() -> kt.Team:
    """Make the team: functions, an agent of the library with a tool, and a team inside a member."""
    inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
    members = [
        kt.Member("writer", write),
        kt.Member("surveyor", measure),
        kt.Member("guide", kt.MiniAgent(MODEL, tools=[look])),
        kt.Member(
            "group",
            TeamAgent(
                kt.Team("inner", [kt.Member("hand", note)]), plan=inside, config=kt.TeamConfig(max_parallel_tasks=1)
            ),
        ),
    ]
    judges: dict[str, Any] = {"editor": Editor(), "boss": Boss()}
    return kt.Team("islands", members, evaluators=judges, output_types={"station": Station})


def plan(*, asks: bool) -> kt.TaskGraph:
    """Make the plan; with `asks`, a person decides about its last task."""
    return kt.TaskGraph(
        [
            kt.Task("text", "Write about Æbelø — “quoted”, 島.", member="writer", evaluator="editor"),
            kt.Task("station", "Measure.", member="surveyor"),
            kt.Task("typed", "Measure again.", member="surveyor", output_type="station"),
            kt.Task("guide", "Guide.", member="guide", depends_on=["text"]),
            kt.Task("group", "Work together.", member="group", depends_on=["text"]),
            kt.Task(
                "last", "End it.", member="writer", depends_on=["guide", "group", "station", "typed"],
                evaluator="boss" if asks else None,
            ),
        ]
    )  # fmt: skip


def journal_at(place: str) -> Any:
    """Open a journal in a file, or in a database."""
    return kt.PostgresJournal(place, beat=0.2) if "://" in place else kt.SqliteJournal(place)


async def begin(place: str, run_id: str, provider: Provider, *, asks: bool = False) -> kt.TeamResult:
    """Run the plan from the start."""
    journal = journal_at(place)
    config = kt.TeamConfig(max_parallel_tasks=1, budget=kt.Budget(tokens=50_000, dollars=5))
    request = kt.TeamExecutionRequest("Describe the islands.", plan=plan(asks=asks), config=config, run_id=run_id)
    runtime = kt.Runtime(models={MODEL: provider.model}, journal=journal, gate=kt.DeferGate())
    try:
        async with runtime:
            return await kt.run(team(), request, runtime=runtime)
    finally:
        journal.close()


def wait(place: str, run_id: str) -> kt.TeamResult:
    """Run until a person is asked."""
    return anyio.run(partial(begin, place, run_id, Provider(), asks=True))


def answer(place: str, run_id: str) -> None:
    """Approve the question of a suspended run."""
    journal = journal_at(place)
    (question,) = journal.pending(run_id)
    journal.answer(question.id, kt.HumanDecision("approve"), by="Ada")
    journal.close()


def cancel(place: str, run_id: str) -> None:
    """Cancel a suspended run."""
    journal = journal_at(place)
    journal.cancel(run_id, "not needed")
    journal.close()


KEPT: dict[str, Sequence[Callable[[str, str], object]]] = {
    "ended": [lambda place, run_id: anyio.run(begin, place, run_id, Provider())],
    "waits": [wait],
    "answered": [wait, answer],
    "killed-early": [lambda place, run_id: anyio.run(begin, place, run_id, Provider(dies_at=4))],
    "killed-inside": [lambda place, run_id: anyio.run(begin, place, run_id, Provider(dies_at=12))],
    "cancelled": [wait, cancel],
}
"""How each recorded run came about, by its id."""


def main(place: str) -> None:
    """Make every run in a process of its own."""
    for name, steps in KEPT.items():
        child = os.fork()
        if child == 0:
            for step in steps:
                step(place, name)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name


if __name__ == "__main__":
    from tests.durable import kept_team  # its classes are recorded by this name, not as those of `__main__`

    kept_team.main(sys.argv[1])
