"""A review of a pull request: code finds, a small model words the comments, and a person approves the review.

    python -m kairo_team.examples.pull_request                       # a real commit of kairo-team, shipped as data
    git diff main | python -m kairo_team.examples.pull_request -     # your own
    python -m kairo_team.examples.pull_request change.diff --journal runs.db     # again after Ctrl-C: resumes

Rules of plain code read the lines that a diff adds. In one `comment-N` task per finding the writer words it for the
author. Code checks that a comment names the place and the wish and nothing else; if the writer cannot get it right, its
senior words it by rule. `review` joins the comments, and only a person may accept it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.contracts import ChatModel, HumanGate
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric

DATA: Final = Path(__file__).with_name("pull_request_data") / "change.diff"
LINE_RULES: Final = {
    r"\bexcept( (Base)?Exception\b.*)?:": "catch a narrower exception",
    r"^\s*(print\(|breakpoint\(\))": "take out what is left of a search for a fault",
    r"\b(TODO|FIXME|XXX)\b": "open an issue instead of the note",
    r"#\s*(noqa|type: ignore)[^#-]*$": "say why the check is silenced",
    r"shell=True": "start the program without a shell",
}
"""Patterns that an added line of Python must not match, and the wishes to the author."""
NO_TEST, NO_CHANGELOG = "add a test that shows the change", "add an entry to the changelog"
MOST: Final = 6
"""Most comments of one review."""
ASKED: Final = [
    ("app.py, line 12: close the file", "Please close the file in app.py, line 12."),
    ("this change: name the new option", "Please name the new option in this change."),
    ("web/tools/sync.py, line 240: say why it waits", "Please say why it waits in web/tools/sync.py, line 240."),
    ("this change: add a line to the list of authors", "Please add a line to the list of authors in this change."),
    ("src/forms/user.py, line 97: use a set", "Please use a set in src/forms/user.py, line 97."),
    ("lib/db/pool.py, line 308: set a time limit", "Please set a time limit in lib/db/pool.py, line 308."),
    ("this change: raise the version", "Please raise the version in this change."),
]
INSTRUCTIONS: Final = "\n\n".join(
    ["You put a finding into one polite sentence. Examples:"]
    + [f"{finding}\n{json.dumps({'comment': comment})}" for finding, comment in ASKED]
)


@dataclass(frozen=True)
class Remark:
    """A finding of code: the place, and what the author should do."""

    place: str
    wish: str


class Comment(BaseModel):
    """The writer's reply."""

    comment: str = Field(max_length=160, pattern=r"^Please [^\n]+\.$")


# ---------------------------------------------------------------- what code finds


def added_lines(diff: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, line number and text of every added line; a changed file without added lines has line 0."""
    path, number = "", 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
            yield path, 0, ""
        elif match := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(match[1])
        elif line.startswith("+"):
            yield path, number, line[1:]
            number += 1
        elif line.startswith(" "):
            number += 1


def find(diff: str) -> list[Remark]:
    """Return the rules' findings in a diff, at most `MOST`."""
    lines = list(added_lines(diff))
    paths = {path for path, _, _ in lines}
    found = [
        Remark(f"{path}, line {number}", wish)
        for path, number, text in lines
        for pattern, wish in LINE_RULES.items()
        if path.endswith(".py") and re.search(pattern, text)
    ]
    if any(path.endswith(".py") for path in paths) and not any("test" in path for path in paths):
        found.append(Remark("this change", NO_TEST))
    if not any("change" in path.lower() for path in paths):
        found.append(Remark("this change", NO_CHANGELOG))
    return found[:MOST]


# ---------------------------------------------------------------- the team


def plain(assignment: kt.Assignment) -> str:
    """Word a finding by rule."""
    place, wish = assignment.inputs["place"], assignment.inputs["wish"]
    return Comment(comment=f"Please {wish} in {place}.").model_dump_json()


def names_the_place(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Name the file and the line as they are."""
    place = context.task.inputs["place"]
    return place in _words(artifact) or kt.Finding(
        "place", observed="the place is not named", expected=f'Keep "{place}".'
    )


def says_the_wish(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Ask for what the rule asks for, in its words."""
    wish = context.task.inputs["wish"]
    return wish in _words(artifact) or kt.Finding(
        "wish", observed="it asks for something else", expected=f'Keep "{wish}".'
    )


def adds_nothing(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Say nothing that no rule has found."""
    place, wish = context.task.inputs["place"], context.task.inputs["wish"]
    rest = _words(artifact).replace(wish, "", 1).replace(place, "", 1)
    added = sorted(set(re.findall(r"\w+", rest)) - {"Please", "in"})
    if not added:
        return True
    return kt.Finding("added", observed=f"it adds {', '.join(added)}", expected=f"Leave out {', '.join(added)}.")


def _words(artifact: kt.Artifact) -> str:
    return artifact.data_as(Comment).comment


def review(assignment: kt.Assignment) -> str:
    """Join the comments."""
    comments = [made.data_as(Comment).comment for made in assignment.upstream.values()]
    return "\n".join(["Changes are asked for:", *(f"- {comment}" for comment in comments)])


class FourEyes:
    """Leaves the review to a person."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Escalate every review to a person."""
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person answers for what the author gets")


def settings(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision."""
    return {
        "temperature": (0, 0.4, 0.7, 0.7)[min(assignment.attempt, 4) - 1],
        "seed": assignment.attempt,
        "max_tokens": 64,
    }


def make_team(model: str | ChatModel = "local:smollm2") -> kt.Team:
    """Make the writer, its senior, and the editor."""
    checks = {"place": names_the_place, "wish": says_the_wish, "added": adds_nothing}
    task = """{% for finding in assignment.findings %}{{ finding.expected }} {% endfor %}
{{ assignment.inputs.place }}: {{ assignment.inputs.wish }}"""
    writer = kt.Member(
        kt.Role("writer", INSTRUCTIONS),
        kt.MiniAgent(model, max_turns=1, settings=settings),
        senior=kt.Member("senior", plain),
    )
    return kt.Team(
        "review",
        [writer, kt.Member("editor", review)],
        coordinator=ExpertTeamCoordinator(templates={"system": "{{ role.instructions }}", "task": task}),
        evaluators={
            "comment": Rubric([Criterion(name, check.__doc__ or name, check) for name, check in checks.items()]),
            "person": FourEyes(),
        },
        output_types={"comment": Comment},
    )


def make_request(diff: str) -> kt.TeamExecutionRequest:
    """Ask for a comment on each finding, and for the review; the run's id follows from the diff."""
    write = [
        kt.Task(
            f"comment-{number}", one.wish, role="writer", inputs=vars(one), evaluator="comment", output_type="comment"
        )
        for number, one in enumerate(find(diff), 1)
    ]
    names = [task.id for task in write]
    plan = kt.TaskGraph([*write, kt.Task("review", "Join them.", role="editor", depends_on=names, evaluator="person")])
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_500 * len(write), seconds=300), risk_profile=kt.RiskProfile.HIGH)
    name = f"review-{hashlib.sha256(diff.encode()).hexdigest()[:8]}"
    return kt.TeamExecutionRequest("Review the change.", plan=plan, config=config, run_id=name)


team = make_team()
request = make_request(DATA.read_text(encoding="utf-8"))
"""For `kairo run`."""


# ---------------------------------------------------------------- the program


async def work(diff: str, model: str, runtime: kt.Runtime) -> kt.TeamResult:
    """Review a diff; resume the run if the runtime's journal has it."""
    return await kt.run(make_team(model), make_request(diff), resume=True, runtime=runtime)


def approve(question: kt.HumanRequest) -> bool:
    """Approve the review, but no comment that the rubric rejects."""
    return question.task_id == "review"


def summary(result: kt.TeamResult) -> str:
    """Return the approved review, or why it is missing, and the cost."""
    lines = [result.output or f"no review: {result.error or 'it was not approved'}", ""]
    lines += [f"{one.task_id:10} {one.status:9} {one.member or '':7} {one.attempts}" for one in result.outcomes]
    return "\n".join([*lines, "", f"{result.status.value.upper()}, {result.usage}"])


def main(arguments: list[str] | None = None) -> int:
    """Review, ask the person, and print the review."""
    parser = argparse.ArgumentParser(description="A review of a pull request that a person approves.")
    parser.add_argument("diff", nargs="?", default=str(DATA), help="a file with a unified diff, or - for stdin")
    parser.add_argument("--model", default="local:smollm2", help="the model that words the comments")
    parser.add_argument("--journal", type=Path, help="where the run is recorded; the same file resumes it")
    parser.add_argument("--approve", action="store_true", help="approve without asking at the terminal")
    given = parser.parse_args(arguments)
    diff = sys.stdin.read() if given.diff == "-" else Path(given.diff).read_text(encoding="utf-8")
    if not find(diff):
        print("Nothing was found.")
        return 0
    gate: HumanGate = kt.CallbackGate(approve) if given.approve else kt.ConsoleGate()
    runtime = kt.Runtime(journal=kt.SqliteJournal(given.journal) if given.journal else None, gate=gate)
    result = anyio.run(work, diff, given.model, runtime)
    print(summary(result))
    return 0 if result.status is kt.TeamStatus.COMPLETED else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; with --journal, the same command continues the run")
