"""The measured rows, a line for each instruction of each run: written one by one, and read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.revising.arms import Remembered, Try, ask_anew, revise
from benchmarks.revising.wanted import Instruction
from kairo_team.contracts import ChatModel

SEEDS: Final = 1_000
"""Seeds that a run may use: run 2 begins with 2,000."""


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction in one run, all that was made of it, oldest first."""

    instruction: str
    run: int
    findings: list[Try]
    """Revised, with what the review found."""
    findings_on: list[Try]
    """The same without the rule that ends a loop without progress."""
    again: list[Try]
    """Revised with "Try again." only."""
    again_on: list[Try]
    anew: list[Try]
    """Never revised."""


ARMS: Final = ("findings", "findings_on", "again", "again_on", "anew")


async def measure(instruction: Instruction, model: ChatModel, run: int) -> Row:
    """Put one instruction to every arm."""
    asked, seed = Remembered(model), run * SEEDS
    return Row(
        instruction.id,
        run,
        await revise(instruction, asked, seed),
        await revise(instruction, asked, seed, stops=False),
        await revise(instruction, asked, seed, again=True),
        await revise(instruction, asked, seed, again=True, stops=False),
        await ask_anew(instruction, asked, seed),
    )


async def measure_all(instructions: Sequence[Instruction], model: ChatModel, runs: int, results: Path) -> None:
    """Measure what the file does not have yet; a row is written as soon as it is known."""
    done = {(row.instruction, row.run) for row in read(results)}
    with results.open("a", encoding="utf-8") as file:
        for run in range(1, runs + 1):
            for instruction in instructions:
                if (instruction.id, run) not in done:
                    print(_line(await measure(instruction, model, run)), file=file, flush=True)


def read(results: Path) -> list[Row]:
    """Read the measured rows; none when there is no file."""
    return list(_rows(results.read_text("utf-8"))) if results.exists() else []


def _rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        said = json.loads(line)
        made = {
            arm: [Try(tokens, tuple(missed.split()), digest) for tokens, missed, digest in said[arm]] for arm in ARMS
        }
        yield Row(said["instruction"], said["run"], **made)


def _line(row: Row) -> str:
    made = {arm: [[one.tokens, " ".join(one.missed), one.digest] for one in getattr(row, arm)] for arm in ARMS}
    return json.dumps({"instruction": row.instruction, "run": row.run, **made})
