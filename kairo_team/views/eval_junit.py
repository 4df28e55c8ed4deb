"""An eval as JUnit XML, which CI systems show: a test for each trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from kairo_team.views.text import NOT_XML, one_line

if TYPE_CHECKING:
    from kairo_team.evals.eval_result import EvalResult, Trial

_TITLE: Final = 200
"""Characters of a reason in an attribute."""
_ELEMENTS: Final = {"fail": "failure", "undecided": "error", "error": "error", "not run": "skipped"}


def draw_junit(result: EvalResult) -> str:
    """Return an eval as JUnit XML: a trial that failed is a failure, one without a decision an error.

    Trials that were not run are skipped. Texts come from models, so characters that XML cannot hold are left out.
    """
    counts = {
        "tests": len(result.trials),
        "failures": _count_trials(result, "failure"),
        "errors": _count_trials(result, "error"),
        "skipped": _count_trials(result, "skipped"),
    }
    numbers = {name: str(many) for name, many in counts.items()}
    suites = Element("testsuites", numbers)
    suite = SubElement(suites, "testsuite", {"name": _valid_xml(f"{result.team} on {result.name}"), **numbers})
    for trial in result.trials:
        _add(suite, result, trial)
    written: str = tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'


def _count_trials(result: EvalResult, element: str) -> int:
    return sum(_ELEMENTS.get(one.outcome) == element for one in result.trials)


def _add(suite: Element, result: EvalResult, trial: Trial) -> None:
    number = f" {trial.number}" if result.repeat > 1 else ""
    about = {"classname": _valid_xml(result.name), "name": _valid_xml(f"{trial.case}{number}")}
    test = SubElement(suite, "testcase", {**about, "time": f"{trial.usage.seconds:.3f}"})
    element = _ELEMENTS.get(trial.outcome)
    if element is not None:
        kind = trial.outcome if trial.cause is None else trial.cause.value
        why = {"message": _valid_xml(one_line(trial.why or trial.outcome, _TITLE)), "type": kind}
        SubElement(test, element, why).text = _valid_xml(trial.why)
    if trial.output:
        SubElement(test, "system-out").text = _valid_xml(trial.output)


def _valid_xml(text: str) -> str:
    return NOT_XML.sub("", text)
