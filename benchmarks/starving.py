"""Budgets that cannot finish all tasks: how many are done when all start at once, one at a time, or with waiting.

An agent asks a model several times, and every prompt has all before it, so that a task costs more with every turn: as
`caller` it makes a fixed number of calls, as `MiniAgent` it can answer early on its last turn. `python -m
benchmarks.starving` prints the table of `docs/budgets.md`. Time is virtual, and chance is seeded: every run is alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from unittest.mock import patch

import anyio

import kairo_team as kt
from benchmarks.table import silence_runs
from kairo_team.engine.tasks.member_budgets import Needs
from kairo_team.governance.ledger import NOTHING
from kairo_team.testing import FunctionModel, run_in_virtual_time

MODEL: Final = "test:model"

Way = Literal["all at once", "one at a time", "let in"]
WAYS: Final[tuple[Way, ...]] = ("all at once", "one at a time", "let in")


@dataclass(frozen=True, slots=True)
class Shape:
    """Tasks, and the budget for all of them. Lengths are in tokens, one word each."""

    name: str
    agent: Literal["caller", "MiniAgent"] = "caller"
    tasks: int = 16
    budget: int = 20_000
    turns: tuple[int, int] = (4, 4)
    """Calls of a task, at least and at most."""
    prompt: int = 200
    found: tuple[int, int] = (150, 150)
    """What a tool returns after each call."""
    reply: int = 60
    most: int | None = 200
    """The longest reply that is allowed."""
    seconds: tuple[float, float] = (1.0, 1.0)
    """How long a call takes."""
    counted: bool = True
    """The model counts its prompts; otherwise they are bounded by their bytes."""
    seed: int = 1


_VARIED: Final = Shape("tasks of 1 to 8 turns", turns=(1, 8), found=(20, 400), seconds=(0.5, 3.0))

SHAPES: Final = (
    Shape("16 tasks of 4 turns"),
    Shape("the same, 30,000 tokens", budget=30_000),
    Shape("the same, 7,500 tokens", budget=7_500),
    Shape("the same, 5,600 tokens", budget=5_600),
    Shape("the same, prompts by their bytes", counted=False),
    Shape("the same, no cap on replies", most=None),
    Shape("100 tasks of 4 turns", tasks=100),
    Shape("16 tasks of one call", turns=(1, 1), prompt=1_500),
    _VARIED,
    replace(_VARIED, name="100 tasks of 1 to 8 turns", tasks=100, budget=150_000),
    Shape("enough for all", budget=46_000),
    Shape("ample", budget=600_000),
    Shape("16 tasks of 4 turns", "MiniAgent"),
    Shape("the same, prompts by their bytes", "MiniAgent", counted=False),
    Shape("the same, no cap on replies", "MiniAgent", most=None),
    replace(_VARIED, agent="MiniAgent"),
    replace(_VARIED, name="100 tasks of 1 to 8 turns", agent="MiniAgent", tasks=100, budget=150_000),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run."""

    done: int
    """Tasks with an accepted artifact that is not partial."""
    spent: int
    seconds: float


@dataclass(slots=True)
class Work:
    """The tasks of a shape, and a model that answers them."""

    shape: Shape
    turns: dict[str, int] = field(init=False)
    texts: dict[str, str] = field(init=False)
    found: dict[str, list[str]] = field(init=False)
    seconds: dict[str, list[float]] = field(init=False)
    reply: str = field(init=False)

    def __post_init__(self) -> None:
        shape, chance = self.shape, random.Random(self.shape.seed)  # noqa: S311 - repeatable, no secret
        names = [f"t{number}" for number in range(shape.tasks)]
        self.turns = {name: chance.randint(*shape.turns) for name in names}
        self.texts = {name: _text(chance, shape.prompt) for name in names}
        most = range(shape.turns[1])
        self.found = {name: [_text(chance, chance.randint(*shape.found)) for _ in most] for name in names}
        self.seconds = {name: [chance.uniform(*shape.seconds) for _ in most] for name in names}
        self.reply = _text(chance, shape.reply)

    def plan(self) -> kt.TaskGraph:
        """Make the plan; each task's description begins with its id."""
        return kt.TaskGraph([kt.Task(name, f"{name} {text}") for name, text in self.texts.items()])

    def agent(self) -> Any:
        """Return the agent of the shape."""
        if self.shape.agent == "caller":
            return self.call

        async def look(task: str, turn: int) -> str:
            """Look something up."""
            return self.found[task][turn]

        settings = {} if self.shape.most is None else {"max_tokens": self.shape.most}
        return kt.MiniAgent(MODEL, tools=[kt.tool(side_effect="read")(look)], settings=settings)

    async def call(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Make all calls of a task, one after another: the agent that knows no last turn."""
        name, text = assignment.task.id, ""
        said = [kt.Message.user(assignment.task.description)]
        for found in self.found[name][: self.turns[name]]:
            request = kt.ModelRequest(said, max_tokens=self.shape.most, settings={"name": name})
            text = (await context.model(MODEL).complete(request)).text
            said += [kt.Message.assistant(text), kt.Message.user(found)]
        return text

    async def answer(self, request: kt.ModelRequest) -> kt.ModelResponse | str:
        """Take a while, and answer: with a call of the tool as long as the task takes, if there are tools."""
        name: str = request.settings.get("name") or next(
            word for message in request.messages for word in message.text.split() if word in self.turns
        )
        turn = sum(message.role == "assistant" for message in request.messages)
        await anyio.sleep(self.seconds[name][turn])
        usage = kt.Usage(sum(len(message.text.split()) for message in request.messages), self.shape.reply)
        if request.tools and turn + 1 < self.turns[name]:
            call = kt.ToolCall(f"look-{turn}", "look", {"task": name, "turn": turn})
            return kt.ModelResponse(self.reply, tool_calls=(call,), usage=usage)
        if request.max_tokens is not None and request.max_tokens < self.shape.reply:
            return self.reply  # is cut to the cap
        return kt.ModelResponse(self.reply, usage=usage)


class _NoTokenizer:
    """A model that cannot count: its prompts are bounded by their bytes."""

    def __init__(self, model: FunctionModel) -> None:
        self.name = model.name
        self.complete = model.complete


def _text(chance: random.Random, count: int) -> str:
    """Make words of 2 to 8 letters, as long as English ones are on average."""
    return " ".join("abcdefgh"[: chance.randint(2, 8)] for _ in range(count))


async def play(shape: Shape, way: Way = "let in", *, expect: kt.Budget | None = None) -> Outcome:
    """Run the tasks of a shape; `expect` is what one is expected to take, if anybody knows."""
    work = Work(shape)
    model = FunctionModel(work.answer, name=MODEL)
    runtime = kt.Runtime(models={MODEL: model if shape.counted else _NoTokenizer(model)})
    team = kt.Team("team", [kt.Member("m", work.agent())], runtime=runtime)
    policy = kt.BudgetPolicy() if expect is None else kt.BudgetPolicy(expect=expect)
    slots = 1 if way == "one at a time" else None
    config = kt.TeamConfig(budget=kt.Budget(tokens=shape.budget), budget_policy=policy, max_parallel_tasks=slots)
    with nullcontext() if way == "let in" else patch.object(Needs, "of", return_value=NOTHING):
        result = await kt.run(team, kt.TeamExecutionRequest("Work.", plan=work.plan(), config=config))
    whole = [
        outcome
        for outcome in result.outcomes
        if outcome.status is kt.TaskStatus.COMPLETED and outcome.artifact is not None and not outcome.artifact.partial
    ]
    return Outcome(len(whole), result.usage.tokens, result.duration)


def run(shape: Shape, way: Way) -> Outcome:
    """Run it in an event loop of its own, in virtual time."""

    async def main() -> Outcome:
        return await play(shape, way)

    return run_in_virtual_time(main)


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| agent | tasks | budget | {' | '.join(WAYS)} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for shape in SHAPES:
        outcomes = [run(shape, way) for way in WAYS]
        cells = " | ".join(f"{out.done} in {out.seconds:.0f} s" for out in outcomes)
        yield f"| {shape.agent} | {shape.name} | {shape.budget:,} | {cells} |"


if __name__ == "__main__":
    silence_runs()
    print("\n".join(table()))
