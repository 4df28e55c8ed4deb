"""Run kits without pytest, to test the kits themselves: the report on a wrong implementation."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from anyio import NoEventLoopError
from anyio.lowlevel import current_token

from kairo_team.errors import Misuse
from kairo_team.tck.kit import ContractTCK, contract_tests
from kairo_team.tck.reports import ContractResult, KitReport, reason_of


def run_kit(
    kit: type[ContractTCK], *, backend: str = "asyncio", tests: str = "", stop_at_failure: bool = False
) -> KitReport:
    """Run the contract tests of a kit class on one event loop and return the report; do not raise their failures.

    `tests`: run only tests whose name contains this. Contract tests that draw values run on both event loops. Raises
    `Misuse` inside an event loop, because it makes its own.
    """
    if not (isinstance(kit, type) and issubclass(kit, ContractTCK)):
        raise TypeError(f"run_kit takes a kit class, such as class TestMine(AgentTCK), not {kit!r:.80}")
    _check_outside()
    results: list[ContractResult] = []
    with _quiet():
        for name, function in contract_tests(kit):
            if tests in name:
                results.append(_run(kit, name, function, backend))
            if stop_at_failure and results and results[-1].outcome == "failed":
                break
    return KitReport(kit.__name__, kit.contract, results)


@contextmanager
def _quiet() -> Generator[None]:
    """Log nothing inside the block: the runs of a kit fail on purpose, and the report says what matters."""
    logger = logging.getLogger("kairo_team")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _check_outside() -> None:
    try:
        current_token()
    except NoEventLoopError:
        return
    raise Misuse("run_kit makes its own event loops and cannot run inside one: call it from plain code")


def _run(kit: type[ContractTCK], name: str, function: Callable[..., Any], backend: str) -> ContractResult:
    clauses: tuple[str, ...] = getattr(function, "clauses", ())
    try:
        _call(kit, name, backend)
    except pytest.skip.Exception as skipped:
        return ContractResult(name, clauses, "skipped", str(skipped.msg))
    except BaseExceptionGroup as group:
        if group.split((Exception, pytest.fail.Exception))[1] is not None:
            raise
        return ContractResult(name, clauses, "failed", reason_of(group))
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - every failure is part of the report
        return ContractResult(name, clauses, "failed", reason_of(error))
    return ContractResult(name, clauses, "passed")


def _call(kit: type[ContractTCK], name: str, backend: str) -> None:
    method = getattr(kit(), name)
    if not inspect.iscoroutinefunction(method):
        method()
        return
    loop, options = kit.backend(backend)
    anyio.run(method, backend=loop, backend_options=options)
