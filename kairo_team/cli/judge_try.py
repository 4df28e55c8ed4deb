"""`kairo judge try`: one text against a rubric, criterion by criterion."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from kairo_team._util.late_pydantic import adapter
from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.exit_codes import NO_ANSWER
from kairo_team.cli.job import plain_log
from kairo_team.cli.judge_inputs import asking, read_judge, read_rubric
from kairo_team.cli.numbers import seconds
from kairo_team.cli.options import BudgetOption, JsonOption, desk_of
from kairo_team.cli.outputs import read_text
from kairo_team.cli.refusal import Refusal
from kairo_team.verdicts import EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.evaluators.tried import TriedText


def try_command(
    context: typer.Context,
    rubric: Annotated[
        str, typer.Argument(metavar="RUBRIC", help="A rubric: FILE.py[:NAME], or data in .yaml, .toml or .json.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The text to review.")],
    *,
    judge: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A model's name, or FILE.py:NAME; default: only checks are run.")
    ] = None,
    task: Annotated[str, typer.Option(metavar="TEXT", help="The task that the text is for.")] = "Do the task.",
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An answer known to be right, for criteria that compare with it."),
    ] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print the judge's prompts and replies.")] = False,
    timeout: Annotated[float, seconds("How long the judge may take.")] = 60.0,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> int:
    """Review one text by a rubric, and show each criterion: its level, who decided it, and why."""
    desk = desk_of(context, json=json)
    if not task.strip():
        raise Refusal(f"--task is what the text is for, such as 'Write the release notes', not {task!r}")
    text = read_text("FILE", file)
    known = None if reference is None else read_text("--reference", reference)
    if known is not None and not known.strip():
        raise Refusal(f"--reference {str(reference)!r} is blank: give an answer that is known to be right")
    with ExitStack() as stack:
        found = read_rubric(stack, rubric)
        asked = None if judge is None else read_judge(stack, judge)
        with asking("the text could not be reviewed"), plain_log():
            limit = limited(Budget(), budget)
            ask = partial(found.try_on, text, judge=asked, task=task, reference=known, budget=limit, timeout=timeout)
            trial = anyio.run(ask)
    code = NO_ANSWER if trial.verdict.outcome is VerdictOutcome.REVIEW_EXCEEDED else 0
    return desk.present(_document(trial, prompt=prompt), partial(_show, trial, prompt), code)


def _show(trial: TriedText, prompt: bool, screen: Screen) -> None:
    if prompt:
        screen.print_barred(trial.prompt or "the judge was not asked")
        screen.print_text()
    head, *rest = str(trial).split("\n")
    screen.print_text(head, "bold")
    for line in rest:
        screen.print_text(line)


def _document(trial: TriedText, *, prompt: bool) -> dict[str, Any]:
    """Return the verdict, the kind of each criterion, the cost and, with `prompt`, all calls of the judge."""
    body: dict[str, Any] = adapter(EvaluationVerdict).dump_python(trial.verdict, mode="json")
    kinds = {criterion.id: criterion.kind for criterion in trial.rubric.criteria}
    body["criteria"] = [{**one, "kind": kinds[one["id"]]} for one in body["criteria"]]
    body |= {"threshold": float(trial.rubric.threshold), "calls": len(trial.calls)}
    if prompt:
        body["prompt"] = [
            {
                "messages": [{"role": message.role, "text": message.text} for message in call.request.messages],
                "reply": None if call.reply is None else call.reply.text,
            }
            for call in trial.calls
        ]
    return body
