"""The team of the chaos, the same in each process, and the random runs that it does."""

from __future__ import annotations

import json
import random
import secrets
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

import kairo_team as kt
from benchmarks.chaos.network import LONGEST_LINE
from kairo_team.agents import TeamAgent
from kairo_team.errors import ModelCallError
from kairo_team.models import idempotency_key
from kairo_team.testing import FunctionModel

MOST: Final = 25
"""Most tokens of an answer."""


@dataclass
class Client:
    """Asks the provider."""

    port: int

    def model(self) -> FunctionModel:
        """Return the provider's model."""
        return FunctionModel(self.answer, name="test:provider", dollars_per_token=0)

    async def answer(self, request: kt.ModelRequest) -> str:
        """Ask over a connection of its own. The first word of a prompt is the outer run."""
        words = " ".join(message.text for message in request.messages).split()
        asked = {"key": idempotency_key(), "run": words[0], "words": words, "most": request.max_tokens}
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(json.dumps(asked).encode() + b"\n")
            line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LONGEST_LINE)
        answer = json.loads(line)
        if answer["failed"]:
            raise ModelCallError("rate_limited", "test:provider", "try again")
        return str(answer["text"])


def _ask(text: str) -> kt.ModelRequest:
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=MOST)


async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Ask one to three times, with a number that chance made."""
    number = await context.recorded("number", lambda: secrets.randbelow(10**9))
    said = ""
    for turn in range(1 + len(assignment.task.description) % 3):
        prompt = f"{_run_of(assignment)} {assignment.task.id} {number} {turn} {said[:30]}"
        said = (await context.model("m:x").complete(_ask(prompt))).text
    return f"{said} {number}"


@kt.tool(side_effect="read")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


async def reader(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Look something up between two questions."""
    run = _run_of(assignment)
    first = (await context.model("m:x").complete(_ask(f"{run} {assignment.task.id} first"))).text
    found = (await context.tool(look_up)(word=first[:4])).text
    return (await context.model("m:x").complete(_ask(f"{run} {assignment.task.id} then {found}"))).text


class Editor:
    """Sends every first artifact back."""

    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Ask the model, and decide by the number of the attempt."""
        assert context.context is not None
        text = f"{context.artifact.text}"[:40]
        await context.context.model("m:x").complete(_ask(f"{context.goal.split()[0]} judge {text}"))
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed()


def _run_of(assignment: kt.Assignment) -> str:
    """Return the outer run: the first word of each goal."""
    return assignment.goal.split()[0]


def team(port: int) -> kt.Team:
    """Clerks, readers, and a team of clerks, with the provider at this port."""
    inside = kt.TaskGraph([kt.Task("a", "Do a."), kt.Task("b", "Do b.", depends_on=["a"])])
    group = TeamAgent(kt.Team("inner", [kt.Member("clerk", clerk)]), plan=inside)
    members = [kt.Member("clerk", clerk), kt.Member("reader", reader), kt.Member("group", group)]
    return kt.Team("desk", members, evaluators={"editor": Editor()}, runtime=runtime(port))


async def _approve(_question: kt.HumanRequest) -> kt.HumanDecision:
    """Accept what a judge without budget could not review."""
    return kt.HumanDecision.approve()


def runtime(port: int, **more: object) -> kt.Runtime:
    """Return what the members work with."""
    given: dict[str, object] = {"models": {"m:x": Client(port).model()}, "model_retry": kt.ModelRetry(backoff=0.01)}
    given["gate"] = kt.CallbackGate(_approve)
    return kt.Runtime(**given | more)  # type: ignore[arg-type] # the caller's are arguments of it


def request(run_id: str) -> kt.TeamExecutionRequest:
    """Make a random plan of three to eight tasks; two runs of five have a budget, which may be too small."""
    chance = random.Random(run_id)  # noqa: S311 - it has to be the same in each process
    tasks: list[kt.Task] = []
    for number in range(chance.randint(3, 8)):
        before = [one.id for one in tasks if chance.random() < 0.35]  # noqa: PLR2004 - about a third
        kind = chance.choice(("clerk", "clerk", "reader", "group"))
        text = f"{run_id} has a part here." if kind == "group" else "Do it" + "." * chance.randint(1, 3)
        judge = "editor" if kind == "clerk" and chance.random() < 0.3 else None  # noqa: PLR2004
        tasks.append(kt.Task(f"t{number}", text, member=kind, depends_on=before, evaluator=judge))
    budget = kt.Budget(tokens=chance.randint(60, 900)) if chance.random() < 0.4 else None  # noqa: PLR2004
    config = kt.TeamConfig() if budget is None else kt.TeamConfig(budget=budget)
    return kt.TeamExecutionRequest(f"{run_id} is to be done.", plan=kt.TaskGraph(tasks), config=config, run_id=run_id)
