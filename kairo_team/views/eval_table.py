"""An eval as text: its metrics, its criteria, the cases that did not pass, and how it compares with an earlier one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kairo_team._util.counts import count
from kairo_team.evals.eval_result import OUTCOMES, Comparison, EvalResult, Trial
from kairo_team.evals.recorded_runs import RejudgedRuns
from kairo_team.views.text import aligned, one_line, some_of

MOST_CASES: Final = 20
"""Cases that a table names."""
_WHY: Final = 90
"""Characters of a reason in the row of a case."""
_WHOLE: Final = 600
"""Characters of a reason by itself: what to do about it is at its end."""
_MOST_REASONS: Final = 3


def draw_eval(result: EvalResult, *, full: bool = False) -> str:
    """Return the table of an eval; `full` names every case that did not pass."""
    return "\n".join([describe_eval(result), "", *_metrics_and_cases(result, metric_rows(result), full=full)])


def _metrics_and_cases(result: EvalResult, rows: Iterable[tuple[str, str]], *, full: bool = False) -> list[str]:
    lines = draw_table(rows)
    criteria = [(name, str(met)) for name, met in result.criteria.items()]
    if criteria:
        lines += ["", "Criteria, met where decided", *draw_table(criteria)]
    lacking = [(case, trials) for case, trials in result.cases.items() if any(one.outcome != "pass" for one in trials)]
    if lacking:
        shown = lacking if full else lacking[:MOST_CASES]
        lines += ["", "Cases that did not pass", *draw_table(_case_row(case, trials) for case, trials in shown)]
        lines += [f"  and {count(len(lacking) - len(shown), 'more case')}"] if len(shown) < len(lacking) else []
    reasons = Counter(one.why for one in result.trials if one.outcome == "undecided")
    if reasons:
        rows = [(count(many, "trial"), one_line(why, _WHOLE)) for why, many in reasons.most_common(_MOST_REASONS)]
        lines += ["", "Why a judge left trials undecided", *draw_table(rows)]
    if result.error:
        lines += ["", one_line(result.error)]
    return lines


def draw_runs(found: RejudgedRuns) -> str:
    """Return the table of finished runs that were judged again."""
    by = f", judged by {found.result.judge}" if found.result.judge else ""
    left = f", {found.not_drawn:,} not drawn" if found.not_drawn else ""
    lines = [one_line(f"{found.result.name}: {count(len(found.runs), 'run')}, seed {found.seed}{left}{by}"), ""]
    decided = [one for one in found.weeks if one.passed.n]
    rows = [
        ("agreement", str(found.agreement)),
        ("  accepted then", f"pass now: {found.accepted}" if found.accepted.n else "none was decided"),
        ("  refused then", f"pass now: {found.refused}" if found.refused.n else "none was decided"),
    ]
    if "kappa" in found.metrics:
        rows.append(("  beyond chance", f"kappa {found.metrics['kappa']:.2f}"))
    if "drift" in found.metrics:
        chance = f"chance alone: {found.metrics['drift_p_value']:.2g}"
        rows.append(("drift", f"{found.metrics['drift']:+.1%} passed in {decided[-1].week}, {chance}"))
    rows += [(f"skipped {why}", f"{many:,}") for why, many in found.skipped.items()]
    lines += draw_table(rows)
    weeks = [(one.week, f"passed {one.passed}", f"agreed {one.agreed}") for one in decided]
    lines += ["", "Weeks in which the runs began", *draw_table(weeks)] if weeks else []
    metrics = [row for row in metric_rows(found.result) if row[0] != "time"]  # no team ran
    return "\n".join([*lines, "", *_metrics_and_cases(found.result, metrics)])


def describe_eval(result: EvalResult) -> str:
    """Describe in one line what was evaluated."""
    judge = f", judged by {result.judge}" if result.judge else ""
    many = f", {result.repeat} times each" if result.repeat > 1 else ""
    return one_line(f"{result.team} on {result.name}: {count(len(result.cases), 'case')}{many}{judge}")


def metric_rows(result: EvalResult) -> list[tuple[str, str]]:
    """Return the names and values that a person reads first."""
    found, (low, high) = result.metrics, result.interval
    passed = result.passed
    rows = [("passed", f"{passed.k:,} of {passed.n:,}, {found['pass_rate']:.1%} ({low:.1%} to {high:.1%})")]
    awaits = sum(one.awaits_person for one in result.trials)
    rows += [("  await a person", f"{awaits:,} of the {passed.k:,}")] if awaits else []
    for outcome in OUTCOMES[1:]:
        many = sum(one.outcome == outcome for one in result.trials)
        rows += [(_WORDS[outcome], f"{many:,}")] if many else []
    rows += [("score", f"{found['score']:.2f}")] if "score" in found else []
    if "flip_rate" in found:
        rows.append(("flips", f"{found['flip_rate']:.1%} of the cases differ between their repeats"))
    if result.repeat > 1:
        any_of, all_of = (found[f"pass_{how}_{result.repeat}"] for how in ("any", "all"))
        rows.append(("tries", f"any of {result.repeat} passes in {any_of:.1%} of the cases, all in {all_of:.1%}"))
    rows.append(("cost", f"${found['dollars']:.4f}, {found['tokens']:,.0f} tokens"))
    if "seconds" in found:
        rows.append(("time", f"{found['seconds']:.1f} s a trial (median), 95 % within {found['seconds_p95']:.1f} s"))
    return rows


_WORDS: Final[Mapping[str, str]] = {
    "fail": "failed",
    "undecided": "undecided",
    "error": "no result",
    "not run": "not run",
}


def _case_row(case: str, trials: Sequence[Trial]) -> tuple[str, str, str]:
    passed = sum(one.outcome == "pass" for one in trials)
    first = next(one for one in trials if one.outcome != "pass")
    return case, f"{passed:,} of {len(trials):,}", f"{_WORDS[first.outcome]}: {one_line(first.why, _WHY)}"


def draw_comparison(found: Comparison) -> str:
    """Return the table of a comparison."""
    rows = [("passed", str(found.passed))]
    if found.score is not None:
        one = found.score
        rows.append(
            ("score", f"{one.before:.2f} -> {one.after:.2f}, {one.change:+.2f} ({one.low:+.2f} to {one.high:+.2f})")
        )
    rows += [("better", _named(found.better)), ("worse", _named(found.worse))]
    rows.append(("chance", f"would split the changed cases this unevenly with a probability of {found.p_value:.2g}"))
    rows += [(f"criterion {name}", f"{old:.1%} -> {new:.1%}") for name, (old, new) in found.criteria.items()]
    lines = [f"Compared with the earlier eval, on {count(found.cases, 'case')}", *draw_table(rows)]
    return "\n".join([*lines, *(f"  note: {one_line(one)}" for one in found.warnings)])


def _named(cases: Sequence[str]) -> str:
    if not cases:
        return "none"
    return f"{count(len(cases), 'case')}: {some_of(cases, MOST_CASES)}"


def draw_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; a cell is one clean line."""
    return [f"  {line}" for line in aligned([[one_line(cell) for cell in row] for row in rows])]
