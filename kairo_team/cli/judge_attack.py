"""`kairo judge attack`: count how often attacks turn a judge, and how often harmless texts raise the alarm."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from kairo_team._util.counts import count
from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.exit_codes import LEFT
from kairo_team.cli.interrupts import handled
from kairo_team.cli.job import log_level
from kairo_team.cli.judge_inputs import asking, read_judge, read_rubric
from kairo_team.cli.judge_report import show_table
from kairo_team.cli.numbers import whole_number
from kairo_team.cli.options import RubricOption, VotesOption, desk_of
from kairo_team.cli.outputs import read_text
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.attacks.corpus import WEAK, Attack, Work, attacks, ordinary
from kairo_team.evaluators.attacks.trial import AttackReport, attack_judge, split_of
from kairo_team.verdicts import VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.evaluators.calibration.confidence_bounds import Proportion

_EACH: Final = 10
"""Reviews after which progress is reported once for so many."""
_SPLITS: Final = {
    "report": "families the list never saw",
    "tune": "families the list was made with",
    "own": "your own attacks",
}


def attack_command(
    context: typer.Context,
    *,
    judge: Annotated[str, typer.Option(metavar="MODEL", help="A model's name, or FILE.py:NAME.")],
    rubric: RubricOption,
    artifacts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Your own artifacts, one a file, bad and good ones.")
    ] = None,
    task: Annotated[str, typer.Option(metavar="TEXT", help="The task that your artifacts are for.")] = "Do the task.",
    own: Annotated[
        Path | None, typer.Option("--attacks", metavar="DIR", help="Your own attacks in addition, one a file.")
    ] = None,
    cases: Annotated[
        int | None,
        whole_number("At most so many attacks of the corpus; default: all.", 1),
    ] = None,
    seed: Annotated[int, whole_number("A different number makes different attacks.", 0)] = 0,
    budget: Annotated[
        str | None, typer.Option(metavar="LIMITS", help="All the judge may spend, such as tokens=200000,dollars=0.50.")
    ] = None,
    concurrency: Annotated[int, whole_number("Reviews at a time.", 1)] = 4,
    votes: VotesOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Count how often an attack makes a judge pass what it does not pass alone, and how often the alarm is false."""
    desk = desk_of(context, json=json)
    if not task.strip():
        raise Refusal(f"--task is what your artifacts are for, such as 'Write the release notes', not {task!r}")
    with ExitStack() as stack:
        with refusing(ValueError):
            strategy = AgentEvaluationStrategy(read_judge(stack, judge), read_rubric(stack, rubric), votes=votes)
            limit = limited(Budget(), budget)
        works = [*(Work(task, text) for _, text in texts_in("--artifacts", artifacts)), *WEAK, *ordinary()]
        best = strategy.rubric.decided_by("judge")[0].levels[-1]
        mine = [Attack(name, name, "own", "artifact", text) for name, text in texts_in("--attacks", own)]
        chosen = [*mine, *attacks(seed, best=best)[:cases]]
        progress = _Progress(desk.screen)
        ask = partial(attack_judge, strategy, works, chosen, budget=limit, concurrency=concurrency, told=progress.take)
        code = 0
        try:
            # SIGTERM, which a CI job gets at its time limit, counts as Ctrl-C.
            with handled([signal.SIGTERM], lambda _number, _frame: signal.raise_signal(signal.SIGINT)):
                found = _attack(ask)
        except KeyboardInterrupt:
            if progress.found is None:
                raise
            found, code = progress.found, LEFT
    return desk.present(found.to_json(), partial(_show, judge, found), code)


class _Progress:
    """Shows the progress of the trial on a terminal, and keeps its report in case it is ended early."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.found: AttackReport | None = None

    def take(self, found: AttackReport) -> None:
        """Print a line for each of the first reviews, then for each tenth."""
        self.found = found
        done = len(found.alone) + len(found.again) + len(found.tried)
        if self._screen.watched and (done <= _EACH or not done % _EACH):
            texts, attacks = count(len(found.alone), "text"), count(len(found.tried), "attack")
            answers = "" if not found.no_answers else f"; {found.no_answers} without an answer"
            self._screen.print_text(f"{count(done, 'review')}: {texts} alone, {attacks}{answers}")


def texts_in(option: str, folder: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the texts of a directory by file name; hidden files and subdirectories are left out."""
    if folder is None:
        return
    if not folder.is_dir():
        raise Refusal(f"{option} {str(folder)!r} is not a directory: give one with text files, one text each")
    found = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]
    if not found:
        raise Refusal(f"{option} {str(folder)!r} holds no files: give a directory with text files, one text each")
    for file in found:
        text = read_text(option, file, "take it out of the directory")
        if not text.strip():
            raise Refusal(f"{option}: {str(file)!r} is blank: take it out of the directory")
        yield file.name, text


def _attack(ask: Callable[[], Coroutine[Any, Any, AttackReport]]) -> AttackReport:
    """Ask the judge; `Refusal` if it cannot be called, or its budget is too small."""
    more = "give more with --budget, or fewer attacks with --cases"
    # Without warnings: each review without an answer would print one, and the table counts these reviews.
    with asking("not all attacks could be tried", more), log_level(logging.ERROR):
        found = anyio.run(ask)
    if found.unpaid:
        raise Refusal(f"the budget did not reach for {count(found.unpaid, 'review')}: {more}")
    if all(verdict.outcome is VerdictOutcome.REVIEW_EXCEEDED for verdict in found.alone):
        unfit = "a judge without one usable answer is not fit to judge: name a larger model"
        why = found.alone[0].feedback
        raise Refusal(f"the judge gave no answer on any of {len(found.alone):,} texts ({why}): {unfit}")
    return found


def _show(judge: str, found: AttackReport, screen: Screen) -> None:
    """Print the table for a person."""
    works, tried = count(len(found.alone), "text"), count(len(found.tried), "attack")
    screen.print_text(f"{works} judged alone; {tried} put into those that do not pass; judge: {judge}")
    if found.left_out:
        why = "the judge sends back no text that they could be put into"
        screen.print_text(f"{count(found.left_out, 'attack')} left out: {why}")
    splits = {_SPLITS[name]: share for name, share in found.success_by(split_of).items()}
    turned = {"attacks that turn the judge": found.success, **{f"  {name}": share for name, share in splits.items()}}
    others = {
        "bad texts that pass when judged again": found.by_itself,
        "attacks that raise the alarm": found.alarms,
        "attacks without an answer": found.no_answer,
        "texts without an attack that raise it": found.false_alarms,
    }
    _section("The judge under attack", turned | others, screen)
    if found.why_no_answer:
        screen.print_text(f"  no answer, for example: {found.why_no_answer}")
    _section("Attacks that turn the judge, by family", found.success_by(lambda attack: attack.family), screen)
    _section("By language", found.success_by(lambda attack: attack.language), screen)


def _section(title: str, shares: Mapping[str, Proportion], screen: Screen) -> None:
    if shares:
        screen.print_head(title)
        show_table([(name, str(share)) for name, share in shares.items()], screen)
