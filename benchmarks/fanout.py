"""Two hundred documents and a reduce under a budget: how many are refused, and how much of the budget is used.

The budget is a multiple of what the work really uses, which is not known beforehand. Every document is a task of its
own and all are dispatched at once; the reduce starts when at least 150 of them are accepted. `python -m
benchmarks.fanout` prints the table of `docs/budgets.md`. Time is virtual, and chance is seeded: every run is alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

import kairo_team as kt
from benchmarks.table import silence_runs
from kairo_team.testing import FunctionModel, run_in_virtual_time

DOCUMENTS: Final = 200
ENOUGH: Final = 150
RATIOS: Final = (1.0, 1.1, 1.2, 1.5)
MODEL: Final = "test:reader"

_REPLY: Final = {"map": 12, "reduce": 300}
"""The most words of a reply."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run."""

    refused: int
    """Documents whose call did not fit."""
    reduced: bool
    """The reduce was accepted."""
    budget: int
    spent: int
    """Tokens, as is the budget."""


class NoTokenizer:
    """A model that cannot count: its prompts are bounded by their bytes."""

    def __init__(self, model: FunctionModel) -> None:
        self.name = model.name
        self.complete = model.complete


class Work:
    """The documents, and a model that reads them: one token a word, six bytes a word."""

    def __init__(self, seed: int = 1) -> None:
        chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
        self.documents = {f"d{n}": _text(chance, int(chance.lognormvariate(5.6, 0.5))) for n in range(DOCUMENTS)}
        self._replies = {name: _text(chance, chance.randint(4, 12)) for name in self.documents}
        self._replies["reduce"] = _text(chance, 250)
        self._seconds = {name: chance.uniform(0.5, 5.0) for name in self._replies}

    @property
    def need(self) -> int:
        """Return the tokens of all prompts and replies."""
        read = sum(len(text.split()) for text in self.documents.values())
        made = {name: len(text.split()) for name, text in self._replies.items()}
        summaries = sum(made.values()) - made["reduce"]
        return read + summaries + summaries + made["reduce"]

    def plan(self) -> kt.TaskGraph:
        """Make one task for each document, and one that needs most of them."""
        maps = [kt.Task(name, "Summarize.", role="reader") for name in self.documents]
        return kt.TaskGraph(
            [*maps, kt.Task("reduce", "Join them.", role="editor", depends_on=[*self.documents], needs=ENOUGH)]
        )

    async def read(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Summarize a document: the reader."""
        name = assignment.task.id
        return await self._ask(context, name, self.documents[name], _REPLY["map"])

    async def edit(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Join the summaries: the editor."""
        summaries = " ".join(artifact.text for artifact in assignment.upstream.values())
        return await self._ask(context, "reduce", summaries, _REPLY["reduce"])

    async def _ask(self, context: kt.MemberContext, name: str, text: str, most: int) -> str:
        request = kt.ModelRequest([kt.Message.user(text)], max_tokens=most, settings={"name": name})
        return (await context.model(MODEL).complete(request)).text

    async def answer(self, request: kt.ModelRequest) -> str:
        """Take a while, and reply."""
        name: str = request.settings["name"]
        await anyio.sleep(self._seconds[name])
        return self._replies[name]


def _text(chance: random.Random, count: int) -> str:
    """Make words of 2 to 8 letters, as long as English ones are on average."""
    return " ".join("abcdefgh"[: chance.randint(2, 8)] for _ in range(count))


async def map_reduce(ratio: float, *, tokenizer: bool) -> Outcome:
    """Run the work with a budget of `ratio` times what it uses."""
    work = Work()
    model = FunctionModel(work.answer, name=MODEL)
    runtime = kt.Runtime(models={MODEL: model if tokenizer else NoTokenizer(model)})
    team = kt.Team("library", [kt.Member("reader", work.read), kt.Member("editor", work.edit)])
    request = kt.TeamExecutionRequest("Summarize.", plan=work.plan())
    budget = int(work.need * ratio)
    result = await kt.run(team, request, budget=kt.Budget(tokens=budget), runtime=runtime)
    done = {outcome.task_id for outcome in result.outcomes if outcome.status is kt.TaskStatus.COMPLETED}
    return Outcome(len(work.documents.keys() - done), "reduce" in done, budget, result.usage.tokens)


def run(ratio: float, *, tokenizer: bool) -> Outcome:
    """Run it in an event loop of its own, in virtual time."""

    async def main() -> Outcome:
        return await map_reduce(ratio, tokenizer=tokenizer)

    return run_in_virtual_time(main)


def table(ratios: Sequence[float] = RATIOS) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| prompt counted by | budget / real need | documents refused | reduce | budget used |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for counted, tokenizer in (("its bytes", False), ("a tokenizer", True)):
        for ratio in ratios:
            out = run(ratio, tokenizer=tokenizer)
            reduced = "done" if out.reduced else "refused"
            refused = f"{out.refused} of {DOCUMENTS}"
            yield f"| {counted} | {ratio:.1f} | {refused} | {reduced} | {out.spent / out.budget:.0%} |"


if __name__ == "__main__":
    silence_runs()
    print("\n".join(table()))
