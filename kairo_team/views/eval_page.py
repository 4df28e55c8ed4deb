"""An eval as one HTML file, in the style of a run's report: no script, no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from kairo_team._util.counts import count
from kairo_team.evals.eval_result import Comparison, EvalResult, Trial
from kairo_team.views.eval_table import describe_eval, draw_comparison, metric_rows
from kairo_team.views.report_html import page_style, policy_of
from kairo_team.views.report_text import cut, template

if TYPE_CHECKING:
    from kairo_team.verdicts import CriterionResult

_OUTPUT: Final = 4_000
"""Characters of a result that are shown."""
_MOST_CASES: Final = 1_000
"""Cases that are shown, those that did not pass first."""
_STYLES: Final = {"pass": "done", "fail": "failed", "error": "failed", "undecided": "suspended", "not run": "pending"}


def render_eval(result: EvalResult, comparison: Comparison | None = None) -> str:
    """Return the HTML page of an eval and of its comparison with an earlier one."""
    css = page_style()
    trusted = {"policy": Markup(policy_of(css)), "css": Markup(css)}  # noqa: S704 - the library's own
    body = Markup(show_eval(result, comparison))  # noqa: S704 - a template wrote it
    return template("eval.html").render(title=describe_eval(result), run_id=result.run_id, body=body, **trusted)


def show_eval(result: EvalResult, comparison: Comparison | None = None) -> str:
    """Return the body of the page."""
    cases = sorted(result.cases.items(), key=lambda one: all(trial.outcome == "pass" for trial in one[1]))
    # Reversed, so that the first trial's text of a criterion wins.
    texts = {one.id: one.text for trial in reversed(result.trials) for one in trial.criteria}
    return template("eval_body.html").render(
        styles=_STYLES,
        metrics=metric_rows(result),
        error=result.error,
        comparison=None if comparison is None else draw_comparison(comparison).split("\n", 1),
        criteria=[(name, texts[name], str(met)) for name, met in result.criteria.items()],
        cases=[_case(case, trials, comparison) for case, trials in cases[:_MOST_CASES]],
        more=f"And {count(len(cases) - _MOST_CASES, 'more case')}." if len(cases) > _MOST_CASES else "",
    )


def _case(case: str, trials: Sequence[Trial], comparison: Comparison | None) -> dict[str, Any]:
    change = ""
    if comparison is not None:
        change = "better" if case in comparison.better else "worse" if case in comparison.worse else ""
    return {
        "id": case,
        "change": change,
        "trials": [_trial(one) for one in trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    output, more = cut(trial.output, _OUTPUT)
    usage = trial.usage + trial.review
    heading = [f"Trial {trial.number}: {trial.outcome}"]
    heading += [] if trial.score is None else [f"score {trial.score:.2f}"]
    heading.append(f"{count(usage.tokens, 'token')}, ${usage.dollars:.4f}, {trial.usage.seconds:.1f} s")
    return {
        "outcome": trial.outcome,
        "heading": ", ".join(heading),
        "why": trial.why,
        "criteria": [_criterion(one) for one in trial.criteria],
        "output": f"{output}\n\n{more}" if more else output,
    }


def _criterion(one: CriterionResult) -> str:
    agreed = "" if one.agreement is None else f" ({one.agreement:.0%} of the panel)"
    return f"{one.id}: {one.level}{agreed}" + (f": {one.reason}" if one.reason else "")
