"""`kairo judge`: compare a judge with labelled examples; `judge_try` and `judge_attack` have the other commands."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import anyio
import typer

from kairo_team.cli.commands import WholeSentences
from kairo_team.cli.exit_codes import NO_ANSWER, list_exit_codes
from kairo_team.cli.job import plain_log
from kairo_team.cli.judge_attack import attack_command
from kairo_team.cli.judge_compare import compare_command
from kairo_team.cli.judge_inputs import JudgeJob, asking, judge_job
from kairo_team.cli.judge_report import calibration_document, score_document, show_calibration, show_score
from kairo_team.cli.judge_try import try_command
from kairo_team.cli.numbers import whole_number
from kairo_team.cli.options import RubricOption, VotesOption, desk_of
from kairo_team.cli.outputs import check_output, read_input, write_output
from kairo_team.cli.refusal import Refusal
from kairo_team.evaluators.calibration.calibration import Calibration, calibrate, score_judge
from kairo_team.evaluators.calibration.certificates import Certificate, read_certificates, write_certificates
from kairo_team.verdicts import Cause
from kairo_team.views.judge_svg import AgreementPanel, RiskCurve, draw_agreement, draw_risk

if TYPE_CHECKING:
    from kairo_team.evaluators.calibration.judge_report import JudgeReport
    from kairo_team.evaluators.calibration.thresholds import Side

Found = TypeVar("Found")
_MORE: Final = "give more with --budget, or fewer examples"

judge_app = typer.Typer(
    cls=WholeSentences,
    help="Try a judge on a text, compare it with labelled examples, and attack it.",
    add_completion=False,
    rich_markup_mode=None,
)
judge_app.command("try", epilog=list_exit_codes("reviewed", {NO_ANSWER: "the judge gave no review"}))(try_command)
judge_app.command("compare", epilog=list_exit_codes("compared", {NO_ANSWER: "no answer"}))(compare_command)
judge_app.command("attack", epilog=list_exit_codes("measured"))(attack_command)

Labels = Annotated[
    str, typer.Argument(metavar="FILE.jsonl", help="Labelled examples, one a line: artifact, task, passed.")
]
JudgeOption = Annotated[
    list[str], typer.Option(metavar="MODEL", help="A model's name, or FILE.py:NAME; given again, the next stage.")
]
BudgetOption = Annotated[
    str | None, typer.Option(metavar="LIMITS", help="All the judges may spend, such as tokens=200000,dollars=0.50.")
]
RepeatsOption = Annotated[int, whole_number("Ask about each example this many times, to count flips.", 1)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]


@judge_app.command("calibrate", epilog=list_exit_codes("certified", {NO_ANSWER: "nothing can be promised"}))
def calibrate_command(
    context: typer.Context,
    file: Labels,
    *,
    judge: JudgeOption,
    rubric: RubricOption,
    alpha: Annotated[float, typer.Option(metavar="SHARE", help="At most this share of its PASSes is false.")] = 0.1,
    alpha_revise: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="The same for REVISE; default: as --alpha; none: never certify it."),
    ] = None,
    delta: Annotated[float, typer.Option(metavar="SHARE", help="How often the promise may fail.")] = 0.1,
    budget: BudgetOption = None,
    repeats: RepeatsOption = 1,
    votes: VotesOption = None,
    out: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the certificates there.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="PATH", help="Draw coverage against risk there.")] = None,
    json: JsonOption = False,
) -> int:
    """Find how sure a judge must be so that it may decide by itself, and certify what that promises."""
    desk = desk_of(context, json=json)
    for option, place in (("--out", out), ("--svg", svg)):
        check_output(option, place, [file, rubric, *judge])
    with ExitStack() as stack:
        job = judge_job(stack, file, judge, rubric, budget, repeats, votes)
        alphas = _alphas(alpha, alpha_revise)
        found = _ask(job, partial(calibrate, job.strategy, job.labelled, alphas, delta), lambda made: made.report)
    code = 0 if found.certificates else NO_ANSWER
    if out is not None:
        write_output("--out", out, write_certificates(found.certificates))
    if svg is not None:
        write_output("--svg", svg, draw_risk(_curves(found)))
    return desk.present(calibration_document(found), partial(show_calibration, job, found), code)


@judge_app.command("score", epilog=list_exit_codes("scored"))
def score_command(
    context: typer.Context,
    file: Labels,
    *,
    judge: JudgeOption,
    rubric: RubricOption,
    certificates: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Certificates of kairo judge calibrate, to apply."),
    ] = None,
    budget: BudgetOption = None,
    repeats: RepeatsOption = 1,
    votes: VotesOption = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the judge's answers against the human's there.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Count how often a judge is wrong, next to baselines that look at nothing; promises nothing."""
    desk = desk_of(context, json=json)
    check_output("--picture", picture, [file, rubric, *judge, *([] if certificates is None else [str(certificates)])])
    given = [] if certificates is None else read_input("--certificates", certificates, _read_certificates)
    with ExitStack() as stack:
        job = judge_job(stack, file, judge, rubric, budget, repeats, votes)
        found = _ask(job, partial(score_judge, job.strategy, job.labelled, given), lambda made: made.report)
    if picture is not None:
        write_output("--picture", picture, draw_agreement(_panels(found.report)))
    return desk.present(score_document(found), partial(show_score, job, found))


def _alphas(alpha: float, revise: str | None) -> dict[Side, float]:
    if revise == "none":
        return {"pass": alpha}
    try:
        return {"pass": alpha, "revise": alpha if revise is None else float(revise)}
    except ValueError:
        raise Refusal(f"--alpha-revise must be a share such as 0.2, or none, not {revise!r}") from None


def _read_certificates(place: Path) -> list[Certificate]:
    return read_certificates(place.read_text(encoding="utf-8"))


def _ask(
    job: JudgeJob, ask: Callable[..., Coroutine[Any, Any, Found]], report_of: Callable[[Found], JudgeReport]
) -> Found:
    """Ask the judges about all examples; `Refusal` if a judge cannot be called, or the budget is too small."""
    with asking(f"not all {len(job.labelled):,} examples could be reviewed", _MORE), plain_log():
        found = anyio.run(partial(ask, repeats=job.repeats, budget=job.budget))
    unpaid = report_of(found).no_answer.get(Cause.JUDGE_BUDGET, 0)
    if unpaid:
        raise Refusal(f"the budget did not reach for {unpaid:,} of {len(job.labelled):,} examples: {_MORE}")
    return found


def _curves(found: Calibration) -> list[RiskCurve]:
    return [
        RiskCurve(
            f"{side.upper()}, attempt {bucket}",
            walk.alpha,
            [(step.n / walk.examples, step.k / step.n, step.bound) for step in walk.steps if step.n],
            None if walk.chosen is None else walk.chosen.n / walk.examples,
            None if walk.start is None else walk.start.n / walk.examples,
        )
        for (bucket, side), walk in found.walks.items()
    ]


def _panels(report: JudgeReport) -> list[AgreementPanel]:
    return [
        AgreementPanel(
            one.name or "Decisions",
            one.levels,
            one.counts,
            one.unanswered,
            None if one.agreed.rate is None else (one.agreed.rate, one.agreed.low, one.agreed.high),
            one.majority.rate,
        )
        for one in (report.decisions, *report.criteria)
    ]
