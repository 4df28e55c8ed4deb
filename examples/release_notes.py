"""Release notes from a git history: a small model writes, plain code judges, and nothing false is printed.

    kairo demo                        # a curated history, on the model inside this process
    kairo demo --repo ../other --model openai:gpt-5-mini

In one `write-N` task per commit the writer turns the commit's subject into a sentence. The rubric sends a bad sentence
back with findings, three times at most. A sentence that the writer cannot correct goes to its senior, which needs no
model: it puts the commit's own verb in the past tense. `notes` starts when every writer has ended and at least half of
the sentences were accepted. A missing sentence is replaced by the commit's own subject, marked; so is the sentence of
a feature, a fix or a breaking change with a subject that no sentence can be made from.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import kairo_team as kt
from kairo_team.contracts import TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.examples.release_notes_history import History, curated, past, read
from kairo_team.examples.release_notes_prompt import INSTRUCTIONS, TEMPLATES
from kairo_team.examples.release_notes_rubric import CHECKS, PAST_TENSE, Check

TOKENS = 5_000
"""Budget for each commit. A sentence costs about 600 tokens."""
EXPECT = 3_000
"""Tokens that a task is expected to use: a sentence, and its revisions. All writers start at once at this rate."""
HEADINGS = {"add": "Added", "change": "Changed", "fix": "Fixed", "remove": "Removed"}


class Sentence(BaseModel):
    """The writer's reply. The model's runtime holds it to this shape; whether it is true, the rubric decides."""

    model_config = ConfigDict(extra="forbid")
    sentence: str = Field(max_length=160, pattern=rf"^({'|'.join(PAST_TENSE)}) [^\n]+\.$")


def warmer(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision, so that the model tries something else."""
    return {
        "temperature": (0, 0.4, 0.7, 0.7)[min(assignment.attempt, 4) - 1],
        "seed": assignment.attempt,
        "max_tokens": 64,
    }


def plain(assignment: kt.Assignment) -> str:
    """Write the sentence by rule: the commit's own words after its verb in the past tense."""
    verb, _, rest = assignment.inputs["subject"].partition(" ")
    return Sentence(sentence=f"{past(verb.lower()).capitalize()} {rest}.").model_dump_json()


def notes(assignment: kt.Assignment) -> str:
    """Group the sentences by kind, every line with its commit."""
    lines: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    for task_id, commit in assignment.inputs["commits"].items():
        written = assignment.upstream.get(task_id)
        text = written.data_as(Sentence).sentence if written else f"{commit['subject']} [the commit's own words]"
        breaking = "BREAKING: " if commit["breaking"] else ""
        lines[commit["kind"]].append(f"- {breaking}{text} ({commit['id']})")
    return "\n\n".join("\n".join([f"## {HEADINGS[kind]}", *written]) for kind, written in lines.items() if written)


def gate(check: Check, artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Apply one check of the rubric to a sentence and the commit it was made from."""
    problem = check(artifact.data_as(Sentence).sentence, context.task.inputs["subject"])
    return kt.Finding(check.__name__, observed=problem.observed, expected=problem.expected) if problem else True


def make_team(model: str = "local:smollm2") -> kt.Team:
    """Bring the writer, the editor and the rubric together."""
    writer = kt.MiniAgent(model, max_turns=1, settings=warmer)
    rubric = Rubric([Criterion(name, check.__doc__ or name, partial(gate, check)) for name, check in CHECKS.items()])
    senior = kt.Member("senior", plain)
    return kt.Team(
        "release-notes",
        [kt.Member(kt.Role("writer", INSTRUCTIONS), writer, senior=senior), kt.Member("editor", notes)],
        coordinator=ExpertTeamCoordinator(templates=TEMPLATES),
        evaluators={"sentence": rubric},
        output_types={"sentence": Sentence},
    )


def make_plan(history: History) -> kt.TaskGraph:
    """Make one task for each commit, and a task for the notes that needs half of the others."""
    commits = {f"write-{number}": vars(commit) for number, commit in enumerate(history.commits, 1)}
    write = [
        kt.Task(task_id, commit["subject"], role="writer", inputs=commit, evaluator="sentence", output_type="sentence")
        for task_id, commit in commits.items()
    ]
    half: int | Literal["all"] = (len(write) + 1) // 2 or "all"  # of none, with quoted commits alone
    quoted = {f"quoted-{number}": vars(commit) for number, commit in enumerate(history.picked.quoted, 1)}
    group = kt.Task(
        "notes", "Group them.", role="editor", inputs={"commits": commits | quoted}, depends_on=[*commits], needs=half
    )
    return kt.TaskGraph([*write, group])


def make_request(history: History) -> kt.TeamExecutionRequest:
    """Ask for the notes of a history, within a budget that grows with its commits."""
    budget = kt.Budget(tokens=TOKENS * max(1, len(history.commits)), seconds=300)
    config = kt.TeamConfig(
        budget=budget,
        risk_profile=kt.RiskProfile.MEDIUM,
        max_feedback_rounds=3,
        budget_policy=kt.BudgetPolicy(expect=kt.Budget(tokens=EXPECT)),
    )
    return kt.TeamExecutionRequest("Write the release notes.", plan=make_plan(history), config=config)


def build(
    repo: Path | None = None, model: str = "local:smollm2"
) -> tuple[kt.Team, kt.TeamExecutionRequest, TeamCoordinator | None, str]:
    """Return the team, its request, its coordinator, and a description of the history; None is the curated history."""
    team, history = make_team(model), curated() if repo is None else read(repo)
    return team, make_request(history), team.coordinator, history.describe()


team = make_team()


def __getattr__(name: str) -> Any:
    """Return the request for `kairo run examples/release_notes.py`; importing the file reads no history."""
    if name == "request":
        return make_request(read())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    print("How to use it: kairo demo, kairo demo --repo PATH, or kairo run", __file__)
