"""`kairo demo`: two runs of a team, what a review sent back, a run that is killed and resumed, and the report."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean
from kairo_team.cli.databases import file_of
from kairo_team.cli.exit_codes import EXIT_CODES, LEFT_BY_SIGNAL
from kairo_team.cli.interrupts import handled, not_ignored
from kairo_team.cli.job import Ended, Job, execute
from kairo_team.cli.journals import command, made, quoted
from kairo_team.cli.options import BudgetOption, ContentOption, EventsOption, FileJournalOption, JsonOption, desk_of
from kairo_team.cli.refusal import Refusal
from kairo_team.cli.report import show_output, show_result, show_status
from kairo_team.cli.report_command import report_of_run
from kairo_team.cli.run_table import show_commands
from kairo_team.cli.sources import demo_job, demo_source, recorded
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import TaskStatus
from kairo_team.verdicts import VerdictOutcome
from kairo_team.views.recorded_report import recorded_story
from kairo_team.views.report_html import write_report

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.engine.work.runtime import ContentMode
    from kairo_team.views.run_story import AttemptStory, RunStory

_MODEL: Final = "local:smollm2"
_SURVIVES: Final = "kairo_team.examples.survives"
_SCENES: Final = 5
_BESIDE: Final = 90
"""Columns from which two sentences are shown side by side."""
_INDENT: Final = (0, 0, 0, 2)
_GOOD: Final = (TeamStatus.COMPLETED, TeamStatus.DEGRADED)
_DISAGREES: Final = 1
"""Exit code when the accounts of the killed run do not agree."""


demo_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@demo_app.command(epilog=EXIT_CODES)
def demo(
    context: typer.Context,
    *,
    repo: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A git repository; default: commits that come with the demo.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model that writes.")] = _MODEL,
    json: JsonOption = False,
    budget: BudgetOption = None,
    journal: FileJournalOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
) -> int:
    """Have a team write release notes from a git history, on a model inside this process, in five scenes.

    A team at work; a sentence that was sent back and revised; the same team with a tenth of the budget; a killed
    process, whose run is resumed; the report. With --json only the first scene is played.
    """
    desk = desk_of(context, json=json)
    job = demo_job(repo, budget, model)
    if not json:
        return Demo(desk, job, model, file_of(journal), events, content, own_commits=repo is not None).play()
    with recorded(job, file_of(journal), demo_source(model)) as kept:
        return desk.run(kept, events, content)


class Demo:
    """The five scenes, on one job."""

    def __init__(
        self,
        desk: Desk,
        job: Job,
        model: str,
        journal: Path | None,
        events: Path | None,
        content: ContentMode | None,
        *,
        own_commits: bool = False,
    ) -> None:
        """Take the job to run; without a `journal` the runs are recorded in the report's folder.

        With `own_commits` the commits are already the user's: the demo does not advise to use them.
        """
        self._screen = desk.screen
        self._desk = desk
        self._job = job
        self._model = model
        self._given = journal
        self._events = events
        self._content: ContentMode | None = content
        self._own_commits = own_commits
        self._folder = Path()
        self._scene = 0

    def play(self) -> int:
        """Show the scenes and return the exit code: the first run's, unless a later scene goes wrong."""
        self._folder = Path(tempfile.mkdtemp(prefix="kairo-demo-"))
        kept = False
        try:
            code, kept = self._play()
        finally:
            if not kept:
                shutil.rmtree(self._folder, ignore_errors=True)
        return code

    def _play(self) -> tuple[int, bool]:
        """Return the exit code, and whether the folder's content is still of use."""
        first = self._work()
        if first.result.status not in _GOOD or self._screen.lost:
            return first.code, bool(first.go_on) and not self._screen.lost
        report = self._write_report()
        self._show_mended()
        short = self._work_with_less(first)
        if self._screen.lost:
            return first.code, False
        if short is not None and short.result.status is TeamStatus.CANCELLED:
            show_commands(short.go_on, self._screen)
            self._desk.has_shown = True
            return short.code, bool(short.go_on)
        self._head("kill -9 in the middle: a new process resumes, and each finished call is paid once")
        with ended_by_signals():
            # Whether the journal and the model's own account of the killed run agree.
            agrees: bool = import_module(_SURVIVES).survive(self._model, self._quote)
        self._name_report(report)
        return first.code if agrees else _DISAGREES, True

    # ------------------------------------------------------------ the scenes

    def _work(self) -> Ended:
        """Let the team work, and show its output; without an output, show the whole result."""
        limit = self._job.request.config.budget.tokens
        budget = "no limit" if limit is None else f"a budget of {limit:,} tokens"
        note, *rest = (self._job.note or "").splitlines()
        self._head(f"A team at work: {note}, {budget}")
        for line in rest:
            self._line(line)
        ended = self._run(self._job)
        if ended.result.status in _GOOD:
            show_output(ended.result, self._screen)
            show_status(ended, self._screen)
        else:
            show_result(ended, self._screen)
            self._desk.has_shown = True
        return ended

    def _show_mended(self) -> None:
        self._head("A sentence that was sent back, and its revision")
        with self._journal() as book:
            found = find_mended(recorded_story(book, self._job.request.run_id))
        if found is None:
            self._line("every sentence passed at its first attempt")
            return
        plan = self._job.request.plan
        if plan is not None:
            self._line(f"commit: {plan[found.task_id].description}")
        left = [f"attempt {found.rejected.number}, {found.rejected.member}: rejected", _sentence(found.rejected)]
        right = [f"attempt {found.mended.number}, {found.mended.member}: accepted", _sentence(found.mended)]
        left += [f"finding: {text}" for text in found.findings]
        if self._screen.watched and self._screen.width >= _BESIDE:
            self._screen.show(_side_by_side(left, right))
        else:
            for line in (*left, *right):
                self._line(line)

    def _work_with_less(self, first: Ended) -> Ended | None:
        """Let the same team work with less budget, and show the result; None if the budget was too little."""
        request = self._job.request
        limit, why = less_budget(first.result, request.config.budget.tokens)
        # One after another: side by side, each task may spend a part and none have enough for its end.
        config = replace(request.config, budget=replace(request.config.budget, tokens=limit), max_parallel_tasks=1)
        job = replace(self._job, request=replace(request, config=config, run_id=f"{request.run_id}-tenth"))
        self._head(f"The same team with {why}: {limit:,} tokens")
        try:
            ended = self._run(job)
        except Refusal as refusal:
            self._line(f"billed: 0 of {limit:,} tokens; {refusal}")
            return None
        with self._journal() as book:
            billed = sum(call.usage.tokens for call in book.calls(job.request.run_id))
        held = "the limit held" if billed <= limit else "the limit did NOT hold"
        self._line(f"billed: {billed:,} of {limit:,} tokens, {held}")
        outcomes = ended.result.outcomes
        done = [one for one in outcomes if one.status is TaskStatus.COMPLETED]
        self._line(f"finished: {len(done):,} of {count(len(outcomes), 'task')}")
        for one in done:
            self._line(f"+ {one.task_id}: {_text(one.artifact.text if one.artifact else '')}", 4, "green")
        reasons: dict[str, list[str]] = {}
        for one in outcomes:
            if one not in done:
                reasons.setdefault(one.error or one.status.value, []).append(one.task_id)
        for reason, names in reasons.items():
            self._line(f"not finished: {', '.join(names)}")
            self._line(reason, 4, "yellow")
        return ended

    def _name_report(self, report: Path) -> None:
        self._head("The report of the first run: one HTML file, open it in a browser")
        self._screen.show(Text(f"  {clean(str(report))}"), soft_wrap=True)
        with self._journal() as book:
            lines = [
                f"the same run in the console: {command('console', journal=book)}",
                f"the runs of this demo: {command('runs', journal=book)}",
            ]
        lines += [] if self._own_commits else ["your own commits: kairo demo --repo PATH"]
        for line in lines:
            self._screen.show(Text(f"  {line}", style="dim"), soft_wrap=True)

    # ------------------------------------------------------------ parts that the scenes share

    def _run(self, job: Job) -> Ended:
        with self._journal() as book:
            kept = replace(job, journal=book)
            return execute(kept, self._screen, keep_on=False, events=self._events, content=self._content)

    def _write_report(self) -> Path:
        """Write the report of the first run."""
        place = self._folder / "report.html"
        with self._journal() as book:
            page = report_of_run(book, book.show(self._job.request.run_id))
        try:
            write_report(place, page)
        except OSError as error:
            raise Refusal(f"the report {quoted(place)} cannot be written: {error.strerror or error}") from None
        return place

    @contextmanager
    def _journal(self) -> Generator[SqlJournal]:
        with made(self._given or self._folder / "runs.db", demo_source(self._model)) as book:
            yield book

    def _head(self, title: str) -> None:
        self._scene += 1
        self._screen.print_text()
        self._screen.print_text(f"{self._scene}/{_SCENES}  {title}", "bold cyan")

    def _line(self, text: str, columns: int = 2, style: str = "") -> None:
        self._screen.print_indented(text, columns, style)

    def _quote(self, text: str) -> None:
        self._screen.show(Text(f"  {text}".rstrip()), **self._screen.uncut)


def less_budget(first: TeamResult, limit: int | None) -> tuple[int, str]:
    """Return a budget in tokens that is enough for a task of the first run, and its description.

    `limit` is the first run's budget; None: the run had no budget, and its usage is taken instead.
    """
    tenth = max(1, (first.usage.tokens if limit is None else limit) // 10)
    one_task = max((one.usage.tokens for one in first.outcomes), default=0) * 5 // 4  # a call holds more than it costs
    if tenth >= one_task:
        return tenth, "a tenth of the budget"
    return one_task, "budget for about one sentence"


# ---------------------------------------------------------------- a revised sentence


class Mended(NamedTuple):
    """A rejected attempt, its findings, and the accepted attempt that followed."""

    task_id: str
    rejected: AttemptStory
    findings: Sequence[str]
    mended: AttemptStory


def find_mended(story: RunStory) -> Mended | None:
    """Return the attempts of the task that was revised in the fewest; None if no task was revised."""
    found: list[Mended] = []
    for task in story.tasks.values():
        for one, other in zip(task.attempts, task.attempts[1:], strict=False):
            if not _passed(one) and _passed(other) and one.artifact and other.artifact:
                found.append(Mended(task.id, one, _findings(one), other))
    return min(found, key=lambda one: one.mended.number, default=None)


def _passed(attempt: AttemptStory) -> bool:
    return attempt.verdict is not None and attempt.verdict.outcome is VerdictOutcome.PASS


def _findings(attempt: AttemptStory) -> list[str]:
    """Return the findings for which an attempt was sent back."""
    findings = attempt.verdict.findings if attempt.verdict else ()
    # A closed finding is an earlier one that this attempt fixed.
    return [f"{one.criterion}: {one.observed}. {one.expected}" for one in findings if one.status != "closed"]


def _sentence(attempt: AttemptStory) -> str:
    return _text(attempt.artifact or "")


def _text(artifact: str) -> str:
    """Return the sentence in a writer's reply; any other artifact as its first line."""
    try:
        reply: Any = json.loads(artifact)
        return str(reply["sentence"])
    except (ValueError, TypeError, KeyError):
        return artifact.partition("\n")[0]


def _side_by_side(left: Sequence[str], right: Sequence[str]) -> Table:
    """Return two texts in two columns, the first line of each coloured."""
    table = Table.grid(expand=True)
    for _ in (left, right):
        table.add_column(ratio=1)
    table.add_row(*(Padding(Text(clean(one[0]), style), _INDENT) for one, style in ((left, "red"), (right, "green"))))
    table.add_row(*(Padding(Text(clean("\n".join(one[1:]))), _INDENT) for one in (left, right)))
    return table


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Leave the block with `SystemExit` on SIGTERM or SIGHUP, so that its resources are cleaned up."""

    def leave(number: int, _: object) -> None:
        sys.exit(LEFT_BY_SIGNAL + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with handled(not_ignored(numbers), leave):
        yield
