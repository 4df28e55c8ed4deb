"""Map and reduce: 200 documents, a task with its own budget for each, and a reduce that does not need every one.

    python examples/map_reduce.py
    kairo run examples/map_reduce.py

Each document is a harbour's report on the day's high water. A reader extracts harbour and height, as a `Reading`; each
may spend 180 tokens, and the team 25,000. Some documents are blank, some are garbage, one is endless: their own budgets
limit their cost. The reduce `needs` 190 readings of the 200, so it starts when all documents have ended and at least
190 were accepted, and the run is DEGRADED, with a reason for each missing one. Plain code replaces the model, so the
example takes a second or two; `build("openai:gpt-5-mini")` uses a real one.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel

DOCUMENTS = 200
NEEDED = 190
TEAM_TOKENS, DOCUMENT_TOKENS = 25_000, 180
HARBOURS = ("Brest", "Calais", "Dieppe", "Dover", "Jersey", "Ostend", "Penzance", "Roscoff")
BLANK, GARBAGE, ENDLESS = (7, 57, 107, 157), (31, 81, 131, 181), (100,)
"""Numbers of the documents that cannot be read."""
WEATHER = ("The sea is calm.", "Gusts from the west.", "Fog until nine.", "Rain is on its way, and the wind turns.")


class Reading(BaseModel):
    """What a reader takes out of a document."""

    model_config = ConfigDict(extra="forbid")
    harbour: Annotated[str, Field(min_length=1)]
    metres: float


# ---------------------------------------------------------------- the documents


def document(number: int) -> str:
    """Write the document with a number, from 1; the same number gives the same document."""
    if number in BLANK:
        return ""
    if number in GARBAGE:
        return "7f#;; 0x1f %% ~~ ?? ]"
    harbour = HARBOURS[number * 5 % len(HARBOURS)]
    metres = 3 + number * 37 % 50 / 10
    report = f"Harbour office of {harbour}, report {number}. High water came to {metres} m. {WEATHER[number % 4]}"
    return report + " Nothing else was seen." * (400 if number in ENDLESS else number % 6)


# ---------------------------------------------------------------- the model


def play_model(request: kt.ModelRequest) -> str:
    """Answer like a model that reads the document at the end of its prompt."""
    harbour = re.search(r"Harbour office of (\w+)", request.messages[-1].text)
    metres = re.search(r"High water came to ([\d.]+) m", request.messages[-1].text)
    if harbour is None or metres is None:
        return "I can see no height in this."
    return json.dumps({"harbour": harbour[1], "metres": float(metres[1])})


# ---------------------------------------------------------------- the team


def reduce(assignment: kt.Assignment) -> str:
    """Find the highest water of each harbour, among the accepted readings."""
    heights: dict[str, list[float]] = defaultdict(list)
    for artifact in assignment.upstream.values():
        reading = artifact.data_as(Reading)
        heights[reading.harbour].append(reading.metres)
    lines = [f"{'harbour':10}{'reports':>8}{'highest':>9}"]
    lines += [f"{name:10}{len(found):8}{max(found):7.1f} m" for name, found in sorted(heights.items())]
    return "\n".join(lines)


PLAYED = FunctionModel(play_model, name="test:reader")
"""A scripted model that counts one token a word."""


def build(model: str | ChatModel = PLAYED) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team, a task for each document, and the task that sums them up."""
    reader = kt.MiniAgent(model, max_turns=2, settings={"max_tokens": 40})
    role = kt.Role("reader", "Say which harbour the document is from, and the height of its high water.")
    team = kt.Team(
        "tide-desk",
        [kt.Member(role, reader), kt.Member("clerk", reduce)],
        coordinator=TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=2, backoff=0.1)),
        output_types={"reading": Reading},
    )
    ceiling = kt.Budget(tokens=DOCUMENT_TOKENS)
    documents = {f"doc-{number}": {"document": document(number)} for number in range(1, DOCUMENTS + 1)}
    maps = [
        kt.Task(name, "Read it.", role="reader", inputs=inputs, output_type="reading", budget=ceiling)
        for name, inputs in documents.items()
    ]
    total = kt.Task("reduce", "Sum it up.", role="clerk", depends_on=list(documents), needs=NEEDED)
    config = kt.TeamConfig(budget=kt.Budget(tokens=TEAM_TOKENS), max_parallel_tasks=16)
    return team, kt.TeamExecutionRequest("Find the highest water.", plan=kt.TaskGraph([*maps, total]), config=config)


def summary(result: kt.TeamResult) -> str:
    """Print how many documents were read, why some failed, the cost, the result and the status."""
    *maps, reduced = result.outcomes
    read = [outcome for outcome in maps if outcome.status is kt.TaskStatus.COMPLETED]
    costliest = max(maps, key=lambda outcome: outcome.usage.tokens)
    lines = [f"{len(read)} of {len(maps)} documents read, {NEEDED} needed"]
    lines += [f"  {outcome.error}" for outcome in maps if outcome.error]
    lines += [
        f"{result.usage.tokens:,} of {TEAM_TOKENS:,} tokens spent",
        f"most expensive document: {costliest.task_id}, {costliest.usage.tokens} of {DOCUMENT_TOKENS} tokens",
    ]
    table = reduced.artifact.text if reduced.artifact else f"no result: {reduced.error}"
    return "\n\n".join(["\n".join(lines), table, result.status.value.upper()])


team, request = build()


def main() -> int:
    """Read the documents and print the results."""
    result = kt.run_sync(team, request)
    print(summary(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main())
