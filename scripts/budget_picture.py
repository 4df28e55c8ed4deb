"""Draw the budget of one run over time, as it was: `python scripts/budget_picture.py > docs/budget-run.svg`.

A team of three runs on a fake model, in virtual time. Its coordinator hands out the run's governor, and a subscriber
and the model look at the tree whenever something happens: what is spent, held and guaranteed, member by member.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio

import kairo_team as kt
from kairo_team.budget import BudgetNode
from kairo_team.governance import Governor
from kairo_team.testing import FunctionModel, run_in_virtual_time

LIMIT: Final = 6000
MODEL: Final = "test:model"
MEMBERS: Final = ("researcher", "writer", "editor")
STATES: Final = ("spent", "held", "guaranteed")

# ---------------------------------------------------------------- the run

PLAN: Final = kt.TaskGraph(
    [
        kt.Task("tides", "Find out about tides.", member="researcher"),
        kt.Task("moon", "Find out about the moon.", member="researcher"),
        *(
            kt.Task(name, "Write it.", member="writer", depends_on=["tides", "moon"])
            for name in ("one", "two", "three")
        ),
        kt.Task("edit", "Make one text of it.", member="editor", depends_on=["one", "two", "three"], weight=2),
    ]
)


class Reading(NamedTuple):
    """The budget at one moment: tokens by state and member."""

    seconds: float
    amounts: Mapping[tuple[str, str], int]


@dataclass(slots=True)
class Watch:
    """Reads the tree of a run."""

    governor: Governor | None = None
    readings: list[Reading] = field(default_factory=list[Reading])

    def look(self, _: object = None) -> None:
        """Read the tree; as a subscriber, at every event."""
        if self.governor is None:
            return
        amounts: dict[tuple[str, str], int] = {}
        for member in self.governor.tree().children:
            if member.name in MEMBERS:
                spent, held = member.usage.tokens, member.held.tokens
                amounts["spent", member.name] = spent
                amounts["held", member.name] = held
                amounts["guaranteed", member.name] = claim(member) - spent - held
        if amounts:
            self.readings.append(Reading(anyio.current_time(), amounts))


def claim(node: BudgetNode) -> int:
    """Return what a node takes of its parent: what it committed or was guaranteed, or, once closed, what it spent."""
    if node.closed:
        return node.usage.tokens
    own = node.usage.tokens + node.held.tokens
    own -= sum(child.usage.tokens + child.held.tokens for child in node.children)
    return max(node.guarantee.tokens or 0, own + sum(map(claim, node.children)))


class Dispatch:
    """Attempts every task once, and shows its governor."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        """Run the plan."""
        async with kt.TeamRun.open(request, team) as run:
            self._watch.governor = run.governor
            graph = await run.plan(lambda: PLAN)
            async for task in run.ready(graph):
                run.go(self._attempt, run, task)
        return run.result

    async def _attempt(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is None:
            run.accept(task, attempt)
        else:
            run.fail(task, attempt.error)


async def watch_a_run() -> list[Reading]:
    """Run the team and return what was seen."""
    watch = Watch()
    chance = random.Random(3)  # noqa: S311 - repeatable, no secret

    async def answer(request: kt.ModelRequest) -> str:
        watch.look()
        await anyio.sleep(chance.uniform(2, 6))
        assert request.max_tokens is not None
        return "word " * int(request.max_tokens * chance.uniform(0.3, 0.8))

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        text = " ".join(artifact.text for artifact in assignment.upstream.values()) or assignment.task.description
        for _ in range(2):
            prompt = kt.Message.user(" ".join(text.split()[:300]))
            text = (await context.model(MODEL).complete(kt.ModelRequest([prompt], max_tokens=500))).text
            await anyio.sleep(chance.uniform(0.5, 1))
        return text

    members = [kt.Member(name, work, budget=kt.Budget(tokens=1100) if name == "editor" else None) for name in MEMBERS]
    runtime = kt.Runtime(models={MODEL: FunctionModel(answer, name=MODEL)}, subscribers=[watch.look])
    team = kt.Team("newsroom", members, coordinator=Dispatch(watch))
    result = await kt.run(team, "Explain tides.", budget=kt.Budget(tokens=LIMIT), runtime=runtime)
    result.check()
    return watch.readings


# ---------------------------------------------------------------- the picture

COLOURS: Final = {"researcher": "#0072B2", "writer": "#D55E00", "editor": "#009E73"}
WIDTH, HEIGHT = 860, 470
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 48, 90
FONT: Final = 'font-family="sans-serif" font-size="13" fill="#222"'


class Scale(NamedTuple):
    """Where seconds and tokens lie."""

    seconds: float

    def x(self, seconds: float) -> float:
        """Return the place of a moment."""
        return LEFT + seconds / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, tokens: float) -> float:
        """Return the place of an amount; the top is a little above the limit."""
        return HEIGHT - BOTTOM - tokens / (LIMIT * 1.06) * (HEIGHT - TOP - BOTTOM)


def draw(readings: list[Reading]) -> str:
    """Draw the readings as stacked steps under the limit."""
    scale = Scale(readings[-1].seconds * 1.02)
    parts = [*_frame(), *_grid(scale), *_layers(scale, readings), *_limit(scale), *_legend()]
    return "\n".join([*parts, "</svg>", ""])


def _frame() -> Iterator[str]:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield "<title>Tokens spent, held and guaranteed over one run, under its limit</title>"
    yield "<defs>"
    for name, colour in COLOURS.items():
        yield f'<pattern id="{name}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        yield f'<rect width="7" height="7" fill="{colour}" fill-opacity="0.35"/>'
        yield f'<line x1="0" y1="0" x2="0" y2="7" stroke="{colour}" stroke-width="4"/></pattern>'
    yield "</defs>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    yield f'<text x="{LEFT}" y="24" {FONT} font-weight="bold">One run of a team, tokens over time</text>'


def _grid(scale: Scale) -> Iterator[str]:
    for tokens in range(0, LIMIT + 1, 1000):
        y = scale.y(tokens)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" {FONT} text-anchor="end">{tokens:,}</text>'
    for seconds in range(0, int(scale.seconds) + 1, 5):
        place = f'x="{scale.x(seconds):.1f}" y="{HEIGHT - BOTTOM + 20}"'
        yield f'<text {place} {FONT} text-anchor="middle">{seconds} s</text>'


def _layers(scale: Scale, readings: list[Reading]) -> Iterator[str]:
    """Yield a layer for each state and member, spent at the bottom, each on top of those before it."""
    floor = [0] * len(readings)
    for state in STATES:
        for name in MEMBERS:
            top = [low + reading.amounts[state, name] for low, reading in zip(floor, readings, strict=True)]
            path = " ".join([_steps(scale, readings, top), *reversed(_steps(scale, readings, floor).split())])
            yield f'<polygon points="{path}" {_fill(state, name)}/>'
            floor = top


def _steps(scale: Scale, readings: list[Reading], tokens: list[int]) -> str:
    """Write a line that stays where it is until the next reading."""
    points: list[str] = []
    for number, reading in enumerate(readings):
        x = scale.x(reading.seconds)
        points += [f"{x:.1f},{scale.y(tokens[max(0, number - 1)]):.1f}", f"{x:.1f},{scale.y(tokens[number]):.1f}"]
    return " ".join(points)


def _fill(state: str, name: str) -> str:
    if state == "held":
        return f'fill="url(#{name})"'
    return f'fill="{COLOURS[name]}" fill-opacity="{1 if state == "spent" else 0.2}"'


def _limit(scale: Scale) -> Iterator[str]:
    y = scale.y(LIMIT)
    line = f'x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"'
    yield f'<line {line} stroke="#b00020" stroke-width="2" stroke-dasharray="8 4"/>'
    yield f'<text x="{WIDTH - RIGHT}" y="{y - 7:.1f}" {FONT} text-anchor="end">limit of the run: {LIMIT:,}</text>'


def _legend() -> Iterator[str]:
    for row, state in enumerate(STATES):
        x, y = LEFT + 265 * row, HEIGHT - 46
        words = {"spent": "spent", "held": "held for calls in flight", "guaranteed": "guaranteed, not used yet"}[state]
        yield f'<text x="{x}" y="{y}" {FONT} font-weight="bold">{words}</text>'
        place = x
        for name in MEMBERS:
            yield f'<rect x="{place}" y="{y + 12}" width="14" height="14" {_fill(state, name)} stroke="#888"/>'
            yield f'<text x="{place + 19}" y="{y + 24}" {FONT}>{name}</text>'
            place += 32 + 7 * len(name)


if __name__ == "__main__":
    print(draw(run_in_virtual_time(watch_a_run)), end="")
