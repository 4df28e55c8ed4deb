"""A loan desk in which a person decides whether the letter may go out and whether the money may be paid.

    python examples/human_gate.py             # asks at the terminal
    kairo run examples/human_gate.py          # the same, with the live view, which disappears for the questions
    python examples/human_gate.py --defer     # no person: the run waits, is answered, and resumes

The members are plain functions, so it runs offline. Letters about large loans always go to a person, and the tool that
moves money needs an approval before it is called. Work that depends on neither is done in the meantime.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import anyio

import kairo_team as kt
from kairo_team.contracts import HumanGate
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.tools import SideEffectGuard

LOAN = {"amount": 12_000, "months": 60, "rate": 0.04}
LARGE = 10_000
"""Loans from which a person must see the letter."""


# ---------------------------------------------------------------- the desk


def assess(assignment: kt.Assignment) -> str:
    """Calculate the monthly cost of the loan."""
    amount, months, rate = assignment.inputs.values()
    return f"{amount * rate / 12 / (1 - (1 + rate / 12) ** -months):.2f}"


def write(assignment: kt.Assignment) -> str:
    """Write the letter, with the change that the person wanted."""
    monthly, months = assignment.upstream["assess"].text, assignment.inputs["months"]
    letter = f"We lend you {assignment.inputs['amount']:,} for {months} months. You pay {monthly} a month."
    return f"{letter} That is {float(monthly) * months:,.2f} in all." if assignment.findings else letter


def count(assignment: kt.Assignment) -> str:
    """Note the loan for the statistics; this needs no approval."""
    return f"1 loan, {assignment.inputs['amount']:,}"


@kt.tool(side_effect="write")
def pay_out(account: str, amount: int) -> str:
    """Pay an amount out."""
    return f"paid {amount:,} to {account}"


async def pay(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Pay the loan out, if a person approves."""
    result = await context.tool(pay_out).call({"account": "NL00 0000", "amount": assignment.inputs["amount"]})
    return result.text


class FourEyes:
    """Reviews letters: a person decides about a letter on a large loan."""

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Leave letters to a person, and pass everything else."""
        if context.task.id == "letter" and context.task.inputs["amount"] >= LARGE:
            return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, f"loans from {LARGE:,} on need four eyes")
        return kt.EvaluationVerdict.passed(1.0)


plan = kt.TaskGraph(
    [
        kt.Task("assess", "Work out what it costs.", member="analyst", inputs=LOAN),
        kt.Task("letter", "Write to the customer.", member="clerk", depends_on=["assess"], inputs=LOAN),
        kt.Task("pay", "Pay it out.", member="cashier", depends_on=["letter"], inputs=LOAN),
        kt.Task("statistics", "Note it.", member="counter", depends_on=["assess"], inputs=LOAN),
    ]
)


def build(gate: HumanGate) -> tuple[kt.Team, kt.Runtime]:
    """Make the desk, and the runtime with its gate."""
    runtime = kt.Runtime(gate=gate)
    members = [
        kt.Member("analyst", assess),
        kt.Member("clerk", write),
        kt.Member("cashier", pay),
        kt.Member("counter", count),
    ]
    desk = kt.Team(
        "loan desk",
        members,
        coordinator=ExpertTeamCoordinator(evaluator=FourEyes()),
        permissions=kt.ToolPermissions(guard=SideEffectGuard("strict")),
        runtime=runtime,
    )
    return desk, runtime


team, _ = build(kt.ConsoleGate())
"""The team and request of `kairo run`."""


# ---------------------------------------------------------------- output


def summary(result: kt.TeamResult) -> list[str]:
    """Return the state of every task."""
    lines = [result.status.value.upper()]
    for outcome in result.outcomes:
        text = f": {outcome.artifact.text}" if outcome.artifact is not None else ""
        lines.append(f"  {outcome.task_id:10}  {outcome.status.value:9}{text}".rstrip())
    return lines


ANSWERS = (
    kt.HumanDecision.revise("say what it costs in all"),
    kt.HumanDecision.approve(),
    kt.HumanDecision.approve("the account was checked"),
)
"""The person's decisions, one a day."""


async def later(answers: Iterable[kt.HumanDecision] = ANSWERS) -> list[str]:
    """Run the desk without a person, then answer the waiting questions and resume, until nothing waits."""
    desk, runtime = build(kt.DeferGate())
    request = kt.TeamExecutionRequest("Lend it.", plan=plan, run_id="loan-1")
    result = await kt.run(desk, request)
    lines = summary(result)
    for decision in answers:
        (question,) = runtime.pending(request.run_id)
        lines += ["", f"? {question.text}", f"  {question.subject}"]
        lines += [f"> {decision.action} {decision.feedback}".rstrip(), ""]
        runtime.answer(question.id, decision)
        result = await runtime.resume(request.run_id, desk)
        lines += summary(result)
    return lines


def main(arguments: list[str]) -> None:
    """Ask at the terminal, or postpone every question and answer by a script."""
    if "--defer" in arguments:
        lines = anyio.run(later)
    else:
        lines = summary(kt.run_sync(team, kt.TeamExecutionRequest("Lend it.", plan=plan)))
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
