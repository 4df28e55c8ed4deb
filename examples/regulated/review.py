"""Dose notes that code checks and a person signs off, by a rubric from another package.

    pip install ./tests/third_party/clinical_dose      # `make test` has done so
    python examples/regulated/review.py

The substances, the dose table and the house rules are made up, and nothing here is medical advice. A writer makes a
note, and a printer makes a label from it. The rubric is found by its name, `clinical-dose`, in a package that does not
know this ward; the table is the ward's own. Scripts play the writer and the people, so it runs offline.
"""

from __future__ import annotations

from pathlib import Path

import kairo_team as kt
from kairo_team.contracts import HumanGate
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric, checks, load_evaluator
from kairo_team.testing import ScriptedAgent

TABLE = Path(__file__).resolve().parent / "doses.csv"
CARELESS = "Fictamide: 400 mg, 3 a day [T-1]\nExemplol: 200, 2 a day [T-7]"
CAREFUL = "Fictamide: 40 mg, 3 a day [T-1]\nExemplol: 200 ug, 2 a day [T-2]"
"""The writer's notes: ten times too much, without a unit and with an unknown row; then the revised note."""

PLAN = kt.TaskGraph(
    [
        kt.Task("note", "Write the dose note.", member="writer", evaluator="dose"),
        kt.Task("label", "Print the label.", member="printer", depends_on=["note"]),
    ]
)
LABEL = Rubric([Criterion("numbers", "no number that is not in the note", checks.numbers())])


def print_label(assignment: kt.Assignment) -> str:
    """Put the accepted note on one line."""
    return " / ".join(line.partition(" [")[0] for line in assignment.upstream["note"].text.splitlines())


def build(notes: list[str], person: HumanGate | None) -> kt.Team:
    """Make the ward: a writer that writes these notes, and a gate to a person, or None."""
    members = [kt.Member("writer", ScriptedAgent(notes)), kt.Member("printer", print_label)]
    return kt.Team(
        "ward",
        members,
        coordinator=ExpertTeamCoordinator(evaluator=LABEL),
        evaluators={"dose": load_evaluator("clinical-dose", table=TABLE)},
        runtime=kt.Runtime(gate=person, subscribers=[watch]),
    )


def watch(event: kt.events.Event) -> None:
    """Print the verdict of each review."""
    if isinstance(event, kt.events.EvaluationResult):
        print(f"review of {event.task_id}, attempt {event.attempt}: {describe(event.verdict)}")
        for finding in event.verdict.findings:
            if finding.status != "closed":
                print(f"  {finding.criterion}: {finding.observed}")


def describe(verdict: kt.EvaluationVerdict) -> str:
    """Describe the decision of a review, with the cause if it is open."""
    return f"{verdict.outcome}({verdict.cause})" if verdict.cause else verdict.outcome.value


def sign(question: kt.HumanRequest) -> bool:
    """Answer as the person who may prescribe: sign a note without findings of code."""
    print(f"? {question.text}")
    return not question.findings


def scene(title: str, notes: list[str], person: HumanGate | None) -> kt.TeamResult:
    """Run the ward once, and print the result."""
    print(f"== {title}")
    result = kt.run_sync(build(notes, person), kt.TeamExecutionRequest("Dose them.", plan=PLAN))
    for outcome in result.outcomes:
        print(f"{outcome.task_id}: {outcome.status}{f', {describe(outcome.verdict)}' if outcome.verdict else ''}")
    print(": ".join([result.status.upper(), *result.warnings[:1]]))
    print(f"{result.output}\n" if result.output else "")
    return result


def main() -> None:
    """Show a run without a gate, runs with different answers, and one with a stubborn writer."""
    scene("nobody to ask", [CAREFUL], None)
    scene("a person signs", [CARELESS, CAREFUL], kt.CallbackGate(sign))
    scene("a person refuses", [CAREFUL], kt.CallbackGate(lambda _: kt.HumanDecision.reject("wrong patient")))
    scene("nobody answers", [CAREFUL], kt.CallbackGate(lambda _: None))
    scene("the writer does not listen", [CARELESS] * 4, kt.CallbackGate(sign))


if __name__ == "__main__":
    main()
