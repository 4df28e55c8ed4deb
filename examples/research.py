"""Research over documents on disk: a small model picks sentences, code checks every citation.

    python -m kairo_team.examples.research --documents docs/decisions
    python -m kairo_team.examples.research --documents notes "When was the roof repaired?" --journal runs.db

Code ranks the paragraphs of all Markdown and text files by the question's words. In one `quote-N` task per paragraph
the reader points at the sentence that answers best, by its number; code copies it, so that no quote can be invented.
The rubric sends back a number that is not there and a sentence that says little on the question; if the reader cannot
get it right, its senior points by rule. `answer` joins the quotes with file and line, and is accepted only when every
citation is found again in the files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse
from kairo_team.evaluators import Criterion, Rubric

QUESTION: Final = "What is charged when a provider says nothing on usage?"
MOST: Final = 4
"""Most paragraphs that are read."""
LONGEST: Final = 120
"""Most words of a paragraph that the model can read."""
MOST_SENTENCES: Final = 9
"""Most sentences of a paragraph: one digit points at a sentence."""
COMMON: Final = re.compile(
    r"an?|and|are|as|at|be|by|can|do|does|for|from|had|has|have|how|in|is|its?|no|not|of|on|or|that|the|their|there|they"
    r"|this|to|was|were|what|when|where|which|who|why|will|with"
)
"""Words that say nothing about a text's subject."""
READ: Final = [
    ("When does the ferry leave?", "The harbour is old. The ferry leaves at nine. Tickets are sold on board.", 2),
    ("Who repairs the lamp?", "A keeper repairs the lamp of the lighthouse. Ships can see it from far away.", 1),
    ("What is a spring tide?", "Tides follow the moon. Water rises twice. A spring tide is the highest of all.", 3),
    ("How is the fog measured?", "Fog is common in May. It is measured by hand. A horn warns the ships.", 2),
]
ASK: Final = "{passage}\nQuestion: {question}\nThe number of the sentence that answers:"


def sentences(text: str) -> list[str]:
    """Split a paragraph into its sentences."""
    return [one.strip() for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*])", text) if one.strip()]


def numbered(text: str) -> str:
    """Write the sentences of a paragraph one below the other, with their numbers."""
    return "\n".join(f"{number}. {one}" for number, one in enumerate(sentences(text), 1))


INSTRUCTIONS: Final = "\n\n".join(
    ["You find the sentence that answers a question. Examples:"]
    + [f"{ASK.format(passage=numbered(text), question=asked)}\n{json.dumps({'number': n})}" for asked, text, n in READ]
)


class Pointer(BaseModel):
    """The reader's reply."""

    number: int = Field(ge=1, le=MOST_SENTENCES)


# ---------------------------------------------------------------- what code does


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a document, in one line, and where it begins."""

    place: str
    """File and line."""
    text: str


def paragraphs(folder: Path) -> list[Paragraph]:
    """Return the paragraphs of all documents in a folder, without code, tables and headings."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in {".md", ".txt"})
    return [one for path in files for one in _paragraphs(path, path.relative_to(folder).as_posix())]


def _paragraphs(path: Path, name: str) -> Iterator[Paragraph]:
    kept: list[str] = []
    begin, fenced = 0, False
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        fence, item = line.startswith("```"), line.startswith("- ")
        outside = not line.strip() or fence or fenced or line.startswith(("#", "|", "    ", ">", "!["))
        if kept and (outside or item):
            yield Paragraph(f"{name}:{begin}", " ".join(kept))
            kept = []
        if not outside:
            begin = begin if kept else number
            kept.append(line.strip().removeprefix("- "))
        fenced ^= fence


def words(text: str) -> list[str]:
    """Return the words that say something, without their endings."""
    found = re.findall(r"[a-z]+", text.lower())
    return [re.sub(r"(ing|ed|es|s)$", "", word) for word in found if not COMMON.fullmatch(word) and len(word) > 1]


def search(question: str, found: list[Paragraph]) -> list[Paragraph]:
    """Return the paragraphs that say most about the question, the best one first; rare words count more."""
    asked = set(words(question))
    in_each = [Counter(words(one.text)) for one in found]
    seen = Counter(word for one in in_each for word in one if word in asked)
    weight = {word: math.log(1 + len(found) / seen[word]) for word in seen}
    scores = [sum(weight[word] for word in asked & set(one)) / (5 + sum(one.values())) ** 0.25 for one in in_each]
    ranked = sorted(zip(scores, range(len(found)), strict=True), key=lambda pair: (-pair[0], pair[1]))
    readable = [found[place] for score, place in ranked if score > 0 and _is_readable(found[place].text)]
    return readable[:MOST]


def _is_readable(text: str) -> bool:
    return len(text.split()) <= LONGEST and len(sentences(text)) <= MOST_SENTENCES


def shared(question: str, text: str) -> list[int]:
    """Return how many words each sentence of a paragraph shares with the question."""
    return [len(set(words(question)) & set(words(one))) for one in sentences(text)]


def by_rule(assignment: kt.Assignment) -> str:
    """Point at the sentence that shares most words with the question."""
    counts = shared(assignment.inputs["question"], assignment.inputs["text"])
    return Pointer(number=counts.index(max(counts)) + 1).model_dump_json()


# ---------------------------------------------------------------- the team


def is_there(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Point at a sentence of the passage."""
    number, there = artifact.data_as(Pointer).number, len(sentences(context.task.inputs["text"]))
    return number <= there or kt.Finding("there", observed=f"no sentence {number}", expected=f"Say 1 to {there}.")


def answers(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Point at a sentence that shares at least half as many words with the question as the best one."""
    counts, number = (
        shared(context.task.inputs["question"], context.task.inputs["text"]),
        artifact.data_as(Pointer).number,
    )
    if number > len(counts) or 2 * counts[number - 1] >= max(counts):
        return True
    return kt.Finding("answers", observed=f"{number} says little on the question", expected=f"Do not say {number}.")


def answer(assignment: kt.Assignment) -> str:
    """Copy the sentences, each with its file and line; a paragraph without a sentence is left out."""
    lines: list[str] = []
    for name, made in assignment.upstream.items():
        source = assignment.inputs["sources"][name]
        lines.append(f"- {sentences(source['text'])[made.data_as(Pointer).number - 1]} [{source['place']}]")
    return "\n".join(lines)


@dataclass(frozen=True)
class Citations:
    """Reviews the answer: every line must occur, word for word, in the paragraph it cites."""

    found: dict[str, str]
    """The text of each place, read from the files."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Look up each citation."""
        for line in context.artifact.text.splitlines():
            cited = re.fullmatch(r"- (.+) \[(.+:\d+)\]", line)
            if cited is None or cited[1] not in self.found.get(cited[2], ""):
                return kt.EvaluationVerdict.revise(f"this is not in the cited place: {line}")
        return kt.EvaluationVerdict.passed(1.0)


def settings(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision."""
    return {
        "temperature": (0, 0.4, 0.7, 0.7)[min(assignment.attempt, 4) - 1],
        "seed": assignment.attempt,
        "max_tokens": 160,
    }


def make_team(found: list[Paragraph], model: str | ChatModel = "local:smollm2") -> kt.Team:
    """Make the reader, its senior, and the editor, for these documents."""
    checks = {"there": is_there, "answers": answers}
    findings = "{% for finding in assignment.findings %}{{ finding.expected }}\n{% endfor %}"
    task = findings + ASK.format(passage="{{ assignment.inputs.passage }}", question="{{ assignment.inputs.question }}")
    reader = kt.Member(
        kt.Role("reader", INSTRUCTIONS),
        kt.MiniAgent(model, max_turns=1, settings=settings),
        senior=kt.Member("senior", by_rule),
    )
    return kt.Team(
        "research",
        [reader, kt.Member("editor", answer)],
        coordinator=ExpertTeamCoordinator(templates={"system": "{{ role.instructions }}", "task": task}),
        evaluators={
            "quote": Rubric([Criterion(name, check.__doc__ or name, check) for name, check in checks.items()]),
            "citations": Citations({one.place: one.text for one in found}),
        },
        output_types={"quote": Pointer},
    )


def make_request(question: str, found: list[Paragraph]) -> kt.TeamExecutionRequest:
    """Ask for a quote from each of the best paragraphs; raises `Misuse` if none says anything on the question."""
    chosen = search(question, found)
    if not chosen:
        raise Misuse(f"no document says anything on {question!r}: ask in words that the documents use")
    quotes = [
        kt.Task(
            f"quote-{number}",
            "Point at the sentence that answers.",
            role="reader",
            inputs={"question": question, "text": one.text, "passage": numbered(one.text)},
            evaluator="quote",
            output_type="quote",
        )
        for number, one in enumerate(chosen, 1)
    ]
    sources = {task.id: vars(one) for task, one in zip(quotes, chosen, strict=True)}
    join = kt.Task(
        "answer",
        "Join the quotes.",
        role="editor",
        inputs={"sources": sources},
        depends_on=[*sources],
        needs=1,
        evaluator="citations",
    )
    config = kt.TeamConfig(budget=kt.Budget(tokens=3_500 * len(quotes), seconds=300))
    seed = hashlib.sha256(json.dumps([question, sources]).encode())
    plan, name = kt.TaskGraph([*quotes, join]), f"research-{seed.hexdigest()[:8]}"
    return kt.TeamExecutionRequest(question, plan=plan, config=config, run_id=name)


# ---------------------------------------------------------------- the program


async def work(question: str, folder: Path, model: str, runtime: kt.Runtime) -> kt.TeamResult:
    """Answer a question; resume the run if the runtime's journal has it."""
    found = paragraphs(folder)
    return await kt.run(make_team(found, model), make_request(question, found), resume=True, runtime=runtime)


def summary(result: kt.TeamResult) -> str:
    """Return the answer with its citations, who picked each sentence, and the cost."""
    lines = [result.output or f"no answer: {result.error}", ""]
    lines += [f"{one.task_id:8} {one.status:9} {one.member or '':7} {one.attempts}" for one in result.outcomes]
    return "\n".join([*lines, "", f"{result.status.value.upper()}, {result.usage}"])


def main(arguments: list[str] | None = None) -> int:
    """Answer a question and print the answer."""
    parser = argparse.ArgumentParser(description="Research over documents on disk, with citations that code checks.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--documents", type=Path, required=True, help="a folder with .md and .txt files")
    parser.add_argument("--model", default="local:smollm2", help="the model that reads")
    parser.add_argument("--journal", type=Path, help="where the run is recorded; the same file resumes it")
    given = parser.parse_args(arguments)
    runtime = kt.Runtime(journal=kt.SqliteJournal(given.journal) if given.journal else None)
    try:
        result = anyio.run(work, given.question, given.documents, given.model, runtime)
    except Misuse as error:
        parser.error(str(error))
    print(summary(result))
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; with --journal, the same command continues the run")
