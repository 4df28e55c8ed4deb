"""`kairo eval`: a team over a dataset, with numbers that a CI job can gate on."""

from __future__ import annotations

import json as json_format
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.databases import file_of
from kairo_team.cli.exit_codes import INCOMPLETE, LEFT, NOT_MET, list_exit_codes
from kairo_team.cli.interrupts import warn_at_once
from kairo_team.cli.job import Ended, GoOn, Job, execute
from kairo_team.cli.journal_commands import read_age
from kairo_team.cli.journals import made, place_name
from kairo_team.cli.judge_inputs import read_judge, read_rubric
from kairo_team.cli.loading import importable, load_subject, read_team_spec
from kairo_team.cli.numbers import plain_number, whole_number
from kairo_team.cli.options import (
    ContentOption,
    CoordinatorOption,
    EventsOption,
    FileJournalOption,
    JsonOption,
    ModelOption,
    desk_of,
)
from kairo_team.cli.outputs import check_output, read_input, write_output
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.cli.sources import named_coordinator
from kairo_team.durable.journal import format_of_file
from kairo_team.engine.records.digests import check_unchanged, digests_of
from kairo_team.errors import JournalError, KairoError, PlanMismatch, RunNotFound, known
from kairo_team.evals.dataset import Dataset
from kairo_team.evals.eval_result import OUTCOMES, Comparison, EvalResult
from kairo_team.evals.eval_run import EvalJob, check_recorded, prepare_eval
from kairo_team.evals.recorded_runs import RejudgedRuns, RunsJob, prepare_runs_eval
from kairo_team.recorded import ENDED
from kairo_team.views.eval_junit import draw_junit
from kairo_team.views.eval_page import render_eval
from kairo_team.views.eval_progress import EvalProgress
from kairo_team.views.eval_table import draw_comparison, draw_eval, draw_runs

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.cli.streams import Screen
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.engine.work.runtime import ContentMode

_METRICS: Final = (
    *(f"{outcome.replace(' ', '_')}_rate" for outcome in OUTCOMES),
    *("awaits_person_rate", "score", "flip_rate", "dollars", "tokens", "seconds", "seconds_p95"),
)
_COMPARED: Final = ("change", "change_low", "p_value")
_OF_RUNS: Final = ("agreement", "kappa", "accepted_pass_rate", "refused_pass_rate", "drift", "drift_p_value")
"""Metrics that only an eval of finished runs has."""
_AMOUNTS: Final = ("dollars", "tokens", "seconds", "seconds_p95")
"""Metrics that are not a share."""
_SIGNED: Final = ("change", "change_low", "kappa", "drift")
"""Metrics that may be below 0."""
_NOT_OF_RUNS: Final = ("flip_rate", "seconds", "seconds_p95")
_SELECTS: Final = ("team", "since", "sample", "seed")
"""Names that --runs may have."""
_SIGNS: Final = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*(>=|<=|>|<)\s*([0-9.eE+-]+)\s*(%?)\s*")

eval_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a metric, such as `pass_rate>=0.9`."""

    text: str
    metric: str
    sign: str
    bound: float

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the requirement is met; a metric that was not counted meets none."""
        value = metrics.get(self.metric)
        return value is not None and _SIGNS[self.sign](value, self.bound)


@eval_app.command(
    "eval",
    epilog=list_exit_codes(
        "evaluated, and every --require is met",
        {INCOMPLETE: "not all trials were run", NOT_MET: "a --require is not met", LEFT: "interrupted by Ctrl-C"},
    ),
)
def eval_command(
    context: typer.Context,
    dataset: Annotated[
        Path | None,
        typer.Argument(metavar="[DATASET]", help="Cases: JSON Lines, or a JSON or YAML dataset of pydantic-evals."),
    ] = None,
    *,
    team: Annotated[
        str | None,
        typer.Option(metavar="FILE[:TEAM]", help="A Python file that builds the kt.Team, or a team as data."),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION",
            help="Judge finished runs of --journal again, and run no team: team=desk,since=7d,sample=50,seed=1.",
        ),
    ] = None,
    rubric: Annotated[
        str | None,
        typer.Option(metavar="FILE[:NAME]", help="The rubric that decides; default: the dataset's evaluators."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Answers the criteria for a judge: a name, or FILE.py:NAME.")
    ] = None,
    repeat: Annotated[int, whole_number("Run each case this many times.", 1)] = 1,
    parallel: Annotated[int, whole_number("Run this many trials at once.", 1)] = 4,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Limits of the whole eval, such as tokens=200000,dollars=0.50; reviews may use 20 %.",
        ),
    ] = None,
    model: ModelOption = None,
    coordinator: CoordinatorOption = None,
    journal: FileJournalOption = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The eval's name in the journal; resumes an interrupted eval.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Resume although another process seems to work on it.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result here.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as an HTML page.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the trials as JUnit XML, for CI.")] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An earlier --output, to compare with case by case.")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="METRIC>=N", help="Exit with 8 unless this is met; may be repeated.")
    ] = None,
    events: EventsOption = None,
    content: ContentOption = None,
    json: JsonOption = False,
) -> int:
    """Run a team on every case of a dataset, review each result, and print what share passed.

    With --runs no team runs: what finished runs of a journal returned is judged by --rubric, and compared with what was
    accepted then.
    """
    desk = desk_of(context, json=json)
    source = [str(dataset)] if dataset else []
    inputs = [*source, *filter(None, [team, rubric, judge, journal]), *([str(compare)] if compare else [])]
    check_output("--output", output, [one for one in inputs if compare is None or one != str(compare)])
    check_output("--html", html, inputs)
    check_output("--junit", junit, inputs)
    earlier = None if compare is None else read_input("--compare", compare, EvalResult.load)
    again: RunsJob | None = None
    with ExitStack() as stack:
        book: SqlJournal | None = None
        if runs is not None:
            given = {"--team": team, "--run-id": run_id, "--coordinator": coordinator, "--repeat": repeat > 1}
            _check_alone(runs, dataset, {**given, "--take-over": take_over})
            again = _runs_job(stack, runs, rubric, judge, budget, journal, parallel=parallel)
            job = again.inner
        else:
            job = _job(
                stack,
                dataset,
                team,
                rubric,
                judge,
                budget,
                coordinator,
                repeat=repeat,
                parallel=parallel,
                run_id=run_id,
            )
            file = file_of(journal)
            book = None if file is None else stack.enter_context(made(file))
            own = job.team.runtime
            with refusing(ValueError):
                check_recorded(job, own.store if book is None and own is not None else book)
        required = [
            _requirement(one, job, compared=earlier is not None, runs=again is not None) for one in require or ()
        ]
        ended = _run(job, desk, model, book, take_over=take_over, events=events, content=content)
    if ended.result.refused:
        raise Refusal(f"nothing was evaluated: {ended.result.error}")
    found = job.result(ended.result) if again is None else again.result(ended.result)
    result = found.result if isinstance(found, RejudgedRuns) else found
    compared: Comparison | None = None
    metrics = {**found.metrics}
    if earlier is not None:
        with refusing(ValueError, about="--compare: "):
            compared = result.compare(earlier)
        metrics |= zip(_COMPARED, (compared.passed.change, compared.passed.low, compared.p_value), strict=True)
    unmet = [one.text for one in required if not one.holds(metrics)]
    if output is not None:
        write_output("--output", output, found.to_json())
    if html is not None:
        write_output("--html", html, render_eval(result, compared))
    if junit is not None:
        write_output("--junit", junit, draw_junit(result))
    code = ended.code if ended.interrupted else NOT_MET if unmet else INCOMPLETE if result.error else 0
    return desk.present(
        json_format.loads(found.to_json()) | {"unmet": unmet}, partial(_show, found, compared, unmet), code
    )


def _run(
    job: EvalJob,
    desk: Desk,
    model: str | None,
    book: SqlJournal | None,
    *,
    take_over: bool,
    events: Path | None,
    content: ContentMode | None,
) -> Ended:
    """Run the eval, resume it, or return its recorded end."""
    found, run_id = Job(job.team, job.request, job.coordinator, model=model, journal=book), job.request.run_id
    if book is not None:
        try:
            recorded = book.show(run_id)
        except RunNotFound:
            desk.screen.print_text(f"run {run_id} is recorded in {place_name(book)}")
        else:
            if recorded.state in ENDED:
                return _ended_before(job, book)
            found = replace(found, go_on=GoOn(take_over=take_over, budget=job.request.config.budget))
    progress = EvalProgress(desk.screen.print_text, warn_at_once, run_id, len(job.coordinator.graph))
    return execute(found, desk.screen, keep_on=False, events=events, content=content, view=progress)


def _ended_before(job: EvalJob, book: SqlJournal) -> Ended:
    """Return the recorded end of an eval; `Refusal` if another eval has this id."""
    run_id = job.request.run_id
    try:
        check_unchanged(run_id, book.digests(run_id), digests_of(job.team, {}, job.coordinator))
    except PlanMismatch as error:
        raise Refusal(f"--run-id {run_id!r} is another eval: {explain(error)}; give this one another id") from None
    result = book.result(run_id)
    assert result is not None, "a run that has ended has a result"
    return Ended(result, 0)


def _job(
    stack: ExitStack,
    dataset: Path | None,
    team: str | None,
    rubric: str | None,
    judge: str | None,
    budget: str | None,
    coordinator: str | None,
    *,
    repeat: int,
    parallel: int,
    run_id: str | None,
) -> EvalJob:
    if dataset is None:
        raise Refusal("nothing is evaluated: give a dataset, or --runs with a journal")
    if team is None:
        raise Refusal("an eval runs a team: give --team FILE.py, or --runs to judge what was run")
    if not dataset.is_file():
        raise Refusal(f"there is no file {str(dataset)!r}: give a dataset, JSON Lines with a case a line")
    with refusing(KairoError, ValueError, OSError):
        cases = Dataset.load(dataset, with_rubric=rubric is None)
    spec = read_team_spec(team)
    stack.enter_context(importable(spec.folder))
    subject, config, plan = load_subject(spec)
    limit = limited(Budget(), budget)
    with refusing(KairoError, ValueError):
        return prepare_eval(
            subject,
            cases,
            None if rubric is None else read_rubric(stack, rubric),
            judge=None if judge is None else read_judge(stack, judge),
            repeat=repeat,
            parallel=parallel,
            budget=limit,
            config=config,
            plan=plan,
            coordinator=named_coordinator(coordinator),
            run_id=run_id,
        )


def _check_alone(runs: str, dataset: Path | None, given: Mapping[str, object]) -> None:
    if dataset is not None:
        raise Refusal(
            f"--runs {runs!r:.200} takes its cases from a journal: leave out {str(dataset)!r:.200}, a dataset"
        )
    for option, value in given.items():
        if value:
            raise Refusal(f"{option} runs a team, and --runs judges what was run: leave it out")


def _runs_job(
    stack: ExitStack,
    runs: str,
    rubric: str | None,
    judge: str | None,
    budget: str | None,
    journal: str | None,
    *,
    parallel: int,
) -> RunsJob:
    selected = _read_selection(runs)
    file = file_of(journal)
    if file is None:
        raise Refusal("--runs needs the journal in which runs are recorded: name its file with --journal runs.db")
    if rubric is None:
        raise Refusal("--runs judges by a rubric: give --rubric FILE")
    limit = limited(Budget(), budget)
    by = None if judge is None else read_judge(stack, judge)
    criteria = read_rubric(stack, rubric)
    with made(_existing(file)) as book, refusing(KairoError, ValueError):
        return prepare_runs_eval(book, criteria, judge=by, parallel=parallel, budget=limit, **selected)


def _existing(file: Path) -> Path:
    """Return the file of a journal with runs that can be opened without a change; `Refusal` for any other."""
    if not file.is_file():
        raise Refusal(f"there is no journal {str(file)!r:.200}: name the file in which runs are recorded")
    with refusing(JournalError):
        found = format_of_file(file)
    if not found.number:
        raise Refusal(f"journal {str(file)!r:.200}: it has no runs")
    if found.is_old:
        raise Refusal(
            f"journal {str(file)!r:.200} has an earlier format, and --runs changes nothing: kairo migrate first"
        )
    return file


def _read_selection(text: str) -> dict[str, Any]:
    """Read `team=desk,since=7d,sample=50,seed=1`; a team's name may contain a comma."""
    found: dict[str, str] = {}
    for part in re.split(r",(?=\s*[a-z]+\s*=)", text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise Refusal(f"--runs {text!r:.200}: {name!r:.80} has no value: write team={name:.80}")
        if name not in _SELECTS:
            raise Refusal(f"--runs {text!r:.200}: it may have {known(_SELECTS)}, not {name!r:.80}")
        if name in found:
            raise Refusal(f"--runs {text!r:.200} names {name!r} twice")
        found[name] = value
    if not found.get("team"):
        raise Refusal(f"--runs {text!r:.200} names no team: write team=NAME, the name that kairo runs shows")
    selected: dict[str, Any] = {"team": found["team"]}
    if "since" in found:
        selected["since"] = read_age(found["since"], "--runs: since")
    for name, least, allowed in (("sample", 1, "a whole number from 1"), ("seed", 0, "a whole number from 0")):
        if name in found:
            number = plain_number(found[name])
            if not re.fullmatch(r"[0-9]{1,18}", number) or int(number) < least:
                raise Refusal(f"--runs: {name} is {allowed}, not {found[name]!r:.80}")
            selected[name] = int(number)
    return selected


def _requirement(text: str, job: EvalJob, *, compared: bool, runs: bool) -> Requirement:
    """Read a requirement; `Refusal` for a metric that the eval will not have."""
    match = _REQUIREMENT.fullmatch(text)
    try:
        bound = float(plain_number(match[3])) if match else None
    except ValueError:
        bound = None
    if match is None or bound is None:
        raise Refusal(f"--require {text!r} cannot be read: write a metric and a bound, such as pass_rate>=0.9")
    rubrics = job.team.evaluators.values()
    criteria = [f"criterion.{one.id}" for rubric in rubrics for one in getattr(rubric, "criteria", ())]
    tries = [f"pass_{how}_{k}" for how in ("any", "all") for k in range(2, job.repeat + 1)]
    own = [one for one in (*_METRICS, *_OF_RUNS) if one not in (_NOT_OF_RUNS if runs else _OF_RUNS)]
    metrics = [*own, *tries, *criteria, *(_COMPARED if compared else ())]
    if match[1] not in metrics:
        hint = "" if compared or match[1] not in _COMPARED else "; that one needs --compare"
        raise Refusal(f"--require {text!r}: there is no metric {match[1]!r}; there are {known(metrics)}{hint}")
    bound = bound / 100 if match[4] else bound
    if match[1] not in _AMOUNTS and not (-1 if match[1] in _SIGNED else 0) <= bound <= 1:
        least = -1 if match[1] in _SIGNED else 0
        raise Refusal(
            f"--require {text!r}: {match[1]} is a share from {least} to 1: write a bound such as {match[1]}>=0.9 or "
            f"{match[1]}>=90%"
        )
    return Requirement(text.strip(), match[1], match[2], bound)


def _show(found: EvalResult | RejudgedRuns, compared: Comparison | None, unmet: Sequence[str], screen: Screen) -> None:
    screen.print_text(draw_eval(found) if isinstance(found, EvalResult) else draw_runs(found))
    if compared is not None:
        screen.print_text()
        screen.print_text(draw_comparison(compared))
    for one in unmet:
        screen.print_text(f"not met: {one}")
