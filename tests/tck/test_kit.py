"""What every contract kit stands on: clauses and their tests, the guard, reports, and what pytest prints."""

from __future__ import annotations

import inspect
import json
import logging
import re
import subprocess
import sys
import unittest
from itertools import takewhile
from typing import Any, cast

import anyio
import pytest
from hypothesis import strategies as st

from kairo_team import tck
from kairo_team.clauses import clauses_of
from kairo_team.contracts import TeamCoordinator
from kairo_team.errors import MissingExtra
from kairo_team.tck import ContractTCK, EvaluationStrategyTCK, KitReport, TeamCoordinatorTCK, run_kit
from kairo_team.tck.kit import clause, contract_tests, law
from kairo_team.tck.reports import ContractResult, Outcome

pytest.importorskip("scripts.docs_site.source_docs", reason="the scripts are no part of the wheel")

from scripts.docs_site.source_docs import described_anywhere

KITS = [name for name in tck.__all__ if name.endswith("TCK") and name != "ContractTCK"]


def kit_of(name: str) -> type[ContractTCK]:
    return cast("type[ContractTCK]", getattr(tck, name))


# ---------------------------------------------------------------- clauses


@pytest.mark.parametrize("name", KITS)
def test_every_clause_of_a_kits_contract_has_a_contract_test(name: str) -> None:
    tested = {number for _, function in contract_tests(kit_of(name)) for number in cast("Any", function).clauses}
    assert tested == set(clauses_of(kit_of(name).contract))


@pytest.mark.parametrize("name", KITS)
def test_every_contract_test_bears_the_number_of_a_clause_it_is_about(name: str) -> None:
    for test, function in contract_tests(kit_of(name)):
        numbered = re.fullmatch(r"test_c(\d\d)_[a-z0-9_]+", test)
        assert numbered is not None, test
        assert f"C{int(numbered[1])}" in cast("Any", function).clauses, test


@pytest.mark.parametrize("name", KITS)
def test_no_contract_test_of_a_kit_hides_another(name: str) -> None:
    kit_of(name)().test_every_contract_test_is_in_force()


@pytest.mark.parametrize("name", KITS)
def test_no_test_of_a_kit_lacks_its_clause(name: str) -> None:
    stated = {test for test, _ in contract_tests(kit_of(name))} | {"test_every_contract_test_is_in_force"}
    assert {test for test in dir(kit_of(name)) if test.startswith("test")} == stated


@pytest.mark.parametrize("name", KITS)
def test_clauses_are_numbered_without_gaps_and_end_like_sentences(name: str) -> None:
    clauses = clauses_of(kit_of(name).contract)
    assert list(clauses) == [f"C{number}" for number in range(1, len(clauses) + 1)]
    assert all(words.endswith(".") for words in clauses.values())


@pytest.mark.parametrize("name", KITS)
def test_every_capability_of_a_kit_says_what_it_means(name: str) -> None:
    kit = kit_of(name)
    source = "".join(inspect.getsource(base) for base in kit.__mro__ if base is not object)
    said = re.findall(r'^    (\w+): ClassVar\[bool\] = \w+\n    """', source, re.MULTILINE)
    assert {one for one in dir(kit) if isinstance(getattr(kit, one), bool)} <= set(said)


def test_a_clause_is_read_from_its_number_to_the_next() -> None:
    class Contract:
        """Does something.

        C1. It does one thing,
            and another.
        C2. It ends.

        Optional: `name`.
        """

    assert clauses_of(Contract) == {"C1": "It does one thing, and another.", "C2": "It ends."}


def test_a_contract_without_clauses_has_none() -> None:
    assert clauses_of(type("Contract", (), {})) == {}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", tck.__all__)
def test_every_name_is_where_it_is_said_to_be(name: str) -> None:
    assert name in dir(tck)
    assert getattr(tck, name).__doc__ or name in described_anywhere(), "an alias has its words in the source"


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'CoordinatorTCK'"):
        getattr(tck, "CoordinatorTCK")  # noqa: B009 - the type checkers know that it is not there


def test_without_the_extra_a_kit_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tck, "find_spec", lambda name: None if name == "hypothesis" else name)
    monkeypatch.delitem(vars(tck), "run_kit", raising=False)
    with pytest.raises(MissingExtra, match=r"without hypothesis.*kairo-team\[tck\]"):
        getattr(tck, "run_kit")  # noqa: B009 - it is looked up again


# ---------------------------------------------------------------- kits


class Promise:
    """Holds.

    C1. It is so.
    C2. It waits.
    C3. It takes an hour at most.
    C4. It is so for all numbers.
    """


class SmallTCK(ContractTCK):
    """A kit of a few tests."""

    contract = Promise
    can_wait = True

    @clause("C1")
    async def test_c01_it_is_so(self) -> None:
        assert True

    @clause("C2", "C3", needs="can_wait")
    async def test_c02_it_waits(self) -> None:
        await anyio.sleep(3000)

    @law("C4", number=st.integers(0, 3), examples=5)
    async def test_c04_for_all(self, number: int) -> None:
        await anyio.sleep(number)


def small(**members: Any) -> type[SmallTCK]:
    return type("Small", (SmallTCK,), members)


def test_a_kit_runs_without_pytest() -> None:
    report = run_kit(small())
    assert report.implementation == "Small"
    assert report.clauses("passed") == ["C1", "C2", "C3", "C4"]
    assert report.lines() == ["Small: 4 of 4 clauses of Promise hold"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_runs_on_the_event_loop_it_is_asked_for(backend: str) -> None:
    seen: list[str] = []

    class Asking(SmallTCK):
        @clause("C1")
        async def test_c01_asks(self) -> None:
            from sniffio import current_async_library

            seen.append(current_async_library())

    run_kit(Asking, backend=backend, tests="c01_asks")
    assert seen == [backend]


def test_some_contract_tests_are_run_by_a_part_of_their_name() -> None:
    assert [result.test for result in run_kit(small(), tests="_c02_").results] == ["test_c02_it_waits"]


def test_what_is_not_supported_is_skipped_with_its_reason() -> None:
    report = run_kit(small(can_wait=False))
    assert report.clauses("skipped") == ["C2", "C3"]
    assert report.lines()[1:] == ["  skipped C2 C3: can_wait is False"]


async def hang(self: object) -> None:
    await anyio.sleep_forever()


async def fail_in_a_group(self: object) -> None:
    async with anyio.create_task_group():
        raise AssertionError("it is not so\nat all")


def broken(function: Any) -> type[SmallTCK]:
    return small(test_c01_broken=clause("C1")(function))


def test_a_contract_test_that_hangs_fails() -> None:
    (result,) = run_kit(broken(hang), tests="broken").results
    assert (result.outcome, result.reason) == (
        "failed",
        "TimeoutError: something hangs: it was not over after 3600 seconds",
    )


def test_a_failure_is_told_with_the_first_line_of_its_reason() -> None:
    report = run_kit(broken(fail_in_a_group))
    assert report.clauses("failed") == ["C1"]
    assert report.lines()[1:] == ["  C1 FAILED: test_c01_broken - AssertionError: it is not so"]


def test_a_failed_contract_test_quotes_its_clause() -> None:
    async def fail(self: SmallTCK) -> None:
        raise AssertionError("it is not so")

    test = clause("C2")(fail)
    with pytest.raises(AssertionError) as caught:
        anyio.run(cast("Any", test), small()())
    assert caught.value.__notes__ == ["Promise C2. It waits."]


def test_a_law_that_does_not_hold_fails_the_kit() -> None:
    async def fail(self: object, number: int) -> None:
        assert number < 3, f"{number} is too much"

    kit = small(test_c04_broken=law("C4", number=st.integers(0, 9))(fail))
    (result,) = run_kit(kit, tests="broken").results
    assert (result.outcome, result.reason) == ("failed", "AssertionError: 3 is too much")


def test_a_run_may_stop_at_the_first_failure() -> None:
    report = run_kit(broken(fail_in_a_group), stop_at_failure=True)
    assert [result.test for result in report.results] == ["test_c01_broken"]


def test_signals_are_no_results() -> None:
    async def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_kit(broken(interrupt), tests="broken")


@pytest.mark.parametrize("kit", [TeamCoordinatorTCK, EvaluationStrategyTCK])
def test_a_factory_that_is_not_overridden_says_what_to_do(kit: type[Any]) -> None:
    make = "make_coordinator" if kit is TeamCoordinatorTCK else "make_strategy"
    mine = type("TestMine", (kit,), {})
    with pytest.raises(
        NotImplementedError, match=rf"TestMine does not define what to test: override the class method {make}\("
    ):
        getattr(mine, make)()


# ---------------------------------------------------------------- the guard


async def another(self: SmallTCK) -> None:
    """Claim nothing."""


def check(**members: Any) -> None:
    small(**members)().test_every_contract_test_is_in_force()


def test_more_tests_are_welcome() -> None:
    check(test_more=another)


@pytest.mark.parametrize("instead", [another, clause("C1")(another), None, pytest.mark.xfail(another)])
def test_a_contract_test_cannot_be_changed_or_removed(instead: Any) -> None:
    with pytest.raises(AssertionError, match=r"Small changes contract tests: test_c01_it_is_so\. .*xfail"):
        check(test_c01_it_is_so=instead)


def test_a_contract_test_may_be_marked_as_failing_with_a_reason() -> None:
    check(test_c01_it_is_so=pytest.mark.xfail(reason="not yet")(another))


def test_the_guard_itself_stays() -> None:
    with pytest.raises(TypeError, match="test_every_contract_test_is_in_force cannot be overridden"):
        small(test_every_contract_test_is_in_force=another)


# ---------------------------------------------------------------- reports


def report(*results: tuple[str, Outcome, str]) -> KitReport:
    made = [
        ContractResult(f"test_{number}", clauses.split(), outcome, reason)
        for number, (clauses, outcome, reason) in enumerate(results)
    ]
    return KitReport("Mine", TeamCoordinator, made)


def test_a_clause_has_the_worst_outcome_of_its_tests() -> None:
    made = report(("C1", "passed", ""), ("C1 C2", "failed", ""), ("C2", "expected", ""), ("C3", "expected", ""))
    assert (made.clauses("passed"), made.clauses("failed"), made.clauses("expected")) == ([], ["C1", "C2"], ["C3"])


def test_a_clause_is_skipped_only_when_all_its_tests_are() -> None:
    made = report(("C1", "skipped", "no"), ("C1", "passed", ""), ("C2", "skipped", "no"))
    assert (made.clauses("passed"), made.clauses("skipped")) == (["C1"], ["C2"])
    assert made.lines() == [
        "Mine: 1 of the 2 clauses that ran hold, of 27 of TeamCoordinator",
        "  skipped C2: no",
    ]


def test_a_report_is_ok_when_something_passed_and_nothing_failed() -> None:
    assert report(("C1", "passed", ""), ("C2", "skipped", "")).ok
    assert not report(("C1", "passed", ""), ("C2", "failed", "")).ok
    assert not report(("C1", "skipped", "")).ok
    assert not report().ok


def test_a_report_is_json_with_versions_clauses_and_tests() -> None:
    told = json.loads(report(("C1", "passed", ""), ("C2", "failed", "why")).to_json())
    assert (told["implementation"], told["contract"], told["ok"]) == ("Mine", "TeamCoordinator", False)
    assert set(told["versions"]) == {"kairo-team", "python"}
    assert told["clauses"]["C1"] == {"text": clauses_of(TeamCoordinator)["C1"], "outcome": "passed"}
    assert told["clauses"]["C20"]["outcome"] is None
    assert told["tests"][1] == {"test": "test_1", "clauses": ["C2"], "outcome": "failed", "reason": "why"}


def test_running_a_kit_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test_c01_it_is_so(self: SmallTCK) -> None:
        logging.getLogger("kairo_team").error("the run failed")

    loud = small(test_c01_loudly=clause("C1")(test_c01_it_is_so))
    assert run_kit(loud).ok
    assert not caplog.records
    assert not logging.getLogger("kairo_team").disabled


def test_a_kit_is_no_test_case_of_unittest() -> None:
    with pytest.raises(TypeError, match=r"run by pytest.*run_kit\(\.\.\.\)\.ok"):
        type("Mixed", (SmallTCK, unittest.TestCase), {})


def test_clauses_come_in_the_order_of_their_numbers() -> None:
    made = report(("C10", "skipped", "no"), ("C9", "skipped", "no"), ("C2", "skipped", "no"), ("C1", "skipped", "no"))
    assert made.lines()[1:] == ["  skipped C1 C2 C9 C10: no"]


def test_what_happened_on_both_event_loops_is_said_once() -> None:
    made = KitReport("Mine", TeamCoordinator, [ContractResult("test_c01", ["C1"], "failed", "no")] * 2)
    assert made.lines()[1:] == ["  C1 FAILED: test_c01 - no"]


def test_what_fails_for_one_reason_is_said_once() -> None:
    """A factory that is missing fails every contract test; reasons come in the order of their clauses."""
    made = report(
        ("C9", "failed", "late"),
        ("C8", "expected", "late"),
        ("C10", "failed", "no factory"),
        ("C2 C3", "failed", "no factory"),
        ("C2", "failed", "no factory"),
        ("C1", "failed", ""),
        ("C12", "failed", "loud"),
        ("C11", "failed", "loud"),
    )
    assert made.lines()[1:] == [
        "  C1 FAILED: test_5",
        "  C2 C3 C10 FAILED: 3 contract tests - no factory",
        "  C8 fails, as expected: test_1 - late",
        "  C9 FAILED: test_0 - late",
        "  C11 C12 FAILED: test_7, test_6 - loud",
    ]


def test_a_long_reason_is_cut() -> None:
    made = report(("C1", "failed", "x" * 301), ("C2", "failed", "y" * 300))
    assert made.lines()[1:] == [f"  C1 FAILED: test_0 - {'x' * 300} ...", f"  C2 FAILED: test_1 - {'y' * 300}"]


def test_what_is_skipped_comes_in_the_order_of_its_clauses() -> None:
    made = report(("C9", "skipped", "a"), ("C2", "skipped", "b"), ("C10", "skipped", "b"))
    assert made.lines()[1:] == ["  skipped C2 C10: b", "  skipped C9: a"]


# ---------------------------------------------------------------- pytest

TESTS = '''
import pytest
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.tck import ContractTCK, TeamCoordinatorTCK
from kairo_team.tck.kit import clause


class TestBoard(TeamCoordinatorTCK):
    tolerates_failures = True
    joins_output = False

    @classmethod
    def make_coordinator(cls, *, evaluator=None):
        return TaskDispatchCoordinator()

    def test_of_its_own(self):
        """Anything else."""


class Raising(TaskDispatchCoordinator):
    async def execute(self, request, team):
        result = await super().execute(request, team)
        if result.refused:
            raise ValueError(result.error)
        return result


class TestRaising(TestBoard):
    backends = ("asyncio",)

    @classmethod
    def make_coordinator(cls, *, evaluator=None):
        return Raising()


class TestKnown(TestRaising):
    @pytest.mark.xfail(reason="it raises still")
    async def test_c17_what_nobody_can_do_fails_the_run_while_planning(self):
        await super().test_c17_what_nobody_can_do_fails_the_run_while_planning()


class TestTampered(TestRaising):
    async def test_c17_what_nobody_can_do_fails_the_run_while_planning(self):
        """Nothing is left of it."""


class TestBetter(TestBoard):
    @pytest.mark.xfail(reason="it raises still", strict=True)
    async def test_c17_what_nobody_can_do_fails_the_run_while_planning(self):
        await super().test_c17_what_nobody_can_do_fails_the_run_while_planning()


class TestEmpty(TeamCoordinatorTCK):
    pass


class Greeter:
    """Greets.

    C17. It is polite.
    C18. It is brief.
    """


class GreeterTCK(ContractTCK):
    contract = Greeter

    @clause("C17")
    async def test_c17_it_is_polite(self):
        """Always."""


class TestGreeter(GreeterTCK):
    pass
'''


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the kits above in a pytest of their own; return what it printed."""
    where = tmp_path_factory.mktemp("kits")
    (where / "test_mine.py").write_text(TESTS, encoding="utf-8")
    options = ["-p", "no:cacheprovider", "-k", "c17 or c20 or in_force or of_its_own", "-rs", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, "test_mine.py"]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=120, check=False).stdout


def lines_about(output: str, name: str) -> list[str]:
    """Return the report of one test class."""
    lines = output.partition("contracts =")[2].splitlines()
    start = next(place for place, line in enumerate(lines) if f"::{name}: " in line)
    rest = list(takewhile(lambda line: line.startswith("  "), lines[start + 1 :]))
    return [lines[start].partition("::")[2], *rest]


@pytest.mark.exhaustive
def test_pytest_prints_a_report_for_each_implementation(output: str) -> None:
    head, *rest = lines_about(output, "TestBoard")
    assert re.fullmatch(r"TestBoard: \d of the \d clauses that ran hold, of 27 of TeamCoordinator", head)
    assert rest == ["  skipped C20: joins_output is False"]


def test_what_fails_is_named_with_its_clause(output: str) -> None:
    name = "test_c17_what_nobody_can_do_fails_the_run_while_planning"
    (line,) = [line for line in lines_about(output, "TestRaising") if "FAILED" in line]
    assert line.startswith(f"  C17 FAILED: {name} - ValueError: task 'odd' needs the capabilities")
    assert "TeamCoordinator C17. A task that no member can do fails the run while planning" in output


def test_what_is_expected_to_fail_is_reported_as_that(output: str) -> None:
    name = "test_c17_what_nobody_can_do_fails_the_run_while_planning"
    assert f"  C17 fails, as expected: {name} - it raises still" in lines_about(output, "TestKnown")


def test_pytest_refuses_a_changed_contract_test(output: str) -> None:
    assert "TestTampered changes contract tests: test_c17_what_nobody_can_do" in output
    assert "TestKnown changes contract tests" not in output
    assert not any("was changed" in line for line in lines_about(output, "TestKnown"))


def test_a_changed_contract_test_proves_nothing(output: str) -> None:
    name = "test_c17_what_nobody_can_do_fails_the_run_while_planning"
    assert f"  C17 FAILED: {name} - the test was changed, and proves nothing" in lines_about(output, "TestTampered")


def test_what_passes_though_it_must_fail_is_told(output: str) -> None:
    name = "test_c17_what_nobody_can_do_fails_the_run_while_planning"
    assert f"  C17 FAILED: {name} - [XPASS(strict)] it raises still" in lines_about(output, "TestBetter")


def test_pytest_says_which_factory_is_missing(output: str) -> None:
    (line,) = [line for line in lines_about(output, "TestEmpty")[1:] if "FAILED" in line]
    assert "contract tests - NotImplementedError: TestEmpty does not define what to test" in line
    assert "TestEmpty does not define what to test: override the class method make_coordinator(" in output


def test_a_kit_of_ones_own_is_reported_too(output: str) -> None:
    assert lines_about(output, "TestGreeter") == ["TestGreeter: 1 of the 1 clauses that ran hold, of 2 of Greeter"]


def test_skipped_contract_tests_show_their_reason(output: str) -> None:
    assert "joins_output is False" in output.partition("short test summary info")[2]
