"""Support desk: members hand a customer's message to each other until one of them answers.

    python examples/support_desk.py               # on the model inside this process
    python examples/support_desk.py --offline     # a script in place of the model
    kairo run examples/support_desk.py "I cannot log in."

The greeter asks a model of 135 million parameters what the message is about, and hands it to a desk. A desk looks up
its part; if the message names something of the other desk too, the desk hands over its facts. The last desk answers, in
the model's words. The answer is reviewed: a figure that is not in the records comes back as a finding.
"""

from __future__ import annotations

import re
import sys

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import ScriptedModel

MODEL = "local:smollm2"
GOAL = "The app crashes since I paid invoice 7."
FAULTS = {
    "crash": "The crash is over with version 2.1.",
    "log in": "The password can be set anew on the start page.",
    "slow": "The server is slow until 18:00.",
}
INVOICES = {
    "7": "Invoice 7 was paid twice, 12.50 is paid back.",
    "8": "Invoice 8 is open, 9.90 is due.",
}
"""The desks' records."""

# ---------------------------------------------------------------- the model's part

SUBJECTS = {
    "My bill is too high.": "bill",
    "The screen stays black.": "screen",
    "The app stops when I open it.": "app",
    "I got no receipt.": "receipt",
    "The search is slow today.": "search",
    "When do I get the refund?": "refund",
    "I forgot my password.": "password",
    "Is invoice 3 paid?": "invoice",
}
MONEY = ("bill", "charge", "invoice", "money", "paid", "payment", "price", "receipt", "refund")
"""Words that are for the billing desk."""


async def subject(context: kt.MemberContext, text: str) -> str:
    """Return the model's word for the subject of a message; the model follows examples, not rules."""
    messages = [kt.Message.system("Say in one word what the message is about.")]
    for said, word in SUBJECTS.items():
        messages += [kt.Message.user(said), kt.Message.assistant(word)]
    request = kt.ModelRequest([*messages, kt.Message.user(text)], max_tokens=6, settings={"temperature": 0, "seed": 1})
    return (await context.model(MODEL).complete(request)).text.strip().casefold()


async def say(context: kt.MemberContext, fact: str, attempt: int) -> str:
    """Return the model's words for a fact; each revision raises the temperature a little."""
    ask = f"Rewrite the sentence for a customer, in one short sentence. Keep every number.\n{fact}"
    settings = {"temperature": 0.3 * (attempt - 1), "seed": attempt}
    request = kt.ModelRequest([kt.Message.user(ask)], max_tokens=40, settings=settings)
    return (await context.model(MODEL).complete(request)).text.strip()


# ---------------------------------------------------------------- the desks


async def greeter(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Hand the message to the desk that its subject belongs to."""
    desk = "billing" if (await subject(context, assignment.goal)).startswith(MONEY) else "technical"
    await context.tool("hand_over")(to=desk, message=assignment.goal)
    return "Nobody is there."  # reached if the call was refused


async def technical(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Look the fault up."""
    return await answer(assignment, context, fault_in(assignment.goal), "billing", invoice_in(assignment.goal))


async def billing(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Look up the invoice."""
    return await answer(assignment, context, invoice_in(assignment.goal), "technical", fault_in(assignment.goal))


async def answer(
    assignment: kt.Assignment, context: kt.MemberContext, fact: str | None, other: str, others_part: str | None
) -> str:
    """Hand over to the other desk if the message names something of it and it has not had its turn; else answer."""
    found = next(iter(assignment.upstream.values())).text if "conversation" in assignment.inputs else ""
    facts = [*found.splitlines(), fact or "Nothing is known of it yet."]
    if others_part is not None and "conversation" not in assignment.inputs:
        context.keep("\n".join(facts))
        await context.tool("hand_over")(to=other, message="Add your part, and answer.")
    return " ".join([await say(context, one, assignment.attempt) for one in facts])


def fault_in(text: str) -> str | None:
    """Return the record of the fault that a text names."""
    return next((fact for word, fact in FAULTS.items() if word in text), None)


def invoice_in(text: str) -> str | None:
    """Return the record of the invoice that a text names."""
    return next((fact for number, fact in INVOICES.items() if re.search(rf"invoice {number}\b", text)), None)


# ---------------------------------------------------------------- the review: plain code

FIGURE = re.compile(r"\d+(?:[.:]\d+)?")


def true(artifact: kt.Artifact, _: kt.EvaluationContext) -> bool | str:
    """Find figures that the records do not have."""
    known = {figure for fact in (*FAULTS.values(), *INVOICES.values()) for figure in FIGURE.findall(fact)}
    made_up = [figure for figure in FIGURE.findall(artifact.text) if figure not in known]
    return not made_up or f"leave out {', '.join(made_up)}"


def whole(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Find figures on what the customer asks that were left out."""
    wanted = FIGURE.findall(" ".join(filter(None, (fault_in(context.goal), invoice_in(context.goal)))))
    missing = [figure for figure in wanted if figure not in FIGURE.findall(artifact.text)]
    return not missing or f"say {', '.join(missing)}"


RUBRIC = Rubric(
    [
        Criterion("true", "every figure stands in the records", true),
        Criterion("whole", "all figures on what was asked are there", whole),
    ]
)

# ---------------------------------------------------------------- the team


def make_team() -> kt.Team:
    """Make the team: who begins, and who may hand over to whom."""
    coordinator = kt.HandoffCoordinator(
        first="greeter",
        routes={"greeter": ["technical", "billing"], "technical": ["billing"], "billing": ["technical"]},
        max_hops=3,
        evaluator=RUBRIC,
    )
    members = [
        kt.Member("greeter", greeter),
        kt.Member(kt.Role("technical", "Knows the faults of the app."), technical),
        kt.Member(kt.Role("billing", "Knows the invoices."), billing),
    ]
    return kt.Team("support-desk", members, coordinator=coordinator)


team = make_team()
config = kt.TeamConfig(
    budget=kt.Budget(tokens=4_000, seconds=300), risk_profile=kt.RiskProfile.LOW, max_feedback_rounds=3
)
request = kt.TeamExecutionRequest(GOAL, config=config)

# ---------------------------------------------------------------- a script in place of the model, and main

SCRIPT = [
    "invoice",
    "You paid invoice 7 twice, 15.20 is paid back.",  # sent back: the records have 12.50
    "Version 2.1 ends the crash.",
    "You paid invoice 7 twice, and 12.50 is paid back.",
    "Version 2.1 ends the crash.",
]


def watch(event: kt.events.Event) -> None:
    """Print who has the turn, and the verdict of each review."""
    if isinstance(event, kt.events.AttemptStarted):
        print(f"{event.task_id}, attempt {event.attempt}: {event.member}")
    if isinstance(event, kt.events.EvaluationResult):
        feedback = f": {event.verdict.feedback}" if event.verdict.feedback else ""
        print(f"review of {event.task_id}, attempt {event.attempt}: {event.verdict.outcome}{feedback}")


def main(arguments: list[str]) -> int:
    """Run the team and print the answer."""
    models = {MODEL: ScriptedModel(SCRIPT)} if "--offline" in arguments else {}
    result = kt.run_sync(team, request, runtime=kt.Runtime(models=models, subscribers=[watch]))
    cost = f"{result.status.value.upper()}, {result.usage}"
    print("\n".join(["", result.output or "no answer", "", *result.warnings, cost]))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
