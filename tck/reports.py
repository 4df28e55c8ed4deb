"""The report of a kit on one implementation, clause by clause."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version
from typing import Any, Final, Literal, cast

from kairo_team.clauses import clauses_of, promise_of, unseen_of

Outcome = Literal["passed", "skipped", "failed", "expected"]
"""`expected`: the test fails, and is marked as xfail."""
_NAMED: Final = 2
"""Most contract tests named for one reason; the rest are counted."""
_LONGEST: Final = 300
"""Longest shown reason, in characters."""


@dataclass(frozen=True, slots=True)
class ContractResult:
    """The result of one contract test."""

    test: str
    clauses: Sequence[str]
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KitReport:
    """The results of the contract tests of one implementation."""

    implementation: str
    """The name of the test class."""
    contract: type
    results: Sequence[ContractResult]

    def clauses(self, outcome: Outcome) -> list[str]:
        """Return the clauses with that outcome, in order; a clause has the worst outcome of its tests.

        A clause is skipped only if all of its tests are.
        """
        return [number for number in clauses_of(self.contract) if self._outcome(number) == outcome]

    @property
    def ok(self) -> bool:
        """Whether no contract test failed, and at least one passed. One that fails as expected counts as neither."""
        outcomes = {result.outcome for result in self.results}
        return "failed" not in outcomes and "passed" in outcomes

    def to_json(self) -> str:
        """Return the report as JSON: versions, each clause with its text and outcome, and each contract test."""
        promise = promise_of(self.contract)
        told: dict[str, Any] = {
            "implementation": self.implementation,
            "contract": self.contract.__name__,
            "version": promise and promise.version,
            "stability": promise and promise.stability,
            "ok": self.ok,
            "cannot_see": unseen_of(self.contract),
            "versions": {"kairo-team": version("kairo-team"), "python": python_version()},
            "clauses": {
                number: {"text": text, "outcome": self._outcome(number)}
                for number, text in clauses_of(self.contract).items()
            },
            "lines": self.lines(),
            "tests": [
                {"test": one.test, "clauses": list(one.clauses), "outcome": one.outcome, "reason": one.reason}
                for one in self.results
            ],
        }
        return json.dumps(told, indent=2)

    def _outcome(self, number: str) -> Outcome | None:
        found = {result.outcome for result in self.results if number in result.clauses}
        order: list[Outcome] = ["failed", "expected", "passed", "skipped"]
        return next((outcome for outcome in order if outcome in found), None)

    def lines(self) -> list[str]:
        """Return the report for people: a summary line, and a line for each reason why clauses do not hold."""
        passed, known = self.clauses("passed"), clauses_of(self.contract)
        ran = [number for number in known if self._outcome(number) is not None]
        if len(ran) == len(known):
            of_them = f"{len(passed)} of {len(known)} clauses of {self.contract.__name__} hold"
        else:
            of_them = (
                f"{len(passed)} of the {len(ran)} clauses that ran hold, of {len(known)} of {self.contract.__name__}"
            )
        head = f"{self.implementation}: {of_them}"
        unseen = unseen_of(self.contract)
        told = (*self._skipped(), *self._broken(), *([f"the kit cannot see: {unseen}"] if unseen else ()))
        return [head, *(f"  {line}" for line in dict.fromkeys(told))]

    def _skipped(self) -> Iterable[str]:
        skipped = set(self.clauses("skipped"))
        reasons = {result.reason for result in self.results if skipped.intersection(result.clauses)}
        skips = [
            (_in_order({*result.clauses} & skipped for result in self.results if result.reason == reason), reason)
            for reason in reasons
        ]
        for numbers, reason in sorted(skips, key=lambda pair: ([_number(one) for one in pair[0]], pair[1])):
            yield f"skipped {' '.join(numbers)}: {reason}"

    def _broken(self) -> Iterable[str]:
        broken = [result for result in self.results if result.outcome in {"failed", "expected"}]
        broken.sort(key=lambda result: _number(result.clauses[0]))
        by_reason: dict[tuple[str, str], list[ContractResult]] = {}
        for result in broken:
            by_reason.setdefault((result.outcome, result.reason or result.test), []).append(result)
        for results in by_reason.values():
            yield _joined(results)


def _joined(results: Sequence[ContractResult]) -> str:
    """Return the line of contract tests that fail for one reason, such as a missing factory."""
    tests = [*dict.fromkeys(result.test for result in results)]
    numbers = " ".join(_in_order(result.clauses for result in results))
    outcome = "FAILED" if results[0].outcome == "failed" else "fails, as expected"
    which = ", ".join(tests) if len(tests) <= _NAMED else f"{len(tests)} contract tests"
    reason = f" - {_cut(results[0].reason)}" if results[0].reason else ""
    return f"{numbers} {outcome}: {which}{reason}"


def _cut(reason: str) -> str:
    """Cut a reason to a few lines; pytest shows all of it with the failure."""
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."


def _in_order(clauses: Iterable[Iterable[str]]) -> list[str]:
    return sorted({number for some in clauses for number in some}, key=_number)


def _number(clause: str) -> int:
    return int(clause.removeprefix("C"))


def reason_of(error: BaseException) -> str:
    """Return why a contract test failed: the type and first line of its error, or of the first error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
