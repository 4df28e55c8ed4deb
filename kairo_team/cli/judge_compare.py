"""`kairo judge compare`: which of two works is better, for two files or two directories."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from kairo_team._util.counts import count
from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.exit_codes import NO_ANSWER
from kairo_team.cli.job import plain_log
from kairo_team.cli.judge_attack import texts_in
from kairo_team.cli.judge_inputs import asking, read_judge
from kairo_team.cli.judge_report import show_table, show_why
from kairo_team.cli.numbers import seconds, whole_number
from kairo_team.cli.options import BudgetOption, JsonOption, desk_of
from kairo_team.cli.outputs import read_text
from kairo_team.cli.refusal import Refusal
from kairo_team.evaluators.pair_report import Pair, PairReport, compare_pairs
from kairo_team.evaluators.pairwise import DOES_BETTER, PairwiseStrategy
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen

_MOST: Final = 50
"""Pairs that the table names."""
_REASON: Final = 90


def compare_command(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="A text, or a directory of texts.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="Another text, or texts of the same names.")],
    *,
    judge: Annotated[str, typer.Option(metavar="MODEL", help="A model's name, or FILE.py:NAME.")],
    text: Annotated[str, typer.Option(metavar="TEXT", help="What makes a work better.")] = DOES_BETTER,
    task: Annotated[str, typer.Option(metavar="TEXT", help="The task that the works were made for.")] = "Do the task.",
    timeout: Annotated[float, seconds("How long the judge may take for a pair.")] = 60.0,
    concurrency: Annotated[int, whole_number("Pairs at a time.", 1)] = 4,
    votes: Annotated[int, whole_number("Ask up to N times in each order; most votes decide.", 1)] = 1,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> int:
    """Have a judge say which of two works is better, in both orders; count how often the order changes its answer."""
    desk = desk_of(context, json=json)
    if not task.strip():
        raise Refusal(f"--task is what the works were made for, such as 'Write the release notes', not {task!r}")
    pairs = _pairs(first, second)
    with ExitStack() as stack, asking("not all pairs could be compared"), plain_log():
        strategy = PairwiseStrategy(read_judge(stack, judge), text, timeout=timeout, votes=votes)
        limit = limited(Budget(), budget)
        found = anyio.run(partial(compare_pairs, strategy, pairs, task=task, budget=limit, concurrency=concurrency))
    code = 0 if found.decided else NO_ANSWER
    return desk.present(found.to_json(), partial(_show, judge, found), code)


def _pairs(first: Path, second: Path) -> list[Pair]:
    """Return the two texts, or the texts of two directories paired by name."""
    for name, path in (("FIRST", first), ("SECOND", second)):
        if not path.exists():
            raise Refusal(f"{name}: {str(path)!r} does not exist: give two files, or two directories")
    if first.is_dir() != second.is_dir():
        raise Refusal(f"{str(first)!r} and {str(second)!r}: give two files, or two directories")
    if not first.is_dir():
        return [Pair(f"{first.name} and {second.name}", read_text("FIRST", first), read_text("SECOND", second))]
    here, there = dict(texts_in("FIRST", first)), dict(texts_in("SECOND", second))
    lone = sorted(set(here) ^ set(there))
    if lone:
        has, lacks = (first, second) if lone[0] in here else (second, first)
        raise Refusal(
            f"{lone[0]!r} is in {str(has)!r} and not in {str(lacks)!r}: each text is compared with the text of the "
            "same name"
        )
    return [Pair(name, here[name], there[name]) for name in here]


def _show(judge: str, found: PairReport, screen: Screen) -> None:
    screen.print_text(f"{count(len(found.pairs), 'pair')}, each in both orders; judge: {judge}")
    rows = [("first is better", str(found.first)), ("second is better", str(found.second)), ("tie", str(found.ties))]
    rows.append(("flips", f"{found.flips} of the answers depend on the order"))
    left = len(found.pairs) - len(found.decided)
    show_table([*rows, *([("no answer", f"{left:,}")] if left else [])], screen)
    screen.print_text()
    show_table([_row(one) for one in found.pairs[:_MOST]], screen)
    screen.print_more(len(found.pairs) - _MOST, "pair")
    show_why((one.why for one in found.pairs if one.preference is None), screen)


def _row(one: Any) -> tuple[str, str, str]:
    preference = one.preference
    if preference is None:
        return one.pair.name, "no answer", one_line(one.why, _REASON)
    said = "tie (flipped)" if preference.flipped else str(preference.better)
    return one.pair.name, said, one_line(preference.injection_suspected or preference.reason, _REASON)
