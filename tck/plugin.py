"""The pytest plugin that prints the results of the kits: one report for each implementation.

Pytest loads the plugin by itself. It costs nothing without a kit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kairo_team.tck.reports import ContractResult, KitReport

_KEY: Final = "kairo_team.tck"
_CHANGED: Final = "the test was changed, and proves nothing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kit-report`."""
    help_text = "write the results of contract kits of kairo_team.tck to this file, as JSON"
    parser.addoption("--kit-report", metavar="FILE", type=Path, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a report that could not be written."""
    path: Path | None = config.getoption("--kit-report")
    if path is not None and not path.absolute().parent.is_dir():
        raise pytest.UsageError(f"--kit-report {path}: there is no folder {str(path.absolute().parent)!r}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the contract and the clauses of a contract test to its report."""
    report = yield
    kit: Any = getattr(item, "cls", None)
    of_setup = call.when != "call" and report.passed  # a test that is skipped is torn down all the same
    if hasattr(kit, "contract") and not of_setup:
        name = getattr(item, "originalname", item.name)
        if clauses := _clauses(kit, name):
            contract = f"{kit.contract.__module__}:{kit.contract.__qualname__}"
            report.user_properties.append((_KEY, [contract, name, _wrong(kit, name, call), *clauses]))
    return report


def _wrong(kit: Any, name: str, call: pytest.CallInfo[None]) -> str:
    """Return why a contract test failed, or why its pass does not count; "" if it is fine."""
    from kairo_team.tck.reports import reason_of

    if name in _changed(kit):
        return _CHANGED
    return "" if call.excinfo is None else reason_of(call.excinfo.value)


@cache
def _changed(kit: Any) -> list[str]:
    from kairo_team.tck.kit import changed_tests

    return changed_tests(kit)


def _clauses(kit: type, name: str) -> tuple[str, ...]:
    """Return the clauses of a contract test by name, also if it is overridden; empty for any other test."""
    stated: list[tuple[str, ...]] = [getattr(vars(base).get(name), "clauses", ()) for base in kit.__mro__]
    return next(filter(None, stated), ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one report for each implementation whose kit ran, and write them for `--kit-report`."""
    reports = list(_reports(terminalreporter.stats))
    path: Path | None = config.getoption("--kit-report")
    if path is not None:
        told = {"reports": [json.loads(report.to_json()) for report in reports]}
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if reports:
        terminalreporter.section("contracts")
    for report in reports:
        for line in report.lines():
            terminalreporter.write_line(line)


def _reports(stats: dict[str, list[Any]]) -> Iterator[KitReport]:
    from kairo_team.tck.reports import KitReport

    results: dict[tuple[str, str], list[ContractResult]] = {}
    for found in stats.values():
        for report in found:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY:
                    results.setdefault((report.nodeid.rpartition("::")[0], value[0]), []).append(_result(report, value))
    for (implementation, named), of_one in results.items():
        if (contract := _contract(named)) is not None:
            yield KitReport(implementation.removeprefix("::"), contract, of_one)


def _contract(named: str) -> type | None:
    """Return a contract by module and name; None if it is not in this process, or is local to a function."""
    module, _, name = named.partition(":")
    if module.startswith("kairo_team."):
        import_module(module)
    return getattr(sys.modules.get(module), name, None)


def _result(report: pytest.TestReport, value: list[str]) -> ContractResult:
    from kairo_team.tck.reports import ContractResult

    _, test, wrong, *clauses = value
    if wrong == _CHANGED:
        return ContractResult(test, clauses, "failed", wrong)
    expected = getattr(report, "wasxfail", None)
    if expected is not None and report.skipped:
        return ContractResult(test, clauses, "expected", expected)
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return ContractResult(test, clauses, "skipped", str(reason).removeprefix("Skipped: "))
    if report.passed:
        return ContractResult(test, clauses, "passed")
    return ContractResult(
        test, clauses, "failed", wrong or str(report.longrepr)
    )  # a strict xfail that passes: no error
