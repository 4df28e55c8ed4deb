"""The output of `kairo judge`: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.counts import count
from kairo_team.evaluators.calibration.certificates import write_certificates
from kairo_team.views.text import aligned, one_line

if TYPE_CHECKING:
    from kairo_team.cli.judge_inputs import JudgeJob
    from kairo_team.cli.streams import Screen
    from kairo_team.evaluators.calibration.agreement import Agreement
    from kairo_team.evaluators.calibration.calibration import Calibration, JudgeScore
    from kairo_team.evaluators.calibration.judge_report import JudgeReport

_WHOLE: Final = 600
"""Characters of a reason."""
_HEADS: Final = ("decides", "attempt", "threshold", "decided so", "wrong", "at most", "of all artifacts")


def show_calibration(job: JudgeJob, found: Calibration, screen: Screen) -> None:
    """Print the certificates, the reasons for missing ones, and the judge next to its baselines."""
    _show_job(job, screen)
    screen.print_head("Certificates" if found.certificates else "No certificate: all is left to a human")
    if found.certificates:
        show_table([_HEADS, *map(_certificate_row, found.certificates)], screen)
    for sentence in found.shortfalls:
        screen.print_text(sentence)
    _show_budget(found, screen)
    _show_report("The judge without certificates: all its decisions count", found.report, screen)
    show_why([found.report.why_no_answer], screen)


def show_why(reasons: Iterable[str], screen: Screen) -> None:
    """Print the most frequent of the reasons for no answer, with what to do about it at its end."""
    for reason, _ in Counter(filter(None, reasons)).most_common(1):
        screen.print_text()
        screen.print_text(f"No answer, most often: {one_line(reason, _WHOLE)}")


def _show_job(job: JudgeJob, screen: Screen) -> None:
    passed = sum(one.passed for one in job.labelled)
    screen.print_text(
        f"{count(len(job.labelled), 'example')}, a human passes {passed:,}; judge: {', then '.join(job.judges)}"
    )


def _certificate_row(one: Any) -> tuple[str, ...]:
    return (
        one.outcome,
        one.attempt,
        repr(one.threshold),
        f"{one.n:,}",
        f"{one.k:,}",
        f"{one.alpha:.1%} wrong (bound {one.bound:.1%})",
        f"{one.coverage.rate:.1%} ({one.coverage.low:.1%} to {one.coverage.high:.1%})",
    )


def _show_budget(found: Calibration, screen: Screen) -> None:
    """Describe how many labels a promise needs."""
    screen.print_head("Labels")
    for (bucket, side), walk in found.walks.items():
        share = walk.answered / walk.examples
        rough = f", about {walk.needed / share:,.0f} examples as they come" if share else ""
        screen.print_text(
            f"{side} on attempt {bucket}: at most {walk.alpha:.1%} wrong takes {walk.needed} decided so without an "
            f"error{rough}; there are {walk.answered} in {walk.examples}"
        )


def show_score(job: JudgeJob, found: JudgeScore, screen: Screen) -> None:
    """Print the judge's score, without and with its certificates."""
    _show_job(job, screen)
    _show_report("The judge without certificates: all its decisions count", found.report, screen)
    _show_matrix("Decisions", found.report.decisions, screen)
    _show_criteria(found.report.criteria, screen)
    if found.calibrated is not None:
        _show_report("Under its certificates", found.calibrated, screen)
    for sentence in found.why_not:
        screen.print_text(sentence)
    show_why([found.report.why_no_answer], screen)


def _show_report(title: str, report: JudgeReport, screen: Screen) -> None:
    screen.print_head(title)
    most = f"  always saying {report.decisions.most_frequent}" if report.coverage.k else "  always the same"
    rows = [
        ("decides by itself", str(report.coverage), ""),
        ("agrees with the human", str(report.decisions.agreed), "of what it decides"),
        (most, str(report.decisions.majority), "of the same"),
        ("false PASS", str(report.false_pass), "of what it passes"),
        *([("  awaits a person", str(report.awaits_person), "of the same")] if report.awaits_person.k else []),
        ("  passing everything", str(report.always_pass), "of all"),
        ("  passing the longest", str(report.longest_wins), "of as many as it passes"),
        ("false REVISE", str(report.false_revise), "of what it sends back"),
        ("false-pass rate", str(report.false_pass_rate), "of what a human would not pass"),
        ("kappa", _number(report.kappa), "agreement with the human beyond chance"),
        ("flips", str(report.flips) if report.flips.n else "not asked again: --repeats 2", "of what was asked again"),
    ]
    rows += [(f"no answer: {cause.replace('_', ' ')}", f"{many:,}", "") for cause, many in report.no_answer.items()]
    show_table(rows, screen)


def _show_criteria(criteria: Sequence[Agreement], screen: Screen) -> None:
    """Print how the judge and the human agree on each criterion, and which levels they name."""
    screen.print_head("Criteria")
    if not criteria:
        screen.print_text('no example says what a human answers for single criteria, as in "levels": {"id": "met"}')
        return
    rows = [("criterion", "agrees with the human", "always the most frequent level", "kappa", "weighted kappa")]
    rows += [
        (
            one.name,
            str(one.agreed),
            f"{one.most_frequent}: {one.majority}" if one.majority.n else "none",
            _number(one.kappa),
            _number(one.weighted_kappa),
        )
        for one in criteria
    ]
    show_table(rows, screen)
    for one in criteria:
        _show_matrix(one.name, one, screen)


def _show_matrix(title: str, one: Agreement, screen: Screen) -> None:
    """Print a table of the human's answers (down) against the judge's (across)."""
    screen.print_head(f"{title}: the human says (down), the judge says (across)")
    rows = [("", *one.levels, "no answer")]
    rows += [
        (level, *(f"{many:,}" for many in (*counts, left)))
        for level, counts, left in zip(one.levels, one.counts, one.unanswered, strict=True)
    ]
    show_table(rows, screen)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def show_table(rows: Sequence[Sequence[str]], screen: Screen) -> None:
    """Print rows as a table with aligned columns."""
    for line in aligned(rows):
        screen.print_text(f"  {line}")


# ---------------------------------------------------------------- documents


def calibration_document(found: Calibration) -> dict[str, Any]:
    """Return the document: `certificates`, `shortfalls`, `curves`, `report`, `usage`."""
    curves = [
        {
            "outcome": side,
            "attempt": bucket,
            "alpha": walk.alpha,
            "delta": walk.delta,
            "examples": walk.examples,
            "needed": walk.needed,
            "start": None if walk.start is None else walk.start.threshold,
            "steps": [{"threshold": s.threshold, "n": s.n, "k": s.k, "bound": s.bound} for s in walk.steps],
        }
        for (bucket, side), walk in found.walks.items()
    ]
    certificates: dict[str, Any] = json.loads(write_certificates(found.certificates))
    return certificates | {
        "shortfalls": list(found.shortfalls),
        "curves": curves,
        "report": found.report.to_json(),
        "usage": {"tokens": found.usage.tokens, "dollars": str(found.usage.dollars)},
    }


def score_document(found: JudgeScore) -> dict[str, Any]:
    """Return the document: `report`, `calibrated` (null without certificates), `why_not`, `usage`."""
    return {
        "report": found.report.to_json(),
        "calibrated": None if found.calibrated is None else found.calibrated.to_json(),
        "why_not": list(found.why_not),
        "usage": {"tokens": found.usage.tokens, "dollars": str(found.usage.dollars)},
    }
